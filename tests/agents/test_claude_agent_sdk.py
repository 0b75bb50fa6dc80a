"""A memory in the hooks of the Claude Agent SDK, whose own program runs and reaches the scripted model on loopback."""

import asyncio
import json

import pytest
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, query, tool

from shelflife.client import Exchange, Memory, Reply, Tools
from shelflife.integrations.claude_agent_sdk import memory_hooks
from tests.agents.scripted import KEY, PROMPTS
from tests.agents.suite import suite_of
from tests.agents.wanted import Wanted


class TestClaudeAgentSDK(suite_of("Claude Agent SDK")):
    @pytest.fixture(autouse=True)
    def home(self, tmp_path, model):
        self.environment = {
            "ANTHROPIC_BASE_URL": model.address,
            "ANTHROPIC_API_KEY": KEY,
            "HOME": str(tmp_path),
            "CLAUDE_CONFIG_DIR": str(tmp_path),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    async def play(self, tools, implementation):
        @tool("subscribe", "Make a subscription.", Wanted.model_json_schema())
        async def subscribe(wanted):
            return {"content": [{"type": "text", "text": await implementation(**wanted)}]}

        options = ClaudeAgentOptions(
            model="any",
            system_prompt="You make subscriptions.",
            tools=[],
            allowed_tools=["mcp__billing__subscribe"],
            mcp_servers={"billing": create_sdk_mcp_server("billing", tools=[subscribe])},
            hooks=None if tools is None else memory_hooks(tools, "billing"),
            setting_sources=[],
            env=self.environment,
        )
        said = query(prompt=PROMPTS["mcp__billing__subscribe"], options=options)
        [result] = [message.result async for message in said if isinstance(message, ResultMessage)]
        return result


def test_the_tools_of_a_server_whose_name_begins_like_this_one_are_left_alone():
    def used(tools, name):
        [before] = memory_hooks(tools, "billing")["PreToolUse"][0].hooks
        data = {"tool_name": name, "tool_input": {}, "tool_use_id": "1"}
        return asyncio.run(before(data, "1", {"signal": None}))

    memory = Memory()
    fix = {
        "type": "F",
        "parameters": {"promo": "A"},
        "cache_hint": "cacheable",
        "table": "t",
        "rows": ["t:k"],
        "when": {},
    }
    body = json.dumps({"table_versions": {"t": "1"}, "recovery_feedback": {"suggestions": [fix]}})
    for operation in ("CALL /x__subscribe", "CALL /subscribe"):
        reply = Reply(422, body, {"content-type": "application/json"})
        memory.observe(Exchange("mcp://billing", operation, {}, reply))
    changed = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {"promo": "A"}}}
    tools = Tools(memory, "mcp://billing")
    assert used(tools, "mcp__billing__subscribe") == changed
    assert used(tools, "mcp__billing__x__subscribe") == {}
    assert (
        used(Tools(memory, "mcp://billing", only=["x__subscribe"]), "mcp__billing__x__subscribe") == changed
    )
