"""Tools of MCP servers that are odd, that change while a server runs, or that hand on what another server says."""

import asyncio
import functools
import json
from contextlib import asynccontextmanager

import anyio
import fastmcp
import pytest
from fastmcp.server.transforms.search import BM25SearchTransform
from fastmcp.tools import Tool
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import CallToolResult, TextContent, jsonrpc_message_adapter

from shelflife.client import Memory
from shelflife.contract.envelopes import CHANGES_URI, META_KEY, Envelope
from shelflife.integrations import fastmcp as of_fastmcp
from shelflife.integrations import mcp_questions
from shelflife.integrations.mcp_client import following, memory_client
from shelflife.server import fix
from tests.agents.mcp_shops import FIXES, KINDS, ROOT, WANTED, Learning, Shop, called, shop_provider


def replaced(shop, function):
    if shop.kind == "sdk":
        shop.server.remove_tool("subscribe")
    else:
        shop.server.local_provider.remove_tool("subscribe")
    shop.server.add_tool(function)


@pytest.mark.parametrize("kind", KINDS)
def test_a_checked_tool_that_is_replaced_while_the_server_runs_is_read_as_it_is_now(kind):
    shop, given = Shop(kind, checked=["subscribe"]), []

    def subscribe(tier: int, plan: str = "growth", promo: str = "none") -> str:
        """Make a subscription, in a new way."""
        given.append((tier, plan, promo))
        return "made anew"

    async def play():
        async with shop.client() as client:
            refused = [await client.call_tool("subscribe", WANTED)]
            replaced(shop, subscribe)
            refused.append(await client.call_tool("subscribe", {"tier": "7"}))
            made = await client.call_tool("subscribe", {"tier": "7", "promo": "SUMMER"})
            return refused, made

    (first, second), made = asyncio.run(play())
    when = Envelope.from_meta(second.meta).body["recovery_feedback"]["suggestions"][0]["when"]
    assert (first.is_error, second.is_error, made.is_error) == (True, True, False)
    assert (when, given) == ({"plan": None}, [(7, "growth", "SUMMER")])


@pytest.mark.parametrize("order", ["12", "21"])
def test_each_version_of_a_checked_tool_is_read_by_its_own_arguments(order):
    provider, server = shop_provider(), fastmcp.FastMCP("shop")

    def first(plan: str, promo: str | None = None) -> str:
        """Make a subscription."""
        return "by plan"

    def second(tier: str, promo: str | None = None) -> str:
        """Make a subscription."""
        return "by tier"

    @provider.policy(operation="CALL /subscribe")
    def no_silver(request, tables):
        """There is no silver tier any more."""
        return fix("GOLD", tier="gold") if request.get("tier") == "silver" else None

    versions = {"1": first, "2": second}
    for version in order:
        server.tool(versions[version], name="subscribe", version=version)
    of_fastmcp.install(server, provider, checked=["subscribe"])

    async def play():
        async with fastmcp.Client(server) as client:

            async def text_of(version, **arguments):
                result = await client.call_tool("subscribe", arguments, version=version, raise_on_error=False)
                return result.content[0].text.splitlines()[0]

            told = [await text_of("1", plan="none"), await text_of("1", plan="growth")]
            told += [await text_of("2", tier="gold"), await text_of(None, tier="silver")]
            return told, (await client.session.read_resource(FIXES.text)).contents[0].text

    told, question = asyncio.run(play())
    assert told == [
        "by plan",
        "This call was not carried out. This plan needs the code that is assigned to it.",
        "by tier",
        "This call was not carried out. There is no silver tier any more.",
    ]
    assert json.loads(question)["status"] == 404  # nobody can tell which one is asked about


def test_a_checked_tool_is_checked_by_whatever_name_an_app_of_fastmcp_calls_it():
    server, made = fastmcp.FastMCP("shop"), []

    def subscribe(plan: str, promo: str | None = None) -> str:
        """Make a subscription."""
        made.append(promo)
        return "made"

    meta = {"ui": {"visibility": ["app"]}, "fastmcp": {"tool_hash": "0123456789ab"}}
    server.add_tool(Tool.from_function(subscribe, meta=meta))
    of_fastmcp.install(server, shop_provider(), checked=["subscribe"])

    async def play():
        async with fastmcp.Client(server) as client:
            for promo in (None, "SUMMER"):
                arguments = {**WANTED, "promo": promo}
                await client.call_tool("0123456789ab_subscribe", arguments, raise_on_error=False)

    asyncio.run(play())
    assert made == ["SUMMER"]


def base(plan: str, promo: str | None = None) -> str:
    """Make a subscription."""
    return f"{plan} {promo}"


def with_trace(plan: str, promo: str | None = None, _trace: str = "") -> str:
    """Make a subscription."""
    return f"{plan} {promo}"


class Callable:
    async def __call__(self, plan: str, promo: str | None = None) -> str:
        """Make a subscription."""
        return f"{plan} {promo}"


ODD = [functools.partial(base, promo=None), with_trace, Callable(), Callable().__call__]


@pytest.mark.parametrize(("checked", "is_late"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("function", ODD, ids=["partial", "underscore", "callable", "method"])
def test_a_tool_that_only_fastmcp_can_read_is_like_any_other(function, checked, is_late):
    tool = Tool.from_function(function, name="odd")

    def extend(shop):
        if not is_late:
            shop.server.add_tool(tool)

    shop = Shop("fastmcp", checked=["odd"] if checked else [], extend=extend)

    async def play():
        async with shop.client() as client:
            if is_late:
                shop.server.add_tool(tool)
            odd = [await client.call_tool("odd", {"plan": plan}) for plan in ("none", "growth")]
            return odd, await client.call_tool("subscribe", WANTED)

    odd, plain = asyncio.run(play())
    assert [one.is_error for one in odd] == [False, checked]
    assert plain.is_error


@pytest.mark.spec("16.3")
@pytest.mark.parametrize("is_error", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_the_contract_of_another_server_has_said_does_not_go_out_as_the_word_of_this_one(kind, is_error):
    foreign = {META_KEY: {"status": 422, "body": {"success": False, "recovery_feedback": {}}}, "own": 1}

    def extend(shop):
        async def relay(plan: str) -> CallToolResult:
            """Hand on what another server says."""
            text = TextContent(type="text", text="from afar")
            return CallToolResult(content=[text], is_error=is_error, _meta=foreign)

        shop.server.tool()(relay)

    result = called(Shop(kind, extend=extend), tool="relay")
    envelope = Envelope.from_meta(result.meta)
    assert (result.is_error, result.meta["own"], result.content[0].text) == (is_error, 1, "from afar")
    assert envelope is None if is_error else envelope.status == 200


@asynccontextmanager
async def deaf_subscriber(shop):
    """A client of 2025-11-25 that subscribes, and reads nothing from then on until somebody does so for it."""
    beneath = shop.server._lowlevel_server if shop.kind == "sdk" else shop.server._mcp_server
    info = {"capabilities": {}, "clientInfo": {"name": "deaf", "version": "1"}}
    opening = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", **info}},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "resources/subscribe", "params": {"uri": CHANGES_URI}},
    ]
    async with (
        create_client_server_memory_streams() as ((heard, said), (read, write)),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(lambda: beneath.run(read, write, beneath.create_initialization_options()))
        for message in opening:
            await said.send(
                SessionMessage(jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **message}))
            )
            if "id" in message:
                await heard.receive()
        yield heard
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("kind", KINDS)
def test_a_subscriber_that_does_not_read_keeps_nobody_from_hearing_and_is_told_when_it_reads_again(
    kind, monkeypatch
):
    shop, learning = Shop(kind), Learning()

    told = []

    def telling():
        return [task for task in asyncio.all_tasks() if "_catch_up" in repr(task)]

    async def read_from(heard):
        while True:
            told.append((await heard.receive()).message.method)

    async def all_is_told():
        """Until nobody is being told any more: how often it has been told by then."""
        while telling():
            await asyncio.wait(telling())
        await asyncio.sleep(0)
        return len(told)

    async def play():
        client = memory_client(shop.client(mode="legacy"), Memory(on_event=learning), root=ROOT)
        async with deaf_subscriber(shop) as heard, client as connected, following(connected):
            await connected.call_tool("subscribe", WANTED)
            for number in range(50):
                shop.rotate(f"CODE{number}")
                await asyncio.sleep(0)
            await learning.stored_with("CODE49")
            assert len(telling()) == 1
            ended, _ = await asyncio.wait(telling(), timeout=6 * mcp_questions._PATIENCE_S)
            assert not ended
            reading = asyncio.create_task(read_from(heard))
            async with asyncio.timeout(60):
                before = await all_is_told()
                shop.rotate("LAST")
                await learning.stored_with("LAST")
                after = await all_is_told()
            reading.cancel()
            return before, after

    monkeypatch.setattr(mcp_questions, "_PATIENCE_S", 0.05)
    before, after = asyncio.run(play())
    # What it missed is told in a few messages, not in one for each change; and the next change is told too.
    assert 1 <= before <= 3
    assert before < after
    assert set(told) == {"notifications/resources/updated"}


def test_a_checked_tool_may_be_one_that_is_found_by_a_search_and_is_in_no_list():
    shop = Shop("fastmcp", checked=["subscribe"], extend=with_a_search)

    async def play():
        async with shop.client() as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            by_search = {"name": "subscribe", "arguments": WANTED}
            refused = (
                await client.call_tool("call_tool", by_search),
                await client.call_tool("subscribe", WANTED),
            )
            made = await client.call_tool("subscribe", {**WANTED, "promo": "SUMMER"})
            return names, [one.is_error for one in (*refused, made)]

    names, are_errors = asyncio.run(play())
    assert "subscribe" not in names
    assert (are_errors, shop.calls) == ([True, True, False], ["SUMMER"])


def with_a_search(shop):
    shop.server.add_transform(BM25SearchTransform())
