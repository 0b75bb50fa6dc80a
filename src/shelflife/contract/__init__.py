"""The protocol: values and pure functions. No I/O, clock, chance or async; it knows nobody."""

from shelflife.contract.delta import Delta, Diff, Row, same_json
from shelflife.contract.errors import BadMessage, BadName, BadRow, BadRule, ContractError
from shelflife.contract.levels import Level
from shelflife.contract.messages import (
    CacheHint,
    Changes,
    ContractState,
    Edge,
    ErrorMessage,
    Graph,
    Node,
    Problem,
    RecoveryFeedback,
    Rejection,
    ReloadReport,
    ReloadRules,
    ReloadTable,
    RulesChanges,
    RulesReport,
    Suggestion,
    TableChanges,
    TableVersion,
)
from shelflife.contract.names import node_id, split_node_id
from shelflife.contract.rules import Rule, RuleSet
from shelflife.contract.stamps import (
    RULES_HEADER,
    STATE_HEADER,
    TABLES_HEADER,
    table_versions_from_header,
    table_versions_header,
)

__all__ = [
    "RULES_HEADER",
    "STATE_HEADER",
    "TABLES_HEADER",
    "BadMessage",
    "BadName",
    "BadRow",
    "BadRule",
    "CacheHint",
    "Changes",
    "ContractError",
    "ContractState",
    "Delta",
    "Diff",
    "Edge",
    "ErrorMessage",
    "Graph",
    "Level",
    "Node",
    "Problem",
    "RecoveryFeedback",
    "Rejection",
    "ReloadReport",
    "ReloadRules",
    "ReloadTable",
    "Row",
    "Rule",
    "RuleSet",
    "RulesChanges",
    "RulesReport",
    "Suggestion",
    "TableChanges",
    "TableVersion",
    "node_id",
    "same_json",
    "split_node_id",
    "table_versions_from_header",
    "table_versions_header",
]
