"""A memory in the loop of Pydantic AI."""

import pytest

from tests.agents.scripted import KEY, PROMPTS
from tests.agents.suite import suite_of
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

    async def play(self, tools, implementation):
        toolset = pydantic_ai.FunctionToolset([as_function(implementation)], max_retries=3)
        toolsets = [toolset if tools is None else ours.MemoryToolset(toolset, tools)]
        said = await pydantic_ai.Agent(self.chat_model, toolsets=toolsets).run(PROMPTS["subscribe"])
        return said.output
