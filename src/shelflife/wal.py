"""SQLite files for several processes: a write-ahead log, which all of them may want to begin at the same moment."""

import sqlite3
import time

__all__ = ["begin_wal"]

_LOOK_AGAIN_S = 0.01


def begin_wal(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Have the file written ahead. Where another process is just about to do so, SQLite fails at once and does not wait."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            connection.execute("pragma journal_mode = wal")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(_LOOK_AGAIN_S)
