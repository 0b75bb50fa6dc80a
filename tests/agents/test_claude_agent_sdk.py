"""A memory in the hooks of the Claude Agent SDK, whose own program runs and reaches the scripted model on loopback."""

import asyncio
import itertools
import json
from collections import defaultdict

import pytest

from shelflife.client import Exchange, Memory, Reply, Tools
from tests.agents.scripted import DONE, KEY, PROMPTS
from tests.agents.suite import ROOT, handing_on, suite_of
from tests.agents.wanted import Wanted
from tests.lazily import Lazily

claude = Lazily("claude_agent_sdk")
ours = Lazily("shelflife.integrations.claude_agent_sdk")


class Program:
    """One start of it. It plays episodes one after another, each with another tool."""

    def __init__(self, tools, environment, others=()):
        self._tool = None

        @claude.tool("subscribe", "Make a subscription.", Wanted.model_json_schema())
        async def subscribe(wanted):
            return {"content": [{"type": "text", "text": await self._tool(**wanted)}]}

        options = claude.ClaudeAgentOptions(
            model="any",
            system_prompt="You make subscriptions.",
            tools=[],
            allowed_tools=["mcp__billing__subscribe"],
            mcp_servers={"billing": claude.create_sdk_mcp_server("billing", tools=[subscribe])},
            hooks=None if tools is None else self._hooks(tools, others),
            setting_sources=[],
            env=environment,
        )
        self.client = claude.ClaudeSDKClient(options)

    def _hooks(self, tools, others):
        hooks = ours.memory_hooks(tools, "billing")
        return {**hooks, "PreToolUse": [*hooks["PreToolUse"], *others]}

    async def play(self, implementation):
        self._tool = implementation
        await self.client.query(PROMPTS["mcp__billing__subscribe"])
        said = self.client.receive_response()
        [result] = [message.result async for message in said if isinstance(message, claude.ResultMessage)]
        return result


class TestClaudeAgentSDK(suite_of("Claude Agent SDK")):
    @pytest.fixture(autouse=True)
    def home(self, loop, tmp_path, model):
        self.environment = {
            "ANTHROPIC_BASE_URL": model.address,
            "ANTHROPIC_API_KEY": KEY,
            "HOME": str(tmp_path),
            "CLAUDE_CONFIG_DIR": str(tmp_path),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        self.idle = defaultdict(
            list
        )  # a start takes most of the time of an episode, so the next one is played by the same program
        yield
        for program in itertools.chain(*self.idle.values()):
            self.run(program.client.disconnect())

    async def play(self, tools, implementation):
        if self.idle[tools]:
            program = self.idle[tools].pop()  # two episodes at once have a program each
        else:
            program = Program(tools, self.environment)
            await program.client.connect()
        try:
            result = await program.play(implementation)
        except BaseException:
            await program.client.disconnect()
            raise
        self.idle[tools].append(program)
        return result

    def test_where_another_hook_has_its_way_with_the_input_nothing_is_learned_from_what_came_of_that(
        self, server, memory, caplog
    ):
        async def rename(data, use_id, context):
            changed = {**data["tool_input"], "customer": "Bob"}
            return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": changed}}

        tools = Tools(memory, ROOT)
        program = Program(tools, self.environment, [claude.HookMatcher(None, [rename])])

        async def play():
            async with program.client:
                return await program.play(handing_on(server))

        assert self.run(play()) == DONE
        assert {body["customer"] for body, _, _ in server.seen} == {"Bob"}
        assert (server.statuses, list(memory.store.entries())) == ([422, 201], [])
        assert caplog.text.count("is used with other arguments than the memory gives it") == 1


def test_the_tools_of_a_server_whose_name_begins_like_this_one_are_left_alone():
    def used(tools, name):
        [before] = ours.memory_hooks(tools, "billing")["PreToolUse"][0].hooks
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
