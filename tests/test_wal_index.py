"""The head of the index to a journal: another one after each write, whoever writes."""

import sqlite3
from contextlib import closing

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shelflife.client.sqlite import SqliteStore
from shelflife.client.stores import Write
from shelflife.wal_index import head_of, is_next
from tests.client.entries import ORIGIN, entry, put


@pytest.fixture
def path(tmp_path):
    return tmp_path / "memory.db"


@pytest.fixture
def connection(path):
    with closing(connected(path)) as one:
        one.execute("create table rows (n)")
        yield one


def connected(path):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    return connection


def version(connection):
    return connection.execute("pragma data_version").fetchone()[0]


def test_the_head_is_another_one_after_a_write_and_the_same_after_a_look(path, connection):
    head = head_of(str(path))
    before = head.read()
    assert connection.execute("select count(*) from rows").fetchone() == (0,)
    assert head.read() == before
    with closing(connected(path)) as other:
        other.execute("insert into rows values (1)")
        assert head.read() != before
        assert is_next(head.read(), before)
        other.execute("insert into rows values (2)")
        assert not is_next(head.read(), before)


def test_what_was_carried_over_into_the_file_leaves_the_head_as_it_was(path, connection):
    head, before = head_of(str(path)), None
    with closing(connected(path)) as other:
        for number in range(3):
            other.execute("insert into rows values (?)", (number,))
            assert head.read() != before
            before, seen = head.read(), version(connection)
            other.execute("pragma wal_checkpoint(truncate)")
            assert head.read() != before or version(connection) == seen
            before = head.read()


def test_of_a_file_that_is_not_open_here_there_is_none(path, tmp_path):
    with closing(connected(path)) as connection:
        connection.execute("create table rows (n)")
        assert head_of(str(tmp_path / "another.db")) is None
        assert head_of(str(path)) is not None
    assert head_of(str(path)) is None


def test_a_head_whose_connection_was_closed_is_like_no_other(path, connection):
    head, before = head_of(str(path)), head_of(str(path)).read()
    connection.close()
    assert head.read() == b""
    with path.with_name("something else").open("w+b") as other:  # takes the place of what was closed
        other.write(b"x" * 200)
        other.flush()
        assert head.read() not in (before, before[:10])


def test_where_something_else_has_the_index_open_too_neither_is_read(path, connection):
    index = path.with_name(f"{path.name}-shm").open("rb")  # to close it now would give up the locks of SQLite
    assert head_of(str(path)) is None
    connection.close()
    index.close()


def test_where_nothing_tells_what_is_open_there_is_none(path, connection, monkeypatch):
    monkeypatch.setattr("shelflife.wal_index._OPEN_FILES", f"{path}-nowhere")
    assert head_of(str(path)) is None


WRITERS = st.lists(
    st.sampled_from(("mine", "another's", "by hand", "uses", "carried over", "nobody")), max_size=12
)


@settings(deadline=None)
@given(steps=WRITERS)
def test_whoever_has_written_each_look_finds_what_is_there(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("memory") / "memory.db"
    with closing(SqliteStore(path)) as store, closing(SqliteStore(path)) as other:
        put(store, entry(value="0"))
        with closing(sqlite3.connect(path, isolation_level=None)) as by_hand:
            for number, step in enumerate(steps, 1):
                if step == "mine":
                    put(store, entry(value=str(number)))
                elif step == "another's":
                    put(other, entry(value=str(number)))
                elif step == "by hand":
                    by_hand.execute("begin")
                    by_hand.execute(
                        "update entries set entry = json_set(entry, '$.type', ?)", (f"BY_HAND_{number}",)
                    )
                    by_hand.execute("update roots set entries_at = entries_at + 1, revision = revision + 1")
                    by_hand.execute("commit")
                elif step == "uses":
                    store.used(ORIGIN, [entry().id])
                    store._write_uses(1)
                elif step == "carried over":
                    by_hand.execute("pragma wal_checkpoint(truncate)")
                ((there,),) = by_hand.execute(
                    "select json_extract(entry, '$.type', '$.parameters') from entries"
                )
                _, (found,) = store.find(ORIGIN, "POST /x", {"plan": "basic"})
                assert [found.entry.type, found.entry.parameters] == msgspec.json.decode(there)


@pytest.mark.parametrize("is_at_hand", [True, False])
def test_a_memory_is_the_same_with_and_without_the_index_at_hand(path, monkeypatch, is_at_hand):
    if not is_at_hand:
        monkeypatch.setattr("shelflife.wal_index._OPEN_FILES", f"{path}-nowhere")
    with closing(SqliteStore(path)) as store, closing(SqliteStore(path)) as other:
        put(store, entry())
        assert len(store.find(ORIGIN, "POST /x", {"plan": "basic"})[1]) == 1
        assert (store._seen.head is not None) is is_at_hand
        known = other.known(ORIGIN)
        other.write(ORIGIN, known.revision, Write(known.knowledge, drop=["t"]))
        assert store.find(ORIGIN, "POST /x", {"plan": "basic"})[1] == []
        put(store, entry())
        assert len(store.find(ORIGIN, "POST /x", {"plan": "basic"})[1]) == 1
