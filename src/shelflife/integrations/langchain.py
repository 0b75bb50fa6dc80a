"""A memory around the tools of a LangChain agent: one middleware.

agent = create_agent(model, tools, middleware=[MemoryMiddleware(Tools(Memory(), "https://billing.example"))])
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from shelflife.client.arguments import only_checked
from shelflife.client.tooling import Run, Takes, Tools
from shelflife.extras import needing
from shelflife.integrations.taking import takes

with needing("langchain"):
    from langchain.agents.middleware import AgentMiddleware
    from langchain.agents.middleware.types import ToolCallRequest
    from langchain_core.messages import ToolMessage
    from langchain_core.tools import BaseTool
    from langgraph.types import Command

__all__ = ["MemoryMiddleware"]

_Outcome: TypeAlias = ToolMessage | Command[Any]


class MemoryMiddleware(AgentMiddleware[Any, Any]):
    """Runs tools with what is remembered for their arguments, and learns from what they return or raise.

    An agent with tools of several servers has one for each, with `only` its own.
    """

    def __init__(self, tools: Tools) -> None:
        takes("a MemoryMiddleware takes Tools", (tools, Tools))
        super().__init__()
        self._tools = tools

    @property
    def name(self) -> str:
        """An agent takes no two of one name."""
        return f"{type(self).__name__} of {self._tools.root}"

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], _Outcome]
    ) -> _Outcome:
        """Around a tool of an agent that is invoked."""
        return self._tools.call(*_call(request, handler))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[_Outcome]]
    ) -> _Outcome:
        """The same where it is awaited."""
        return await self._tools.call_async(*_call(request, handler))


def _call(
    request: ToolCallRequest, handler: Callable[[ToolCallRequest], object]
) -> tuple[str, dict[str, Any], Run, Takes]:
    call = request.tool_call

    def run(arguments: dict[str, Any], _: object) -> object:
        return handler(request.override(tool_call={**call, "args": arguments}))

    return call["name"], call["args"], run, _taken_by(request.tool)


def _taken_by(tool: BaseTool | None) -> Takes:
    if tool is None:
        return Takes()
    schema: Any = tool.tool_call_schema  # itself, or a model of it
    if isinstance(schema, dict):
        return Takes.from_schema(schema)
    is_of_pydantic_1 = not hasattr(schema, "model_validate")
    validate = schema.parse_obj if is_of_pydantic_1 else schema.model_validate
    written = schema.schema() if is_of_pydantic_1 else schema.model_json_schema()
    return Takes.from_schema(written, only_checked(validate))
