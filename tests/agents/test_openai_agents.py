"""A memory in the loop of the OpenAI Agents SDK."""

import json

import pytest
from agents import Agent, FunctionTool, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI

from shelflife.client import Memory, Tools
from shelflife.integrations.openai_agents import memory_tool
from tests.agents.billing import OLD_CODE
from tests.agents.scripted import DONE, KEY, PROMPTS
from tests.agents.suite import ROOT, handing_on, suite_of
from tests.agents.wanted import as_function


def in_its_words(context, error):
    """What the model is told. By default it is told only that there was an error."""
    return f"It has failed: {error}"


class TestOpenAIAgents(suite_of("OpenAI Agents SDK")):
    @pytest.fixture(autouse=True)
    def chat(self, loop, model):
        client = AsyncOpenAI(base_url=f"{model.address}/v1", api_key=KEY, http_client=self.http)
        self.chat_model = OpenAIChatCompletionsModel(model="any", openai_client=client)

    async def play(self, tools, subscribe):
        return await self.play_with([self.tool(tools, subscribe)])

    async def play_with(self, tools, **options):
        agent = Agent(name="Desk", model=self.chat_model, tools=tools, **options)
        said = await Runner.run(agent, PROMPTS["subscribe"], run_config=RunConfig(tracing_disabled=True))
        return said.final_output

    def tool(self, tools, implementation):
        subscribe = function_tool(failure_error_function=in_its_words)(as_function(implementation))
        return subscribe if tools is None else memory_tool(subscribe, tools)

    def test_an_error_is_told_to_the_model_as_the_tool_would_tell_it(self, server, memory, model):
        for tools in (None, Tools(memory, ROOT)):
            model.forget()

            async def failing(**wanted):
                raise ConnectionError("the line is dead")

            self.played(tools, failing)
            assert "It has failed: the line is dead" in model.heard()[-1]

    def test_a_function_that_is_a_tool_by_itself_learns_in_this_loop_too(self, server, memory):
        subscribe = memory.tool(ROOT, operation="CALL /subscribe")(handing_on(server))
        for _ in range(2):
            assert self.run(self.play_with([self.tool(None, subscribe)])) == DONE
        assert server.statuses == [422, 201, 201]
        assert server.seen[-1][0]["promo_code"] == OLD_CODE


@pytest.mark.parametrize("given", ["", "[1]", "{", '{"plan": "growth"}'])
def test_arguments_reach_the_tool_as_they_were_given(given):
    seen = []

    async def invoke(context, given):
        seen.append(given)
        return "done"

    tool = memory_tool(
        FunctionTool(name="x", description="", params_json_schema={}, on_invoke_tool=invoke),
        Tools(Memory(), ROOT),
    )
    with pytest.raises(StopIteration, match="done"):
        tool.on_invoke_tool(None, given).send(None)
    assert seen == [given]
    assert json.dumps(tool.params_json_schema)
