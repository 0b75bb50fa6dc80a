"""The log in a SQLite file: for all workers of one machine, and for the next start."""

import math
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from shelflife.server.log import Entry
from shelflife.server.sql_log import KIND, SqlLog
from shelflife.server.state import State
from shelflife.sqlite_files import SqliteFile

__all__ = ["SqliteLog"]

_LOOK_OFTEN_S = 0.005
_LOOK_SELDOM_S = 0.02
"""How often a worker looks whether another has written: what has moved of late may soon move again. A look costs some microseconds, which
add up where nothing moves for days."""
_MOVED_OF_LATE_S = 1.0


class SqliteLog(SqlLog):
    """A log in a file. Any number of processes may use it at the same time."""

    now = "((julianday('now') - 2440587.5) * 86400.0)"

    def __init__(self, path: str | Path, *, busy_timeout_s: float = 5.0, read_only: bool = False) -> None:
        """Open the file, or make it unless it is only to be read. `busy_timeout_s` is for how long a change waits for others."""
        self.path = Path(path)
        self.name = str(path)
        self._file = SqliteFile(path, KIND, busy_timeout_s=busy_timeout_s, durable=True, read_only=read_only)
        self._file.open()
        super().__init__(self._file)
        self._seen: tuple[sqlite3.Connection, int] | None = None
        self._moved_at = -math.inf
        """When something was read that others had appended."""

    def read(self, number: int, digest: str) -> Sequence[Entry] | State:
        since = super().read(number, digest)
        if since:
            self._moved_at = time.monotonic()
        return since

    def wait(self, timeout_s: float) -> None:
        """Looks, again and again, at a counter that SQLite raises when another connection has written."""
        until = time.monotonic() + timeout_s
        while (now := time.monotonic()) < until:
            with self._file.reading:
                connection = self._file.connection(is_to_be_there=True)
                seen = connection, connection.execute("pragma data_version").fetchone()[0]
            if seen != self._seen:
                self._seen = seen
                return
            time.sleep(_LOOK_OFTEN_S if now - self._moved_at < _MOVED_OF_LATE_S else _LOOK_SELDOM_S)
