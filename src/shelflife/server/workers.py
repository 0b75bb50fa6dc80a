"""Whether this process is one of several that serve the same app."""

import sys
from types import FrameType

__all__ = ["worker_count"]

_SERVERS = ("uvicorn", "gunicorn", "hypercorn")
"""Servers that start several processes. Their settings are found where they run: nothing else tells of the others."""


def worker_count() -> int:
    """How many worker processes the server around this call says that it has; 1 when none does."""
    frame: FrameType | None = sys._getframe()
    count = 1
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in _SERVERS:
            running, config = frame.f_locals.get("self"), frame.f_locals.get("config")
            for holder in (config, getattr(running, "config", None), getattr(running, "cfg", None)):
                workers = getattr(holder, "workers", None)
                count = max(count, workers) if isinstance(workers, int) else count
        frame = frame.f_back
    return count
