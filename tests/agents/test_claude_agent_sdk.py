"""A memory in the hooks of the Claude Agent SDK, whose own program runs and reaches the scripted model on loopback."""

import pytest
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, query, tool

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
