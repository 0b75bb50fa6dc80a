"""A diary in the engine that keeps the memory: of all processes on all machines."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from shelflife.client.diary import Noted

__all__ = ["RemoteDiary"]


class RemoteDiary(NamedTuple):
    """What a store on another machine has for its diary: how to call on the engine, and what is done there."""

    called: Callable[[str, Callable[[], Any]], Any]
    adding: Callable[[list[Noted]], None]
    reading: Callable[[int], list[Noted]]

    def add(self, noted: Iterable[Noted]) -> None:
        """Add to what is there. Always in one order, so that of two who do this neither waits for the other for ever."""
        self.called("written", partial(self.adding, sorted(noted)))

    def read(self, since: int = 0) -> list[Noted]:
        """All that is there from this hour on, the oldest first."""
        found: list[Noted] = self.called("read", partial(self.reading, since))
        return sorted(found)
