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
pydantic_capabilities = Lazily("pydantic_ai.capabilities")
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


def by_pydantic_ai(shop, of=None, capabilities=(), **arguments):
    asyncio.run(pydantic_agent(shop, arguments, of, capabilities=capabilities).run("go"))


def pydantic_agent(shop, arguments, of=None, **options):
    def model(messages, info):
        is_first = len(messages) == 1
        return pydantic_ai_messages.ModelResponse(
            [
                pydantic_ai_messages.ToolCallPart("subscribe", arguments)
                if is_first
                else pydantic_ai_messages.TextPart("done")
            ]
        )

    toolset = for_pydantic_ai.MemoryToolset(pydantic_ai.FunctionToolset([of or shop.subscribe]), shop.tools)
    return pydantic_ai.Agent(pydantic_ai_function.FunctionModel(model), toolsets=[toolset], **options)


def by_openai_agents(shop, options=(), **arguments):
    function = agents.function_tool(shop.subscribe, strict_mode=False, **dict(options))
    tool = for_openai_agents.memory_tool(function, shop.tools)
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


def no_c(context, plan, code=None, day=None):
    """What a company allows."""
    if code == "C":
        raise pydantic_ai.ModelRetry("we do not use this code")


async def no_c_later(context, plan, code=None, day=None):
    no_c(context, plan, code, day)


@pytest.mark.parametrize(("check", "used"), [(no_c, "B"), (no_c, "C"), (no_c_later, "B"), (no_c_later, "C")])
def test_a_fix_passes_the_validator_that_a_tool_of_pydantic_ai_has_of_its_own(check, used):
    shop = Shop({"code": used})

    def subscribe(plan: str, code: str | None = None) -> str:
        """Make a subscription."""
        return shop.subscribe(plan, code)

    for _ in range(2):
        by_pydantic_ai(shop, plan="growth", of=pydantic_ai.Tool(subscribe, args_validator=check))
    is_written = used == "B" and check is no_c  # nobody can wait for an async one there
    assert shop.seen == [(None, None), ("B" if is_written else None, None)]
    assert len(shop.refused) == (not is_written)


def hook(name):
    made = pydantic_capabilities.Hooks()

    async def see(ctx, request=None, *, args=None, **others):
        return request if args is None else args

    getattr(made.on, name)(see)
    return made


def own_capability(name):
    async def see(self, ctx, *, args, **others):
        return args

    return type("Own", (pydantic_capabilities.AbstractCapability,), {name: see})()


@pytest.mark.parametrize(
    ("capability", "name", "is_written"),
    [
        (hook, "after_tool_validate", False),
        (own_capability, "before_tool_execute", False),
        (hook, "before_model_request", True),
    ],
)
def test_nothing_is_written_past_a_hook_of_pydantic_ai_that_was_shown_the_arguments(
    capability, name, is_written, caplog
):
    shop = Shop({"code": "B"})
    for _ in range(3):
        by_pydantic_ai(shop, plan="growth", capabilities=[capability(name)])
    assert shop.seen == [(None, None), *[("B" if is_written else None, None)] * 2]
    assert caplog.text.count(f"they are judged before, by the hook {name}") == (not is_written)


def test_what_a_human_has_approved_in_pydantic_ai_is_run_as_it_was_shown():
    shop = Shop({"code": "B"})
    by_pydantic_ai(shop, plan="growth")
    deferred = pydantic_ai.DeferredToolRequests
    agent = pydantic_agent(
        shop,
        {"plan": "growth"},
        of=pydantic_ai.Tool(shop.subscribe, requires_approval=True),
        output_type=[str, deferred],
    )
    paused = asyncio.run(agent.run("go"))
    [call] = paused.output.approvals
    approved = pydantic_ai.DeferredToolResults(approvals={call.tool_call_id: True})
    asyncio.run(agent.run(message_history=paused.all_messages(), deferred_tool_results=approved))
    assert (call.args, shop.seen) == ({"plan": "growth"}, [(None, None)] * 2)


def guardrail():
    def allow(data):
        return agents.ToolGuardrailFunctionOutput.allow()

    return agents.tool_input_guardrail(allow)


@pytest.mark.parametrize(
    ("option", "by"),
    [
        (lambda: {"needs_approval": True}, "whoever approves the call"),
        (lambda: {"tool_input_guardrails": [guardrail()]}, "a guardrail of the tool"),
    ],
)
def test_nothing_is_written_past_whoever_judges_a_call_of_the_openai_agents_sdk(option, by, caplog):
    shop = Shop({"code": "B"})
    for _ in range(2):
        by_openai_agents(shop, plan="growth", options=option())
    assert shop.seen == [(None, None)] * 2
    assert "nothing is written into the arguments of the tool 'subscribe'" in caplog.text
    assert by in shop.refused[0].why
