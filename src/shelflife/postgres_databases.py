"""A schema of our own in a PostgreSQL database: known by its signs, connected to when it is needed, whole or not at all.

A database that does not answer is noticed within seconds, also when the network swallows everything without a word: then nothing is
heard, and neither the system nor PostgreSQL says so. No connection crosses a fork: what the child says would be taken for the parent's.
"""

import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

import msgspec

from shelflife.errors import ShelflifeError
from shelflife.extras import needing
from shelflife.forks import Locking
from shelflife.places import split_address
from shelflife.sqlite_files import Kind

with needing("postgres"):
    import psycopg
    from psycopg import generators
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.errors import error_from_result

__all__ = ["Connection", "Database"]

_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_INSERTED = re.compile(r"values (\([?, ]+\))")
_AT_ONCE = 500
_MOST_CONNECTIONS = 4
_LONGEST_STATEMENT_S = 60
_LONGEST_MAKING_S = 10
"""To make a schema is waited for so much longer: it is done once, and if it never came to its end it would be begun again and again."""

_FAILURES = (psycopg.Error, msgspec.MsgspecError, ShelflifeError, TypeError, ValueError, OSError)
"""All but the first where somebody has edited what is there, or a text is not Unicode."""

_MAKING = 0x5348_4C46
"""The lock under which schemas are made: processes race for it."""

_SETTINGS: dict[str, Any] = {
    "keepalives_idle": 3,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 5000,
    "target_session_attrs": "read-write",
    "application_name": "shelflife",
    "client_encoding": "UTF8",
}
"""Unless the URL says otherwise. Of several hosts, the one counts that can be written to."""

_BEGIN = "begin isolation level read committed, read write"
_OF_ALL = ("08", "53", "57P", "58")
"""How the codes of errors begin that are about more than what was asked: the connection, the room, the server and its disk."""

_OUTLIVED = ("3F000", "42P01", "42703", "42883", "25006")
"""Errors by which a connection has outlived what was found when it was made: the schema, what is in it, or a database that can be written."""

_HAS_ROWS = psycopg.pq.ExecStatus.TUPLES_OK
_IN_NO_TRANSACTION = psycopg.pq.TransactionStatus.IDLE
_AT_WORK = psycopg.pq.TransactionStatus.ACTIVE
_UNKNOWN = psycopg.pq.TransactionStatus.UNKNOWN
_log = logging.getLogger("shelflife")

Outcome = TypeVar("Outcome")

_orphans: list[Any] = []
"""Connections of the parent, in a child: they are kept so that nothing ever ends them."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose statements have `?` where a value goes, as SQLite's do."""

    longest_connecting_s = math.inf
    """So long at most to one address. The driver's own bound is two seconds, or more."""
    longest_silence_s = 3.0
    until: float | None = None
    """When all that is done just now is given up, by the monotonic clock; None where only silence counts."""
    is_to_begin = False
    """Whether a statement alone would be isolated otherwise than is relied on, as some roles have it. A setting of the connection would not
    do: behind a pooler others have it next."""

    is_let_go = False
    """Whether the database was closed while this was opened or in use: then it ends when it is put back."""

    @classmethod
    def _connect_gen(cls, *given: Any, **named: Any) -> Any:
        """As the driver connects to one address, within that time. Were this not called, its own bound would be left."""
        until = time.monotonic() + cls.longest_connecting_s
        try:
            return (yield from _bounded(super()._connect_gen(*given, **named), 0, until))
        except TimeoutError:
            raise psycopg.errors.ConnectionTimeout("connection timeout expired") from None

    def execute(  # type: ignore[override]
        self, statement: str, values: Sequence[Any] = ()
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        """Carry out a statement."""
        return super().execute(_translated(statement), values or None)

    def executemany(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Carry out a statement for each of these. Of rows that are inserted many go at once: else each would take a turn."""
        some = list(values)
        if some and (row := _INSERTED.search(statement)):
            before, after = statement[: row.start()], statement[row.end() :]
            for first in range(0, len(some), _AT_ONCE):
                part = some[first : first + _AT_ONCE]
                rows = ", ".join([row[1]] * len(part))
                self.execute(f"{before}values {rows}{after}", [value for one in part for value in one])
        elif some:
            with self.cursor() as cursor:
                cursor.executemany(_translated(statement), some)

    def told(self, statement: str, values: Sequence[str | bytes | None]) -> list[tuple[Any, ...]]:
        """What a statement gives, both as PostgreSQL writes them: what the driver does for any type takes longer than the database does."""
        if self.is_to_begin and self.info.transaction_status == _IN_NO_TRANSACTION:
            with self.transaction():
                self.execute("set transaction isolation level read committed")
                return self.told(statement, values)
        written = [value.encode() if isinstance(value, str) else value for value in values]
        with self.lock:
            self.pgconn.send_query_params(statement.encode(), written)
            result = self.wait(generators.execute(self.pgconn))[-1]
        if result.status != _HAS_ROWS:
            raise error_from_result(result)
        columns = range(result.nfields)
        return [tuple(result.get_value(row, column) for column in columns) for row in range(result.ntuples)]

    def wait(self, gen: Any, *times: Any, **bounds: Any) -> Any:
        """Wait for the database, but not for ever."""
        return super().wait(_bounded(gen, self.longest_silence_s, self.until), *times, **bounds)


@cache
def _within(longest_s: float) -> type[Connection]:
    """Connections that are to be there within this time."""
    return type("Connection", (Connection,), {"longest_connecting_s": longest_s})


def _translated(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()


def _is_lost(connection: Connection, error: BaseException) -> bool:
    """Whether a connection is of no use any more: it has ended, nothing was heard for too long, somebody was called away from it, or what was
    found when it was made is not so any more."""
    is_at_work = connection.info.transaction_status in (_AT_WORK, _UNKNOWN)
    return connection.closed or is_at_work or isinstance(error, TimeoutError) or _is_outlived(error)


def _is_outlived(error: BaseException) -> bool:
    return isinstance(error, psycopg.Error) and error.sqlstate in _OUTLIVED


def _is_away(error: Exception) -> bool:
    """Whether the database does not answer, or cannot do anything for anybody. A lock of somebody else's is not that, nor a deadlock."""
    if isinstance(error, psycopg.OperationalError):
        return error.sqlstate is None or error.sqlstate.startswith(_OF_ALL)
    return isinstance(error, psycopg.InterfaceError | OSError)


def _bounded(
    steps: Generator[Any, Any, Any], longest_silence_s: float, until: float | None
) -> Generator[Any, Any, Any]:
    """The steps of a conversation, until a moment; else until nothing was heard or could be said for so long."""
    given_up_at = time.monotonic() + longest_silence_s if until is None else until
    try:
        wanted = next(steps)
        while True:
            ready = yield wanted
            if ready and until is None:
                given_up_at = time.monotonic() + longest_silence_s
            elif time.monotonic() > given_up_at:
                how = f"for {longest_silence_s:g} s" if until is None else "in time"
                raise TimeoutError(f"it has not answered {how}")
            wanted = steps.send(ready)
    except StopIteration as end:
        return end.value


class Database(Locking):
    """One schema of a database, for any number of threads.

    The schema is that of the URL, as in `postgresql://host/name?schema=shop`, and is made when it is not there, unless it is only to be read.
    """

    def __init__(
        self,
        url: str,
        kind: Kind,
        *,
        schema: str = "shelflife",
        longest_silence_s: float = 3.0,
        read_only: bool = False,
    ) -> None:
        self.kind = kind
        self._is_read_only = read_only
        self._longest_silence_s = longest_silence_s
        settings, self.schema = _settings_in(url, kind, schema)
        connecting_s = max(2, math.ceil(longest_silence_s))
        self._settings = {"connect_timeout": connecting_s, **settings}
        host_count = 1 + max(str(settings.get(part) or "").count(",") for part in ("host", "hostaddr"))
        # All hosts together are waited for no longer than one, unless the URL says how long each is.
        self._connection_type = _within(
            math.inf if "connect_timeout" in settings else connecting_s / host_count
        )
        host, port, name = (self._settings.get(part) for part in ("host", "port", "dbname"))
        where = f"{quote(str(host or 'localhost'))}{f':{port}' if port else ''}/{quote(str(name or ''))}"
        self.name = f"postgresql://{where}?schema={self.schema}"
        """What it is called in sentences, without whoever uses it and how they prove that."""
        lock_ms, idle_ms = (int(longest_silence_s * part * 1000) for part in (0.8, 0.6))
        # They are set for each transaction: behind a pooler a connection may be another one the next time. A lock is waited for
        # longer than one that has fallen silent in the middle may keep it.
        self._bounds = (
            f'set local search_path = "{self.schema}"; set local lock_timeout = {lock_ms};'
            f" set local idle_in_transaction_session_timeout = {idle_ms};"
            f" set local statement_timeout = {_LONGEST_STATEMENT_S * 1000}"
        )
        self._idle: list[Connection] = []
        self._opened: set[Connection] = set()
        self._listening: tuple[Connection, int] | None = None
        self._losses = 0
        """How often a connection was lost: those that were opened before may be lost as well."""
        self._closed_count = 0
        """How often all were let go of: those that are just being opened then are let go of as well."""
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__()

    def after_fork_in_child(self) -> None:
        super().after_fork_in_child()
        for connection in self._opened:
            with suppress(psycopg.Error, OSError):
                os.close(connection.fileno())  # not ended, for it is the parent's
        _orphans.extend(self._opened)
        self._idle, self._opened, self._listening = [], set(), None
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)

    def open(self) -> None:
        """Connect now, and make what is not there."""
        with self._failing("opened"):
            self._put_back(self._begun("begin"))

    def close(self) -> None:
        """Let go of what is open, until the next use."""
        with self._lock:
            self._closed_count += 1
            idle, self._idle = self._idle, []
            listening, self._listening = self._listening, None
            for connection in self._opened:
                connection.is_let_go = True
        for connection in (*idle, *([listening[0]] if listening else ())):
            self.end(connection)

    def once(
        self,
        statement: str,
        values: Sequence[str | bytes | None] = (),
        *,
        done: str = "read",
        until: float | None = None,
    ) -> list[tuple[Any, ...]]:
        """What one statement gives, in one round trip. It is a transaction of its own, and names the schema where it names a table.

        One that was given to a connection which had ended, or before the schema went, is given to another: so it must do no harm if it is carried out twice. What has
        not come whole until a moment of the monotonic clock is given up, however much of it has.
        """
        with self._failing(done):
            connection, told = self._over_one(lambda one: one.told(statement, values), until)
            self._put_back(connection)
            return told

    def listening(self, *channels: str) -> Connection:
        """A connection of one's own that is told what is said on these channels. Whoever has it ends it."""
        with self._failing("read"):
            connection = self._connected()
            try:
                connection.execute("; ".join(f'listen "{channel}"' for channel in channels))
            except BaseException:
                self.end(connection)
                raise
            return connection

    def snapshot(self) -> AbstractContextManager[Connection]:
        """What there is at one moment, to read more than once."""
        return self._transaction("read", "begin isolation level repeatable read, read only")

    def writing(
        self, is_done: Callable[[Connection], bool] | None = None, *, patient: bool = False
    ) -> AbstractContextManager[Connection]:
        """A transaction that is carried out whole, or with an error not at all. A `patient` one waits for others for a minute.

        When the connection is lost while it is concluded, nobody can tell. Then `is_done` may look, in another transaction; it must
        wait for whoever may still be at it. Others may write at the same time, unless the first thing that is done keeps them out.
        """
        return self._transaction("written", _BEGIN, is_done, patient=patient)

    def noting(self, until: float | None = None) -> AbstractContextManager[Connection]:
        """As `writing`, for what need not survive a crash: the disk is not waited for. It may be given up at a moment, as in `once`."""
        return self._transaction("written", f"{_BEGIN}; set local synchronous_commit = off", until=until)

    def tell_all(self, connection: Connection) -> None:
        """Have whoever waits told, when this transaction is carried out."""
        connection.execute("select pg_notify(?, '')", (self._channel,))

    def wait(self, timeout_s: float) -> None:
        """Wait until somebody may have told all, or the time is over; in one thread at a time."""
        with self._failing("read"):
            if self._listening is not None and self._listening[1] != self._losses:
                self.end(self._listening[0])
                self._listening = None
            if self._listening is None:
                losses = self._losses
                self._listening = self.listening(self._channel), losses
                return  # something may have been told before
            try:
                for _ in self._listening[0].notifies(timeout=timeout_s, stop_after=1):
                    pass
            except BaseException:
                self._lose(self._listening[0])
                raise

    @property
    def _channel(self) -> str:
        return f"shelflife {self.schema}"

    @contextmanager
    def _transaction(
        self,
        what: str,
        begin: str,
        is_done: Callable[[Connection], bool] | None = None,
        *,
        patient: bool = False,
        until: float | None = None,
    ) -> Iterator[Connection]:
        with self._failing(what):
            connection, is_concluded = self._begun(f"{begin}; {self._bounds}", until), False
            try:
                if patient:
                    connection.execute("set local lock_timeout = 0")
                    connection.longest_silence_s = _LONGEST_STATEMENT_S
                yield connection
                is_concluded = True
                connection.execute("commit")
            except BaseException as error:
                is_lost = _is_lost(connection, error)
                self._put_back(connection, is_lost=is_lost)
                if is_done is None or not (is_lost and is_concluded) or not self._is_done(is_done, error):
                    raise
            else:
                self._put_back(connection)

    def _is_done(self, is_done: Callable[[Connection], bool], error: BaseException) -> bool:
        try:
            with self.writing() as connection:
                return is_done(connection)
        except self.kind.error:
            raise psycopg.OperationalError(f"{error}; whether it was all the same is not known") from None

    def _begun(self, begin: str, until: float | None = None) -> Connection:
        """A connection in a transaction."""
        return self._over_one(lambda one: one.execute(begin), until)[0]

    def _over_one(
        self, act: Callable[[Connection], Outcome], until: float | None = None
    ) -> tuple[Connection, Outcome]:
        """A connection, and what is done over it. That one was ended while it was idle is no reason to fail."""
        longest_s = self._longest_silence_s if until is None else max(until - time.monotonic(), 0.0)
        if not self._free.acquire(timeout=longest_s):
            busy = ShelflifeError(f"all {_MOST_CONNECTIONS} connections have been in use for too long")
            busy.is_untried = True
            raise busy
        try:
            with self._lock:
                idle = self._idle.pop() if self._idle else None
            if idle is not None:
                try:
                    idle.until = until
                    return idle, act(idle)
                except BaseException as error:
                    if not _is_lost(idle, error):
                        if not self._keep(idle):
                            self.end(idle)
                        raise
                    self._lose(idle)
                    if not (isinstance(error, psycopg.OperationalError) or _is_outlived(error)):
                        raise
            connection = self._connected(until)
            try:
                return connection, act(connection)
            except BaseException:
                self.end(connection)
                raise
        except BaseException:
            self._free.release()
            raise

    def _put_back(self, connection: Connection, *, is_lost: bool = False) -> None:
        """One that is lost, or left in the middle of something, is not used again."""
        connection.longest_silence_s, connection.until = self._longest_silence_s, None
        try:
            if not is_lost and connection.info.transaction_status != _IN_NO_TRANSACTION:
                connection.execute("rollback")
        except (psycopg.Error, TimeoutError):
            is_lost = True
        if is_lost:
            self._lose(connection)
        elif not self._keep(connection):
            self.end(connection)
        self._free.release()

    def _keep(self, connection: Connection) -> bool:
        """Keep a connection for the next use, unless all were let go of meanwhile. Tells whether it is kept."""
        with self._lock:
            if not connection.is_let_go:
                self._idle.append(connection)
        return not connection.is_let_go

    def _lose(self, connection: Connection) -> None:
        """With one connection the others may be lost too."""
        with self._lock:
            self._losses += 1
            idle, self._idle = self._idle, []
        for one in (connection, *idle):
            self.end(one)

    def end(self, connection: Connection) -> None:
        """Close a connection, and think of it no more."""
        with self._lock:
            self._opened.discard(connection)
        with suppress(psycopg.Error, OSError):
            connection.close()

    def _connected(self, until: float | None = None) -> Connection:
        closed_count = self._closed_count
        connection = self._connection_type.connect(**self._settings, autocommit=True, prepare_threshold=None)
        connection.longest_silence_s = self._longest_silence_s
        if until is not None:  # to connect has a bound of its own, which may have taken all of it
            connection.until = max(until, time.monotonic() + self._longest_silence_s)
        with self._lock:
            self._opened.add(connection)
            connection.is_let_go = self._closed_count > closed_count
        try:
            self._check(connection)
        except BaseException:
            self.end(connection)
            raise
        return connection

    def _check(self, connection: Connection) -> None:
        """See whether the schema is of this kind. One that is not there, or is to begin anew, is made."""
        found = self._signs_in(connection)
        if found != self._signs and not self._is_read_only:
            found = self._made(connection)
        if found is None:
            raise self.kind.error(f"there is no {self.kind.name} {self.name}")
        if found[0] != self.kind.application_id:
            raise self.kind.error(f"{self.name} is in use, but not as a {self.kind.name}")
        if found != self._signs:
            raise self.kind.error(
                f"the {self.kind.name} {self.name} has format {found[1]}; this version of shelflife reads {self.kind.format}"
            )

    def _made(self, connection: Connection) -> tuple[int, int]:
        """What the schema is, made where it can be."""
        if connection.until is not None:
            connection.until += _LONGEST_MAKING_S
        connection.execute(f"{_BEGIN}; {self._bounds}; select pg_advisory_xact_lock({_MAKING})")
        found = self._signs_in(connection)  # others may have been faster
        if found is None or self._is_older(found):
            if found is not None:
                _log.warning(
                    "the %s %s was of an older format and has started anew", self.kind.name, self.name
                )
                connection.execute(f'drop schema "{self.schema}" cascade')
            [(is_there,)] = connection.execute("select to_regnamespace(?) is not null", (f'"{self.schema}"',))
            if not is_there:
                connection.execute(f'create schema "{self.schema}"')
            connection.execute(self.kind.schema)
            connection.execute("create table signs (application_id bigint not null, format integer not null)")
            connection.execute("insert into signs values (?, ?)", self._signs)
            found = self._signs
        connection.execute("commit")
        return found

    @property
    def _signs(self) -> tuple[int, int]:
        return self.kind.application_id, self.kind.format

    def _is_older(self, found: tuple[int, int]) -> bool:
        return self.kind.begins_anew and found[0] == self._signs[0] and 1 <= found[1] < self._signs[1]

    def _signs_in(self, connection: Connection) -> tuple[int, int] | None:
        """What the schema is for, and its format; None when there is nothing in it."""
        tables = (
            "select relname::text from pg_class where relnamespace = to_regnamespace(?) and relkind = 'r'"
        )
        asked = f"select array({tables}), current_setting('default_transaction_isolation')"
        [(names, isolation)] = connection.execute(asked, (f'"{self.schema}"',))
        connection.is_to_begin = isolation != "read committed"
        if "signs" not in names:
            return (0, 0) if names else None
        found = connection.execute(f'select application_id, format from "{self.schema}".signs').fetchone()  # noqa: S608
        return (found[0], found[1]) if found else (0, 0)

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        """What goes wrong in the block is an error of this kind, in one sentence."""
        try:
            yield
        except _FAILURES as error:
            if isinstance(error, self.kind.error):
                raise
            reason = " ".join(str(error).split()) or type(error).__name__
            if password := self._settings.get("password"):
                reason = reason.replace(str(password), "…")
            failure = self.kind.error(f"the {self.kind.name} {self.name} cannot be {what}: {reason}")
            failure.is_away, failure.is_untried = _is_away(error), getattr(error, "is_untried", False)
            raise failure from None


def _settings_in(url: str, kind: Kind, schema: str) -> tuple[dict[str, Any], str]:
    """How to connect, and to which schema."""
    try:
        address = split_address(url)
        query = dict(parse_qsl(address.query, keep_blank_values=True))
        schema = query.pop("schema", schema)
        settings = conninfo_to_dict(address._replace(query=urlencode(query)).geturl())
    except (ValueError, psycopg.Error):
        raise kind.error(
            f"the address of the {kind.name} cannot be read; give one as in postgresql://user@host/database, and in a"
            " password %40 for @"
        ) from None
    if not _SCHEMA_NAME.fullmatch(schema):
        raise kind.error(
            f"a schema is called by at most 48 of a-z, 0-9 and _, the first no digit, not {schema!a}"
        )
    return {**_SETTINGS, **settings}, schema
