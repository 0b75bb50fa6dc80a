"""What a memory holds."""

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

import msgspec

from shelflife.contract import Suggestion
from shelflife.contract.when import WHOLE_REQUEST, as_read, holds

__all__ = [
    "MOST_SUPERSEDED",
    "RULES",
    "STATE",
    "Attested",
    "Entry",
    "Knowledge",
    "Shape",
    "digest_of",
    "lapsed",
    "place_of",
    "shape_of",
]

Shape = tuple[str, ...]
"""The request fields on whose values an entry depends, sorted: what its `when` names."""

_encode = msgspec.json.Encoder(order="sorted").encode


def digest_of(*parts: Any) -> str:
    """Tells one thing from another: 32 hexadecimal digits over the JSON of its parts."""
    return hashlib.blake2b(_encode(parts), digest_size=16).hexdigest()


class Entry(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One remembered suggestion: what it fixes, when it applies, what it rests on.

    Its digests are worked out once, when somebody asks for them.
    """

    origin: str
    """The server that gave it, as `scheme://host:port`; it is never used with another."""

    operation: str
    """The call that it fixes, e.g. `POST /subscriptions`."""

    type: str
    parameters: dict[str, Any]
    when: dict[str, Any]
    """The request fields, with their values, under which it holds; the whole request where the server did not say."""

    unless: dict[str, tuple[Any, ...]] = {}
    """Values that fields must not have."""

    tables: tuple[str, ...]
    """The tables that it depends on."""

    rows: tuple[str, ...] | None
    """The rows that it rests on; None where the server did not say: any row of its tables may be one."""

    rules: tuple[str, ...] | None
    """The rules that it rests on; None where the server did not say: any rule may be one."""

    learned_at: float
    strategy: str = "exact"
    """Under which it is kept; another one does not trust it."""

    is_suspect: bool = False
    """It may have gone stale, and is not handed out until the server was asked about it. It is the same entry either way."""

    @classmethod
    def from_suggestion(
        cls,
        suggestion: Suggestion,
        *,
        origin: str,
        operation: str,
        request: Mapping[str, Any],
        learned_at: float,
        strategy: str,
        is_suspect: bool = False,
    ) -> Self:
        """What is remembered of a cacheable suggestion that was the answer to this request."""
        says_reads = bool(suggestion.rows) and suggestion.when is not msgspec.UNSET
        return cls(
            origin=origin,
            operation=operation,
            type=suggestion.type,
            parameters=suggestion.parameters,
            when=(suggestion.when or {}) if says_reads else {WHOLE_REQUEST: as_read(request)},
            unless=suggestion.unless or {},
            tables=suggestion.depends_on,
            rows=(suggestion.rows or ()) if says_reads else None,
            rules=(suggestion.rules or ()) if says_reads else None,
            learned_at=learned_at,
            strategy=strategy,
            is_suspect=is_suspect,
        )

    @cached_property
    def place(self) -> str:
        """Where a request finds it: its operation and the values of its fields."""
        return place_of(self.origin, self.operation, self.when)

    @cached_property
    def slot(self) -> str:
        """What it is the answer to: a second value for the same fields takes its place."""
        return digest_of(self.place, self.type, sorted(self.unless), sorted(self.parameters))

    @cached_property
    def id(self) -> str:
        """The entry itself, value and all."""
        return digest_of(self.slot, self.parameters)

    def applies_to(self, request: Mapping[str, Any]) -> bool:
        """Whether it holds for this request."""
        return holds(self.when, request, self.unless)


MOST_SUPERSEDED = 8
"""A response that is later than this many versions is known for what it is only when the server can be asked."""

RULES = ":rules"
"""Stands for the rules among the tables; no table is called that."""

STATE = ":state"
"""Stands for the name of the state."""


class Attested(msgspec.Struct, frozen=True, kw_only=True):
    """The newest state of an origin for which a key vouches that the user has pinned."""

    lineage: str
    sequence: int
    digest: str
    key: str
    """By which it was signed: no longer pinned, its word counts no longer."""

    expires_at: int
    """When the word of the key ends, in seconds of Unix time."""

    keys: dict[str, str] = {}
    """Keys that were named, by a pinned one or by one of these, to take its place; and by which."""

    retired_keys: tuple[str, ...] = ()
    """Those whose place was taken: whatever they sign from then on counts for nothing."""


def lapsed(attested: Attested | None) -> Attested | None:
    """What was seen, so that nobody gets behind it, of which the key's word counts no longer."""
    return attested and msgspec.structs.replace(attested, expires_at=0)


class Knowledge(msgspec.Struct, frozen=True):
    """The versions at which everything that a memory holds of one origin is good."""

    table_versions: dict[str, str] = {}
    rules_version: str | None = None
    state_tag: str | None = None
    """The state that these versions make up, where the server has named it."""

    superseded: dict[str, tuple[str, ...]] = {}
    """By table, and for `RULES` and `STATE`: the last versions that have passed, or of which it cannot be said whether they have."""

    strategy: str = ""
    """Under which the entries were kept; another one may have kept what this one would have dropped."""

    attested: Attested | None = None
    """Where the user trusts a key: the signed state that these versions are of."""


def shape_of(when: Mapping[str, Any]) -> Shape:
    """The fields that a condition names."""
    return tuple(sorted(when))


def place_of(origin: str, operation: str, when: Mapping[str, Any]) -> str:
    """The place of a condition, or of what a request has in the fields of a shape."""
    return digest_of(origin, operation, as_read_fields(when))


def as_read_fields(when: Mapping[str, Any]) -> dict[str, Any]:
    """A condition in its one form: nulls stay, for they say that a field is absent."""
    return {path: as_read(value) for path, value in when.items()}
