"""One consistent state of the world: what a request sees from start to end, and the face that it shows to
clients."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from shelflife.contract import Changes, ContractState, Rule, RulesChanges, Suggestion, TableChanges
from shelflife.contract.compact import EPOCH_HEADER, moved_between
from shelflife.contract.names import split_node_id
from shelflife.contract.preconditions import Precondition
from shelflife.contract.signed import Statement
from shelflife.contract.stamps import RULES_HEADER, STATE_HEADER, TABLES_HEADER, quoted, table_versions_header
from shelflife.contract.versions import Versions
from shelflife.server.delta import Diff
from shelflife.server.rules import RuleSet
from shelflife.server.tables import Table
from shelflife.server.wire import Level

__all__ = ["CompactStamp", "Face", "Stamp", "State", "StateVersions"]

_LONGEST_HEADER = 4096
_MOST_RULE_SETS = 256
_MOST_EPOCHS = 64
_COST_OF_A_QUESTION = 1024
"""About how many bytes a client that gets the full form sends and receives to learn what changed."""
_encode = msgspec.json.Encoder().encode


class Stamp:
    """What every response of one state carries at one level, encoded once."""

    __slots__ = ("headers", "members", "message", "tag", "vary")
    is_compact = False

    def __init__(self, message: ContractState, vary: str = "") -> None:
        self.message = message
        self.vary = vary
        """The request headers on which it depends, as in `Vary`."""
        self.members = _encode(message)[1:-1]
        """The members as they stand in a JSON object, without the braces."""
        self.tag = hashlib.sha256(self.members).hexdigest()[:16]
        """Names the state. The same versions have the same tag, on any replica."""
        self.headers = [(STATE_HEADER, quoted(self.tag))]
        """The same for a response whose body is left alone."""
        table_versions = table_versions_header(message.table_versions)
        if len(table_versions) <= _LONGEST_HEADER:
            self.headers.append((TABLES_HEADER, table_versions))
        if message.rules_version:
            self.headers.append((RULES_HEADER, quoted(message.rules_version)))


class CompactStamp:
    """The same for a client that has said which state it knows."""

    __slots__ = ("headers", "members", "vary")
    is_compact = True

    def __init__(self, epoch: bytes, headers: list[tuple[str, str]], vary: str = "") -> None:
        self.members = b'"epoch":' + epoch
        self.headers = headers
        self.vary = f"{EPOCH_HEADER.lower()}, {vary}" if vary else EPOCH_HEADER.lower()


class StateVersions(NamedTuple):
    """The versions of a state."""

    tables: dict[str, str]
    rules: str

    def message(self, level: Level) -> ContractState:
        """What of them goes on the wire at this level."""
        fingerprint = self.rules if level >= Level.FINGERPRINT else msgspec.UNSET
        return ContractState(table_versions=self.tables, rules_version=fingerprint)

    def epoch(self, level: Level) -> str:
        """Their name in the compact form."""
        return Versions(self.tables, self.rules if level >= Level.FINGERPRINT else None).epoch


class Face:
    """What a state shows to clients at one level, and what it makes of what they ask.

    All that goes in or comes out is in the client's words. Here these are the server's own; `disclosure` has a face that
    speaks in aliases. The state holds its face. So the face holds parts of the state and not the state, and both are
    freed together.
    """

    __slots__ = (
        *("_are_all_known", "_compact_stamps", "_known", "_older", "_older_rules", "_rules", "_tables"),
        *("_versions", "epoch", "level", "stamp"),
    )

    def __init__(self, state: "State", level: Level, vary: str = "") -> None:
        self.level = level
        self._tables, self._rules = state.tables, state.rules
        self._older, self._older_rules = state.older, state.older_rules
        self._versions = self._worded(state.versions)
        self._known: dict[str, StateVersions] = {}
        self._are_all_known = False
        self._compact_stamps: dict[str, CompactStamp] = {}
        self.stamp = Stamp(self._versions.message(level), vary)
        """What a response carries."""
        self.epoch = self._versions.epoch(level)
        """The state's name in the compact form."""

    def compact_stamp(self, epoch: str) -> CompactStamp | None:
        """What a response carries to a client that knows an epoch; None when the client needs the full
        form."""
        stamp = self._compact_stamps.get(epoch)
        if stamp is None:
            if epoch == self.epoch:
                stamp = CompactStamp(b"1", [(EPOCH_HEADER, "1")], self.stamp.vary)
            else:
                stamp = self._stamp_since(epoch)
                if stamp is None:
                    return None
            self._compact_stamps[epoch] = stamp
        return stamp

    def suggestion(self, suggestion: Suggestion) -> Suggestion:
        """A suggestion as the client is shown it."""
        return suggestion

    def statement(self, statement: Statement, before: Statement | None) -> Statement:
        """A statement as the client is shown it; `before` is the one that it goes on from."""
        return statement

    def has_moved(self, epoch: str, rows: Iterable[str], rules: Iterable[str] | None) -> bool:
        """Whether one of these rows or rules has changed since an epoch, or may have. None stands for any rule."""
        if epoch == self.epoch:
            return False
        known = self._at_epoch(epoch)
        if known is None:
            return True
        if rules is None and known.rules != self._versions.rules:
            return True
        return self._have_rows_moved(rows, known.tables) or self._have_rules_moved(rules or (), known.rules)

    def meets(self, precondition: Precondition) -> bool:
        """Whether nothing that a request's remembered values rest on has moved."""
        if precondition.rows is None and precondition.rules is None:
            return precondition.epoch == self.epoch
        return not self.has_moved(precondition.epoch, precondition.rows or (), precondition.rules)

    def changes_since(self, versions: Mapping[str, str], rules_version: str | None) -> Changes:
        """What happened since these versions of tables and, from Level 6 on, of the rules."""
        asks_rules = rules_version is not None and self.level >= Level.FINGERPRINT
        return Changes(
            tables={name: self._table_changes(name, since) for name, since in versions.items()},
            rules=self._rules_changes(rules_version or "") if asks_rules else msgspec.UNSET,
            table_versions=self.stamp.message.table_versions,
            rules_version=self.stamp.message.rules_version,
        )

    def _have_rows_moved(self, rows: Iterable[str], known: Mapping[str, str]) -> bool:
        keys_by_table: dict[str, list[str | None]] = {}
        for row in rows:
            name, key = split_node_id(row)
            keys_by_table.setdefault(name, []).append(key)
        for name, keys in keys_by_table.items():
            found = self._diff_since(name, known.get(name, ""))
            if found is None:
                return True
            diff, _ = found
            moved = {*diff.added, *diff.removed, *diff.changed}
            if moved and (None in keys or not moved.isdisjoint(keys)):
                return True
        return False

    def _have_rules_moved(self, rules: Iterable[str], known: str) -> bool:
        rules = list(rules)
        if not rules or known == self._versions.rules:
            return False
        found = self._rules_since(known)
        return found is None or any(rule.id in rules for lists in found for rule in lists)

    def _at_epoch(self, epoch: str) -> StateVersions | None:
        if epoch not in self._known and not self._are_all_known:
            for versions in reversed(self._older):  # most clients are one step behind
                name = self._worded(versions).epoch(self.level)
                self._known[name] = versions
                if name == epoch:
                    break
            else:
                self._are_all_known = True
        known = self._known.get(epoch)
        return None if known is None else self._worded(known)

    def _stamp_since(self, epoch: str) -> CompactStamp | None:
        known = self._at_epoch(epoch)
        if known is None:
            return None
        moved = {name: old for name, old in known.tables.items() if self._versions.tables.get(name) != old}
        changes = self.changes_since(moved, known.rules)
        members = _encode(moved_between(Versions(*known), changes))
        is_worth_it = len(members) <= len(self.stamp.members) + _COST_OF_A_QUESTION
        return CompactStamp(members, self.stamp.headers, self.stamp.vary) if is_worth_it else None

    def _table_changes(self, name: str, since: str) -> TableChanges:
        version = self._versions.tables.get(name)
        found = self._diff_since(name, since)
        if found is None:
            return TableChanges(since=since, version=version, known=False)
        diff, affected = found
        return TableChanges(
            since=since,
            version=version,
            known=True,
            added=diff.added,
            removed=diff.removed,
            changed=diff.changed,
            affected_downstream=affected if self.level >= Level.GRAPH else msgspec.UNSET,
        )

    def _rules_changes(self, since: str) -> RulesChanges:
        version = self._versions.rules
        found = self._rules_since(since)
        if found is None:
            return RulesChanges(since=since, version=version, known=False)
        added, removed = found
        return RulesChanges(since=since, version=version, known=True, added=added, removed=removed)

    def _worded(self, versions: StateVersions) -> StateVersions:
        """The versions of a state in the client's words."""
        return versions

    def _diff_since(self, name: str, since: str) -> tuple[Diff, tuple[str, ...]] | None:
        """What changed in a table since a version, and what lay downstream; None when this is not known."""
        table = self._tables.get(name)
        history = table.delta_since(since) if table else None
        return None if history is None else (history[0].diff, history[1])

    def _rules_since(self, since: str) -> tuple[tuple[Rule, ...], tuple[Rule, ...]] | None:
        """The rules that were added and removed since a fingerprint; None when this is not known."""
        for older in (self._rules, *reversed(self._older_rules)):
            if older.version == since:
                return self._rules.added_since(older), older.added_since(self._rules)
        return None


class State:
    """All tables and rules at one moment. Immutable."""

    __slots__ = ("_faces", "older", "older_rules", "rules", "tables")

    def __init__(
        self,
        tables: Mapping[str, Table],
        rules: RuleSet,
        older_rules: tuple[RuleSet, ...] = (),
        older: tuple[StateVersions, ...] = (),
    ) -> None:
        self.tables = tables
        self.rules = rules
        self.older_rules = older_rules[-_MOST_RULE_SETS:]
        """The rule sets that held before, oldest first, bounded."""
        self.older = older[-_MOST_EPOCHS:]
        """The versions of the states before, oldest first, bounded."""
        self._faces: dict[Level, Face] = {}

    def with_table(self, table: Table) -> "State":
        """This state with one table in another version."""
        return State({**self.tables, table.name: table}, self.rules, self.older_rules, self._with_this)

    def with_rules(self, rules: RuleSet) -> "State":
        """This state under other rules."""
        return State(self.tables, rules, (*self.older_rules, self.rules), self._with_this)

    def face(self, level: Level) -> Face:
        """What it shows, in the server's own words, to clients at a level."""
        face = self._faces.get(level)
        if face is None:
            face = self._faces[level] = Face(self, level)
        return face

    @property
    def versions(self) -> StateVersions:
        """The versions of all that is in it."""
        return StateVersions(self.table_versions, self.rules.version)

    @property
    def table_versions(self) -> dict[str, str]:
        """Every table's version."""
        return {name: table.version for name, table in self.tables.items()}

    @property
    def _with_this(self) -> tuple[StateVersions, ...]:
        return (*self.older, self.versions)
