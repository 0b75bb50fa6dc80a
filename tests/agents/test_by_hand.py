"""A function that is a tool, in a loop that somebody has written by hand."""

import json

import pytest

from tests.agents.scripted import KEY, PROMPTS
from tests.agents.suite import suite_of
from tests.agents.wanted import Wanted
from tests.lazily import Lazily

openai = Lazily("openai")


class TestFunction(suite_of("a function")):
    @pytest.fixture(autouse=True)
    def chat(self, loop, model):
        self.client = openai.AsyncOpenAI(base_url=f"{model.address}/v1", api_key=KEY, http_client=self.http)

    async def play(self, tools, subscribe):
        called = subscribe if tools is None else tools.wrap(subscribe, self.name)
        shown = {"name": "subscribe", "parameters": Wanted.model_json_schema()}
        said = [{"role": "user", "content": PROMPTS["subscribe"]}]
        while True:
            answer = await self.client.chat.completions.create(
                model="any", messages=said, tools=[{"type": "function", "function": shown}]
            )
            message = answer.choices[0].message
            if not message.tool_calls:
                return message.content
            said.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls:
                try:
                    result = await called(**json.loads(call.function.arguments))
                except Exception as error:  # noqa: BLE001
                    result = str(error)
                said.append({"role": "tool", "tool_call_id": call.id, "content": result})
