"""The protocol: values and pure functions. No I/O, clock, chance or async; it knows nobody.

Here are the names that both sides use. The other messages are in `shelflife.contract.messages`.
"""

from shelflife.contract.errors import BadMessage, BadName, ContractError
from shelflife.contract.messages import (
    AskFixes,
    Changes,
    ContractState,
    ReloadReport,
    RulesChanges,
    Suggestion,
    TableChanges,
    TableVersion,
)
from shelflife.contract.names import node_id, split_node_id
from shelflife.contract.rules import Rule
from shelflife.contract.values import same_json

__all__ = [
    "AskFixes",
    "BadMessage",
    "BadName",
    "Changes",
    "ContractError",
    "ContractState",
    "ReloadReport",
    "Rule",
    "RulesChanges",
    "Suggestion",
    "TableChanges",
    "TableVersion",
    "node_id",
    "same_json",
    "split_node_id",
]
