"""Files that several processes begin at the same moment."""

import sqlite3
import threading
from contextlib import closing

import pytest

from shelflife.client import SqliteStore
from shelflife.server import Registry, SqliteLog


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
