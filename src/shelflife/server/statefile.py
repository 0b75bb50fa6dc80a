"""The state file: reloads that survive a restart, and a kill in the middle of one.

One SQLite file, one transaction a reload, one process at a time: the file stays locked while it is open. Only rows
that change are written, so the work follows the change and not the table.
"""

import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from shelflife.contract import ContractError, Rule
from shelflife.contract.signed import Statement
from shelflife.extras import needing
from shelflife.server.delta import Delta, Row
from shelflife.server.errors import StateFileError
from shelflife.server.rules import RuleSet
from shelflife.server.state import State
from shelflife.server.tables import RowMap, Step, Table, digest_of_rows

with needing("server"):
    from rpds import HashTrieSet

__all__ = ["StateFile", "StoredState"]

_FORMAT = 2
_APPLICATION_ID = 0x5348_4C46

_SCHEMA = """
create table tables (name text primary key, version text not null, declared text not null) without rowid;
create table rows (table_name text, key text, row blob not null, primary key (table_name, key)) without rowid;
create table versions (table_name text, version text, primary key (table_name, version)) without rowid;
create table steps (
    table_name text, number integer, old_version text not null, downstream blob not null,
    primary key (table_name, number)
) without rowid;
create table step_rows (
    table_name text, number integer, key text, row blob, primary key (table_name, number, key)
) without rowid;
create table declared (table_name text, key text, digest text not null, primary key (table_name, key)) without rowid;
create table rules (
    only_row integer primary key check (only_row = 0), rules blob not null, older_rules blob not null,
    declared text not null
);
create table statements (sequence integer primary key, statement blob not null);
"""

_encode = msgspec.json.Encoder().encode
_decode_row = msgspec.json.Decoder(dict[str, Any]).decode
_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_rules = msgspec.json.Decoder(tuple[Rule, ...]).decode
_decode_statement = msgspec.json.Decoder(Statement).decode
_decode_rule_sets = msgspec.json.Decoder(tuple[tuple[Rule, ...], ...]).decode


class Redeclared(NamedTuple):
    """How what the code declares differs from the last start."""

    rows: dict[str, Row]
    removed: list[str]


class StoredState(NamedTuple):
    """What a state file holds, for the tables that the code declares."""

    state: State
    redeclared_tables: dict[str, "Redeclared"]
    """Tables whose declared content has changed since the file was last opened, and how."""
    are_rules_redeclared: bool


class StateFile:
    """Where a registry keeps its state between runs."""

    def __init__(self, path: str | Path, *, busy_timeout_s: float = 5.0) -> None:
        self.path = Path(path)
        self._writing = threading.RLock()
        with self._failing("opened"):
            self._connection = sqlite3.connect(
                self.path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
            )
        try:
            with self._failing("opened"):
                self._connection.execute("pragma locking_mode = exclusive")
                self._connection.execute("pragma journal_mode = wal")
                self._connection.execute("pragma synchronous = full")
                self._prepare()
        except StateFileError:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Everything that is written in this block is one transaction."""
        with self._failing("written"), self._transaction():
            yield

    def open(self, declared: State) -> StoredState:
        """The stored state; what the file does not know yet is taken from `declared` and stored."""
        with self._failing("read"), self._transaction() as connection:
            known = {
                name: (version, digest)
                for name, version, digest in connection.execute("select name, version, declared from tables")
            }
            tables: dict[str, Table] = {}
            redeclared: dict[str, Redeclared] = {}
            for name, table in declared.tables.items():
                if name not in known:
                    self._insert_table(connection, table)
                    tables[name] = table
                    continue
                version, digest = known[name]
                tables[name] = _read_table(connection, name, version)
                if digest != digest_of_rows(table.rows):
                    redeclared[name] = _redeclared(connection, table)
            rules, older_rules, digest = self._read_rules(connection, declared)
            return StoredState(
                State(tables, rules, older_rules), redeclared, digest != declared.rules.version
            )

    def mark_declared(self, declared: State) -> None:
        """Remember what the code declares now, to tell next time whether it has changed."""
        with self._failing("written"), self._transaction() as connection:
            for name, table in declared.tables.items():
                _write_declared(connection, name, _redeclared(connection, table))
                connection.execute(
                    "update tables set declared = ? where name = ?", (digest_of_rows(table.rows), name)
                )
            connection.execute("update rules set declared = ?", (declared.rules.version,))

    def write_table(self, table: Table, delta: Delta) -> None:
        """Store a reload: the table as it is now, `delta` being what its newest step changed."""
        step = table.history[-1] if table.history else None
        with self._failing("written"), self._transaction() as connection:
            connection.execute("update tables set version = ? where name = ?", (table.version, table.name))
            connection.execute("insert or ignore into versions values (?, ?)", (table.name, table.version))
            _write_rows(connection, table.name, delta.after)
            (newest,) = connection.execute(
                "select coalesce(max(number), 0) from steps where table_name = ?", (table.name,)
            ).fetchone()
            if step is not None:
                _write_step(connection, table.name, newest + 1, step)
            oldest_kept = newest + 2 - len(table.history)
            connection.execute(
                "delete from steps where table_name = ? and number < ?", (table.name, oldest_kept)
            )
            connection.execute(
                "delete from step_rows where table_name = ? and number < ?", (table.name, oldest_kept)
            )

    def write_rules(self, rules: RuleSet, older_rules: tuple[RuleSet, ...]) -> None:
        """Store a reload of the rules."""
        with self._failing("written"), self._transaction() as connection:
            connection.execute(
                "update rules set rules = ?, older_rules = ?",
                (_encode(list(rules)), _encode([list(older) for older in older_rules])),
            )

    def statements(self) -> list[Statement]:
        """The statements about the newest states, oldest first."""
        with self._failing("read"), self._transaction() as connection:
            stored = connection.execute("select statement from statements order by sequence")
            return [_decode_statement(statement) for (statement,) in stored]

    def write_statement(self, statement: Statement, most: int) -> None:
        """Keep a statement and the newest ones before it, `most` in all."""
        with self._failing("written"), self._transaction() as connection:
            connection.execute(
                "insert or replace into statements values (?, ?)", (statement.sequence, _encode(statement))
            )
            connection.execute("delete from statements where sequence <= ?", (statement.sequence - most,))

    def _prepare(self) -> None:
        with self._transaction() as connection:
            (application_id,) = connection.execute("pragma application_id").fetchone()
            (format_version,) = connection.execute("pragma user_version").fetchone()
            (table_count,) = connection.execute("select count(*) from sqlite_master").fetchone()
            if not table_count and not application_id:
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"pragma application_id = {_APPLICATION_ID}")
                connection.execute(f"pragma user_version = {_FORMAT}")
            elif application_id != _APPLICATION_ID:
                raise StateFileError(f"{self.path} is a database, but not a state file")
            elif format_version != _FORMAT:
                raise StateFileError(
                    f"the state file {self.path} has format {format_version};"
                    f" this version of shelflife reads format {_FORMAT}"
                )

    def _insert_table(self, connection: sqlite3.Connection, table: Table) -> None:
        connection.execute(
            "insert into tables values (?, ?, ?)", (table.name, table.version, digest_of_rows(table.rows))
        )
        connection.execute("insert into versions values (?, ?)", (table.name, table.version))
        _write_rows(connection, table.name, table.rows)

    def _read_rules(
        self, connection: sqlite3.Connection, declared: State
    ) -> tuple[RuleSet, tuple[RuleSet, ...], str]:
        stored = connection.execute("select rules, older_rules, declared from rules").fetchone()
        if stored is None:
            version = declared.rules.version
            connection.execute(
                "insert into rules values (0, ?, ?, ?)", (_encode(list(declared.rules)), b"[]", version)
            )
            return declared.rules, (), version
        rules = RuleSet(
            rule
            for rule in _decode_rules(stored[0])
            if rule.from_table in declared.tables and rule.to_table in declared.tables
        )
        return rules, tuple(map(RuleSet, _decode_rule_sets(stored[1]))), stored[2]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction, or the one that is already under way in this thread."""
        with self._writing:
            if self._connection.in_transaction:
                yield self._connection
                return
            self._connection.execute("begin immediate")
            try:
                yield self._connection
                self._connection.execute("commit")
            except BaseException:
                with suppress(sqlite3.Error):  # a commit that failed may have rolled back already
                    self._connection.execute("rollback")
                raise

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, msgspec.MsgspecError, ContractError, TypeError, ValueError) as error:
            if "locked" in str(error):
                reason = "another process holds it, and only one may (with several workers, give each its own file)"
            else:
                reason = str(error)
            raise StateFileError(f"the state file {self.path} cannot be {what}: {reason}") from error


def _read_table(connection: sqlite3.Connection, name: str, version: str) -> Table:
    rows = {
        key: _decode_row(row)
        for key, row in connection.execute("select key, row from rows where table_name = ?", (name,))
    }
    versions = connection.execute("select version from versions where table_name = ?", (name,))
    history: list[Step] = []
    for number, old_version, affected in connection.execute(
        "select number, old_version, downstream from steps where table_name = ? order by number", (name,)
    ).fetchall():
        with closing(
            connection.execute(
                "select key, row from step_rows where table_name = ? and number = ?", (name, number)
            )
        ) as touched:
            before: dict[str, Row | None] = {
                key: None if row is None else _decode_row(row) for key, row in touched
            }
        history.append(Step(old_version, before, _decode_names(affected)))
    return Table(
        name,
        RowMap(rows),
        version,
        history=tuple(history),
        used_versions=HashTrieSet(used for (used,) in versions),
    )


def _redeclared(connection: sqlite3.Connection, table: Table) -> Redeclared:
    known = dict(connection.execute("select key, digest from declared where table_name = ?", (table.name,)))
    changed = {key: row for key, row in table.rows.items() if known.get(key) != digest_of_rows({key: row})}
    return Redeclared(changed, [key for key in known if key not in table.rows])


def _write_declared(connection: sqlite3.Connection, table: str, redeclared: Redeclared) -> None:
    connection.executemany(
        "insert or replace into declared values (?, ?, ?)",
        [(table, key, digest_of_rows({key: row})) for key, row in redeclared.rows.items()],
    )
    connection.executemany(
        "delete from declared where table_name = ? and key = ?", [(table, key) for key in redeclared.removed]
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


def _write_step(connection: sqlite3.Connection, table: str, number: int, step: Step) -> None:
    connection.execute(
        "insert into steps values (?, ?, ?, ?)",
        (table, number, step.old_version, _encode(step.affected_downstream)),
    )
    touched: Iterator[tuple[Any, ...]] = (
        (table, number, key, None if row is None else _encode(row)) for key, row in step.before.items()
    )
    connection.executemany("insert into step_rows values (?, ?, ?, ?)", touched)
