"""A store in a SQLite file: restarts, other processes, damage, forks, kills."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress

import msgspec
import pytest

from shelflife.client import Exchange, Memory, Reply
from shelflife.client.entries import Knowledge, place_of
from shelflife.client.sqlite import SqliteStore
from shelflife.client.sqlite_format import path_of
from shelflife.client.sqlite_seen import OfRoot
from shelflife.client.stores import Known, StoreError, Write
from shelflife.contract.versions import Versions
from tests.client.entries import ORIGIN, entry, filed, put
from tests.processes import started
from tests.threads import coming_between

JSON = {"content-type": "application/json"}


def found(store, plan="basic"):
    return store.at(ORIGIN, [place_of(ORIGIN, "POST /x", {"plan": plan})])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "memory.db"


def test_a_file_is_there_again_after_a_restart(path):
    store = SqliteStore(path)
    put(store, entry())
    store.close()
    again = SqliteStore(path)
    assert found(again) == [entry()]
    assert list(again.shapes(ORIGIN, "POST /x")) == [("plan",)]
    again.close()


def test_a_put_writes_little_into_the_journal(path):
    store = SqliteStore(path)
    put(store, entry("a"))
    journal = path.with_name(f"{path.name}-wal")
    before = journal.stat().st_size
    put(store, entry("b"))
    assert 0 < journal.stat().st_size - before < 4 * 4096
    store.close()


def test_two_stores_on_one_file_see_each_other(path):
    one, other = SqliteStore(path), SqliteStore(path)
    assert list(other.shapes(ORIGIN, "POST /x")) == []
    put(one, entry())
    assert list(other.shapes(ORIGIN, "POST /x")) == [("plan",)]
    assert found(other) == [entry()]
    known = one.known(ORIGIN)
    one.write(ORIGIN, known.revision, Write(known.knowledge, drop=["t"]))
    assert found(other) == []
    one.close()
    other.close()


def test_two_stores_on_one_file_count_together_what_there_is_room_for(path):
    one, other = SqliteStore(path), SqliteStore(path)
    for number in range(8):
        put(one if number % 2 else other, entry(f"plan {number}"), capacity=3)
    assert [held.condition.when["plan"] for held in one.entries()] == ["plan 5", "plan 6", "plan 7"]
    assert one.count(ORIGIN, "t") == other.count(ORIGIN, "t") == 3
    one.close()
    other.close()


def test_a_file_with_the_indexes_of_an_earlier_version_is_used_as_it_is(path):
    older = SqliteStore(path)
    older.open()
    older.close()
    edit(path, "create index entries_by_use on entries (root)")
    edit(path, "create index entries_by_slot on entries (slot)")
    store = SqliteStore(path)
    put(store, entry(value="P1"))
    put(store, entry(value="P2"))
    assert found(store) == [entry(value="P2")]
    store.close()


def test_what_has_gone_is_taken_out_of_the_file_as_others_come(path, monkeypatch):
    monkeypatch.setattr("shelflife.client.sqlite_writing._ALWAYS_GONE", 4)
    store = SqliteStore(path)
    for number in range(100):
        put(store, entry(str(number)))
        known = store.known(ORIGIN)
        if number % 3 == 2:
            assert store.write(ORIGIN, known.revision, Write(known.knowledge, drop=["t"])).dropped
            assert list(store.entries()) == store.tagged(ORIGIN, "t") == []
            assert store.count(ORIGIN, "t") == 0
    store.close()
    assert rows_in(path, "entries") == rows_in(path, "gone") + 1 <= 4 + 3
    assert rows_in(path, "tags") == rows_in(path, "entries")


def test_what_fills_the_memory_leaves_no_trace_of_what_it_pushes_out(path):
    store = SqliteStore(path)
    for number in range(20):
        put(store, entry(str(number)), capacity=3)
    store.close()
    assert rows_in(path, "entries") == rows_in(path, "tags") == 3
    assert rows_in(path, "gone") == 0


def test_the_order_of_use_is_first_kept_where_there_is_too_little_room(path):
    store = SqliteStore(path)
    with closing(sqlite3.connect(path)) as looking:
        indexes = "select name from sqlite_master where type = 'index' and name = 'entries_by_use'"
        put(store, *[entry(str(number)) for number in range(3)], capacity=3)
        assert looking.execute(indexes).fetchall() == []
        store.used(ORIGIN, [entry("0").id])
        (trimmed,) = put(store, entry("3"), capacity=3).trimmed
        assert trimmed == entry("1")
        assert looking.execute(indexes).fetchall() == [("entries_by_use",)]
    store.close()


def test_shapes_come_and_go_with_their_entries_wherever_they_are_counted(path, monkeypatch):
    monkeypatch.setattr("shelflife.client.sqlite_writing.MOST_SHAPES_COUNTED", 2)
    entries = [entry(when={f"field{number}": place}) for place in (1, 2) for number in range(5)]
    one, other = SqliteStore(path), SqliteStore(path)
    put(one, *entries[:5])
    put(other, *entries[5:])
    names = [f"field{number}" for number in range(5)]
    for store in (one, other):
        assert sorted(store.shapes(ORIGIN, "POST /x")) == [(name,) for name in names]
    for number, gone in enumerate([*entries[:5], *entries[:4:-1]]):
        store = other if number % 2 else one
        known = store.known(ORIGIN)
        assert store.write(ORIGIN, known.revision, Write(known.knowledge, drop_ids=[gone.id])).dropped
        left = {name for left in store.entries() for name in left.condition.when}
        assert {name for (name,) in store.shapes(ORIGIN, "POST /x")} == left
        assert rows_in(path, "shapes") == len(left)
    put(one, *entries)
    assert len(list(other.shapes(ORIGIN, "POST /x"))) == 5
    one.close()
    other.close()


@pytest.mark.parametrize("most_counted", [2, 64])
def test_a_shape_that_comes_and_goes_in_one_write_leaves_nothing(path, monkeypatch, most_counted):
    monkeypatch.setattr("shelflife.client.sqlite_writing.MOST_SHAPES_COUNTED", most_counted)
    with closing(SqliteStore(path)) as store:
        for turn in range(5):
            put(store, *(entry(when={f"field{turn}{number}": 1}) for number in range(4)), capacity=1)
            (left,) = store.entries()
            assert store.shapes(ORIGIN, "POST /x") == (tuple(left.condition.when),)
            assert rows_in(path, "shapes") == 1


def test_a_write_of_another_process_leaves_what_it_does_not_touch_as_it_was_decoded(path):
    store, other = SqliteStore(path), SqliteStore(path)
    put(store, entry())
    _, (before,) = store.find(ORIGIN, "POST /x", {"plan": "basic"})
    known = other.known(ORIGIN)
    other.write(ORIGIN, known.revision, Write(Knowledge(state_tag="next")))
    now, found = store.find(ORIGIN, "POST /x", {"plan": "basic"})
    assert now == other.known(ORIGIN)
    assert found[0] is before
    put(other, entry(value="P2"))
    assert [one.entry for one in store.find(ORIGIN, "POST /x", {"plan": "basic"})[1]] == [entry(value="P2")]
    store.close()
    other.close()


def rows_in(path, table):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"select count(*) from {table}").fetchone()[0]


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"this is no database, but a text of some length" * 100),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: edit(path, "drop table entries"),
        lambda path: edit(path, "update entries set entry = 'x'"),
        lambda path: edit(path, "update entries set entry = 7"),
        lambda path: edit(path, "pragma user_version = 99"),
        lambda path: edit(path, "pragma user_version = 0"),
        lambda path: edit(path, "pragma application_id = 7"),
    ],
)
def test_a_damaged_file_is_a_store_error_in_one_sentence(path, damage):
    store = SqliteStore(path)
    put(store, entry())
    store.close()
    damage(path)
    with pytest.raises(StoreError) as refusal:
        found(SqliteStore(path))
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "damage",
    [
        "delete from entries",
        "update entries set tags = 'x'",
        "update entries set entry = 'x'",
        "update entries set entry = null",
    ],
)
def test_a_file_that_somebody_has_edited_is_a_store_error_in_every_verb(path, damage):
    store = SqliteStore(path)
    put(store, entry())
    edit(path, "pragma ignore_check_constraints = 1")
    with suppress(sqlite3.IntegrityError):
        edit(path, damage)
    known = store.known(ORIGIN)
    for verb in (
        lambda: store.write(ORIGIN, known.revision, Write(known.knowledge, drop=["t"])),
        lambda: list(store.entries()),
        lambda: store.tagged(ORIGIN, "t"),
        lambda: put(store, entry(value="P2")),
    ):
        with suppress(StoreError):
            verb()
    store.close()


TOO_MANY = msgspec.msgpack.encode({path_of(ORIGIN, ""): 2**64 - 1}).hex()
TOO_DEEP = f"{'[' * 50_000}{']' * 50_000}"


@pytest.mark.parametrize(
    "damage",
    [
        "update entries set id = 'text'",
        "update entries set id = 5",
        "update entries set place = 'text'",
        "update roots set revision = 9223372036854775807",
        "update roots set held = 9223372036854775807",
        "update roots set gone = -9223372036854775807",
        f"update roots set tallies = x'{TOO_MANY}'",
        f"update roots set shapes = x'{TOO_MANY}'",
        f"""update entries set entry = replace(entry, '"P1"', '{TOO_DEEP}')""",
        "update roots set root = 'nonsense'",
    ],
)
def test_whatever_somebody_writes_into_a_file_a_memory_goes_on_without_it_and_says_so(path, damage, caplog):
    with closing(SqliteStore(path)) as store:
        store.write(ORIGIN, 0, Write(Knowledge(strategy="exact", versions=Versions({"codes": "1"}))))
        put(store, entry(), tags=["all"])
    edit(path, damage)
    ends = [
        lambda memory: memory.observe(moved),
        lambda memory: memory.why(ORIGIN, "POST /x", {"plan": "basic"}),
        lambda memory: memory.forget(ORIGIN),
    ]
    moved = Exchange(ORIGIN, "POST /x", {}, Reply(200, b'{"table_versions": {"codes": "2"}}', JSON))
    for end in ends:
        with closing(SqliteStore(path)) as store:
            memory = Memory(store)
            memory.recall(ORIGIN, "POST /x", {"plan": "basic"})
            end(memory)
            memory.recall(ORIGIN, "POST /x", {"plan": "basic"})
    with closing(SqliteStore(path)) as store, suppress(StoreError):
        store.roots()
    warned = [record.getMessage() for record in caplog.records]
    assert all("\n" not in one and str(path) in one for one in warned)
    assert warned or "nonsense" in damage


def test_what_is_not_unicode_is_a_store_error(path):
    store = SqliteStore(path)
    with pytest.raises(StoreError):
        store.known("\ud800")
    with pytest.raises(StoreError):
        store.count("\ud800", "t")
    with pytest.raises(StoreError):
        put(store, entry(), root="\ud800")
    store.close()


def test_a_file_is_opened_with_the_first_verb_and_tried_again_with_the_next(tmp_path):
    path = tmp_path / "folder" / "memory.db"
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="unable to open"):
        store.known(ORIGIN)
    with pytest.raises(StoreError, match="unable to open"):
        store.open()
    path.parent.mkdir()
    put(store, entry())
    assert found(store) == [entry()]
    store.close()


def test_a_file_that_was_deleted_is_made_anew_and_what_was_known_of_it_counts_no_longer(path):
    store = SqliteStore(path)
    put(store, entry())
    stale = store.known(ORIGIN)
    path.unlink()
    assert store.write(ORIGIN, stale.revision, Write(stale.knowledge, put=[filed(entry("b"))])) is None
    assert store.known(ORIGIN) == Known(Knowledge(), 0)
    put(store, entry("b"))
    other = SqliteStore(path)
    assert list(other.entries()) == [entry("b")]
    other.close()
    store.close()


def test_a_file_stays_where_it_was_when_the_process_goes_to_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("memory.db")
    put(store, entry("a"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    put(store, entry("b"))
    assert {one.condition.when["plan"] for one in store.entries()} == {"a", "b"}
    store.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_opens_the_file_for_itself(path):
    store = SqliteStore(path)
    put(store, entry("a"))
    child = os.fork()
    if not child:
        try:
            put(store, entry("b"))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    put(store, entry("c"))
    assert {one.condition.when["plan"] for one in store.entries()} == {"a", "b", "c"}
    store.close()


def test_a_file_that_cannot_be_written_keeps_being_read_however_much_is_used(path):
    store = SqliteStore(path)
    put(store, entry())
    looking = SqliteStore(path, read_only=True)
    for number in range(600):
        looking.used(ORIGIN, [f"{number:032x}"])
    assert found(looking) == [entry()]
    looking.close()
    store.close()


def test_a_file_of_an_older_format_starts_anew_and_says_so(path, caplog):
    store = SqliteStore(path)
    put(store, entry())
    store.close()
    edit(path, "alter table roots rename to origins")
    edit(path, "pragma user_version = 5")
    with pytest.raises(StoreError, match="has format 5; this version of shelflife reads 11"):
        SqliteStore(path, read_only=True)
    again = SqliteStore(path)
    again.open()
    assert f"the memory {path} was of an older format and has started anew" in caplog.text
    assert list(again.entries()) == []
    assert again.known(ORIGIN) == Known(Knowledge(), 0)
    again.close()


def edit(path, statement):
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()


def test_a_locked_file_is_a_store_error(path):
    store = SqliteStore(path, busy_timeout_s=0.05)
    rival = sqlite3.connect(path, isolation_level=None)
    rival.execute("begin immediate")
    with pytest.raises(StoreError, match="locked"):
        put(store, entry())
    rival.execute("rollback")
    assert put(store, entry()) is not None
    rival.close()
    store.close()


def test_a_file_opened_to_be_looked_at_is_not_written(path):
    with pytest.raises(StoreError, match="unable to open"):
        SqliteStore(path, read_only=True)
    store = SqliteStore(path)
    put(store, entry())
    looking = SqliteStore(path, read_only=True)
    assert list(looking.entries()) == [entry()]
    with pytest.raises(StoreError, match="readonly"):
        put(looking, entry("b"))
    looking.close()
    store.close()


LEARNER = """
import sys
from shelflife.client.sqlite import SqliteStore
from tests.client.kinds import store_of
from tests.client.own_store import ListStore
from tests.client.entries import entry, put

store = SqliteStore(sys.argv[1])
print("up", flush=True)
for number in range(100_000):
    put(store, entry(str(number)))
    print(number, flush=True)
"""


def test_a_kill_in_a_burst_of_writes_loses_at_most_the_one_in_flight(path):
    with started([sys.executable, "-c", LEARNER, path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "up\n"
        for _ in range(50):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        rest = process.stdout.read().split()
        last = int(rest[-1]) if rest else 49
    store = SqliteStore(path)
    held = {int(one.condition.when["plan"]) for one in store.entries()}
    assert held in (set(range(last + 1)), set(range(last + 2)))
    assert store.count(ORIGIN, "t") == len(held)
    store.close()


def test_a_look_that_fails_in_the_middle_leaves_nothing_of_it_behind(path):
    with closing(SqliteStore(path)) as store, closing(SqliteStore(path)) as other:
        put(store, entry("a"))
        before = store.known(ORIGIN)
        other.write(ORIGIN, before.revision, Write(Knowledge(generation=1)))
        with closing(sqlite3.connect(path)) as edited, edited:
            (kept,) = edited.execute("select knowledge from knowledge").fetchone()
            edited.execute("update knowledge set knowledge = 'no JSON'")
        with pytest.raises(StoreError):
            store.known(ORIGIN)
        with pytest.raises(StoreError):
            store.known(ORIGIN)
        with closing(sqlite3.connect(path)) as edited, edited:
            edited.execute("update knowledge set knowledge = ?", (kept,))
        assert store.known(ORIGIN) == other.known(ORIGIN)


def test_wherever_a_look_is_interrupted_the_next_one_finds_what_another_has_written(path):
    for module in (SqliteStore.__module__, OfRoot.__module__):
        number, is_interrupted = 0, [True]
        with closing(SqliteStore(path)) as store, closing(SqliteStore(path)) as other:
            while is_interrupted:
                learned = entry("a")
                put(other, learned)
                assert [one.entry for one in store.find(ORIGIN, "POST /x", {"plan": "a"})[1]] == [learned]
                known = other.known(ORIGIN)
                other.write(
                    ORIGIN, known.revision, Write(Knowledge(generation=number + 1), drop_ids=[learned.id])
                )
                with suppress(KeyboardInterrupt), coming_between(interrupt, number, module) as is_interrupted:
                    store.find(ORIGIN, "POST /x", {"plan": "a"})
                assert store.find(ORIGIN, "POST /x", {"plan": "a"}) == (other.known(ORIGIN), [])
                number += 1
        assert number > 20


@pytest.mark.parametrize(("durable", "synchronous"), [(False, 1), (True, 2)])
def test_a_durable_write_waits_for_the_disk_and_another_does_not(path, durable, synchronous):
    with closing(SqliteStore(path, durable=durable)) as store:
        put(store, entry())
        assert store._file.connection().execute("pragma synchronous").fetchone() == (synchronous,)


def interrupt():
    raise KeyboardInterrupt


def test_a_look_after_another_has_written_is_of_what_is_known_by_then(path):
    """Two roots: a look at one finds out that another process has written, and the next look is at the other."""
    other_root = "https://b.example"
    with closing(SqliteStore(path)) as store, closing(SqliteStore(path)) as other:
        for root in (ORIGIN, other_root):
            put(store, entry("there", root=root), root=root)
            store.find(root, "POST /x", {"plan": "there"})
        put(other, entry("new", root=other_root), root=other_root)
        store.find(ORIGIN, "POST /x", {"plan": "there"})
        known, found = store.find(other_root, "POST /x", {"plan": "new"})
        assert len(found) == 1
        assert known == other.known(other_root)
