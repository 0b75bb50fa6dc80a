"""What every adapter of a framework does, as far as it says that it can. The framework's own loop runs, with a scripted model."""

import asyncio

import httpx2
import pytest

from shelflife.client import Memory, Tools, contract_headers
from shelflife.contract.envelopes import Envelope
from tests.agents.billing import ENDPOINT, NEW_CODE, OLD_CODE, OPERATION
from tests.agents.capabilities import CAPABILITIES
from tests.agents.scripted import DONE, GIVEN_UP

ROOT = "tool://billing"
TRAILER = '{\\"shelflife\\":'


class Behaviours:
    """The suite. A subclass plays episodes by its framework."""

    name = "subscribe"
    """By which the memory knows the tool."""

    def error(self, text):
        """What a tool raises so that a model is shown a text, and nothing else is kept."""
        return RuntimeError(text)

    async def play(self, tools, subscribe):
        """One episode of an agent with this tool, behind a memory or without one (None). Gives what the model said at last."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def loop(self):
        """One event loop for a test, and one HTTP client by which its agents reach the model."""
        with asyncio.Runner() as self._runner:
            self.http = httpx2.AsyncClient(trust_env=False, timeout=60)
            yield
            self._runner.run(self.http.aclose())

    def run(self, work):
        """Wait for something, and not for ever."""
        return self._runner.run(asyncio.wait_for(work, 300))

    def played(self, tools, subscribe):
        return self.run(self.play(tools, subscribe))

    @pytest.fixture
    def memory(self):
        return Memory()

    def attempts(self, server, tools, subscribe):
        before = len(server.seen)
        assert self.played(tools, subscribe) == DONE
        return len(server.seen) - before

    def test_episodes_after_the_first_need_one_attempt_until_the_data_changes(self, server, memory):
        tools, subscribe = Tools(memory, ROOT), handing_on(server)
        counts = [self.attempts(server, tools, subscribe) for _ in range(2)]
        server.rotate()
        counts += [self.attempts(server, tools, subscribe) for _ in range(2)]
        assert counts == [2, 1, 2, 1]
        assert server.seen[-1][0]["promo_code"] == NEW_CODE

    def test_an_agent_without_a_memory_needs_two_each_time(self, server):
        assert [self.attempts(server, None, handing_on(server)) for _ in range(2)] == [2, 2]

    def test_an_error_of_which_only_the_text_is_kept_teaches(self, server, memory):
        tools, subscribe = Tools(memory, ROOT), in_words(server, self.error)
        assert [self.attempts(server, tools, subscribe) for _ in range(2)] == [2, 1]

    def test_what_a_change_does_not_touch_is_kept(self, server, memory):
        tools, subscribe = Tools(memory, server.address), handing_on(server)
        counts = [self.attempts(server, tools, subscribe) for _ in range(2)]
        server.change_another_row()
        counts += [
            self.attempts(server, tools, subscribe) for _ in range(2)
        ]  # the first of these tells of it
        assert (counts, memory.statistics.evictions) == ([2, 1, 1, 1], {})

    def test_a_tool_that_fails_otherwise_fails_as_it_would_without_a_memory(self, memory):
        without, behind_one = (self.ending(tools, failing) for tools in (None, Tools(memory, ROOT)))
        assert without == behind_one
        assert without in (GIVEN_UP, "ConnectionError: the line is dead")
        assert memory.statistics.stored == 0

    def ending(self, tools, subscribe):
        """What the model has said at last, or else what was raised."""
        try:
            return self.played(tools, subscribe)
        except Exception as error:  # noqa: BLE001
            return f"{type(error).__name__}: {error}"

    def test_a_tool_of_another_server_is_left_alone(self, server, memory):
        tools = Tools(memory, ROOT, only=["another"])
        assert [self.attempts(server, tools, handing_on(server)) for _ in range(2)] == [2, 2]

    def test_episodes_may_be_played_at_once(self, server, memory):
        tools, subscribe = Tools(memory, ROOT), handing_on(server)
        self.attempts(server, tools, subscribe)

        async def together():
            return await asyncio.gather(*(self.play(tools, subscribe) for _ in range(3)))

        assert self.run(together()) == [DONE] * 3
        assert server.statuses[2:] == [201] * 3

    def test_an_episode_that_is_cancelled_leaves_the_memory_as_it_was(self, server, memory):
        tools = Tools(memory, ROOT)

        async def cancelled():
            begun = asyncio.Event()

            async def waiting(**wanted):
                begun.set()
                await asyncio.Event().wait()

            task = asyncio.create_task(self.play(tools, waiting))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        self.run(cancelled())
        assert [self.attempts(server, tools, handing_on(server)) for _ in range(2)] == [2, 1]


class RunsAgain:
    """For those that can run a tool again."""

    def test_a_stale_precondition_is_mended_without_a_turn_of_the_model(self, server, memory, model):
        assert turns_when_stale(self, server, memory, model) == ([412, 201], 2)


class RunsOnce:
    """For those that cannot."""

    def test_a_stale_value_costs_the_model_one_turn(self, server, memory, model):
        assert turns_when_stale(self, server, memory, model) == ([422, 201], 3)


def turns_when_stale(suite, server, memory, model):
    """What the server says to an agent whose value has gone stale, and how many turns the model has."""
    operations = {suite.name: OPERATION}
    tools = Tools(memory, server.address, operations=operations, conditional=True)
    subscribe = in_words(server, suite.error, raises_stale=True)
    assert [suite.attempts(server, tools, subscribe) for _ in range(2)] == [2, 1]
    server.rotate()
    model.forget()
    suite.attempts(server, tools, subscribe)
    return server.statuses[-2:], len(model.heard())


class HidesTheContract:
    """For those that can change what a model is told of an error."""

    def test_a_model_reads_an_error_without_the_contract(self, server, memory, model):
        self.played(Tools(memory, ROOT), in_words(server, self.error))
        assert not any(TRAILER in said for said in model.heard())


class ShowsTheContract:
    """For those that cannot."""

    def test_a_model_reads_the_contract_at_the_end_of_an_error(self, server, memory, model):
        self.played(Tools(memory, ROOT), in_words(server, self.error))
        assert any(TRAILER in said for said in model.heard())


def suite_of(name):
    """The behaviours of an adapter, as it is declared what it can do and what it cannot."""
    can = CAPABILITIES[name]
    assert can.be_exact  # at an address each is
    return type(
        "Suite",
        (
            RunsAgain if can.run_again else RunsOnce,
            HidesTheContract if can.hide_the_trailer else ShowsTheContract,
            Behaviours,
        ),
        {},
    )


def given(wanted):
    return {name: value for name, value in wanted.items() if value is not None}


async def post(server, wanted, headers=None):
    async with httpx2.AsyncClient(base_url=server.address, trust_env=False, timeout=60) as http:
        return await http.post(ENDPOINT, json=given(wanted), headers=headers)


def handing_on(server):
    """A tool that hands on what its API says, whatever that is."""

    async def subscribe(**wanted):
        return (await post(server, wanted)).text

    return subscribe


def in_words(server, error, *, raises_stale=False):
    """One that tells in words that it was refused, with the contract at the end of the text. It sends what a memory wants sent.

    A text is not believed that a precondition has failed; an error is that has the response.
    """

    async def subscribe(**wanted):
        response = await post(server, wanted, contract_headers())
        if raises_stale and response.status_code == 412:
            response.raise_for_status()
        if response.is_error:
            headers = {name: value for name, value in response.headers.items() if name.startswith("contract")}
            told = Envelope(response.status_code, response.json(), headers)
            code = NEW_CODE if NEW_CODE in response.text else OLD_CODE
            raise error(told.trailing(f"It was refused: use the promo_code {code}."))
        return "The subscription was made."

    return subscribe


async def failing(**wanted):
    raise ConnectionError("the line is dead")
