"""One consistent state of the world: what a request sees from start to end."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from shelflife.contract import (
    RULES_HEADER,
    STATE_HEADER,
    TABLES_HEADER,
    Changes,
    ContractState,
    Level,
    RulesChanges,
    RuleSet,
    TableChanges,
    table_versions_header,
)
from shelflife.contract.compact import EPOCH_HEADER, epoch_of, moved_between
from shelflife.contract.names import split_node_id
from shelflife.contract.stamps import quoted
from shelflife.server.tables import Table

__all__ = ["CompactStamp", "Stamp", "State"]

_LONGEST_HEADER = 4096
_MOST_RULE_SETS = 256
_MOST_EPOCHS = 64
_COST_OF_A_QUESTION = 1024
"""What a client that gets the full form has to send and receive in bytes, about, to learn what changed."""
_encode = msgspec.json.Encoder().encode


class Stamp:
    """What every response of one state carries at one level, encoded once."""

    __slots__ = ("headers", "members", "message", "tag")
    is_compact = False
    is_repaired = False

    def __init__(self, message: ContractState) -> None:
        self.message = message
        self.members = _encode(message)[1:-1]
        """The members as they stand in a JSON object, without the braces."""
        self.tag = hashlib.sha256(self.members).hexdigest()[:16]
        """Names the state: the same versions, the same tag, on any replica."""
        self.headers = [(STATE_HEADER, quoted(self.tag))]
        """The same for a response whose body is left alone."""
        table_versions = table_versions_header(message.table_versions)
        if len(table_versions) <= _LONGEST_HEADER:
            self.headers.append((TABLES_HEADER, table_versions))
        if message.rules_version:
            self.headers.append((RULES_HEADER, quoted(message.rules_version)))


class CompactStamp:
    """The same for a client that has said which state it knows."""

    __slots__ = ("headers", "members")
    is_compact = True
    is_repaired = False

    def __init__(self, epoch: bytes, headers: list[tuple[str, str]]) -> None:
        self.members = b'"epoch":' + epoch
        self.headers = headers


class _Versions(NamedTuple):
    """The versions of a state."""

    tables: dict[str, str]
    rules: str

    def epoch(self, level: Level) -> str:
        return epoch_of(self.tables, self.rules if level >= Level.FINGERPRINT else None)


class State:
    """All tables and rules at one moment. Immutable."""

    __slots__ = ("_compact_stamps", "_older", "_older_epochs", "_stamps", "older_rules", "rules", "tables")

    def __init__(
        self,
        tables: Mapping[str, Table],
        rules: RuleSet,
        older_rules: tuple[RuleSet, ...] = (),
        older: tuple[_Versions, ...] = (),
    ) -> None:
        self.tables = tables
        self.rules = rules
        self.older_rules = older_rules[-_MOST_RULE_SETS:]
        """The rule sets that held before, oldest first, bounded."""
        self._older = older[-_MOST_EPOCHS:]
        self._older_epochs: dict[Level, dict[str, _Versions]] = {}
        self._stamps: dict[Level, Stamp] = {}
        self._compact_stamps: dict[tuple[Level, str], CompactStamp | None] = {}

    def with_table(self, table: Table) -> "State":
        """This state with one table in another version."""
        return State({**self.tables, table.name: table}, self.rules, self.older_rules, self._with_this)

    def with_rules(self, rules: RuleSet) -> "State":
        """This state under other rules."""
        return State(self.tables, rules, (*self.older_rules, self.rules), self._with_this)

    def epoch(self, level: Level) -> str:
        """The state's name in the compact form."""
        return self._versions.epoch(level)

    @property
    def _versions(self) -> _Versions:
        return _Versions(self.table_versions, self.rules.version)

    @property
    def _with_this(self) -> tuple[_Versions, ...]:
        return (*self._older, self._versions)

    @property
    def table_versions(self) -> dict[str, str]:
        """Every table's version."""
        return {name: table.version for name, table in self.tables.items()}

    def stamp(self, level: Level) -> Stamp:
        """What a response carries at this level, above 0."""
        stamp = self._stamps.get(level)
        if stamp is None:
            fingerprint = self.rules.version if level >= Level.FINGERPRINT else msgspec.UNSET
            message = ContractState(table_versions=self.table_versions, rules_version=fingerprint)
            stamp = self._stamps[level] = Stamp(message)
        return stamp

    def compact_stamp(self, level: Level, epoch: str) -> CompactStamp | None:
        """What a response carries to a client that knows an epoch; None when the client needs the full form."""
        key = level, epoch
        if key in self._compact_stamps:
            return self._compact_stamps[key]
        if epoch == self._versions.epoch(level):
            stamp: CompactStamp | None = CompactStamp(b"1", [(EPOCH_HEADER, "1")])
        else:
            stamp = self._stamp_since(level, epoch)
            if stamp is None:
                return None
        self._compact_stamps[key] = stamp
        return stamp

    def has_moved(self, level: Level, epoch: str, rows: Iterable[str], rules: Iterable[str]) -> bool:
        """Whether one of these rows or rules is another one than at an epoch, or may be."""
        if epoch == self._versions.epoch(level):
            return False
        known = self._at_epoch(level, epoch)
        if known is None:
            return True
        return any(self._has_row_moved(row, known) for row in rows) or any(
            self._has_rule_moved(rule, known) for rule in rules
        )

    def _has_row_moved(self, row: str, known: "_Versions") -> bool:
        name, key = split_node_id(row)
        table = self.tables.get(name)
        history = table.delta_since(known.tables.get(name, "")) if table else None
        if history is None:
            return True
        delta, _ = history
        return key in delta.after if key is not None else bool(delta)

    def _has_rule_moved(self, rule: str, known: "_Versions") -> bool:
        if known.rules == self.rules.version:
            return False
        told = self._rules_changes(known.rules)
        return not told.known or any(rule == one.id for one in (*(told.added or ()), *(told.removed or ())))

    def _at_epoch(self, level: Level, epoch: str) -> "_Versions | None":
        epochs = self._older_epochs.get(level)
        if epochs is None:
            epochs = {versions.epoch(level): versions for versions in self._older}
            self._older_epochs[level] = epochs
        return epochs.get(epoch)

    def _stamp_since(self, level: Level, epoch: str) -> CompactStamp | None:
        known = self._at_epoch(level, epoch)
        if known is None:
            return None
        moved = {name: old for name, old in known.tables.items() if self.table_versions.get(name) != old}
        changes = self.changes_since(moved, known.rules, level)
        full = self.stamp(level)
        members = _encode(moved_between(known.tables, known.rules, changes))
        is_worth_it = len(members) <= len(full.members) + _COST_OF_A_QUESTION
        return CompactStamp(members, full.headers) if is_worth_it else None

    def changes_since(self, versions: Mapping[str, str], rules_version: str | None, level: Level) -> Changes:
        """What happened since these versions of tables and, from Level 6 on, of the rules."""
        stamp = self.stamp(level).message
        asks_rules = rules_version is not None and level >= Level.FINGERPRINT
        return Changes(
            tables={name: self._table_changes(name, since, level) for name, since in versions.items()},
            rules=self._rules_changes(rules_version or "") if asks_rules else msgspec.UNSET,
            table_versions=stamp.table_versions,
            rules_version=stamp.rules_version,
        )

    def _table_changes(self, name: str, since: str, level: Level) -> TableChanges:
        table = self.tables.get(name)
        history = table.delta_since(since) if table else None
        if table is None or history is None:
            return TableChanges(since=since, version=table.version if table else None, known=False)
        delta, affected = history
        diff = delta.diff
        return TableChanges(
            since=since,
            version=table.version,
            known=True,
            added=diff.added,
            removed=diff.removed,
            changed=diff.changed,
            affected_downstream=affected if level >= Level.GRAPH else msgspec.UNSET,
        )

    def _rules_changes(self, since: str) -> RulesChanges:
        older: RuleSet | None = None
        for rules in (*self.older_rules, self.rules):
            if rules.version == since:
                older = rules
        if older is None:
            return RulesChanges(since=since, version=self.rules.version, known=False)
        return RulesChanges(
            since=since,
            version=self.rules.version,
            known=True,
            added=self.rules.added_since(older),
            removed=older.added_since(self.rules),
        )
