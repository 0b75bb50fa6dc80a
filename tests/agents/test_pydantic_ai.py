"""A memory in the loop of Pydantic AI."""

import pytest
from openai import AsyncOpenAI
from pydantic_ai import Agent, FunctionToolset, ModelRetry
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from shelflife.integrations.pydantic_ai import MemoryToolset
from tests.agents.scripted import KEY, PROMPTS
from tests.agents.suite import suite_of
from tests.agents.wanted import as_function


class TestPydanticAI(suite_of("Pydantic AI")):
    def error(self, text):
        return ModelRetry(text)

    @pytest.fixture(autouse=True)
    def chat(self, loop, model):
        client = AsyncOpenAI(base_url=f"{model.address}/v1", api_key=KEY, http_client=self.http)
        self.chat_model = OpenAIChatModel("any", provider=OpenAIProvider(openai_client=client))

    async def play(self, tools, implementation):
        toolset = FunctionToolset([as_function(implementation)], max_retries=3)
        toolsets = [toolset if tools is None else MemoryToolset(toolset, tools)]
        said = await Agent(self.chat_model, toolsets=toolsets).run(PROMPTS["subscribe"])
        return said.output
