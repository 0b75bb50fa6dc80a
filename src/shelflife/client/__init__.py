"""The agent side: a memory that forgets exactly what went stale. It knows only the contract."""

from shelflife.client.entries import Entry
from shelflife.client.events import (
    Alerted,
    Applied,
    Distrusted,
    Event,
    Evicted,
    Ignored,
    Notified,
    Reason,
    Refused,
    Restamped,
    Stored,
    StoreFailed,
    Suspected,
    Unjudged,
)
from shelflife.client.guard import Amended, Guard
from shelflife.client.in_process import InProcessStore
from shelflife.client.memory import Exchange, Fetched, Memory, Statistics
from shelflife.client.origins import origin_of
from shelflife.client.preconditions import precondition_for
from shelflife.client.prompts import MERGE_INSTRUCTION, amended_input, memory_block
from shelflife.client.sqlite import SqliteStore
from shelflife.client.stores import Store, StoreError
from shelflife.client.strategies import ARMS, EXACT, OnRules, OnTable, Strategy

__all__ = [
    "ARMS",
    "EXACT",
    "MERGE_INSTRUCTION",
    "Alerted",
    "Amended",
    "Applied",
    "Distrusted",
    "Entry",
    "Event",
    "Evicted",
    "Exchange",
    "Fetched",
    "Guard",
    "Ignored",
    "InProcessStore",
    "Memory",
    "Notified",
    "OnRules",
    "OnTable",
    "Reason",
    "Refused",
    "Restamped",
    "SqliteStore",
    "Statistics",
    "Store",
    "StoreError",
    "StoreFailed",
    "Stored",
    "Strategy",
    "Suspected",
    "Unjudged",
    "amended_input",
    "memory_block",
    "origin_of",
    "precondition_for",
]
