"""The rules that hold at one moment, and their fingerprint."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter

import msgspec

from shelflife.contract import Rule
from shelflife.server.errors import BadRule

__all__ = ["RuleSet"]

_FINGERPRINT_LENGTH = 12
_encode = msgspec.json.Encoder().encode
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

    def changed(self, added: Iterable[Rule], removed: Iterable[Rule]) -> "RuleSet":
        """These rules without some, and with others."""
        gone = set(removed)
        return RuleSet([*(rule for rule in self if rule not in gone), *added])

    def added_since(self, older: "RuleSet") -> tuple[Rule, ...]:
        """The rules that are here and not there, in canonical order; a redeclared one counts."""
        there = set(older)
        return tuple(sorted((rule for rule in self if rule not in there), key=_canonical))
