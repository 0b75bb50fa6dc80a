"""Calls of MCP tools beside the common ones: by another tool, and with an end that is neither a success nor a refusal."""

import asyncio
from typing import Annotated

import mcp
import pytest
from mcp.server.mcpserver import Elicit, Resolve
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult
from pydantic import BaseModel

from shelflife.contract.envelopes import META_KEY
from shelflife.contract.preconditions import PRECONDITION_HEADER, Precondition
from tests.agents.mcp_shops import KINDS, WANTED, Shop, called


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
