"""A shop as an MCP server, of the SDK or of FastMCP: one tool under one policy. What counts is read at the tool."""

import asyncio
import json
from contextlib import asynccontextmanager

import fastmcp
import mcp
from fastmcp.exceptions import ToolError
from mcp.server import MCPServer

from shelflife.client import Memory
from shelflife.client.events import Stored
from shelflife.contract.envelopes import QuestionUri
from shelflife.integrations import fastmcp as of_fastmcp
from shelflife.integrations import mcp as of_sdk
from shelflife.integrations.mcp_client import memory_client
from shelflife.server import Provider, fix

ROOT = "mcp://shop"
KINDS = ["sdk", "fastmcp"]
MODES = {"auto": "2026-07-28", "legacy": "2025-11-25"}
WANTED = {"plan": "growth"}
CODES = {"growth": {"code": "SUMMER", "note": "a"}, "basic": {"code": "ANY", "note": "b"}}

FIXES = QuestionUri(
    "/contract/fixes", body=json.dumps({"operation": "CALL /subscribe", "request": WANTED}).encode()
)


def shop_provider(**options):
    provider = Provider({"codes": CODES, "other": {"x": {"y": 1}}}, **options)

    @provider.policy
    def promo_must_be_the_assigned_one(request, tables):
        """This plan needs the code that is assigned to it."""
        assigned = tables.codes.get(request.get("plan", ""))
        if assigned is not None and not request.equals("promo", assigned["code"]):
            return fix("USE_REQUIRED_PROMO", promo=assigned["code"])
        return None

    return provider


class Shop:
    """A server with a tool `subscribe`, and a note of each call that came as far as the tool, or its check."""

    def __init__(self, kind="sdk", *, checked=(), provider=None, extend=lambda shop: None, **options):
        self.provider = provider or shop_provider()
        self.kind = kind
        self.server = MCPServer("shop") if kind == "sdk" else fastmcp.FastMCP("shop")
        self.calls = []
        """The codes that the tool was called with; of a tool that is checked, only when that has passed."""
        self.before_check = lambda: None

        @self.server.tool()
        def subscribe(plan: str, promo: str | None = None) -> str:
            """Make a subscription."""
            self.calls.append(promo)
            self.before_check()
            if "subscribe" not in checked:
                self.provider.check({"plan": plan, "promo": promo})
            return f"made with {promo}"

        extend(self)
        install = of_sdk.install if kind == "sdk" else of_fastmcp.install
        install(self.server, self.provider, checked=checked, **options)

    def rotate(self, code="WINTER", plan="growth"):
        row = {**self.provider.registry.rows("codes")[plan], "code": code}
        self.provider.registry.reload_table("codes", set={plan: row})

    def client(self, kind="sdk", mode="auto"):
        if kind == "sdk":
            return mcp.Client(self.server if self.kind == "sdk" else self.server._mcp_server, mode=mode)
        return fastmcp.Client(self.server, mode=mode)


def called(shop, arguments=WANTED, meta=None, tool="subscribe", mode="auto"):
    async def play():
        async with shop.client(mode=mode) as client:
            return await client.call_tool(tool, arguments, meta=meta)

    return asyncio.run(play())


def asked(shop, uri, mode="auto"):
    async def play():
        async with shop.client(mode=mode) as client:
            return await client.session.read_resource(uri)

    return asyncio.run(play())


def answered(shop, uri, mode="auto"):
    [contents] = asked(shop, uri, mode).contents
    return json.loads(contents.text)


class Agent:
    """A client with a memory, and what a model would do with it."""

    def __init__(self, client, shop=None):
        self.client = client
        self.shop = shop

    async def attempt(self, **arguments):
        """A call as the model makes it: whether it was refused, and the text it is shown."""
        try:
            result = await self.client.call_tool("subscribe", arguments)
        except ToolError as error:
            return True, str(error)
        return result.is_error, result.content[0].text

    async def episode(self, **wanted):
        """From the first call to success, doing what the text says. Tells how many calls the model made."""
        for count in range(1, 4):
            is_refused, text = await self.attempt(**wanted)
            if not is_refused:
                return count
            wanted |= {"promo": text.rpartition('- set promo to "')[2].partition('"')[0]}
        raise AssertionError(text)


@asynccontextmanager
async def agent_of(shop, kind="sdk", mode="auto", memory=None, **options):
    client = memory_client(shop.client(kind, mode), memory or Memory(), root=ROOT, **options)
    async with client as connected:
        yield Agent(connected, shop)


class Learning:
    """Waits for what a memory learns."""

    def __init__(self):
        self.events = []
        self._news = asyncio.Event()

    def __call__(self, event):
        self.events.append(event)
        self._news.set()

    async def stored(self, count):
        """Until so many fixes were stored."""
        await self._until(lambda: sum(isinstance(event, Stored) for event in self.events) >= count)

    async def stored_with(self, value):
        """Until a fix was stored that says this."""
        await self._until(
            lambda: any(isinstance(event, Stored) and value in str(event) for event in self.events)
        )

    async def _until(self, condition):
        async with asyncio.timeout(60):
            while not condition():
                self._news.clear()
                await self._news.wait()
