"""The same work with all of ours taken out: no memory, no store, values that were worked out before. What is left no code of ours can spare."""

import os
import random
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from benchmarks.fixes import (
    ORIGIN,
    evicting,
    filed,
    fill,
    fix,
    number_that_stays,
    request,
    row_tag_of,
    rows_with,
    unchanged,
)
from shelflife.client import Entry, Exchange, Reply, SqliteStore
from shelflife.client.events import Evicted, Reason
from shelflife.client.sqlite_format import (
    INSERT,
    KIND,
    PUT_DOWN,
    ROOT,
    TAG,
    narrowest,
    number_of,
    path_of,
    rows_of,
    span,
)
from shelflife.sqlite_files import CHECKPOINT_BYTES
from shelflife.wal_index import head_of

__all__ = ["BareFile", "Floor", "FloorAct"]

FloorAct = Literal[
    "floor of a first look",
    "floor of a kept answer",
    "an idle loop of six microseconds",
    "floor after another's write",
    "floor of nothing new",
    "floor of 10",
]

_decode = msgspec.json.Decoder(Entry).decode
_AT_ALL = "select entry from entries where place = ?"
_TAGGED = (
    "select number, entry from entries where number in (select number from tags where tag between ? and ?)"
)
_IDLE_S = 6e-6
"""So long is a look to take at the median."""

_TURNS_TIMED = 10_000
_PRAGMAS = (
    f"pragma cache_size = -2048; pragma wal_autocheckpoint = {CHECKPOINT_BYTES // KIND.page_size};"
    " pragma synchronous = normal"
)


class _Bared(NamedTuple):
    """A fix as the values that go into the file."""

    place: bytearray
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
        self._version: int = self._cursor.execute("pragma data_version").fetchone()[0]
        self._head = head_of(str(path.resolve()))
        self._head_seen = b""
        self._root = self._connection.execute(ROOT, (number_of(ORIGIN), ORIGIN)).fetchone()

    def bared(self, number: int) -> _Bared:
        """What is worked out before."""
        one = filed(fix(number, self._size))
        entry, tags = one.entry, narrowest(ORIGIN, one.tags)
        id, place = bytearray.fromhex(entry.id), bytearray.fromhex(entry.place)  # see `rows_of`
        encoded = bytearray(msgspec.msgpack.encode(tags)), bytearray(msgspec.json.encode(entry))
        return _Bared(place, (id, bytearray(path_of(ORIGIN, "")), place, one.slot, number, *encoded), tags)

    def look(self) -> int:
        """Whether the file is there, and whether another has written."""
        os.stat(self._folder)  # noqa: PTH116 - as the store does it
        head = b"" if self._head is None else self._head.read()
        if not head or head != self._head_seen:
            self._head_seen = head
            self._version = self._cursor.execute("pragma data_version").fetchone()[0]
        return self._version

    def first_look(self, bared: _Bared) -> list[Entry]:
        """That, and one fix, decoded."""
        self.look()
        return [_decode(encoded) for encoded, *_ in self._cursor.execute(_AT_ALL, (bared.place,)).fetchall()]

    def written_by_another(self) -> None:
        """Another connection writes to the root."""
        self._other.execute("update roots set revision = revision + 1")

    def look_after_a_write(self, bared: _Bared) -> list[Entry]:
        """The same and what the file says of the root, which another has written to."""
        self._connection.execute(ROOT, (number_of(ORIGIN), ORIGIN)).fetchone()
        return self.first_look(bared)

    def nothing_new(self, body: bytes, known: object) -> bool:
        """Whether the file is there and as it was, and a body says nothing new."""
        self.look()
        return _says_nothing_new(body, known)

    def drop(self, row: str) -> list[Entry]:
        """What rests on a row, in a transaction of its own."""
        execute, path = self._connection.execute, path_of(ORIGIN, row_tag_of(row))
        self.look()
        execute("begin immediate")
        rows = execute(_TAGGED, span(path)).fetchall()
        numbers = [(path_of(ORIGIN, ""), number) for number, _ in rows]
        self._connection.executemany("insert into gone values (?, ?)", numbers)
        execute(PUT_DOWN, (number_of(ORIGIN), ORIGIN, *self._root))
        execute("commit")
        return [_decode(encoded) for _, encoded in rows]

    def put(self, bared: _Bared) -> None:
        """One fix, in a transaction of its own."""
        execute = self._cursor.execute
        self.look()
        execute("begin immediate")
        execute("select 1 from entries where place = ?", (bared.place,)).fetchone()
        number = execute(INSERT, (None, *bared.row)).lastrowid
        self._cursor.executemany(TAG, rows_of(bared.tags, number))
        execute(PUT_DOWN, (number_of(ORIGIN), ORIGIN, *self._root))
        execute("commit")


class _BareTags:
    """Entries in two dictionaries: by the values of their fields, and those that rest on a row by its tag."""

    def __init__(self, size: int) -> None:
        self._by_values: dict[tuple[str, ...], Entry] = {}
        self._by_tag: defaultdict[str, list[Entry]] = defaultdict(list)
        for number in range(size):
            one = filed(fix(number, size))
            self._by_values[_values_of(one.entry)] = one.entry
            for tag in one.tags:
                if tag.startswith("row "):
                    self._by_tag[tag].append(one.entry)

    def drop(self, row: str) -> list[Entry]:
        """What rests on a row is found no longer."""
        left = self._by_tag.pop(row_tag_of(row))
        for entry in left:
            del self._by_values[_values_of(entry)]
        return left

    def look(self, wanted: dict[str, Any]) -> Entry:
        """What there is for a request, by the fields that are known to matter."""
        return self._by_values[wanted["customer"], wanted["plan"]]


def _values_of(entry: Entry) -> tuple[str, ...]:
    return tuple(entry.condition.when.values())


def _turns_within(longest_s: float) -> int:
    """How often an empty loop turns in so long, when nothing interrupts it."""
    took_s = []
    for _ in range(20):
        started_at = time.perf_counter()
        _idle(_TURNS_TIMED)
        took_s.append(time.perf_counter() - started_at)
    return round(_TURNS_TIMED * longest_s / min(took_s))


def _idle(turn_count: int) -> None:
    for _ in range(turn_count):
        pass


def _says_nothing_new(body: bytes, known: object) -> bool:
    """Whether a body names the versions that are known."""
    return bool(msgspec.json.decode(body)["table_versions"] == known)


class Floor:
    """What a memory does, done bare in the same turns: in a file, or else in this process."""

    def __init__(self, size: int, file: Path | None) -> None:
        self.size = size
        self.took_s: defaultdict[FloorAct, list[float]] = defaultdict(list)
        """In seconds."""
        self._held = _BareTags(size) if file is None else BareFile(file, size)
        self._turn_count = _turns_within(_IDLE_S)
        self._chance = random.Random(size)
        self._rows = rows_with(10, size)
        self._chance.shuffle(self._rows)
        self._next_number = size

    def round(self, recall_count: int, observed_count: int, written_count: int) -> None:
        """All of it, as often as users do it."""
        wanted = [number_that_stays(self._chance, self.size) for _ in range(recall_count)]
        if isinstance(self._held, BareFile):
            self._recall(self._held, wanted, written_count)
        else:
            self._look(self._held, wanted)
        body = unchanged().reply.body
        known = msgspec.json.decode(body)["table_versions"]
        for _ in range(observed_count):
            if isinstance(self._held, BareFile):
                self._timed("floor of nothing new", self._held.nothing_new, body, known)
                self._held.put(self._held.bared(self._next_number))
                self._next_number += 1
            else:
                self._timed("floor of nothing new", _says_nothing_new, body, known)
        if self._rows:
            self._timed("floor of 10", self._evicted, *evicting(self._rows.pop(), {}))

    def _look(self, held: _BareTags, wanted: list[int]) -> None:
        requests = [request(number) for number in wanted]
        acts: tuple[FloorAct, ...] = ("floor of a first look", "floor of a kept answer")
        for act in acts:
            for one in requests:
                self._timed(act, held.look, one)
        for _ in requests:
            self._timed("an idle loop of six microseconds", _idle, self._turn_count)

    def _recall(self, file: BareFile, wanted: list[int], written_count: int) -> None:
        bared = [file.bared(number) for number in wanted]
        for one in bared:
            self._timed("floor of a first look", file.first_look, one)
        for _ in bared:
            self._timed("floor of a kept answer", file.look)
        for one in bared[:written_count]:
            file.written_by_another()
            self._timed("floor after another's write", file.look_after_a_write, one)

    def _evicted(self, exchange: Exchange, answer: Reply) -> list[Evicted]:
        """Both bodies are decoded, the ten are dropped, and it is said that they have left."""
        msgspec.json.decode(exchange.reply.body)
        (told,) = msgspec.json.decode(answer.body)["tables"].values()
        (row,) = told["changed"]
        return [Evicted(entry, Reason.ROW_CHANGED) for entry in self._held.drop(row)]

    def _timed(self, act: FloorAct, function: Callable[..., Any], *args: Any) -> None:
        started_at = time.perf_counter()
        result = function(*args)
        self.took_s[act].append(time.perf_counter() - started_at)
        del result  # to let go of what has left does not count, as it does not for ours
