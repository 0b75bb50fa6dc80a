"""The log in a SQLite file: for all workers of one machine, and for the next start.

The file holds the state at the end of the log and the latest entries. An entry and what it does to the state are one transaction. Only rows
that change are written, so the work follows the change and not the table.
"""

import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from shelflife.contract import ContractError, Rule
from shelflife.extras import needing
from shelflife.forks import mind_forks
from shelflife.server.delta import Row
from shelflife.server.errors import LogError
from shelflife.server.log import MOST_ENTRIES, MOST_ROWS, Declared, Entry, entries_since
from shelflife.server.rules import RuleSet
from shelflife.server.state import State
from shelflife.server.tables import RowMap, Table, is_minted
from shelflife.wal import begin_wal

with needing("server"):
    from rpds import HashTrieMap

__all__ = ["SqliteLog"]

_FORMAT = 3
_APPLICATION_ID = 0x5348_4C46
_LOOK_AGAIN_S = 0.01
"""How often a worker looks whether another has written. It costs some microseconds."""

_SCHEMA = """
create table log (
    only_row integer primary key check (only_row = 0), id text not null, number integer not null, digest text not null,
    rules blob not null, policies blob not null
);
create table entries (number integer primary key, entry blob not null, size integer not null);
create table tables (name text primary key, version text not null, content text not null) without rowid;
create table rows (table_name text, key text, row blob not null, primary key (table_name, key)) without rowid;
create table given_versions (
    table_name text, version text, content text not null, primary key (table_name, version)
) without rowid;
create table declared (name text primary key, content text not null, digests blob not null) without rowid;
"""

_encode = msgspec.json.Encoder().encode
_decode_row = msgspec.json.Decoder(dict[str, Any]).decode
_decode_entry = msgspec.json.Decoder(Entry).decode
_decode_rules = msgspec.json.Decoder(tuple[Rule, ...]).decode
_decode_texts = msgspec.json.Decoder(dict[str, str]).decode


class SqliteLog:
    """A log in a file. Any number of processes may use it at the same time."""

    def __init__(self, path: str | Path, *, busy_timeout_s: float = 5.0) -> None:
        self.path = Path(path)
        self._busy_timeout_s = busy_timeout_s
        self._lock = threading.RLock()
        self._seen_version = -1
        self._inherited: list[sqlite3.Connection | None] = []
        self._connection: sqlite3.Connection | None = self._connected()
        mind_forks(self)

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """To close the parent's connection here could harm the parent."""
        self._inherited.append(self._connection)
        self._connection = None
        self._lock = threading.RLock()
        self._seen_version = -1

    def close(self) -> None:
        """Let go of the file, until the next verb."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def open(self, first: State, declared: Mapping[str, Declared]) -> State:
        with self._writing() as connection:
            if connection.execute("select 1 from log").fetchone() is None:
                rules, policies = _encode([*first.rules]), _encode(first.policies)
                beginning = first.log_id, first.number, first.digest, rules, policies
                connection.execute("insert into log values (0, ?, ?, ?, ?, ?)", beginning)
                for table in first.tables.values():
                    _write_rows(connection, table.name, table.rows)
                    _write_version(connection, table.name, table.version, table.content_name)
                _write_declared(connection, declared)
            return _state_in(connection)

    def append(self, entry: Entry, after: State, declared: Mapping[str, Declared]) -> bool:
        with self._writing() as connection:
            if _head_in(connection) != (entry.number - 1, entry.previous):
                return False
            change = entry.change
            statement = "update log set number = ?, digest = ?"
            connection.execute(statement, (entry.number, entry.digest))
            if change.rules is not None:
                connection.execute("update log set rules = ?", (_encode(change.rules.after),))
            if change.policies is not None:
                connection.execute("update log set policies = ?", (_encode(change.policies.after),))
            for name, one in change.tables.items():
                _write_rows(connection, name, one.delta.after)
                _write_version(connection, name, one.version, one.content)
            _write_declared(connection, declared)
            _write_entry(connection, entry)
            return True

    def read(self, number: int, digest: str) -> Sequence[Entry] | State:
        with self._reading() as connection:
            if _head_in(connection) == (number, digest):
                return ()
            since = entries_since(_entries_in(connection, number), number, digest)
            return _state_in(connection) if since is None else since

    def declared(self, name: str) -> Declared | None:
        with self._reading() as connection:
            found = connection.execute(
                "select content, digests from declared where name = ?", (name,)
            ).fetchone()
        return None if found is None else Declared(found[0], lambda: _decode_texts(found[1]))

    def wait(self, timeout_s: float) -> None:
        """Looks, again and again, at a counter that SQLite raises when another connection has written."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            with self._failing("read"), self._lock:
                (version,) = self._opened().execute("pragma data_version").fetchone()
            if version != self._seen_version:
                self._seen_version = version
                return
            time.sleep(_LOOK_AGAIN_S)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connected()
        return self._connection

    def _connected(self) -> sqlite3.Connection:
        with self._failing("opened"):
            connection = sqlite3.connect(
                self.path, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False
            )
            try:
                begin_wal(connection, self._busy_timeout_s)
                connection.execute("pragma synchronous = full")
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        with _transaction(connection, "immediate"):
            (application_id,) = connection.execute("pragma application_id").fetchone()
            (format_version,) = connection.execute("pragma user_version").fetchone()
            (table_count,) = connection.execute("select count(*) from sqlite_master").fetchone()
            if not table_count and not application_id:
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"pragma application_id = {_APPLICATION_ID}")
                connection.execute(f"pragma user_version = {_FORMAT}")
            elif application_id != _APPLICATION_ID:
                raise LogError(f"{self.path} is a database, but not a log")
            elif format_version != _FORMAT:
                raise LogError(
                    f"the log {self.path} has format {format_version};"
                    f" this version of shelflife reads format {_FORMAT}"
                )

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._failing("read"), self._lock, _transaction(self._opened(), "deferred") as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._failing("written"), self._lock, _transaction(self._opened(), "immediate") as connection:
            yield connection

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, msgspec.MsgspecError, ContractError, TypeError, ValueError) as error:
            locked = "locked" in str(error)
            reason = "another process has held it for too long" if locked else str(error)
            raise LogError(f"the log {self.path} cannot be {what}: {reason}") from error


@contextmanager
def _transaction(connection: sqlite3.Connection, kind: str) -> Iterator[sqlite3.Connection]:
    connection.execute(f"begin {kind}")
    try:
        yield connection
        connection.execute("commit")
    except BaseException:
        with suppress(sqlite3.Error):  # a commit that failed may have rolled back already
            connection.execute("rollback")
        raise


def _head_in(connection: sqlite3.Connection) -> tuple[int, str]:
    number, digest = connection.execute("select number, digest from log").fetchone()
    return number, digest


def _entries_in(connection: sqlite3.Connection, after: int = 0) -> tuple[Entry, ...]:
    stored = connection.execute("select entry from entries where number > ? order by number", (after,))
    return tuple(_decode_entry(entry) for (entry,) in stored)


def _state_in(connection: sqlite3.Connection) -> State:
    """The state at the end of the log, with the latest entries."""
    log_id, number, digest, rules, policies = connection.execute(
        "select id, number, digest, rules, policies from log"
    ).fetchone()
    tables = {
        name: Table(
            name,
            RowMap(dict(_rows_in(connection, name))),
            version,
            content=int(content, 16),
            given_versions=HashTrieMap(_given_versions_in(connection, name)),
        )
        for name, version, content in connection.execute(
            "select name, version, content from tables"
        ).fetchall()
    }
    return State(
        tables,
        RuleSet(_decode_rules(rules)),
        _decode_texts(policies),
        log_id=log_id,
        number=number,
        digest=digest,
        tail=_entries_in(connection),
    )


def _rows_in(connection: sqlite3.Connection, table: str) -> Iterator[tuple[str, Row]]:
    for key, row in connection.execute("select key, row from rows where table_name = ?", (table,)):
        yield key, _decode_row(row)


def _given_versions_in(connection: sqlite3.Connection, table: str) -> dict[str, int]:
    given = connection.execute("select version, content from given_versions where table_name = ?", (table,))
    return {version: int(content, 16) for version, content in given}


def _write_rows(
    connection: sqlite3.Connection, table: str, rows: Mapping[str, Row | None] | Mapping[str, Row]
) -> None:
    connection.executemany(
        "insert or replace into rows values (?, ?, ?)",
        ((table, key, _encode(row)) for key, row in rows.items() if row is not None),
    )
    connection.executemany(
        "delete from rows where table_name = ? and key = ?",
        ((table, key) for key, row in rows.items() if row is None),
    )


def _write_version(connection: sqlite3.Connection, table: str, version: str, content: str) -> None:
    connection.execute("insert or replace into tables values (?, ?, ?)", (table, version, content))
    if not is_minted(version):
        connection.execute("insert or ignore into given_versions values (?, ?, ?)", (table, version, content))


def _write_declared(connection: sqlite3.Connection, declared: Mapping[str, Declared]) -> None:
    for name, one in declared.items():
        statement = "insert or replace into declared values (?, ?, ?)"
        connection.execute(statement, (name, one.content, _encode(one.digests())))


def _write_entry(connection: sqlite3.Connection, entry: Entry) -> None:
    """Keep an entry, and of those before it the newest that fit the bounds."""
    if entry.change.size > MOST_ROWS:
        connection.execute("delete from entries")
        return
    values = entry.number, _encode(entry), entry.change.size
    connection.execute("insert into entries values (?, ?, ?)", values)
    connection.execute(
        "delete from entries where number <= ? or number <= (select max(number) from"
        " (select number, sum(size) over (order by number desc) as total from entries) where total > ?)",
        (entry.number - MOST_ENTRIES, MOST_ROWS),
    )
