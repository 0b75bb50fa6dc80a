"""May what is remembered be used now? One answer, and what it is made from in this process. Threads may share it."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from shelflife.client.entries import Entry, Root

__all__ = ["Doubts", "Revalidate", "Standing", "Usable", "Withheld", "standing_of"]


class Usable(NamedTuple):
    """Nothing is known against it."""


class Revalidate(NamedTuple):
    """The server must be asked first."""

    why: str


class Withheld(NamedTuple):
    """It is not to be used, and asking would not help."""

    why: str


Standing = Usable | Revalidate | Withheld


def standing_of(entry: Entry, strategy: str, server: Standing) -> Standing:
    """Whether an entry may be used, given the strategy that asks and how its server stands."""
    if entry.strategy != strategy:
        return Withheld("it was kept under another strategy, which may keep what is stale")
    if entry.is_suspect and isinstance(server, Usable):
        return Revalidate("it may have gone stale")
    return server


class Doubts:
    """Servers of which a response was seen that could not be dealt with, is being dealt with, or is not to be believed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unsettled: dict[Root, int] = {}
        self._settling: Counter[Root] = Counter()
        self._told: dict[Root, str] = {}

    def __contains__(self, root: Root) -> bool:
        """Whether something was seen that has not been dealt with."""
        return root in self._unsettled

    def standing_of(self, root: Root) -> Standing:
        """How a server stands."""
        if root in self._unsettled:
            return Revalidate("a response of the server could not be dealt with")
        if self._settling[root]:
            return Withheld("it is being found out what a movement of the server's data makes stale")
        return Usable()

    @contextmanager
    def settling(self, root: Root) -> Iterator[None]:
        """Withhold all that is remembered of a server.

        Two race here: whoever finds out what a movement makes stale, and another thread or task that recalls meanwhile. The
        second gets nothing, for it might get what the first is about to drop.
        """
        with self._lock:
            self._settling[root] += 1
        try:
            yield
        finally:
            with self._lock:
                self._settling[root] -= 1

    def add(self, root: Root) -> None:
        """A response of the server was seen that has not been dealt with."""
        with self._lock:
            self._unsettled[root] = self._unsettled.get(root, 0) + 1

    def since(self, root: Root) -> int | None:
        """Tells one doubt from those that come after it; None when there is none."""
        return self._unsettled.get(root)

    def settle(self, root: Root, doubt: int | None) -> None:
        """A response has been dealt with that was seen after this doubt.

        Two race here: this one, and another that was seen later and failed meanwhile. The doubt that the second has raised stays.
        """
        with self._lock:
            if self._unsettled.get(root) == doubt:
                self._unsettled.pop(root, None)
            self._told.pop(root, None)

    def is_news(self, root: Root, why: str) -> bool:
        """Whether a reason not to believe a server is to be told: once, until it is believed again or there is another."""
        with self._lock:
            is_news = self._told.get(root) != why
            self._told[root] = why
            return is_news

    def forget(self, root: Root) -> None:
        """Tell anew what is held against a server."""
        with self._lock:
            self._told.pop(root, None)
