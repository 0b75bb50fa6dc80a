"""A memory around a toolset of Pydantic AI.

agent = Agent(model, toolsets=[MemoryToolset(FunctionToolset([subscribe]), Tools(Memory(), "https://billing.example"))])
"""

import inspect
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from shelflife.client.tooling import Takes, Tools
from shelflife.extras import needing
from shelflife.integrations.taking import takes

with needing("pydantic-ai"):
    from pydantic_ai import RunContext
    from pydantic_ai.capabilities import AbstractCapability, Hooks
    from pydantic_ai.tools import AgentDepsT
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

__all__ = ["MemoryToolset"]

_JUDGING = ("wrap_tool_validate", "after_tool_validate", "before_tool_execute", "wrap_tool_execute")
"""The hooks of an agent that are shown the arguments of a tool before it runs."""


@dataclass
class MemoryToolset(WrapperToolset[AgentDepsT]):
    """Runs the tools of another toolset with what is remembered for their arguments, and learns from what they return or raise."""

    tools: Tools

    def __post_init__(self) -> None:
        """Both are of their kinds."""
        given = (self.wrapped, AbstractToolset), (self.tools, Tools)
        takes("a MemoryToolset takes a toolset, and Tools", *given)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        """Around one call of a tool."""

        def run(arguments: dict[str, Any], _: object) -> Any:
            return super(MemoryToolset, self).call_tool(name, arguments, ctx, tool)

        def validated(given: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
            now = tool.args_validator.validate_python(given, context=ctx.validation_context)
            check = tool.args_validator_func or (lambda *_, **__: None)
            if inspect.iscoroutine(judging := check(ctx, **now)):
                judging.close()
                raise TypeError("an async args_validator cannot be waited for here")
            return {name: now[name] for name in names if name in now}

        taken = Takes.from_schema(tool.tool_def.parameters_json_schema, validated, _judged_by(ctx))
        return await self.tools.call_async(name, tool_args, run, taken)


def _judged_by(ctx: RunContext[Any]) -> str:
    """Who has seen the arguments that the model gave, and cannot be shown others now."""
    if ctx.tool_call_approved:
        return "whoever has approved the call"
    hooks = (name for one in ctx.capabilities.values() for name in _hooks_of(one) if name in _JUDGING)
    return next((f"the hook {name}" for name in hooks), "")


def _hooks_of(capability: AbstractCapability[Any]) -> Collection[str]:
    """Those that a capability has. The framework's own leave arguments as they are."""
    if isinstance(capability, Hooks):
        return [*capability._registry]
    kind = type(capability)
    if kind.__module__.startswith("pydantic_ai."):
        return ()
    return [name for name in _JUDGING if getattr(kind, name) is not getattr(AbstractCapability, name)]
