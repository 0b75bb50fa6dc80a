"""What to do about a response: pure functions from what is known and what was said to what must change."""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from shelflife.client.entries import Entry, Knowledge
from shelflife.client.events import Reason
from shelflife.client.strategies import OnRules, OnTable, Strategy
from shelflife.contract import Changes, Rule, Suggestion, split_node_id
from shelflife.contract.reading import Contract

__all__ = [
    "Disposal",
    "Movement",
    "compare_vectors",
    "dispose",
    "has_moved",
    "is_current",
    "tags_of",
]

EVERYTHING = "all"
"""The tag of every entry of an origin."""


def tags_of(entry: Entry) -> tuple[str, ...]:
    """The tags by which an entry can be found when something it rests on changes."""
    tags = [EVERYTHING, family_tag(entry.operation, entry.type)]
    tags += (table_tag(table) for table in entry.tables)
    if entry.rows is None:
        tags += (any_row_tag(table) for table in entry.tables)
    else:
        for node in entry.rows:
            table, key = split_node_id(node)
            tags.append(any_row_tag(table) if key is None else row_tag(node))
    tags += [ANY_RULE] if entry.rules is None else (rule_tag(rule) for rule in entry.rules)
    return tuple(dict.fromkeys(tags))


ANY_RULE = "rule"
"""The tag of an entry that may rest on any rule."""


def table_tag(table: str) -> str:
    """The tag of what depends on a table."""
    return f"table {table}"


def any_row_tag(table: str) -> str:
    """The tag of what read a table whole, or may have."""
    return f"rows {table}"


def row_tag(node: str) -> str:
    """The tag of what rests on a row."""
    return f"row {node}"


def rule_tag(rule: str) -> str:
    """The tag of what rests on a rule."""
    return f"rule {rule}"


def family_tag(operation: str, type: str) -> str:
    """The tag of fixes of one type for one operation."""
    return f"type {operation} {type}"


class Movement(msgspec.Struct, frozen=True):
    """How what a response says differs from what is known."""

    tables: dict[str, str | None]
    """The tables that moved, with the version they had; None for one that was not known."""

    has_rules_moved: bool
    is_untold: bool = False
    """The state is another one, but the response does not say how."""

    def __bool__(self) -> bool:
        return bool(self.tables) or self.has_rules_moved or self.is_untold


def has_moved(knowledge: Knowledge, contract: Contract, *, is_doubted: bool = False) -> Movement:
    """What moved between the knowledge and the contract; what the contract does not say has not.

    Doubted is knowledge of which a response was seen that could not be dealt with: the server must be asked for its state.
    """
    tables: dict[str, str | None] = {}
    if contract.table_versions is not None:
        for table in {**knowledge.table_versions, **contract.table_versions}:
            if knowledge.table_versions.get(table) != contract.table_versions.get(table):
                tables[table] = knowledge.table_versions.get(table)
    rules = knowledge.rules_version, contract.rules_version
    return Movement(
        tables,
        contract.rules_version is not None and rules[0] is not None and rules[0] != rules[1],
        is_doubted
        or (
            contract.table_versions is None
            and contract.state_tag is not None
            and contract.state_tag != knowledge.state_tag
        ),
    )


class Disposal(msgspec.Struct):
    """What must be dropped, by tag, and why; and what is known afterwards."""

    knowledge: Knowledge
    dropped: dict[str, Reason] = {}
    restamped: list[str] = []
    """Tables that moved, and of which something may still be good."""

    alert: Literal["stamp", "vector"] | None = None


def dispose(
    knowledge: Knowledge,
    contract: Contract,
    strategy: Strategy,
    changes: Changes | None,
    movement: Movement,
) -> Disposal:
    """What follows from a response. `changes` is what the server told about the movement; None when it could not."""
    disposal = Disposal(_known_after(knowledge, contract, changes), {}, [])
    if strategy.on_table is OnTable.NOTHING:
        return disposal
    if movement.is_untold and changes is None:
        disposal.dropped[EVERYTHING] = Reason.TABLE_MOVED
        return disposal
    _dispose_tables(disposal, movement, strategy, changes)
    if movement.has_rules_moved:
        _dispose_rules(disposal, strategy, changes)
    return disposal


def _dispose_tables(
    disposal: Disposal, movement: Movement, strategy: Strategy, changes: Changes | None
) -> None:
    for table, old_version in movement.tables.items():
        if old_version is None:
            continue
        told = changes.tables.get(table) if changes else None
        if strategy.on_table is OnTable.EVICT_TABLE or told is None or not told.known:
            disposal.dropped[table_tag(table)] = Reason.TABLE_MOVED
            continue
        keys = [*(told.added or ()), *(told.removed or ()), *(told.changed or ())]
        if keys:
            disposal.dropped[any_row_tag(table)] = Reason.ROW_CHANGED
        disposal.dropped |= {row_tag(f"{table}:{key}"): Reason.ROW_CHANGED for key in keys}
        if strategy.is_following_graph:
            for node in told.affected_downstream or ():
                disposal.dropped.setdefault(row_tag(node), Reason.DOWNSTREAM)
        disposal.restamped.append(table)


def _dispose_rules(disposal: Disposal, strategy: Strategy, changes: Changes | None) -> None:
    if strategy.on_rules is OnRules.NOTHING:
        return
    is_asking = strategy.on_rules in (OnRules.EVICT_TABLES, OnRules.EVICT_RULES)
    told = changes.rules if changes and changes.rules and changes.rules.known else None
    added, removed = ((told.added or ()), (told.removed or ())) if told else ((), ())
    if is_asking and told is not None and not added and not removed:
        return
    disposal.alert = "stamp"
    if strategy.on_rules is OnRules.CLEAR or (is_asking and told is None):
        disposal.dropped[EVERYTHING] = Reason.RULES_MOVED
    elif strategy.on_rules is OnRules.EVICT_TABLES:
        untied, tied = _tables_of(removed), _tables_of(added)
        disposal.dropped |= {table_tag(table): Reason.RULE_CHANGED for table in untied}
        disposal.restamped += sorted(tied - untied)
    elif strategy.on_rules is OnRules.EVICT_RULES:
        disposal.dropped[ANY_RULE] = Reason.RULE_CHANGED
        disposal.dropped |= {rule_tag(rule.id): Reason.RULE_CHANGED for rule in (*added, *removed)}


def _tables_of(rules: Iterable[Rule]) -> set[str]:
    return {table for rule in rules for table in (rule.from_table, rule.to_table)}


def _known_after(knowledge: Knowledge, contract: Contract, changes: Changes | None) -> Knowledge:
    """The versions at which what is left is good. What the server said last counts; a late response does not."""
    versions = knowledge.table_versions
    rules_version = knowledge.rules_version
    if contract.table_versions is not None:
        versions = dict(contract.table_versions)
        rules_version = contract.rules_version or rules_version
    if changes is not None:
        told = {name: table.version for name, table in changes.tables.items()}
        versions = {name: version for name, version in {**versions, **told}.items() if version is not None}
        if changes.rules:
            rules_version = changes.rules.version
    return Knowledge(versions, rules_version, contract.state_tag or knowledge.state_tag)


def is_current(suggestion: Suggestion, contract: Contract, knowledge: Knowledge) -> bool:
    """Whether a suggestion is of the state that is known, and not of one that has passed."""
    versions = {dependency.table: dependency.version for dependency in suggestion.tables or ()}
    if not versions:
        versions = {table: (contract.table_versions or {}).get(table, "") for table in suggestion.depends_on}
    return bool(versions) and all(
        knowledge.table_versions.get(table) == version for table, version in versions.items()
    )


def compare_vectors(suggestion: Suggestion, family: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Of remembered fixes of its type: those that name a table it no longer depends on, and those whose vector grew.

    The latter with the new vector; which rows of the new tables they rest on is not known.
    """
    vector = set(suggestion.depends_on)
    shrunk = [entry for entry in family if set(entry.tables) - vector]
    grown = [
        msgspec.structs.replace(entry, tables=suggestion.depends_on, rows=None)
        for entry in family
        if set(entry.tables) < vector
    ]
    return shrunk, grown
