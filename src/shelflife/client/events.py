"""What a memory does, as one closed set of events. Tests, logs and whoever subscribes read the same ones."""

from enum import StrEnum
from typing import Any

import msgspec

from shelflife.client.entries import Entry, Root

__all__ = [
    "Alerted",
    "Applied",
    "Distrusted",
    "Event",
    "Evicted",
    "Ignored",
    "LogLost",
    "Reason",
    "Refused",
    "Restamped",
    "Saved",
    "StoreFailed",
    "Stored",
    "Suspected",
    "Unjudged",
]


class Reason(StrEnum):
    """Why an entry left."""

    ROW_CHANGED = "a row it rests on has changed"
    DOWNSTREAM = "it lies downstream of a row that has changed"
    TABLE_MOVED = "a table it depends on has moved, and no answer has told which rows"
    IN_DOUBT = "the server may be at another state, and could not be asked"
    RULE_CHANGED = "a rule it rests on has changed"
    RULES_MOVED = "the rules have changed, and it cannot be told which"
    VECTOR_SHRANK = "its kind of fix no longer depends on a table that it depends on"
    REPLACED = "the server has given another value for the same fields"
    UNCONFIRMED = "it was suspect, and the server did not give it again when it was asked"
    ANOTHER_STRATEGY = "it was kept under another strategy, which may keep what is stale"
    CAPACITY = "the memory was full, and it had not been used for the longest time"
    FORGOTTEN = "somebody asked to forget it"

    is_invalidation: bool
    """Whether the entry left because something that it rests on has changed, or may have."""


_NO_INVALIDATIONS = (
    Reason.REPLACED,
    Reason.UNCONFIRMED,
    Reason.ANOTHER_STRATEGY,
    Reason.CAPACITY,
    Reason.FORGOTTEN,
)
for _reason in Reason:
    _reason.is_invalidation = _reason not in _NO_INVALIDATIONS


class Stored(msgspec.Struct, frozen=True, tag=True):
    """A fix was learned, or one that had to be revalidated was given again."""

    entry: Entry
    """As it is remembered."""


class Evicted(msgspec.Struct, frozen=True, tag=True):
    """An entry left.

    Something that it rests on has changed, or may have; another value took its place; it was suspect, and the server did not give it again;
    another strategy had kept it; the memory was full; or somebody asked to forget it.
    """

    entry: Entry
    """What has left."""

    reason: Reason
    """Why."""


class Suspected(msgspec.Struct, frozen=True, tag=True):
    """Entries are kept, and must be revalidated before they are used.

    A rule that they rest on has changed, or the policy that gave them; too many would have been evicted; or the server moved on as they
    were learned.
    """

    root: Root
    entries: tuple[Entry, ...]
    why: str

    @property
    def count(self) -> int:
        """How many they are."""
        return len(self.entries)


class LogLost(msgspec.Struct, frozen=True, tag=True):
    """What was known of a server is not in its log, or too far back: it was restarted, restored, or replaced.

    All that is remembered of it is kept, and must be revalidated before it is used.
    """

    root: Root
    several: bool
    """Whether a log that was left has come back, or logs are lost again and again: then several answer here, and everything is revalidated
    before each use."""


class Restamped(msgspec.Struct, frozen=True, tag=True):
    """A table has moved, and entries that depend on it are still good."""

    root: Root
    """The server."""

    table: str
    """The table that has moved."""

    count: int
    """How many entries depend on it."""


class Alerted(msgspec.Struct, frozen=True, tag=True):
    """The rules of a server have changed."""

    root: Root
    noticed_by: str
    """`stamp` when `rules_version` moved, `vector` when a suggestion depends on other tables than its like did."""


class Applied(msgspec.Struct, frozen=True, tag=True):
    """An entry was written into an outgoing request."""

    entry: Entry
    fields: dict[str, Any]
    """What was set; None where a field was taken away."""


class Saved(msgspec.Struct, frozen=True, tag=True):
    """A request was accepted with remembered values in it, and had not been refused before: without them it would have been.

    A tool whose outcome says nothing of the contract counts as accepted when it returns, and no failure can be seen in what it returns.
    One that mends a request which was refused, and differs from that only where the refusal had a fix, does not count.
    """

    root: Root
    operation: str


class Refused(msgspec.Struct, frozen=True, tag=True):
    """An entry was kept out of an outgoing request: by the guard, because it contradicts another, at the end of a long chain, or because the
    tool would not take it."""

    entry: Entry
    why: str


class Ignored(msgspec.Struct, frozen=True, tag=True):
    """Nothing was learned, and why. The reason is one of these:

    - A suggestion was malformed, too large or one too many for its operation, and was left out.
    - It is of no state that the reply names.
    - The request has in it what JSON cannot carry.
    - The stamps were malformed, the body was not read to its end, or no headers came with it. Or a tool has failed with remembered values,
      and what it says of the contract cannot be read, or is nothing. Then the server is in doubt, if anything is
      known of it: nothing of it is recalled until it has answered.
    - Keys are pinned, and the reply is of another state.
    - A reply has said that a contract lives at some path, and none answers there: the path is forgotten.
    """

    root: Root
    why: str


class Distrusted(msgspec.Struct, frozen=True, tag=True):
    """No key that counts vouches for what a server says of its state: nothing is evicted, learned or recalled until one does."""

    root: Root
    why: str


class Unjudged(msgspec.Struct, frozen=True, tag=True):
    """A request with remembered values in it may have been carried out, and nobody has found its precondition to be met.

    The server did not look, or went on regardless.
    """

    root: Root
    operation: str


class StoreFailed(msgspec.Struct, frozen=True, tag=True):
    """The store does not work; the agent goes on without memory. Told once until it works again."""

    why: str


Event = (
    Stored
    | Evicted
    | Suspected
    | LogLost
    | Restamped
    | Alerted
    | Applied
    | Saved
    | Refused
    | Ignored
    | Distrusted
    | Unjudged
    | StoreFailed
)
"""Any of them."""
