"""Positions: how both sides name a place in a server's log, and what a reply says about the place that its request named.

A position is the number of changes up to there, with a short check over the log and all that is in it. The same number with other content is
another position.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple, Self

import msgspec
from msgspec import UNSET, UnsetType

from shelflife.contract.cells import ALL_KEYS, Columns
from shelflife.contract.messages import Counts
from shelflife.contract.rules import Rule

__all__ = [
    "AT_HEADER",
    "CHECK_LENGTH",
    "NOWHERE",
    "ROOT_HEADER",
    "Account",
    "Moved",
    "MovedRules",
    "MovedTable",
    "Named",
    "Position",
    "Unknown",
]

AT_HEADER = "Contract-At"
"""In a request what its client knows; in a response the position that it was made from."""

ROOT_HEADER = "Contract-Root"
"""In a response where the contract lives, if not at the root of its server: a path."""

CHECK_LENGTH = 6
NOWHERE = "*"
"""What a client names that speaks positions and knows none."""

_CHECK, _NUMBER = rf"[A-Za-z][A-Za-z0-9]{{{CHECK_LENGTH - 1}}}", r"(?:0|[1-9][0-9]{0,14})"
_POSITION = re.compile(rf"({_CHECK})({_NUMBER})")
_LONGEST_POSITION = 21
_NAMED = re.compile(rf"(?:\*|({_CHECK}{_NUMBER}))(?::([A-Za-z0-9]{{1,16}}))?(?:;n=([A-Za-z0-9.]{{1,32}}))?")

Unknown = Literal["ahead", "foreign", "old"]
"""Why a server cannot go on from the position that a request named.

Its log ends before that, it is not in its log, or too far back: the server does not keep or does not tell so much.
"""


class Position(NamedTuple):
    """A place in a server's log."""

    number: int
    """How many changes there were."""

    check: str
    """Tells the log, and its changes up to there, from any other."""

    def __str__(self) -> str:
        return f"{self.check}{self.number}"

    @staticmethod
    def from_text(text: str) -> "Position | None":
        """The position that is spelled so; None when none is."""
        return _position_in(text) if len(text) <= _LONGEST_POSITION else None


@lru_cache(maxsize=256)
def _position_in(text: str) -> Position | None:
    """Kept, for a client reads each position that it comes to three times: as it is told, judged and left."""
    found = _POSITION.fullmatch(text)
    return None if found is None else Position(int(found[2]), found[1])


class Named(NamedTuple):
    """What a request names: the position that its client knows, with the client's mark, and a nonce where it asks."""

    position: Position | None = None
    mark: str = ""
    """Drawn anew by the client whenever it takes up a position that does not follow from the one before."""

    nonce: str = ""
    """Makes the request a question: it is answered from the end of the log as it is then, and the reply repeats it."""

    @property
    def base(self) -> str:
        """The position and the mark, as a reply repeats them."""
        at = NOWHERE if self.position is None else str(self.position)
        return f"{at}:{self.mark}" if self.mark else at

    @property
    def header(self) -> str:
        """The value of `Contract-At`."""
        return f"{self.base};n={self.nonce}" if self.nonce else self.base

    @classmethod
    def from_header(cls, value: str) -> Self | None:
        """What a client names; None when it cannot be understood, and so is as though it were not there."""
        found = _NAMED.fullmatch(value.strip())
        if found is None:
            return None
        at, mark, nonce = found.groups("")
        return cls(_position_in(at) if at else None, mark, nonce)

    @staticmethod
    def is_base(text: str) -> bool:
        """Whether a text can be what a request named, as a reply repeats it."""
        return _NAMED.fullmatch(text) is not None


class MovedTable(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a table differs from what it was. With nothing in it only the version is another."""

    known: bool = True
    """False when the lists are absent because the client is not shown them: any row may have changed."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    columns: dict[str, tuple[str, ...]] = {}
    """Of a changed row the columns that differ; of one that is not in here, any may."""

    affected_downstream: tuple[str, ...] = msgspec.field(name="downstream", default=())
    """The nodes that lay downstream of what changed or went. From Level 5 on."""

    counts: Counts | UnsetType = UNSET
    """In place of the lists, for a client that is not shown keys; `known` is then false."""

    def __bool__(self) -> bool:
        """Whether any row differs, or may."""
        return not self.known or bool(self.added or self.removed or self.changed)

    def touches(self, rows: Mapping[str, Columns] | None) -> bool:
        """Whether something of these rows has changed, or may have; None stands for the whole table."""
        if rows is None or not self.known:
            return bool(self)
        if ALL_KEYS in rows and (self.added or self.removed):
            return True
        if not rows.keys().isdisjoint((*self.added, *self.removed)):
            return True
        return any(_meet(rows[key], self.columns.get(key)) for key in self.changed if key in rows)


def _meet(read: Columns, changed: tuple[str, ...] | None) -> bool:
    """Whether a column that was read is among those that changed; None stands for any."""
    if read is None or changed is None:
        return read != ()
    return not set(read).isdisjoint(changed)


class MovedRules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the rules differ from what they were."""

    known: bool = True
    added: tuple[Rule, ...] = ()
    removed: tuple[Rule, ...] = ()
    counts: Counts | UnsetType = UNSET


class Moved(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What has moved from one position to another."""

    tables: dict[str, MovedTable] = {}
    rules: MovedRules | None = None
    policies: tuple[str, ...] = ()
    """Those that say something else now, or nothing, by the name that fixes give them in `by`."""


class Account(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a reply says of its position, where that is not just the one that its request named.

    It says either what has moved from there or why that is not known; and neither when the request named nothing, or the reply is there.
    """

    to: str
    """The position that the reply was made from."""

    since: str = msgspec.field(name="from", default="")
    """The position that the request named, with its mark."""

    moved: Moved | UnsetType = UNSET
    """What has moved from there to here."""

    unknown: Unknown | UnsetType = UNSET
    """Why that cannot be said."""

    nonce: str = ""
    """That of the request, if it had one."""

    state: str = ""
    """What replies that name no position call the state at `to`. Only in an answer, to whoever asks for it."""
