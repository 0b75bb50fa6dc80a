"""A response that was seen but not dealt with: the memory must not go on as though it had not been."""

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

from shelflife.client import Knowledge, Memory, StoreError, Write
from shelflife.client.events import Evicted, Reason, StoreFailed
from shelflife.client.sqlite import SqliteStore
from tests.acme_world import CONTROL, FREE, FUNDING_1, GOVERNED, rotate
from tests.client.agents import Agent, knows, learn
from tests.client.by_hand import HERE, LATER, ROOT, adopt, replied
from tests.client.responses import rejection, said
from tests.processes import started


@pytest.fixture
def path(tmp_path):
    return tmp_path / "memory.db"


@pytest.fixture
def agent(address, path, clock):
    store = SqliteStore(path, busy_timeout_s=0.05)
    with Agent(address, store=store, clock=clock) as agent:
        yield agent
    store.close()


class Locked:
    """Somebody else is writing to the file for as long as the block runs."""

    def __init__(self, path):
        self.connection = sqlite3.connect(path, isolation_level=None)

    def __enter__(self):
        self.connection.execute("begin immediate")

    def __exit__(self, *exception):
        self.connection.execute("rollback")
        self.connection.close()


def test_an_eviction_that_cannot_be_written_is_not_recalled_and_made_up_for_exactly(agent, provider, path):
    learn(agent, GOVERNED, CONTROL)
    rotate(provider)
    with Locked(path):
        agent.call(FREE)
        assert knows(agent, GOVERNED) == []
        assert knows(agent, CONTROL) == []
        agent.call(FREE)
    assert len(agent.of(StoreFailed)) == 1
    assert knows(agent, GOVERNED) == []
    agent.memory.store._circuit.close()  # as a moment later
    agent.call(FREE)
    assert [event.reason for event in agent.of(Evicted)] == [Reason.ROW_CHANGED]
    assert knows(agent, GOVERNED) == []
    assert knows(agent, CONTROL) == [{"currency": "eur"}]


def test_a_late_response_does_not_lift_the_doubt(agent, provider, path):
    learn(agent, GOVERNED)
    late = agent.exchange(FREE, agent.http.post(agent.origin + "/subscriptions", json=FREE))
    rotate(provider)
    with Locked(path):
        agent.call(FREE)
    agent.memory.observe(late)
    assert knows(agent, GOVERNED) == []


def test_in_doubt_and_with_nobody_to_ask_everything_of_the_origin_goes(agent, provider, path):
    learn(agent, GOVERNED, CONTROL)
    rotate(provider)
    with Locked(path):
        agent.call(FREE)
    agent.memory.store._circuit.close()
    agent.memory.observe(
        agent.exchange(FREE, agent.http.post(agent.origin + "/subscriptions", json=FREE)),
        ask=lambda question: None,
    )
    assert {event.reason for event in agent.of(Evicted)} == {Reason.IN_DOUBT}
    assert knows(agent, CONTROL) == []


def test_a_file_that_was_locked_while_nothing_moved_costs_nothing_afterwards(agent, path):
    learn(agent, GOVERNED)
    with Locked(path):
        agent.call(CONTROL)
        assert knows(agent, GOVERNED) == []
    agent.call(FREE)
    assert knows(agent, GOVERNED) == [{"promo_code": "SUMMERSALE25"}]
    assert agent.of(Evicted) == []


def test_whoever_answers_and_fails_has_not_answered(agent, provider, caplog):
    def broken(question):
        raise RuntimeError("no such luck")

    learn(agent, GOVERNED)
    rotate(provider)
    response = agent.http.post(agent.origin + "/subscriptions", json=FREE)
    agent.memory.observe(agent.exchange(FREE, response), broken)
    assert "no such luck" in caplog.text
    assert knows(agent, GOVERNED) == []
    assert [event.reason for event in agent.of(Evicted)] == [Reason.TABLE_MOVED]


def test_an_observation_that_is_cancelled_leaves_the_origin_in_doubt(agent, provider):
    learn(agent, GOVERNED)
    rotate(provider)
    exchange = agent.exchange(FREE, agent.http.post(agent.origin + "/subscriptions", json=FREE))

    async def story():
        is_asking = asyncio.Event()

        async def never_answered(question):
            is_asking.set()
            await asyncio.Event().wait()

        observing = asyncio.create_task(agent.memory.observe_async(exchange, never_answered))
        await is_asking.wait()
        observing.cancel()
        await asyncio.gather(observing, return_exceptions=True)

    asyncio.run(story())
    assert knows(agent, GOVERNED) == []


def test_while_the_server_is_being_asked_nobody_recalls(agent, provider):
    learn(agent, GOVERNED, FUNDING_1)
    rotate(provider)
    exchange = agent.exchange(FREE, agent.http.post(agent.origin + "/subscriptions", json=FREE))
    is_asking, may_answer = threading.Event(), threading.Event()

    def slow(question):
        is_asking.set()
        may_answer.wait(60)
        return agent.ask(question)

    observing = threading.Thread(target=agent.memory.observe, args=(exchange, slow))
    observing.start()
    is_asking.wait(60)
    assert knows(agent, GOVERNED) == []
    may_answer.set()
    observing.join()
    assert knows(agent, GOVERNED) == []
    assert len(knows(agent, FUNDING_1)) == 1


def test_precision_is_told_once_the_server_has_given_the_value_again(address, provider):
    with Agent(address) as agent:
        agent.memory = Memory()
        assert agent.memory.statistics.precision is None
        learn(agent, GOVERNED, FUNDING_1)
        rotate(provider)
        provider.registry.reload_table("recommended_credit_token", set={}, version="2.0.0")
        agent.call(FREE)
        assert agent.memory.statistics.precision is None
        agent.call(GOVERNED)
        assert agent.memory.statistics.precision == 1.0
        agent.call(FUNDING_1)
        assert agent.memory.statistics.precision == 0.5


OBSERVER = """
import sys
from shelflife.client import Memory, SqliteStore
from tests.client.responses import rejection_number

memory = Memory(SqliteStore(sys.argv[1]), most_evictions=None)
print("up", flush=True)
for number in range(100_000):
    memory.observe(rejection_number(number))
    print(number, flush=True)
"""


def test_a_kill_in_a_burst_of_observes_loses_at_most_the_one_in_flight(path):
    with started([sys.executable, "-c", OBSERVER, path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "up\n"
        for _ in range(73):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        rest = process.stdout.read().split()
        last = int(rest[-1]) if rest else 72
    store = SqliteStore(path)
    held = [entry.condition.when["a"] for entry in store.entries()]
    expected = [list(range(end // 10 * 10, end + 1)) for end in (last, last + 1)]
    assert held in expected
    assert store.known("http://h:80").knowledge.versions.tables == {"t": f"{held[-1] // 10}"}
    store.close()


def by_position(memory):
    named = memory.contract_at(ROOT)
    replied(memory, named, at={"to": LATER, "from": named, "moved": {"tables": {"t": {"changed": ["k"]}}}})


def by_versions(memory):
    memory.observe(said(rejection(parameters={"x": 2})))


@pytest.mark.usefixtures("open_circuits_stay_open")
@pytest.mark.parametrize("moves_on", [by_position, by_versions])
def test_a_file_that_stays_locked_is_waited_for_once_and_not_with_every_reply(path, moves_on):
    with closing(Memory.at(path)) as memory:
        adopt(memory, HERE) if moves_on is by_position else memory.observe(said(rejection()))
        before = memory.store.known(ROOT).revision
        with Locked(path):
            took_s = []
            for _ in range(5):
                begun_at = time.monotonic()
                moves_on(memory)
                took_s.append(time.monotonic() - begun_at)
        assert max(took_s[1:]) < took_s[0]
        memory.store._circuit.close()  # as a moment later
        moves_on(memory)
        assert memory.store.known(ROOT).revision > before


def copied(path, to):
    """By SQLite itself, into what is there: as its shell restores a file that others have open."""
    with closing(sqlite3.connect(path)) as file, closing(sqlite3.connect(to)) as other:
        file.backup(other)


def removed(path):
    for one in path.parent.glob(f"{path.name}*"):
        one.unlink()


def in_its_place(copy, path):
    removed(path)
    shutil.copy(copy, path)


@pytest.mark.parametrize("put_back", [in_its_place, copied])
@pytest.mark.parametrize("has_failed_to_write", [False, True])
def test_a_file_that_was_put_back_from_an_older_copy_is_asked_about_before_anything_is_used(
    tmp_path, address, provider, put_back, has_failed_to_write
):
    path, copy = tmp_path / "memory.db", tmp_path / "copy.db"
    store = SqliteStore(path, busy_timeout_s=0.05)
    with closing(store), Agent(address, store=store, names_positions=True) as agent:
        agent.call(GOVERNED)
        copied(path, copy)
        rotate(provider)
        agent.call(GOVERNED)
        assert knows(agent, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]
        if has_failed_to_write:
            with Locked(path), pytest.raises(StoreError, match="locked"):
                store.write(agent.origin, store.known(agent.origin).revision, Write(Knowledge()))
            store._circuit.close()  # as a moment later
        put_back(copy, path)
        assert knows(agent, GOVERNED) == []
        assert "has lost what was written" in agent.of(StoreFailed)[0].why
        agent.call(GOVERNED)
        assert knows(agent, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]
        store.close()
        assert knows(agent, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]
        assert len(agent.of(StoreFailed)) == 1


@pytest.mark.parametrize("put_back", [in_its_place, copied])
def test_a_copy_of_a_file_that_has_begun_anew_since_is_older_whatever_was_written_to_it(
    tmp_path, address, provider, put_back
):
    path, copy = tmp_path / "memory.db", tmp_path / "copy.db"
    store = SqliteStore(path)
    with closing(store), Agent(address, store=store, names_positions=True) as agent:
        for request in (GOVERNED, FUNDING_1, CONTROL, GOVERNED):
            agent.call(request)
        before = store.known(agent.origin).revision
        copied(path, copy)
        removed(path)
        rotate(provider)
        agent.call(GOVERNED)
        assert knows(agent, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]
        assert store.known(agent.origin).revision < before
        put_back(copy, path)
        assert knows(agent, GOVERNED) == []
        assert agent.of(StoreFailed)
        agent.call(GOVERNED)
        assert knows(agent, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]


def test_a_copy_that_does_not_know_a_server_leaves_in_mind_what_was_seen_of_it(tmp_path, address, provider):
    path, empty, copy = (tmp_path / name for name in ("memory.db", "empty.db", "copy.db"))
    store = SqliteStore(path)
    with closing(store), Agent(address, store=store, names_positions=True) as agent:
        store.open()
        copied(path, empty)
        agent.call(GOVERNED)
        copied(path, copy)
        rotate(provider)
        agent.call(GOVERNED)
        copied(empty, path)
        assert knows(agent, GOVERNED) == []
        copied(copy, path)
        assert knows(agent, GOVERNED) == []
        assert agent.of(StoreFailed)
