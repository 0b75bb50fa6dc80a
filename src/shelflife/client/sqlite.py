"""A store in a SQLite file: durable, for several processes at once.

Tags are rows of an index, not sets: putting and dropping an entry costs what that entry has, whatever else is there. Each row costs a
page of the journal, so a tag that follows from another has none, and no index leads from an id to its entry.

What is dropped is put down as gone, which is a few bytes for each, and is found by nobody from then on. To take it out of the tree and
the index costs many times as much. It stays as long as it is less than an eighth of what is held, and is then taken out as others come:
two for each. So the file never grows for it.
"""

# ruff: noqa: S608 - all statements are made of literals

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
from shelflife.client.circuit import Circuit
from shelflife.client.diary import Diary
from shelflife.client.entries import Entry, Knowledge, Root, Shape
from shelflife.client.finding import ByShape, Found, holding, place_in, watched_by
from shelflife.client.pauses import Pauses
from shelflife.client.sqlite_diary import SqliteDiary
from shelflife.client.sqlite_seen import UNTALLIED, OfRoot, Row, Seen, Shapes
from shelflife.client.stores import Filed, Known, StoreError, Write, Written, revision_after
from shelflife.client.strategies import broader
from shelflife.contract.values import is_carried
from shelflife.sqlite_files import Kind, SqliteFile

__all__ = ["SqliteStore"]

_MOST_NOTED = 4_096
_NOTED_AT_ONCE = 256
"""More uses than these are not noted in memory alone: so many, those that were noted first, are written then."""

_MOST_COUNTED = 10_000
_MOST_PLACED = 16_384
_TRIMMED_BEFORE = 16
_ALWAYS_GONE = 1_024
"""So many that have gone may stay in the file, however little is held."""

_PAUSES = Pauses(1.0, 3.0)
"""So long a file that could not be written is not tried again."""

_TAG_SIZE = 8
_MOST_TALLIED = 2 * _TAG_SIZE
"""So long are the paths of tables, of rules and of policies. What bears one may be most of the file, so it is written down how much it is."""

_LAST = b"\xff" * 64
"""After all that may follow a tag."""

_SCHEMA = """
create table roots (
    number integer primary key, root text not null, revision integer not null, knowledge_at integer not null, shapes_at integer not null,
    entries_at integer not null, held integer not null, gone integer not null, tallies blob not null
);
create table knowledge (number integer primary key, knowledge blob not null);
create table shapes (
    root text, operation text, shape blob, held integer not null, primary key (root, operation, shape)
) without rowid;
create table entries (
    number integer primary key, id blob not null, root blob not null, place blob not null, slot blob not null,
    used integer not null, tags blob not null, entry blob not null
);
create index entries_by_place on entries (place);
create index entries_by_use on entries (root, used);
create table tags (tag blob, number integer, shared integer not null, primary key (tag, number)) without rowid;
create table gone (root blob, number integer, primary key (root, number)) without rowid;
"""

_KIND = Kind("memory", StoreError, 0x5348_4C4D, 8, _SCHEMA, begins_anew=True)
"""A fix that is lost with an older format costs one request."""

_MORE = "insert into shapes values (?, ?, ?, ?) on conflict do update set held = held + excluded.held"
_KNOW = "insert or replace into knowledge values (?, ?)"
_PUT_DOWN = "insert or replace into roots values (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT = "insert into entries values (?, ?, ?, ?, ?, ?, ?, ?)"
_ROOT = "select revision, knowledge_at, shapes_at, entries_at, held, gone, tallies from roots where number = ? and root = ?"
_THERE = "not exists (select 1 from gone where gone.root = entries.root and gone.number = entries.number)"
_TAGGED = f"where number in (select number from tags where tag between ? and ?) and {_THERE}"
_AT_ALL = "select id, entry from entries where place = ?"
_AT = f"{_AT_ALL} and {_THERE}"

_encode = msgspec.json.Encoder().encode
_decode_entry = msgspec.json.Decoder(Entry).decode
_decode_knowledge = msgspec.json.Decoder(Knowledge).decode
_encode_tags = msgspec.msgpack.Encoder().encode
_decode_tags = msgspec.msgpack.Decoder(list[bytes]).decode
_decode_shape = msgspec.json.Decoder(Shape).decode


class _Row(NamedTuple):
    """An entry as it is in the file."""

    number: int
    id: bytes
    place: bytes
    used: int
    tags: bytes
    entry: bytes


class _Change:
    """What a write has changed of its root so far."""

    def __init__(self, root: Root, of: OfRoot) -> None:
        self.root = root
        self.of = of
        self.name = _path(root, "")
        self.held_count = of.row.held_count
        self.gone_count = of.row.gone_count
        self.by_shape: Counter[tuple[str, Shape]] = Counter()
        """By operation and shape: how many more there are of it."""
        self.are_shapes_moved = self.are_entries_moved = False

    def note(self, entry: Entry, tags: Iterable[bytes], count: int) -> None:
        """An entry with these tags has come (1) or gone (-1)."""
        self.are_entries_moved = True
        self.held_count += count
        shape = entry.condition.shape
        self.by_shape[entry.operation, shape] += count
        tallies = self.of.tallied()
        is_of_all = UNTALLIED not in tallies
        for tag in {tag[:end] for tag in tags for end in (_TAG_SIZE, _MOST_TALLIED)}:
            if is_of_all or tag in tallies:
                tallies[tag] = tallies.get(tag, 0) + count
        self.of.lose(entry, shape)
        if self.of.counts:
            self.of.count({*tags, *_implied(tags)}, count)


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
        self.diary: Diary | None = SqliteDiary(path, read_only=read_only)
        """What a memory has done with it, in a file beside."""
        self._noted: dict[str, int] = {}
        """When entries were used, which is not in the file yet."""
        self._placed: dict[str, bytes] = {}
        """By the ids of entries that were looked at last: their places."""
        self._placed_before: dict[str, bytes] = {}
        self._latest = 0
        self._seen = Seen()
        self._circuit = Circuit(_PAUSES)
        """For writes: they may have to wait for others. Whoever reads waits for nobody."""
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
            return self._of(self._still_seen(is_to_be_there=True), root).known

    def shapes(self, root: Root, operation: str) -> tuple[Shape, ...]:
        with self._file.reading:
            return tuple(self._shapes(self._of(self._still_seen(), root), root, operation))

    def find(self, root: Root, operation: str, request: Fields) -> tuple[Known, list[Found]]:
        with self._file.reading:
            seen = self._still_seen(is_to_be_there=True)
            of = seen.roots.get(root)
            if of is None or of.version != seen.version:
                of = self._of(seen, root)
            shapes = of.shapes.get(operation)
            if shapes is None:
                shapes = self._shapes(of, root, operation)
            there: tuple[Found, ...] = ()
            if shapes and is_carried(operation, request):
                for one in shapes.values():
                    key = one.key_in(request)
                    found = one.by_key.get(key)
                    if found is None:
                        place = bytes.fromhex(place_in(request, root, operation, one.shape))
                        statement = _AT if of.row.gone_count else _AT_ALL
                        rows = seen.cursor.execute(statement, (place,)).fetchall()
                        found = tuple([_found(place, *row) for row in rows])
                        seen.keep(one, key, found, sum([len(row[1]) for row in rows]))
                    there += found
            return of.known, holding(there, request) if there else []

    def at(self, root: Root, places: Sequence[str]) -> list[Entry]:
        with self._file.reading:
            found = [
                self._entry(place, *row)
                for place in map(bytes.fromhex, places)
                for row in self._execute(_AT, place)
            ]
        return sorted(found, key=lambda entry: entry.learned_at) if len(found) > 1 else found

    def tagged(self, root: Root, *tags: str) -> list[Entry]:
        statement = f"select place, id, entry from entries {_TAGGED}"
        with self._file.reading:
            rows = [row for tag in tags for row in self._execute(statement, *_span(_path(root, tag)))]
            return [self._entry(*row) for row in {row[1]: row for row in rows}.values()]

    def count(self, root: Root, *tags: str) -> int:
        with self._file.reading:
            of = self._of(self._still_seen(), root)
            return sum([self._counted(of, root, _path(root, tag)) for tag in tags])

    def write(self, root: Root, revision: int, write: Write) -> Written | None:
        with self._circuit.trying(), self._file.reading:
            try:
                with self._file.writing():
                    return self._written(root, revision, write)
            except BaseException:
                self._seen = Seen()  # some of it may be of this write, which was not carried out
                raise

    def used(self, root: Root, ids: Iterable[str]) -> None:
        for id in ids:
            self._noted[id] = self._now()
        if len(self._noted) >= _MOST_NOTED + _NOTED_AT_ONCE:
            with suppress(StoreError), self._circuit.trying(), self._file.writing():
                self._write_uses(_NOTED_AT_ONCE)

    def note(self, found: Found) -> None:
        entry = found.entry
        if entry.id not in self._placed:  # it was looked at long ago
            self._place(entry.id, bytes.fromhex(entry.place))
        self.used(entry.root, (entry.id,))

    def roots(self) -> list[Root]:
        with self._file.reading:
            return [root for (root,) in self._execute("select root from roots order by root")]

    def entries(self) -> Iterator[Entry]:
        some = f"where number > ? and {_THERE} order by number limit 1000"
        statement = f"select number, place, id, entry from entries {some}"
        rows: list[tuple[int, bytes, bytes, bytes]] = [(-1, b"", b"", b"")]  # before the first
        while rows:
            with self._file.reading:
                rows = self._execute(statement, rows[-1][0]).fetchall()
                entries = [self._entry(*row[1:]) for row in rows]
            yield from entries

    def _written(self, root: Root, revision: int, write: Write) -> Written | None:
        of = self._of(self._still_seen(), root)
        if of.known.revision != revision:
            return None
        change, written = _Change(root, of), Written([], [], [])
        is_known_anew = not revision or of.known.knowledge != write.knowledge
        if is_known_anew:
            self._execute(_KNOW, _number_of(root), _encode(write.knowledge))
        for tag in write.drop:
            rows = self._rows(_TAGGED, *_span(_path(root, tag)))
            written.dropped.extend([(entry, tag) for entry in self._drop(change, rows)])
        for id in write.drop_ids:
            which, *at = self._by_id(id)
            rows = self._rows(f"{which} and {_THERE}", *at)
            written.dropped.extend([(entry, id) for entry in self._drop(change, rows)])
        for filed in write.put:
            self._put(change, filed, written)
        if write.capacity is not None and change.held_count > write.capacity:
            written.trimmed.extend(self._trim(change, write.capacity))
        if change.gone_count > _ALWAYS_GONE + change.held_count // 8 and write.put:
            some = "select number from gone where root = ? limit ?"
            self._take_out(change, some, change.name, 2 * len(write.put))
        self._put_down_shapes(change)
        self._put_down(change, revision_after(revision), write.knowledge, is_known_anew=is_known_anew)
        return written

    def _put_down(self, change: _Change, revision: int, knowledge: Knowledge, *, is_known_anew: bool) -> None:
        """The root, as the write leaves it."""
        of, before = change.of, change.of.row
        of.row = Row(
            revision,
            revision if is_known_anew else before.knowledge_at,
            revision if change.are_shapes_moved else before.shapes_at,
            revision if change.are_entries_moved else before.entries_at,
            change.held_count,
            change.gone_count,
            change.of.written_down() if change.are_entries_moved else before.tallies,
        )
        of.known = Known(knowledge, revision)
        self._execute(_PUT_DOWN, _number_of(change.root), change.root, *of.row)

    def _put(self, change: _Change, filed: Filed, written: Written) -> None:
        entry, place, slot = filed.entry, bytes.fromhex(filed.entry.place), filed.slot.encode()
        number, used, before = None, self._now(), None
        if self._execute("select 1 from entries where place = ?", place).fetchone():
            gone = "select number from gone where root = ? and number in (select number from entries where place = ?)"
            self._take_out(change, gone, change.name, place)
            rivals = self._rows("where place = ? and slot = ?", place, slot)
            for row, rival in zip(rivals, self._lost(change, rivals), strict=True):
                self._take_out(change, "?", row.number)
                if rival.id == entry.id:
                    number, used, before = row.number, row.used, rival
                    entry = msgspec.structs.replace(entry, learned_at=rival.learned_at)
                else:
                    written.dropped.append((rival, ""))
        tags = {_path(entry.root, tag) for tag in filed.tags}
        tags -= _implied(tags)
        values = bytes.fromhex(entry.id), change.name, place, slot, used, _encode_tags(list(tags))
        number = self._execute(_INSERT, number, *values, _encode(entry)).lastrowid
        rows_of_tags = [(tag, number, shared) for tag, shared in _with_shared(sorted(tags))]
        self._file.connection().executemany("insert into tags values (?, ?, ?)", rows_of_tags)
        change.note(entry, tags, 1)
        self._place(entry.id, place)
        if before is None or entry.renews(before):
            written.stored.append(entry)

    def _drop(self, change: _Change, rows: Sequence[_Row]) -> list[Entry]:
        """Let nobody find these entries any more."""
        numbers = [(change.name, row.number) for row in rows]
        self._file.connection().executemany("insert into gone values (?, ?)", numbers)
        change.gone_count += len(rows)
        return self._lost(change, rows)

    def _lost(self, change: _Change, rows: Sequence[_Row]) -> list[Entry]:
        entries = [_entry(row.place, row.id, row.entry) for row in rows]
        for row, entry in zip(rows, entries, strict=True):
            change.note(entry, _decode_tags(row.tags), -1)
        return entries

    def _trim(self, change: _Change, capacity: int) -> list[Entry]:
        """Take out what was not used for the longest time. What has gone is not to pile up before it."""
        self._write_uses(len(self._noted))
        first = "select number from entries where root = ? order by used limit ?"
        gone = f"select number from gone where root = ? and number in ({first})"
        self._take_out(change, gone, change.name, change.name, _TRIMMED_BEFORE)
        which = f"where root = ? and {_THERE} order by used limit ?"
        rows = self._rows(which, change.name, change.held_count - capacity)
        for row in rows:
            self._take_out(change, "?", row.number)
        return self._lost(change, rows)

    def _take_out(self, change: _Change, which: str, *values: Any) -> None:
        """Take entries out of the file. Their tags go in the order of the index, so that neighbours go together."""
        statement = f"select number, tags from entries where number in ({which})"
        rows = self._execute(statement, *values).fetchall()
        connection, numbers = self._file.connection(), [(number,) for number, _ in rows]
        tagged = sorted([(tag, number) for number, tags in rows for tag in _decode_tags(tags)])
        connection.executemany("delete from tags where tag = ? and number = ?", tagged)
        connection.executemany("delete from entries where number = ?", numbers)
        gone = [(change.name, *number) for number in numbers]
        count = connection.executemany("delete from gone where root = ? and number = ?", gone).rowcount
        change.gone_count -= count

    def _put_down_shapes(self, change: _Change) -> None:
        """How many there are of each shape that has become more or less. A shape goes with the last that has it."""
        one = "where root = ? and operation = ? and shape = ?"
        for (operation, shape), count in change.by_shape.items():
            shapes = self._shapes(change.of, change.root, operation)
            named = change.root, operation, _encode(shape)
            if count > 0:
                self._execute(_MORE, *named, count)
                if shape not in shapes:
                    shapes[shape] = ByShape(shape)
                    change.are_shapes_moved = True
            elif count < 0:
                self._execute(f"update shapes set held = held + ? {one}", count, *named)
                if self._execute(f"delete from shapes {one} and held <= 0", *named).rowcount:
                    shapes.pop(shape, None)
                    change.are_shapes_moved = True

    def _counted(self, of: OfRoot, root: Root, tag: bytes) -> int:
        """How many entries bear a tag. Where that is not written down, one counts with the first of its tags that are below this one."""
        if len(tag) <= _MOST_TALLIED:
            tallies = of.tallied()
            if tag in tallies or UNTALLIED not in tallies:
                return tallies.get(tag, 0)
        if tag not in of.counts:
            if len(of.counts) >= _MOST_COUNTED:
                of.counts.clear()
            there = "not exists (select 1 from gone where root = ? and gone.number = tags.number)"
            statement = f"select count(*) from tags where tag between ? and ? and shared < ? and {there}"
            values = *_span(tag), len(tag), _path(root, "")
            (of.counts[tag],) = self._execute(statement, *values).fetchone()
        return of.counts[tag]

    def _rows(self, which: str, *values: Any) -> list[_Row]:
        statement = f"select number, id, place, used, tags, entry from entries {which}"
        return list(map(_Row._make, self._execute(statement, *values)))

    def _still_seen(self, *, is_to_be_there: bool = False) -> Seen:
        """What was seen of the file that is there. Of a root it is still so if it was looked at in this version (`_of`)."""
        connection, seen = self._file.connection(is_to_be_there=is_to_be_there), self._seen
        if connection is not seen.connection:
            seen = self._seen = Seen(connection, connection.cursor())
        (seen.version,) = seen.cursor.execute("pragma data_version").fetchone()
        return seen

    def _of(self, seen: Seen, root: Root) -> OfRoot:
        of = seen.roots.get(root)
        if of is None:
            of = seen.roots[root] = OfRoot()
        if of.version != seen.version:
            found = self._execute(_ROOT, _number_of(root), root).fetchone()
            row = Row(*found) if found else Row()
            knowledge = of.known.knowledge
            if of.row.knowledge_at != row.knowledge_at:
                statement = "select knowledge from knowledge where number = ?"
                there = self._execute(statement, _number_of(root)).fetchone()
                knowledge = _decode_knowledge(there[0]) if there else Knowledge()
            of.go_on(row, knowledge, seen.version)
        return of

    def _shapes(self, of: OfRoot, root: Root, operation: str) -> Shapes:
        shapes = of.shapes.get(operation)
        if shapes is None:
            statement = "select shape from shapes where root = ? and operation = ?"
            found = [_decode_shape(shape) for (shape,) in self._execute(statement, root, operation)]
            shapes = of.shapes[operation] = {shape: ByShape(shape) for shape in found}
        return shapes

    def _write_uses(self, count: int) -> None:
        """Write down uses that were noted. Others may note more meanwhile, and one that is lost does no harm."""
        noted = {bytes.fromhex(id): self._noted.pop(id) for id in list(islice(self._noted, count))}
        rows = [(used, self._placed_at(id.hex()), id, used) for id, used in noted.items()]
        if any(place is None for _, place, _, _ in rows):  # nobody here has looked at it before
            there = self._execute("select id, place from entries")
            places = {id: place for id, place in there if id in noted}
            rows = [(used, places.get(id), id, used) for id, used in noted.items()]
        statement = "update entries set used = ? where place = ? and id = ? and used < ?"
        self._file.connection().executemany(statement, rows)

    def _by_id(self, id: str) -> tuple[Any, ...]:
        """Where an entry is. It is looked for everywhere if nobody here has looked at it before."""
        place = self._placed_at(id)
        if place is None:
            return "where id = ?", bytes.fromhex(id)
        return "where place = ? and id = ?", place, bytes.fromhex(id)

    def _placed_at(self, id: str) -> bytes | None:
        return self._placed.get(id) or self._placed_before.get(id)

    def _place(self, id: str, place: bytes) -> None:
        if len(self._placed) >= _MOST_PLACED:
            self._placed_before, self._placed = self._placed, {}
        self._placed[id] = place

    def _now(self) -> int:
        """When something is used: the time, but later than all that was used before it."""
        self._latest = max(self._latest + 1, time.time_ns())
        return self._latest

    def _execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        return self._file.connection().execute(statement, values)

    def _entry(self, place: bytes, id: bytes, encoded: bytes) -> Entry:
        entry = _entry(place, id, encoded)
        self._place(entry.id, place)
        return entry


def _found(place: bytes, id: bytes, encoded: bytes) -> Found:
    entry = _entry(place, id, encoded)
    return Found(entry, watched_by(entry))


def _entry(place: bytes, id: bytes, encoded: bytes) -> Entry:
    entry = _decode_entry(encoded)
    # they are asked for next, and cost three digests
    kept = vars(entry)
    kept["id"], kept["place"] = id.hex(), place.hex()
    return entry


@lru_cache(maxsize=1024)
def _number_of(root: Root) -> int:
    """A number for a root. It leads to the row of the root by one page less than a name would."""
    return int.from_bytes(_path(root, ""), "big") >> 1


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
