"""A line that says how far a long piece of work is, for people at a terminal."""

import sys
import time
from types import TracebackType

__all__ = ["Progress"]

_WIDTH = 30
_EVERY_S = 0.1


class Progress:
    """Shown on standard error, and only where that is a terminal."""

    def __init__(self, total: int, what: str) -> None:
        self._total = total
        self._what = what
        self._found = 0
        self._done = 0
        self._begun_at = time.monotonic()
        self._shown_at = 0.0
        self._is_shown = sys.stderr.isatty()

    def find(self, count: int) -> None:
        """So many were there already: they count as done, but not towards the speed."""
        self._found += count
        self._show()

    def advance(self, count: int) -> None:
        """So many more are done."""
        self._done += count
        self._show()

    def _show(self) -> None:
        now = time.monotonic()
        if self._is_shown and now - self._shown_at >= _EVERY_S:
            self._shown_at = now
            print(f"\r\x1b[K{self._line(now)}", end="", file=sys.stderr, flush=True)

    def _line(self, now: float) -> str:
        there = min(self._found + self._done, self._total)
        filled = _WIDTH * there // max(1, self._total)
        bar = "█" * filled + "░" * (_WIDTH - filled)
        line = f"{bar} {there:,} of {self._total:,} {self._what}"
        if not self._done:
            return line
        left_s = (now - self._begun_at) / self._done * (self._total - there)
        left = f"{left_s / 60:.0f} min" if left_s >= 120 else f"{left_s:.0f} s"
        return f"{line}, about {left} left"

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
