"""What every adapter of a framework does, as far as it says that it can. The framework's own loop runs, with a scripted model."""

import asyncio

import httpx2
import pytest

from shelflife.client import Memory, Tools, contract_headers
from shelflife.contract.envelopes import Envelope
from tests.agents.billing import ENDPOINT, NEW_CODE, OLD_CODE, OPERATION
from tests.agents.scripted import DONE, GIVEN_UP

ROOT = "tool://billing"
TRAILER = '{\\"shelflife\\":'


class Behaviours:
    """The suite. A subclass plays episodes by its framework, and says of each behaviour whether it has it."""

    can = None
    """The declarations of the framework."""

    name = "subscribe"
    """By which the memory knows the tool."""

    def error(self, text):
        """What a tool raises so that a model is shown a text, and nothing else is kept."""
        return RuntimeError(text)

    async def play(self, behind, subscribe):
        """One episode of an agent with this tool, behind a memory or without one (None). Gives what the model said at last."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def loop(self):
        """One event loop for a test, and one HTTP client by which its agents reach the model."""
        with asyncio.Runner() as self._runner:
            self.http = httpx2.AsyncClient(trust_env=False, timeout=30)
            yield
            self._runner.run(self.http.aclose())

    def run(self, work):
        """Wait for something, and not for ever."""
        return self._runner.run(asyncio.wait_for(work, 60))

    def played(self, behind, subscribe):
        return self.run(self.play(behind, subscribe))

    @pytest.fixture
    def memory(self):
        return Memory()

    def attempts(self, server, behind, subscribe):
        before = len(server.seen)
        assert self.played(behind, subscribe) == DONE
        return len(server.seen) - before

    def test_episodes_after_the_first_need_one_attempt_until_the_data_changes(self, server, memory):
        behind, subscribe = Tools(memory, ROOT), handing_on(server)
        counts = [self.attempts(server, behind, subscribe) for _ in range(2)]
        server.rotate()
        counts += [self.attempts(server, behind, subscribe) for _ in range(2)]
        assert counts == [2, 1, 2, 1]
        assert server.seen[-1][0]["promo_code"] == NEW_CODE

    def test_an_agent_without_a_memory_needs_two_each_time(self, server):
        assert [self.attempts(server, None, handing_on(server)) for _ in range(2)] == [2, 2]

    def test_an_error_of_which_only_the_text_is_kept_teaches(self, server, memory, model):
        behind, subscribe = Tools(memory, ROOT), in_words(server, self.error)
        assert [self.attempts(server, behind, subscribe) for _ in range(2)] == [2, 1]
        is_hidden = not any(TRAILER in said for said in model.heard())
        assert is_hidden == self.can.hide_the_trailer

    def test_a_stale_precondition_is_mended_without_a_turn_of_the_model(self, server, memory, model):
        behind = Tools(
            memory,
            server.address,
            operations={self.name: OPERATION},
            conditional=True,
            ask=server.ask_async,
        )
        subscribe = in_words(server, self.error)
        assert [self.attempts(server, behind, subscribe) for _ in range(2)] == [2, 1]
        server.rotate()
        model.forget()
        self.attempts(server, behind, subscribe)
        if self.can.run_again:
            assert (server.statuses[-2:], len(model.heard())) == ([412, 201], 2)
        else:
            assert (server.statuses[-2:], len(model.heard())) == ([422, 201], 3)

    def test_a_tool_that_fails_otherwise_fails_as_it_would_without_a_memory(self, memory):
        outcomes = []
        for behind in (None, Tools(memory, ROOT)):
            try:
                outcomes.append(self.played(behind, failing))
            except Exception as error:  # noqa: BLE001
                outcomes.append((type(error), str(error)))
        assert outcomes[0] == outcomes[1]
        assert outcomes[0] == GIVEN_UP or "the line is dead" in outcomes[0][1]
        assert memory.statistics.stored == 0

    def test_a_tool_of_another_server_is_left_alone(self, server, memory):
        behind = Tools(memory, ROOT, operations={"another": "CALL /another"})
        assert [self.attempts(server, behind, handing_on(server)) for _ in range(2)] == [2, 2]

    def test_episodes_may_be_played_at_once(self, server, memory):
        behind, subscribe = Tools(memory, ROOT), handing_on(server)
        self.attempts(server, behind, subscribe)

        async def together():
            return await asyncio.gather(*(self.play(behind, subscribe) for _ in range(3)))

        assert self.run(together()) == [DONE] * 3
        assert server.statuses[2:] == [201] * 3

    def test_an_episode_that_is_cancelled_leaves_the_memory_as_it_was(self, server, memory):
        behind = Tools(memory, ROOT)

        async def cancelled():
            begun = asyncio.Event()

            async def waiting(**wanted):
                begun.set()
                await asyncio.Event().wait()

            task = asyncio.create_task(self.play(behind, waiting))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        self.run(cancelled())
        assert [self.attempts(server, behind, handing_on(server)) for _ in range(2)] == [2, 1]


def given(wanted):
    return {name: value for name, value in wanted.items() if value is not None}


async def post(server, wanted, headers=None):
    async with httpx2.AsyncClient(base_url=server.address, trust_env=False, timeout=30) as http:
        return await http.post(ENDPOINT, json=given(wanted), headers=headers)


def handing_on(server):
    """A tool that hands on what its API says, whatever that is."""

    async def subscribe(**wanted):
        return (await post(server, wanted)).text

    return subscribe


def in_words(server, error):
    """One that tells in words that it was refused, with the contract at the end of the text. It sends what a memory wants sent."""

    async def subscribe(**wanted):
        response = await post(server, wanted, contract_headers())
        if response.is_error:
            headers = {name: value for name, value in response.headers.items() if name.startswith("contract")}
            told = Envelope(response.status_code, response.json(), headers)
            code = NEW_CODE if NEW_CODE in response.text else OLD_CODE
            raise error(told.trailing(f"It was refused: use the promo_code {code}."))
        return "The subscription was made."

    return subscribe


async def failing(**wanted):
    raise ConnectionError("the line is dead")
