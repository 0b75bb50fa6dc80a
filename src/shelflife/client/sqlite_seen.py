"""What a process has seen of a memory in a SQLite file, so as not to look again for what is still the same."""

import sqlite3
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Annotated, Any, NamedTuple

import msgspec

from shelflife.client.entries import Entry, Knowledge, Shape
from shelflife.client.finding import ByShape, Found, watched_by
from shelflife.client.sqlite_format import IDS_AT, IDS_OF_ALL_AT, entry_in
from shelflife.client.stores import Known
from shelflife.wal_index import Head, is_next

__all__ = ["MOST_SHAPES_COUNTED", "UNTALLIED", "OfRoot", "Row", "Seen", "Shapes"]

_VERSION = "pragma data_version"
_MOST_LOOKS = 4_096
_MOST_BYTES = 8 * 1024 * 1024
"""What so many looks have found is kept as it was decoded, as long as it was no more than this in the file."""


Shapes = dict[Shape, ByShape[Found]]


class Row(NamedTuple):
    """What stands in the file of a root as a whole: what the last write has left."""

    revision: int = 0
    knowledge_at: int = 0
    """The revision at which what is known of the server was written; the same for the other two."""

    shapes_at: int = 0
    entries_at: int = 0
    held_count: int = 0
    gone_count: int = 0
    """Entries that were dropped, and are still to be taken out."""

    line: int = 0
    """Drawn with the first write. Revisions of one line follow each other; a root that has begun anew has another."""

    tallies: bytes = b"\x80"
    """How many bear each broad tag."""

    shapes: bytes = b"\x80"
    """How many there are of each shape, of those that were there first (`key_of_shape`). Of the others the table of shapes says it."""

    def is_behind(self, before: "Row") -> bool:
        """Whether the file does not hold what was seen of it before."""
        return before.revision > 0 and (self.line != before.line or self.revision < before.revision)


UNTALLIED = b""
"""Stands among the tallies for tags that are not there, though entries may bear them."""

_MOST_TALLIES = 256
MOST_SHAPES_COUNTED = 64
"""So many shapes at most are counted in the row of their root, which each write writes anyway."""

_NOT_YET = Row()
_BITS = 62
"""Of each number of a root, and of each count: more is written by nobody but by hand, and could not be written back with one added."""

_Count = Annotated[int, msgspec.Meta(gt=-(1 << _BITS), lt=1 << _BITS)]
_encode_tallies = msgspec.msgpack.Encoder().encode
_decode_tallies = msgspec.msgpack.Decoder(dict[bytes, _Count]).decode


class OfRoot(msgspec.Struct):
    """What was seen of one root."""

    version: int = -1
    """Of the file, when it was last looked whether this is still so."""

    row: Row = _NOT_YET
    known: Known = Known(Knowledge(), 0)
    shapes: dict[str, Shapes] = {}
    """By operation: all shapes that there are, each with what was found by it."""

    counts: dict[bytes, int] = {}
    """How many entries bear a tag that somebody has asked about."""

    def lose(self, entry: Entry, shape: Shape) -> None:
        """An entry has come or gone: what was found at its place is so no longer."""
        by_shape = self.shapes.get(entry.operation, {}).get(shape)
        if by_shape is not None and by_shape.by_key:
            by_shape.by_key.pop(by_shape.key_of(entry), None)

    def count(self, tags: Iterable[bytes], change: int) -> None:
        """An entry with these tags, the broader ones among them, has come (1) or gone (-1)."""
        counts = self.counts
        for tag in tags:
            if tag in counts:
                counts[tag] += change

    tallies: dict[bytes, int] | None = None
    """The same of broad tags, as it is written down; None until somebody asks."""

    shape_counts: dict[bytes, int] | None = None
    """How many there are of each shape, as far as it is written down with the root; None until somebody asks."""

    is_in_order: bool = False
    """Whether the order of use is known to be at hand."""

    def counted_shapes(self) -> dict[bytes, int]:
        """How many there are of each shape, of those that are counted here."""
        if self.shape_counts is None:
            self.shape_counts = _decode_tallies(self.row.shapes)
        return self.shape_counts

    def shapes_written_down(self) -> bytes:
        """The same, for the file."""
        return self.row.shapes if self.shape_counts is None else _encode_tallies(self.shape_counts)

    def tallied(self) -> dict[bytes, int]:
        """How many entries bear each broad tag; none where it is not there, unless there were too many (`UNTALLIED`)."""
        if self.tallies is None:
            self.tallies = _decode_tallies(self.row.tallies)
        return self.tallies

    def written_down(self) -> bytes:
        """The same, for the file: with those that were there first, if there are too many."""
        tallies = self.tallied()
        if len(tallies) > _MOST_TALLIES:
            tallies = self.tallies = dict(islice(tallies.items(), _MOST_TALLIES)) | {UNTALLIED: 1}
        return _encode_tallies(tallies)

    def is_as_at(
        self, revision: int, knowledge_at: int, shapes_at: int, entries_at: int, *, is_first: bool
    ) -> bool:
        """Whether a look that was told this sees what was seen before. If it is the first of all, the entries may be others."""
        before = self.row
        if revision == before.revision:
            return True
        if (
            not is_first
            or revision < before.revision
            or (knowledge_at, shapes_at) != (before.knowledge_at, before.shapes_at)
        ):
            return False
        row = before._replace(revision=revision, entries_at=entries_at)
        self.go_on(
            row, self.known.knowledge, -1
        )  # what else there is of the root is to be read before it is used
        return True

    def go_on(self, row: Row, knowledge: Knowledge, version: int) -> None:
        """Keep what was seen as far as the file still says the same. What is known of the server is said anew.

        Ctrl-C may come between any two of these. So the row by which the next look compares is last but for the version, until which
        nobody goes by any of it.
        """
        revision, knowledge_at, shapes_at, entries_at, held_count, gone_count, line, *_ = row
        if (revision | knowledge_at | shapes_at | entries_at | held_count | gone_count | line) >> _BITS:
            raise ValueError("a number in it is out of range")
        if self.row.shapes_at != row.shapes_at:
            self.shapes = {}
        if self.row.entries_at != row.entries_at:
            self.counts, self.tallies, self.shape_counts = {}, None, None
            for shapes in self.shapes.values():
                for one in shapes.values():
                    one.by_key = {}
        self.known = Known(knowledge, row.revision)
        self.row = row
        self.version = version


class Seen(msgspec.Struct):
    """What was seen through one connection."""

    connection: sqlite3.Connection | None = None
    cursor: Any = None
    head: Head | None = None
    version: int = -1
    """As long as the file is at this one, nobody else has written."""

    head_at_version: bytes = b""
    """As long as the head is so, the file is at that version. Empty if that cannot be told."""

    roots: dict[str, OfRoot] = {}
    kept: deque[tuple[dict[bytes, tuple[Found, ...]], bytes, int]] = msgspec.field(default_factory=deque)
    """The looks whose answers are kept, the oldest first: where each is, and how much it was in the file."""

    byte_count: int = 0

    def version_now(self) -> int:
        """The version that the file has now."""
        head = self.head
        if head is not None and head.is_still(self.head_at_version):  # as mostly
            return self.version
        now = b"" if head is None else head.read()
        (self.version,) = self.cursor.execute(_VERSION).fetchone()
        # Two race here: this look, and whoever writes. The head belongs to the version if it was so before and after.
        self.head_at_version = now if head is not None and head.is_still(now) else b""
        return self.version

    def note_own_write(self) -> None:
        """A transaction of this connection is written, which has changed something: the head, and not the version."""
        if self.head is not None:
            now = self.head.read()
            if is_next(now, self.head_at_version):  # else somebody has written after it
                self.head_at_version = now

    def rows_at(self, place: bytes, of: OfRoot) -> list[tuple[bytes | None, bytes]] | None:
        """The id and the entry of all that is at a place, if nobody else has written since the root was looked at; None if that is not known.

        Two race here: this look, and whoever writes. It has seen what it was meant to see if the head is still so after it: then it was
        so all the time, for it never comes back to what it was.
        """
        head, before = self.head, self.head_at_version
        if head is None or not before or of.version != self.version:
            return None
        statement = IDS_AT if of.row.gone_count else IDS_OF_ALL_AT
        rows: list[tuple[bytes | None, bytes]] = self.cursor.execute(
            statement, (bytearray(place),)
        ).fetchall()
        return rows if head.is_still(before) else None

    def keep(
        self, by_shape: ByShape[Found], key: bytes, place: bytes, rows: Iterable[tuple[bytes | None, bytes]]
    ) -> tuple[Found, ...]:
        """What a look at a place has found: an id and an entry in each row, or none. It is kept."""
        by_key, kept, byte_count = by_shape.by_key, self.kept, 0
        found: tuple[Found, ...] = ()
        for id, encoded in rows:
            if id is not None:
                entry = entry_in(place, id, encoded)
                found += (Found(entry, watched_by(entry)),)
                byte_count += len(encoded)
        by_key[key] = found
        kept.append((by_key, key, byte_count))
        self.byte_count += byte_count
        # one at a time: what comes next finds room where this was
        while len(kept) > _MOST_LOOKS or self.byte_count > _MOST_BYTES:
            of, oldest, size = kept.popleft()
            of.pop(oldest, None)
            self.byte_count -= size
        return found
