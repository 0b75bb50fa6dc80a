"""A memory in the hooks of the Claude Agent SDK, whose own program runs and reaches the scripted model on loopback."""

import asyncio
import itertools
import json
from functools import partial

import pytest

from shelflife.client import Exchange, Memory, Reply, Tools
from tests.agents.scripted import DONE, KEY, PROMPTS
from tests.agents.suite import ROOT, handing_on, suite_of
from tests.agents.wanted import Wanted
from tests.lazily import Lazily

claude = Lazily("claude_agent_sdk")
ours = Lazily("shelflife.integrations.claude_agent_sdk")


class Program:
    """One start of it. It plays episodes one after another, each with another tool, and the hooks of another memory."""

    def __init__(self, hooks, environment):
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
            hooks=hooks,
            setting_sources=[],
            env=environment,
        )
        self.client = claude.ClaudeSDKClient(options)

    async def play(self, implementation):
        self._tool = implementation
        return await self._said_to(PROMPTS["mcp__billing__subscribe"])

    async def forget(self):
        """Begin another conversation."""
        await self._said_to("/clear")

    async def _said_to(self, prompt):
        await self.client.query(prompt)
        said = self.client.receive_response()
        [result] = [message.result async for message in said if isinstance(message, claude.ResultMessage)]
        return result


class Remembering(Program):
    """One that has hooks, which are for good: they are those of whichever memory plays."""

    def __init__(self, environment):
        self._hooks = None
        of_any = ours.memory_hooks(Tools(Memory(), ROOT), "billing")
        handing_on = {
            event: [claude.HookMatcher(one.matcher, [partial(self._hook, event)]) for one in matchers]
            for event, matchers in of_any.items()
        }
        super().__init__(handing_on, environment)

    async def _hook(self, event, *told):
        [matcher] = self._hooks[event]
        [hook] = matcher.hooks
        return await hook(*told)

    async def play_with(self, tools, implementation):
        self._hooks = ours.memory_hooks(tools, "billing")
        return await self.play(implementation)


@pytest.fixture(scope="module")
def started(vendor, tmp_path_factory):
    """The loop in which programs run, those that wait for an episode, without a memory and with one, and their environment.

    A start takes five times as long as an episode.
    """
    home = str(tmp_path_factory.mktemp("home"))
    environment = {
        "ANTHROPIC_BASE_URL": vendor.address,
        "ANTHROPIC_API_KEY": KEY,
        "HOME": home,
        "CLAUDE_CONFIG_DIR": home,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    idle = [], []
    with asyncio.Runner() as runner:
        yield runner, idle, environment
        for program in itertools.chain(*idle):
            runner.run(program.client.disconnect())


class TestClaudeAgentSDK(suite_of("Claude Agent SDK")):
    @pytest.fixture(autouse=True)
    def loop(self, started, model):
        self._runner, self.idle, self.environment = started
        for program in itertools.chain(*self.idle):
            self.run(program.forget())
        model.forget()

    async def play(self, tools, implementation):
        idle = self.idle[tools is not None]
        if idle:
            program = idle.pop()  # two episodes at once have a program each
        else:
            program = Program(None, self.environment) if tools is None else Remembering(self.environment)
            await program.client.connect()
        try:
            if tools is None:
                result = await program.play(implementation)
            else:
                result = await program.play_with(tools, implementation)
        except BaseException:
            await program.client.disconnect()
            raise
        idle.append(program)
        return result

    def test_where_another_hook_has_its_way_with_the_input_nothing_is_learned_from_what_came_of_that(
        self, server, memory, caplog
    ):
        async def rename(data, use_id, context):
            changed = {**data["tool_input"], "customer": "Bob"}
            return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": changed}}

        hooks = ours.memory_hooks(Tools(memory, ROOT), "billing")
        hooks["PreToolUse"].append(claude.HookMatcher(None, [rename]))
        program = Program(hooks, self.environment)

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
