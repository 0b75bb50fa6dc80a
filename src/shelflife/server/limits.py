"""How large reloads may be, and how frequent: what a stolen token or a runaway job can make clients
forget."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from shelflife.server.errors import BadSetting

__all__ = ["ReloadBudget", "ReloadLimits"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReloadLimits:
    """What an operator may send over HTTP, to each worker process. Code that calls the registry has no limits."""

    most_bytes: int = 64 * 1024 * 1024
    """How large the body of one reload may be."""

    per_minute: int | None = None
    """How many reloads that change something may come at once, and again in the course of each minute; None for any number."""

    def __post_init__(self) -> None:
        if self.most_bytes < 1:
            raise BadSetting(f"a reload must be allowed at least one byte, not {self.most_bytes}")
        if self.per_minute is not None and self.per_minute < 1:
            raise BadSetting(f"at least one reload a minute must be allowed, not {self.per_minute}")


class ReloadBudget:
    """What is left of the reloads of a minute. A burst of them may come at once."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._lock = threading.Lock()
        self._left = float(per_minute)
        self._seen_at = clock()

    def wait_s(self) -> float:
        """Take one: 0 when it may go on, else the seconds until one is left."""
        with self._lock:
            now = self._clock()
            self._left = min(self._per_minute, self._left + (now - self._seen_at) * self._per_minute / 60)
            self._seen_at = now
            if self._left < 1:
                return (1 - self._left) * 60 / self._per_minute
            self._left -= 1
            return 0.0

    def give_back(self) -> None:
        """Return one that was not needed, because nothing changed."""
        with self._lock:
            self._left = min(self._per_minute, self._left + 1)
