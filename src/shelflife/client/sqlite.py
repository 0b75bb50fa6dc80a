"""A store in a SQLite file: durable, for several processes at once.

Tags are rows of an index, not sets: putting and dropping an entry costs what that entry has, whatever else is there. Each row costs a
page of the journal, so a tag that follows from another has none, and no index leads from an id to its entry.
"""

# ruff: noqa: S608 - all statements are made of literals

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from os import PathLike
from typing import Any

from shelflife.client.asking import Fields
from shelflife.client.circuit import Circuit
from shelflife.client.diary import Diary
from shelflife.client.entries import Entry, Knowledge, Root, Shape, place_at, roots_in
from shelflife.client.finding import Found, holding
from shelflife.client.pauses import Pauses
from shelflife.client.sqlite_diary import SqliteDiary
from shelflife.client.sqlite_format import (
    AT,
    AT_NOW,
    KIND,
    MOST_TALLIED,
    ROOT,
    TAGGED,
    THERE,
    decode_knowledge,
    entry_in,
    number_of,
    path_of,
    span,
)
from shelflife.client.sqlite_seen import UNTALLIED, OfRoot, Row, Seen
from shelflife.client.sqlite_uses import Uses
from shelflife.client.sqlite_writing import Change, shapes_in
from shelflife.client.stores import Known, StoreError, Write, Written
from shelflife.contract.values import is_carried
from shelflife.sqlite_files import SqliteFile

__all__ = ["SqliteStore"]

_MOST_COUNTED = 10_000

_NOT_YET = Row()
_PAUSES = Pauses(1.0, 3.0)
"""So long a file that could not be written is not tried again."""


class SqliteStore:
    """Entries in a SQLite file.

    A write survives the end of the process at once; with `durable` it also survives that of the machine,
    at the cost of waiting for the disk. The file is opened with the first verb, so that one that cannot be opened is a miss and no reason to stop,
    and anew after a fork or when it was deleted or replaced. `read_only` opens a file that is there, at once, to look at it.
    """

    def __init__(
        self,
        path: str | PathLike[str],
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
        self._file = SqliteFile(
            path, KIND, busy_timeout_s=busy_timeout_s, durable=durable, read_only=read_only
        )
        self.path = self._file.path
        self.diary: Diary | None = SqliteDiary(path, read_only=read_only)
        """What a memory has done with it, in a file beside."""
        self._uses = Uses()
        self._seen = Seen()
        self.where = str(path)
        self.set_backs: Counter[Root] = Counter()
        """How often it was seen of a root that a copy was put back, which has not all that was seen."""
        self._seen_before: dict[Root, Row] = {}
        """How far roots were that are not at hand: the file was opened anew, a write has failed, or they are not in it."""
        self._circuit = Circuit(_PAUSES)
        """For writes: they may have to wait for others. Whoever reads waits for nobody."""
        if read_only:
            self.open()

    def open(self) -> None:
        """Open the file now, and not with the first verb."""
        self._file.open()

    def close(self) -> None:
        """Let go of the file, until the next verb."""
        self._write_uses(len(self._uses))
        self._file.close()
        if isinstance(self.diary, SqliteDiary):
            self.diary.close()

    def known(self, root: Root) -> Known:
        file = self._file
        try:
            with file._lock:  # as in `find`
                seen = self._seen
                # here and not in the verbs that follow it: what is known and what is found are to be of one file
                if file.connection(is_to_be_there=True) is not seen.connection:
                    seen = self._at_hand()
                version, of = seen.version_now(), seen.roots.get(root)
                if of is None or of.version != version:
                    of = self._of(seen, root)
                return of.known
        except BaseException as error:
            file.fail(error, "read")
            raise

    def shapes(self, root: Root, operation: str) -> tuple[Shape, ...]:
        with self._file.reading:
            return tuple(shapes_in(self._connection, self._of(self._still_seen(), root), root, operation))

    def find(self, root: Root, operation: str, request: Fields) -> tuple[Known, list[Found]]:
        file = self._file
        try:
            with file._lock:  # as `reading` has it, but for two calls
                seen = self._seen
                if file.connection(is_to_be_there=True) is not seen.connection:
                    seen = self._at_hand()
                of = seen.roots.get(root)
                there = None if of is None else self._there(seen, of, root, operation, request)
                if of is None or there is None:  # another has written, or nobody here has looked
                    seen.version_now()
                    of = self._of(seen, root)
                    shapes_in(self._connection, of, root, operation)
                    there = self._there(seen, of, root, operation, request, is_just_seen=True) or ()
                return of.known, holding(there, request) if there else []
        except BaseException as error:
            file.fail(error, "read")
            raise

    def _there(
        self,
        seen: Seen,
        of: OfRoot,
        root: Root,
        operation: str,
        request: Fields,
        *,
        is_just_seen: bool = False,
    ) -> tuple[Found, ...] | None:
        """What stands at the keys of a request; None if what was seen of the root is not as it is now.

        Whoever has to look into the file is told there at which revision the root is, if that is not known. For answers that are all kept,
        the file is asked whether anybody has written to it.
        """
        shapes = of.shapes.get(operation)
        if shapes is None:
            return None
        there: tuple[Found, ...] = ()
        is_now = is_just_seen
        if shapes and is_carried(operation, request):
            for one in shapes.values():
                key = one.key_in(request)
                found = one.by_key.get(key)
                if found is None:
                    place = place_at(root, operation, one.shape, key)
                    rows = seen.rows_at(place, of)
                    if rows is None:
                        told = seen.cursor.execute(
                            AT_NOW, (bytearray(place), number_of(root), root)
                        ).fetchall()
                        # Two race here: these looks, and whoever writes. Only the first of all, before which nothing that was kept has
                        # answered, may see another revision: what is kept of the former one says neither what is there nor what is not.
                        is_first = one is next(iter(shapes.values()))
                        if not (is_just_seen or (told and of.is_as_at(*told[0][2:], is_first=is_first))):
                            return None
                        rows = [(id, encoded) for id, encoded, *_ in told]
                    found = seen.keep(one, key, place, rows)
                    is_now = True
                there += found
        if is_now:
            return there
        return there if seen.version_now() == of.version else None

    def at(self, root: Root, places: Sequence[str]) -> list[Entry]:
        with self._file.reading:
            found = [
                self._entry(*row) for place in map(bytes.fromhex, places) for row in self._execute(AT, place)
            ]
        return sorted(found, key=lambda entry: entry.learned_at) if len(found) > 1 else found

    def tagged(self, root: Root, *tags: str) -> list[Entry]:
        statement = f"select place, id, entry from entries {TAGGED}"
        with self._file.reading:
            rows = [row for tag in tags for row in self._execute(statement, *span(path_of(root, tag)))]
            return [self._entry(*row) for row in {row[1]: row for row in rows}.values()]

    def count(self, root: Root, *tags: str) -> int:
        with self._file.reading:
            of = self._of(self._still_seen(), root)
            return sum([self._counted(of, root, path_of(root, tag)) for tag in tags])

    def write(self, root: Root, revision: int, write: Write) -> Written | None:
        with self._circuit.trying(), self._file._lock:
            of = self._seen.roots.get(root)
            before = _NOT_YET if of is None else of.row
            try:
                written = self._file.write(self._carry_out, root, revision, write)
                if written is not None:
                    self._seen.note_own_write()
                return written
            except BaseException:
                self._seen.roots.pop(root, None)  # some of it may be of this write, which was not carried out
                self._note_seen(root, before)
                self._seen = self._begun_anew()
                raise

    def _carry_out(
        self, connection: sqlite3.Connection, root: Root, revision: int, write: Write
    ) -> Written | None:
        seen = self._seen
        if connection is not seen.connection:
            seen = self._at_hand()
        seen.version_now()
        of = self._of(seen, root)
        if of.known.revision != revision:
            return None
        return Change(connection, seen.cursor, root, of, self._uses).written(write)

    def used(self, root: Root, ids: Iterable[str]) -> None:
        self._write_uses(max([self._uses.note(id) for id in ids], default=0))

    def note(self, found: Found) -> None:
        entry = found.entry
        due_count = self._uses.note(entry.id, entry.place)
        if due_count:
            self._write_uses(due_count)

    def roots(self) -> list[Root]:
        with self._file.reading:
            return roots_in([root for (root,) in self._execute("select root from roots")])

    def entries(self) -> Iterator[Entry]:
        some = f"where number > ? and {THERE} order by number limit 1000"
        statement = f"select number, place, id, entry from entries {some}"
        rows: list[tuple[int, bytes, bytes, bytes]] = [(-1, b"", b"", b"")]  # before the first
        while rows:
            with self._file.reading:
                rows = self._execute(statement, rows[-1][0]).fetchall()
                entries = [self._entry(*row[1:]) for row in rows]
            yield from entries

    def _counted(self, of: OfRoot, root: Root, tag: bytes) -> int:
        """How many entries bear a tag. Where that is not written down, one counts with the first of its tags that are below this one."""
        if len(tag) <= MOST_TALLIED:
            tallies = of.tallied()
            if tag in tallies or UNTALLIED not in tallies:
                return tallies.get(tag, 0)
        if tag not in of.counts:
            if len(of.counts) >= _MOST_COUNTED:
                of.counts.clear()
            there = "not exists (select 1 from gone where root = ? and gone.number = tags.number)"
            statement = f"select count(*) from tags where tag between ? and ? and shared < ? and {there}"
            values = *span(tag), len(tag), path_of(root, "")
            (of.counts[tag],) = self._execute(statement, *values).fetchone()
        return of.counts[tag]

    @property
    def _connection(self) -> sqlite3.Connection:
        return self._file.connection()

    def _at_hand(self) -> Seen:
        """What was seen of the file that is open, as it is or as it was before others wrote to it."""
        connection, seen = self._file.connection(), self._seen
        if connection is not seen.connection:
            seen = self._seen = self._begun_anew(connection)
        return seen

    def _begun_anew(self, connection: sqlite3.Connection | None = None) -> Seen:
        for root, of in self._seen.roots.items():
            self._note_seen(root, of.row)
        return Seen() if connection is None else Seen(connection, connection.cursor(), self._file.head())

    def _note_seen(self, root: Root, row: Row) -> None:
        if row.revision:  # that a root is not there says nothing of what was
            self._seen_before[root] = row

    def _still_seen(self) -> Seen:
        """The same with the version that the file has now. Of a root it is still so if it was looked at in this version (`_of`)."""
        seen = self._at_hand()
        seen.version_now()
        return seen

    def _of(self, seen: Seen, root: Root) -> OfRoot:
        of = seen.roots.get(root)
        if of is None:
            of = seen.roots[root] = OfRoot()
        if of.version != seen.version:
            found = self._execute(ROOT, number_of(root), root).fetchone()
            row = Row(*found) if found else Row()
            self._note_seen(root, of.row)
            if found and row.is_behind(self._seen_before.get(root, _NOT_YET)):
                self.set_backs[root] += 1
            knowledge = of.known.knowledge
            if of.row.knowledge_at != row.knowledge_at:
                statement = "select knowledge from knowledge where number = ?"
                there = self._execute(statement, number_of(root)).fetchone()
                knowledge = decode_knowledge(there[0]) if there else Knowledge()
            of.go_on(row, knowledge, seen.version)
        return of

    def _write_uses(self, count: int) -> None:
        """Write down so many of the uses that were noted first."""
        if count:
            with suppress(StoreError), self._circuit.trying(), self._file.writing() as connection:
                self._uses.write(connection, count)

    def _execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        return self._connection.execute(statement, values)

    def _entry(self, place: bytes, id: bytes, encoded: bytes) -> Entry:
        entry = entry_in(place, id, encoded)
        self._uses.place(entry.id, entry.place)
        return entry
