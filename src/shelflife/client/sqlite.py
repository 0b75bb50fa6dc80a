"""A store in a SQLite file: durable, for several processes at once.

Tags are rows of an index, not sets: putting and dropping an entry costs what that entry has, whatever else is there.
"""

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from shelflife.client.entries import Entry, Knowledge, Root, Shape
from shelflife.client.stores import Filed, Known, StoreError, Write, Written, revision_after
from shelflife.sqlite_files import Kind, SqliteFile

__all__ = ["SqliteStore"]

_MOST_NOTED = 256
_MOST_COUNTED = 10_000
_MOST_PLACES = 4_096
"""So many are kept with what is there, as it was decoded."""


_SCHEMA = """
create table roots (root text primary key, revision integer not null, knowledge blob not null) without rowid;
create table shapes (
    root text, operation text, shape blob, primary key (root, operation, shape)
) without rowid;
create table entries (
    number integer primary key, id blob not null unique, root integer not null, place blob not null,
    slot blob not null, used integer not null, tags blob not null, entry blob not null
);
create index entries_by_place on entries (place, slot);
create index entries_by_use on entries (root, used);
create table tags (tag integer, number integer, primary key (tag, number)) without rowid;
"""

_KIND = Kind("memory", StoreError, 0x5348_4C4D, 6, _SCHEMA, begins_anew=True)
"""A fix that is lost with an older format costs one request."""

_encode = msgspec.json.Encoder().encode
_decode_entry = msgspec.json.Decoder(Entry).decode
_decode_knowledge = msgspec.json.Decoder(Knowledge).decode
_decode_tags = msgspec.json.Decoder(list[int]).decode
_decode_shape = msgspec.json.Decoder(Shape).decode


class _Seen(msgspec.Struct):
    """What a store has seen of its file, so as not to look again until another process writes."""

    connection: sqlite3.Connection | None = None
    version: int = -1
    known: dict[str, Known] = {}
    shapes: dict[tuple[str, str], tuple[Shape, ...]] = {}
    places: dict[str, tuple[Entry, ...]] = {}
    counts: dict[int, int] = {}
    """How many entries bear a tag that somebody has asked about, or are of a root."""

    def count(self, tags: Iterable[int], change: int) -> None:
        """An entry with these tags has come (1) or gone (-1)."""
        for tag in tags:
            if tag in self.counts:
                self.counts[tag] += change


class _Row(NamedTuple):
    """An entry as it is in the file."""

    number: int
    id: bytes
    place: bytes
    root: int
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
        self._noted: dict[str, None] = {}
        self._seen = _Seen()
        self._is_seen_now = False
        self.brief = _Brief(self)
        """While something is looked at that takes several verbs, and nothing is waited for: it is of one moment, and costs one look at
        whether others have written."""
        if read_only:
            self.open()

    def open(self) -> None:
        """Open the file now, and not with the first verb."""
        self._file.open()

    def close(self) -> None:
        """Let go of the file, until the next verb."""
        self._file.close()

    def known(self, root: Root) -> Known:
        with self._file.reading:
            # here and not in the verbs that follow it: what is known and what is found are to be of one file
            self._file.connection(is_to_be_there=True)
            known = self._still_seen().known.get(root)
            if known is None:
                row = self._execute("select knowledge, revision from roots where root = ?", root).fetchone()
                known = Known(_decode_knowledge(row[0]), row[1]) if row else Known(Knowledge(), 0)
                self._seen.known[root] = known
            return known

    def shapes(self, root: Root, operation: str) -> tuple[Shape, ...]:
        with self._file.reading:
            known = self._still_seen().shapes.get((root, operation))
            if known is None:
                statement = "select shape from shapes where root = ? and operation = ?"
                rows = self._execute(statement, root, operation)
                known = self._seen.shapes[root, operation] = tuple(_decode_shape(shape) for (shape,) in rows)
            return known

    def at(self, root: Root, places: Sequence[str]) -> list[Entry]:
        statement = "select id, entry from entries where place = ?"
        with self._file.reading:
            kept, found = self._still_seen().places, list[Entry]()
            for place in places:
                there = kept.get(place)
                if there is None:
                    rows = self._execute(statement, bytes.fromhex(place))
                    there = tuple(_entry(id, encoded, place) for id, encoded in rows)
                    if len(kept) >= _MOST_PLACES:
                        kept.clear()
                    kept[place] = there
                found += there
        return sorted(found, key=lambda entry: entry.learned_at) if len(found) > 1 else found

    def tagged(self, root: Root, *tags: str) -> list[Entry]:
        statement = "select id, entry from tags join entries using (number) where tag = ?"
        with self._file.reading:
            found = dict(row for tag in tags for row in self._execute(statement, _tag(root, tag)))
            return [_entry(id, encoded) for id, encoded in found.items()]

    def count(self, root: Root, *tags: str) -> int:
        statement = "select count(*) from tags where tag = ?"
        with self._file.reading:
            numbers = [_tag(root, tag) for tag in tags]
            return sum(self._counted(number, statement, number) for number in numbers)

    def write(self, root: Root, revision: int, write: Write) -> Written | None:
        with self._file.reading:
            try:
                with self._file.writing():
                    return self._written(root, revision, write)
            except BaseException:
                self._seen = _Seen()  # some of it may be of this write, which was not carried out
                raise

    def used(self, root: Root, ids: Iterable[str]) -> None:
        with self._file.reading:
            for id in ids:
                self._noted[id] = self._noted.pop(id, None)
            if len(self._noted) >= _MOST_NOTED:
                with suppress(StoreError), self._file.writing():
                    self._note_use()
                self._noted.clear()

    def entries(self) -> Iterator[Entry]:
        statement = "select number, entry from entries where number > ? order by number limit 1000"
        rows: list[tuple[int, bytes]] = [(-1, b"")]  # before the first
        while rows:
            with self._file.reading:
                rows = self._execute(statement, rows[-1][0]).fetchall()
                entries = [_decode_entry(encoded) for _, encoded in rows]
            yield from entries

    def _written(self, root: Root, revision: int, write: Write) -> Written | None:
        known = self.known(root)
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
            number = _tag(root, "")
            held = self._counted(number, "select count(*) from entries where root = ?", number)
            if held > write.capacity:
                which = "where root = ? order by used limit ?"
                written.trimmed.extend(self._drop(which, number, held - write.capacity))
        return written

    def _put(self, filed: Filed, written: Written) -> None:
        entry, shape = filed.entry, filed.entry.condition.shape
        shapes = self.shapes(entry.root, entry.operation)
        id, place, slot = bytes.fromhex(entry.id), bytes.fromhex(entry.place), filed.slot.encode()
        self._seen.places.pop(entry.place, None)
        rows = self._rows("where place = ? and slot = ?", place, slot)
        number = used = before = None
        for row, rival in zip(rows, self._remove(rows), strict=True):
            if row.id == id:
                number, used, before = row.number, row.used, rival
                entry = msgspec.structs.replace(entry, learned_at=rival.learned_at)
            else:
                written.dropped.append((rival, ""))
        root = _tag(entry.root, "")
        tags = sorted({_tag(entry.root, tag) for tag in (*filed.tags, _shape_tag(entry.operation, shape))})
        number = self._execute(
            "insert into entries (number, id, root, place, slot, used, tags, entry) values"
            " (?, ?, ?, ?, ?, coalesce(?, (select coalesce(max(used), 0) + 1 from entries where root = ?)), ?, ?)",
            *(number, id, root, place, slot, used, root, _encode(tags), _encode(entry)),
        ).lastrowid
        self._file.connection().executemany("insert into tags values (?, ?)", [(tag, number) for tag in tags])
        self._seen.count((root, *tags), 1)
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

    def _counted(self, what: int, statement: str, *values: int) -> int:
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
        tagged: list[tuple[int, int]] = []
        for row in rows:
            tags = _decode_tags(row.tags)
            tagged += ((tag, row.number) for tag in tags)
            self._seen.count((row.root, *tags), -1)
            self._seen.places.pop(row.place.hex(), None)
        self._file.connection().executemany("delete from entries where number = ?", [row[:1] for row in rows])
        self._file.connection().executemany("delete from tags where tag = ? and number = ?", sorted(tagged))
        return [_entry(row.id, row.entry, row.place.hex()) for row in rows]

    def _still_seen(self) -> _Seen:
        """What was seen of the file: nothing, when another process has written to it since."""
        connection, seen = self._file.connection(), self._seen
        if self._is_seen_now and connection is seen.connection:
            return seen
        (version,) = connection.execute("pragma data_version").fetchone()
        if version != seen.version or connection is not seen.connection:
            seen = self._seen = _Seen(connection, version)
        self._is_seen_now = self.brief.depth > 0
        return seen

    def _note_use(self) -> None:
        newest = "select max(used) from entries as others where others.root = entries.root"
        statement = f"update entries set used = ({newest}) + 1 where id = ?"  # noqa: S608 - all are literals
        self._file.connection().executemany(statement, [(bytes.fromhex(id),) for id in self._noted])
        self._noted.clear()

    def _execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        return self._file.connection().execute(statement, values)


class _Brief:
    """A moment of a file, in which one thread uses it."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.depth = 0

    def __enter__(self) -> None:
        self._store._file.reading.__enter__()
        self.depth += 1

    def __exit__(self, *error: Any) -> None:
        self.depth -= 1
        self._store._is_seen_now = False
        self._store._file.reading.__exit__(*error)


def _entry(id: bytes, encoded: bytes, place: str | None = None) -> Entry:
    entry = _decode_entry(encoded)
    vars(entry)["id"] = id.hex()  # it is asked for next, and costs three digests
    if place is not None:
        vars(entry)["place"] = place
    return entry


def _shape_tag(operation: str, shape: Shape) -> str:
    """Counts the entries of a shape, so that it goes with the last of them."""
    return f"shape {operation} {shape}"


@lru_cache(maxsize=4096)
def _tag(root: Root, tag: str) -> int:
    """A tag as a number of 64 bits. Two that met would only drop an entry too many."""
    digest = hashlib.blake2b(f"{root} {tag}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
