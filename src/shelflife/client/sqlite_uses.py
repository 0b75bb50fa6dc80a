"""When the entries of a SQLite file were used, as long as that is not written there, and where those are that were looked at last."""

import sqlite3
import time
from itertools import islice

__all__ = ["Uses"]

_MOST_NOTED = 4_096
_NOTED_AT_ONCE = 256
"""More uses than these are not noted in memory alone: so many, those that were noted first, are written then."""

_MOST_PLACED = 16_384


class Uses:
    """Threads may share it. One that is lost does no harm."""

    def __init__(self) -> None:
        self._noted: dict[str, int] = {}
        """By id: when it was used."""
        self._placed: dict[str, str] = {}
        """By the ids of entries that were looked at last: their places."""
        self._placed_before: dict[str, str] = {}
        self._latest = 0

    def __len__(self) -> int:
        """How many are not written yet."""
        return len(self._noted)

    def now(self) -> int:
        """When something is used: the time, but later than all that was used before it."""
        now = time.time_ns()
        if now <= self._latest:
            now = self._latest + 1
        self._latest = now
        return now

    def note(self, id: str, place: str | None = None) -> int:
        """It was used. Tells how many uses are to be written now: most often none."""
        self._noted[id] = self.now()
        if place is not None and id not in self._placed:
            self.place(id, place)
        return _NOTED_AT_ONCE if len(self._noted) >= _MOST_NOTED + _NOTED_AT_ONCE else 0

    def place(self, id: str, place: str) -> None:
        """An entry was looked at."""
        if len(self._placed) >= _MOST_PLACED:
            self._placed_before, self._placed = self._placed, {}
        self._placed[id] = place

    def placed_at(self, id: str) -> bytes | None:
        """Where an entry is; None if nobody here has looked at it of late."""
        place = self._placed.get(id) or self._placed_before.get(id)
        return None if place is None else bytes.fromhex(place)

    def write(self, connection: sqlite3.Connection, count: int) -> None:
        """Write down so many of what was noted first. Others may note more meanwhile."""
        noted = {bytes.fromhex(id): self._noted.pop(id) for id in list(islice(self._noted, count))}
        rows = [(used, self.placed_at(id.hex()), id, used) for id, used in noted.items()]
        if any(place is None for _, place, _, _ in rows):  # nobody here has looked at it before
            there = connection.execute("select id, place from entries")
            places = {id: place for id, place in there if id in noted}
            rows = [(used, places.get(id), id, used) for id, used in noted.items()]
        statement = "update entries set used = ? where place = ? and id = ? and used < ?"
        connection.executemany(statement, rows)
