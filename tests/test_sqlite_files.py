"""Files of a memory and of a log, and what becomes of them while they are in use: begun at the same moment, deleted, replaced, full."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.client import Memory, SqliteStore, StoreError, Write
from shelflife.client.events import StoreFailed
from shelflife.server import LogError, Registry, SqliteLog
from shelflife.sqlite_files import _changed_at, _left_of_tick_s
from shelflife.testing import serving
from tests.client.entries import ORIGIN, entry, put
from tests.client.responses import rejection, said
from tests.processes import wait_until


def log_in(path):
    with closing(SqliteLog(path)) as log:
        Registry({"codes": {}}, log=log)


def store_in(path):
    with closing(SqliteStore(path)) as store:
        store.known("http://127.0.0.1:80")


@pytest.mark.parametrize("begin", [log_in, store_in])
def test_a_new_file_is_waited_for_while_another_process_begins_it(tmp_path, begin):
    path, begun = tmp_path / "new.db", []
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin immediate")
    beginning = threading.Thread(target=lambda: begun.append(begin(path)))
    beginning.start()
    beginning.join(0.2)
    assert beginning.is_alive()
    other.execute("rollback")
    beginning.join()
    assert begun
    assert other.execute("pragma journal_mode").fetchone() == ("wal",)
    other.close()


@pytest.mark.parametrize("begin", [log_in, store_in])
def test_what_is_no_database_is_not_waited_for(tmp_path, begin):
    path = tmp_path / "new.db"
    path.write_bytes(b"this is no database, but a text of some length" * 100)
    with pytest.raises(Exception, match="not a database"):
        begin(path)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.db"


def all_of(path):
    """The file, and what SQLite keeps beside it."""
    return path.parent.glob(f"{path.name}*")


def deleted(path):
    for one in all_of(path):
        one.unlink()


def deleted_alone(path):
    path.unlink()


REMOVED = pytest.mark.parametrize("remove", [deleted, deleted_alone])


@pytest.fixture
def elsewhere(path):
    """Another process that uses the same file, as far as SQLite can tell: a copy of the memory in a process of its own would do the same."""
    opened = []

    def open_there(kind):
        opened.append(kind(path))
        return opened[-1]

    yield open_there
    for one in opened:
        one.close()


def plans(store):
    """What is found now, as a recall finds it: what is known comes first."""
    store.known(ORIGIN)
    return {one.condition.when["plan"] for one in store.entries()}


@REMOVED
def test_a_memory_is_read_from_the_file_that_is_there_and_not_from_the_one_that_was(path, remove, elsewhere):
    with closing(SqliteStore(path)) as store:
        put(store, entry("old"))
        assert plans(store) == {"old"}
        remove(path)
        put(elsewhere(SqliteStore), entry("new"))
        assert plans(store) == {"new"}
        assert put(store, entry("both")) is not None
        assert plans(elsewhere(SqliteStore)) == {"new", "both"}


@REMOVED
def test_that_a_file_was_removed_is_seen_by_its_folder_which_was_not_changed_for_long(
    path, remove, elsewhere, monkeypatch
):
    monkeypatch.setattr("shelflife.sqlite_files._LONGEST_TICK_S", 0.05)
    monkeypatch.setattr("shelflife.sqlite_files._TICK_S", 0.05)
    with closing(SqliteStore(path)) as store:
        put(store, entry("old"))
        until = time.monotonic() + 60
        while store._file._open.folder is None:
            assert plans(store) == {"old"}
            assert store.known(ORIGIN).revision
            assert time.monotonic() < until
        remove(path)
        put(elsewhere(SqliteStore), entry("new"))
        store.known(ORIGIN)
        assert plans(store) == {"new"}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only what was long ago is believed")
def test_what_changes_once_a_tick_is_over_is_stamped_with_another_time(path, monkeypatch):
    monkeypatch.setattr("shelflife.sqlite_files._TICK_S", 0.0)
    folder = str(path.parent)
    for _ in range(100):
        path.touch()
        changed_at = _changed_at(folder)
        while _left_of_tick_s(changed_at[-1]) >= 0:
            assert _changed_at(folder) == changed_at
        path.unlink()
        assert _changed_at(folder) != changed_at


def test_a_time_that_may_be_rounded_is_believed_only_after_long():
    a_second_ago = time.time_ns() // 1_000_000_000 * 1_000_000_000 - 1_000_000_000
    assert _left_of_tick_s(a_second_ago) > 0
    assert _left_of_tick_s(a_second_ago - 3_000_000_000) < 0


@REMOVED
def test_a_log_is_read_from_the_file_that_is_there_and_not_from_the_one_that_was(path, remove, elsewhere):
    with closing(SqliteLog(path)) as log:
        registry = Registry({"codes": {}}, log=log)
        registry.reload_table("codes", {"growth": {"code": "OLD"}})
        remove(path)
        anew = Registry({"codes": {}}, log=elsewhere(SqliteLog))
        registry.catch_up()
        assert registry.state.log_id == anew.state.log_id
        registry.reload_table("codes", {"growth": {"code": "NEW"}})
        anew.catch_up()
        assert anew.rows("codes") == {"growth": {"code": "NEW"}}


def copied(path):
    """A copy as SQLite makes it, beside nothing."""
    copy = path.with_name("copy.db")
    with closing(sqlite3.connect(path)) as whole, closing(sqlite3.connect(copy)) as part:
        whole.backup(part)
    return copy


def test_a_copy_that_is_put_back_is_used_at_once(path, elsewhere):
    with closing(SqliteStore(path)) as store:
        put(store, entry("old"))
        copy = copied(path)
        put(store, entry("new"))
        known = store.known(ORIGIN)
        deleted(path)
        shutil.copy(copy, path)
        assert store.write(ORIGIN, known.revision, known.knowledge) is None
        assert plans(store) == plans(elsewhere(SqliteStore)) == {"old"}


def test_a_copy_is_not_used_with_the_journal_of_what_it_has_replaced(path):
    link = path.with_name("link.db")
    link.symlink_to(path)  # the journal is beside the file itself
    with closing(SqliteStore(link)) as store, closing(SqliteLog(path.with_name("log.db"))) as log:
        put(store, entry("old"))
        registry = Registry({"codes": {}}, log=log)
        journals = []
        for one in (path, log.path):
            copied(one).replace(one)
            journals.append(one.with_name(f"{one.name}-wal"))
        events = []
        memory = Memory(store, on_event=events.append)
        for _ in range(2):
            assert memory.recall(ORIGIN, "POST /x", {"plan": "old"}) == []
            with pytest.raises(LogError, match="is of the one before: remove that"):
                registry.catch_up()
        assert [type(event) for event in events] == [StoreFailed]
        assert f"{journals[0]} is of the one before: remove that" in events[0].why
        for journal in journals:
            journal.unlink()
        assert len(memory.recall(ORIGIN, "POST /x", {"plan": "old"})) == 1
        registry.catch_up()


CONFIRMING = """
import os, sys
from shelflife.client import SqliteStore
from tests.client.entries import entry, put

store = SqliteStore(sys.argv[1])
put(store, entry("seen by both"), entry("confirmed"))
if sys.argv[2] == "is closed":
    store.close()
os._exit(0)
"""


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="what a process has open cannot be told")
@pytest.mark.parametrize("ending", ["is closed", "is killed"])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("gone", [["-shm"], ["-wal", "-shm"]])
def test_what_others_confirm_after_the_index_was_deleted_is_seen_and_stays(
    path, gone, goes_on, count, ending
):
    """The index is beside the file, and whoever opens this without it makes another."""
    stores = [SqliteStore(path) for _ in range(count)]
    put(stores[0], entry("seen by both"))
    assert all(plans(store) == {"seen by both"} for store in stores)
    for end in gone:
        path.with_name(f"{path.name}{end}").unlink()
    subprocess.run([sys.executable, "-c", CONFIRMING, path, ending], check=True, timeout=300)
    both = {"seen by both", "confirmed"}
    for store in stores[1:] * goes_on:
        with pytest.raises(StoreError, match="something else in this process still has it open"):
            plans(store)
    for store in stores * goes_on:
        assert plans(store) >= both
        assert put(store, entry("later")) is not None
    for store in stores:
        store.close()
    with closing(SqliteStore(path)) as store:
        assert plans(store) == (both | {"later"} if goes_on else both)
    assert {one.name for one in all_of(path)} == {path.name}


IDLING = """
import gc, sys
from shelflife.client import SqliteStore
from tests.client.entries import entry, put

store = SqliteStore(sys.argv[1])
put(store, entry("dropped by another"))
print("learned", flush=True)
sys.stdin.readline()
if sys.argv[2] == "is collected":
    del store
    gc.collect()
"""


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="what a process has open cannot be told")
@pytest.mark.parametrize("ending", ["is collected", "ends with the program"])
@pytest.mark.parametrize("gone", [["-shm"], ["-wal", "-shm"]])
def test_a_store_that_nobody_has_closed_undoes_nothing_that_others_have_written(path, gone, ending):
    """The index is deleted while it idles, and it has not looked since."""
    program = [sys.executable, "-c", IDLING, path, ending]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as idling:
        assert idling.stdout.readline() == "learned\n"
        for end in gone:
            path.with_name(f"{path.name}{end}").unlink()
        other = SqliteStore(path)
        put(other, entry("confirmed"))
        known = other.known(ORIGIN)
        other.write(ORIGIN, known.revision, Write(known.knowledge, drop_ids=[entry("dropped by another").id]))
        assert plans(other) == {"confirmed"}
        other.close()
        idling.communicate("\n", timeout=120)
    with closing(SqliteStore(path)) as store:
        assert plans(store) == {"confirmed"}


def linked(link, to):
    """Have a link lead somewhere else, in one step."""
    beside = link.with_name(f"{link.name}-new")
    beside.symlink_to(to)
    beside.replace(link)


def test_a_link_on_the_way_to_a_file_may_be_in_another_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("shelflife.sqlite_files._LONGEST_TICK_S", 0.0)
    monkeypatch.setattr("shelflife.sqlite_files._TICK_S", 0.0)
    folder, ways = tmp_path / "folder", tmp_path / "ways"
    for one in (folder, ways):
        one.mkdir()
    for name in ("old", "new"):
        with closing(SqliteStore(folder / f"{name}.db")) as store:
            put(store, entry(name))
    (ways / "memory.db").symlink_to(folder / "old.db")
    (folder / "memory.db").symlink_to(ways / "memory.db")
    with closing(SqliteStore(folder / "memory.db")) as store:
        assert plans(store) == plans(store) == {"old"}
        linked(ways / "memory.db", folder / "new.db")
        assert plans(store) == {"new"}


def test_a_folder_that_has_the_name_of_another_has_a_memory_of_its_own(tmp_path):
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    (tmp_path / "now").symlink_to("old")
    with (
        closing(SqliteStore(tmp_path / "now" / "file.db")) as store,
        closing(SqliteStore(tmp_path / "new" / "file.db")) as other,
    ):
        put(store, entry("old"))
        put(other, entry("new"))
        assert plans(store) == {"old"}
        linked(tmp_path / "now", "new")
        assert plans(store) == {"new"}
        with closing(SqliteStore(tmp_path / "old" / "file.db")) as left:
            assert plans(left) == {"old"}


def test_a_worker_whose_log_was_deleted_says_so_once_and_answers_no_questions(path, caplog):
    provider = acme_provider(log=path)
    with serving(acme_app(provider)) as address:
        question = f"{address}/contract/changes?from=AAAAAA1&nonce=abc"
        assert httpx2.get(question).status_code == 200
        deleted(path)
        assert [httpx2.get(question).status_code for _ in range(3)] == [503] * 3
        wait_until(lambda: provider.registry.is_cut_off)
        assert httpx2.get(question).status_code == 503
        anew = acme_provider(log=path)
        acme_app(anew)
        anew.be_ready()
        wait_until(lambda: httpx2.get(question).status_code == 200)
        anew.close()
    provider.close()
    told = [record.message for record in caplog.records if "deleted while it was in use" in record.message]
    assert sum("what others reload is not seen until it can" in one for one in told) == 1
    assert sum("a client could not be answered from the end of the log" in one for one in told) == 1


@pytest.mark.parametrize("size", [0, 5000])
def test_a_file_that_shrinks_under_a_process_fails_no_step_of_an_agent(path, size, elsewhere):
    events = []
    with closing(SqliteStore(path)) as store:
        memories = [Memory(store, on_event=events.append), Memory(elsewhere(SqliteStore))]
        memories[0].observe(said(rejection()))
        store.close()  # so that all is in the file, and nothing beside it
        assert len(memories[0].recall("http://h", "POST /x", {"a": 1})) == 1
        os.truncate(path, size)
        for memory in memories:
            memory.observe(said(rejection(parameters={"x": 2})))
            assert {one.parameters["x"] for one in memory.recall("http://h", "POST /x", {"a": 1})} <= {2}
        assert sum(isinstance(event, StoreFailed) for event in events) <= 1


FULL = """
import resource, signal, sys
from shelflife.client import Memory, SqliteStore, StoreError, Write
from shelflife.client.events import StoreFailed
from tests.client.responses import rejection, said
from tests.processes import wait_until

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
events = []
memory = Memory(SqliteStore(sys.argv[1]), on_event=events.append)
memory.observe(said(rejection()))
assert len(memory.recall("http://h", "POST /x", {"a": 1})) == 1
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, most))
memory.observe(said(rejection(parameters={"x": 2})))
assert memory.recall("http://h", "POST /x", {"a": 1}) == []
assert sum(isinstance(event, StoreFailed) for event in events) == 1
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
later = Memory(memory.store)

def has_learned():  # a file that could not be written is left alone for a moment
    later.observe(said(rejection(parameters={"x": 3})))
    return [one.parameters for one in later.recall("http://h", "POST /x", {"a": 1})] == [{"x": 3}]

wait_until(has_learned)
"""


def test_on_a_full_disk_nothing_is_recalled_that_could_not_be_replaced(path):
    """A file may not grow: that is what a full disk is to SQLite."""
    subprocess.run([sys.executable, "-c", FULL, path], check=True, timeout=300)


def in_a_folder_that_cannot_be_written(path, do):
    """Do something in a child process without rights in the folder of a file; whether all went well."""
    child = os.fork()
    if not child:
        signal.alarm(120)
        is_well = False
        try:
            if os.geteuid() == 0:
                os.seteuid(65534)  # to a superuser every folder can be written
            is_well = do()
        finally:
            os._exit(0 if is_well else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("is_there", [True, False])
def test_in_a_folder_that_cannot_be_written_the_agent_goes_on_without_memory(tmp_path_factory, is_there):
    folder = tmp_path_factory.mktemp("folder")
    for above in (folder, folder.parent, folder.parent.parent):
        above.chmod(above.stat().st_mode | 0o555)
    path = folder / "memory.db"
    if is_there:
        with closing(SqliteStore(path)) as store:
            Memory(store).observe(said(rejection()))
    folder.chmod(0o555)

    def goes_on():
        events = []
        memory = Memory(SqliteStore(path), on_event=events.append)
        for _ in range(2):
            memory.observe(said(rejection()))
            if memory.recall("http://h", "POST /x", {"a": 1}):
                return False
        return [type(event) for event in events] == [StoreFailed]

    assert in_a_folder_that_cannot_be_written(path, goes_on)
    folder.chmod(0o755)
