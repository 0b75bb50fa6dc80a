"""Calls of MCP tools beside the common ones: by another tool, and with an end that is neither a success nor a refusal."""

import asyncio
from typing import Annotated

import fastmcp
import mcp
import pytest
from fastmcp.exceptions import ToolError as FastToolError
from fastmcp.server.middleware import Middleware
from fastmcp.server.middleware.caching import ResponseCachingMiddleware
from mcp.server.mcpserver import Elicit, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
)
from pydantic import BaseModel

from shelflife.client import Memory
from shelflife.contract.envelopes import META_KEY, Envelope
from shelflife.contract.preconditions import PRECONDITION_HEADER, Precondition
from shelflife.integrations.mcp_client import memory_client
from shelflife.server import Rejected, fix
from tests.agents.mcp_shops import KINDS, MODES, ROOT, WANTED, Learning, Shop, agent_of, called

AT = {META_KEY: {"Contract-At": "*:me"}}
RIGHT = WANTED | {"promo": "SUMMER"}
ERRORS = {"sdk": ToolError, "fastmcp": FastToolError}


class Order(BaseModel):
    plan: str


@pytest.mark.parametrize("kind", KINDS)
def test_a_tool_may_call_another_with_what_is_no_json(kind):
    def extend(shop):
        @shop.server.tool()
        def inner(order: Order) -> str:
            """Take an order."""
            return f"took {order.plan}"

        @shop.server.tool()
        async def outer() -> str:
            """Order through the other tool."""
            return str(await shop.server.call_tool("inner", {"order": Order(plan="growth")}))

    result = called(Shop(kind, extend=extend), {}, tool="outer")
    assert not result.is_error, result
    assert "took growth" in result.content[0].text


class Retrying(Middleware):
    """Something before the tools of a server that calls them again, after they have failed."""

    async def on_call_tool(self, context, call_next):
        try:
            return await call_next(context)
        except FastToolError:
            return await call_next(context)


def test_a_call_that_the_server_tries_again_is_not_made_again_by_the_client():
    shop = Shop("fastmcp", extend=lambda shop: shop.server.add_middleware(Retrying()))
    done = []

    @shop.server.tool
    def order(plan: str, promo: str | None = None) -> str:
        """Make an order, which is done when the connection breaks. Then the code changes."""
        shop.provider.check({"plan": plan, "promo": promo})
        done.append(promo)
        if len(done) == 2:
            shop.rotate()
            raise ConnectionError("the line is dead")
        return "ordered"

    async def play():
        async with agent_of(shop) as agent:
            results = [await agent.client.call_tool("order", WANTED) for _ in range(5)]
            return [result.is_error for result in results], results[2].content[0].text

    are_errors, text = asyncio.run(play())
    assert (are_errors, done) == ([True, False, True, True, False], ["SUMMER", "SUMMER", "WINTER"])
    assert text.endswith("whether a part of it was done, or all, is not known.")


class Agreed(BaseModel):
    ok: bool


async def whether_agreed() -> Elicit[Agreed]:
    return Elicit("Is that all right?", Agreed)


async def never_asked(context, params):
    raise AssertionError("it is the session's to answer")


def with_a_tool_that_asks_first(shop):
    if shop.kind == "sdk":

        @shop.server.tool()
        def buy(plan: str, agreed: Annotated[Agreed, Resolve(whether_agreed)]) -> str:
            """Buy, if the user agrees."""
            shop.provider.check({"plan": plan}, "CALL /buy")
            return "bought"

    else:

        @shop.server.tool()
        def buy(plan: str) -> InputRequiredResult:
            """Buy, if the user agrees."""
            schema = Agreed.model_json_schema()
            params = ElicitRequestFormParams(message="Is that all right?", requested_schema=schema)
            return InputRequiredResult(input_requests={"ok": ElicitRequest(params=params)})

    shop.provider.policy(operation="CALL /buy")(lambda request, tables: None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_asks_the_user_first_is_not_taken_for_one_that_was_carried_out(kind, caplog):
    shop = Shop(kind, extend=with_a_tool_that_asks_first)
    sure = {META_KEY: {PRECONDITION_HEADER: Precondition(at="ABCDEF9").header, "Contract-At": "*:me"}}

    async def play():
        server = shop.server if kind == "sdk" else shop.server._mcp_server
        async with mcp.Client(server, elicitation_callback=never_asked) as client:
            return await client.session.call_tool("buy", WANTED, meta=sure, allow_input_required=True)

    assert isinstance(asyncio.run(play()), InputRequiredResult)
    assert [record.getMessage() for record in caplog.records if record.name == "shelflife"] == []
    counted = shop.provider.counts.own()
    assert (counted[("stamped_responses",)], ("preconditions", "unjudged") in counted) == (0, False)


def with_a_hall(shop, done):
    """Give it a tool that holds a seat and asks the user, and when the user has answered buys it."""
    context = {"sdk": mcp.server.mcpserver.Context, "fastmcp": fastmcp.Context}[shop.kind]

    async def seat(plan: str, ctx: context, promo: str | None = None) -> str | InputRequiredResult:
        """Buy a seat."""
        shop.provider.check({"plan": plan, "promo": promo}, "CALL /seat")
        if ctx.request_state is None:
            done.append(f"held with {promo}")
            params = ElicitRequestFormParams(message="Pay?", requested_schema=Agreed.model_json_schema())
            asked = {"ok": ElicitRequest(params=params)}
            return InputRequiredResult(input_requests=asked, request_state="seat 1")
        done.append(f"bought with {promo}")
        return "bought"

    shop.server.tool()(seat)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_call_has_done_before_it_asked_the_user_is_not_done_again_when_the_values_are_stale_then(kind):
    done, moves = [], []
    shop = Shop(kind, extend=lambda shop: with_a_hall(shop, done))

    async def answer(context, params):
        done.append(params.message)
        for move in moves:
            move()
        return ElicitResult(action="accept", content={"ok": True})

    async def play():
        server = shop.server if kind == "sdk" else shop.server._mcp_server
        plain = mcp.Client(server, elicitation_callback=answer)
        async with memory_client(plain, Memory(), root=ROOT) as client:

            async def bought():
                done.clear()
                result = await client.call_tool("seat", WANTED)
                return result.is_error, result.content[0].text, [*done]

            await bought()
            before = await bought()
            moves.append(shop.rotate)
            amid = await bought()
            moves.clear()
            return before, amid, await bought()

    before, (is_error, text, done_amid), after = asyncio.run(play())
    assert before == (False, "bought", ["held with SUMMER", "Pay?", "bought with SUMMER"])
    assert (is_error, done_amid) == (True, ["held with SUMMER", "Pay?"])
    assert text.endswith("whether a part of it was done, or all, is not known.")
    assert after == (False, "bought", ["held with WINTER", "Pay?", "bought with WINTER"])


def with_a_bank(shop):
    """Give it a tool that fails when the check has passed, or before it: deliberately, or by a crash."""

    @shop.server.tool()
    def pay(plan: str, promo: str | None = None, how: str = "declined") -> str:
        """Pay."""
        if how == "stranger":
            raise ERRORS[shop.kind]("who are you?")
        shop.provider.check({"plan": plan, "promo": promo}, "CALL /pay")
        raise ZeroDivisionError("of its own") if how == "crash" else ERRORS[shop.kind]("card declined")


@pytest.mark.spec("16.3")
@pytest.mark.parametrize("kind", KINDS)
def test_an_error_that_a_tool_means_is_stamped_once_its_check_has_passed(kind):
    shop = Shop(kind, extend=with_a_bank)
    told = {how: called(shop, RIGHT | {"how": how}, AT, "pay") for how in ("declined", "stranger", "crash")}
    envelope = Envelope.from_meta(told["declined"].meta)
    assert (envelope.status, envelope.body.keys()) == (400, {"at"})
    assert told["declined"].content[0].text.endswith("card declined")
    assert [told[how].is_error for how in told] == [True] * 3
    assert [Envelope.from_meta(told[how].meta) for how in ("stranger", "crash")] == [None, None]


@pytest.mark.parametrize("conditional", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_an_error_that_a_tool_means_puts_nothing_in_doubt(kind, conditional):
    async def play():
        learning, shop = Learning(), Shop(kind, extend=with_a_bank)
        memory = Memory(on_event=learning)
        async with agent_of(shop, memory=memory, conditional=conditional) as agent:
            await agent.client.call_tool("pay", WANTED)
            learning.events.clear()
            return (await agent.client.call_tool("pay", WANTED)).content[0].text, learning.events

    text, events = asyncio.run(play())
    assert text.endswith("card declined")
    assert [type(event).__name__ for event in events] == ["Applied"]


@pytest.mark.parametrize("mode", MODES)
def test_a_tool_that_has_the_user_go_to_a_page_first_puts_nothing_in_doubt(mode):
    page = ElicitRequestURLParams(message="Log in.", url="https://example.com", elicitation_id="1")
    is_logged_in = True

    def extend(shop):
        @shop.server.tool()
        def pay(plan: str, promo: str | None = None) -> str:
            """Pay."""
            if not is_logged_in:
                raise UrlElicitationRequiredError([page])
            shop.provider.check({"plan": plan, "promo": promo}, "CALL /pay")
            return f"paid with {promo}"

    async def play():
        nonlocal is_logged_in
        learning = Learning()
        async with agent_of(Shop(extend=extend), mode=mode, memory=Memory(on_event=learning)) as agent:
            await agent.client.call_tool("pay", WANTED)
            learning.events.clear()
            is_logged_in = False
            with pytest.raises(MCPError, match="elicitation"):
                await agent.client.call_tool("pay", WANTED)
            is_logged_in = True
            return (await agent.client.call_tool("pay", WANTED)).content[0].text, learning.events

    text, events = asyncio.run(play())
    assert text == "paid with SUMMER"
    assert [type(event).__name__ for event in events] == ["Applied", "Applied"]


def test_what_stands_before_the_tools_of_fastmcp_sees_their_errors_and_may_call_again():
    seen = []

    class Again(Middleware):
        async def on_call_tool(self, context, call_next):
            try:
                return await call_next(context)
            except FastToolError as error:
                seen.append(str(error))
            return await call_next(context)

    shop = Shop("fastmcp", extend=with_a_bank)
    shop.server.add_middleware(Again())
    shop.provider.registry.reload_table("other", set={"x": {"y": 2}})
    result = called(shop, RIGHT, AT, "pay")
    assert seen == ["card declined"]
    assert (result.is_error, Envelope.from_meta(result.meta).status) == (True, 400)


class Renamed(Middleware):
    """An old name of a tool goes on working: past all middleware, as FastMCP has it for calls that middleware makes."""

    async def on_call_tool(self, context, call_next):
        if context.message.name != "sign_up":
            return await call_next(context)
        server = context.fastmcp_context.fastmcp
        return await server.call_tool("subscribe", context.message.arguments, run_middleware=False)


async def by_an_old_name(shop, arguments):
    async with shop.client() as client:
        return (await client.call_tool("sign_up", arguments)).is_error


async def past_all_middleware(shop, arguments):
    try:
        return (await shop.server.call_tool("subscribe", arguments, run_middleware=False)).is_error
    except FastToolError:
        return True


async def as_it_was_found(shop, arguments):
    try:
        return (await (await shop.server.get_tool("subscribe")).run(arguments)).is_error
    except Rejected:
        return True


@pytest.mark.parametrize("run", [by_an_old_name, past_all_middleware, as_it_was_found])
def test_a_checked_tool_is_never_run_unchecked_however_it_is_called(run):
    shop = Shop("fastmcp", checked=["subscribe"], extend=lambda shop: shop.server.add_middleware(Renamed()))

    @shop.provider.policy(operation="CALL /subscribe")
    def no_silver(request, tables):
        """There is no silver plan any more."""
        return fix("GOLD", plan="gold") if request.get("plan") == "silver" else None

    async def play():
        return [await run(shop, arguments) for arguments in (WANTED, RIGHT, {"plan": "silver"})]

    assert asyncio.run(play()) == [True, False, True]
    assert shop.calls == ["SUMMER"]


class Keeping(Middleware):
    """A cache that keeps errors too."""

    def __init__(self):
        self.kept = None

    async def on_call_tool(self, context, call_next):
        self.kept = self.kept or await call_next(context)
        return self.kept


@pytest.mark.parametrize(
    ("cache", "arguments"), [(ResponseCachingMiddleware, RIGHT), (Keeping, RIGHT), (Keeping, WANTED)]
)
def test_a_result_from_a_cache_carries_nothing_that_was_told_to_another_client(cache, arguments):
    shop = Shop("fastmcp", checked=["subscribe"], extend=lambda shop: shop.server.add_middleware(cache()))
    first, second = (called(shop, arguments, AT) for _ in range(2))
    assert len(shop.calls) == (arguments is RIGHT)
    assert (META_KEY in first.meta, META_KEY in (second.meta or {})) == (True, False)
    text = second.content[0].text
    assert first.content[0].text.startswith(text)
    assert "shelflife" not in text
