"""One consistent state of the world: what a request sees from start to end."""

import hashlib
import secrets
from collections.abc import Container, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from shelflife.contract import Rule
from shelflife.server.log import Change, Entry, bounded
from shelflife.server.rules import RuleSet
from shelflife.server.tables import RowMap, Table

__all__ = ["State", "new_log", "rules_between"]

_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class State(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """All tables, rules and policies at one position of the log. Immutable."""

    tables: Mapping[str, Table]
    rules: RuleSet
    rules_elsewhere: tuple[Rule, ...] = ()
    """Those that the log has too, but that tie a table which is not declared here."""

    policies: Mapping[str, str] = {}
    """The fingerprint of each policy, by its name."""

    log_id: str
    """Names the log. It is drawn when a log begins: a past that comes again under the same name could be taken for the present."""

    number: int = 0
    """How many changes have led to it."""

    digest: str
    """Over all of them, and what there was at first."""

    tail: tuple[Entry, ...] = ()
    """The latest entries of the log, oldest first, bounded."""

    faces: dict[Any, Any] = {}
    """What it shows to clients, for whoever makes that; kept as long as the state."""

    @classmethod
    def at_first(cls, tables: Mapping[str, Table], rules: RuleSet) -> "State":
        """The state with which a log of its own begins."""
        contents = {name: (table.version, table.content_name) for name, table in tables.items()}
        log_id, digest = new_log(contents, rules.version, {})
        return cls(tables=tables, rules=rules, log_id=log_id, digest=digest)

    def entry(self, change: Change) -> Entry:
        """The entry by which a change goes on from here."""
        contents = {name: (one.version, one.content) for name, one in change.tables.items()}
        policies = None if change.policies is None else change.policies.after
        digest = _digest(self.digest, contents, change.rules, policies)
        return Entry(self.number + 1, self.digest, digest, change)

    def after(self, entry: Entry, declared: Container[str] | None = None) -> "State":
        """The state that an entry leads to, without tables that are not declared here."""
        change, tables = entry.change, dict(self.tables)
        for name, one in change.tables.items():
            if declared is None or name in declared:
                table = tables.get(name) or Table(name, RowMap({}), one.version)
                tables[name] = table.after(one.delta, one.version, int(one.content, 16))
        rules = self.all_rules
        if change.rules is not None:
            rules = rules.changed(change.rules.added, change.rules.removed)
        return replace(
            self._with(tables, rules),
            policies=self.policies if change.policies is None else change.policies.after,
            number=entry.number,
            digest=entry.digest,
            tail=bounded((*self.tail, entry)),
        )

    def among(self, declared: Container[str]) -> "State":
        """The same without tables that are not declared here, and without the rules that tie them."""
        tables = {name: table for name, table in self.tables.items() if name in declared}
        return self._with(tables, self.all_rules)

    @property
    def all_rules(self) -> RuleSet:
        """The rules of the log, whatever is declared here."""
        return self.rules.changed(self.rules_elsewhere, ()) if self.rules_elsewhere else self.rules

    def _with(self, tables: Mapping[str, Table], rules: RuleSet) -> "State":
        between = rules_between(rules, tables)
        elsewhere = rules.added_since(between) if len(rules) > len(between) else ()
        return replace(self, tables=tables, rules=between, rules_elsewhere=elsewhere, faces={})

    @property
    def table_versions(self) -> dict[str, str]:
        """Every table's version."""
        return {name: table.version for name, table in self.tables.items()}


def rules_between(rules: RuleSet, tables: Container[str]) -> RuleSet:
    """The rules that tie these tables and no others."""
    elsewhere = [rule for rule in rules if rule.from_table not in tables or rule.to_table not in tables]
    return rules.changed((), elsewhere) if elsewhere else rules


def new_log(*told: Any) -> tuple[str, str]:
    """A name for a log that begins with this, and the digest of that.

    The digest is over the name too. So whoever follows a log that has taken the place of another finds out by the digest.
    """
    log_id = secrets.token_hex(16)
    return log_id, _digest(log_id, *told)


def _digest(previous: str, *told: Any) -> str:
    return hashlib.sha256(previous.encode() + _encode_sorted(told)).hexdigest()
