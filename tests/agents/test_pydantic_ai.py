"""A memory in the loop of Pydantic AI."""

import pytest
from openai import AsyncOpenAI
from pydantic_ai import Agent, FunctionToolset, ModelRetry
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from shelflife.integrations.pydantic_ai import MemoryToolset
from tests.agents.scripted import KEY, PROMPTS
from tests.agents.suite import suite_of


class TestPydanticAI(suite_of("Pydantic AI")):
    def error(self, text):
        return ModelRetry(text)

    @pytest.fixture(autouse=True)
    def chat(self, loop, model):
        client = AsyncOpenAI(base_url=f"{model.address}/v1", api_key=KEY, http_client=self.http)
        self.chat_model = OpenAIChatModel("any", provider=OpenAIProvider(openai_client=client))

    async def play(self, tools, implementation):
        async def subscribe(
            customer: str,
            plan: str,
            amount: int,
            currency: str,
            payment_method_token: str,
            promo_code: str | None = None,
        ) -> str:
            """Make a subscription."""
            return await implementation(
                customer=customer,
                plan=plan,
                amount=amount,
                currency=currency,
                payment_method_token=payment_method_token,
                promo_code=promo_code,
            )

        toolset = FunctionToolset([subscribe], max_retries=3)
        toolsets = [toolset if tools is None else MemoryToolset(toolset, tools)]
        said = await Agent(self.chat_model, toolsets=toolsets).run(PROMPTS["subscribe"])
        return said.output
