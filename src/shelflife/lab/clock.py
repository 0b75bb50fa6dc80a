"""Where the time of a run goes."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from shelflife.lab.records import RunEnded

__all__ = ["Clock"]


class Clock:
    """Counts the time of the parts of a run."""

    def __init__(self) -> None:
        self._spent_s: Counter[str] = Counter()

    @contextmanager
    def running(self, what: str) -> Iterator[None]:
        """Count the time of a block."""
        begun_at = time.perf_counter()
        try:
            yield
        finally:
            self._spent_s[what] += time.perf_counter() - begun_at  # type: ignore[assignment]

    def timing_app(self, app: Any) -> Any:
        """The app, with the time that it takes counted."""

        async def timed(scope: Any, receive: Any, send: Any) -> None:
            # the time of a question is counted where it is asked, and a lifespan is as long as the run
            is_request = scope["type"] == "http" and not scope["path"].startswith("/contract/")
            with self.running("server") if is_request else nullcontext():
                await app(scope, receive, send)

        return timed

    def as_record(self) -> RunEnded:
        """What was counted; the time of HTTP is without that of the server, that of the memory without its questions and requests."""
        spent = self._spent_s
        return RunEnded(
            planner_s=spent["planner"],
            memory_s=max(0.0, spent["memory"] - spent["questions"] - spent["http"]),
            server_s=spent["server"],
            http_s=max(0.0, spent["http"] - spent["server"]),
            questions_s=spent["questions"],
            whole_s=spent["whole"],
        )
