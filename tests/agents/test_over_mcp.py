"""Frameworks whose tools are those of a real MCP server under the contract. Attempts are counted where calls come in."""

import asyncio
import json
from contextlib import contextmanager, nullcontext

import httpx2
import pytest

from shelflife.apis.acme import acme_provider
from shelflife.apis.acme.tools import acme_tools
from shelflife.client import Memory, Tools
from shelflife.integrations.mcp_client import memory_client
from shelflife.testing import serving
from tests.acme_world import change_another_row, rotate
from tests.agents.capabilities import CAPABILITIES, Can
from tests.agents.scripted import DONE, GIVEN_UP, KEY, OTHER_PROMPTS, PROMPTS
from tests.agents.suite import TRAILER
from tests.lazily import Lazily

ROOT = "mcp://billing"
agents = Lazily("agents")
claude = Lazily("claude_agent_sdk")
mcp_of_agents = Lazily("agents.mcp")
mcp_of_pydantic = Lazily("pydantic_ai.mcp")
models = Lazily("pydantic_ai.models.openai")
openai = Lazily("openai")
ours_for_claude = Lazily("shelflife.integrations.claude_agent_sdk")
ours_for_pydantic = Lazily("shelflife.integrations.pydantic_ai")
providers = Lazily("pydantic_ai.providers.openai")
pydantic_ai = Lazily("pydantic_ai")


class McpBilling:
    """Acme as an MCP server, and the number of calls that it was asked to make."""

    def __init__(self):
        self.provider = acme_provider()
        self._app = acme_tools(self.provider).streamable_http_app()
        self.call_count = 0

    async def __call__(self, scope, receive, send):
        async def received():
            message = await receive()
            if message.get("body"):
                self.call_count += json.loads(message["body"]).get("method") == "tools/call"
            return message

        await self._app(scope, received if scope["type"] == "http" else receive, send)

    @contextmanager
    def served(self):
        with serving(self) as address:
            self.url = f"{address}/mcp"
            yield self


@pytest.fixture
def mcp_server():
    with McpBilling().served() as server:
        yield server


def shown_by(server, model, episode, program=None):
    """What is seen of an adapter in episodes with a rotation in the middle, all by one program if there is one.

    At last another row changes, and somebody who is refused for another reason is told that its table has moved.
    """
    heard = []

    async def played():
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http, program or nullcontext():
            client = openai.AsyncOpenAI(base_url=f"{model.address}/v1", api_key=KEY, http_client=http)

            async def seen(prompts, said):
                """How often a tool is called, and how many turns the model has."""
                before = server.call_count
                model.forget()
                assert await episode(client, prompts) == said
                heard.extend(model.heard())
                return server.call_count - before, len(model.heard())

            counts = [await seen(PROMPTS, DONE) for _ in range(2)]
            rotate(server.provider)
            counts += [await seen(PROMPTS, DONE) for _ in range(2)]
            change_another_row(server.provider)
            return [*counts, await seen(OTHER_PROMPTS, GIVEN_UP), await seen(PROMPTS, DONE)]

    *counts, at_last = asyncio.run(asyncio.wait_for(played(), 300))
    assert counts in ([(2, 3), (1, 2), after, (1, 2), (1, 2)] for after in ((2, 2), (2, 3)))
    assert at_last in ((1, 2), (2, 3))
    return Can(
        be_exact=at_last == (1, 2),
        run_again=counts[2] == (2, 2),
        hide_the_trailer=not any(TRAILER in said for said in heard),
    )


def test_an_mcp_server_of_the_openai_agents_sdk_is_remembered_and_mended_without_the_model(mcp_server, model):
    memory = Memory()

    async def episode(client, prompts):
        async with memory_client(
            mcp_of_agents.MCPServerStreamableHttp(params={"url": mcp_server.url}), memory, root=ROOT
        ) as billing:
            chat = agents.OpenAIChatCompletionsModel(model="any", openai_client=client)
            agent = agents.Agent(name="Desk", model=chat, mcp_servers=[billing])
            prompt = prompts["create_subscription"]
            said = await agents.Runner.run(agent, prompt, run_config=agents.RunConfig(tracing_disabled=True))
            return said.final_output

    assert shown_by(mcp_server, model, episode) == CAPABILITIES["OpenAI Agents SDK, an MCP server"]


def test_an_mcp_toolset_of_pydantic_ai_learns_by_the_text_of_errors_and_cannot_ask_or_call_again(
    mcp_server, model
):
    tools = Tools(Memory(), ROOT)

    async def episode(client, prompts):
        chat = models.OpenAIChatModel("any", provider=providers.OpenAIProvider(openai_client=client))
        toolset = ours_for_pydantic.MemoryToolset(mcp_of_pydantic.MCPToolset(mcp_server.url), tools)
        said = await pydantic_ai.Agent(chat, toolsets=[toolset]).run(prompts["create_subscription"])
        return said.output

    assert shown_by(mcp_server, model, episode) == CAPABILITIES["Pydantic AI, an MCP server"]


def test_hooks_of_the_claude_agent_sdk_learn_from_a_server_elsewhere_and_cannot_ask_or_call_again(
    mcp_server, model, tmp_path
):
    options = claude.ClaudeAgentOptions(
        model="any",
        system_prompt="You make subscriptions.",
        tools=[],
        allowed_tools=["mcp__billing__create_subscription"],
        mcp_servers={"billing": {"type": "http", "url": mcp_server.url}},
        hooks=ours_for_claude.memory_hooks(Tools(Memory(), ROOT), "billing"),
        setting_sources=[],
        env={
            "ANTHROPIC_BASE_URL": model.address,
            "ANTHROPIC_API_KEY": KEY,
            "HOME": str(tmp_path),
            "CLAUDE_CONFIG_DIR": str(tmp_path),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
    )

    program = claude.ClaudeSDKClient(options)

    async def episode(client, prompts):
        await program.query(prompts["mcp__billing__create_subscription"])
        said = program.receive_response()
        [result] = [message.result async for message in said if isinstance(message, claude.ResultMessage)]
        return result

    assert shown_by(mcp_server, model, episode, program) == CAPABILITIES["Claude Agent SDK, an MCP server"]
