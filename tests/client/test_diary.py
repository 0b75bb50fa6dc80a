"""The diary: what a memory has done, kept beside it for all processes that use it."""

import gc
import logging
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import msgspec
import psycopg
import pytest

from shelflife.client import Call, Guard, Memory, SqliteStore, Statistics, exchange
from shelflife.client.diary import KEPT_HOURS, Noted
from shelflife.client.events import Saved
from shelflife.client.opening import store_at
from shelflife.client.sqlite_diary import SqliteDiary
from shelflife.client.telling import Counting
from tests.client.responses import STAMPS, rejection, said
from tests.processes import wait_until

ROOT = "http://h:80"
OPERATION = "POST /x"


class Clock:
    def __init__(self, now=1_800_000_000.0):
        self.now = now

    def __call__(self):
        return self.now


def counts(path):
    return Counter({(one.root, one.what): one.times for one in SqliteDiary(path, read_only=True).read()})


def test_a_memory_notes_what_it_does_by_server_when_it_is_closed(tmp_path):
    path = tmp_path / "memory.db"
    memory = Memory.at(path)
    assert memory.recall("http://h", OPERATION, {}) == []
    memory.observe(said(rejection()))
    assert memory.recall("http://h", OPERATION, {})
    memory.close()
    assert counts(path) == {(ROOT, "misses"): 1, (ROOT, "stored"): 1, (ROOT, "hits"): 1}


def test_an_accepted_request_with_a_fix_in_it_is_a_refusal_spared(tmp_path):
    events = []
    memory = Memory.at(tmp_path / "memory.db", on_event=events.append)
    memory.observe(said(rejection()))
    call = Call("http://h", OPERATION, {}, guard=Guard())
    answer = msgspec.structs.replace(said(STAMPS).reply, status=200)
    exchange(memory, call, lambda step: said(STAMPS).reply)
    assert not [event for event in events if isinstance(event, Saved)]
    exchange(memory, call, lambda step: answer)
    assert [event for event in events if isinstance(event, Saved)] == [Saved(ROOT, OPERATION)]
    assert memory.statistics.saved == 1
    exchange(memory, Call("http://h", "POST /other", {}, guard=Guard()), lambda step: answer)
    assert memory.statistics.saved == 1  # nothing remembered was in it


def test_it_is_written_now_and_then_and_not_with_each_event(tmp_path):
    path, clock = tmp_path / "memory.db", Clock()
    memory = Memory(SqliteStore(path), clock=clock)
    memory.observe(said(rejection()))
    assert counts(path) == {}
    clock.now += 2
    memory.forget("http://h")
    assert counts(path) == {(ROOT, "stored"): 1, (ROOT, "evicted:forgotten"): 1}


def test_a_process_that_only_recalls_writes_it_too(tmp_path):
    path, clock = tmp_path / "memory.db", Clock()
    memory = Memory.at(path, clock=clock)
    for _ in range(3):
        memory.recall("http://h", OPERATION, {})
        clock.now += 1.5
    assert counts(path) == {(ROOT, "misses"): 3}
    memory.close()


def test_a_clock_that_was_set_back_does_not_keep_it_from_being_written(tmp_path):
    path, clock = tmp_path / "memory.db", Clock()
    memory = Memory(SqliteStore(path), clock=clock)
    memory.observe(said(rejection()))
    clock.now -= 3600
    memory.forget("http://h")
    assert counts(path)[ROOT, "stored"] == 1


def test_hours_are_kept_apart(tmp_path):
    diary = SqliteDiary(tmp_path / "memory.db")
    diary.add([Noted(100, ROOT, "hits", 2)])
    diary.add([Noted(100, ROOT, "hits", 3), Noted(100, "", "storefailed", 1)])
    diary.add([Noted(101, ROOT, "hits", 1)])
    assert diary.read() == [
        Noted(100, "", "storefailed", 1),
        Noted(100, ROOT, "hits", 5),
        Noted(101, ROOT, "hits", 1),
    ]
    assert diary.read(101) == [Noted(101, ROOT, "hits", 1)]


@pytest.mark.parametrize("where", ["file", "postgres"])
def test_as_many_hours_are_kept_as_a_year_has_whatever_a_clock_says(where, tmp_path, request):
    at = tmp_path / "memory.db" if where == "file" else request.getfixturevalue("postgres_url")
    with closing(store_at(at)) as store:
        diary = store.diary
        diary.add(Noted(hour, ROOT, "hits", 1) for hour in range(100, 100 + KEPT_HOURS - 2))
        for _ in range(2):
            diary.add([Noted(10_000_000, ROOT, "hits", 1)])  # somebody is centuries ahead
            assert len(diary.read()) == KEPT_HOURS - 1
        newest = 100 + KEPT_HOURS - 2
        diary.add([Noted(newest, ROOT, "hits", 1)])
        assert min(diary.read()).hour == 100
        diary.add([Noted(newest + 1, ROOT, "hits", 1), Noted(newest, ROOT, "hits", 1)])
        hours = [one.hour for one in diary.read()]
        assert hours == [*range(101, newest + 2), 10_000_000]


def test_several_processes_add_to_one_diary_and_one_that_ends_leaves_what_it_has_counted(tmp_path):
    path = tmp_path / "memory.db"
    program = (
        "import sys; from shelflife.client import Memory\n"
        "memory = Memory.at(sys.argv[1])\n"
        "for _ in range(5): memory.recall('http://h', 'POST /x', {})"
    )
    for _ in range(2):
        subprocess.run([sys.executable, "-c", program, path], check=True)
    assert counts(path) == {(ROOT, "misses"): 10}


@pytest.mark.parametrize("how", ["main()", "asyncio.run(later())"])
def test_a_memory_of_a_function_is_noted_though_it_is_gone_before_the_program_ends(tmp_path, how):
    path = tmp_path / "memory.db"
    program = (
        "import asyncio, sys; from shelflife.client import Memory\n"
        "def main(): Memory.at(sys.argv[1]).recall('http://h', 'POST /x', {})\n"
        "async def later(): main()\n"
        f"{how}"
    )
    subprocess.run([sys.executable, "-c", program, path], check=True)
    assert counts(path) == {(ROOT, "misses"): 1}


def test_a_memory_that_nobody_has_any_more_is_noted_at_once_and_only_once(tmp_path):
    path = tmp_path / "memory.db"
    memory = Memory.at(path)
    memory.recall("http://h", OPERATION, {})
    memory.close()
    memory.recall("http://h", OPERATION, {})
    del memory
    gc.collect()
    assert counts(path) == {(ROOT, "misses"): 2}


@pytest.mark.parametrize("engine", ["postgres", "valkey"])
@pytest.mark.parametrize("near", [False, True])
def test_a_memory_in_an_engine_that_nobody_has_any_more_is_noted_too(engine, near, request):
    url = request.getfixturevalue(f"{engine}_url")
    with closing(store_at(url, namespace=f"gone-{near}", near=near)) as store:
        adding, add = set(), store.diary.add
        store.diary.add = lambda noted: (adding.add(threading.current_thread()), add(noted))
        Memory(store).recall("http://h", OPERATION, {})
        gc.collect()
        wait_until(store.diary.read)
        assert [(one.root, one.what, one.times) for one in store.diary.read()] == [(ROOT, "misses", 1)]
        # Whoever is at that engine now may hold what writing there has to wait for.
        assert adding
        assert threading.current_thread() not in adding


def diary_locked_by_another(url):
    """A transaction that keeps all others from writing there, until it ends."""
    address, schema = url.split("&schema=")
    other = psycopg.connect(address)
    other.execute(f"lock table {schema}.diary in exclusive mode")
    return other


def test_what_a_memory_that_nobody_has_could_not_note_at_once_is_noted_later(postgres_url, caplog):
    with closing(store_at(postgres_url)) as store:
        store.diary.read()
        with diary_locked_by_another(postgres_url), caplog.at_level(logging.WARNING, "shelflife.memory"):
            Memory(store).recall("http://h", OPERATION, {})
            gc.collect()
            wait_until(lambda: caplog.messages)
        assert "is not noted" in caplog.text
        wait_until(store.diary.read)
        assert [(one.root, one.what, one.times) for one in store.diary.read()] == [(ROOT, "misses", 1)]


def test_a_program_that_ends_does_not_wait_for_counts_that_cannot_be_written(postgres_url):
    with closing(store_at(postgres_url)) as store:
        store.diary.read()
    program = (
        "import gc, sys, time\n"
        "from shelflife.client import Memory\n"
        f"Memory.at(sys.argv[1]).recall('http://h', {OPERATION!r}, {{}})\n"
        "gc.collect()\n"
        "print(time.monotonic())\n"
    )
    with diary_locked_by_another(postgres_url):
        command = [sys.executable, "-c", program, postgres_url]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stderr.count("is not noted") == 1
    assert time.monotonic() - float(done.stdout) < 12  # all tries would take longer


def test_a_child_does_not_write_what_its_parent_has_counted(tmp_path):
    path = tmp_path / "memory.db"
    memory = Memory.at(path)
    memory.recall("http://h", OPERATION, {})
    child = os.fork()
    if not child:
        memory.recall("http://h", OPERATION, {})
        memory.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    memory.close()
    assert counts(path) == {(ROOT, "misses"): 2}


def test_a_diary_that_cannot_be_written_is_told_once_and_keeps_nobody_from_anything(tmp_path, caplog):
    path, clock = tmp_path / "memory.db", Clock()
    diary = tmp_path / "memory.db-diary"
    diary.mkdir()
    memory = Memory(SqliteStore(path), clock=clock)
    with caplog.at_level(logging.WARNING, "shelflife.memory"):
        for _ in range(3):
            clock.now += 5
            memory.observe(said(rejection()))
            memory.forget("http://h")
    assert [r.message for r in caplog.records if "not noted" in r.message] == [
        f"the diary {diary} cannot be written: unable to open database file; what the memory does is not noted"
    ]
    diary.rmdir()
    memory.close()
    assert counts(path)[ROOT, "stored"] == 3  # nothing was lost meanwhile


def test_servers_beyond_a_bound_are_counted_together():
    counting = Counting(None, Clock())
    for number in range(3_000):
        counting.count(f"http://h{number}:80", "misses")
    assert counting.total["misses"] == 3_000
    assert len(counting.by_root) <= 1_001


def test_a_memory_without_a_file_counts_all_the_same():
    memory = Memory()
    memory.recall("http://h", OPERATION, {})
    memory.observe(said(rejection()))
    memory.close()
    assert (memory.statistics.misses, memory.statistics.stored) == (1, 1)


@pytest.mark.parametrize("content", [b"", b"no database at all, but long enough to be taken for one" * 20])
def test_a_diary_that_is_none_is_left_alone(tmp_path, content, caplog):
    path = tmp_path / "memory.db"
    diary = tmp_path / "memory.db-diary"
    diary.write_bytes(content)
    memory = Memory.at(path)
    memory.recall("http://h", OPERATION, {})
    memory.close()
    if content:
        assert diary.read_bytes() == content
        assert "file is not a database" in caplog.text
    else:
        assert counts(path) == {(ROOT, "misses"): 1}


@pytest.mark.parametrize("engine", ["postgres", "valkey"])
def test_memories_in_an_engine_share_a_diary_there_within_their_namespace(engine, request):
    url = request.getfixturevalue(f"{engine}_url")
    clock = Clock()
    for _ in range(2):
        memory = Memory.at(url, namespace="diaries", clock=clock)
        memory.recall("http://h", OPERATION, {})
        memory.recall("http://\N{SNOWMAN}.example", OPERATION, {})
        memory.close()
        clock.now += 3600
    hour = int(Clock().now // 3600)
    store = store_at(url, namespace="diaries")
    told = store.diary.read()
    store.close()
    assert told == sorted(
        Noted(hour + later, root, "misses", 1)
        for later in range(2)
        for root in (ROOT, "http://xn--n3h.example:80")
    )
    other = store_at(url, namespace="others")
    assert other.diary.read() == []
    other.close()


@pytest.mark.parametrize("engine", ["postgres", "valkey"])
def test_hours_in_an_engine_add_up(engine, request):
    store = store_at(request.getfixturevalue(f"{engine}_url"), namespace="hours")
    first, second = Noted(100, ROOT, "hits", 2), Noted(101, ROOT, "evicted:row_changed", 3)
    store.diary.add([second, first])
    store.diary.add([first])
    assert store.diary.read() == [first._replace(times=4), second]
    assert store.diary.read(101) == [second]
    store.close()


def test_an_engine_that_is_away_does_not_keep_an_agent_from_anything(caplog):
    memory = Memory.at("redis://127.0.0.1:1/0")
    memory.recall("http://h", OPERATION, {})
    memory.close()
    assert "what the memory does is not noted" in caplog.text


@pytest.mark.usefixtures("open_circuits_stay_open")
def test_a_diary_that_others_keep_locked_leaves_the_memory_as_it_is(postgres_url, caplog):
    clock = Clock()
    with closing(Memory.at(postgres_url, clock=clock)) as memory:
        memory.observe(said(rejection()))
        database = memory.store._database
        with closing(psycopg.connect(**database._settings)) as rival, closing(rival.cursor()) as cursor:
            cursor.execute(f'lock table "{database.schema}".diary in exclusive mode')
            took_s = []
            for _ in range(4):
                clock.now += 10
                begun_at = time.monotonic()
                assert len(memory.recall("http://h", OPERATION, {})) == 1
                took_s.append(time.monotonic() - begun_at)
        assert max(took_s[1:]) < took_s[0]
        assert caplog.text.count("what the memory does is not noted") == 1
        memory.store.diary._circuit.close()  # as a moment later
        memory.telling.write_diary()
        assert Noted(int(clock.now // 3600), ROOT, "hits", 4) in memory.store.diary.read()


def test_a_diary_that_is_written_again_leaves_the_folder_of_the_memory_as_it_is(tmp_path):
    """Whoever looks whether the memory's file is still there would have to look more closely."""
    diary = SqliteDiary(tmp_path / "memory.db")
    for _ in range(2):  # a file that was just made is opened once more
        diary.add([Noted(1, "r", "hits", 1)])
    before = tmp_path.stat().st_ctime_ns
    diary.add([Noted(1, "r", "hits", 1)])
    assert tmp_path.stat().st_ctime_ns == before
    diary.close()


def test_the_guide_names_all_that_is_counted():
    guide = Path(__file__, "../../../docs/guides/agents.md").resolve().read_text("utf-8")
    told = guide.partition("`memory.statistics` counts them")[2].partition("\n## ")[0]
    names = {*Statistics.__struct_fields__, "precision"}
    assert {name for name in names if f"`{name}`" not in told} == set()


@pytest.mark.parametrize("engine", ["postgres", "valkey"])
def test_a_memory_whose_engine_was_let_go_of_opens_nothing_when_it_goes(engine, request):
    store = store_at(request.getfixturevalue(f"{engine}_url"), namespace="let-go")
    memory = Memory(store)
    memory.recall("http://h", OPERATION, {})
    store.close()
    threads = {*threading.enumerate()}
    del memory
    gc.collect()
    assert {*threading.enumerate()} <= threads
    with closing(store):
        assert store.diary.read() == []
