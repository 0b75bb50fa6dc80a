"""A memory behind MCP clients whose line, server or user is odd: metadata gets lost or broken, nobody answers, others follow too."""

import asyncio
import copy
import warnings
from functools import partial
from types import SimpleNamespace
from unittest import mock

import mcp
import pytest
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp_types import (
    ReadResourceRequestParams,
    ResourceUpdatedNotification,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
)

from shelflife.client import Guard, Memory
from shelflife.client.events import Applied, Evicted, Ignored, Stored
from shelflife.client.outcomes import read_outcome
from shelflife.contract.envelopes import META_KEY
from shelflife.integrations.mcp_client import following, memory_client
from shelflife.integrations.mcp_results import read_result
from tests.agents.mcp_shops import MODES, ROOT, WANTED, Agent, Learning, Shop, agent_of

RIGHT = {"plan": "growth", "promo": "WINTER"}


class Line:
    """A client as somebody else may have written it, who changes what comes through."""

    def __init__(self, client):
        self.client = client
        self.change = lambda result: result
        self.asked_count = 0

    async def call_tool(self, tool_name, arguments, meta=None):
        return self.change(await self.client.call_tool(tool_name, arguments, meta=meta))

    async def read_resource(self, uri):
        self.asked_count += 1
        return await self.client.session.read_resource(uri)


def with_meta(change):
    """Errors with other metadata."""

    def changed(result):
        if not result.is_error:
            return result
        return result.model_copy(update={"meta": {META_KEY: change(result.meta[META_KEY])}})

    return changed


def stripped(result):
    return result.model_copy(update={"meta": None})


def cut(result):
    [block] = result.content
    return stripped(result).model_copy(
        update={"content": [block.model_copy(update={"text": block.text[:250]})]}
    )


def deep():
    value = {}
    for _ in range(5000):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "change",
    [
        with_meta(lambda told: "x"),
        with_meta(lambda told: {**told, "status": str(told["status"])}),
        with_meta(lambda told: {**told, "headers": []}),
        with_meta(lambda told: {**told, "body": {**told["body"], "note": "\ud800"}}),
        with_meta(lambda told: {**told, "body": {**told["body"], "note": deep()}}),
        stripped,
        cut,
    ],
    ids=["text", "status", "headers", "surrogate", "deep", "stripped", "cut"],
)
def test_a_refusal_that_cannot_be_read_is_told_and_the_server_asked(change):
    async def play():
        shop, events = Shop(), []
        async with shop.client() as real:
            line = Line(real)
            memory = Memory(on_event=events.append)
            agent = Agent(memory_client(line, memory, root=ROOT, conditional=False))
            assert [await agent.episode(**WANTED) for _ in range(2)] == [2, 1]
            shop.rotate()
            events.clear()
            line.change = change
            refused = [(await agent.attempt(**RIGHT))[0] for _ in range(3)]
        return refused, [type(event) for event in events], line.asked_count

    refused, happened, asked_count = asyncio.run(play())
    assert refused == [True, False, False]  # what the model sends is right
    assert happened[:4] == [Applied, Ignored, Evicted, Stored]
    assert asked_count == 2


def test_where_nobody_answers_what_may_be_stale_is_not_used():
    async def play():
        shop = Shop()
        async with shop.client() as real:
            line = Line(real)
            line.read_resource = None
            agent = Agent(memory_client(line, Memory(), root=ROOT))
            assert [await agent.episode(**WANTED) for _ in range(2)] == [2, 1]
            shop.rotate()
            line.change = cut
            return [(await agent.attempt(**RIGHT))[0] for _ in range(3)]

    assert asyncio.run(play()) == [True, False, False]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mute", ["questions", "subscriptions"])
def test_a_block_begins_though_the_server_does_not_answer(mode, mute, monkeypatch):
    monkeypatch.setattr("shelflife.integrations.mcp_client._LONGEST_START_S", 0.1)
    methods = {
        "questions": {"resources/read": ReadResourceRequestParams},
        "subscriptions": {
            "resources/subscribe": SubscribeRequestParams,
            "subscriptions/listen": SubscriptionsListenRequestParams,
        },
    }

    async def never(context, params):
        await asyncio.Event().wait()

    async def play():
        shop = Shop()
        for method, params in methods[mute].items():
            shop.server._lowlevel_server.add_request_handler(method, params, never)
        async with agent_of(shop, mode=mode) as agent:
            await agent.attempt(**WANTED)
            async with asyncio.timeout(60), following(agent.client):
                return await agent.attempt(plan="none")

    assert asyncio.run(play())[0] is False


class ClosingBus(InMemorySubscriptionBus):
    """Ends each stream as soon as it is acknowledged, until it is told to hold one."""

    is_closing = True

    def subscribe(self, listener):
        if self.is_closing:
            asyncio.get_running_loop().call_soon(self.handler.close)
        return super().subscribe(listener)


def test_a_server_that_takes_up_each_line_and_ends_it_at_once_is_listened_to_ever_more_seldom(monkeypatch):
    pauses, is_enough = [], asyncio.Event()

    def noted(pause_s):
        pauses.append(pause_s)
        if len(pauses) == 12:
            is_enough.set()
        return 0

    monkeypatch.setattr("shelflife.integrations.mcp_client.apart", noted)

    async def play():
        shop, bus = Shop(), ClosingBus()
        bus.handler = ListenHandler(bus)
        beneath = shop.server._lowlevel_server
        beneath.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, bus.handler)
        async with agent_of(shop) as agent, following(agent.client), asyncio.timeout(60):
            await is_enough.wait()

    asyncio.run(play())
    assert pauses[:12] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30]


def test_a_session_hears_nothing_of_changes_once_the_last_follower_has_ended():
    async def play():
        shop, heard = Shop(), []

        async def note(message):
            if isinstance(message, ResourceUpdatedNotification):
                heard.append(message)

        learning = Learning()
        async with mcp.Client(shop.server, mode="legacy", message_handler=note) as client:
            agent = Agent(memory_client(client, Memory(on_event=learning), root=ROOT))
            await agent.attempt(**WANTED)
            async with following(agent.client):
                await asyncio.to_thread(shop.rotate)
                await learning.stored(2)
            told = len(heard)
            await asyncio.to_thread(shop.rotate, "LAST")
            await agent.attempt(**WANTED)  # by then it would have come
            return told, len(heard)

    told, at_last = asyncio.run(play())
    assert told >= 1
    assert at_last == told


class Fussy(Guard, frozen=True):
    """A user's own, which fails when it is asked for the second time."""

    def refusal(self, entry):
        if entry.parameters["promo"] == "WINTER":
            raise LookupError("of the user's own")
        return super().refusal(entry)


def test_a_call_that_is_made_again_without_remembered_values_asks_for_nothing():
    async def play():
        shop = Shop()
        async with agent_of(shop, guard=Fussy()) as agent:
            assert [await agent.episode(**WANTED) for _ in range(2)] == [2, 1]
            shop.rotate()
            return await agent.attempt(**WANTED)

    assert asyncio.run(play())[1].splitlines()[0] == (
        "This call was not carried out. This plan needs the code that is assigned to it."
    )


@pytest.mark.parametrize("error", [LookupError("mine"), SystemExit(3)])
def test_what_a_block_raises_is_raised_as_it_is(error):
    async def play():
        async with agent_of(Shop()) as agent:
            with pytest.raises(type(error)) as caught:
                async with following(agent.client):
                    raise error
            return caught.value

    assert asyncio.run(play()) is error


@pytest.mark.parametrize("mode", MODES)
def test_two_may_follow_one_session_and_either_may_end_first(mode):
    async def play():
        shop = Shop()
        async with shop.client(mode=mode) as client:
            before = client.session._message_handler
            heard = [Learning() for _ in range(2)]
            one, other = (
                Agent(memory_client(client, Memory(on_event=learning), root=ROOT)) for learning in heard
            )
            for agent in (one, other):
                await agent.attempt(**WANTED)
            first, second = following(one.client), following(other.client)
            may_end, has_ended = asyncio.Event(), asyncio.Event()

            async def follow_first():
                async with first:
                    may_end.set()
                    await has_ended.wait()

            task = asyncio.create_task(follow_first())
            await may_end.wait()
            async with second:
                await asyncio.to_thread(shop.rotate, "AUTUMN")
                for learning in heard:
                    await learning.stored(2)
                has_ended.set()
                await task
                await asyncio.to_thread(shop.rotate, "WINTER")
                await heard[1].stored(3)
            return client.session._message_handler == before

    assert asyncio.run(play())


def test_a_client_is_called_as_its_own_method_is():
    async def play():
        shop = Shop()
        async with shop.client() as real:
            client = memory_client(Line(real), Memory(), root=ROOT)
            by_keyword = await client.call_tool(tool_name="subscribe", arguments=WANTED)
            by_place = await client.call_tool("subscribe", WANTED, {"trace": "1"})
            copied = await copy.copy(client).call_tool("subscribe", WANTED)
            return [result.is_error for result in (by_keyword, by_place, copied)]

    assert asyncio.run(play()) == [True, False, False]


class Handing:
    """A client whose method tells nothing of what it takes: it hands everything on."""

    def __init__(self, client):
        self.client, self.said = client, []

    async def call_tool(self, *args, **options):
        self.said.append(META_KEY in options.get("meta", {}))
        return await self.client.call_tool(*args, **options)


class HandingArguments(Handing):
    async def call_tool(self, name, arguments=None, **options):
        return await super().call_tool(name, arguments, **options)


class HandingByName(Handing):
    async def call_tool(self, name, **options):
        return await super().call_tool(name, **options)


@pytest.mark.parametrize(
    ("handing", "to", "given"),
    [
        (
            Handing,
            mcp.Client,
            [(("subscribe", WANTED), {}), ((), {"name": "subscribe", "arguments": WANTED})],
        ),
        (Handing, Line, [(("subscribe", WANTED), {}), ((), {"tool_name": "subscribe", "arguments": WANTED})]),
        (
            HandingArguments,
            mcp.Client,
            [(("subscribe", WANTED), {}), (("subscribe",), {"arguments": WANTED})],
        ),
        (HandingByName, mcp.Client, [(("subscribe",), {"arguments": WANTED})]),
    ],
)
def test_a_client_that_hands_on_what_it_is_given_is_called_by_place_and_by_name(handing, to, given):
    async def play():
        shop = Shop()
        async with shop.client() as real:
            around = handing(Line(real) if to is Line else real)
            client = memory_client(around, Memory(), root=ROOT)
            assert (await client.call_tool(*given[0][0], **given[0][1])).is_error
            for args, options in given:
                assert not (await client.call_tool(*args, **options)).is_error
            return around.said

    assert all(asyncio.run(play()))


def test_metadata_that_is_handed_on_by_place_is_left_as_it_is():
    async def play():
        async with Shop().client() as real:
            client = memory_client(Handing(Line(real)), Memory(), root=ROOT)
            return await client.call_tool("subscribe", WANTED, {"trace": "1"})

    assert asyncio.run(play()).is_error


def test_a_tool_whose_name_cannot_be_told_is_not_called():
    client = memory_client(Handing(None), Memory(), root=ROOT)
    with pytest.raises(TypeError, match="is given the name of the tool first"):
        asyncio.run(client.call_tool(tool="subscribe"))


def test_a_client_whose_method_takes_no_arguments_is_refused_at_once():
    class Other:
        async def call_tool(self, tool, params):
            raise AssertionError

    with pytest.raises(TypeError, match=r"takes `arguments`, and not \(tool, params\)"):
        memory_client(Other(), Memory(), root=ROOT)


def test_what_is_set_is_set_at_the_client_and_what_is_replaced_is_replaced_for_whoever_calls():
    plain = Handing(None)
    client = memory_client(plain, Memory(), root=ROOT)
    client.timeout_s = 5
    assert (plain.timeout_s, client.timeout_s) == (5, 5)
    del client.timeout_s
    assert not hasattr(plain, "timeout_s")
    method = plain.call_tool
    with mock.patch.object(client, "call_tool", str.upper):
        assert client.call_tool("subscribe") == "SUBSCRIBE"
        assert plain.call_tool == method
    assert client.call_tool != method


def test_a_call_that_does_not_fit_is_told_as_the_client_tells_it():
    async def play():
        async with agent_of(Shop()) as agent:
            with pytest.raises(TypeError, match="missing a required argument: 'name'"):
                await agent.client.call_tool()

    asyncio.run(play())


class NewResult(SimpleNamespace):
    """As FastMCP has it, whose results warn of the older name."""

    @property
    def isError(self):  # noqa: N802
        warnings.warn("say is_error", DeprecationWarning, stacklevel=2)


@pytest.mark.parametrize("is_error", [False, True])
def test_the_older_name_of_an_error_is_not_looked_at_where_there_is_the_newer(is_error):
    result = NewResult(is_error=is_error, content=[], meta=None)
    for read in (read_outcome, partial(read_result, memory=Memory(), root=ROOT)):
        assert read(result).is_error == is_error
