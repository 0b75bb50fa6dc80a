"""The agent side: a memory that forgets exactly what went stale. It knows only the contract."""

from shelflife.client.asking import Ask, AsyncAsk, Exchange, Question, Reply
from shelflife.client.entries import Condition, Entry, Grounds, Knowledge, Root, Shape, origin_of
from shelflife.client.events import (
    Alerted,
    Applied,
    Distrusted,
    Event,
    Evicted,
    Ignored,
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
from shelflife.client.memory import Memory
from shelflife.client.prompts import MERGE_INSTRUCTION, amended_input, memory_block
from shelflife.client.sending import Call, Held, Send, exchange, exchange_async
from shelflife.client.sqlite import SqliteStore
from shelflife.client.stores import Filed, Known, Store, StoreError, Write, Written
from shelflife.client.strategies import EXACT, Strategy
from shelflife.client.telling import Statistics

__all__ = [
    "EXACT",
    "MERGE_INSTRUCTION",
    "Alerted",
    "Amended",
    "Applied",
    "Ask",
    "AsyncAsk",
    "Call",
    "Condition",
    "Distrusted",
    "Entry",
    "Event",
    "Evicted",
    "Exchange",
    "Filed",
    "Grounds",
    "Guard",
    "Held",
    "Ignored",
    "InProcessStore",
    "Knowledge",
    "Known",
    "Memory",
    "Question",
    "Reason",
    "Refused",
    "Reply",
    "Restamped",
    "Root",
    "Send",
    "Shape",
    "SqliteStore",
    "Statistics",
    "Store",
    "StoreError",
    "StoreFailed",
    "Stored",
    "Strategy",
    "Suspected",
    "Unjudged",
    "Write",
    "Written",
    "amended_input",
    "exchange",
    "exchange_async",
    "memory_block",
    "origin_of",
]
