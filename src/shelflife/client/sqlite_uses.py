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
        self._noted: dict[str, tuple[int, str | None]] = {}
        """By id: when it was used, and its place where whoever noted it has said that."""
        self._placed: dict[str, str] = {}
        """By the ids of other entries that were looked at last: their places."""
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
        noted, now = self._noted, time.time_ns()  # as `now` says, and each recall comes by
        self._latest = now = now if now > self._latest else self._latest + 1
        noted[id] = now, place
        return _NOTED_AT_ONCE if len(noted) >= _MOST_NOTED + _NOTED_AT_ONCE else 0

    def place(self, id: str, place: str) -> None:
        """An entry was looked at."""
        if len(self._placed) >= _MOST_PLACED:
            self._placed_before, self._placed = self._placed, {}
        self._placed[id] = place

    def placed_at(self, id: str) -> bytes | None:
        """Where an entry is; None if nobody here has looked at it of late."""
        _, place = self._noted.get(id, (0, None))
        place = place or self._placed.get(id) or self._placed_before.get(id)
        return None if place is None else bytes.fromhex(place)

    def write(self, connection: sqlite3.Connection, count: int) -> None:
        """Write down so many of what was noted first. Others may note more meanwhile."""
        noted: dict[bytes, tuple[int, bytes | None]] = {}
        for id in list(islice(self._noted, count)):
            placed_at = self.placed_at(id)
            used, place = self._noted.pop(id)
            noted[bytes.fromhex(id)] = used, placed_at
            if place is not None:
                self.place(id, place)
        if any(place is None for _, place in noted.values()):  # nobody here has looked at it before
            there = connection.execute("select id, place from entries")
            places = {id: place for id, place in there if id in noted}
            noted = {id: (used, places.get(id)) for id, (used, _) in noted.items()}
        statement = "update entries set used = ? where place = ? and id = ? and used < ?"
        connection.executemany(statement, [(used, place, id, used) for id, (used, place) in noted.items()])
