"""What one process holds against servers at the moment: nothing of them is recalled while it does. Threads may share it."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Doubts"]


class Doubts:
    """Origins of which a response was seen that could not be dealt with, is being dealt with, or is not to be believed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unsettled: dict[str, int] = {}
        self._settling: Counter[str] = Counter()
        self._told: dict[str, str] = {}

    def __contains__(self, origin: str) -> bool:
        """Whether something was seen that has not been dealt with."""
        return origin in self._unsettled

    def is_settling(self, origin: str) -> bool:
        """Whether it is being found out what a movement makes stale."""
        return self._settling[origin] > 0

    @contextmanager
    def settling(self, origin: str) -> Iterator[None]:
        """While this lasts, another thread or task that recalls from the origin gets nothing: it might be what goes."""
        with self._lock:
            self._settling[origin] += 1
        try:
            yield
        finally:
            with self._lock:
                self._settling[origin] -= 1

    def add(self, origin: str) -> None:
        """A response of the origin was seen that has not been dealt with."""
        with self._lock:
            self._unsettled[origin] = self._unsettled.get(origin, 0) + 1

    def since(self, origin: str) -> int | None:
        """Tells one doubt from those that come after it; None when there is none."""
        return self._unsettled.get(origin)

    def settle(self, origin: str, doubt: int | None) -> None:
        """A response has been dealt with that was seen after this doubt; what came up meanwhile stays."""
        with self._lock:
            if self._unsettled.get(origin) == doubt:
                self._unsettled.pop(origin, None)
            self._told.pop(origin, None)

    def is_news(self, origin: str, why: str) -> bool:
        """Whether a reason not to believe an origin is to be told: once, until it is believed again or there is another."""
        with self._lock:
            is_news = self._told.get(origin) != why
            self._told[origin] = why
            return is_news

    def forget(self, origin: str) -> None:
        """Tell anew what is held against an origin."""
        with self._lock:
            self._told.pop(origin, None)
