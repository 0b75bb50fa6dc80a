"""The protocol: values and pure functions. No I/O, clock, chance or async; it knows nobody.

Here are the names that both sides use. The other messages are in `shelflife.contract.messages`.
"""

from shelflife.contract.errors import BadMessage, ContractError
from shelflife.contract.messages import (
    AskFixes,
    Changes,
    ContractState,
    RulesChanges,
    Suggestion,
    TableChanges,
)
from shelflife.contract.names import split_node_id
from shelflife.contract.rules import Rule
from shelflife.contract.values import same_json

__all__ = [
    "AskFixes",
    "BadMessage",
    "Changes",
    "ContractError",
    "ContractState",
    "Rule",
    "RulesChanges",
    "Suggestion",
    "TableChanges",
    "same_json",
    "split_node_id",
]
