"""What a memory writes into arguments is validated as the model's own are, in each framework that does so."""

import asyncio
import datetime
import json
from typing import Literal

import pytest
from agents import function_tool
from agents.tool_context import ToolContext
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool
from pydantic.v1 import BaseModel as BaseModelOfV1
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from shelflife.client import Memory, Tools
from shelflife.client.events import Refused
from shelflife.integrations.claude_agent_sdk import memory_hooks
from shelflife.integrations.langchain import MemoryMiddleware
from shelflife.integrations.openai_agents import memory_tool
from shelflife.integrations.pydantic_ai import MemoryToolset
from tests.client.test_tool_arguments import fixing

ROOT = "tool://shop"


class Shop:
    """A tool that asks for a fix until it is given a code, and notes what it was given."""

    def __init__(self, fixed):
        self.fixed = fixed
        self.seen = []
        self.refused = []
        self.tools = Tools(
            Memory(on_event=lambda event: isinstance(event, Refused) and self.refused.append(event)), ROOT
        )

    def subscribe(
        self, plan: str, code: Literal["A", "B"] | None = None, day: datetime.date | None = None
    ) -> str:
        """Make a subscription."""
        self.seen.append((code, day))
        return json.dumps(fixing(self.fixed)) if (code, day) == (None, None) else "made"


def by_langchain(shop, **arguments):
    tool = StructuredTool.from_function(shop.subscribe, name="subscribe")
    return called_by_langchain(shop.tools, tool, arguments)


def called_by_langchain(tools, tool, arguments):
    call = {"name": "subscribe", "args": arguments, "id": "1", "type": "tool_call"}

    def handler(request):
        said = request.tool.invoke(request.tool_call["args"])
        return ToolMessage(said, tool_call_id="1")

    request = ToolCallRequest(tool_call=call, tool=tool, state={}, runtime=None)
    return MemoryMiddleware(tools).wrap_tool_call(request, handler)


def by_pydantic_ai(shop, **arguments):
    def model(messages, info):
        is_first = len(messages) == 1
        return ModelResponse([ToolCallPart("subscribe", arguments) if is_first else TextPart("done")])

    toolset = MemoryToolset(FunctionToolset([shop.subscribe]), shop.tools)
    asyncio.run(Agent(FunctionModel(model), toolsets=[toolset]).run("go"))


def by_openai_agents(shop, **arguments):
    tool = memory_tool(function_tool(shop.subscribe, strict_mode=False), shop.tools)
    given = json.dumps(arguments)
    context = ToolContext(None, tool_name="subscribe", tool_call_id="1", tool_arguments=given)
    asyncio.run(tool.on_invoke_tool(context, given))


def by_decorator(shop, **arguments):
    shop.tools.wrap(shop.subscribe)(**arguments)


WAYS = [by_langchain, by_pydantic_ai, by_openai_agents, by_decorator]


@pytest.mark.parametrize("used", WAYS)
def test_a_fix_arrives_in_the_form_that_the_tool_takes(used):
    shop = Shop({"day": "2026-02-02"})
    for _ in range(2):
        used(shop, plan="growth")
    assert shop.seen == [(None, None), (None, datetime.date(2026, 2, 2))]


@pytest.mark.parametrize("used", WAYS)
def test_a_fix_that_the_tool_does_not_take_is_left_out_and_what_the_model_says_is_used(used):
    shop = Shop({"code": "C"})
    used(shop, plan="growth")
    used(shop, plan="growth", code="A")
    assert shop.seen == [(None, None), ("A", None)]
    assert [event.why for event in shop.refused] == ["the tool does not take what it makes of 'code'"]


def test_a_tool_of_langchain_may_have_a_schema_of_pydantic_1():
    class Wanted(BaseModelOfV1):
        plan: str
        code: Literal["A", "B"] = None

    shop = Shop({"code": "B"})
    tool = StructuredTool.from_function(shop.subscribe, name="subscribe", args_schema=Wanted)
    for _ in range(2):
        called_by_langchain(shop.tools, tool, {"plan": "growth"})
    assert shop.seen == [(None, None), ("B", None)]


@pytest.mark.parametrize(
    "data", [{"tool_input": None}, {"tool_input": []}, {"tool_input": {"plan": "\ud800", "x": float("nan")}}]
)
def test_a_hook_of_the_claude_agent_sdk_leaves_input_alone_that_is_none(data):
    [before] = memory_hooks(Tools(Memory(), ROOT), "billing")["PreToolUse"][0].hooks
    told = {"tool_name": "mcp__billing__x", "tool_use_id": "1", **data}
    assert asyncio.run(before(told, "1", {"signal": None})) == {}
