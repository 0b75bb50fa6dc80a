"""What may stand before a tool of an MCP server, and that nothing of a fix is told to whoever has not passed it."""

import asyncio
import json

import fastmcp
import pytest
from fastmcp.server.auth import require_scopes
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier

from shelflife.integrations import fastmcp as of_fastmcp
from shelflife.testing import serving
from tests.agents.mcp_doors import CANNOT_BE_CHECKED, GONE, HIDING, SECRET, WAYS, fast_shop, fixes_by
from tests.agents.mcp_shops import WANTED, shop_provider

CHECKED_OR_NOT = [
    pytest.param(way, checked, id=f"{way}-{'checked' if checked else 'checks'}")
    for way in WAYS
    for checked in (False, True)
    if not (checked and str(way) in CANNOT_BE_CHECKED)
]


@pytest.mark.parametrize(("way", "checked"), CHECKED_OR_NOT)
def test_whoever_has_not_passed_what_is_before_a_tool_is_told_nothing_of_its_fixes(way, checked):
    assert SECRET not in str(asyncio.run(way.told(checked=checked)))


@pytest.mark.parametrize(
    ("way", "checked"), [one for one in CHECKED_OR_NOT if str(one.values[0]) not in GONE]
)
def test_whoever_has_passed_is_told_by_the_call_and_by_no_question(way, checked):
    call, questions = asyncio.run(way.told(is_open=True, checked=checked))
    assert SECRET in call or str(way) == "fast_proxy"  # behind it is a server without the contract
    statuses = {json.loads(question)["status"] for question in questions}
    assert statuses == ({200} if str(way) in HIDING else {404})


@pytest.mark.parametrize("way", [way for way in WAYS if str(way) in CANNOT_BE_CHECKED], ids=str)
def test_a_server_does_not_start_when_a_check_would_come_before_a_login(way):
    with pytest.raises(Exception, match=CANNOT_BE_CHECKED[str(way)]) as raised:
        asyncio.run(way.told(checked=True))
    assert "; call provider.check in it instead" in str(raised.value)


@pytest.mark.parametrize("way", [way for way in WAYS if str(way) in GONE | HIDING], ids=str)
def test_fixes_that_may_be_told_without_a_call_are_told_to_nobody_who_could_not_call(way):
    assert SECRET not in str(asyncio.run(way.told(fixes=["subscribe"])))


def test_fixes_of_a_tool_that_a_session_does_not_see_are_told_to_another():
    provider, server = shop_provider(), fastmcp.FastMCP("shop")

    @server.tool(tags={"internal"})
    def subscribe(plan: str, promo: str | None = None) -> str:
        """Make a subscription."""
        return f"made with {promo}"

    @server.tool
    async def hide(context: fastmcp.Context) -> str:
        """Hide the other tool."""
        await context.disable_components(tags={"internal"})
        return "hidden"

    of_fastmcp.install(server, provider, checked=["subscribe"])

    async def play():
        async with (
            fastmcp.Client(server, mode="legacy") as one,
            fastmcp.Client(server, mode="legacy") as other,
        ):
            await one.call_tool("hide", {})
            hidden = await one.call_tool("subscribe", WANTED, raise_on_error=False), await fixes_by(one)
            shown = await other.call_tool("subscribe", WANTED, raise_on_error=False), await fixes_by(other)
            return hidden, shown

    hidden, shown = asyncio.run(play())
    assert SECRET not in str(hidden)
    assert all(SECRET in str(one) for one in shown)


@pytest.mark.parametrize("options", [{}, {"fixes": ["subscribe"]}])
def test_who_has_not_the_scope_that_a_tool_asks_for_is_told_nothing_of_its_fixes(options):
    scopes = {"low": [], "high": ["admin"]}
    tokens = {name: {"client_id": name, "scopes": held} for name, held in scopes.items()}
    server = fastmcp.FastMCP("shop", auth=StaticTokenVerifier(tokens=tokens))

    @server.tool(auth=require_scopes("admin"))
    def subscribe(plan: str, promo: str | None = None) -> str:
        """Make a subscription."""
        return f"made with {promo}"

    of_fastmcp.install(server, shop_provider(), checked=["subscribe"], **options)

    async def told(address, token):
        async with fastmcp.Client(f"{address}/mcp", auth=token) as client:
            call = await client.call_tool("subscribe", WANTED, raise_on_error=False)
            return str(call), await fixes_by(client)

    with serving(server.http_app()) as address:
        low, high = (asyncio.run(told(address, name)) for name in scopes)
    assert SECRET not in str(low)
    assert [SECRET in one for one in high] == [True, bool(options)]


def test_a_tool_that_may_run_as_a_task_is_not_checked_before_it_runs():
    async def subscribe(plan: str, promo: str | None = None) -> str:
        """Make a subscription."""
        return f"made with {promo}"

    server = fast_shop(subscribe, task=True)
    of_fastmcp.install(server, shop_provider(), checked=["subscribe"])

    async def play():
        async with fastmcp.Client(server):
            pass

    with pytest.raises(RuntimeError, match="it may run as a task"):
        asyncio.run(play())
