"""The log that a path or a URL names."""

from pathlib import Path

from shelflife.server.sql_log import SqlLog
from shelflife.server.sqlite_log import SqliteLog

__all__ = ["is_url", "log_at"]


def is_url(place: str | Path) -> bool:
    """Whether it names a schema of a PostgreSQL, and not a file."""
    return str(place).startswith(("postgresql://", "postgres://"))


def log_at(place: str | Path) -> SqlLog:
    """A log in a file, or in a schema of a PostgreSQL, which needs the extra `postgres`."""
    if is_url(place):
        from shelflife.server.postgres_log import PostgresLog  # only here: most have no PostgreSQL

        return PostgresLog(str(place))
    return SqliteLog(place)
