"""A memory in the hooks of the Claude Agent SDK, for the tools of one MCP server.

options = ClaudeAgentOptions(mcp_servers={"billing": billing}, hooks=memory_hooks(Tools(Memory(), "mcp://billing"), "billing"))

Hooks are told before and after a tool's use. They cannot call it again, and cannot change what the model is told of an error.
"""

import re
from typing import Any

from shelflife.client.tooling import Tools, Use
from shelflife.contract.values import is_carried, same_json
from shelflife.extras import needing
from shelflife.integrations.taking import takes

with needing("claude-agent-sdk"):
    from claude_agent_sdk import HookContext, HookInput, HookJSONOutput, HookMatcher
    from claude_agent_sdk.types import HookEvent

__all__ = ["memory_hooks"]

_MOST_BEGUN = 1024
"""Uses that are begun and never ended, because somebody did not allow them, leave once there are more."""


def memory_hooks(tools: Tools, server: str) -> dict[HookEvent, list[HookMatcher]]:
    """Hooks by which the tools of an MCP server are used with what is remembered, and their outcomes are learned from.

    `server` is what the options call it. The tools have the names that they have there. One with two underscores in its name may be a tool
    of another server, whose name goes on where this one ends. So it is left alone unless it is among `Tools(only=…)`.
    """
    takes("memory_hooks takes Tools, and the name of an MCP server", (tools, Tools), (server, str))
    prefix = f"mcp__{server}__"
    begun: dict[str, Use] = {}

    async def before(data: HookInput, use_id: str | None, _: HookContext) -> HookJSONOutput:
        given: Any = data
        name, arguments = given["tool_name"].removeprefix(prefix), given["tool_input"]
        if ("__" in name and not tools.is_named(name)) or not isinstance(arguments, dict):
            return {}
        use = await tools.begin(name, arguments)
        begun[given.get("tool_use_id") or use_id or ""] = use
        if len(begun) > _MOST_BEGUN:
            begun.pop(next(iter(begun)))
        if not is_carried("", arguments) or same_json(use.arguments, arguments):
            return {}
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": use.arguments}}

    async def after(data: HookInput, use_id: str | None, _: HookContext) -> HookJSONOutput:
        given: Any = data
        use = begun.pop(given.get("tool_use_id") or use_id or "", None)
        if use is not None:
            is_error = "error" in given
            outcome = given["error"] if is_error else {"content": given["tool_response"]}
            # where several hooks change the input, one of them has its way
            await tools.end(use, outcome, is_error=is_error, used_with=given.get("tool_input"))
        return {}

    of_the_server = re.escape(prefix) + ".*"
    return {
        "PreToolUse": [HookMatcher(of_the_server, [before])],
        "PostToolUse": [HookMatcher(of_the_server, [after])],
        "PostToolUseFailure": [HookMatcher(of_the_server, [after])],
    }
