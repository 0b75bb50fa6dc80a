"""The log in a SQLite file: for all workers of one machine, and for the next start.

The file holds the state at the end of the log and the latest entries. An entry and what it does to the state are one transaction. Only rows
that change are written, so the work follows the change and not the table.
"""

import sqlite3
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shelflife.contract import Rule
from shelflife.extras import needing
from shelflife.server.delta import Row
from shelflife.server.errors import LogError
from shelflife.server.log import MOST_ENTRIES, MOST_ROWS, Declared, Entry, entries_since
from shelflife.server.rules import RuleSet
from shelflife.server.state import State, new_log
from shelflife.server.tables import RowMap, Table, is_minted
from shelflife.sqlite_files import Kind, SqliteFile

with needing("server"):
    from rpds import HashTrieMap

__all__ = ["SqliteLog"]

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
create table declared (name text primary key, digests blob not null) without rowid;
"""
_KIND = Kind("log", LogError, 0x5348_4C46, 4, _SCHEMA)

_ROWS = "select key, row from rows where table_name = ?"
_GIVEN_VERSIONS = "select version, content from given_versions where table_name = ?"

_encode = msgspec.json.Encoder().encode
_decode_row = msgspec.json.Decoder(dict[str, Any]).decode
_decode_entry = msgspec.json.Decoder(Entry).decode
_decode_rules = msgspec.json.Decoder(tuple[Rule, ...]).decode
_decode_texts = msgspec.json.Decoder(dict[str, str]).decode


class SqliteLog:
    """A log in a file. Any number of processes may use it at the same time."""

    def __init__(self, path: str | Path, *, busy_timeout_s: float = 5.0) -> None:
        self.path = Path(path)
        self._file = SqliteFile(path, _KIND, busy_timeout_s=busy_timeout_s, durable=True)
        self._file.open()
        self._seen: tuple[sqlite3.Connection, int] | None = None

    def close(self) -> None:
        """Let go of the file, until the next verb."""
        self._file.close()

    def renew(self) -> None:
        """Make it another log, which begins with the state that this one has come to."""
        with self._file.writing() as connection:
            connection.execute("update log set id = ?, digest = ?", new_log(*_head_in(connection)))
            connection.execute("delete from entries")

    def open(self, first: State, declared: Declared) -> State:
        with self._file.writing() as connection:
            if connection.execute("select 1 from log").fetchone() is None:
                rules, policies = _encode([*first.rules]), _encode(first.policies)
                beginning = first.log_id, first.number, first.digest, rules, policies
                connection.execute("insert into log values (0, ?, ?, ?, ?, ?)", beginning)
                for table in first.tables.values():
                    _write_rows(connection, table.name, table.rows)
                    _write_version(connection, table.name, table.version, table.content_name)
                _write_declared(connection, declared)
            return _state_in(connection)

    def append(self, entry: Entry, after: State, declared: Declared) -> bool:
        with self._file.writing() as connection:
            if _head_in(connection) != (entry.number - 1, entry.previous):
                return False
            change = entry.change
            statement = "update log set number = ?, digest = ?"
            connection.execute(statement, (entry.number, entry.digest))
            if change.rules is not None:
                rules = _rules_in(connection).changed(change.rules.added, change.rules.removed)
                connection.execute("update log set rules = ?", (_encode([*rules]),))
            if change.policies is not None:
                connection.execute("update log set policies = ?", (_encode(change.policies.after),))
            for name, one in change.tables.items():
                _write_rows(connection, name, one.delta.after)
                _write_version(connection, name, one.version, one.content)
            _write_declared(connection, declared)
            _write_entry(connection, entry)
            return True

    def read(self, number: int, digest: str) -> Sequence[Entry] | State:
        with self._file.snapshot() as connection:
            if _head_in(connection) == (number, digest):
                return ()
            since = entries_since(_entries_in(connection, number), number, digest)
            return _state_in(connection) if since is None else since

    def declared(self) -> Declared:
        with self._file.snapshot() as connection:
            stored = connection.execute("select name, digests from declared")
            return {name: _decode_texts(digests) for name, digests in stored}

    def wait(self, timeout_s: float) -> None:
        """Looks, again and again, at a counter that SQLite raises when another connection has written."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            with self._file.reading:
                connection = self._file.connection(is_to_be_there=True)
                seen = connection, connection.execute("pragma data_version").fetchone()[0]
            if seen != self._seen:
                self._seen = seen
                return
            time.sleep(_LOOK_AGAIN_S)


def _head_in(connection: sqlite3.Connection) -> tuple[int, str]:
    head: tuple[int, str] | None = connection.execute("select number, digest from log").fetchone()
    if head is None:
        raise ValueError("it is empty, or was deleted while it was in use")
    return head


def _rules_in(connection: sqlite3.Connection) -> RuleSet:
    return RuleSet(_decode_rules(connection.execute("select rules from log").fetchone()[0]))


def _entries_in(connection: sqlite3.Connection, after: int = 0) -> tuple[Entry, ...]:
    stored = connection.execute("select entry from entries where number > ? order by number", (after,))
    return tuple(_decode_entry(entry) for (entry,) in stored)


def _state_in(connection: sqlite3.Connection) -> State:
    """The state at the end of the log, with the latest entries."""
    head = connection.execute("select id, number, digest, policies from log")
    log_id, number, digest, policies = head.fetchone()
    tables = {
        name: Table(
            name,
            RowMap({key: _decode_row(row) for key, row in connection.execute(_ROWS, (name,))}),
            version,
            content=int(content, 16),
            given_versions=HashTrieMap(
                {given: int(of, 16) for given, of in connection.execute(_GIVEN_VERSIONS, (name,))}
            ),
        )
        for name, version, content in connection.execute("select * from tables").fetchall()
    }
    return State(
        tables=tables,
        rules=_rules_in(connection),
        policies=_decode_texts(policies),
        log_id=log_id,
        number=number,
        digest=digest,
        tail=_entries_in(connection),
    )


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


def _write_declared(connection: sqlite3.Connection, declared: Declared) -> None:
    stored = ((name, _encode(digests)) for name, digests in declared.items())
    connection.executemany("insert or replace into declared values (?, ?)", stored)


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
