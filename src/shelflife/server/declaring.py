"""What code declares, and what of it is otherwise than when it was last started: only that is set anew, as by a reload."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from shelflife.contract import Rule
from shelflife.contract.names import shown
from shelflife.server.delta import Delta, Row
from shelflife.server.errors import BadRule, SourceError, VersionTaken
from shelflife.server.graph import downstream
from shelflife.server.log import Change, Declared, RulesChange, TableChange
from shelflife.server.rules import RuleSet
from shelflife.server.state import State
from shelflife.server.tables import RowMap, Table, clean_rows, content_of, is_minted, minted_version

__all__ = [
    "MOST_READINGS",
    "Declaration",
    "GivenTables",
    "TableSource",
    "check_columns_of",
    "check_tables_of",
    "digests_of",
    "read_source",
    "redeclared",
    "table_change",
]

MOST_READINGS = 3
"""So often at most a source is read for one change, because somebody else was faster."""

TableSource = Callable[[], Mapping[str, Row] | Awaitable[Mapping[str, Row]]]
"""Reads a table from where it lives. It may be async: then it runs in an event loop of its own."""

GivenTables = Mapping[str, Mapping[str, Row] | TableSource]
"""Tables by name: the rows of each, or where they are read from."""

_RULES = ":rules"
"""Stands for the rules among what is declared; no table is called that."""


def read_source(table: str, given: Mapping[str, Row] | TableSource) -> Mapping[str, Row]:
    """The rows of a table that was given as such, or as a source; `SourceError` when that fails."""
    if not callable(given):
        return given
    try:
        rows: Any = given()
        if inspect.isawaitable(rows):
            with ThreadPoolExecutor(1) as elsewhere:  # here an event loop may be running
                rows = elsewhere.submit(asyncio.run, _result_of(rows)).result()
    except SourceError:
        raise
    except Exception as error:
        raise SourceError(f"the source of table {table} failed: {type(error).__name__}: {error}") from error
    checked: Mapping[str, Row] = rows
    return checked


async def _result_of(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


class Declaration:
    """What code declares: tables, and the rules between them unless there is nothing to say of these. Sources are read at once."""

    def __init__(self, given: GivenTables, versions: Mapping[str, str], rules: RuleSet | None = None) -> None:
        self.sources = frozenset(name for name, one in given.items() if callable(one))
        self._given, self._versions, self._rules = given, versions, rules
        self._tables: dict[str, Table] = {}
        self._told: Declared | None = None
        self._read(given)

    def read_again(self) -> None:
        """Read the sources again."""
        self._read(self.sources)

    def _read(self, names: Iterable[str]) -> None:
        self._told = None
        for name in names:
            rows = clean_rows(name, read_source(name, self._given[name]))
            self._tables[name] = Table(name, RowMap(rows), self._versions.get(name))
        if self._rules is not None:
            check_tables_of(self._rules, self._tables)
            check_columns_of(self._rules, self._tables)

    def state(self) -> State:
        """The state with which a log of its own would begin."""
        return State.at_first(dict(self._tables), self._rules or RuleSet(()))

    def told(self) -> Declared:
        """The same in digests."""
        if self._told is None:
            told = {name: digests_of(table.rows) for name, table in self._tables.items()}
            if self._rules is not None:
                told[_RULES] = {rule.id: _digest(rule.id, {"rule": rule}) for rule in self._rules}
            self._told = told
        return self._told


def check_tables_of(rules: RuleSet, tables: Mapping[str, Table]) -> None:
    """Refuse rules that name other tables."""
    for rule in rules:
        for name in (rule.from_table, rule.to_table):
            if name not in tables:
                raise BadRule(f"the rule {rule.id} names the table {name}, which is not loaded")


def check_columns_of(rules: Iterable[Rule], tables: Mapping[str, Table]) -> None:
    """Refuse rules by a column that no row has. A table without rows may have any column."""
    for rule in rules:
        rows = tables[rule.from_table].rows
        if rule.via is not None and rows and not any(rule.via in row for row in rows.values()):
            raise BadRule(
                f"the rule {rule.id} goes by the column {shown(rule.via)}, which no row of {rule.from_table} has"
            )


def digests_of(rows: Mapping[str, Row]) -> dict[str, str]:
    """A digest of every row, by key."""
    return {key: _digest(key, row) for key, row in rows.items()}


def _digest(key: str, row: Row) -> str:
    return f"{content_of({key: row}) % 2**64:x}"


def redeclared(state: State, declared: State, told: Declared, known: Declared) -> Change | None:
    """What the code declares otherwise than when it was last started. It counts as a reload."""
    anew = {name for name in told if known.get(name) != told[name]}
    tables = {}
    for name in sorted(anew - {_RULES}):
        change = _redeclared_table(state, declared.tables[name], told[name], known.get(name, {}))
        if change.version != change.old_version:
            tables[name] = change
    rules, old, new = None, state.rules, declared.rules
    gone = known.get(_RULES, {}).keys() - told.get(_RULES, {}).keys()
    elsewhere = tuple(rule for rule in state.rules_elsewhere if rule.id in gone)
    if _RULES in anew and (new != old or elsewhere):  # their columns were looked for in declared rows
        rules = RulesChange(new.added_since(old), (*old.added_since(new), *elsewhere))
    return Change(tables=tables, rules=rules) if anew else None


def _redeclared_table(
    state: State, declared: Table, told: Mapping[str, str], known: Mapping[str, str]
) -> TableChange:
    """How a table follows its declaration: only rows that are declared otherwise than before are set anew."""
    table = state.tables.get(declared.name)
    if table is None:
        whole = Delta.setting({}, declared.rows)
        return TableChange(None, declared.version, declared.content_name, whole)
    rows = {key: declared.rows[key] for key in told if told[key] != known.get(key)}
    delta = Delta.setting(table.rows, rows, [key for key in known if key not in told])
    version, content = declared.version, table.content_after(delta)
    is_to_be_minted = is_minted(version) or table.given_versions.get(version, content) != content
    return table_change(state, table, delta, None if is_to_be_minted else version)


def table_change(state: State, table: Table, delta: Delta, version: str | None) -> TableChange:
    """What a delta does to a table; `VersionTaken` when the version stands for other content."""
    content = table.content_after(delta)
    if version is None:
        version = minted_version(content) if delta else table.version
    elif table.given_versions.get(version, content) != content:
        raise VersionTaken(table.name, version)
    gone_stale = [key for key, row in delta.before.items() if row is not None]
    affected = downstream(state.tables, state.rules, table.name, gone_stale)
    return TableChange(table.version, version, f"{content:x}", delta, affected)
