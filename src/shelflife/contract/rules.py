"""Rules and their fingerprint."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter

import msgspec

from shelflife.contract.errors import BadRule
from shelflife.contract.names import check_column, check_name

__all__ = ["Rule", "RuleSet", "SentRule"]

_FINGERPRINT_LENGTH = 12
_encode = msgspec.json.Encoder().encode


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, eq=False):
    """A declaration that ties a value in one table to a key in another."""

    from_table: str = msgspec.field(name="from")
    """The table whose rows hold the value."""

    to_table: str = msgspec.field(name="to")
    """The table in which the value is a key."""

    relation: str
    """What the tie is called; from one table a relation leads to one other table."""

    via: str | None = None
    """The column that holds the value (or a list of values); by default, any column may."""

    def __post_init__(self) -> None:
        check_name(self.from_table)
        check_name(self.to_table)
        check_name(self.relation, "relation")
        if self.via is not None:
            check_column(self.via)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rule) and self.canonical == other.canonical

    def __hash__(self) -> int:
        return hash(self.canonical)

    @property
    def id(self) -> str:
        """`table:relation`, by which a policy's reading of the rule goes on the wire."""
        return f"{self.from_table}:{self.relation}"

    @property
    def canonical(self) -> tuple[str, ...]:
        """The triple that is fingerprinted, with the column as a fourth member where one is named."""
        triple = (self.from_table, self.to_table, self.relation)
        return triple if self.via is None else (*triple, self.via)


class SentRule(Rule, frozen=True, kw_only=True, omit_defaults=True, eq=False, forbid_unknown_fields=True):
    """A rule in an operator's message, in which a member that is not known is a mistake. It is the same rule."""


_canonical = attrgetter("canonical")


class RuleSet:
    """All the rules that hold at one moment. Immutable."""

    __slots__ = ("_by_id", "_leaving", "version")

    version: str
    """The fingerprint: the same for any order of declaration, and whatever the tables hold."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        by_id: dict[str, Rule] = {}
        for rule in rules:
            other = by_id.setdefault(rule.id, rule)
            if other is not rule:
                raise BadRule(
                    f"two rules called {rule.relation} leave table {rule.from_table}"
                    f" (to {other.to_table} and to {rule.to_table});"
                    " give each relation that leaves a table its own name"
                )
        self._by_id: Mapping[str, Rule] = by_id
        leaving: dict[str, tuple[Rule, ...]] = {}
        for rule in sorted(by_id.values(), key=_canonical):
            leaving[rule.from_table] = (*leaving.get(rule.from_table, ()), rule)
        self._leaving: Mapping[str, tuple[Rule, ...]] = leaving
        triples = sorted(rule.canonical for rule in by_id.values())
        self.version = hashlib.sha256(_encode(triples)).hexdigest()[:_FINGERPRINT_LENGTH]

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RuleSet) and set(self) == set(other)

    def __hash__(self) -> int:
        return hash(self.version)

    def __repr__(self) -> str:
        return f"RuleSet({list(self)!r})"

    def find(self, from_table: str, relation: str) -> Rule | None:
        """The rule called `relation` that leaves `from_table`, if one is declared."""
        return self._by_id.get(f"{from_table}:{relation}")

    def leaving(self, table: str) -> tuple[Rule, ...]:
        """The rules whose from-table this is, in canonical order."""
        return self._leaving.get(table, ())

    def added_since(self, older: "RuleSet") -> tuple[Rule, ...]:
        """The rules that are here and not there, in canonical order; a redeclared one counts."""
        there = set(older)
        return tuple(sorted((rule for rule in self if rule not in there), key=_canonical))
