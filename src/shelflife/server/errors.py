"""The errors of the server side. `shelflife.errors` draws the whole tree; refusals are in `policies`."""

from collections.abc import Iterator

from shelflife.contract.names import shown
from shelflife.errors import ShelflifeError

__all__ = [
    "BadRow",
    "BadRule",
    "BadSetting",
    "LogError",
    "MalformedRequest",
    "Overtaken",
    "PolicyFailed",
    "ReloadRefused",
    "ServerError",
    "SourceError",
    "TableMoved",
    "UnknownTable",
    "UsageError",
    "VersionTaken",
    "leaves_of",
]


class ServerError(ShelflifeError):
    """Any error of the server side. The message is one sentence."""


class UsageError(ServerError):
    """The provider's own code or set-up is wrong: when it is made, when its app starts, or in a check."""


class BadSetting(UsageError, ValueError):
    """A setting has a value that it cannot have."""


class SourceError(ServerError):
    """A file or a query does not give a table."""


class BadRow(ServerError, ValueError):
    """A key or a row that a table cannot hold."""


class BadRule(ServerError, ValueError):
    """A rule that contradicts another, or names what is not there."""


class ReloadRefused(ServerError):
    """An operator's reload is wrong; nothing has changed."""


class UnknownTable(ReloadRefused):
    """There is no such table."""

    def __init__(self, table: object) -> None:
        super().__init__(f"there is no table called {shown(table)}")
        self.table = table


class TableMoved(ReloadRefused):
    """A table is at another version by now than the one that a reload is to replace."""

    def __init__(self, table: str, version: str, replaces: str) -> None:
        super().__init__(
            f"the table {table} is at version {version}, and this reload is to replace {shown(replaces)}"
        )
        self.table = table
        self.version = version


class VersionTaken(ReloadRefused):
    """A version that already stands for other content of the same table."""

    def __init__(self, table: str, version: str) -> None:
        super().__init__(
            f"version {version} of table {table} was used before for other content; choose another one"
        )
        self.table = table
        self.version = version


class LogError(ServerError):
    """The log cannot be read or written; nothing has changed."""


class Overtaken(LogError):
    """Others have changed the tables at the same time, and were faster; nothing has changed."""


class MalformedRequest(ServerError):
    """A request holds what JSON cannot carry, so no suggestion could be for it. The message names the
    field."""


class PolicyFailed(ServerError):
    """A policy raised, or returned what is no fix. The cause is for the log, never for the wire."""

    def __init__(self, policy: str, cause: Exception) -> None:
        super().__init__(f"the policy {policy} failed: {type(cause).__name__}: {cause}")
        self.policy = policy


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group, at any depth. An error that is no group is its own."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves_of(inner)
    else:
        yield error
