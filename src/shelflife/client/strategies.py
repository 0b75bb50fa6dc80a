"""What a client does with what the server says."""

from enum import Enum
from typing import Any

import msgspec

__all__ = ["ARMS", "EXACT", "OnRules", "OnTable", "Strategy"]


class OnTable(Enum):
    """What to do when the version of a table moves."""

    NOTHING = "keep everything"
    EVICT_TABLE = "evict all that depends on it"
    EVICT_ROWS = "ask which rows changed, and evict what rests on them"


class OnRules(Enum):
    """What to do when `rules_version` moves."""

    NOTHING = "not look"
    CLEAR = "evict everything"
    ALERT = "alert"
    EVICT_TABLES = "ask which rules changed, and evict by the tables they tie"
    EVICT_RULES = "ask which rules changed, and evict what rests on them"

    @property
    def is_evicting(self) -> bool:
        """Whether entries are kept by the rules; else they are kept whatever becomes of them."""
        return self in (OnRules.CLEAR, OnRules.EVICT_TABLES, OnRules.EVICT_RULES)


class Strategy(msgspec.Struct, frozen=True, kw_only=True):
    """How a memory keeps and drops."""

    name: str
    is_remembering: bool = True
    keeps_older_values: bool = False
    """A second value for the same fix stands beside the first, oldest first, and does not take its place."""

    on_table: OnTable = OnTable.EVICT_ROWS
    is_following_graph: bool = False
    """Also drop what lies downstream of changed rows."""

    on_rules: OnRules = OnRules.NOTHING
    is_comparing_vectors: bool = False
    """On a failure, compare the tables that a fix depends on with those of remembered fixes of its type."""

    is_notifying: bool = False
    """Tell consumers of an entry that it was evicted."""


def _arm(name: str, **choices: Any) -> Strategy:
    return Strategy(name=name, **choices)


EXACT = _arm("exact", on_rules=OnRules.EVICT_RULES, is_notifying=True)
"""The default: row by row and rule by rule, so that an entry goes exactly when something it rests on has changed."""

ARMS: dict[str, Strategy] = {
    arm.name: arm
    for arm in (
        _arm("A0", is_remembering=False, on_table=OnTable.NOTHING),
        _arm("A1", keeps_older_values=True, on_table=OnTable.NOTHING),
        _arm("A2", on_table=OnTable.EVICT_TABLE),
        _arm("A2D"),
        _arm("A2DC", is_notifying=True, is_comparing_vectors=True),
        _arm("A2DG", is_following_graph=True),
        _arm("A2DR", on_rules=OnRules.CLEAR),
        _arm("A2DRC", on_rules=OnRules.ALERT, is_comparing_vectors=True),
        _arm("A2DO", on_rules=OnRules.EVICT_TABLES),
    )
}
"""The arms of the paper's ladder, for the lab."""
