"""The arms of the paper's ladder: what each makes of what a server says. Users have `exact`."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import msgspec

from shelflife.client.entries import Entry
from shelflife.client.events import Reason
from shelflife.client.in_process import InProcessStore
from shelflife.client.stores import Filed, Write, Written
from shelflife.client.strategies import (
    EXACT,
    POLICIES,
    RULES,
    STANDING,
    Change,
    Forgetting,
    Revision,
    presence_tag,
    row_tag,
    table_tag,
)
from shelflife.contract import Rule
from shelflife.contract.positions import MovedRules, MovedTable

__all__ = ["ARMS", "OF_USERS", "Arm", "KeepsNothing", "OnRules", "OnTable"]


class OnTable(Enum):
    """What to do when the version of a table moves."""

    NOTHING = "keep everything"
    EVICT_TABLE = "evict all that depends on it"
    EVICT_ROWS = "ask which rows changed, and evict what rests on them"
    EVICT_CELLS = "ask which columns of which rows changed, and evict what rests on them"


class OnRules(Enum):
    """What to do when `rules_version` moves."""

    NOTHING = "not look"
    CLEAR = "evict everything"
    ALERT = "alert"
    EVICT_TABLES = "ask which rules changed, and evict by the tables they tie"
    REVALIDATE_RULES = "ask which rules changed, and revalidate what rests on them"


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy of the paper's, made of its choices."""

    name: str
    is_remembering: bool = True
    keeps_older_values: bool = False
    """A second value for the same fix stands beside the first and does not take its place; the one that was learned last comes last."""

    on_table: OnTable = OnTable.EVICT_ROWS
    is_following_graph: bool = False
    """Also drop what lies downstream of changed rows."""

    on_rules: OnRules = OnRules.NOTHING
    is_comparing_vectors: bool = False
    """On a failure, compare the tables that a fix depends on with those of remembered fixes of its type."""

    def asks(self, part: str, *, is_held: bool) -> bool:
        if part == RULES:
            return self.on_rules is OnRules.EVICT_TABLES
        return self.on_table is OnTable.EVICT_ROWS and (is_held or self.is_following_graph)

    def forgets(self, part: str, change: Change | None) -> Forgetting:
        if part == RULES:
            return self._forgets_rules(change)
        if self.on_table is OnTable.NOTHING:
            return Forgetting()
        if part != POLICIES and self.on_table is OnTable.EVICT_TABLE:
            return EXACT.forgets(part, None)
        forgetting = EXACT.forgets(part, _by_row(change))
        if self.is_following_graph and isinstance(change, MovedTable):
            nodes = [node.partition(":") for node in change.affected_downstream]
            tags = (tag(table, key) for table, _, key in nodes for tag in (presence_tag, row_tag))
            return msgspec.structs.replace(
                forgetting, tags={**dict.fromkeys(tags, Reason.DOWNSTREAM), **forgetting.tags}
            )
        return forgetting

    def _forgets_rules(self, change: Change | None) -> Forgetting:
        match self.on_rules:
            case OnRules.NOTHING:
                return Forgetting()
            case OnRules.ALERT:
                return Forgetting(alert="stamp")
            case OnRules.EVICT_TABLES if isinstance(change, MovedRules) and change.known:
                untied, tied = _tables_of(change.removed), _tables_of(change.added)
                tags = dict.fromkeys(map(table_tag, untied), Reason.RULE_CHANGED)
                return Forgetting(tags, tuple(sorted(tied - untied)), "stamp" if tied or untied else None)
            case _:
                return Forgetting({STANDING: Reason.RULES_MOVED}, alert="stamp")

    def files(self, entry: Entry) -> Filed:
        filed = EXACT.files(entry)
        if self.keeps_older_values:
            filed = msgspec.structs.replace(filed, slot=entry.id)
        if self.is_comparing_vectors:
            filed = msgspec.structs.replace(filed, tags=(*filed.tags, _family_tag(entry)))
        return filed

    def revises(self, lessons: Sequence[Entry], tagged: Callable[[str], Sequence[Entry]]) -> Revision:
        if self.keeps_older_values:  # one that is learned again goes where a new one would
            return Revision({lesson.id: Reason.REPLACED for lesson in lessons})
        shrunk: dict[str, Reason] = {}
        grown: dict[str, Entry] = {}
        new_tables: list[str] = []
        for lesson in lessons if self.is_comparing_vectors else ():
            vector = lesson.grounds.tables
            for entry in tagged(_family_tag(lesson)):
                tables = entry.grounds.tables
                if set(tables).difference(vector):
                    shrunk[entry.id] = Reason.VECTOR_SHRANK
                elif set(tables) < set(vector):
                    new = [table for table in dict.fromkeys(vector) if table not in tables]
                    grown[entry.id] = _grown(entry, vector, new)
                    new_tables += new
        is_alerting = bool(shrunk or grown) and self.on_rules is OnRules.NOTHING
        return Revision(
            shrunk, list(grown.values()), tuple(new_tables), alert="vector" if is_alerting else None
        )


def _grown(entry: Entry, vector: tuple[str, ...], new: Sequence[str]) -> Entry:
    """An entry that depends on new tables too. Which of their rows it rests on is not known."""
    cells = entry.grounds.cells
    whole = None if cells is None else {**cells, **dict.fromkeys(new)}
    grounds = msgspec.structs.replace(entry.grounds, tables=vector, cells=whole)
    return msgspec.structs.replace(entry, grounds=grounds)


def _by_row(change: Change | None) -> Change | None:
    """A change as the paper sees it: whatever was read of a row that has changed has gone."""
    if not isinstance(change, MovedTable) or not change.known:
        return change
    return msgspec.structs.replace(change, removed=(*change.removed, *change.changed), changed=())


def _family_tag(entry: Entry) -> str:
    """The tag of fixes of one type for one operation."""
    return f"type {entry.operation} {entry.type}"


def _tables_of(rules: Sequence[Rule]) -> set[str]:
    return {table for rule in rules for table in (rule.from_table, rule.to_table)}


class KeepsNothing(InProcessStore):
    """The store of an agent without memory."""

    def write(self, root: str, revision: int, write: Write) -> Written | None:
        return Written([], [], [])


def _arm(name: str, **choices: Any) -> Arm:
    return Arm(name=name, **choices)


ARMS: dict[str, Arm] = {
    arm.name: arm
    for arm in (
        _arm("A0", is_remembering=False, on_table=OnTable.NOTHING),
        _arm("A1", keeps_older_values=True, on_table=OnTable.NOTHING),
        _arm("A2", on_table=OnTable.EVICT_TABLE),
        _arm("A2D"),
        _arm("A2DC", is_comparing_vectors=True),
        _arm("A2DG", is_following_graph=True),
        _arm("A2DR", on_rules=OnRules.CLEAR),
        _arm("A2DRC", on_rules=OnRules.ALERT, is_comparing_vectors=True),
        _arm("A2DO", on_rules=OnRules.EVICT_TABLES),
    )
}
"""The arms of the paper's ladder."""

OF_USERS = _arm(EXACT.name, on_table=OnTable.EVICT_CELLS, on_rules=OnRules.REVALIDATE_RULES)
"""How the strategy that users have is described beside the arms. It is played as it is shipped."""
