"""What the statements of our SQLite store cost with all of ours taken out: no memory, no store, values that were worked out before."""

import os
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.fixes import ORIGIN, filed, fill, fix
from shelflife.client import Entry, SqliteStore
from shelflife.client.sqlite_format import INSERT, MORE, PUT_DOWN, ROOT, implied, number_of, path_of

__all__ = ["BareFile", "Bared"]

_decode = msgspec.json.Decoder(Entry).decode
_AT_ALL = "select entry from entries where place = ?"
_PRAGMAS = "pragma cache_size = -2048; pragma wal_autocheckpoint = 4000; pragma synchronous = normal"


class Bared(NamedTuple):
    """A fix as the values that go into the file."""

    place: bytes
    row: tuple[Any, ...]
    tags: list[bytes]


class BareFile:
    """A file that our store has filled, used by statements alone."""

    def __init__(self, path: Path, size: int) -> None:
        store = SqliteStore(path)
        fill(store, size)
        store.close()
        self._folder = str(path.parent)
        self._size = size
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._other = sqlite3.connect(path, isolation_level=None)
        self._connection.executescript(_PRAGMAS)
        self._cursor = self._connection.cursor()
        self._root = self._connection.execute(ROOT, (number_of(ORIGIN), ORIGIN)).fetchone()

    def bared(self, number: int) -> Bared:
        """What is worked out before."""
        one = filed(fix(number, self._size))
        entry, tags = one.entry, {path_of(ORIGIN, tag) for tag in one.tags}
        tags -= implied(tags)
        id, place = bytes.fromhex(entry.id), bytes.fromhex(entry.place)
        encoded = msgspec.msgpack.encode(list(tags)), msgspec.json.encode(entry)
        return Bared(
            place, (id, path_of(ORIGIN, ""), place, one.slot.encode(), number, *encoded), sorted(tags)
        )

    def look(self) -> int:
        """Whether the file is there, and whether another has written."""
        os.stat(self._folder)  # noqa: PTH116 - as the store does it
        version: int = self._cursor.execute("pragma data_version").fetchone()[0]
        return version

    def first_look(self, bared: Bared) -> list[Entry]:
        """That, and one fix, decoded."""
        self.look()
        return [_decode(encoded) for encoded, *_ in self._cursor.execute(_AT_ALL, (bared.place,)).fetchall()]

    def written_by_another(self) -> None:
        """Another connection writes to the root."""
        self._other.execute("update roots set revision = revision + 1")

    def look_after_a_write(self, bared: Bared) -> list[Entry]:
        """The same and what the file says of the root, which another has written to."""
        self._connection.execute(ROOT, (number_of(ORIGIN), ORIGIN)).fetchone()
        return self.first_look(bared)

    def put(self, bared: Bared) -> None:
        """One fix, in a transaction of its own."""
        execute = self._connection.execute
        self.look()
        execute("begin immediate")
        execute("select 1 from entries where place = ?", (bared.place,)).fetchone()
        number = execute(INSERT, (None, *bared.row)).lastrowid
        rows = [(tag, number, 0) for tag in bared.tags]
        self._connection.executemany("insert into tags values (?, ?, ?)", rows)
        execute(MORE, (ORIGIN, "POST /subscriptions", b'["customer","plan"]', 1))
        execute(PUT_DOWN, (number_of(ORIGIN), ORIGIN, *self._root))
        execute("commit")
