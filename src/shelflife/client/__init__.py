"""The agent side: a memory that forgets exactly what went stale. It knows only the contract. What it does is in `events`."""

from shelflife.client.asking import Ask, AsyncAsk, Exchange, Question, Reply
from shelflife.client.entries import Condition, Entry, Grounds, Knowledge, Root, Shape, origin_of
from shelflife.client.events import Event, Reason
from shelflife.client.foresight import Forecast, Foresight
from shelflife.client.guard import Amended, Guard
from shelflife.client.in_process import InProcessStore
from shelflife.client.memory import Memory
from shelflife.client.prompts import MERGE_INSTRUCTION, amended_input, for_planner, memory_block
from shelflife.client.sending import Call, Held, Send, exchange, exchange_async
from shelflife.client.sqlite import SqliteStore
from shelflife.client.stores import Filed, Known, Store, StoreError, Write, Written
from shelflife.client.strategies import EXACT, Strategy
from shelflife.client.telling import Statistics
from shelflife.client.tooling import Tools, contract_headers
from shelflife.habits import Histories, Seen

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
