"""What is handed to the wrong adapter, or in the wrong order, is told in one sentence when that is done."""

import pytest

from shelflife.client import Memory, Tools
from shelflife.server import Provider, UsageError
from tests.lazily import Lazily

agents = Lazily("agents")
django = Lazily("shelflife.integrations.django")
claude = Lazily("shelflife.integrations.claude_agent_sdk")
fastapi = Lazily("fastapi")
fastmcp = Lazily("fastmcp")
flask = Lazily("flask")
for_fastapi = Lazily("shelflife.integrations.fastapi")
for_fastmcp = Lazily("shelflife.integrations.fastmcp")
for_flask = Lazily("shelflife.integrations.flask")
for_mcp = Lazily("shelflife.integrations.mcp")
for_starlette = Lazily("shelflife.integrations.starlette")
langchain = Lazily("shelflife.integrations.langchain")
langchain_mcp = Lazily("shelflife.integrations.langchain_mcp")
litestar = Lazily("shelflife.integrations.litestar")
mcp_client = Lazily("shelflife.integrations.mcp_client")
mcp_server = Lazily("mcp.server")
openai_agents = Lazily("shelflife.integrations.openai_agents")
proxying = Lazily("shelflife.integrations.proxying")
pydantic_ai = Lazily("pydantic_ai")
for_pydantic_ai = Lazily("shelflife.integrations.pydantic_ai")
starlette = Lazily("starlette.applications")


def order(plan: str) -> str:
    """Make an order."""
    return plan


def tools():
    return Tools(Memory(), "tool://x")


def provider():
    return Provider({"t": {}})


MISTAKES = {
    "an MCPServer and a Provider": lambda: for_mcp.install(fastmcp.FastMCP("x"), provider()),
    "an MCPServer and a Provider, and not shelflife": lambda: for_mcp.install(
        provider(), mcp_server.MCPServer("x")
    ),
    "a FastMCP and a Provider": lambda: for_fastmcp.install(mcp_server.MCPServer("x"), provider()),
    "a FastAPI app and a Provider, and not starlette": lambda: for_fastapi.install(
        starlette.Starlette(), provider()
    ),
    "a FastAPI app and a Provider, and not flask": lambda: for_fastapi.install(flask.Flask("x"), provider()),
    "a Flask app and a Provider": lambda: for_flask.install(fastapi.FastAPI(), provider()),
    "a Starlette app and a Provider": lambda: for_starlette.install(starlette.Starlette(), None),
    "a ContractPlugin takes a Provider": lambda: litestar.ContractPlugin(None),
    "contract_urls takes a Provider": lambda: django.contract_urls(None),
    "a MemoryMiddleware takes Tools": lambda: langchain.MemoryMiddleware(Memory()),
    "a MemoryInterceptor takes a MultiServerMCPClient first": lambda: langchain_mcp.MemoryInterceptor(
        {"billing": {}}, Memory()
    ),
    "takes the client of the adapters, and then a Memory, and not shelflife": lambda: (
        langchain_mcp.MemoryInterceptor({"billing": {}}, tools())
    ),
    "a MemoryToolset takes a toolset, and Tools, and not shelflife": lambda: for_pydantic_ai.MemoryToolset(
        pydantic_ai.FunctionToolset([order]), Memory()
    ),
    "a MemoryToolset takes a toolset, and Tools, and not builtins.list": lambda: (
        for_pydantic_ai.MemoryToolset([order], tools())
    ),
    "memory_tool takes a FunctionTool, and Tools, and not builtins": lambda: openai_agents.memory_tool(
        order, tools()
    ),
    "memory_tool takes a FunctionTool, and Tools, and not shelflife": lambda: openai_agents.memory_tool(
        agents.function_tool(order), Memory()
    ),
    "memory_hooks takes Tools, and the name": lambda: claude.memory_hooks(Memory(), "billing"),
    "memory_client takes a client of MCP": lambda: mcp_client.memory_client(None, Memory(), root="mcp://x"),
    "operations says which operation a tool is": lambda: Tools(Memory(), "tool://x", operations=["a"]),
}


@pytest.mark.parametrize("sentence", MISTAKES)
def test_another_kind_of_thing_is_told_in_a_sentence(sentence):
    with pytest.raises(TypeError) as told:
        MISTAKES[sentence]()
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)


def test_a_server_is_told_that_operations_are_no_list():
    with pytest.raises(UsageError, match="operations says which operation a tool is"):
        for_mcp.install(mcp_server.MCPServer("x"), provider(), operations=["a"])


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf")])
def test_an_api_may_be_silent_for_some_time(timeout_s):
    with pytest.raises(UsageError, match="timeout_s is how many seconds the API may be silent"):
        proxying.proxy_app(provider(), "http://127.0.0.1:1", timeout_s=timeout_s)
