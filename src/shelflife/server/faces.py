"""What a state shows to clients at one level, and what it makes of what they ask."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from shelflife.contract import Changes, ContractState, Rule, RulesChanges, Suggestion, TableChanges
from shelflife.contract.cells import Cells
from shelflife.contract.messages import Counts, TableVersion
from shelflife.contract.positions import (
    AT_HEADER,
    Account,
    Moved,
    MovedRules,
    MovedTable,
    Named,
    Position,
    Unknown,
)
from shelflife.contract.preconditions import Precondition
from shelflife.contract.stamps import RULES_HEADER, STATE_HEADER, TABLES_HEADER, quoted, table_versions_header
from shelflife.server.delta import Delta, Row
from shelflife.server.log import Entry, check_over
from shelflife.server.rules import RuleSet
from shelflife.server.state import State, rules_between
from shelflife.server.wire import Level

__all__ = ["SILENT", "Face", "Stamp", "Words", "face_of"]

_LONGEST_HEADER = 4096
_LONGEST_ACCOUNT = 4096
"""A reply that has more to tell than this says only that it has gone on. The client then asks."""

_MOST_STAMPS = 256
_encode = msgspec.json.Encoder().encode


class Words:
    """What tables, rows, rules and policies are called for a client. Here by their own names; `disclosure` has aliases."""

    def table(self, name: str) -> str:
        """A table."""
        return name

    def key(self, table: str, key: str) -> str:
        """The key of a row in its table."""
        return key

    def column(self, table: str, column: str) -> str:
        """A column of a table."""
        return column

    def row(self, node: str) -> str:
        """`table:key`, or a bare table."""
        return node

    def rule_id(self, rule: str) -> str:
        """`table:relation`."""
        return rule

    def rule(self, rule: Rule) -> Rule:
        """A rule."""
        return rule

    def policy(self, name: str) -> str:
        """A policy, in short."""
        return short_name(name)

    def version(self, table: str, version: str) -> str:
        """A version of a table."""
        return version

    def fingerprint(self, rules_version: str) -> str:
        """A version of the rules."""
        return rules_version

    def log(self, log_id: str) -> str:
        """The log."""
        return log_id

    def digest(self, digest: str) -> str:
        """A digest over what is in the log."""
        return digest


PLAIN = Words()


class Stamp(msgspec.Struct, frozen=True):
    """What a response carries, encoded once."""

    members: bytes
    """The members as they stand in a JSON object, without the braces."""

    headers: list[tuple[str, str]]
    """The same for a response whose body is left alone."""

    beside: list[tuple[str, str]] = []
    """Headers that go out in either case."""

    vary: str = ""
    """The request headers on which it depends, as in `Vary`."""

    is_compact: bool = False
    """Whether suggestions beside it are written shorter."""

    is_no_news: bool = False
    """Whether it says only what the client has named. Then it is needed where there is a suggestion, which must name its position."""


SILENT = Stamp(b"", [], is_compact=True)
"""What a response carries that must not be taken for news: nothing."""


class Face:
    """A state in the words of a client.

    The state holds its face. So the face holds parts of the state and not the state, and both are freed together.
    """

    def __init__(
        self, state: State, level: Level, words: Words = PLAIN, *, sees_diffs: bool = True, vary: str = ""
    ) -> None:
        self.level = level
        self._words = words
        self._sees_diffs = sees_diffs
        self._tables, self._rules, self._policies, self._tail = (
            state.tables,
            state.rules,
            state.policies,
            state.tail,
        )
        named = {words.table(name): name for name in state.tables}
        self._names = named if words is PLAIN else {alias: named[alias] for alias in sorted(named)}
        """The tables by what they are called. In the order of the aliases: that of the tables would tell how they were declared."""
        self.log_id = words.log(state.log_id)
        """Names the log."""
        digest = words.digest(state.digest)
        self.position = Position(state.number, check_over(self.log_id, digest))
        """Where in the log the state is."""
        self.digest = hashlib.sha256(f"{self.log_id} {digest}".encode()).hexdigest()
        """Over all that is in the log up to there, as this client is shown it."""
        table_versions = {
            alias: words.version(name, state.tables[name].version) for alias, name in self._names.items()
        }
        fingerprint = words.fingerprint(state.rules.version) if level >= Level.FINGERPRINT else UNSET
        self.versions = ContractState(table_versions=table_versions, rules_version=fingerprint)
        """What of its versions goes on the wire."""
        members = _encode(self.versions)[1:-1]
        self.tag = hashlib.sha256(members).hexdigest()[:16]
        """Names these versions. The same ones have the same tag, on any replica."""
        self.stamp = Stamp(members, _headers_of(self.versions, self.tag), vary=vary)
        """What a response carries to a client that names no position."""
        self._stamps: dict[tuple[Named, bool], Stamp] = {}

    def stamp_at(self, named: Named, *, with_versions: bool) -> Stamp:
        """What a response carries to a client that names a position, beside the versions or in their place."""
        stamp = self._stamps.get((named, with_versions))
        if stamp is None:
            stamp = self._stamped(
                self.account(named), with_versions, is_no_news=named == Named(self.position, named.mark)
            )
            if not named.nonce:
                if len(self._stamps) >= _MOST_STAMPS:
                    self._stamps.clear()
                self._stamps[named, with_versions] = stamp
        return stamp

    def cacheable_stamp(self, named: Named) -> Stamp:
        """The same for a response that a cache may give to others: what it carries does not depend on what they name."""
        return msgspec.structs.replace(
            self.stamp, beside=[_at_header(Account(to=str(self.position), nonce=named.nonce))]
        )

    def account(self, named: Named) -> Account:
        """What is said of the position of the state to a client that names another."""
        to, since = str(self.position), self._since(named.position)
        if named.position is None or since == ():
            return Account(to=to, nonce=named.nonce)
        if isinstance(since, str):
            return Account(to=to, since=named.base, unknown=since, nonce=named.nonce)
        return Account(to=to, since=named.base, moved=self._shown(self._moved(since)), nonce=named.nonce)

    def suggestion(self, suggestion: Suggestion) -> Suggestion:
        """A suggestion as the client is shown it."""
        words = self._words
        if words is PLAIN:
            return suggestion
        return msgspec.structs.replace(
            suggestion,
            table=words.table(suggestion.table) if suggestion.table else suggestion.table,
            tables=tuple(
                TableVersion(table=words.table(one.table), version=words.version(one.table, one.version))
                for one in suggestion.tables
            )
            if suggestion.tables
            else suggestion.tables,
            rows=tuple(map(words.row, suggestion.rows)) if suggestion.rows else suggestion.rows,
            cells=self._worded_cells(suggestion.cells) if suggestion.cells else suggestion.cells,
            rules=tuple(map(words.rule_id, suggestion.rules)) if suggestion.rules else suggestion.rules,
        )

    def policy(self, name: str) -> str:
        """What a policy is called, in short."""
        return self._words.policy(name)

    def meets(self, precondition: Precondition) -> bool:
        """Whether nothing that a request's remembered values rest on has moved, as far as is known."""
        since = self._since(precondition.position)
        if not since or isinstance(since, str):
            return since == ()
        if precondition.cells is None:
            return False
        moved = self._moved(since)
        tables = moved.tables
        if any(
            name not in self._names or (name in tables and tables[name].touches(rows))
            for name, rows in precondition.cells.items()
        ):
            return False
        if moved.rules and (
            precondition.rules is None or not _ids(moved.rules).isdisjoint(precondition.rules)
        ):
            return False
        return not moved.policies or (
            precondition.policies is not None and set(precondition.policies).isdisjoint(moved.policies)
        )

    def changes_since(self, versions: Mapping[str, str], rules_version: str | None) -> Changes:
        """What happened since these versions of tables and, from Level 6 on, of the rules."""
        asks_rules = rules_version is not None and self.level >= Level.FINGERPRINT
        return Changes(
            tables={name: self._table_changes(name, since) for name, since in versions.items()},
            rules=self._rules_changes(rules_version or "") if asks_rules else UNSET,
            table_versions=self.versions.table_versions,
            rules_version=self.versions.rules_version,
        )

    def _stamped(self, account: Account, with_versions: bool, *, is_no_news: bool) -> Stamp:
        is_brief = account == Account(to=account.to)
        told = _encode(account.to if is_brief else account)
        if len(told) > _LONGEST_ACCOUNT:
            told = _encode(Account(to=account.to, since=account.since, nonce=account.nonce))
        members, headers = b'"at":' + told, [_at_header(account)]
        if with_versions:
            return Stamp(
                self.stamp.members + b"," + members, self.stamp.headers + headers, vary=self.stamp.vary
            )
        return Stamp(members, headers, vary=self.stamp.vary, is_compact=True, is_no_news=is_no_news)

    def _since(self, position: Position | None) -> Sequence[Entry] | Unknown:
        """The entries after a position; or why they are not known. With none named there are none."""
        if position is None or position == self.position:
            return ()
        if position.number > self.position.number:
            return "ahead"
        if position.number == self.position.number:
            return "foreign"
        at = position.number - self._tail[0].number + 1 if self._tail else -1
        if at < 0:
            return "old"
        is_here = check_over(self.log_id, self._words.digest(self._tail[at].previous)) == position.check
        return self._tail[at:] if is_here else "foreign"

    def _moved(self, entries: Sequence[Entry]) -> Moved:
        """What these entries come to, in an order that does not tell how anything was declared.

        A table that is again at the version that it had has not moved.
        """
        before_them: dict[str, str | None] = {}
        for entry in entries:
            for name, change in entry.change.tables.items():
                before_them.setdefault(name, change.old_version)
        names = [
            name
            for name, version in before_them.items()
            if name in self._tables and self._tables[name].version != version
        ]
        rules = next((entry.change.rules for entry in entries if entry.change.rules), None)
        policies = next((entry.change.policies for entry in entries if entry.change.policies), None)
        before = {} if policies is None else policies.before
        others = {self._words.policy(name) for name in before if self._policies.get(name) != before[name]}
        worded = sorted((self._words.table(name), name) for name in names)
        return Moved(
            tables={alias: self._moved_table(name, entries) for alias, name in worded},
            rules=self._moved_rules(rules_between(rules.before, self._tables)) if rules else None,
            policies=tuple(sorted(others)),
        )

    def _moved_table(self, name: str, entries: Iterable[Entry]) -> MovedTable:
        """How a table differs from what it was before these entries."""
        rows, words = self._tables[name].rows, self._words
        before: dict[str, Row | None] = {}
        downstream: set[str] = set()
        for change in (entry.change.tables.get(name) for entry in entries):
            if change is not None:
                for key, row in change.delta.before.items():
                    before.setdefault(key, row)  # the oldest counts
                downstream.update(change.downstream)
        diff = Delta.of(before, {key: rows.get(key) for key in before}).diff

        def worded(keys: Iterable[str]) -> tuple[str, ...]:
            return tuple(keys) if words is PLAIN else tuple(sorted(words.key(name, key) for key in keys))

        return MovedTable(
            added=worded(diff.added),
            removed=worded(diff.removed),
            changed=worded(diff.changed),
            columns=self._worded_columns(name, diff.columns),
            affected_downstream=tuple(sorted(map(words.row, downstream))) if diff else (),
        )

    def _moved_rules(self, before: RuleSet) -> MovedRules | None:
        added, removed = self._rules.added_since(before), before.added_since(self._rules)
        if not added and not removed:
            return None
        return MovedRules(added=self._worded_rules(added), removed=self._worded_rules(removed))

    def _worded_rules(self, rules: Iterable[Rule]) -> tuple[Rule, ...]:
        return tuple(sorted(map(self._words.rule, rules), key=lambda rule: rule.canonical))

    def _worded_columns(self, table: str, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Columns by key. An empty key, for all keys, and what is no list stay as they are."""
        words = self._words
        if words is PLAIN:
            return dict(columns)
        worded = {
            key and words.key(table, key): read and tuple(sorted(words.column(table, one) for one in read))
            for key, read in columns.items()
        }
        return dict(sorted(worded.items()))

    def _worded_cells(self, cells: Cells) -> Cells:
        return {
            self._words.table(table): None if rows is None else self._worded_columns(table, rows)
            for table, rows in cells.items()
        }

    def _shown(self, moved: Moved) -> Moved:
        """The same for this client: what the level has of it, and without the lists where it may not see them."""
        tables = {name: self._shown_table(one) for name, one in moved.tables.items()}
        rules = moved.rules if self.level >= Level.FINGERPRINT else None
        if rules is not None and not self._sees_diffs:
            rules = _counted_rules(rules)
        return msgspec.structs.replace(moved, tables=tables, rules=rules)

    def _shown_table(self, moved: MovedTable) -> MovedTable:
        if moved and not self._sees_diffs:
            return _counted_table(moved)
        return msgspec.structs.replace(
            moved,
            columns=moved.columns if self.level >= Level.VECTORS else {},
            affected_downstream=moved.affected_downstream if self.level >= Level.GRAPH else (),
        )

    def _table_changes(self, name: str, since: str) -> TableChanges:
        table = self._tables.get(self._names.get(name, ""))
        version = self.versions.table_versions.get(name)
        entries = None if table is None else self._since_version(table.name, since)
        if table is None or entries is None:
            return TableChanges(since=since, version=version, known=False)
        moved = self._shown(Moved(tables={name: self._moved_table(table.name, entries)})).tables[name]
        told = (
            {"added": moved.added, "removed": moved.removed, "changed": moved.changed} if moved.known else {}
        )
        return TableChanges(
            since=since,
            version=version,
            known=moved.known,
            columns=moved.columns or UNSET,
            affected_downstream=moved.affected_downstream
            if moved.known and self.level >= Level.GRAPH
            else UNSET,
            counts=moved.counts,
            **told,
        )

    def _since_version(self, name: str, since: str) -> Sequence[Entry] | None:
        """The entries after a table had a version, in the client's words; None when none of those that are kept did."""
        if self._words.version(name, self._tables[name].version) == since:
            return ()
        for at in range(len(self._tail) - 1, -1, -1):
            change = self._tail[at].change.tables.get(name)
            old = None if change is None else change.old_version
            if old is not None and self._words.version(name, old) == since:
                return self._tail[at:]
        return None

    def _rules_changes(self, since: str) -> RulesChanges:
        version = self.versions.rules_version or ""
        before = next(
            (rules for rules in self._older_rules() if self._words.fingerprint(rules.version) == since), None
        )
        if before is None:
            return RulesChanges(since=since, version=version, known=False)
        moved = self._moved_rules(before) or MovedRules()
        shown = moved if self._sees_diffs or not _ids(moved) else _counted_rules(moved)
        told = {"added": shown.added, "removed": shown.removed} if shown.known else {}
        return RulesChanges(since=since, version=version, known=shown.known, counts=shown.counts, **told)

    def _older_rules(self) -> Iterator[RuleSet]:
        """The rules that held, newest first."""
        yield self._rules
        for entry in reversed(self._tail):
            if entry.change.rules is not None:
                yield rules_between(entry.change.rules.before, self._tables)


def face_of(state: State, level: Level) -> Face:
    """What a state shows, in the server's own words, to clients at a level. It is made once."""
    face: Face | None = state.faces.get(level)
    if face is None:
        face = state.faces[level] = Face(state, level)
    return face


def short_name(text: str) -> str:
    """A name of three characters. Two that share one are only told apart less."""
    return hashlib.sha256(text.encode()).hexdigest()[:3]


def _at_header(account: Account) -> tuple[str, str]:
    return AT_HEADER, f"{account.to};n={account.nonce}" if account.nonce else account.to


def _headers_of(versions: ContractState, tag: str) -> list[tuple[str, str]]:
    """The stamps of a response whose body is left alone."""
    headers = [(STATE_HEADER, quoted(tag))]
    table_versions = table_versions_header(versions.table_versions)
    if len(table_versions) <= _LONGEST_HEADER:
        headers.append((TABLES_HEADER, table_versions))
    if versions.rules_version:
        headers.append((RULES_HEADER, quoted(versions.rules_version)))
    return headers


def _ids(moved: MovedRules) -> set[str]:
    return {rule.id for rule in (*moved.added, *moved.removed)}


def _counted_table(moved: MovedTable) -> MovedTable:
    counts = Counts(added=len(moved.added), removed=len(moved.removed), changed=len(moved.changed))
    return MovedTable(known=False, counts=counts)


def _counted_rules(moved: MovedRules) -> MovedRules:
    return MovedRules(known=False, counts=Counts(added=len(moved.added), removed=len(moved.removed)))
