"""What a memory has done, hour by hour: kept beside what it holds, for people who watch it or look back."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, runtime_checkable

from shelflife.client.entries import Root

__all__ = ["HOUR_S", "KEPT_HOURS", "Diary", "KeepsDiary", "Noted"]

HOUR_S = 3600
KEPT_HOURS = 24 * 366
"""So many hours in which something happened are kept. A clock that is wrong takes nothing away from those that are right. A Valkey
keeps each hour for so long after it was last added to."""


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
        """Add to what is there. May raise `StoreError`."""

    def read(self, since: int = 0) -> list[Noted]:
        """All that is there from this hour on, the oldest first."""

    def at_the_end(self, write: Callable[[], bool]) -> None:
        """Whoever writes here was collected, or the program ends: have the last of it written, if that can be done.

        `write` tells whether nothing is left to write.
        """


@runtime_checkable
class KeepsDiary(Protocol):
    """A store that has room for a diary."""

    diary: Diary | None
    """The diary of all who use it; None, before a memory is made of it, and nothing is noted."""
