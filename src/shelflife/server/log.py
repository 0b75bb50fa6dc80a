"""The log: every change of a provider's tables, rules and policies, one after another. A state is what they come to up to a position."""

import hashlib
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import msgspec

from shelflife.contract import Rule
from shelflife.contract.positions import CHECK_LENGTH
from shelflife.server.delta import Delta

if TYPE_CHECKING:
    from shelflife.server.state import State

__all__ = [
    "MOST_ENTRIES",
    "MOST_ROWS",
    "Change",
    "Declared",
    "Entry",
    "Header",
    "InProcessLog",
    "Log",
    "PoliciesChange",
    "RulesChange",
    "TableChange",
    "bounded",
    "check_over",
    "entries_since",
    "with_header",
]

MOST_ENTRIES = 1024
MOST_ROWS = 100_000
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CHARACTERS = _LETTERS + "0123456789"

Declared = Mapping[str, Mapping[str, str]]
"""What code has declared: of each table a digest of every row, by key, and of the rules likewise. It is enough to see next time what is
declared otherwise."""


class TableChange(msgspec.Struct, frozen=True):
    """What happened to a table."""

    old_version: str | None
    """The version that it ended; None for a table that is new."""

    version: str
    content: str
    """What its content is called now, in hexadecimal."""

    delta: Delta
    downstream: tuple[str, ...] = ()
    """What lay downstream of the rows that changed or went, in the graph as it was."""


class RulesChange(msgspec.Struct, frozen=True):
    """Other rules hold. It does not say which others do: whoever makes it need not know them all."""

    added: tuple[Rule, ...]
    removed: tuple[Rule, ...]


class PoliciesChange(msgspec.Struct, frozen=True):
    """Other policies hold: each by its name, with the fingerprint of its code."""

    before: dict[str, str]
    after: dict[str, str]


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """All that happened at once. It may be nothing that clients are told of."""

    tables: dict[str, TableChange] = {}
    rules: RulesChange | None = None
    policies: PoliciesChange | None = None

    @cached_property  # each reload asks all that are kept
    def size(self) -> int:
        """How many rows are on record for it."""
        return sum(len(one.delta) + len(one.downstream) for one in self.tables.values())


class Entry(msgspec.Struct, frozen=True):
    """A change in its place."""

    number: int
    """How many changes there are with this one."""

    previous: str
    """The digest of the entry before it."""

    digest: str
    """Over all that there is up to here."""

    change: Change
    at: float = 0.0
    """When it was made, in seconds since 1970, by the clock of whoever has made it; 0 when that was not noted."""

    by: str = ""
    """Who says that they have made it; empty for what code has declared or read again."""

    @property
    def header(self) -> "Header":
        """What stays known of it when its rows are too many to be kept."""
        change = self.change
        return Header(
            self.number,
            self.at,
            self.by,
            {name: len(one.delta) for name, one in change.tables.items()},
            change.rules is not None,
            change.policies is not None,
            tuple(name for name, one in change.tables.items() if one.old_version is None),
        )


class Header(msgspec.Struct, frozen=True, array_like=True):
    """That there was a change: small, so that it is kept for longer than the change."""

    number: int
    at: float
    by: str
    tables: dict[str, int]
    """How many rows differ, by table."""

    has_rules: bool
    has_policies: bool
    new: tuple[str, ...] = ()
    """Those of the tables that were not there before."""


def check_over(log_id: str, digest: str) -> str:
    """The check of a position: over the log and all that is in it up to there."""
    number = int.from_bytes(hashlib.sha256(f"{log_id} {digest}".encode()).digest(), "big")
    check = ""
    for alphabet in (_LETTERS, *[_CHARACTERS] * (CHECK_LENGTH - 1)):
        number, index = divmod(number, len(alphabet))
        check += alphabet[index]
    return check


def bounded(tail: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The newest entries of a tail that fit its bounds."""
    size = 0
    for age, entry in enumerate(reversed(tail)):
        size += entry.change.size
        if age == MOST_ENTRIES or size > MOST_ROWS:
            return tail[len(tail) - age :]
    return tail


def with_header(made: tuple[Header, ...], entry: Entry) -> tuple[Header, ...]:
    """The newest headers of entries that fit their bound, with one more."""
    return (*made, entry.header)[-MOST_ENTRIES:]


def entries_since(tail: Sequence[Entry], number: int, digest: str) -> Sequence[Entry] | None:
    """The entries after a position; None when it is not in the tail, or just before it."""
    at = number - tail[0].number + 1 if tail else -1
    if not 0 <= at <= len(tail):
        return None
    found = tail[at].previous if at < len(tail) else tail[-1].digest
    return tail[at:] if found == digest else None


class Log(Protocol):
    """Where the changes are kept.

    Any number of registries may share one log. Each folds what it reads into a state of its own. Every verb may raise
    `LogError`; then nothing has changed, or the error says that this is not known.
    """

    def open(self, first: "State", declared: Declared) -> "State":
        """The state at the end of the log. An empty log begins with the one given."""

    def append(self, entry: Entry, after: "State", declared: Declared) -> bool:
        """Add an entry, with what the code declares now of some tables; False, and nothing done, when somebody was faster.

        `after` is the state that it leads to, as far as whoever appends knows the tables; for a log that keeps states as they are.
        """

    def read(self, number: int, digest: str) -> "Sequence[Entry] | State":
        """What came after a position. Where that is not known any more, or not in this log, the whole state."""

    def declared(self) -> Declared:
        """What was declared last."""

    def wait(self, timeout_s: float) -> None:
        """Wait until something may have been appended, or the time is over."""

    def note(self, worker: str, number: int, for_s: float) -> None:
        """A worker has come as far as this number, and may go on from there for so many seconds without a word. With 0 it has ended."""

    def workers(self) -> Mapping[str, int]:
        """How far each worker has come that has not ended, and whose time is not over."""

    def share(self, worker: str, seen: bytes, for_s: float) -> None:
        """What a worker has seen, for the others, in the place of what it shared before. It is kept for so many seconds."""

    def shared(self, begins: str) -> Mapping[str, bytes]:
        """What workers have shared whose names begin so."""

    def count(self, added: Mapping[str, int]) -> None:
        """Add to what is counted, by name, for all workers and for good."""

    def counted(self) -> Mapping[str, int]:
        """What all of it comes to."""

    def close(self) -> None:
        """Let go of whatever is open, until it is needed again."""


class InProcessLog:
    """A log for one process, gone when it ends. The next one is another log, also when it begins with the same."""

    def __init__(self, state: "State | None" = None) -> None:
        """It may begin with a state of another log, as a copy of that."""
        self._state = state
        self._declared: Declared = {}
        self._counted: Mapping[str, int] = {}
        self._appended = threading.Condition()

    def open(self, first: "State", declared: Declared) -> "State":
        with self._appended:
            self._declared = self._declared or declared
            self._state = self._state or first
            return self._state

    def append(self, entry: Entry, after: "State", declared: Declared) -> bool:
        with self._appended:
            state = self._opened
            if (state.number, state.digest) != (entry.number - 1, entry.previous):
                return False
            self._state = after if state.tables.keys() <= after.tables.keys() else state.after(entry)
            self._declared = {**self._declared, **declared}
            self._appended.notify_all()
            return True

    def read(self, number: int, digest: str) -> "Sequence[Entry] | State":
        state = self._opened
        if (state.number, state.digest) == (number, digest):
            return ()
        since = entries_since(state.tail, number, digest)
        return state if since is None else since

    def declared(self) -> Declared:
        return self._declared

    def wait(self, timeout_s: float) -> None:
        with self._appended:
            self._appended.wait(timeout_s)

    def note(self, worker: str, number: int, for_s: float) -> None:
        """There is only one, and it knows how far it has come."""

    def workers(self) -> Mapping[str, int]:
        return {}

    def share(self, worker: str, seen: bytes, for_s: float) -> None:
        """There is nobody to share it with."""

    def shared(self, begins: str) -> Mapping[str, bytes]:
        return {}

    def count(self, added: Mapping[str, int]) -> None:
        with self._appended:
            self._counted = {
                **self._counted,
                **{key: self._counted.get(key, 0) + one for key, one in added.items()},
            }

    def counted(self) -> Mapping[str, int]:
        return self._counted

    def close(self) -> None:
        """There is nothing to let go of."""

    @property
    def _opened(self) -> "State":
        assert self._state is not None, "a log is opened before anything else"  # noqa: S101
        return self._state
