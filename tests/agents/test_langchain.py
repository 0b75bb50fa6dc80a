"""A memory in LangChain's own agent."""

import httpx2
import pytest
from langchain.agents import create_agent
from langchain_core.tools import StructuredTool, ToolException
from langchain_openai import ChatOpenAI

from shelflife.client import Tools
from shelflife.integrations.langchain import MemoryMiddleware
from tests.agents.capabilities import CAPABILITIES
from tests.agents.scripted import DONE, KEY, PROMPTS
from tests.agents.suite import ROOT, Behaviours
from tests.agents.wanted import Wanted


class TestLangChain(Behaviours):
    can = CAPABILITIES["LangChain"]

    def error(self, text):
        return ToolException(text)

    @pytest.fixture(autouse=True)
    def chat(self, loop, model):
        with httpx2.Client(trust_env=False) as blocking:
            self.chat_model = ChatOpenAI(
                model="any",
                base_url=f"{model.address}/v1",
                api_key=KEY,
                http_client=blocking,
                http_async_client=self.http,
            )
            yield

    def agent(self, behind, subscribe, **by):
        tool = StructuredTool.from_function(
            name="subscribe",
            description="Make a subscription.",
            args_schema=Wanted,
            handle_tool_error=True,
            **by or {"coroutine": subscribe},
        )
        middleware = [] if behind is None else [MemoryMiddleware(behind)]
        return create_agent(self.chat_model, [tool], middleware=middleware)

    async def play(self, behind, subscribe):
        said = await self.agent(behind, subscribe).ainvoke({"messages": [("user", PROMPTS["subscribe"])]})
        return said["messages"][-1].content

    def test_an_agent_that_is_invoked_without_an_event_loop_learns_too(self, server, memory):
        def subscribe(**wanted):
            return server.http.post("/subscriptions", json=wanted).text

        agent = self.agent(Tools(memory, ROOT), None, func=subscribe)
        for _ in range(2):
            said = agent.invoke({"messages": [("user", PROMPTS["subscribe"])]})
            assert said["messages"][-1].content == DONE
        assert server.statuses == [422, 201, 201]

    def test_an_agent_may_have_tools_of_several_servers(self, memory):
        each = [Tools(memory, f"tool://{name}", operations={name: f"CALL /{name}"}) for name in ("a", "b")]
        create_agent(self.chat_model, [], middleware=[MemoryMiddleware(one) for one in each])
