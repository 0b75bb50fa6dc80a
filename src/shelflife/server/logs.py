"""The log that a path or a URL names, and what is declared over it."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from shelflife.contract import Rule
from shelflife.places import POSTGRES, Place, place_of
from shelflife.server.declaring import GivenTables
from shelflife.server.errors import BadSetting, LogError
from shelflife.server.log import Log
from shelflife.server.registry import Registry
from shelflife.server.sql_log import SqlLog
from shelflife.server.sqlite_log import SqliteLog

__all__ = ["is_file", "log_at", "registry_of"]


def is_file(where: str | Path) -> str | None:
    """The path of the file that a log is in; None when it is in a schema of a PostgreSQL."""
    scheme, name = _place_of(where)
    return None if scheme else name


def _place_of(where: str | Path) -> Place:
    try:
        return place_of(where, "log", POSTGRES, "sqlite:/// or postgresql://")
    except ValueError as error:
        raise LogError(str(error)) from None


def log_at(where: str | Path, *, read_only: bool = False) -> SqlLog:
    """A log in a file, or in a schema of a PostgreSQL, which needs the extra `postgres`. What is only read is not made where there is none."""
    scheme, name = _place_of(where)
    if scheme:
        from shelflife.server.postgres_log import PostgresLog  # only here: most have no PostgreSQL

        return PostgresLog(name, read_only=read_only)
    return SqliteLog(name, read_only=read_only)


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
