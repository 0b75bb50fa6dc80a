"""A memory around a function tool of the OpenAI Agents SDK. (Its MCP servers are clients, which `mcp_client.memory_client` takes.)

agent = Agent(name="Desk", tools=[memory_tool(subscribe, Tools(Memory(), "https://billing.example"))])
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from shelflife.client.arguments import Validated, only_checked
from shelflife.client.tooling import Takes, Tools
from shelflife.contract import same_json
from shelflife.extras import needing
from shelflife.integrations.taking import takes

with needing("openai-agents"):
    from agents import FunctionTool
    from agents.function_schema import function_schema
    from agents.tool import set_function_tool_failure_error_function, with_function_tool_failure_error_handler
    from agents.tool_context import ToolContext

__all__ = ["memory_tool"]


def memory_tool(tool: FunctionTool, tools: Tools) -> FunctionTool:
    """The same tool, run with what is remembered for its arguments. What it raises is learned from, and then told as the tool would tell it."""
    takes("memory_tool takes a FunctionTool, and Tools", (tool, FunctionTool), (tools, Tools))
    raising = copy.copy(tool)  # so that its error is seen before it is put into words
    set_function_tool_failure_error_function(raising, None)
    taken = Takes.from_schema(tool.params_json_schema, _validated_by(tool))
    behind: FunctionTool

    async def invoke(context: ToolContext[Any], given: str) -> Any:
        try:
            arguments = msgspec.json.decode(given or "{}")
        except msgspec.MsgspecError:
            arguments = None
        if not isinstance(arguments, Mapping):
            return await raising.on_invoke_tool(context, given)  # which says what is wrong with it

        def run(now: dict[str, Any], _: object) -> Any:
            return raising.on_invoke_tool(context, given if same_json(now, arguments) else _written(now))

        return await tools.call_async(
            tool.name, arguments, run, msgspec.structs.replace(taken, judged_by=_judged_by(behind))
        )

    behind = replace(tool, on_invoke_tool=with_function_tool_failure_error_handler(invoke, _told))
    return behind


def _judged_by(tool: FunctionTool) -> str:
    """Who is shown the arguments that the model gave, before the tool is invoked."""
    if tool.tool_input_guardrails:
        return "a guardrail of the tool"
    return "whoever approves the call (needs_approval)" if tool.needs_approval else ""


def _validated_by(tool: FunctionTool) -> Validated | None:
    """As the tool of a function validates its input. The SDK keeps the function to itself, and of any other tool nothing is known."""
    wrapped: Callable[[], object] = getattr(tool.on_invoke_tool, "_get_wrapped_callable", lambda: None)
    function = wrapped()
    if not callable(function):
        return None
    model = function_schema(function, strict_json_schema=False).params_pydantic_model
    return only_checked(lambda given: model(**given))


def _written(arguments: dict[str, Any]) -> str:
    return msgspec.json.encode(arguments).decode()


def _told(tool: FunctionTool, error: Exception, given: str) -> None:
    """The model is told of an error; nobody else has to be."""
