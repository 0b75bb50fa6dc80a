"""The registry: the current state, and the only place where a version is minted."""

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any

from shelflife.contract import Rule
from shelflife.contract.messages import ReloadReport, RulesReport
from shelflife.contract.names import check_version, shown
from shelflife.server.delta import Delta, Row
from shelflife.server.errors import BadRule, ReloadRefused, UnknownTable, UsageError, VersionTaken
from shelflife.server.graph import downstream
from shelflife.server.rules import RuleSet
from shelflife.server.state import State
from shelflife.server.statefile import StateFile
from shelflife.server.tables import (
    MINTED_VERSION,
    RowMap,
    Table,
    check_key,
    clean_delta,
    clean_rows,
    digest_of_rows,
)

__all__ = ["Registry"]

_FIRST_NUMBER = "1.0.0"
_LAST_NUMBER = re.compile(r"(\d+)(?!.*\d)")
_LONGEST_NUMBER = 100


class Registry:
    """Holds the current state and swaps it whole.

    Readers take `state` once and work on that, and never wait. Reloads come one after another. Each is written to the
    state file, if there is one, before anybody sees it.
    """

    def __init__(
        self,
        tables: Mapping[str, Mapping[str, Row]],
        rules: Iterable[Rule] = (),
        *,
        versions: Mapping[str, str] | None = None,
        state_file: StateFile | None = None,
    ) -> None:
        versions = dict(versions or {})
        if unknown := sorted(versions.keys() - tables.keys()):
            raise UsageError(f"a version is given for {unknown[0]}, which is not among the tables")
        declared: dict[str, Table] = {}
        for name, rows in tables.items():
            cleaned = RowMap(clean_rows(name, rows))
            version = versions[name] if name in versions else _minted(_FIRST_NUMBER, digest_of_rows(cleaned))
            declared[name] = Table(name, cleaned, version)
        rule_set = RuleSet(rules)
        _check_tables_of(rule_set, declared)
        _check_columns_of(rule_set, declared)
        self.state = State(declared, rule_set)
        """The current state. Take it once per request, and never set it."""
        self._state_file = state_file
        self._reloading = threading.Lock()
        self._on_change: list[Callable[[], None]] = []
        if state_file is not None:
            self._take_up(state_file, explicit_versions=versions)

    def on_change(self, told: Callable[[], None]) -> None:
        """Have a function called after every change of the state, in the thread that made it."""
        self._on_change.append(told)

    def _make_current(self, state: State) -> None:
        self.state = state
        for told in self._on_change:
            told()

    def rows(self, name: str) -> dict[str, Row]:
        """A copy of a table's current rows, to edit and hand to `reload_table`."""
        if name not in self.state.tables:
            raise UnknownTable(name)
        return deepcopy(self.state.tables[name].rows.to_dict())

    def reload_table(
        self,
        name: str,
        rows: Mapping[str, Any] | None = None,
        *,
        set: Mapping[str, Any] | None = None,
        remove: Iterable[str] = (),
        version: str | None = None,
    ) -> ReloadReport:
        """Give a table its whole new `rows`, or `set` some rows and `remove` some keys.

        Without a `version` one is minted when the content really changes; identical content is no change. With a
        `version` the table bears it from now on, even when no row changed.
        """
        remove = list(remove)
        if (rows is None) == (set is None and not remove):
            raise ReloadRefused("a reload takes either rows, or set and remove")
        with self._reloading:
            table = self.state.tables.get(name)
            if table is None:
                raise UnknownTable(name)
            if rows is not None:
                delta = clean_delta(name, table.rows, rows)
            else:
                delta = _delta_of_change(table, set or {}, remove)
            return self._apply(table, delta, version)

    def reload_rules(
        self,
        rules: Iterable[Rule] | None = None,
        *,
        add: Iterable[Rule] = (),
        remove: Iterable[Rule] = (),
    ) -> RulesReport:
        """Put all the `rules` in the place of the old ones, or `add` some and `remove` some."""
        add, remove = list(add), list(remove)
        if (rules is None) == (not add and not remove):
            raise ReloadRefused("a reload takes either rules, or add and remove")
        with self._reloading:
            old = self.state.rules
            if rules is None:
                if missing := [rule for rule in remove if rule not in {*old}]:
                    raise ReloadRefused(f"no rule {missing[0].id} like that is declared")
                kept = [rule for rule in old if rule not in {*remove}]
                rules = [*kept, *(rule for rule in add if rule not in kept)]
            new = RuleSet(rules)
            _check_tables_of(new, self.state.tables)
            _check_columns_of(new.added_since(old), self.state.tables)
            self._set_rules(new)
            return RulesReport(
                old_version=old.version,
                new_version=new.version,
                added=new.added_since(old),
                removed=old.added_since(new),
            )

    def _set_rules(self, rules: RuleSet) -> None:
        if rules != self.state.rules:
            state = self.state.with_rules(rules)
            if self._state_file is not None:
                self._state_file.write_rules(rules, state.older_rules)
            self._make_current(state)

    def _apply(self, table: Table, delta: Delta, version: str | None) -> ReloadReport:
        new_version = _next_version(table, delta, version)
        diff = delta.diff
        affected = downstream(self.state.tables, self.state.rules, table.name, diff.gone_stale)
        if new_version != table.version:
            new_table = table.after(delta, new_version, affected)
            if self._state_file is not None:
                self._state_file.write_table(new_table, delta)
            self._make_current(self.state.with_table(new_table))
        return ReloadReport(
            table=table.name,
            old_version=table.version,
            new_version=new_version,
            added=diff.added,
            removed=diff.removed,
            changed=diff.changed,
            affected_downstream=affected,
        )

    def _take_up(self, state_file: StateFile, explicit_versions: Mapping[str, str]) -> None:
        """Go on from the file. Rows and rules whose declaration has changed since the last start count as a
        reload."""
        declared = self.state
        with state_file.at_once():
            stored = state_file.open(declared)
            self.state = stored.state
            for name, redeclared in stored.redeclared_tables.items():
                table = self.state.tables[name]
                delta = Delta.setting(table.rows, redeclared.rows, redeclared.removed)
                version = explicit_versions.get(name)
                self._apply(table, delta, None if version in table.used_versions else version)
            if stored.are_rules_redeclared:
                self._set_rules(declared.rules)  # their columns were looked for among the declared rows
            state_file.mark_declared(declared)


def _delta_of_change(table: Table, rows: Mapping[str, Any], remove: list[str]) -> Delta:
    cleaned = clean_rows(table.name, rows)
    removed: set[str] = set()
    for key in remove:
        check_key(key, table.name)
        if key in removed:
            raise ReloadRefused(f"the key {key!a} is removed twice")
        if key in cleaned:
            raise ReloadRefused(f"the key {key!a} is both set and removed")
        removed.add(key)
    return Delta.setting(table.rows, cleaned, remove)


def _next_version(table: Table, delta: Delta, version: str | None) -> str:
    if version is None:
        return _minted_version(table, delta) if delta else table.version
    check_version(version)
    if version in table.used_versions:
        since = table.delta_since(version)
        if since is None or since[0].then(delta):
            raise VersionTaken(table.name, version)
    return version


def _minted_version(table: Table, delta: Delta) -> str:
    """The version with its last number raised, and a digest of what changed.

    The digest is over the old version and the change, so that a server that restarts without a state file, or another
    replica, never gives one string to two contents.
    """
    minted = MINTED_VERSION.match(table.version)
    number = minted[1] if minted else table.version
    if not _LAST_NUMBER.search(number) or len(number) > _LONGEST_NUMBER:
        number = _FIRST_NUMBER
    digest = digest_of_rows({**delta.after, "": {"since": table.version}})
    while True:
        number = _LAST_NUMBER.sub(lambda last: str(int(last[1]) + 1), number)
        version = _minted(number, digest)
        if version not in table.used_versions:
            return version


def _minted(number: str, digest: str) -> str:
    return f"{number}-{digest[:8]}"


def _check_tables_of(rules: RuleSet, tables: Mapping[str, Table]) -> None:
    for rule in rules:
        for name in (rule.from_table, rule.to_table):
            if name not in tables:
                raise BadRule(f"the rule {rule.id} names the table {name}, which is not loaded")


def _check_columns_of(rules: Iterable[Rule], tables: Mapping[str, Table]) -> None:
    """Refuse rules by a column that no row has. A table without rows may have any column."""
    for rule in rules:
        rows = tables[rule.from_table].rows
        if rule.via is not None and rows and not any(rule.via in row for row in rows.values()):
            raise BadRule(
                f"the rule {rule.id} goes by the column {shown(rule.via)}, which no row of {rule.from_table} has"
            )
