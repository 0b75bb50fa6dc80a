"""A store in a SQLite file: durable, for several processes at once.

Tags are rows of an index, not sets: putting and dropping an entry costs what that entry has, whatever else is there.
"""

import hashlib
import logging
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import msgspec

from shelflife.client.entries import Entry, Knowledge, Root, Shape
from shelflife.client.stores import MOST_SHAPES, Filed, Known, StoreError, Write, Written

__all__ = ["SqliteStore"]

_log = logging.getLogger("shelflife.memory")

_APPLICATION_ID = 0x5348_4C4D
_FORMAT = 4
_MOST_NOTED = 256
_MOST_COUNTED = 10_000
_CACHED_KIBIBYTES = 16 * 1024
_CHECKPOINT_PAGES = 4000
"""The log is carried over into the file when it has so many pages: rarely enough that the waits for the disk are spread thin."""

_SCHEMA = """
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
    entry_count: int | None = None
    tag_counts: dict[int, int] = {}
    """Of tags that somebody has asked about."""

    def count(self, tags: Iterable[int], change: int) -> None:
        """An entry with these tags has come (1) or gone (-1)."""
        if self.entry_count is not None:
            self.entry_count += change
        for tag in tags:
            if tag in self.tag_counts:
                self.tag_counts[tag] += change


class SqliteStore:
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
        self.path = Path(path)
        self._file = self.path.absolute()
        self._lock = threading.RLock()
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
            row = self._execute("select revision from roots where root = ?", (root,)).fetchone()
            if row is None:
                return Known(Knowledge(), 0)
            known = self._seen.known.get(root)
            if known is None or known.revision != row[0]:
                revision, knowledge = self._execute(
                    "select revision, knowledge from roots where root = ?", (root,)
                ).fetchone()
                known = self._seen.known[root] = Known(_decode_knowledge(knowledge), revision)
            return known

    def shapes(self, root: Root, operation: str) -> tuple[Shape, ...]:
        with self._reading:
            self._look_for_others()
            known = self._seen.shapes.get((root, operation))
            if known is None:
                rows = self._execute(
                    "select shape from shapes where root = ? and operation = ?", (root, operation)
                )
                known = self._seen.shapes[root, operation] = tuple(_decode_shape(shape) for (shape,) in rows)
            return known

    def at(self, places: Sequence[str]) -> list[Entry]:
        found = []
        with self._reading:
            for place in places:
                rows = self._execute("select id, entry from entries where place = ?", (bytes.fromhex(place),))
                for id, encoded in rows:
                    entry = _decode_entry(encoded)
                    vars(entry)["id"] = id.hex()  # it is asked for next, and costs three digests
                    found.append(entry)
        return sorted(found, key=lambda entry: entry.learned_at) if len(found) > 1 else found

    def tagged(self, root: Root, tag: str) -> list[Entry]:
        with self._reading:
            rows = self._execute(
                "select entry from tags join entries using (number) where tag = ?", (_tag(root, tag),)
            )
            return [_decode_entry(entry) for (entry,) in rows]

    def count(self, root: Root, tag: str) -> int:
        with self._reading:
            number = _tag(root, tag)
            self._look_for_others()
            if number not in self._seen.tag_counts:
                if len(self._seen.tag_counts) >= _MOST_COUNTED:
                    self._seen.tag_counts.clear()
                (count,) = self._execute("select count(*) from tags where tag = ?", (number,)).fetchone()
                self._seen.tag_counts[number] = count
            return self._seen.tag_counts[number]

    def write(self, root: Root, revision: int, write: Write) -> Written | None:
        with self._writing, self._transaction():
            if not self._record(root, revision, write.knowledge):
                return None
            written = Written([], [], [])
            for tag in write.drop:
                numbers = self._execute(
                    "select number from tags where tag = ?", (_tag(root, tag),)
                ).fetchall()
                written.dropped.extend((entry, tag) for entry in self._remove(numbers))
            for id in write.drop_ids:
                numbers = self._execute(
                    "select number from entries where id = ?", (bytes.fromhex(id),)
                ).fetchall()
                written.dropped.extend((entry, id) for entry in self._remove(numbers))
            for filed in write.put:
                self._put(filed, written)
            if write.put and write.capacity is not None:
                self._note_use()
                self._trim(write.capacity, written)
            return written

    def used(self, ids: Iterable[str]) -> None:
        with self._lock:
            for id in ids:
                self._noted.pop(id, None)
                self._noted[id] = None
            if len(self._noted) >= _MOST_NOTED:
                with suppress(StoreError), self._writing, self._transaction():
                    self._note_use()
                self._noted.clear()

    def entries(self) -> Iterator[Entry]:
        last = -1
        while True:
            with self._reading:
                rows = self._execute(
                    "select number, entry from entries where number > ? order by number limit 1000", (last,)
                ).fetchall()
                entries = [_decode_entry(entry) for _, entry in rows]
            if not rows:
                return
            yield from entries
            last = rows[-1][0]

    def _record(self, root: Root, revision: int, knowledge: Knowledge) -> bool:
        """Put the knowledge on record; False when the root is not at the revision any more."""
        known = self._seen.known.get(root)
        if known is not None and known == (knowledge, revision):  # only the revision moves
            changed = self._execute(
                "update roots set revision = revision + 1 where root = ? and revision = ?",
                (root, revision),
            )
            if not changed.rowcount:
                return False
        elif self.known(root).revision != revision:
            return False
        else:
            self._execute(
                "insert or replace into roots values (?, ?, ?)", (root, revision + 1, _encode(knowledge))
            )
        self._seen.known[root] = Known(knowledge, revision + 1)
        return True

    def _put(self, filed: Filed, written: Written) -> None:
        entry, shape = filed.entry, filed.entry.condition.shape
        shapes = self.shapes(entry.root, entry.operation)
        if len(shapes) >= MOST_SHAPES and shape not in shapes:
            return
        id, place, slot = map(bytes.fromhex, (entry.id, entry.place, filed.slot))
        rivals = self._execute(
            "select number, id, used from entries where place = ? and slot = ?", (place, slot)
        ).fetchall()
        number = used = before = None
        for rival, gone in zip(rivals, self._remove([row[:1] for row in rivals]), strict=True):
            if rival[1] == id:
                (number, _, used), before = rival, gone
                entry = msgspec.structs.replace(entry, learned_at=gone.learned_at)
            else:
                written.dropped.append((gone, ""))
        tags = sorted({_tag(entry.root, tag) for tag in (*filed.tags, _shape_tag(entry))})
        number = self._execute(
            "insert into entries (number, id, place, slot, used, tags, entry) values"
            " (?, ?, ?, ?, coalesce(?, (select coalesce(max(used), 0) + 1 from entries)), ?, ?)",
            (number, id, place, slot, used, _encode(tags), _encode(entry)),
        ).lastrowid
        self._connection().executemany("insert into tags values (?, ?)", [(tag, number) for tag in tags])
        self._seen.count(tags, 1)
        if shape not in self.shapes(entry.root, entry.operation):
            values = entry.root, entry.operation, _encode(shape)
            self._execute("insert into shapes values (?, ?, ?)", values)
            del self._seen.shapes[entry.root, entry.operation]
        if before is None or (before.is_suspect and not entry.is_suspect):
            written.stored.append(entry)

    def _remove(self, numbers: Sequence[tuple[int]]) -> list[Entry]:
        """Take entries out. Their tags go in the order of the index, so that neighbours go together."""
        if not numbers:
            return []
        removed: list[Entry] = []
        hashed: list[tuple[int, int]] = []
        for (number,) in numbers:
            tags, encoded = self._execute(
                "select tags, entry from entries where number = ?", (number,)
            ).fetchone()
            removed.append(_decode_entry(encoded))
            tags = _decode_tags(tags)
            hashed += ((tag, number) for tag in tags)
            self._seen.count(tags, -1)
        self._connection().executemany("delete from entries where number = ?", numbers)
        self._connection().executemany("delete from tags where tag = ? and number = ?", sorted(hashed))
        for entry in {(one.root, _shape_tag(one)): one for one in removed}.values():
            if not self.count(entry.root, _shape_tag(entry)):
                self._execute(
                    "delete from shapes where root = ? and operation = ? and shape = ?",
                    (entry.root, entry.operation, _encode(entry.condition.shape)),
                )
                self._seen.shapes.pop((entry.root, entry.operation), None)
        return removed

    def _look_for_others(self) -> None:
        """Forget what was seen of the file when another process has written to it."""
        (version,) = self._execute("pragma data_version").fetchone()
        if version != self._seen.version:
            self._seen = _Seen(version)

    def _note_use(self) -> None:
        (newest,) = self._execute("select coalesce(max(used), 0) from entries").fetchone()
        self._connection().executemany(
            "update entries set used = ? where id = ?",
            [(newest + age, bytes.fromhex(id)) for age, id in enumerate(self._noted, start=1)],
        )
        self._noted.clear()

    def _trim(self, capacity: int, written: Written) -> None:
        self._look_for_others()
        if self._seen.entry_count is None:
            (self._seen.entry_count,) = self._execute("select count(*) from entries").fetchone()
        if self._seen.entry_count > capacity:
            numbers = self._execute(
                "select number from entries order by used limit ?", (self._seen.entry_count - capacity,)
            ).fetchall()
            written.trimmed.extend(self._remove(numbers))

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
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
            connection = self._connect()
            opened = self._open = _Open(connection, os.getpid(), _identity(self._file))
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
        (application_id,) = connection.execute("pragma application_id").fetchone()
        if application_id == 0 and not self._is_read_only:
            with _transaction(connection):
                (table_count,) = connection.execute("select count(*) from sqlite_master").fetchone()
                (application_id,) = connection.execute("pragma application_id").fetchone()
                if not table_count:
                    self._make(connection)
                    return
        if application_id != _APPLICATION_ID:
            raise StoreError(f"{self.path} is a database, but not a memory")
        (format_version,) = connection.execute("pragma user_version").fetchone()
        if 1 <= format_version < _FORMAT and not self._is_read_only:
            self._start_anew(connection)
        elif format_version != _FORMAT:
            raise StoreError(
                f"the memory {self.path} has format {format_version}; this version of shelflife reads {_FORMAT}"
            )

    def _start_anew(self, connection: sqlite3.Connection) -> None:
        """What an older version has written is not carried over: a fix that is lost costs one request."""
        with _transaction(connection):
            (format_version,) = connection.execute("pragma user_version").fetchone()
            if format_version == _FORMAT:
                return  # two processes race for it, and the other one was first
            for (table,) in connection.execute(
                "select name from sqlite_master where type = 'table'"
            ).fetchall():
                connection.execute(f"drop table {table}")
            self._make(connection)
        _log.warning("the memory %s was of an older format and has started anew", self.path)

    def _make(self, connection: sqlite3.Connection) -> None:
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"pragma application_id = {_APPLICATION_ID}")
        connection.execute(f"pragma user_version = {_FORMAT}")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with _transaction(self._connection(is_to_be_written=True)) as connection:
                yield connection
        except BaseException:
            self._seen = _Seen()
            raise


class _Access:
    """The lock of a store, under which what SQLite raises is a `StoreError`. A recall enters it twice, and a generator would cost more."""

    def __init__(self, store: SqliteStore, what: str) -> None:
        self._store = store
        self._what = what

    def __enter__(self) -> None:
        self._store._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store._lock.release()
        if isinstance(error, _FAILURES):
            raise StoreError(f"the memory {self._store.path} cannot be {self._what}: {error}") from error


class _Open(NamedTuple):
    """A connection, whose it is and to which file."""

    connection: sqlite3.Connection
    process: int
    file: tuple[int, int] | None


def _identity(path: Path) -> tuple[int, int] | None:
    """Tells a file from another that is later in its place; None when there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("begin immediate")
    try:
        yield connection
        connection.execute("commit")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("rollback")
        raise


def _shape_tag(entry: Entry) -> str:
    """Counts the entries of a shape, so that it goes with the last of them."""
    return f"shape {entry.operation} {entry.condition.shape}"


@lru_cache(maxsize=4096)
def _tag(root: Root, tag: str) -> int:
    """A tag as a number of 64 bits. Two that met would only drop an entry too many."""
    digest = hashlib.blake2b(f"{root} {tag}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
