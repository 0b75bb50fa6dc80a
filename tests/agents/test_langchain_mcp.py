"""The interceptor for tools that LangChain's adapters load, with what the adapters hand to it and take from it. Whole agents on the adapters
themselves are in `tests/fresh_environments.py`: those need an SDK that cannot be beside the one here."""

import asyncio
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from shelflife.apis.acme import acme_provider
from shelflife.apis.acme.tools import acme_tools
from shelflife.client import Memory
from shelflife.integrations.langchain_mcp import MemoryInterceptor
from tests.acme_world import GOVERNED, change_another_row, rotate
from tests.agents.billing import NEW_CODE, OLD_CODE
from tests.lazily import Lazily

mcp = Lazily("mcp")
messages = Lazily("langchain_core.messages")


@dataclass
class Request:
    """As in `langchain_mcp_adapters.interceptors`."""

    name: str
    args: dict[str, Any]
    server_name: str = "billing"

    def override(self, **changed):
        return replace(self, **changed)


class Text(BaseModel):
    text: str


class Result(BaseModel):
    """As in the SDK that the adapters need."""

    content: list[Text]
    isError: bool  # noqa: N815
    meta: dict[str, Any] | None


class WantsAHuman(Exception):
    """As that SDK raises it."""

    error = SimpleNamespace(code=-32042)


class Adapters:
    """The client of the adapters, before a server in this process."""

    def __init__(self, session):
        self._session = session
        self.asked = []
        self.sent = []
        self.change = lambda result: result

    async def get_resources(self, server_name, uris):
        self.asked.append(server_name)
        [contents] = (await self._session.read_resource(uris[0])).contents
        return [SimpleNamespace(as_string=lambda: contents.text)]

    async def call(self, request):
        self.sent.append(request.args)
        told = await self._session.call_tool(request.name, request.args)
        texts = [Text(text=block.text) for block in told.content]
        return self.change(Result(content=texts, isError=told.is_error, meta=told.meta))


def played(act):
    """Run something with a provider, the adapters before it, their interceptor, and a memory."""

    async def run():
        provider, memory = acme_provider(), Memory()
        async with mcp.Client(acme_tools(provider)) as client:
            adapters = Adapters(client)
            interceptor = MemoryInterceptor(adapters, memory)

            async def made(server="billing", **wanted):
                request = Request("create_subscription", GOVERNED | wanted, server)
                return await interceptor(request, adapters.call)

            await act(SimpleNamespace(**locals()))

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_fix_is_learned_used_and_replaced_and_the_contract_taken_out_of_the_text():
    async def act(at):
        refused = await at.made()
        assert refused.isError
        assert OLD_CODE in refused.content[0].text
        assert "shelflife" not in refused.content[0].text
        assert not (await at.made()).isError
        rotate(at.provider)
        assert (await at.made()).isError
        assert not (await at.made()).isError
        assert [sent.get("promo_code") for sent in at.adapters.sent] == [None, OLD_CODE, OLD_CODE, NEW_CODE]
        assert {*at.adapters.asked} <= {"billing"}

    played(act)


def test_each_server_of_the_client_has_what_is_remembered_of_it():
    async def act(at):
        assert (await at.made()).isError
        assert (await at.made("elsewhere")).isError
        assert sorted(entry.root for entry in at.memory.store.entries()) == [
            "mcp://billing",
            "mcp://elsewhere",
        ]

    played(act)


@pytest.mark.parametrize(
    "name", ["Billing", "späti", "crm:prod", "c#", "user@host", "billing/", "a b", "x_y"]
)
def test_a_server_of_any_name_is_asked_and_has_a_root_of_its_own(name):
    async def act(at):
        for one in (name, name.swapcase()):
            assert (await at.made(one)).isError
        change_another_row(at.provider)
        for _ in range(2):  # the first of these tells that its table has moved
            assert not (await at.made(name)).isError
        assert {*at.adapters.asked} == {name}
        assert len({entry.root for entry in at.memory.store.entries()}) == len({name, name.swapcase()})

    played(act)


def test_tools_whose_server_has_no_name_are_left_alone_and_that_is_told_once(caplog):
    async def act(at):
        for _ in range(2):
            assert "shelflife" in (await at.made("unknown")).content[0].text
        assert list(at.memory.store.entries()) == []

    played(act)
    assert [one.getMessage().partition(":")[0] for one in caplog.records] == [
        "nothing is remembered for tools that were loaded from a session"
    ]


def test_what_another_interceptor_makes_of_a_result_is_learned_from_by_its_text():
    async def act(at):
        at.adapters.change = lambda result: messages.ToolMessage(
            result.content[0].text, status="error" if result.isError else "success", tool_call_id="1"
        )
        assert (await at.made()).status == "error"
        assert (await at.made()).status == "success"

    played(act)


@pytest.mark.parametrize(
    ("error", "is_doubted"), [(WantsAHuman("open this"), False), (OSError("gone"), True)]
)
def test_a_call_that_waits_for_a_human_raises_no_doubt(error, is_doubted):
    def failing(result):
        raise error

    async def act(at):
        await at.made()
        at.adapters.change, at.adapters.asked = failing, []
        with pytest.raises(type(error)):
            await at.made()
        assert bool(at.adapters.asked) == is_doubted

    played(act)


def test_a_server_that_does_not_answer_fails_no_call():
    async def failing(server_name, uris):
        raise RuntimeError("no such resource")

    async def act(at):
        at.adapters.get_resources = failing
        assert (await at.made()).isError
        rotate(at.provider)
        assert (await at.made()).isError
        assert not (await at.made()).isError

    played(act)
