"""MCP's own programs as peers: `make test-extras` runs this. The inspector, a server that knows nothing of us, and the conformance suite."""

import asyncio
import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import mcp
import pytest
from mcp.client.stdio import StdioServerParameters

from shelflife.client import Memory
from shelflife.contract.envelopes import Envelope, Trailed
from shelflife.integrations.mcp_client import following, memory_client
from tests.acme_world import GOVERNED
from tests.agents.mcp_shops import KINDS
from tests.cli.commands import Serving
from tests.processes import started

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).with_name("peers") / "node_modules"
NODE = str(Path(sys.executable).with_name("node"))
INSPECTOR = FOLDER / "@modelcontextprotocol/inspector"
EVERYTHING = FOLDER / "@modelcontextprotocol/server-everything"
CONFORMANCE = FOLDER / "@modelcontextprotocol/conformance"


def program_of(package, name):
    """The file that is run for a program of a package."""
    said = json.loads((package / "package.json").read_text())["bin"]
    return str(package / (said if isinstance(said, str) else said[name]))


def inspected(address, *arguments):
    """What the inspector prints of a server."""
    command = [
        NODE,
        program_of(INSPECTOR, "mcp-inspector"),
        "--cli",
        address,
        "--transport",
        "http",
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return json.loads(done.stdout)


def test_the_inspector_shows_what_a_refused_call_and_a_question_are_told():
    call = [part for name, value in GOVERNED.items() for part in ("--tool-arg", f"{name}={value}")]
    with Serving("acme", "--mcp") as serving:
        address = f"{serving.client.base_url}/mcp"
        tools = inspected(address, "--method", "tools/list")["tools"]
        refused = inspected(address, "--method", "tools/call", "--tool-name", "create_subscription", *call)
        asked = inspected(address, "--method", "resources/read", "--uri", "shelflife://contract/state")
    assert [tool["name"] for tool in tools] == ["create_subscription"]
    trailed = Trailed.from_text(refused["content"][0]["text"])
    assert (refused["isError"], "structuredContent" in refused) == (True, False)
    assert trailed.text.endswith('- set promo_code to "SUMMERSALE25"')
    assert trailed.envelope == Envelope.from_meta(refused["_meta"])
    assert json.loads(asked["contents"][0]["text"])["status"] == 200


def test_with_a_server_that_knows_nothing_of_this_nothing_is_different():
    parameters = StdioServerParameters(command=NODE, args=[program_of(EVERYTHING, "mcp-server-everything")])

    async def told(client):
        results = [
            await client.call_tool("echo", {"message": "hello"}),
            await client.call_tool("get-sum", {"a": 2, "b": 40}),
            await client.call_tool("get-sum", {"a": "x"}),
            await client.call_tool("nothing", {}),
        ]
        tools = await client.list_tools()
        return [result.model_dump() for result in results], [tool.name for tool in tools.tools]

    async def play():
        memory = Memory()
        async with mcp.Client(parameters) as client:
            plain = await told(client)
        async with memory_client(mcp.Client(parameters), memory, root="mcp://everything") as client:
            assert client.protocol_version == "2025-11-25"
            async with following(client):
                return plain, await told(client), list(memory.store.entries())

    plain, remembered, kept = asyncio.run(play())
    assert (remembered, kept) == (plain, [])


@contextmanager
def conformance_server(kind, contract):
    command = [sys.executable, "-m", "tests.agents.conformance_server", kind, contract, "0"]
    options = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with started(command, **options) as process:
        address = process.stdout.readline().strip()
        assert address, "the server has not started"
        yield address


def passed(address, revision, folder):
    """The checks of the suite that a server passes, by their scenario."""
    suite = [NODE, program_of(CONFORMANCE, "conformance"), "server", "--url", address]
    subprocess.run(
        [*suite, "--requirements", revision, "--output-dir", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=300,
        check=False,
    )
    return {
        (checks.parent.name.partition("-2026-")[0].removeprefix("server-"), check["id"])
        for checks in folder.glob("*/checks.json")
        for check in json.loads(checks.read_text())
        if check["status"] == "SUCCESS"
    }


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_with_the_contract_passes_every_check_that_it_passes_without(kind, revision, tmp_path):
    counted = {}
    for contract in ("plain", "contract"):
        with conformance_server(kind, contract) as address:
            counted[contract] = passed(address, revision, tmp_path / contract)
    print(kind, revision, {contract: len(checks) for contract, checks in counted.items()})
    assert len(counted["plain"]) > 40
    assert counted["plain"] - counted["contract"] == set()
