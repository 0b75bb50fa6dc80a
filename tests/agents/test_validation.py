"""What a memory writes into arguments is validated as the model's own are, in each framework that does so."""

import asyncio
import datetime
import json
from typing import Literal

import pytest

from shelflife.client import Memory, Tools
from shelflife.client.events import Refused
from tests.client.tool_results import ROOT, fixing
from tests.lazily import Lazily

agents = Lazily("agents")
tool_context = Lazily("agents.tool_context")
langchain_calls = Lazily("langchain.agents.middleware.types")
langchain_messages = Lazily("langchain_core.messages")
langchain_tools = Lazily("langchain_core.tools")
pydantic_ai = Lazily("pydantic_ai")
pydantic_ai_messages = Lazily("pydantic_ai.messages")
pydantic_ai_function = Lazily("pydantic_ai.models.function")
for_claude_agent_sdk = Lazily("shelflife.integrations.claude_agent_sdk")
for_langchain = Lazily("shelflife.integrations.langchain")
for_openai_agents = Lazily("shelflife.integrations.openai_agents")
for_pydantic_ai = Lazily("shelflife.integrations.pydantic_ai")


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
    tool = langchain_tools.StructuredTool.from_function(shop.subscribe, name="subscribe")
    return called_by_langchain(shop.tools, tool, arguments)


def called_by_langchain(tools, tool, arguments):
    call = {"name": "subscribe", "args": arguments, "id": "1", "type": "tool_call"}

    def handler(request):
        said = request.tool.invoke(request.tool_call["args"])
        return langchain_messages.ToolMessage(said, tool_call_id="1")

    request = langchain_calls.ToolCallRequest(tool_call=call, tool=tool, state={}, runtime=None)
    return for_langchain.MemoryMiddleware(tools).wrap_tool_call(request, handler)


def by_pydantic_ai(shop, **arguments):
    def model(messages, info):
        is_first = len(messages) == 1
        return pydantic_ai_messages.ModelResponse(
            [
                pydantic_ai_messages.ToolCallPart("subscribe", arguments)
                if is_first
                else pydantic_ai_messages.TextPart("done")
            ]
        )

    toolset = for_pydantic_ai.MemoryToolset(pydantic_ai.FunctionToolset([shop.subscribe]), shop.tools)
    asyncio.run(pydantic_ai.Agent(pydantic_ai_function.FunctionModel(model), toolsets=[toolset]).run("go"))


def by_openai_agents(shop, **arguments):
    tool = for_openai_agents.memory_tool(agents.function_tool(shop.subscribe, strict_mode=False), shop.tools)
    given = json.dumps(arguments)
    context = tool_context.ToolContext(None, tool_name="subscribe", tool_call_id="1", tool_arguments=given)
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
    from pydantic.v1 import BaseModel as BaseModelOfV1

    class Wanted(BaseModelOfV1):
        plan: str
        code: Literal["A", "B"] = None

    shop = Shop({"code": "B"})
    tool = langchain_tools.StructuredTool.from_function(shop.subscribe, name="subscribe", args_schema=Wanted)
    for _ in range(2):
        called_by_langchain(shop.tools, tool, {"plan": "growth"})
    assert shop.seen == [(None, None), ("B", None)]


@pytest.mark.parametrize(
    "data", [{"tool_input": None}, {"tool_input": []}, {"tool_input": {"plan": "\ud800", "x": float("nan")}}]
)
def test_a_hook_of_the_claude_agent_sdk_leaves_input_alone_that_is_none(data):
    [before] = for_claude_agent_sdk.memory_hooks(Tools(Memory(), ROOT), "billing")["PreToolUse"][0].hooks
    told = {"tool_name": "mcp__billing__x", "tool_use_id": "1", **data}
    assert asyncio.run(before(told, "1", {"signal": None})) == {}
