"""The rules that hold at one moment, and their fingerprint."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter

import msgspec

from shelflife.contract import Rule
from shelflife.server.errors import BadRule

__all__ = ["RuleSet"]

_FINGERPRINT_LENGTH = 12
_MOST_TOLD = 1_000
_encode = msgspec.json.Encoder().encode
_canonical = attrgetter("canonical")


class RuleSet:
    """All the rules that hold at one moment. Immutable."""

    __slots__ = ("_by_id", "_leaving", "_named", "version")

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
        self._named = set(by_id)
        """The rules that there have been here, and those that are not there and were told: by id, for all that these change into."""
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

    def is_never_declared(self, from_table: str, relation: str) -> bool:
        """Whether no rule has ever been called so, and that was not said before. One that was removed, or leaves another table, is no mistake."""
        id = f"{from_table}:{relation}"
        if id in self._named or len(self._named) >= len(self) + _MOST_TOLD:
            return False
        self._named.add(id)
        return all(rule.relation != relation for rule in self)

    def leaving(self, table: str) -> tuple[Rule, ...]:
        """The rules whose from-table this is, in canonical order."""
        return self._leaving.get(table, ())

    def changed(self, added: Iterable[Rule], removed: Iterable[Rule]) -> "RuleSet":
        """These rules without some, and with others."""
        gone = set(removed)
        after = RuleSet([*(rule for rule in self if rule not in gone), *added])
        self._named |= after._named
        after._named = self._named
        return after

    def added_since(self, older: "RuleSet") -> tuple[Rule, ...]:
        """The rules that are here and not there, in canonical order; a redeclared one counts."""
        there = set(older)
        return tuple(sorted((rule for rule in self if rule not in there), key=_canonical))
