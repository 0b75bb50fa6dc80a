"""A memory around a toolset of Pydantic AI.

agent = Agent(model, toolsets=[MemoryToolset(FunctionToolset([subscribe]), Tools(Memory(), "https://billing.example"))])
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from shelflife.client.tooling import Takes, Tools
from shelflife.extras import needing

with needing("pydantic-ai"):
    from pydantic_ai import RunContext
    from pydantic_ai.tools import AgentDepsT
    from pydantic_ai.toolsets import ToolsetTool, WrapperToolset

__all__ = ["MemoryToolset"]


@dataclass
class MemoryToolset(WrapperToolset[AgentDepsT]):
    """Runs the tools of another toolset with what is remembered for their arguments, and learns from what they return or raise."""

    tools: Tools

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        """Around one call of a tool."""

        def run(arguments: dict[str, Any], _: object) -> Any:
            return super(MemoryToolset, self).call_tool(name, arguments, ctx, tool)

        def validated(given: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
            now = tool.args_validator.validate_python(given, context=ctx.validation_context)
            return {name: now[name] for name in names if name in now}

        takes = Takes.from_schema(tool.tool_def.parameters_json_schema, validated)
        return await self.tools.call_async(name, tool_args, run, takes)
