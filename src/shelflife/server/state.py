"""One consistent state of the world: what a request sees from start to end."""

import hashlib
import secrets
from collections.abc import Container, Iterable, Mapping
from typing import Any

import msgspec

from shelflife.contract import Rule
from shelflife.server.log import Change, Entry, bounded
from shelflife.server.rules import RuleSet
from shelflife.server.tables import RowMap, Table

__all__ = ["State", "rules_between"]

_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class State:
    """All tables, rules and policies at one position of the log. Immutable."""

    __slots__ = ("digest", "faces", "log_id", "number", "policies", "rules", "tables", "tail")

    def __init__(
        self,
        tables: Mapping[str, Table],
        rules: RuleSet,
        policies: Mapping[str, str] | None = None,
        *,
        log_id: str = "",
        number: int = 0,
        digest: str = "",
        tail: tuple[Entry, ...] = (),
    ) -> None:
        self.tables = tables
        self.rules = rules
        self.policies = policies or {}
        """The fingerprint of each policy, by its name."""
        self.number = number
        """How many changes have led to it."""
        contents = {name: (table.version, table.content_name) for name, table in tables.items()}
        self.digest = digest or _digest("", contents, rules.version, self.policies)
        """Over all of them, and what there was at first."""
        self.log_id = log_id or secrets.token_hex(16)
        """Names the log. It is drawn when a log begins: a past that comes again under the same name could be taken for the present."""
        self.tail = tail
        """The latest entries of the log, oldest first, bounded."""
        self.faces: dict[Any, Any] = {}
        """What it shows to clients, for whoever makes that; kept as long as the state."""

    def entry(self, change: Change) -> Entry:
        """The entry by which a change goes on from here."""
        contents = {name: (one.version, one.content) for name, one in change.tables.items()}
        rules = None if change.rules is None else RuleSet(change.rules.after).version
        policies = None if change.policies is None else change.policies.after
        digest = _digest(self.digest, contents, rules, policies)
        return Entry(self.number + 1, self.digest, digest, change)

    def after(self, entry: Entry, declared: Container[str] | None = None) -> "State":
        """The state that an entry leads to, without tables that are not declared here."""
        change, tables = entry.change, dict(self.tables)
        for name, one in change.tables.items():
            if declared is None or name in declared:
                table = tables.get(name) or Table(name, RowMap({}), one.version)
                tables[name] = table.after(one.delta, one.version, int(one.content, 16))
        return State(
            tables,
            self.rules if change.rules is None else rules_between(change.rules.after, tables),
            self.policies if change.policies is None else change.policies.after,
            log_id=self.log_id,
            number=entry.number,
            digest=entry.digest,
            tail=bounded((*self.tail, entry)),
        )

    def among(self, declared: Container[str]) -> "State":
        """The same without tables that are not declared here, and without the rules that tie them."""
        tables = {name: table for name, table in self.tables.items() if name in declared}
        return State(
            tables,
            rules_between(self.rules, tables),
            self.policies,
            log_id=self.log_id,
            number=self.number,
            digest=self.digest,
            tail=self.tail,
        )

    @property
    def table_versions(self) -> dict[str, str]:
        """Every table's version."""
        return {name: table.version for name, table in self.tables.items()}


def rules_between(rules: Iterable[Rule], tables: Container[str]) -> RuleSet:
    """The rules that tie these tables and no others."""
    return RuleSet(rule for rule in rules if rule.from_table in tables and rule.to_table in tables)


def _digest(previous: str, *told: Any) -> str:
    return hashlib.sha256(previous.encode() + _encode_sorted(told)).hexdigest()
