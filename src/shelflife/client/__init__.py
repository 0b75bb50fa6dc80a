"""The agent side: a memory that forgets exactly what went stale. It knows only the contract. What it does is in `events`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shelflife.client.asking import Ask, AsyncAsk, Exchange, Question, Reply
from shelflife.client.entries import Condition, Entry, Grounds, Knowledge, Root, Shape, origin_of
from shelflife.client.events import Event, Reason
from shelflife.client.foresight import Forecast, Foresight
from shelflife.client.guard import Amended, Guard
from shelflife.client.in_process import InProcessStore
from shelflife.client.memory import Memory
from shelflife.client.stores import Filed, Known, Store, StoreError, Write, Written
from shelflife.client.strategies import EXACT, Strategy
from shelflife.client.telling import Statistics
from shelflife.histories import Histories, Seen

if TYPE_CHECKING:
    from shelflife.client.prompts import MERGE_INSTRUCTION, amended_input, for_planner, memory_block
    from shelflife.client.sending import Call, Held, Send, exchange, exchange_async
    from shelflife.client.sqlite import SqliteStore
    from shelflife.client.tooling import Tools, contract_headers

__all__ = [
    "EXACT",
    "MERGE_INSTRUCTION",
    "Amended",
    "Ask",
    "AsyncAsk",
    "Call",
    "Condition",
    "Entry",
    "Event",
    "Exchange",
    "Filed",
    "Forecast",
    "Foresight",
    "Grounds",
    "Guard",
    "Held",
    "Histories",
    "InProcessStore",
    "Knowledge",
    "Known",
    "Memory",
    "Question",
    "Reason",
    "Reply",
    "Root",
    "Seen",
    "Send",
    "Shape",
    "SqliteStore",
    "Statistics",
    "Store",
    "StoreError",
    "Strategy",
    "Tools",
    "Write",
    "Written",
    "amended_input",
    "contract_headers",
    "exchange",
    "exchange_async",
    "for_planner",
    "memory_block",
    "origin_of",
]

_OF_OTHER_ROOMS = {
    "MERGE_INSTRUCTION": "prompts",
    "amended_input": "prompts",
    "for_planner": "prompts",
    "memory_block": "prompts",
    "Call": "sending",
    "Held": "sending",
    "Send": "sending",
    "exchange": "sending",
    "exchange_async": "sending",
    "SqliteStore": "sqlite",
    "Tools": "tooling",
    "contract_headers": "tooling",
}
"""What a memory in process does without: it is imported by whoever first asks for it."""


def __getattr__(name: str) -> Any:
    if name not in _OF_OTHER_ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_OF_OTHER_ROOMS[name]}"), name)
    return found
