"""Each extra in a virtual environment of its own: `make test-extras` runs this. The wheel is installed with that extra alone, and what it
brings is used there. So is what needs another SDK of MCP than the suite has."""

import asyncio
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from shelflife.apis.acme import acme_app
from shelflife.testing import serving
from tests.acme_world import GOVERNED
from tests.agents.capabilities import CAPABILITIES
from tests.agents.mcp_billing import McpBilling, shown_by
from tests.agents.scripted import KEY, scripted_model

FOLDER = Path(__file__).parents[1]
LOCKS = [FOLDER / "requirements.lock", FOLDER / "tests/agents/requirements.lock"]
LONGEST_INSTALLATION_S, LONGEST_RUN_S = 300, 120

SHOP = """
from shelflife.server import Provider, fix
provider = Provider({"codes": {"growth": {"code": "SUMMER"}}})

@provider.policy
def promo_must_be_the_assigned_one(request, tables):
    code = tables.codes[request["plan"]]["code"]
    return None if request.equals("promo", code) else fix("USE", promo=code)
"""

REFUSED = """
import json, urllib.request
from urllib.error import HTTPError

def assert_refused(address):
    asked = urllib.request.Request(
        address + "/orders", b'{"plan": "growth"}', {"Content-Type": "application/json"})
    try:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked)
    except HTTPError as refused:
        [suggestion] = json.load(refused)["recovery_feedback"]["suggestions"]
        assert (refused.code, suggestion["parameters"]) == (422, {"promo": "SUMMER"})
    else:
        raise AssertionError("it was carried out")
"""

OVER_WSGI = """
import threading
from wsgiref.simple_server import make_server
server = make_server("127.0.0.1", 0, application)
threading.Thread(target=server.handle_request, daemon=True).start()
assert_refused(f"http://127.0.0.1:{server.server_port}")
"""

OVER_ASGI = """
from shelflife.testing import serving
with serving(app) as address:
    assert_refused(address)
"""

AGENT = f"""
import sys
from shelflife.client import Guard, Memory
address, wanted, memory = sys.argv[1], {GOVERNED!r}, Memory()
"""

ONCE_REFUSED = "assert statuses == [422, 201], statuses"

OVER_HTTPX = """
from shelflife.integrations.{0} import MemoryTransport
client = {0}.Client(transport=MemoryTransport(memory, guard=Guard()), trust_env=False)
statuses = [client.post(address + "/subscriptions", json=wanted).status_code for _ in range(2)]
"""

TOOL = """
def subscribe(plan: str, promo: str | None = None) -> str:
    return f"made with {promo}"

server.tool()(subscribe)
install(server, provider, checked=["subscribe"])

async def main():
    async with Client(server) as client:
        refused = await client.call_tool("subscribe", {"plan": "growth"}, **options)
        done = await client.call_tool("subscribe", {"plan": "growth", "promo": "SUMMER"})
    assert 'set promo to "SUMMER"' in refused.content[0].text, refused
    assert done.content[0].text == "made with SUMMER", done

asyncio.run(main())
"""

STORED = """
import sys
memory_store = Store(sys.argv[1])
assert list(memory_store.entries()) == []
memory_store.close()
"""

PROGRAMS = {
    "server": [
        SHOP,
        REFUSED,
        """
from fastapi import FastAPI
from shelflife.integrations import starlette
from shelflife.integrations.fastapi import install
app = FastAPI()

@app.post("/orders")
def order(order: dict):
    provider.check(order)

install(app, provider)
""",
        OVER_ASGI,
    ],
    "litestar": [
        SHOP,
        REFUSED,
        """
from litestar import Litestar, Request, post
from shelflife.integrations.litestar import ContractPlugin

@post("/orders")
async def order(request: Request) -> None:
    provider.check(await request.json())

app = Litestar([order], plugins=[ContractPlugin(provider)])
""",
        OVER_ASGI,
    ],
    "flask": [
        SHOP,
        REFUSED,
        """
from flask import Flask, request
from shelflife.integrations.flask import install
application = Flask("shop")

@application.post("/orders")
def order():
    provider.check(request.get_json())

install(application, provider)
""",
        OVER_WSGI,
    ],
    "django": [
        SHOP,
        REFUSED,
        """
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.urls import path
from shelflife.integrations.django import contract_urls
from shelflife.integrations.wsgi import ContractMiddleware

settings.configure(
    MIDDLEWARE=["shelflife.integrations.django.RefusalsAnswered"], ROOT_URLCONF=__name__, SECRET_KEY="x")
urlpatterns = [*contract_urls(provider), path("orders", lambda request: provider.check(json.load(request)))]
application = ContractMiddleware(get_wsgi_application(), provider)
""",
        OVER_WSGI,
    ],
    "mcp": [
        SHOP,
        """
import asyncio
from mcp import Client
from mcp.server import MCPServer
from shelflife.integrations import mcp_client
from shelflife.integrations.mcp import install
server, options = MCPServer("shop"), {}
""",
        TOOL,
    ],
    "fastmcp": [
        SHOP,
        """
import asyncio
from fastmcp import Client, FastMCP
from shelflife.integrations import mcp, mcp_client
from shelflife.integrations.fastmcp import install
server, options = FastMCP("shop"), {"raise_on_error": False}
""",
        TOOL,
    ],
    "httpx": [AGENT, "import httpx", OVER_HTTPX.format("httpx"), ONCE_REFUSED],
    "httpx2": [AGENT, "import httpx2", OVER_HTTPX.format("httpx2"), ONCE_REFUSED],
    "requests": [
        AGENT,
        """
import requests
from shelflife.integrations.requests import MemoryAdapter
session = requests.Session()
session.trust_env = False
session.mount("http://", MemoryAdapter(memory, guard=Guard()))
statuses = [session.post(address + "/subscriptions", json=wanted).status_code for _ in range(2)]
""",
        ONCE_REFUSED,
    ],
    "aiohttp": [
        AGENT,
        """
import asyncio
import aiohttp
from shelflife.integrations.aiohttp import memory_middleware
statuses = []

async def main():
    async with aiohttp.ClientSession(middlewares=[memory_middleware(memory, guard=Guard())]) as session:
        for _ in range(2):
            async with session.post(address + "/subscriptions", json=wanted) as response:
                await response.read()
                statuses.append(response.status)

asyncio.run(main())
""",
        ONCE_REFUSED,
    ],
    "opentelemetry": [
        """
from shelflife.client import Memory
from shelflife.integrations.opentelemetry import instrument
memory = Memory(ask=lambda question: None)
instrument(memory)
assert memory.refresh("http://shop.example") == []
"""
    ],
    "postgres": ["from shelflife.client.postgres import PostgresStore as Store", STORED],
    "redis": ["from shelflife.client.valkey import ValkeyStore as Store", STORED],
    "signed": [
        """
from shelflife.integrations.ed25519 import SigningKey, trust
assert SigningKey.new().sign(b"a state")
trust({})
"""
    ],
    # A framework's adapter needs a model to do anything: the suite has stand-ins for those, and here is only seen that all is there.
    "langchain": ["from shelflife.integrations.langchain import *"],
    "openai-agents": ["from shelflife.integrations.openai_agents import *"],
    "pydantic-ai": ["from shelflife.integrations.pydantic_ai import *"],
    "claude-agent-sdk": ["from shelflife.integrations.claude_agent_sdk import *"],
}
"""What is run in the environment of each extra, in parts that are one program together."""

ADAPTERS = ["langchain-mcp-adapters==0.3.2", "mcp==1.30.0", "langchain-openai"]
"""What LangChain loads tools of MCP by, and the newest SDK that this works with."""

LANGCHAIN_OVER_MCP = f"""
import asyncio, json, sys
from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI
from shelflife.client import Memory
from shelflife.integrations.langchain_mcp import MemoryInterceptor

async def main(url, model):
    client = MultiServerMCPClient({{"billing": {{"transport": "http", "url": url}}}})
    client.tool_interceptors.append(MemoryInterceptor(client, Memory()))
    chat = ChatOpenAI(model="any", base_url=model + "/v1", api_key={KEY!r})
    agent = create_agent(chat, await client.get_tools())
    while prompt := (await asyncio.to_thread(sys.stdin.readline)).strip():
        said = await agent.ainvoke({{"messages": [("user", prompt)]}})
        print(json.dumps(said["messages"][-1].content), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=FOLDER, check=True, capture_output=True, timeout=LONGEST_RUN_S)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def constraints(tmp_path_factory):
    """The versions of the locks. Their hashes are left out: pip would want one of the wheel too."""
    pins = re.findall(
        r"^[\w.-]+(?:\[[\w,-]+\])?==[^\\\n]*", "\n".join(lock.read_text() for lock in LOCKS), re.MULTILINE
    )
    pinned = tmp_path_factory.mktemp("constraints") / "constraints.txt"
    pinned.write_text("\n".join(sorted({pin.strip() for pin in pins})))
    return pinned


@pytest.fixture(scope="module")
def address():
    with serving(acme_app()) as served:
        yield served


@pytest.fixture
def argument(request, extra):
    """What the program of an extra is told: where its peer is, if it has one."""
    peers = {"postgres": "postgres_url", "redis": "valkey_url"}
    return request.getfixturevalue(peers.get(extra, "address"))


def run(command, timeout_s):
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, done.stdout


def python_with(environment, constraints, *requirements):
    """The Python of a new environment that has these, and what they need."""
    python = str(environment / "bin/python")
    run([sys.executable, "-m", "venv", "--without-pip", str(environment)], LONGEST_RUN_S)
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile"]
    run([*install, "--constraint", str(constraints), *requirements], LONGEST_INSTALLATION_S)
    return python


@pytest.mark.parametrize("extra", PROGRAMS)
def test_an_extra_brings_all_that_its_part_needs(extra, argument, wheel, constraints, tmp_path):
    python = python_with(tmp_path / "venv", constraints, f"{wheel}[{extra}]")
    run([python, "-c", "\n".join(PROGRAMS[extra]), argument], LONGEST_RUN_S)


def test_mcp_tools_that_langchain_has_loaded_are_remembered_exactly(wheel, constraints, tmp_path):
    own = tmp_path / "constraints.txt"
    pins = constraints.read_text().splitlines()
    own.write_text("\n".join(pin for pin in pins if not pin.startswith(("mcp==", "mcp-types=="))))
    python = python_with(tmp_path / "venv", own, f"{wheel}[langchain]", *ADAPTERS)
    with McpBilling().served() as server, scripted_model(tmp_path) as model:
        agent = subprocess.Popen(
            [python, "-c", LANGCHAIN_OVER_MCP, server.url, model.address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

        async def episode(_, prompts):
            agent.stdin.write(prompts["create_subscription"] + "\n")
            agent.stdin.flush()
            return json.loads(await asyncio.to_thread(agent.stdout.readline))

        try:
            seen = shown_by(server, model, episode)
        finally:
            agent.communicate("\n", timeout=LONGEST_RUN_S)
    assert seen == CAPABILITIES["LangChain, tools of its MCP adapters"]


def test_every_extra_of_an_integration_is_tried():
    extras = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    elsewhere = {"stripe", "lab", "models", "anthropic", "google", "all"}  # of the lab, which has no adapter
    assert extras.keys() - elsewhere == PROGRAMS.keys()
