"""A memory in the loop of Pydantic AI."""

import pytest

from shelflife.client import Tools
from tests.agents.scripted import DONE, KEY, PROMPTS
from tests.agents.suite import ROOT, handing_on, suite_of
from tests.agents.wanted import as_function
from tests.lazily import Lazily

models = Lazily("pydantic_ai.models.openai")
openai = Lazily("openai")
ours = Lazily("shelflife.integrations.pydantic_ai")
providers = Lazily("pydantic_ai.providers.openai")
pydantic_ai = Lazily("pydantic_ai")


class TestPydanticAI(suite_of("Pydantic AI")):
    def error(self, text):
        return pydantic_ai.ModelRetry(text)

    @pytest.fixture(autouse=True)
    def chat(self, loop, model):
        client = openai.AsyncOpenAI(base_url=f"{model.address}/v1", api_key=KEY, http_client=self.http)
        self.chat_model = models.OpenAIChatModel(
            "any", provider=providers.OpenAIProvider(openai_client=client)
        )

    def agent(self, tools, function, **options):
        toolset = pydantic_ai.FunctionToolset([function], max_retries=3)
        toolsets = [toolset if tools is None else ours.MemoryToolset(toolset, tools)]
        return pydantic_ai.Agent(self.chat_model, toolsets=toolsets, **options)

    async def play(self, tools, implementation):
        return (await self.agent(tools, as_function(implementation)).run(PROMPTS["subscribe"])).output

    @pytest.mark.parametrize("is_decorated", [False, True])
    @pytest.mark.parametrize("pause", ["ApprovalRequired", "CallDeferred"])
    def test_a_tool_that_waits_for_a_human_puts_nothing_in_doubt(self, server, memory, pause, is_decorated):
        tools, shown = Tools(memory, ROOT), []

        async def pausing(**wanted):
            shown.append(wanted["promo_code"])
            raise getattr(pydantic_ai, pause)

        self.played(tools, handing_on(server))
        behind, tool = tools, as_function(pausing)
        if is_decorated:
            behind, tool = None, memory.tool(ROOT)(tool)
        agent = self.agent(behind, tool, output_type=[str, pydantic_ai.DeferredToolRequests])
        paused = self.run(agent.run(PROMPTS["subscribe"])).output
        assert isinstance(paused, pydantic_ai.DeferredToolRequests)
        assert self.played(tools, handing_on(server)) == DONE
        assert shown == [server.seen[-1][0]["promo_code"]]
        assert server.statuses == [422, 201, 201]
