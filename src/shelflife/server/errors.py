"""The errors of the server side.

ServerError
├── UsageError            the provider's own code or set-up is wrong: when it is made, when its app starts, in a check
├── SourceError           a file or query does not give a table
├── ReloadRefused         an operator's reload is wrong; nothing has changed
│   ├── UnknownTable
│   └── VersionTaken      the version string already stands for other content
├── StateFileError        the state file cannot be read or written; nothing has changed
├── MalformedRequest      a policy refuses a request that holds what JSON cannot carry: the client's mistake
└── PolicyFailed          a policy raised, or returned what is not a fix: the provider's bug

Refusal                   no error of ours: a request is refused (see `policies`)
├── Rejected              it violates a policy
└── PreconditionFailed    what its remembered values rest on has moved
"""

__all__ = [
    "MalformedRequest",
    "PolicyFailed",
    "ReloadRefused",
    "ServerError",
    "SourceError",
    "StateFileError",
    "UnknownTable",
    "UsageError",
    "VersionTaken",
    "leaves_of",
]

from collections.abc import Iterator

from shelflife.contract.names import shown


class ServerError(Exception):
    """Any error of the server side. The message is one sentence."""


class UsageError(ServerError):
    """The provider's own code or set-up is wrong."""


class SourceError(ServerError):
    """A file or a query does not give a table."""


class ReloadRefused(ServerError):
    """An operator's reload is wrong; nothing has changed."""


class UnknownTable(ReloadRefused):
    """A reload of a table that is not loaded."""

    def __init__(self, table: object) -> None:
        super().__init__(f"there is no table called {shown(table)}")
        self.table = table


class VersionTaken(ReloadRefused):
    """A version string that already stands for other content of the same table."""

    def __init__(self, table: str, version: str) -> None:
        super().__init__(
            f"version {version} of table {table} was used before for other content; choose another one"
        )
        self.table = table
        self.version = version


class StateFileError(ServerError):
    """The state file cannot be read or written; nothing has changed."""


class MalformedRequest(ServerError):
    """A request that no suggestion could be for: it holds what JSON cannot carry. The message names the field."""


class PolicyFailed(ServerError):
    """A policy raised, or returned what is not a fix. The cause is for the log, never for the wire."""

    def __init__(self, policy: str, cause: Exception) -> None:
        super().__init__(f"the policy {policy} failed: {type(cause).__name__}: {cause}")
        self.policy = policy


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group, at any depth; an error that is no group is its own."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves_of(inner)
    else:
        yield error
