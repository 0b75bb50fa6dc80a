"""MCP over what it really runs on: a process on standard input and output, and streamable HTTP on loopback."""

import asyncio

import fastmcp
import httpx2
import mcp
import pytest
from fastmcp.client.transports import StdioTransport
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from shelflife.apis.acme import acme_provider
from shelflife.client import Memory
from shelflife.contract.envelopes import META_KEY, Envelope
from shelflife.integrations.mcp_client import following, memory_client
from shelflife.server import Disclosure
from shelflife.testing import serving
from tests.acme_world import GOVERNED, rotate
from tests.agents.mcp_shops import KINDS, MODES, ROOT, WANTED, Agent, Learning, Shop, shop_provider
from tests.calling import ADMIN, TOKEN
from tests.cli.commands import SHELFLIFE, Serving, environment, run_here
from tests.lazily import Lazily

mcp_of_agents = Lazily("agents.mcp")


class Acme(Agent):
    """What a model does with the tool of Acme."""

    async def episode(self):
        wanted = dict(GOVERNED)
        for count in range(1, 4):
            result = await self.client.call_tool("create_subscription", wanted, **self.options)
            if not result.is_error:
                return count
            wanted["promo_code"] = result.content[0].text.rpartition('promo_code to "')[2].strip('"')
        raise AssertionError(result)

    @property
    def options(self):
        return {"raise_on_error": False} if hasattr(self.client, "call_tool_mcp") else {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_in_a_process_of_its_own_shares_a_log_and_the_memory_goes_with_it(kind, tmp_path):
    log = tmp_path / "log.db"
    command, *arguments = [*SHELFLIFE, "serve", "acme", "--mcp", "--state", str(log)]
    if kind == "sdk":
        parameters = StdioServerParameters(command=command, args=arguments, env=environment())
        client, mode = mcp.Client(parameters, mode="legacy"), "legacy"
    else:
        transport = StdioTransport(command, arguments, env=environment(), keep_alive=False)
        client, mode = fastmcp.Client(transport), "auto"

    async def play():
        async with memory_client(client, Memory(), root=ROOT) as connected:
            assert connected.protocol_version == MODES[mode]
            agent = Acme(connected)
            counts = [await agent.episode() for _ in range(2)]
            provider = acme_provider(log=log)
            provider.be_ready()
            rotate(provider)
            provider.close()
            return counts + [await agent.episode() for _ in range(2)]

    assert asyncio.run(play()) == [2, 1, 1, 1]


def test_over_http_an_operator_reloads_what_tools_are_checked_by_and_followers_hear_of_it():
    async def play(serving, mode):
        learning = Learning()
        client = mcp.Client(f"{serving.client.base_url}/mcp", mode=mode)
        async with (
            memory_client(client, Memory(on_event=learning), root=ROOT) as connected,
            following(connected),
        ):
            agent = Acme(connected)
            counts = [await agent.episode() for _ in range(2)]
            code = {"code": "WINTERLAUNCH26" if mode == "auto" else "SUMMERSALE25"}
            change = {"table": "active_csm_codes", "set": {"plan_partner_growth": code}}
            reloaded = await asyncio.to_thread(
                serving.client.post, "/admin/reload-table", json=change, headers=ADMIN
            )
            assert reloaded.status_code == 200
            await learning.stored(2)
            return [*counts, await agent.episode()]

    with Serving("acme", "--mcp", SHELFLIFE_ADMIN_TOKEN=TOKEN) as serving:
        assert [asyncio.run(play(serving, mode)) for mode in MODES] == [[2, 1, 1], [2, 1, 1]]


@pytest.mark.parametrize("mode", MODES)
def test_a_server_of_fastmcp_over_http_and_a_client_of_the_sdk(mode):
    shop = Shop("fastmcp")

    async def play(address):
        learning = Learning()
        client = mcp.Client(f"{address}/mcp", mode=mode)
        async with (
            memory_client(client, Memory(on_event=learning), root=ROOT) as connected,
            following(connected),
        ):
            agent = Agent(connected)
            counts = [await agent.episode(**WANTED) for _ in range(2)]
            await asyncio.to_thread(shop.rotate)
            await learning.stored(2)
            return [*counts, await agent.episode(**WANTED)]

    with serving(shop.server.http_app()) as address:
        assert asyncio.run(play(address)) == [2, 1, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_each_client_is_shown_aliases_of_its_own_by_what_its_http_request_proves(kind):
    shop = Shop(kind, provider=shop_provider(disclosure=Disclosure(secret="sixteen bytes or more")))
    app = shop.server.streamable_http_app() if kind == "sdk" else shop.server.http_app()

    async def tables_shown(address, login, meta=None):
        async with (
            httpx2.AsyncClient(headers={"authorization": login}, trust_env=False) as http,
            mcp.Client(streamable_http_client(f"{address}/mcp", http_client=http)) as client,
        ):
            result = await client.call_tool("subscribe", WANTED, meta=meta)
            state = await client.session.read_resource("shelflife://contract/state")
        told = Envelope.from_meta(result.meta).body["table_versions"].keys()
        assert f'"{min(told)}"' in state.contents[0].text
        return frozenset(told)

    async def play(address):
        pretended = {META_KEY: {"Authorization": "Bearer a"}}
        return [
            await tables_shown(address, "Bearer a"),
            await tables_shown(address, "Bearer b"),
            await tables_shown(address, "Bearer b", pretended),
        ]

    with serving(app) as address:
        first, second, pretending = asyncio.run(play(address))
    assert first.isdisjoint(second)
    assert pretending == second
    assert not {"codes", "other"} & (first | second)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["acme", "--mcp", "--workers", "2", "--state", "x.db"], "--mcp serves from one process"),
        (["meetings", "--mcp"], "only acme and recipes are MCP servers too"),
    ],
)
def test_what_cannot_be_served_as_an_mcp_server_is_said_in_a_sentence(
    arguments, sentence, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    outcome = run_here("serve", *arguments)
    assert (outcome.returncode, outcome.stderr.count("\n")) == (1, 1)
    assert sentence in outcome.stderr


class Losing:
    """A server over HTTP, of which the answer to a call gets lost, after that was carried out. Until it is made again the code changes."""

    def __init__(self, shop):
        self.shop, self.is_losing = shop, False
        self._app = shop.server.streamable_http_app()

    async def __call__(self, scope, receive, send):
        made_before = len(self.shop.calls)

        async def sent(message):
            if message["type"] == "http.response.start" and self.is_losing:
                message = {**message, "status": 503}
                if len(self.shop.calls) > made_before:
                    self.is_losing = False
                    self.shop.rotate()
            await send(message)

        await self._app(scope, receive, sent if scope["type"] == "http" else send)


def openai_agents(url):
    options = {"max_retry_attempts": 2, "retry_backoff_seconds_base": 0.01}
    return mcp_of_agents.MCPServerStreamableHttp(params={"url": url}, **options)


@pytest.mark.parametrize("approval", ["always", {"subscribe": "always"}, {"other": "always"}, "never"])
def test_nothing_is_written_past_whoever_approves_a_call_of_the_openai_agents_sdk(approval):
    shop = Shop()

    async def play(address):
        params = {"url": f"{address}/mcp"}
        theirs = mcp_of_agents.MCPServerStreamableHttp(params=params, require_approval=approval)
        async with memory_client(theirs, Memory(), root=ROOT) as client:
            return [(await client.call_tool("subscribe", WANTED)).is_error for _ in range(2)]

    with serving(shop.server.streamable_http_app()) as address:
        is_written = approval in ("never", {"other": "always"})
        assert asyncio.run(play(address)) == [True, not is_written]


class CallingAgain(mcp.Client):
    """A client of your own, which calls a tool again."""

    async def call_tool(self, name, arguments=None, *, meta=None):
        try:
            return await super().call_tool(name, arguments, meta=meta)
        except MCPError:
            return await super().call_tool(name, arguments, meta=meta)


@pytest.mark.parametrize("client_of", [openai_agents, CallingAgain])
def test_a_call_that_its_client_makes_again_is_not_made_once_more(client_of):
    losing = Losing(shop := Shop(checked=["subscribe"]))

    async def play(address):
        async with memory_client(client_of(f"{address}/mcp"), Memory(), root=ROOT) as client:
            assert (await client.call_tool("subscribe", WANTED)).is_error
            losing.is_losing = True
            assert (await client.call_tool("subscribe", WANTED)).is_error
            assert shop.calls == ["SUMMER"]
            assert not (await client.call_tool("subscribe", WANTED)).is_error

    with serving(losing) as address:
        asyncio.run(play(address))
    assert shop.calls == ["SUMMER", "WINTER"]
