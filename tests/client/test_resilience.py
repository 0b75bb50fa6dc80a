"""Whatever a server sends, a store does or a listener raises: the agent's step goes on, and what was done is told."""

import logging
import sys
import threading

import pytest

from shelflife.client import Memory, Reply
from shelflife.client.events import Evicted, Ignored, Restamped, Stored, StoreFailed
from shelflife.client.guard import Guard
from shelflife.client.in_process import InProcessStore
from shelflife.client.sqlite import SqliteStore
from shelflife.client.stores import StoreError
from shelflife.lab.arms import ARMS
from tests.client.responses import FIX, STAMPS, rejection, said

ORIGIN, OPERATION = "http://h:80", "POST /x"


def deeper_than_the_stack():
    value = 1
    for _ in range(sys.getrecursionlimit() * 2):
        value = {"a": value}
    return value


UNSPEAKABLE = [
    {"a": "\ud800"},
    {"a": object()},
    {"a": {1: 2, "b": 3}},
    deeper_than_the_stack(),
]


@pytest.mark.parametrize("request_fields", UNSPEAKABLE, ids=range(4))
def test_a_request_that_json_cannot_carry_is_a_miss(request_fields):
    memory = Memory()
    memory.observe(said(rejection(when={"a": 1})))
    memory.observe(said(rejection(when={"b": None, "a": 2}, unless={"a": [7]})))
    assert memory.recall(ORIGIN, OPERATION, request_fields) == []
    assert memory.amend(ORIGIN, OPERATION, request_fields).applied == []


@pytest.mark.parametrize("request_fields", UNSPEAKABLE, ids=range(4))
def test_nothing_is_learned_for_a_request_that_json_cannot_carry(request_fields):
    memory = Memory()
    suggestion = {name: value for name, value in FIX.items() if name not in ("rows", "when")}
    exchange = said(STAMPS | {"recovery_feedback": {"suggestions": [suggestion]}})
    [told] = memory.observe(exchange._replace(request=request_fields))
    assert isinstance(told, Ignored)
    assert "which JSON cannot carry" in told.why
    assert list(memory.store.entries()) == []


def test_a_listener_that_raises_is_logged_and_breaks_nothing(caplog):
    def broken(event):
        raise RuntimeError("no such luck")

    memory = Memory(on_event=broken)
    with caplog.at_level(logging.ERROR, "shelflife.memory"):
        assert [type(event) for event in memory.observe(said(rejection()))] == [Stored]
    assert "no such luck" in caplog.text
    assert len(memory.recall(ORIGIN, OPERATION, {})) == 1


def one_row_changed(question):
    told = b'{"since": "1", "version": "2", "known": true, "added": [], "removed": [], "changed": ["k"]}'
    return Reply(200, b'{"tables": {"t": %b}, "table_versions": {}}' % told)


class Failing(InProcessStore):
    """A store whose named verbs fail while it is told to."""

    def __init__(self, *verbs):
        super().__init__()
        self.verbs = set(verbs)
        self.tried = []

    def __getattribute__(self, name):
        attribute = super().__getattribute__(name)
        if name in ("known", "shapes", "at", "tagged", "count", "write", "used"):
            self.tried.append(name)
            if name in self.verbs:
                raise StoreError("the disk is full")
        return attribute


def test_a_failing_write_is_told_once_however_many_reads_succeed(clock):
    events = []
    store = Failing("write")
    memory = Memory(store, on_event=events.append, clock=clock)
    for number in range(5):
        clock.now += 10
        memory.observe(said(rejection(when={"a": number})))
        memory.recall("http://another", OPERATION, {})
    assert [type(event) for event in events] == [StoreFailed]
    store.verbs.clear()
    clock.now += 10
    memory.observe(said(STAMPS))
    memory.observe(said(rejection()))
    store.verbs.add("write")
    memory.observe(said(rejection(when={"a": 9})))
    assert [type(event) for event in events] == [StoreFailed, Stored, StoreFailed]


class Slow(InProcessStore):
    """A store that takes long to write one root."""

    def __init__(self, root):
        super().__init__()
        self.root, self.is_writing, self.may_write = root, threading.Event(), threading.Event()

    def write(self, root, *given):
        if root == self.root:
            self.is_writing.set()
            assert self.may_write.wait(60)
        return super().write(root, *given)


def test_whoever_learns_of_one_server_waits_for_no_other():
    store = Slow("http://h:80")
    memory = Memory(store)
    slow = threading.Thread(target=memory.observe, args=[said(rejection())])
    other = threading.Thread(
        target=memory.observe, args=[said(rejection())._replace(root="http://other")], daemon=True
    )
    slow.start()
    try:
        assert store.is_writing.wait(60)
        other.start()
        other.join(60)
        assert len(memory.recall("http://other", OPERATION, {"a": 1})) == 1
    finally:
        store.may_write.set()
        slow.join()
        other.join()
    assert len(memory.recall("http://h", OPERATION, {"a": 1})) == 1


def test_ever_new_servers_leave_no_lock_each_behind():
    memory = Memory()
    locks = memory._observing._locks
    for number in range(1_200):
        memory.observe(said(rejection())._replace(root=f"http://h{number}"))
    assert len(locks) <= 1_000
    assert "http://h1199:80" in locks


def test_once_anything_could_be_written_everything_is_tried_again(clock):
    events, store = [], Failing()
    memory = Memory(store, on_event=events.append, clock=clock)
    memory.observe(said(rejection()))
    store.verbs.add("write")
    memory.observe(said(rejection(when={"a": 1})))
    store.verbs.clear()
    memory.forget(ORIGIN)
    for number in range(3):
        memory.observe(said(rejection(when={"a": number})))
    # the first of them settles the doubt that the failure has left
    assert [type(event) for event in events] == [Stored, StoreFailed, Evicted, Stored, Stored]


def test_what_cannot_be_noted_as_used_is_found_all_the_same():
    store = Failing("used")
    memory = Memory(store)
    memory.observe(said(rejection()))
    assert len(memory.recall(ORIGIN, OPERATION, {})) == 1


def test_what_a_write_did_is_told_even_when_the_rest_cannot_be_counted():
    class NotCountingOnceWritten(Failing):
        def write(self, *arguments, **options):
            written = super().write(*arguments, **options)
            if written and written.dropped:
                self.verbs.add("count")
            return written

    memory = Memory(NotCountingOnceWritten(), ask=one_row_changed)
    memory.observe(said(rejection()))
    events = memory.observe(said({"table_versions": {"t": "2"}}))
    assert [type(event) for event in events] == [Evicted]


@pytest.mark.parametrize("name", ["in process", "sqlite"])
def test_sixteen_threads_learn_a_hundred_lessons_each(name, tmp_path):
    store = (
        InProcessStore() if name == "in process" else SqliteStore(tmp_path / "memory.db", busy_timeout_s=30)
    )
    events = []
    memory = Memory(store, on_event=events.append)

    def learn(worker):
        for number in range(100):
            memory.observe(said(rejection(when={"a": worker * 100 + number})))

    threads = [threading.Thread(target=learn, args=(worker,)) for worker in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {type(event) for event in events} == {Stored}
    assert memory.statistics.stored == len(list(store.entries())) == 1600


def test_a_response_that_comes_twice_is_one_lesson():
    memory = Memory()
    assert [type(event) for event in memory.observe(said(rejection()))] == [Stored]
    assert memory.observe(said(rejection())) == []
    assert memory.statistics.stored == 1


def test_an_amended_request_is_one_hit():
    memory = Memory()
    memory.observe(said(rejection()))
    assert len(memory.amend(ORIGIN, OPERATION, {"a": 1}, Guard()).applied) == 1
    assert memory.amend(ORIGIN, "POST /y", {"a": 1}, Guard()).applied == []
    assert (memory.statistics.hits, memory.statistics.misses) == (1, 1)


def test_fixes_of_one_type_that_set_different_fields_stand_side_by_side():
    memory = Memory()
    memory.observe(said(rejection(parameters={"x": 1})))
    memory.observe(said(rejection(parameters={"y": 1})))
    assert [entry.parameters for entry in memory.recall(ORIGIN, OPERATION, {})] == [{"x": 1}, {"y": 1}]


def test_a_vector_that_grew_does_not_bring_back_what_the_same_response_evicts():
    memory = Memory(strategy=ARMS["A2DC"], ask=one_row_changed)
    memory.observe(said(rejection()))
    both = [{"table": "t", "version": "2"}, {"table": "u", "version": "1"}]
    grown = FIX | {"when": {"b": 1}, "parameters": {"x": 2}, "tables": both}
    events = memory.observe(
        said({"table_versions": {"t": "2", "u": "1"}, "recovery_feedback": {"suggestions": [grown]}})
    )
    assert not any(isinstance(event, Restamped) for event in events)
    assert memory.recall(ORIGIN, OPERATION, {}) == []


def test_a_memory_over_a_file_that_cannot_be_opened_goes_on_without_and_finds_it_later(tmp_path, clock):
    path = tmp_path / "no such folder" / "memory.db"
    memory = Memory(SqliteStore(path), clock=clock)
    assert memory.recall(ORIGIN, OPERATION, {}) == []
    assert memory.observe(said(rejection())) == []
    path.parent.mkdir()
    clock.now += 10
    memory.observe(said(STAMPS))
    memory.observe(said(rejection()))
    assert len(memory.recall(ORIGIN, OPERATION, {})) == 1
    memory.store.close()


def test_what_is_ignored_is_told_in_one_sentence_each():
    memory = Memory()
    [event] = memory.observe(said(rejection(type="not a name")))
    assert isinstance(event, Ignored)
    assert "\n" not in event.why
