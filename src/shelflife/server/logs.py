"""The log that a path or a URL names, and what is declared over it."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from shelflife.contract import Rule
from shelflife.server.declaring import GivenTables
from shelflife.server.errors import BadSetting
from shelflife.server.log import Log
from shelflife.server.registry import Registry
from shelflife.server.sql_log import SqlLog
from shelflife.server.sqlite_log import SqliteLog

__all__ = ["is_url", "log_at", "registry_of"]


def is_url(place: str | Path) -> bool:
    """Whether it names a schema of a PostgreSQL, and not a file."""
    return str(place).startswith(("postgresql://", "postgres://"))


def log_at(place: str | Path) -> SqlLog:
    """A log in a file, or in a schema of a PostgreSQL, which needs the extra `postgres`."""
    if is_url(place):
        from shelflife.server.postgres_log import PostgresLog  # only here: most have no PostgreSQL

        return PostgresLog(str(place))
    return SqliteLog(place)


def registry_of(
    tables: GivenTables,
    rules: Iterable[Rule],
    versions: Mapping[str, str] | None,
    log: str | Path | Log | None,
    stale_for_s: float,
) -> Registry:
    """The registry of what is declared. When that fails, no log is left open."""
    given: object = tables
    if not isinstance(given, Mapping):
        kind = type(given).__name__
        raise BadSetting(f'a Provider takes its tables by name, as in {{"codes": {{…}}}}, not a {kind}')
    shared_log = log_at(log) if isinstance(log, str | Path) else log
    try:
        return Registry(tables, rules, versions=versions, log=shared_log, stale_for_s=stale_for_s)
    except BaseException:
        if shared_log is not None:
            shared_log.close()
        raise
