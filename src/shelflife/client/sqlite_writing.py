"""One write to the SQLite file of a memory: what is dropped, put and trimmed, and what that changes of its root.

What is dropped is put down as gone, which is a few bytes for each, and is found by nobody from then on. To take it out of the tree and
the index costs many times as much. It stays as long as it is less than an eighth of what is held, and is then taken out as others come:
two for each. So the file never grows for it.
"""

# ruff: noqa: S608 - all statements are made of literals

import os
import sqlite3
from collections.abc import Iterable, Sequence
from itertools import starmap
from typing import Any

import msgspec

from shelflife.client.entries import Entry, Root, Shape
from shelflife.client.finding import ByShape
from shelflife.client.sqlite_format import (
    INSERT,
    KNOW,
    MOST_TALLIED,
    ORDER_BY_USE,
    PUT_DOWN,
    TAG,
    TAG_SIZE,
    TAGGED,
    THERE,
    FiledRow,
    decode_shape,
    decode_tags,
    encode,
    encode_tags,
    entry_in,
    implied,
    key_of_shape,
    narrowest,
    number_of,
    path_of,
    rows_of,
    span,
)
from shelflife.client.sqlite_seen import MOST_SHAPES_COUNTED, UNTALLIED, OfRoot, Row, Shapes
from shelflife.client.sqlite_uses import Uses
from shelflife.client.stores import Filed, Known, Write, Written, revision_after

__all__ = ["Change", "shapes_in"]

_TRIMMED_BEFORE = 16
_ONE_SHAPE = "where root = ? and operation = ? and shape = ?"
_ALWAYS_GONE = 1_024
"""So many that have gone may stay in the file, however little is held."""


def shapes_in(connection: sqlite3.Connection, of: OfRoot, root: Root, operation: str) -> Shapes:
    """The shapes of an operation."""
    shapes = of.shapes.get(operation)
    if shapes is None:
        statement = "select shape from shapes where root = ? and operation = ?"
        found = [decode_shape(shape) for (shape,) in connection.execute(statement, (root, operation))]
        shapes = of.shapes[operation] = {shape: ByShape(shape) for shape in found}
    return shapes


class Change:
    """What a write changes of its root. It is carried out in a transaction of its owner, who has seen the root in it (`of`)."""

    def __init__(
        self, connection: sqlite3.Connection, cursor: sqlite3.Cursor, root: Root, of: OfRoot, uses: Uses
    ) -> None:
        self._connection = connection
        self._cursor = cursor
        """Each statement has been read to its end when the next one comes: to make one for each would take a tenth of a put."""
        self._uses = uses
        self._root = root
        self._of = of
        self._name = path_of(root, "")
        self._held_count = of.row.held_count
        self._gone_count = of.row.gone_count
        self._by_shape: dict[tuple[str, Shape], int] = {}
        """By operation and shape: how many more there are of it."""
        self._are_shapes_moved = self._are_entries_moved = False

    def written(self, write: Write) -> Written:
        """Carry it out."""
        of, written = self._of, Written([], [], [])
        revision = of.known.revision
        is_known_anew = not revision or (
            of.known.knowledge is not write.knowledge and of.known.knowledge != write.knowledge
        )
        if is_known_anew:
            self._execute(KNOW, number_of(self._root), encode(write.knowledge))
        for tag in write.drop:
            rows = self._rows(TAGGED, *span(path_of(self._root, tag)))
            written.dropped.extend([(entry, tag) for entry in self._drop(rows)])
        for id in write.drop_ids:
            which, *at = self._by_id(id)
            rows = self._rows(f"{which} and root = ? and {THERE}", *at, self._name)
            written.dropped.extend([(entry, id) for entry in self._drop(rows)])
        for filed in write.put:
            self._put(filed, written)
        if write.capacity is not None and self._held_count > write.capacity:
            written.trimmed.extend(self._trim(write.capacity))
        if self._gone_count > _ALWAYS_GONE + self._held_count // 8 and write.put:
            some = "select number from gone where root = ? limit ?"
            self._take_out(some, self._name, 2 * len(write.put))
        self._put_down_shapes()
        self._put_down(revision_after(revision), write, is_known_anew=is_known_anew)
        return written

    def _put_down(self, revision: int, write: Write, *, is_known_anew: bool) -> None:
        """The root, as the write leaves it."""
        of, before = self._of, self._of.row
        of.row = Row(
            revision,
            revision if is_known_anew else before.knowledge_at,
            revision if self._are_shapes_moved else before.shapes_at,
            revision if self._are_entries_moved else before.entries_at,
            self._held_count,
            self._gone_count,
            before.line or int.from_bytes(os.urandom(7), "big"),
            of.written_down() if self._are_entries_moved else before.tallies,
            of.shapes_written_down() if self._are_entries_moved else before.shapes,
        )
        of.known = Known(write.knowledge, revision)
        *numbers, tallies, shapes = of.row
        blobs = bytearray(tallies), bytearray(shapes)  # see `rows_of`
        self._cursor.execute(PUT_DOWN, (number_of(self._root), self._root, *numbers, *blobs))

    def _put(self, filed: Filed, written: Written) -> None:
        entry, execute, uses = filed.entry, self._cursor.execute, self._uses
        place, slot = bytearray.fromhex(entry.place), filed.slot  # see `rows_of`
        number, used, before = None, uses.now(), None
        if execute("select 1 from entries where place = ?", (place,)).fetchone():
            gone = "select number from gone where root = ? and number in (select number from entries where place = ?)"
            self._take_out(gone, self._name, place)
            rivals = self._rows("where place = ? and slot = ?", place, slot)
            for row, rival in zip(rivals, self._lost(rivals), strict=True):
                self._take_out("?", row.number)
                if rival.id == entry.id:
                    number, used, before = row.number, row.used, rival
                    entry = msgspec.structs.replace(entry, learned_at=rival.learned_at)
                else:
                    written.dropped.append((rival, ""))
        tags, id = narrowest(entry.root, filed.tags), bytearray.fromhex(entry.id)
        blobs = bytearray(encode_tags(tags)), bytearray(encode(entry))
        number = execute(INSERT, (number, id, bytearray(self._name), place, slot, used, *blobs)).lastrowid
        self._cursor.executemany(TAG, rows_of(tags, number))
        self._note(entry, tags, 1)
        uses.place(entry.id, entry.place)
        if before is None or entry.renews(before):
            written.stored.append(entry)

    def _drop(self, rows: Sequence[FiledRow]) -> list[Entry]:
        """Let nobody find these entries any more."""
        numbers = [(self._name, row.number) for row in rows]
        self._connection.executemany("insert into gone values (?, ?)", numbers)
        self._gone_count += len(rows)
        return self._lost(rows)

    def _lost(self, rows: Sequence[FiledRow]) -> list[Entry]:
        entries = [entry_in(row.place, row.id, row.entry) for row in rows]
        for row, entry in zip(rows, entries, strict=True):
            self._note(entry, decode_tags(row.tags), -1)
        return entries

    def _note(self, entry: Entry, tags: Iterable[bytes], count: int) -> None:
        """An entry with these tags has come (1) or gone (-1)."""
        self._are_entries_moved = True
        self._held_count += count
        shape, of, by_shape = entry.condition.shape, self._of, self._by_shape
        kind = entry.operation, shape
        by_shape[kind] = by_shape.get(kind, 0) + count
        tallies = of.tallied()
        is_of_all = UNTALLIED not in tallies
        broad = {tag[:MOST_TALLIED] for tag in tags}
        for tag in broad | {tag[:TAG_SIZE] for tag in broad}:
            if is_of_all or tag in tallies:
                tallied = tallies[tag] = tallies.get(tag, 0) + count
                if not tallied:
                    del tallies[tag]
        of.lose(entry, shape)
        if of.counts:
            of.count({*tags, *implied(tags)}, count)

    def _trim(self, capacity: int) -> list[Entry]:
        """Take out what was not used for the longest time. What has gone is not to pile up before it."""
        if not self._of.is_in_order:
            self._execute(ORDER_BY_USE)
            self._of.is_in_order = True
        self._uses.write(self._connection, len(self._uses))
        first = "select number from entries where root = ? order by used limit ?"
        gone = f"select number from gone where root = ? and number in ({first})"
        self._take_out(gone, self._name, self._name, _TRIMMED_BEFORE)
        which = f"where root = ? and {THERE} order by used limit ?"
        rows = self._rows(which, self._name, self._held_count - capacity)
        for row in rows:
            self._take_out("?", row.number)
        return self._lost(rows)

    def _take_out(self, which: str, *values: Any) -> None:
        """Take entries out of the file. Their tags go in the order of the index, so that neighbours go together."""
        statement = f"select number, tags from entries where number in ({which})"
        rows = self._execute(statement, *values).fetchall()
        connection, numbers = self._connection, [(number,) for number, _ in rows]
        tagged = sorted([(tag, number) for number, tags in rows for tag in decode_tags(tags)])
        connection.executemany("delete from tags where tag = ? and number = ?", tagged)
        connection.executemany("delete from entries where number = ?", numbers)
        gone = [(self._name, *number) for number in numbers]
        count = connection.executemany("delete from gone where root = ? and number = ?", gone).rowcount
        self._gone_count -= count

    def _put_down_shapes(self) -> None:
        """How many there are of each shape that has become more or less. A shape goes with the last that has it."""
        counts = self._of.counted_shapes() if self._by_shape else {}
        for (operation, shape), count in self._by_shape.items():
            if not count:
                continue  # what has come has gone in the same write
            key, is_left = key_of_shape(operation, shape), True
            if key in counts:
                counts[key] += count
                is_left = counts[key] > 0
                if is_left:
                    continue  # as mostly
                del counts[key]
            named = self._root, operation, encode(shape)
            shapes = shapes_in(self._connection, self._of, self._root, operation)
            if shape not in shapes:
                held = None if len(counts) < MOST_SHAPES_COUNTED else count
                if held is None:
                    counts[key] = count
                self._execute("insert into shapes values (?, ?, ?, ?)", *named, held)
                shapes[shape] = ByShape(shape)
                self._are_shapes_moved = True
                continue
            if is_left:
                self._execute(f"update shapes set held = held + ? {_ONE_SHAPE}", count, *named)
            if self._execute(f"delete from shapes {_ONE_SHAPE} and ifnull(held, 0) <= 0", *named).rowcount:
                del shapes[shape]
                self._are_shapes_moved = True

    def _by_id(self, id: str) -> tuple[Any, ...]:
        """Where an entry is. It is looked for everywhere if nobody here has looked at it before."""
        place = self._uses.placed_at(id)
        if place is None:
            return "where id = ?", bytes.fromhex(id)
        return "where place = ? and id = ?", place, bytes.fromhex(id)

    def _rows(self, which: str, *values: Any) -> list[FiledRow]:
        statement = f"select number, id, place, used, tags, entry from entries {which}"
        return [*starmap(FiledRow, self._execute(statement, *values))]

    def _execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        return self._cursor.execute(statement, values)
