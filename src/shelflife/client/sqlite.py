"""A store in a SQLite file: durable, for several processes at once.

Tags are rows of an index, not sets: putting and dropping an entry costs what that entry has, whatever else is there. Each row costs a
page of the journal, so a tag that follows from another has none.
"""

import hashlib
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from shelflife.client.asking import Fields
from shelflife.client.entries import Entry, Knowledge, Root, Shape
from shelflife.client.finding import ByShape, Found, holding, place_in, watched_by
from shelflife.client.stores import Filed, Known, StoreError, Write, Written, revision_after
from shelflife.client.strategies import broader
from shelflife.contract.values import is_carried
from shelflife.sqlite_files import Kind, SqliteFile

__all__ = ["SqliteStore"]

_MOST_NOTED = 4_096
_NOTED_AT_ONCE = 256
"""More uses than these are not noted in memory alone: so many, those that were noted first, are written then."""

_MOST_COUNTED = 10_000
_MOST_LOOKS = 4_096
_MOST_BYTES = 8 * 1024 * 1024
"""What so many looks have found is kept as it was decoded, as long as it was no more than this in the file."""


_TAG_SIZE = 8
_LAST = b"\xff" * 64
"""After all that may follow a tag."""

_TAGGED = "where number in (select number from tags where tag between ? and ?)"

_SCHEMA = """
create table roots (root text primary key, revision integer not null, knowledge blob not null) without rowid;
create table shapes (
    root text, operation text, shape blob, held integer not null, primary key (root, operation, shape)
) without rowid;
create table entries (
    number integer primary key, id blob not null unique, root blob not null, place blob not null,
    slot blob not null, used integer not null, tags blob not null, entry blob not null
);
create index entries_by_place on entries (place, slot);
create index entries_by_use on entries (root, used);
create table tags (tag blob, number integer, shared integer not null, primary key (tag, number)) without rowid;
"""

_KIND = Kind("memory", StoreError, 0x5348_4C4D, 7, _SCHEMA, begins_anew=True)
"""A fix that is lost with an older format costs one request."""

_encode = msgspec.json.Encoder().encode
_decode_entry = msgspec.json.Decoder(Entry).decode
_decode_knowledge = msgspec.json.Decoder(Knowledge).decode
_encode_tags = msgspec.msgpack.Encoder().encode
_decode_tags = msgspec.msgpack.Decoder(list[bytes]).decode
_decode_shape = msgspec.json.Decoder(Shape).decode


_Shapes = dict[Shape, ByShape[Found]]
_NOTHING: tuple[Found, ...] = ()


class _Seen(msgspec.Struct):
    """What a store has seen of its file, so as not to look again until another process writes."""

    connection: sqlite3.Connection | None = None
    cursor: Any = None
    version: int = -1
    known: dict[str, Known] = {}
    shapes: dict[tuple[str, str], _Shapes] = {}
    """By root and operation: all shapes that there are, each with what was found by it."""

    look_count: int = 0
    byte_count: int = 0
    counts: dict[bytes, int] = {}
    """How many entries bear a tag that somebody has asked about, or are of a root."""

    def keep(self, by_shape: ByShape[Found], key: bytes, found: tuple[Found, ...], byte_count: int) -> None:
        """This is what there is at a key."""
        self.look_count += 1
        self.byte_count += byte_count
        if self.look_count > _MOST_LOOKS or self.byte_count > _MOST_BYTES:
            self.look_count = self.byte_count = 0
            for shapes in self.shapes.values():
                for one in shapes.values():
                    one.by_key.clear()
        by_shape.by_key[key] = found

    def lose(self, entry: Entry) -> None:
        """An entry has come or gone: what was found at its place is so no longer."""
        by_shape = self.shapes.get((entry.root, entry.operation), {}).get(entry.condition.shape)
        if by_shape is not None:
            by_shape.by_key.pop(by_shape.key_of(entry), None)

    def count(self, root: bytes, tags: Iterable[bytes], change: int) -> None:
        """An entry with these tags has come (1) or gone (-1)."""
        if self.counts:
            for tag in {root, *tags, *_implied(tags)} & self.counts.keys():
                self.counts[tag] += change


class _Row(NamedTuple):
    """An entry as it is in the file."""

    number: int
    id: bytes
    place: bytes
    root: bytes
    used: int
    tags: bytes
    entry: bytes


class SqliteStore:
    """Entries in a SQLite file.

    A write survives the end of the process at once; with `durable` it also survives that of the machine,
    at the cost of waiting for the disk. The file is opened with the first verb, so that one that cannot be opened is a miss and no reason to stop,
    and anew after a fork or when it was deleted or replaced. `read_only` opens a file that is there, at once, to look at it.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        busy_timeout_s: float = 1.0,
        durable: bool = False,
        read_only: bool = False,
    ) -> None:
        """Name the file. It is opened with the first verb.

        - `path`: where the file is, or will be.
        - `busy_timeout_s`: for how long a verb waits for a file that others keep locked.
        - `durable`: a write survives the end of the machine, too. It then waits for the disk.
        - `read_only`: the file is there, and is only looked at.
        """
        self.path = Path(path)
        self._file = SqliteFile(
            path, _KIND, busy_timeout_s=busy_timeout_s, durable=durable, read_only=read_only
        )
        self._noted: dict[str, int] = {}
        """When entries were used, which is not in the file yet."""
        self._latest = 0
        self._seen = _Seen()
        if read_only:
            self.open()

    def open(self) -> None:
        """Open the file now, and not with the first verb."""
        self._file.open()

    def close(self) -> None:
        """Let go of the file, until the next verb."""
        if self._noted:
            with suppress(StoreError), self._file.writing():
                self._write_uses(len(self._noted))
        self._file.close()

    def known(self, root: Root) -> Known:
        with self._file.reading:
            # here and not in the verbs that follow it: what is known and what is found are to be of one file
            return self._known(self._still_seen(is_to_be_there=True), root)

    def shapes(self, root: Root, operation: str) -> tuple[Shape, ...]:
        with self._file.reading:
            return tuple(self._shapes(self._still_seen(), root, operation))

    def find(self, root: Root, operation: str, request: Fields) -> tuple[Known, list[Found]]:
        with self._file.reading:
            seen, there = self._still_seen(is_to_be_there=True), _NOTHING
            known = self._known(seen, root)
            shapes = self._shapes(seen, root, operation)
            if shapes and is_carried(operation, request):
                for one in shapes.values():
                    key = one.key_in(request)
                    found = one.by_key.get(key)
                    if found is None:
                        place = bytes.fromhex(place_in(request, root, operation, one.shape))
                        rows = self._execute(
                            "select id, entry from entries where place = ?", place
                        ).fetchall()
                        found = tuple(_found(id, encoded) for id, encoded in rows)
                        seen.keep(one, key, found, sum(len(encoded) for _, encoded in rows))
                    there += found
            return known, holding(there, request) if there else []

    def at(self, root: Root, places: Sequence[str]) -> list[Entry]:
        statement = "select id, entry from entries where place = ?"
        with self._file.reading:
            found = [
                _entry(id, encoded, place)
                for place in places
                for id, encoded in self._execute(statement, bytes.fromhex(place))
            ]
        return sorted(found, key=lambda entry: entry.learned_at) if len(found) > 1 else found

    def tagged(self, root: Root, *tags: str) -> list[Entry]:
        statement = f"select id, entry from entries {_TAGGED}"  # noqa: S608 - both are literals
        with self._file.reading:
            found = dict(row for tag in tags for row in self._execute(statement, *_span(_path(root, tag))))
            return [_entry(id, encoded) for id, encoded in found.items()]

    def count(self, root: Root, *tags: str) -> int:
        # an entry counts with the first of its tags that are below this one
        statement = "select count(*) from tags where tag between ? and ? and shared < ?"
        with self._file.reading:
            paths = [_path(root, tag) for tag in tags]
            return sum(self._counted(path, statement, *_span(path), len(path)) for path in paths)

    def write(self, root: Root, revision: int, write: Write) -> Written | None:
        with self._file.reading:
            try:
                with self._file.writing():
                    return self._written(root, revision, write)
            except BaseException:
                self._seen = _Seen()  # some of it may be of this write, which was not carried out
                raise

    def used(self, root: Root, ids: Iterable[str]) -> None:
        for id in ids:
            self._noted[id] = self._now()
        if len(self._noted) >= _MOST_NOTED + _NOTED_AT_ONCE:
            with suppress(StoreError), self._file.writing():
                self._write_uses(_NOTED_AT_ONCE)

    def note(self, found: Found) -> None:
        entry = found.entry
        self.used(entry.root, (entry.id,))

    def entries(self) -> Iterator[Entry]:
        statement = "select number, entry from entries where number > ? order by number limit 1000"
        rows: list[tuple[int, bytes]] = [(-1, b"")]  # before the first
        while rows:
            with self._file.reading:
                rows = self._execute(statement, rows[-1][0]).fetchall()
                entries = [_decode_entry(encoded) for _, encoded in rows]
            yield from entries

    def _written(self, root: Root, revision: int, write: Write) -> Written | None:
        known = self._known(self._still_seen(), root)
        if known.revision != revision:
            return None
        new_revision = revision_after(revision)
        if revision and known.knowledge == write.knowledge:
            self._execute("update roots set revision = ? where root = ?", new_revision, root)
        else:
            values = root, new_revision, _encode(write.knowledge)
            self._execute("insert or replace into roots values (?, ?, ?)", *values)
        self._seen.known[root] = Known(write.knowledge, new_revision)
        written = Written([], [], [])
        for tag in write.drop:
            dropped = self._drop(_TAGGED, *_span(_path(root, tag)))
            written.dropped.extend((entry, tag) for entry in dropped)
        for id in write.drop_ids:
            dropped = self._drop("where id = ?", bytes.fromhex(id))
            written.dropped.extend((entry, id) for entry in dropped)
        for filed in write.put:
            self._put(filed, written)
        if write.capacity is not None:
            name = _path(root, "")
            held = self._counted(name, "select count(*) from entries where root = ?", name)
            if held > write.capacity:
                self._write_uses(len(self._noted))
                which = "where root = ? order by used limit ?"
                written.trimmed.extend(self._drop(which, name, held - write.capacity))
        return written

    def _put(self, filed: Filed, written: Written) -> None:
        entry, shape = filed.entry, filed.entry.condition.shape
        shapes = self._shapes(self._seen, entry.root, entry.operation)
        id, place, slot = bytes.fromhex(entry.id), bytes.fromhex(entry.place), filed.slot.encode()
        self._seen.lose(entry)
        rows = self._rows("where place = ? and slot = ?", place, slot)
        number = used = before = None
        for row, rival in zip(rows, self._remove(rows), strict=True):
            if row.id == id:
                number, used, before = row.number, row.used, rival
                entry = msgspec.structs.replace(entry, learned_at=rival.learned_at)
            else:
                written.dropped.append((rival, ""))
        root, tags = _path(entry.root, ""), {_path(entry.root, tag) for tag in filed.tags}
        tags -= _implied(tags)
        number = self._execute(
            "insert into entries (number, id, root, place, slot, used, tags, entry) values"
            " (?, ?, ?, ?, ?, ?, ?, ?)",
            *(number, id, root, place, slot, used or self._now(), _encode_tags(list(tags)), _encode(entry)),
        ).lastrowid
        rows_of_tags = [(tag, number, shared) for tag, shared in _with_shared(sorted(tags))]
        self._file.connection().executemany("insert into tags values (?, ?, ?)", rows_of_tags)
        self._seen.count(root, tags, 1)
        self._execute(
            "insert into shapes values (?, ?, ?, 1) on conflict do update set held = held + 1",
            *(entry.root, entry.operation, _encode(shape)),
        )
        if shape not in shapes:
            shapes[shape] = ByShape(shape)
        if before is None or entry.renews(before):
            written.stored.append(entry)

    def _drop(self, which: str, *values: Any) -> list[Entry]:
        """Remove entries for good: a shape goes with the last that has it."""
        dropped = self._remove(self._rows(which, *values))
        one = "where root = ? and operation = ? and shape = ?"
        for root, operation, shape in {(one.root, one.operation, one.condition.shape) for one in dropped}:
            named = root, operation, _encode(shape)
            if self._execute(f"delete from shapes {one} and held = 0", *named).rowcount:  # noqa: S608
                self._shapes(self._seen, root, operation).pop(shape, None)
        return dropped

    def _counted(self, what: bytes, statement: str, *values: bytes | int) -> int:
        counts = self._still_seen().counts
        if what not in counts:
            if len(counts) >= _MOST_COUNTED:
                counts.clear()
            (counts[what],) = self._execute(statement, *values).fetchone()
        return counts[what]

    def _rows(self, which: str, *values: Any) -> list[_Row]:
        statement = f"select number, id, place, root, used, tags, entry from entries {which}"  # noqa: S608 - all are literals
        return list(map(_Row._make, self._execute(statement, *values)))

    def _remove(self, rows: Sequence[_Row]) -> list[Entry]:
        """Take entries out. Their tags go in the order of the index, so that neighbours go together."""
        if not rows:
            return []
        tagged: list[tuple[bytes, int]] = []
        for row in rows:
            tags = _decode_tags(row.tags)
            tagged += [(tag, row.number) for tag in tags]
            self._seen.count(row.root, tags, -1)
        connection = self._file.connection()
        connection.executemany("delete from entries where number = ?", [row[:1] for row in rows])
        connection.executemany("delete from tags where tag = ? and number = ?", sorted(tagged))
        entries = [_entry(row.id, row.entry, row.place.hex()) for row in rows]
        for entry in entries:
            self._seen.lose(entry)
        left = Counter((entry.root, entry.operation, entry.condition.shape) for entry in entries)
        connection.executemany(
            "update shapes set held = held - ? where root = ? and operation = ? and shape = ?",
            [(count, root, operation, _encode(shape)) for (root, operation, shape), count in left.items()],
        )
        return entries

    def _still_seen(self, *, is_to_be_there: bool = False) -> _Seen:
        """What was seen of the file: nothing, when another process has written to it since, or it is another one."""
        connection, seen = self._file.connection(is_to_be_there=is_to_be_there), self._seen
        if connection is not seen.connection:
            seen = _Seen(connection, connection.cursor())
        (version,) = seen.cursor.execute("pragma data_version").fetchone()
        if version != seen.version:
            seen = self._seen = _Seen(connection, seen.cursor, version)
        return seen

    def _known(self, seen: _Seen, root: Root) -> Known:
        known = seen.known.get(root)
        if known is None:
            row = self._execute("select knowledge, revision from roots where root = ?", root).fetchone()
            known = Known(_decode_knowledge(row[0]), row[1]) if row else Known(Knowledge(), 0)
            seen.known[root] = known
        return known

    def _shapes(self, seen: _Seen, root: Root, operation: str) -> _Shapes:
        shapes = seen.shapes.get((root, operation))
        if shapes is None:
            statement = "select shape from shapes where root = ? and operation = ?"
            found = [_decode_shape(shape) for (shape,) in self._execute(statement, root, operation)]
            shapes = seen.shapes[root, operation] = {shape: ByShape(shape) for shape in found}
        return shapes

    def _write_uses(self, count: int) -> None:
        """Write down uses that were noted. Others may note more meanwhile, and one that is lost does no harm."""
        noted = [(id, self._noted.pop(id)) for id in list(islice(self._noted, count))]
        rows = [(used, bytes.fromhex(id), used) for id, used in noted]
        self._file.connection().executemany("update entries set used = ? where id = ? and used < ?", rows)

    def _now(self) -> int:
        """When something is used: the time, but later than all that was used before it."""
        self._latest = max(self._latest + 1, time.time_ns())
        return self._latest

    def _execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        return self._file.connection().execute(statement, values)


def _entry(id: bytes, encoded: bytes, place: str | None = None) -> Entry:
    entry = _decode_entry(encoded)
    vars(entry)["id"] = id.hex()  # it is asked for next, and costs three digests
    if place is not None:
        vars(entry)["place"] = place
    return entry


def _found(id: bytes, encoded: bytes) -> Found:
    entry = _entry(id, encoded)
    return Found(entry, watched_by(entry))


@lru_cache(maxsize=4096)
def _path(root: Root, tag: str) -> bytes:
    """A tag as 8 bytes below those of the tags that are broader. So it stands for these too: all that is below one begins as it does.

    Two that met would only drop an entry too many.
    """
    above = broader(tag)
    digest = hashlib.blake2b(f"{root} {tag}".encode(), digest_size=_TAG_SIZE).digest()
    return digest if above is None else _path(root, above) + digest


def _implied(tags: Iterable[bytes]) -> set[bytes]:
    """The broader ones of these tags."""
    return {tag[:end] for tag in tags for end in range(_TAG_SIZE, len(tag), _TAG_SIZE)}


def _with_shared(tags: Sequence[bytes]) -> Iterator[tuple[bytes, int]]:
    """Each of these, which are in order, with how much of it is the same as of the one before: so much of it has been counted already."""
    before = b""
    for tag in tags:
        shared = 0
        while tag[shared : shared + _TAG_SIZE] == before[shared : shared + _TAG_SIZE]:
            shared += _TAG_SIZE
        yield tag, shared
        before = tag


def _span(tag: bytes) -> tuple[bytes, bytes]:
    """All tags that are this one, or below it."""
    return tag, tag + _LAST
