"""How often an operator may reload: a bound on how much a stolen token, or a runaway job, can make clients forget."""

import threading
import time
from collections.abc import Callable

from shelflife.server.errors import UsageError

__all__ = ["ReloadLimit"]


class ReloadLimit:
    """So many reloads in any stretch of a minute; a burst of them may come at once."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        if per_minute < 1:
            raise UsageError(f"at least one reload a minute must be allowed, not {per_minute}")
        self._per_minute = per_minute
        self._clock = clock
        self._lock = threading.Lock()
        self._left = float(per_minute)
        self._seen_at = clock()

    def wait_s(self) -> float:
        """Take one; 0 when it may go on, else for how many seconds nothing may."""
        with self._lock:
            now = self._clock()
            self._left = min(
                float(self._per_minute), self._left + (now - self._seen_at) * self._per_minute / 60
            )
            self._seen_at = now
            if self._left < 1:
                return (1 - self._left) * 60 / self._per_minute
            self._left -= 1
            return 0.0

    def give_back(self) -> None:
        """What was taken was not needed: nothing changed."""
        with self._lock:
            self._left = min(float(self._per_minute), self._left + 1)
