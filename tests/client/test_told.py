"""Everything that was written is told, whatever becomes of the rest: the store may fail, a question may raise, a caller may leave."""

import json

import pytest

from shelflife.client import Exchange, InProcessStore, Memory, Reply, StoreError
from shelflife.client.events import Evicted, LogLost, Reason, StoreFailed
from tests.client.agents import Clock
from tests.client.by_hand import ANOTHER, HERE, JSON, LATER, OPERATION, ROOT, Server, placed, replied

MOVED = {"to": LATER, "from": HERE, "moved": {"tables": {"t": {"changed": ["k"]}}}}


class Counted(InProcessStore):
    """A store that fails in every write from one on."""

    def __init__(self):
        super().__init__()
        self.left = None

    def write(self, *arguments):
        if self.left == 0:
            raise StoreError("the disk is full")
        self.left = None if self.left is None else self.left - 1
        return super().write(*arguments)


@pytest.fixture
def doubting():
    """A memory with one fix, which is in doubt, and may ask again. What it is told from then on is in `told`."""
    told, clock, server = [], Clock(), Server()
    memory = placed(store=Counted(), clock=clock, ask=server, on_event=told.append)
    replied(memory, None, at="Ghijkl9")
    assert server.questions == ["/contract/changes"]
    clock.now += 2
    server.questions.clear()
    told.clear()
    return memory, server, told


def exchange_of(account):
    return Exchange(ROOT, OPERATION, {}, Reply(200, json.dumps({"at": account}).encode(), JSON), HERE)


def reasons(events):
    return [event.reason for event in events if isinstance(event, Evicted)]


def test_what_was_evicted_is_told_when_the_next_write_fails(doubting):
    """The reply moves the memory on, which is written. What is asked then settles the doubt, which is not."""
    memory, server, told = doubting
    server.account = {"to": LATER}
    memory.store.left = 1
    events = memory.observe(exchange_of(MOVED))
    assert server.questions == ["/contract/changes"]
    assert reasons(events) == [Reason.ROW_CHANGED]
    assert [type(event) for event in told] == [Evicted, StoreFailed]
    assert memory.statistics.evictions == {"row_changed": 1}
    assert memory.store.known(ROOT).knowledge.place.at == LATER


def test_what_was_evicted_is_renewed_when_the_next_write_fails(doubting):
    memory, server, _ = doubting
    server.account = {"to": LATER}
    memory.store.left = 1
    memory.hear(ROOT, json.dumps(MOVED).encode(), at=HERE)
    assert server.questions == ["/contract/changes", "/contract/fixes"]


def test_what_was_evicted_is_told_when_whoever_answers_fails(doubting):
    def broken(question):
        raise RuntimeError("no such luck")

    memory, _, told = doubting
    assert memory.observe(exchange_of(MOVED), broken) == told
    assert reasons(told) == [Reason.ROW_CHANGED]
    assert memory.statistics.stale_prevented == 1
    assert memory.recall(ROOT, OPERATION, {}) == []


def test_what_was_evicted_is_told_when_whoever_waits_for_an_answer_leaves(doubting):
    memory, _, told = doubting
    steps = memory.observing(exchange_of(MOVED))
    assert next(steps).url.startswith(f"{ROOT}/contract/changes?from={LATER}")
    steps.close()
    assert reasons(told) == [Reason.ROW_CHANGED]
    assert memory.statistics.stale_prevented == 1
    assert memory.recall(ROOT, OPERATION, {}) == []


def test_a_lost_log_is_told_when_whoever_waits_for_an_answer_leaves(doubting):
    """The answer has led to another log. Meanwhile another doubt was raised, so that the server is asked once more."""
    memory, server, told = doubting
    server.account = {"to": ANOTHER, "unknown": "foreign"}

    steps = memory.observing(exchange_of("Ghijkl9"))
    question = next(steps)
    memory.observe(exchange_of("Ghijkl9"), lambda question: None)
    assert steps.send(server(question)).url.startswith(f"{ROOT}/contract/changes?from={ANOTHER}")
    steps.close()
    assert told == [LogLost(ROOT, several=False)]


def test_what_has_happened_is_told_once_and_in_its_order(doubting):
    memory, server, told = doubting
    server.account = {"to": ANOTHER, "unknown": "foreign"}
    events = memory.observe(exchange_of(MOVED))
    assert [type(event) for event in events] == [Evicted, LogLost]
    assert told == events


def test_nothing_is_told_of_what_could_not_be_written(doubting):
    memory, _, told = doubting
    memory.store.left = 0
    assert memory.observe(exchange_of(MOVED)) == []
    assert [type(event) for event in told] == [StoreFailed]
    assert Memory().statistics.evictions == memory.statistics.evictions == {}
