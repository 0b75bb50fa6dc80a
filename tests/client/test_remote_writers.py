"""Agents that write to one engine: while others clear it or keep it locked, and what is noted besides."""

import itertools
import threading
import time
from contextlib import closing

import psycopg
import pytest

from shelflife.client import StoreError, Write
from shelflife.client.entries import Knowledge
from shelflife.client.postgres import PostgresStore
from tests.client.entries import ORIGIN, entry, filed, put


def test_what_was_used_is_not_lost_with_a_write_that_is_refused_or_with_the_end_of_a_process(where, opened):
    store, other = opened(where).store, opened(where).store
    put(store, entry("a"), entry("b"))
    store.used(ORIGIN, [entry("a").id])
    assert store.write(ORIGIN, 7, Write(Knowledge(), put=[filed(entry("c"))])) is None
    assert put(store, entry("c"), capacity=2).trimmed == [entry("b")]
    store.used(ORIGIN, [entry("a").id])
    store.close()
    assert put(other, entry("d"), capacity=2).trimmed == [entry("c")]


def test_what_was_used_is_not_lost_with_a_write_that_fails(where, opened):
    store = opened(where).store
    put(store, entry("a"), entry("b"))
    store.used(ORIGIN, [entry("a").id])
    store._circuit.open(store._circuit.check(), StoreError("away"))
    with pytest.raises(StoreError, match="away"):
        store.write(ORIGIN, 7, Write(Knowledge(), put=[filed(entry("c"))]))
    store._circuit.close()
    assert put(store, entry("c"), capacity=2).trimmed == [entry("b")]


def test_what_is_cleared_while_agents_write_leaves_nothing_behind(where, opened):
    agents = [opened(where, namespace="a-b").store for _ in range(2)]
    clearing, other = opened(where, namespace="a-b").store, opened(where, namespace="a-c").store
    put(other, entry())
    before = held_by(other)
    roots, is_over = [f"{ORIGIN}/{number}" for number in range(4)], threading.Event()

    def writing(store):
        for number in itertools.count():
            if is_over.is_set():
                return
            root = roots[number % len(roots)]
            some = [entry(str(plan), root=root) for plan in range(number % 7)]
            put(store, *some, root=root, tags=("t", f"t{number % 3}"), capacity=5)

    threads = [threading.Thread(target=writing, args=[store]) for store in agents]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            clearing.clear()
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    left = {one.id for one in clearing.entries()}
    assert {one.id for root in roots for one in clearing.tagged(root, "t")} == left
    clearing.clear()
    assert held_by(clearing) == before
    assert len([*other.entries()]) == 1


def held_by(store):
    """How much an engine holds for the namespaces of a test, in rows or keys; the format is not counted."""
    if isinstance(store, PostgresStore):
        with store._database.snapshot() as connection:
            tables = ("roots", "entries", "shapes", "tags", "left_behind")
            return [connection.execute(f"select count(*) from {one}").fetchone()[0] for one in tables]
    return sorted(key for key in store._client.keys("shelflife:*") if not key.endswith(b":format"))


@pytest.mark.usefixtures("open_circuits_stay_open")
def test_a_root_that_others_keep_locked_is_waited_for_once_and_holds_up_no_other(postgres_url, opened):
    store, other = opened(postgres_url).store, f"{ORIGIN}/other"
    put(store, entry())
    database = store._database
    with closing(psycopg.connect(**database._settings)) as rival, closing(rival.cursor()) as cursor:
        cursor.execute(f'select * from "{database.schema}".roots for update')
        took_s = []
        for _ in range(3):
            begun_at = time.monotonic()
            with pytest.raises(StoreError, match="lock timeout"):
                put(store, entry("b"))
            took_s.append(time.monotonic() - begun_at)
            assert len(store.at(ORIGIN, [entry().place])) == 1
            assert put(store, entry(root=other), root=other) is not None
        assert max(took_s[1:]) < took_s[0]
    store._locked[ORIGIN].close()  # as a moment later
    assert put(store, entry("b")) is not None
    assert put(store, entry("c")) is not None
