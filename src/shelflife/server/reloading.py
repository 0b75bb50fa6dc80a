"""What a reload comes to in a state, before anybody makes it. Pure."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from shelflife.contract import Rule
from shelflife.contract.errors import BadName
from shelflife.contract.messages import ReloadReport, ReloadTable
from shelflife.contract.names import check_version, shown
from shelflife.server.declaring import table_change
from shelflife.server.delta import Delta
from shelflife.server.errors import ReloadRefused, TableMoved, UnknownTable
from shelflife.server.log import TableChange
from shelflife.server.rules import RuleSet
from shelflife.server.state import State
from shelflife.server.tables import Table, check_key, clean_delta, clean_rows, is_minted

__all__ = ["arguments_of", "changed_rules", "check_given", "reload_of", "report_of"]


def check_given(version: str) -> None:
    """Refuse a version that nobody may choose."""
    check_version(version)
    if is_minted(version):
        raise BadName(
            f"{shown(version)} cannot be chosen as a version: it looks like one that is made from the content"
        )


def changed_rules(old: RuleSet, add: list[Rule], remove: list[Rule]) -> RuleSet:
    """The rules with some more and without some."""
    if missing := [rule for rule in remove if rule not in {*old}]:
        raise ReloadRefused(f"no rule {missing[0].id} like that is declared")
    return old.changed([rule for rule in add if rule not in {*old} - {*remove}], remove)


def reload_of(
    state: State,
    name: str,
    rows: Mapping[str, Any] | None,
    set: Mapping[str, Any] | None,
    remove: list[str],
    version: str | None,
    replaces: str | None = None,
) -> TableChange:
    """What a reload comes to in a state."""
    if (rows is None) == (set is None and not remove):
        raise ReloadRefused("a reload takes either rows, or set and remove")
    if version is not None:
        check_given(version)
    table = state.tables.get(name)
    if table is None:
        raise UnknownTable(name)
    if replaces is not None and table.version != replaces:
        raise TableMoved(name, table.version, replaces)
    delta = clean_delta(name, table.rows, rows) if rows is not None else _delta_of(table, set or {}, remove)
    return table_change(state, table, delta, version)


def arguments_of(message: ReloadTable) -> dict[str, Any]:
    """What a message asks of `Registry.reload_table`, besides who does."""
    is_whole = message.rows is not UNSET
    return {
        "rows": message.rows if is_whole else None,
        "set": None if is_whole else message.set or {},
        "remove": message.remove or (),
        "version": message.version,
        "replaces": message.replaces,
    }


def report_of(table: str, change: TableChange) -> ReloadReport:
    """What is reported of a change to a table."""
    diff = change.delta.diff
    return ReloadReport(
        table=table,
        old_version=change.old_version or "",
        new_version=change.version,
        added=diff.added,
        removed=diff.removed,
        changed=diff.changed,
        affected_downstream=change.downstream,
    )


def _delta_of(table: Table, rows: Mapping[str, Any], remove: list[str]) -> Delta:
    cleaned = clean_rows(table.name, rows)
    for key, count in Counter(check_key(key, table.name) for key in remove).items():
        if count > 1 or key in cleaned:
            raise ReloadRefused(
                f"the key {key!a} is {'removed twice' if count > 1 else 'both set and removed'}"
            )
    return Delta.setting(table.rows, cleaned, remove)
