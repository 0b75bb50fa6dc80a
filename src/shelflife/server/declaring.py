"""What code declares, and what of it is otherwise than when it was last started: only that is set anew, as by a reload."""

from collections.abc import Mapping

from shelflife.server.delta import Delta, Row
from shelflife.server.errors import VersionTaken
from shelflife.server.graph import downstream
from shelflife.server.log import Change, Declared, RulesChange, TableChange
from shelflife.server.rules import RuleSet
from shelflife.server.state import State
from shelflife.server.tables import Table, content_of, is_minted, minted_version

__all__ = ["digests_of", "redeclared", "table_change", "told_of"]

_RULES = ":rules"
"""Stands for the rules among what is declared; no table is called that."""


def told_of(tables: Mapping[str, Table], rules: RuleSet) -> Declared:
    """What the code declares, in digests."""
    told = {name: digests_of(table.rows) for name, table in tables.items()}
    return {**told, _RULES: {rule.id: _digest(rule.id, {"rule": rule}) for rule in rules}}


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
