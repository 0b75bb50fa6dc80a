"""What a memory has done, hour by hour: kept beside what it holds, for people who watch it or look back."""

import atexit
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, runtime_checkable
from weakref import WeakSet

from shelflife.client.entries import Root
from shelflife.errors import ShelflifeError
from shelflife.forks import Locking

__all__ = ["HOUR_S", "Counting", "Diary", "DiaryError", "KeepsDiary", "Noted"]

_log = logging.getLogger("shelflife.memory")

HOUR_S = 3600
_EVERY_S = 2.0
"""So long what was counted waits at most before it is written, as long as something happens. A process that is killed takes it along."""

_MOST_ROOTS = 1_000
_OTHERS = "others"
"""Stands for the servers beyond these: replies may send an agent to ever new ones."""


class Noted(NamedTuple):
    """How often something happened in an hour."""

    hour: int
    """Since 1970, in hours."""

    root: Root
    """The server; empty for what is about none."""

    what: str
    """`hits`, `misses`, `saved`, or the name of an event in lower case; `evicted` with the reason after a colon."""

    times: int


class Diary(Protocol):
    """Where a memory's counts are kept, of all processes that use it."""

    def add(self, noted: Iterable[Noted]) -> None:
        """Add to what is there. May raise `ShelflifeError`."""

    def read(self) -> list[Noted]:
        """All that is there, the oldest first."""


@runtime_checkable
class KeepsDiary(Protocol):
    """A store that has room for a diary."""

    @property
    def diary(self) -> Diary:
        """The diary of all who use it."""


class DiaryError(ShelflifeError):
    """The diary cannot be read or written."""


class Counting(Locking):
    """Counts by server what a memory does, and writes it into its diary now and then. Threads may share it."""

    def __init__(self, diary: Diary | None, clock: Callable[[], float]) -> None:
        self._diary = diary
        self._clock = clock
        self.by_root: dict[Root, Counter[str]] = {}
        self._written: dict[Root, Counter[str]] = {}
        self._last_at: float | None = None
        self._is_failing = False
        super().__init__()
        if diary is not None:
            _living.add(self)

    def count(self, root: Root, what: str, count: int = 1) -> None:
        """Something happened."""
        with self._lock:
            counts = self.by_root.get(root)
            if counts is None:
                counts = self.by_root.setdefault(
                    root if len(self.by_root) < _MOST_ROOTS else _OTHERS, Counter()
                )
            counts[what] += count

    @property
    def total(self) -> Counter[str]:
        """What happened, of all servers together."""
        with self._lock:
            return sum(self.by_root.values(), Counter())

    def after_fork_in_child(self) -> None:
        """The parent writes what it has counted."""
        super().after_fork_in_child()
        self._written = {root: counts.copy() for root, counts in self.by_root.items()}

    def write_if_due(self) -> None:
        """Write what was counted, unless that was done a moment ago."""
        if self._diary is None:
            return
        now = self._clock()
        if self._last_at is None:
            self._last_at = now
        elif not 0 <= now - self._last_at < _EVERY_S:  # also when the clock was set back
            self.write()

    def write(self) -> None:
        """Write what was counted since the last time. What cannot be written waits for the next time; it is said once."""
        diary, now = self._diary, self._clock()
        if diary is None:
            return
        with self._lock:
            self._last_at = now
            hour = int(now // HOUR_S)
            news = {
                root: counts - self._written.get(root, Counter()) for root, counts in self.by_root.items()
            }
            noted = [
                Noted(hour, root, what, count)
                for root, counts in news.items()
                for what, count in counts.items()
            ]
            self._add_up(news, 1)
        if not noted:
            return
        try:
            diary.add(noted)
            self._is_failing = False
        except ShelflifeError as error:
            if not self._is_failing:
                _log.warning("%s; what the memory does is not noted", error)
            self._is_failing = True
            with self._lock:
                self._add_up(news, -1)

    def _add_up(self, news: dict[Root, Counter[str]], sign: int) -> None:
        for root, counts in news.items():
            written = self._written.setdefault(root, Counter())
            for what, count in counts.items():
                written[what] += sign * count


_living: WeakSet[Counting] = WeakSet()


@atexit.register
def _write_all() -> None:
    """Agents are often short-lived, and seldom close their memory."""
    for counting in list(_living):
        counting.write()
