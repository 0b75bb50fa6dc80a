"""Frameworks whose tools are those of a real MCP server under the contract. Attempts are counted where calls come in."""

import asyncio
import json
from contextlib import contextmanager

import httpx2
import pytest
from agents import Agent as OpenAIAgent
from agents import OpenAIChatCompletionsModel, RunConfig, Runner
from agents.mcp import MCPServerStreamableHttp
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from shelflife.apis.acme import acme_provider
from shelflife.apis.acme.tools import acme_tools
from shelflife.client import Memory, Tools
from shelflife.integrations.claude_agent_sdk import memory_hooks
from shelflife.integrations.mcp_client import remembering
from shelflife.integrations.pydantic_ai import MemoryToolset
from shelflife.testing import serving
from tests.acme_world import rotate
from tests.agents.capabilities import CAPABILITIES
from tests.agents.scripted import DONE, KEY, PROMPTS
from tests.agents.suite import TRAILER

ROOT = "mcp://billing"


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


def check(can, server, model, episode):
    """Four episodes with a rotation in the middle: the calls that the server sees in each, and the turns that the model has."""
    heard = []

    async def played():
        async with httpx2.AsyncClient(trust_env=False, timeout=30) as http:
            client = AsyncOpenAI(base_url=f"{model.address}/v1", api_key=KEY, http_client=http)
            found = []
            for number in range(4):
                if number == 2:
                    rotate(server.provider)
                before = server.call_count
                model.forget()
                assert await episode(client) == DONE
                found.append((server.call_count - before, len(model.heard())))
                heard.extend(model.heard())
            return found

    # where a call can be made again, the model has no third turn after the rotation
    after_the_rotation = (2, 2) if can.run_again else (2, 3)
    assert asyncio.run(asyncio.wait_for(played(), 60)) == [(2, 3), (1, 2), after_the_rotation, (1, 2)]
    assert can.hide_the_trailer == (not any(TRAILER in said for said in heard))


def test_an_mcp_server_of_the_openai_agents_sdk_is_remembered_and_mended_without_the_model(mcp_server, model):
    memory = Memory()

    async def episode(client):
        async with remembering(
            MCPServerStreamableHttp(params={"url": mcp_server.url}), memory, root=ROOT
        ) as billing:
            chat = OpenAIChatCompletionsModel(model="any", openai_client=client)
            agent = OpenAIAgent(name="Desk", model=chat, mcp_servers=[billing])
            prompt = PROMPTS["create_subscription"]
            said = await Runner.run(agent, prompt, run_config=RunConfig(tracing_disabled=True))
            return said.final_output

    check(CAPABILITIES["OpenAI Agents SDK, an MCP server"], mcp_server, model, episode)


def test_an_mcp_toolset_of_pydantic_ai_learns_by_the_text_of_errors(mcp_server, model):
    behind = Tools(Memory(), ROOT)

    async def episode(client):
        chat = OpenAIChatModel("any", provider=OpenAIProvider(openai_client=client))
        toolset = MemoryToolset(MCPToolset(mcp_server.url), behind)
        said = await Agent(chat, toolsets=[toolset]).run(PROMPTS["create_subscription"])
        return said.output

    check(CAPABILITIES["Pydantic AI, an MCP server"], mcp_server, model, episode)


def test_hooks_of_the_claude_agent_sdk_learn_from_a_server_that_runs_elsewhere(mcp_server, model, tmp_path):
    options = ClaudeAgentOptions(
        model="any",
        system_prompt="You make subscriptions.",
        tools=[],
        allowed_tools=["mcp__billing__create_subscription"],
        mcp_servers={"billing": {"type": "http", "url": mcp_server.url}},
        hooks=memory_hooks(Tools(Memory(), ROOT), "billing"),
        setting_sources=[],
        env={
            "ANTHROPIC_BASE_URL": model.address,
            "ANTHROPIC_API_KEY": KEY,
            "HOME": str(tmp_path),
            "CLAUDE_CONFIG_DIR": str(tmp_path),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
    )

    async def episode(client):
        said = query(prompt=PROMPTS["mcp__billing__create_subscription"], options=options)
        [result] = [message.result async for message in said if isinstance(message, ResultMessage)]
        return result

    check(CAPABILITIES["Claude Agent SDK"], mcp_server, model, episode)
