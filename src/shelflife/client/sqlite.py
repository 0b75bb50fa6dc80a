"""A store in a SQLite file: durable, for several processes at once.

Tags are rows of an index, not sets: putting and dropping an entry costs what that entry has, whatever else is there.
"""

import hashlib
import logging
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from shelflife.client.entries import Entry, Knowledge, Root, Shape
from shelflife.client.stores import MOST_SHAPES, Filed, Known, StoreError, Write, Written
from shelflife.forks import Locking

__all__ = ["SqliteStore"]

_log = logging.getLogger("shelflife.memory")

_APPLICATION_ID = 0x5348_4C4D
_FORMAT = 5
_MOST_NOTED = 256
_MOST_COUNTED = 10_000
_CACHED_KIBIBYTES = 16 * 1024
_CHECKPOINT_PAGES = 4000
"""The log is carried over into the file when it has so many pages: rarely enough that the waits for the disk are spread thin."""

_SCHEMA = f"""
pragma application_id = {_APPLICATION_ID};
pragma user_version = {_FORMAT};
create table roots (root text primary key, revision integer not null, knowledge blob not null) without rowid;
create table shapes (
    root text, operation text, shape blob, primary key (root, operation, shape)
) without rowid;
create table entries (
    number integer primary key, id blob not null unique, place blob not null, slot blob not null,
    used integer not null, tags blob not null, entry blob not null
);
create index entries_by_place on entries (place, slot);
create index entries_by_use on entries (used);
create table tags (tag integer, number integer, primary key (tag, number)) without rowid;
"""

_SIGNS = "select * from pragma_application_id, pragma_user_version, (select count(*) from sqlite_master)"
"""What a file is, of which format, and how much there is in it."""

_FAILURES = (sqlite3.Error, msgspec.MsgspecError, TypeError, ValueError)
"""The latter two where somebody has edited the file, or a text is not Unicode."""

_encode = msgspec.json.Encoder().encode
_decode_entry = msgspec.json.Decoder(Entry).decode
_decode_knowledge = msgspec.json.Decoder(Knowledge).decode
_decode_tags = msgspec.json.Decoder(list[int]).decode
_decode_shape = msgspec.json.Decoder(Shape).decode


class _Seen(msgspec.Struct):
    """What a store has seen of its file, so as not to look again until another process writes."""

    version: int = -1
    known: dict[str, Known] = {}
    shapes: dict[tuple[str, str], tuple[Shape, ...]] = {}
    counts: dict[int | None, int] = {}
    """How many entries bear a tag that somebody has asked about; and under None, how many there are."""

    def count(self, tags: Iterable[int], change: int) -> None:
        """An entry with these tags has come (1) or gone (-1)."""
        for tag in (None, *tags):
            if tag in self.counts:
                self.counts[tag] += change


class _Open(NamedTuple):
    """A connection, whose it is and to which file."""

    connection: sqlite3.Connection
    process: int
    file: tuple[int, int] | None


class _Row(NamedTuple):
    """An entry as it is in the file."""

    number: int
    id: bytes
    used: int
    tags: bytes
    entry: bytes


class SqliteStore(Locking):
    """Entries in a SQLite file.

    A write survives the end of the process at once; with `durable` it also survives that of the machine,
    at the cost of waiting for the disk. The file is opened with the first verb, so that one that cannot be opened is a miss and no reason to stop,
    and anew after a fork or when it was deleted. `read_only` opens a file that is there, at once, to look at it.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        busy_timeout_s: float = 1.0,
        durable: bool = False,
        read_only: bool = False,
    ) -> None:
        super().__init__(threading.RLock)
        self.path = Path(path)
        self._file = self.path.absolute()
        self._reading = _Access(self, "read")
        self._writing = _Access(self, "written")
        self._noted: dict[str, None] = {}
        self._seen = _Seen()
        self._busy_timeout_s = busy_timeout_s
        self._synchronous = "full" if durable else "normal"
        self._is_read_only = read_only
        self._open: _Open | None = None
        self._inherited: list[_Open] = []
        if read_only:
            self.open()

    def open(self) -> None:
        """Open the file now, and not with the first verb."""
        with _Access(self, "opened"):
            self._connection()

    def close(self) -> None:
        """Let go of the file, until the next verb."""
        with self._lock, suppress(sqlite3.Error):
            opened, self._open = self._open, None
            if opened is not None:
                opened.connection.close()

    def known(self, root: Root) -> Known:
        with self._reading:
            known = self._still_seen().known.get(root)
            if known is None:
                row = self._execute("select knowledge, revision from roots where root = ?", root).fetchone()
                known = Known(_decode_knowledge(row[0]), row[1]) if row else Known(Knowledge(), 0)
                self._seen.known[root] = known
            return known

    def shapes(self, root: Root, operation: str) -> tuple[Shape, ...]:
        with self._reading:
            known = self._still_seen().shapes.get((root, operation))
            if known is None:
                statement = "select shape from shapes where root = ? and operation = ?"
                rows = self._execute(statement, root, operation)
                known = self._seen.shapes[root, operation] = tuple(_decode_shape(shape) for (shape,) in rows)
            return known

    def at(self, places: Sequence[str]) -> list[Entry]:
        statement = "select id, entry from entries where place = ?"
        with self._reading:
            rows = [row for place in places for row in self._execute(statement, bytes.fromhex(place))]
            found = [_entry(id, encoded) for id, encoded in rows]
        return sorted(found, key=lambda entry: entry.learned_at) if len(found) > 1 else found

    def tagged(self, root: Root, tag: str) -> list[Entry]:
        with self._reading:
            statement = "select entry from tags join entries using (number) where tag = ?"
            return [_decode_entry(entry) for (entry,) in self._execute(statement, _tag(root, tag))]

    def count(self, root: Root, tag: str) -> int:
        with self._reading:
            number = _tag(root, tag)
            return self._counted(number, "select count(*) from tags where tag = ?", number)

    def write(self, root: Root, revision: int, write: Write) -> Written | None:
        with self._writing, self._in_transaction():
            known = self.known(root)
            if known.revision != revision:
                return None
            # drawn, not counted: a file that was set back to a copy must not come to a revision that somebody has seen
            new_revision = secrets.randbits(62) + 1
            if revision and known.knowledge == write.knowledge:
                self._execute("update roots set revision = ? where root = ?", new_revision, root)
            else:
                values = root, new_revision, _encode(write.knowledge)
                self._execute("insert or replace into roots values (?, ?, ?)", *values)
            self._seen.known[root] = Known(write.knowledge, new_revision)
            written = Written([], [], [])
            for tag in write.drop:
                dropped = self._drop("join tags using (number) where tag = ?", _tag(root, tag))
                written.dropped.extend((entry, tag) for entry in dropped)
            for id in write.drop_ids:
                dropped = self._drop("where id = ?", bytes.fromhex(id))
                written.dropped.extend((entry, id) for entry in dropped)
            if write.put:
                self._note_use()  # before anything comes, which is used later than all that
            for filed in write.put:
                self._put(filed, written)
            if write.capacity is not None:
                excess = self._counted(None, "select count(*) from entries") - write.capacity
                if excess > 0:
                    written.trimmed.extend(self._drop("order by used limit ?", excess))
            return written

    def used(self, ids: Iterable[str]) -> None:
        with self._lock:
            for id in ids:
                self._noted[id] = self._noted.pop(id, None)
            if len(self._noted) >= _MOST_NOTED:
                with suppress(StoreError), self._writing, self._in_transaction():
                    self._note_use()
                self._noted.clear()

    def entries(self) -> Iterator[Entry]:
        statement = "select number, entry from entries where number > ? order by number limit 1000"
        rows: list[tuple[int, bytes]] = [(-1, b"")]  # before the first
        while rows:
            with self._reading:
                rows = self._execute(statement, rows[-1][0]).fetchall()
                entries = [_decode_entry(encoded) for _, encoded in rows]
            yield from entries

    def _put(self, filed: Filed, written: Written) -> None:
        entry, shape = filed.entry, filed.entry.condition.shape
        shapes = self.shapes(entry.root, entry.operation)
        if len(shapes) >= MOST_SHAPES and shape not in shapes:
            return
        id, place, slot = bytes.fromhex(entry.id), bytes.fromhex(entry.place), filed.slot.encode()
        rows = self._rows("where place = ? and slot = ?", place, slot)
        number = used = before = None
        for row, rival in zip(rows, self._remove(rows), strict=True):
            if row.id == id:
                number, used, before = row.number, row.used, rival
                entry = msgspec.structs.replace(entry, learned_at=rival.learned_at)
            else:
                written.dropped.append((rival, ""))
        tags = sorted({_tag(entry.root, tag) for tag in (*filed.tags, _shape_tag(entry.operation, shape))})
        number = self._execute(
            "insert into entries (number, id, place, slot, used, tags, entry) values"
            " (?, ?, ?, ?, coalesce(?, (select coalesce(max(used), 0) + 1 from entries)), ?, ?)",
            *(number, id, place, slot, used, _encode(tags), _encode(entry)),
        ).lastrowid
        self._connection().executemany("insert into tags values (?, ?)", [(tag, number) for tag in tags])
        self._seen.count(tags, 1)
        if shape not in shapes:
            self._execute("insert into shapes values (?, ?, ?)", entry.root, entry.operation, _encode(shape))
            del self._seen.shapes[entry.root, entry.operation]
        if before is None or entry.renews(before):
            written.stored.append(entry)

    def _drop(self, which: str, *values: Any) -> list[Entry]:
        """Remove entries for good: a shape goes with the last that has it."""
        dropped = self._remove(self._rows(which, *values))
        for root, operation, shape in {(one.root, one.operation, one.condition.shape) for one in dropped}:
            if not self.count(root, _shape_tag(operation, shape)):
                statement = "delete from shapes where root = ? and operation = ? and shape = ?"
                self._execute(statement, root, operation, _encode(shape))
                self._seen.shapes.pop((root, operation), None)
        return dropped

    def _counted(self, what: int | None, statement: str, *values: int) -> int:
        counts = self._still_seen().counts
        if what not in counts:
            if len(counts) >= _MOST_COUNTED:
                counts.clear()
            (counts[what],) = self._execute(statement, *values).fetchone()
        return counts[what]

    def _rows(self, which: str, *values: Any) -> list[_Row]:
        statement = f"select number, id, used, tags, entry from entries {which}"  # noqa: S608 - all are literals
        return list(map(_Row._make, self._execute(statement, *values)))

    def _remove(self, rows: Sequence[_Row]) -> list[Entry]:
        """Take entries out. Their tags go in the order of the index, so that neighbours go together."""
        tagged: list[tuple[int, int]] = []
        for row in rows:
            tags = _decode_tags(row.tags)
            tagged += ((tag, row.number) for tag in tags)
            self._seen.count(tags, -1)
        self._connection().executemany("delete from entries where number = ?", [row[:1] for row in rows])
        self._connection().executemany("delete from tags where tag = ? and number = ?", sorted(tagged))
        return [_entry(row.id, row.entry) for row in rows]

    def _still_seen(self) -> _Seen:
        """What was seen of the file: nothing, when another process has written to it since."""
        (version,) = self._execute("pragma data_version").fetchone()
        if version != self._seen.version:
            self._seen = _Seen(version)
        return self._seen

    def _note_use(self) -> None:
        (newest,) = self._execute("select coalesce(max(used), 0) from entries").fetchone()
        used = [(number, bytes.fromhex(id)) for number, id in enumerate(self._noted, newest + 1)]
        self._connection().executemany("update entries set used = ? where id = ?", used)
        self._noted.clear()

    def _execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        return self._connection().execute(statement, values)

    def _connection(self, *, is_to_be_written: bool = False) -> sqlite3.Connection:
        """The open file: opened when it is not, or is another process's, or has been deleted since."""
        opened = self._open
        if opened is not None and opened.process != os.getpid():
            self._inherited.append(opened)  # to close it here could harm the process that it belongs to
            opened = self._open = None
        if opened is not None and is_to_be_written and opened.file != _identity(self._file):
            self.close()
            opened = None
        if opened is None:
            self._seen = _Seen()
            opened = self._open = _Open(self._connect(), os.getpid(), _identity(self._file))
        return opened.connection

    def _connect(self) -> sqlite3.Connection:
        where = f"{self._file.as_uri()}?mode={'ro' if self._is_read_only else 'rwc'}"
        connection = sqlite3.connect(
            where, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False, uri=True
        )
        try:
            connection.execute(f"pragma cache_size = -{_CACHED_KIBIBYTES}")
            if not self._is_read_only:
                connection.execute("pragma journal_mode = wal")
                connection.execute(f"pragma wal_autocheckpoint = {_CHECKPOINT_PAGES}")
                connection.execute(f"pragma synchronous = {self._synchronous}")
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Make the tables. Those of an older version are not carried over: a fix that is lost costs one request."""
        tables: list[Any] = []
        if not self._is_read_only and _is_to_be_made(connection):
            connection.execute("begin immediate")
            with connection:
                if _is_to_be_made(connection):  # processes race for it, and another may have been first
                    older = "select name from sqlite_master where type = 'table'"
                    tables = connection.execute(older).fetchall()
                    for statement in (*(f"drop table {table}" for (table,) in tables), *_SCHEMA.split(";")):
                        connection.execute(statement)
        if tables:
            _log.warning("the memory %s was of an older format and has started anew", self.path)
        application_id, format_version, _ = connection.execute(_SIGNS).fetchone()
        if application_id != _APPLICATION_ID:
            raise StoreError(f"{self.path} is a database, but not a memory")
        if format_version != _FORMAT:
            raise StoreError(
                f"the memory {self.path} has format {format_version}; this version of shelflife reads {_FORMAT}"
            )

    def _in_transaction(self) -> sqlite3.Connection:
        """The open file, as a context that ends the transaction: whole, or with an error not at all."""
        connection = self._connection(is_to_be_written=True)
        connection.execute("begin immediate")
        return connection


class _Access(NamedTuple):
    """The lock of a store, under which what SQLite raises is a `StoreError`. A recall enters it twice, and a generator would cost more."""

    store: SqliteStore
    what: str

    def __enter__(self) -> None:
        self.store._lock.acquire()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.store._seen = _Seen()  # some of it may be of a write that was not carried out
        self.store._lock.release()
        if isinstance(error, _FAILURES):
            raise StoreError(f"the memory {self.store.path} cannot be {self.what}: {error}") from error


def _identity(path: Path) -> tuple[int, int] | None:
    """Tells a file from another that is later in its place; None when there is none."""
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


def _is_to_be_made(connection: sqlite3.Connection) -> bool:
    """Whether there is nothing in a file, or a memory of an older version."""
    application_id, format_version, table_count = connection.execute(_SIGNS).fetchone()
    is_older = application_id == _APPLICATION_ID and 1 <= format_version < _FORMAT
    return is_older or (application_id, table_count) == (0, 0)


def _entry(id: bytes, encoded: bytes) -> Entry:
    entry = _decode_entry(encoded)
    vars(entry)["id"] = id.hex()  # it is asked for next, and costs three digests
    return entry


def _shape_tag(operation: str, shape: Shape) -> str:
    """Counts the entries of a shape, so that it goes with the last of them."""
    return f"shape {operation} {shape}"


@lru_cache(maxsize=4096)
def _tag(root: Root, tag: str) -> int:
    """A tag as a number of 64 bits. Two that met would only drop an entry too many."""
    digest = hashlib.blake2b(f"{root} {tag}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
