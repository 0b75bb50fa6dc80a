"""A log in the tables of a database: what is the same whichever it is.

It holds the state at the end of the log and the latest entries. An entry and what it does to the state are one transaction. Only rows
that change are written, so the work follows the change and not the table. Whoever appends first changes the one row of `log`, and only
as they have found it: so nobody else can append from there, and no number is given twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec

from shelflife.clocks import unsleeping_s
from shelflife.contract import Rule
from shelflife.extras import needing
from shelflife.server.delta import Row
from shelflife.server.errors import LogError
from shelflife.server.log import MOST_ENTRIES, MOST_ROWS, Declared, Entry, Header, entries_since
from shelflife.server.rules import RuleSet
from shelflife.server.state import State, new_log
from shelflife.server.tables import RowMap, Table, is_minted
from shelflife.sqlite_files import Kind

with needing("server", "litestar", "flask", "django", "mcp", "fastmcp"):
    from rpds import HashTrieMap

__all__ = ["KIND", "Connection", "SqlLog", "Tables", "is_in"]

_SCHEMA = """
create table log (
    only_row integer primary key check (only_row = 0), id text not null, number bigint not null, digest text not null,
    rules blob not null, policies blob not null
);
create table entries (number bigint primary key, entry blob not null, size bigint not null);
create table tables (name text primary key, version text not null, content text not null) without rowid;
create table rows (table_name text, key blob, row blob not null, primary key (table_name, key)) without rowid;
create table given_versions (
    table_name text, version text, content text not null, primary key (table_name, version)
) without rowid;
create table declared (name text primary key, digests blob not null) without rowid;
create table workers (id text primary key, number bigint not null, until double precision not null) without rowid;
create table shared (worker text primary key, seen blob not null, until double precision not null) without rowid;
create table counts (name text primary key, value bigint not null) without rowid;
create table headers (number bigint primary key, header blob not null);
"""
KIND = Kind("log", LogError, 0x5348_4C46, 6, _SCHEMA, is_missed=True)

_LONGEST_LEASE_S = 3600.0
"""For no longer than this it is thought of how a clock was before it was put forward."""

_LONGEST_STEP_S = 86_400
"""So far at most a clock is put forward while workers run; what was noted of them is kept for longer than that."""

_ROWS = "select key, row from rows where table_name = ?"
_MADE = "select header from headers order by number"
_GIVEN_VERSIONS = "select version, content from given_versions where table_name = ?"

_encode = msgspec.json.Encoder().encode
_decode_row = msgspec.json.Decoder(dict[str, Any]).decode
_decode_entry = msgspec.json.Decoder(Entry).decode
_decode_header = msgspec.json.Decoder(Header).decode
_decode_rules = msgspec.json.Decoder(tuple[Rule, ...]).decode
_decode_texts = msgspec.json.Decoder(dict[str, str]).decode


class Connection(Protocol):
    """What statements are carried out on."""

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> Any: ...
    def executemany(self, statement: str, values: Iterable[Sequence[Any]], /) -> Any: ...


class Tables(Protocol):
    """Where the tables are."""

    def snapshot(self) -> AbstractContextManager[Connection]: ...
    def writing(self) -> AbstractContextManager[Connection]: ...
    def noting(self) -> AbstractContextManager[Connection]: ...
    def close(self) -> None: ...


class SqlLog:
    """A log in tables. Any number of processes may use it at the same time. How they wait for each other is for a subclass."""

    name = ""
    """What it is called in sentences."""

    now = ""
    """The time of day in seconds, where the tables are: the clocks of workers may differ."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._noted = ""
        """The worker that was noted last."""
        self._offsets: tuple[tuple[float, float], ...] = ()
        """When the clock of the tables was read, by one of ours that never steps, and how far it was ahead of that. Of those that were
        lower than all later ones."""
        self._lease_s = 0.0

    def wait(self, timeout_s: float) -> None:
        """Wait until something may have been appended, or the time is over."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what is open, until the next verb."""
        self._tables.close()

    def renew(self) -> None:
        """Make it another log, which begins with the state that this one has come to."""
        with self._tables.writing() as connection:
            connection.execute("update log set only_row = 0")  # from here on nobody else can append
            connection.execute("update log set id = ?, digest = ?", new_log(*_head_in(connection)))
            connection.execute("delete from entries")

    def open(self, first: State, declared: Declared) -> State:
        with self._beginning() as connection:
            rules, policies = _encode([*first.rules]), _encode(first.policies)
            beginning = first.log_id, first.number, first.digest, rules, policies
            statement = "insert into log values (0, ?, ?, ?, ?, ?) on conflict do nothing"
            if connection.execute(statement, beginning).rowcount:
                for table in first.tables.values():
                    _write_rows(connection, table.name, table.rows)
                    _write_version(connection, table.name, table.version, table.content_name)
                _write_declared(connection, declared)
        with self._tables.snapshot() as connection:
            return _state_in(connection)

    def _beginning(self) -> AbstractContextManager[Connection]:
        return self._tables.writing()

    def append(self, entry: Entry, after: State, declared: Declared) -> bool:
        with self._appending(entry) as connection:
            change = entry.change
            statement = "update log set number = ?, digest = ? where number = ? and digest = ?"
            places = entry.number, entry.digest, entry.number - 1, entry.previous
            if not connection.execute(statement, places).rowcount:
                _head_in(connection)
                return False
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
            _write_header(connection, entry)
            self._tell_all(connection)
            return True

    def _appending(self, entry: Entry) -> AbstractContextManager[Any]:
        return self._tables.writing()

    def _tell_all(self, connection: Any) -> None:
        """Tell whoever waits, where that does not come of itself."""

    def read(self, number: int, digest: str) -> Sequence[Entry] | State:
        with self._tables.snapshot() as connection:
            if _head_in(connection) == (number, digest):
                return ()
            since = entries_since(_entries_in(connection, number), number, digest)
            return _state_in(connection) if since is None else since

    def declared(self) -> Declared:
        with self._tables.snapshot() as connection:
            stored = connection.execute("select name, digests from declared")
            return {name: _decode_texts(digests) for name, digests in stored}

    def note(self, worker: str, number: int, for_s: float) -> None:
        # That a worker is there must outlive a crash. If a later note is lost, it is behind what is true.
        is_known = self._noted == worker
        with self._tables.noting() if is_known else self._tables.writing() as connection:
            connection.execute(
                f"delete from workers where id = ? or until < {self.now} - {_LONGEST_STEP_S}",  # noqa: S608
                (worker,),
            )
            if not for_s:
                return
            until = self._note_for(connection, "workers", "id", "number", (worker, number, for_s))
        self._noted = worker
        self._steady_now(until - for_s, for_s)

    def workers(self) -> Mapping[str, int]:
        with self._tables.snapshot() as connection:
            noted = connection.execute(f"select id, number, until, {self.now} from workers").fetchall()  # noqa: S608
        if not noted:
            return {}
        told = float(noted[0][3])
        now = self._steady_now(told, max(until - told for _, _, until, _ in noted))
        return {id: number for id, number, until, _ in noted if until > now}

    def _steady_now(self, told: float, lease_s: float) -> float:
        """What the clock of the tables, which has just told this, would say if it had not been put forward of late.

        By a clock that steps, a worker would be over that goes on vouching for what it knows. So what was noted before a step is held to
        the clock as it was then, for as long as the longest lease that was seen.
        """
        at = unsleeping_s()
        ahead_s = told - at
        self._lease_s = lease_s = min(max(lease_s, self._lease_s), _LONGEST_LEASE_S)
        lower = (one for one in self._offsets if one[0] > at - lease_s and one[1] < ahead_s)
        self._offsets = (*lower, (at, ahead_s))
        return at + self._offsets[0][1]

    def share(self, worker: str, seen: bytes, for_s: float) -> None:
        with self._tables.noting() as connection:
            connection.execute(f"delete from shared where until < {self.now}")  # noqa: S608
            self._note_for(connection, "shared", "worker", "seen", (worker, seen, for_s))

    def _note_for(self, connection: Any, table: str, key: str, column: str, noted: tuple[Any, ...]) -> float:
        """Note something of a worker for some time; until when, by the clock of the tables."""
        told = connection.execute(
            f"insert into {table} values (?, ?, {self.now} + ?) on conflict ({key})"  # noqa: S608
            f" do update set {column} = excluded.{column}, until = excluded.until returning until",
            noted,
        )
        [(until,)] = told.fetchall()
        return float(until)

    def shared(self, begins: str) -> Mapping[str, bytes]:
        with self._tables.snapshot() as connection:
            stored = connection.execute(
                f"select worker, seen from shared where until > {self.now} and substr(worker, 1, ?) = ?",  # noqa: S608
                (len(begins), begins),
            )
            return {worker: bytes(seen) for worker, seen in stored}

    def count(self, added: Mapping[str, int]) -> None:
        with self._tables.noting() as connection:
            connection.executemany(
                "insert into counts values (?, ?) on conflict (name) do update set value = counts.value + excluded.value",
                sorted(added.items()),  # in one order, so that no two workers wait for each other
            )

    def counted(self) -> Mapping[str, int]:
        with self._tables.snapshot() as connection:
            return dict(connection.execute("select name, value from counts"))


def _head_in(connection: Connection) -> tuple[int, str]:
    head: tuple[int, str] | None = connection.execute("select number, digest from log").fetchone()
    if head is None:
        raise ValueError("it is empty, or was deleted while it was in use")
    return head[0], head[1]


def is_in(connection: Connection, entry: Entry) -> bool:
    """Whether an entry is in the log, when everybody who may have been at it is done."""
    connection.execute("update log set only_row = 0")
    first = _entries_in(connection, entry.number - 1)[:1]
    return _head_in(connection)[1] == entry.digest or any(one.digest == entry.digest for one in first)


def _rules_in(connection: Connection) -> RuleSet:
    return RuleSet(_decode_rules(connection.execute("select rules from log").fetchone()[0]))


def _entries_in(connection: Connection, after: int = 0) -> tuple[Entry, ...]:
    stored = connection.execute("select entry from entries where number > ? order by number", (after,))
    return tuple(_decode_entry(entry) for (entry,) in stored)


def _state_in(connection: Connection) -> State:
    """The state at the end of the log, with the latest entries and the headers of more."""
    head = connection.execute("select id, number, digest, policies from log")
    log_id, number, digest, policies = head.fetchone()
    tables = {
        name: Table(
            name,
            RowMap({key.decode(): _decode_row(row) for key, row in connection.execute(_ROWS, (name,))}),
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
        made=tuple(_decode_header(header) for (header,) in connection.execute(_MADE)),
    )


def _write_rows(
    connection: Connection, table: str, rows: Mapping[str, Row | None] | Mapping[str, Row]
) -> None:
    connection.executemany(
        "insert into rows values (?, ?, ?) on conflict (table_name, key) do update set row = excluded.row",
        ((table, key.encode(), _encode(row)) for key, row in rows.items() if row is not None),
    )
    connection.executemany(
        "delete from rows where table_name = ? and key = ?",
        ((table, key.encode()) for key, row in rows.items() if row is None),
    )


def _write_version(connection: Connection, table: str, version: str, content: str) -> None:
    connection.execute(
        "insert into tables values (?, ?, ?) on conflict (name)"
        " do update set version = excluded.version, content = excluded.content",
        (table, version, content),
    )
    if not is_minted(version):
        statement = "insert into given_versions values (?, ?, ?) on conflict do nothing"
        connection.execute(statement, (table, version, content))


def _write_declared(connection: Connection, declared: Declared) -> None:
    stored = ((name, _encode(digests)) for name, digests in declared.items())
    connection.executemany(
        "insert into declared values (?, ?) on conflict (name) do update set digests = excluded.digests",
        stored,
    )


def _write_entry(connection: Connection, entry: Entry) -> None:
    """Keep an entry, and of those before it the newest that fit the bounds."""
    if entry.change.size > MOST_ROWS:
        connection.execute("delete from entries")
        return
    values = entry.number, _encode(entry), entry.change.size
    connection.execute("insert into entries values (?, ?, ?)", values)
    connection.execute(
        "delete from entries where number <= ? or number <= (select max(number) from"
        " (select number, sum(size) over (order by number desc) as total from entries) as totals where total > ?)",
        (entry.number - MOST_ENTRIES, MOST_ROWS),
    )


def _write_header(connection: Connection, entry: Entry) -> None:
    connection.execute("insert into headers values (?, ?)", (entry.number, _encode(entry.header)))
    connection.execute("delete from headers where number <= ?", (entry.number - MOST_ENTRIES,))
