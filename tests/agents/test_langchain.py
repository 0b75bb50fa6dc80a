"""A memory in LangChain's own agent."""

import httpx2
import pytest

from shelflife.client import Tools
from tests.agents.scripted import DONE, KEY, PROMPTS
from tests.agents.suite import ROOT, handing_on, suite_of
from tests.agents.wanted import Wanted
from tests.lazily import Lazily

agents = Lazily("langchain.agents")
langchain_openai = Lazily("langchain_openai")
langchain_tools = Lazily("langchain_core.tools")
langgraph_memory = Lazily("langgraph.checkpoint.memory")
langgraph_types = Lazily("langgraph.types")
ours = Lazily("shelflife.integrations.langchain")


class TestLangChain(suite_of("LangChain")):
    def error(self, text):
        return langchain_tools.ToolException(text)

    @pytest.fixture(autouse=True)
    def chat(self, loop, model):
        with httpx2.Client(trust_env=False) as blocking:
            self.chat_model = langchain_openai.ChatOpenAI(
                model="any",
                base_url=f"{model.address}/v1",
                api_key=KEY,
                http_client=blocking,
                http_async_client=self.http,
            )
            yield

    def agent(self, each, subscribe, checkpointer=None, **by):
        tool = langchain_tools.StructuredTool.from_function(
            name="subscribe",
            description="Make a subscription.",
            args_schema=Wanted,
            handle_tool_error=True,
            **by or {"coroutine": subscribe},
        )
        return agents.create_agent(
            self.chat_model,
            [tool],
            middleware=[ours.MemoryMiddleware(tools) for tools in each],
            checkpointer=checkpointer,
        )

    async def play(self, tools, subscribe):
        return await self.play_behind([] if tools is None else [tools], subscribe)

    async def play_behind(self, each, subscribe):
        said = await self.agent(each, subscribe).ainvoke({"messages": [("user", PROMPTS["subscribe"])]})
        return said["messages"][-1].content

    def test_an_agent_that_is_invoked_without_an_event_loop_learns_too(self, server, memory):
        def subscribe(**wanted):
            return server.http.post("/subscriptions", json=wanted).text

        agent = self.agent([Tools(memory, ROOT)], None, func=subscribe)
        for _ in range(2):
            said = agent.invoke({"messages": [("user", PROMPTS["subscribe"])]})
            assert said["messages"][-1].content == DONE
        assert server.statuses == [422, 201, 201]

    @pytest.mark.parametrize("is_decorated", [False, True])
    def test_a_tool_that_waits_for_a_human_runs_with_what_was_shown_to_them(
        self, server, memory, is_decorated
    ):
        tools, approved = Tools(memory, ROOT), []

        async def subscribe(**wanted):
            approved.append(langgraph_types.interrupt(wanted["promo_code"]))
            return await handing_on(server)(**wanted)

        self.played(tools, handing_on(server))
        each, tool = ([], memory.tool(ROOT)(subscribe)) if is_decorated else ([tools], subscribe)
        agent = self.agent(each, tool, langgraph_memory.InMemorySaver())
        thread = {"configurable": {"thread_id": "1"}}

        async def play():
            paused = await agent.ainvoke({"messages": [("user", PROMPTS["subscribe"])]}, thread)
            [shown] = [one.value for one in paused["__interrupt__"]]
            said = await agent.ainvoke(langgraph_types.Command(resume=shown), thread)
            return said["messages"][-1].content

        assert self.run(play()) == DONE
        assert approved == [server.seen[-1][0]["promo_code"]]
        assert server.statuses == [422, 201, 201]

    def test_what_an_agent_learns_of_one_server_is_not_remembered_of_another(self, server, memory):
        roots = {"tool://weather": "forecast", ROOT: self.name}
        each = [Tools(memory, root, only=[name]) for root, name in roots.items()]

        for _ in range(2):
            assert self.run(self.play_behind(each, handing_on(server))) == DONE
        assert server.statuses == [422, 201, 201]
        assert [memory.store.known(root).revision > 0 for root in roots] == [False, True]
