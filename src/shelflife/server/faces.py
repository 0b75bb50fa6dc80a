"""What a state shows to clients at one level, and what it makes of what they ask."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

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
from shelflife.contract.stamps import (
    RULES_HEADER,
    STATE_HEADER,
    TABLES_HEADER,
    quoted,
    state_name,
    table_versions_header,
)
from shelflife.server.delta import Delta, Row
from shelflife.server.log import Change, Entry, check_over
from shelflife.server.rules import RuleSet
from shelflife.server.stamps import Stamp
from shelflife.server.state import State, rules_between
from shelflife.server.wire import Level
from shelflife.server.words import PLAIN, Words

__all__ = ["Face", "face_of"]

_LONGEST_HEADER = 4096
_LONGEST_ACCOUNT = 4096
"""A reply that has more to tell than this says only that it has gone on. The client then asks."""

_SHORTEST_KEY = len(b'"k",')
_MOST_ACCOUNTS = 256
_encode = msgspec.json.Encoder().encode
_Moves = TypeVar("_Moves", MovedTable, MovedRules)


class Face:
    """A state in the words of a client.

    The state holds its face. So the face holds parts of the state and not the state, and both are freed together.
    """

    def __init__(
        self, state: State, level: Level, words: Words = PLAIN, *, sees_diffs: bool = True, vary: str = ""
    ) -> None:
        self.level = level
        self.words = words
        """What things are called for the client."""
        self._sees_diffs = sees_diffs
        self._tables, self._rules, self._all_rules = state.tables, state.rules, state.all_rules
        self._policies, self._tail = state.policies, state.tail
        named = {words.table(name): name for name in state.tables}
        self._names = named if words is PLAIN else dict(sorted(named.items()))
        """The tables by what they are called. In the order of the aliases: that of the tables would tell how they were declared."""
        self.log_id = words.log(state.log_id)
        """Names the log."""
        digest = words.digest(state.digest)
        self.position = Position(state.number, check_over(self.log_id, digest))
        """Where in the log the state is."""
        self.named = Named(self.position)
        """What a client without a mark knows that was told of it: one object for a thousand listeners."""
        self.digest = hashlib.sha256(f"{self.log_id} {digest}".encode()).hexdigest()
        """Over all that is in the log up to there, as this client is shown it."""
        table_versions = {
            alias: words.version(name, state.tables[name].version) for alias, name in self._names.items()
        }
        fingerprint = words.fingerprint(state.rules.version) if level >= Level.FINGERPRINT else UNSET
        self.versions = ContractState(table_versions=table_versions, rules_version=fingerprint)
        """What of its versions goes on the wire."""
        members = _encode(self.versions)[1:-1]
        self.tag = state_name(table_versions, fingerprint or None)
        """Names these versions. The same ones have the same tag, on any replica."""
        self.stamp = Stamp(members, _headers_of(self.versions, self.tag))
        """What a response carries to a client that names no position."""
        self.vary = vary
        """The request headers on which it depends, as in `Vary`."""
        self._accounts: dict[Position | None, Account] = {}
        """What is said to those who name a position, as though they had neither mark nor nonce."""
        self.events: dict[Position, tuple[bytes, int]] = {}
        """The same as it is written for the feed; kept here, because it goes with the state."""

    def stamp_at(self, named: Named, *, with_versions: bool) -> Stamp:
        """What a response carries to a client that names a position, beside the versions or in their place."""
        account, told = self.account_within(_LONGEST_ACCOUNT, named)
        if not (account.since or account.nonce):
            told = _encode(account.to)
        members, headers = b'"at":' + told, [self._header_at(named)]
        if with_versions:
            members, headers = self.stamp.members + b"," + members, self.stamp.headers + headers
        is_no_news = not with_versions and named == Named(self.position, named.mark)
        return Stamp(members, headers, is_compact=not with_versions, is_no_news=is_no_news)

    def cacheable_stamp(self, named: Named) -> Stamp:
        """The same for a response that a cache may give to others: what it carries does not depend on what they name."""
        return msgspec.structs.replace(self.stamp, beside=[self._header_at(named)])

    def account(self, named: Named) -> Account:
        """What is said of the position of the state to a client that names another. What has moved is worked out once."""
        account = self._accounts.get(named.position)
        if account is None:
            account = self._account(named.position)
            if len(self._accounts) >= _MOST_ACCOUNTS:
                self._accounts.clear()
            self._accounts[named.position] = account
        return msgspec.structs.replace(account, since=account.since and named.base, nonce=named.nonce)

    def account_within(
        self, most_bytes: int, named: Named, otherwise: Unknown | UnsetType = UNSET
    ) -> tuple[Account, bytes]:
        """The same, and how it is written. One that is too long does not say what has moved, and `otherwise` in its place."""
        since = self._since(named.position)
        row_count = 0 if isinstance(since, str) else sum(entry.change.size for entry in since)
        if row_count * _SHORTEST_KEY <= most_bytes:  # else it would be worked out in vain
            account = self.account(named)
            told = _encode(account)
            if len(told) <= most_bytes:
                return account, told
        account = Account(to=str(self.position), since=named.base, unknown=otherwise, nonce=named.nonce)
        return account, _encode(account)

    def suggestion(self, suggestion: Suggestion) -> Suggestion:
        """A suggestion as the client is shown it."""
        words = self.words
        if words is PLAIN or not suggestion.table:
            return suggestion
        vector = (
            TableVersion(table=words.table(one.table), version=words.version(one.table, one.version))
            for one in suggestion.tables or ()
        )
        return msgspec.structs.replace(
            suggestion,
            table=words.table(suggestion.table),
            tables=tuple(vector) or UNSET,
            rows=tuple(map(words.row, suggestion.rows or ())) or UNSET,
            cells=self._worded_cells(suggestion.cells or {}) or UNSET,
            rules=tuple(map(words.rule_id, suggestion.rules or ())) or UNSET,
        )

    def meets(self, precondition: Precondition) -> bool:
        """Whether nothing that a request's remembered values rest on has moved, as far as is known."""
        since = self._since(precondition.position)
        if not since or isinstance(since, str):
            return since == ()
        if precondition.cells is None:
            return False
        moved = self._moved(since)
        rule_ids = {rule.id for rule in (*moved.rules.added, *moved.rules.removed)} if moved.rules else set()
        is_touched = any(
            name not in self._names or (name in moved.tables and moved.tables[name].touches(rows))
            for name, rows in precondition.cells.items()
        )
        return not (
            is_touched
            or _may_be_among(rule_ids, precondition.rules)
            or _may_be_among({*moved.policies}, precondition.policies)
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

    def _header_at(self, named: Named) -> tuple[str, str]:
        return AT_HEADER, Named(self.position, nonce=named.nonce).header

    def _account(self, position: Position | None) -> Account:
        to, since = str(self.position), self._since(position)
        if since == ():
            return Account(to=to)
        if isinstance(since, str):
            return Account(to=to, since=str(position), unknown=since)
        moved = self._moved(since)
        shown = msgspec.structs.replace(
            moved,
            tables={name: self._shown_table(one) for name, one in moved.tables.items()},
            rules=self._shown_rules(moved.rules) if self.level >= Level.FINGERPRINT else None,
        )
        return Account(to=to, since=str(position), moved=shown)

    def _since(self, position: Position | None) -> Sequence[Entry] | Unknown:
        """The entries after a position; or why they are not known. With none named there are none."""
        if position is None or position == self.position:
            return ()
        if position.number >= self.position.number:
            return "ahead" if position.number > self.position.number else "foreign"
        at = position.number - self._tail[0].number + 1 if self._tail else -1
        if at < 0:
            return "old"
        is_here = check_over(self.log_id, self.words.digest(self._tail[at].previous)) == position.check
        return self._tail[at:] if is_here else "foreign"

    def _moved(self, entries: Sequence[Entry]) -> Moved:
        """What these entries come to, in an order that does not tell how anything was declared.

        A table that is again at the version that it had has not moved.
        """
        old_versions: dict[str, str | None] = {}
        versions: dict[str, str] = {}
        rules, policies = self._all_rules, self._policies
        for change in (entry.change for entry in reversed(entries)):  # of the old ones the oldest counts
            old_versions |= {name: one.old_version for name, one in change.tables.items()}
            versions = {name: one.version for name, one in change.tables.items()} | versions
            rules = _rules_before(change, rules)
            policies = change.policies.before if change.policies else policies
        # Tables that are not declared here are told too: whoever is led on must not be left with what rests on them.
        tables = sorted(
            (self.words.table(name), name) for name in versions if old_versions[name] != versions[name]
        )
        others = {self.words.policy(name) for name in policies if self._policies.get(name) != policies[name]}
        return Moved(
            tables={alias: self._moved_table(name, entries) for alias, name in tables},
            rules=self._moved_rules(rules, self._all_rules),
            policies=tuple(sorted(others)),
        )

    def _moved_table(self, name: str, entries: Iterable[Entry]) -> MovedTable:
        """How a table differs from what it was before these entries."""
        words = self.words
        changes = [entry.change.tables[name] for entry in entries if name in entry.change.tables]
        before: dict[str, Row | None] = {}
        after: dict[str, Row | None] = {}
        for older, newer in zip(reversed(changes), changes, strict=True):
            before |= older.delta.before
            after |= newer.delta.after
        downstream = {words.row(node) for change in changes for node in change.downstream}
        diff = Delta.of(before, after).diff

        def worded(keys: Iterable[str]) -> tuple[str, ...]:
            return tuple(sorted(words.key(name, key) for key in keys))

        return MovedTable(
            added=worded(diff.added),
            removed=worded(diff.removed),
            changed=worded(diff.changed),
            columns=self._worded_columns(name, diff.columns),
            affected_downstream=tuple(sorted(downstream)) if diff else (),
        )

    def _moved_rules(self, before: RuleSet, after: RuleSet) -> MovedRules | None:
        added, removed = after.added_since(before), before.added_since(after)
        if not added and not removed:
            return None
        return MovedRules(added=self._worded_rules(added), removed=self._worded_rules(removed))

    def _worded_rules(self, rules: Iterable[Rule]) -> tuple[Rule, ...]:
        return tuple(sorted(map(self.words.rule, rules), key=lambda rule: rule.canonical))

    def _worded_columns(self, table: str, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Columns by key. An empty key, for all keys, and what is no list stay as they are."""
        words = self.words
        worded = {
            key and words.key(table, key): read and tuple(sorted(words.column(table, one) for one in read))
            for key, read in columns.items()
        }
        return dict(sorted(worded.items()))

    def _worded_cells(self, cells: Cells) -> Cells:
        return {
            self.words.table(table): None if rows is None else self._worded_columns(table, rows)
            for table, rows in cells.items()
        }

    def _shown_table(self, moved: MovedTable) -> MovedTable:
        """What the level has of it, and without the lists where the client may not see them."""
        if moved and not self._sees_diffs:
            return _counted(moved)
        return msgspec.structs.replace(
            moved,
            columns=moved.columns if self.level >= Level.VECTORS else {},
            affected_downstream=moved.affected_downstream if self.level >= Level.GRAPH else (),
        )

    def _shown_rules(self, moved: MovedRules | None) -> MovedRules | None:
        return moved if moved is None or self._sees_diffs else _counted(moved)

    def _table_changes(self, name: str, since: str) -> TableChanges:
        moved, table = MovedTable(known=False), self._names.get(name)
        entries = None if table is None else self._since_version(table, since)
        if table is not None and entries is not None:
            moved = self._shown_table(self._moved_table(table, entries))
        told = _told(moved) | {"columns": moved.columns or UNSET}
        if self.level < Level.GRAPH:
            told["affected_downstream"] = UNSET
        return TableChanges(since=since, version=self.versions.table_versions.get(name), **told)

    def _since_version(self, name: str, since: str) -> Sequence[Entry] | None:
        """The entries after a table had a version, in the client's words; None when none of those that are kept did."""
        if self.words.version(name, self._tables[name].version) == since:
            return ()
        for at in range(len(self._tail) - 1, -1, -1):
            change = self._tail[at].change.tables.get(name)
            old = None if change is None else change.old_version
            if old is not None and self.words.version(name, old) == since:
                return self._tail[at:]
        return None

    def _rules_changes(self, since: str) -> RulesChanges:
        older = (one for one in self._older_rules() if self.words.fingerprint(one.version) == since)
        moved = MovedRules(known=False)
        if (before := next(older, None)) is not None:
            moved = self._shown_rules(self._moved_rules(before, self._rules)) or MovedRules()
        return RulesChanges(since=since, version=self.versions.rules_version or "", **_told(moved))

    def _older_rules(self) -> Iterator[RuleSet]:
        """The rules that held, newest first."""
        rules = self._all_rules
        yield self._rules
        for entry in reversed(self._tail):
            if entry.change.rules is not None:
                rules = _rules_before(entry.change, rules)
                yield rules_between(rules, self._tables)


def _rules_before(change: Change, rules: RuleSet) -> RuleSet:
    """The rules that held before a change, given those after it."""
    return rules.changed(change.rules.removed, change.rules.added) if change.rules else rules


def face_of(state: State, level: Level) -> Face:
    """What a state shows, in the server's own words, to clients at a level. It is made once."""
    face: Face | None = state.faces.get(level)
    if face is None:
        face = state.faces.setdefault(level, Face(state, level))
    return face


def _headers_of(versions: ContractState, tag: str) -> list[tuple[str, str]]:
    """The stamps of a response whose body is left alone."""
    headers = [(STATE_HEADER, quoted(tag))]
    table_versions = table_versions_header(versions.table_versions)
    if len(table_versions) <= _LONGEST_HEADER:
        headers.append((TABLES_HEADER, table_versions))
    if versions.rules_version:
        headers.append((RULES_HEADER, quoted(versions.rules_version)))
    return headers


def _may_be_among(moved: set[str], named: Iterable[str] | None) -> bool:
    """Whether something that has moved is among what a client names; None stands for anything."""
    return bool(moved) and (named is None or not moved.isdisjoint(named))


def _counted(moved: _Moves) -> _Moves:
    """How much has moved, for a client that is not shown what."""
    lists = msgspec.structs.asdict(moved)
    counts = Counts(**{name: len(lists[name]) for name in Counts.__struct_fields__ if name in lists})
    return type(moved)(known=False, counts=counts)


def _told(moved: MovedTable | MovedRules) -> dict[str, Any]:
    """What is told of it to a client that asks by versions: the lists, or why they are not there."""
    return msgspec.structs.asdict(moved) if moved.known else {"known": False, "counts": moved.counts}
