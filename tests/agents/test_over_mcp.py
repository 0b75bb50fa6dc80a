"""Frameworks whose tools are those of a real MCP server under the contract. Attempts are counted where calls come in."""

import pytest

from shelflife.client import Memory, Tools
from shelflife.integrations.mcp_client import memory_client
from tests.agents.capabilities import CAPABILITIES
from tests.agents.mcp_billing import McpBilling, shown_by
from tests.agents.scripted import KEY
from tests.lazily import Lazily

ROOT = "mcp://billing"
agents = Lazily("agents")
claude = Lazily("claude_agent_sdk")
mcp_of_agents = Lazily("agents.mcp")
mcp_of_pydantic = Lazily("pydantic_ai.mcp")
models = Lazily("pydantic_ai.models.openai")
ours_for_claude = Lazily("shelflife.integrations.claude_agent_sdk")
ours_for_pydantic = Lazily("shelflife.integrations.pydantic_ai")
providers = Lazily("pydantic_ai.providers.openai")
pydantic_ai = Lazily("pydantic_ai")


@pytest.fixture
def mcp_server():
    with McpBilling().served() as server:
        yield server


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
