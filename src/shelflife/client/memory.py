"""The memory: recall, observe, forget. It owns no storage, and does no I/O but through its store and its fetcher."""

import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from shelflife.client import decisions
from shelflife.client.decisions import Movement
from shelflife.client.entries import Entry, Knowledge, place_of
from shelflife.client.events import (
    Alerted,
    Applied,
    Event,
    Evicted,
    Ignored,
    Notified,
    Reason,
    Restamped,
    Stored,
    StoreFailed,
)
from shelflife.client.guard import Amended, Guard, amend
from shelflife.client.in_process import InProcessStore
from shelflife.client.stores import Known, Store, StoreError, Written
from shelflife.client.strategies import EXACT, OnRules, OnTable, Strategy
from shelflife.contract import BadMessage, Changes, ContractState
from shelflife.contract.reading import Contract, read_contract
from shelflife.contract.when import value_at

__all__ = ["Exchange", "Fetched", "Fetcher", "Memory", "Statistics"]

_log = logging.getLogger("shelflife.memory")

_MOST_TRIES = 8
_MOST_CONSUMED = 10_000
_MOST_GONE = 10_000
_LONGEST_QUERY = 6000


class Exchange(NamedTuple):
    """A request that was made and the response that came back."""

    origin: str
    """`scheme://host:port` of the server."""

    operation: str
    """E.g. `POST /subscriptions`."""

    request: Mapping[str, Any]
    """The fields of the request."""

    status: int
    headers: Mapping[str, str]
    """Of the response, by lower-case name."""

    body: bytes
    """Of the response, decoded."""


class Fetched(NamedTuple):
    """The answer to a question that a memory asks a server."""

    status: int
    body: bytes


Fetcher = Callable[[str], Fetched | None]
"""Gets a URL with GET; None when that fails. Must not follow a redirect to another origin."""

AsyncFetcher = Callable[[str], Awaitable[Fetched | None]]


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """What a memory has done since it was made."""

    hits: int
    misses: int
    stored: int
    restamped: int
    applied: int
    stale_prevented: int
    """Evictions because something the entry rests on had changed."""

    evictions: dict[str, int]
    """By reason."""

    confirmed: int
    """Of these evictions, those after which the server gave another value for the same."""

    needless: int
    """Those after which it gave the same value again."""

    @property
    def precision(self) -> float | None:
        """The share of evictions that were right, among those of which it is known; None when it is of none."""
        judged = self.confirmed + self.needless
        return self.confirmed / judged if judged else None


class _Told(NamedTuple):
    """What a server has said with a response and when asked about it."""

    contract: Contract
    changes: Changes | None
    movement: Movement


class Memory:
    """What an agent holds across episodes.

    `recall` before a request, `observe` after its response. Whatever the store does, neither fails and neither gives a fix that is known
    to be stale.
    """

    def __init__(
        self,
        store: Store | None = None,
        strategy: Strategy = EXACT,
        *,
        fetch: Fetcher | None = None,
        capacity: int | None = 100_000,
        on_event: Callable[[Event], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """A memory over a store; without one, in this process alone.

        `fetch` asks servers which rows changed; without it a table that moved is evicted whole. `on_event` is told everything that happens.
        """
        self.store: Store = store or InProcessStore()
        self.strategy = strategy
        self._fetch = fetch
        self._capacity = capacity
        self._on_event = on_event
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._evictions: Counter[Reason] = Counter()
        self._consumers: OrderedDict[str, dict[str, None]] = OrderedDict()
        self._gone: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()
        self._settling: Counter[str] = Counter()
        self._doubts: dict[str, int] = {}
        self._is_store_failing = False

    def recall(
        self, origin: str, operation: str, request: Mapping[str, Any], *, consumer: str = ""
    ) -> list[Entry]:
        """The fixes that hold for this request, oldest first.

        There are none while it is being found out what a movement of the server's data makes stale; when that fails there are none
        until a later response of the origin has been dealt with. A `consumer` who gives a name is told, by a `Notified` event, when an entry it has recalled is evicted.
        """
        if not self.strategy.is_remembering:
            return []
        if origin in self._doubts or self._settling[origin]:
            self._counts["misses"] += 1
            return []
        try:
            places = [
                place_of(origin, operation, {path: value_at(request, path) for path in shape})
                for shape in self.store.shapes(origin, operation)
            ]
            found = [entry for entry in self.store.at(places) if entry.applies_to(request)] if places else []
            if found:
                self.store.used([entry.id for entry in found])
        except StoreError as error:
            self._store_failed(error)
            return []
        self._is_store_failing = False
        self._counts["hits" if found else "misses"] += 1
        if consumer:
            self._note_consumer(consumer, found)
        return found

    def amend(
        self, origin: str, operation: str, request: Mapping[str, Any], guard: Guard | None = None
    ) -> Amended:
        """The request with the remembered fixes that hold for it already in it, as far as the guard allows."""
        amended = amend(request, lambda fields: self.recall(origin, operation, fields), guard or Guard())
        self._emit(amended.events)
        return amended

    def observe(self, exchange: Exchange, fetch: Fetcher | None = None) -> list[Event]:
        """Learn from a response: drop what it shows to be stale, keep the fixes it gives. Returns what happened."""
        fetch = fetch or self._fetch
        with closing(self._observing(exchange)) as steps:
            try:
                url = next(steps)
                while True:
                    url = steps.send(fetch(url) if fetch else None)
            except StopIteration as outcome:
                return list(outcome.value)

    async def observe_async(self, exchange: Exchange, fetch: AsyncFetcher | None = None) -> list[Event]:
        """The same, asking the server through an async fetcher. The store is used directly: its verbs take microseconds."""
        with closing(self._observing(exchange)) as steps:
            try:
                url = next(steps)
                while True:
                    url = steps.send(await fetch(url) if fetch else None)
            except StopIteration as outcome:
                return list(outcome.value)

    def forget(self, origin: str, operation: str | None = None, type: str | None = None) -> int:
        """Drop the entries of an origin, or of one operation or type of it; tells how many there were."""
        events: list[Event] = []
        try:
            for _ in range(_MOST_TRIES):
                known = self.store.known(origin)
                doomed = [
                    entry
                    for entry in self.store.tagged(origin, decisions.EVERYTHING)
                    if operation in (None, entry.operation) and type in (None, entry.type)
                ]
                ids = {entry.id: Reason.FORGOTTEN for entry in doomed}
                written = self.store.write(origin, known.revision, known.knowledge, drop_ids=ids)
                if written is not None:
                    self._tell_dropped(written, ids, events)
                    self._emit(events)
                    return len(written.dropped)
        except StoreError as error:
            self._store_failed(error)
        return 0

    @property
    def statistics(self) -> Statistics:
        """Counts since this memory was made."""
        return Statistics(
            hits=self._counts["hits"],
            misses=self._counts["misses"],
            stored=self._counts["stored"],
            restamped=self._counts["restamped"],
            applied=self._counts["applied"],
            stale_prevented=sum(count for reason, count in self._evictions.items() if reason.is_invalidation),
            evictions={reason.name.lower(): count for reason, count in sorted(self._evictions.items())},
            confirmed=self._counts["confirmed"],
            needless=self._counts["needless"],
        )

    def _observing(self, exchange: Exchange) -> Generator[str, Fetched | None, list[Event]]:
        """What `observe` does, asking for what must be fetched."""
        if not self.strategy.is_remembering:
            return []
        try:
            contract = read_contract(exchange.body, exchange.headers)
        except BadMessage as error:
            return self._emit([Ignored(exchange.origin, str(error))])
        if not contract:
            return []
        origin = exchange.origin
        doubt = self._doubts.get(origin)
        try:
            for _ in range(_MOST_TRIES):
                known = self.store.known(origin)
                movement = decisions.has_moved(known.knowledge, contract, is_doubted=doubt is not None)
                with self._settling_what_moved(origin, movement):
                    told = yield from self._told(origin, known.knowledge, contract, movement)
                    events = self._carry_out(exchange, told, known)
                if events is not None:
                    with self._lock:
                        if self._doubts.get(origin) == doubt:
                            self._doubts.pop(origin, None)
                    self._is_store_failing = False
                    return self._emit(events)
            raise StoreError("too many others are writing to the memory at the same time")
        except StoreError as error:
            self._doubt(origin)
            self._store_failed(error)
            return []
        except BaseException:
            self._doubt(origin)
            raise

    @contextmanager
    def _settling_what_moved(self, origin: str, movement: Movement) -> Iterator[None]:
        """While this lasts, another thread or task that recalls from the origin gets nothing: it might be what goes."""
        if not movement:
            yield
            return
        with self._lock:
            self._settling[origin] += 1
        try:
            yield
        finally:
            with self._lock:
                self._settling[origin] -= 1

    def _doubt(self, origin: str) -> None:
        """A response of the origin was seen that has not been dealt with."""
        with self._lock:
            self._doubts[origin] = self._doubts.get(origin, 0) + 1

    def _told(
        self, origin: str, knowledge: Knowledge, contract: Contract, movement: Movement
    ) -> Generator[str, Fetched | None, _Told]:
        """What the server has said, with what it tells when asked about a movement."""
        if movement.is_untold:
            state = _decoded((yield f"{origin}/contract/state"), ContractState)
            if state is None:
                return _Told(contract, None, movement)
            contract = msgspec.structs.replace(
                contract, table_versions=state.table_versions, rules_version=state.rules_version or None
            )
            movement = decisions.has_moved(knowledge, contract)
        asked = []
        if self.strategy.on_table is OnTable.EVICT_ROWS:
            asked = [f"since={quote(f'{table}:{old}')}" for table, old in movement.tables.items() if old]
        if movement.has_rules_moved and self.strategy.on_rules in (OnRules.EVICT_TABLES, OnRules.EVICT_RULES):
            asked.append(f"rules={quote(knowledge.rules_version or '')}")
        query = "&".join(asked)
        if not query or len(query) > _LONGEST_QUERY:
            return _Told(contract, None, movement)
        changes = _decoded((yield f"{origin}/contract/changes?{query}"), Changes)
        return _Told(contract, changes, movement)

    def _carry_out(self, exchange: Exchange, told: _Told, known: Known) -> list[Event] | None:
        """Write what follows from a response; None when somebody else has written meanwhile."""
        origin = exchange.origin
        contract = told.contract
        knowledge, revision = known
        disposal = decisions.dispose(knowledge, contract, self.strategy, told.changes, told.movement)
        lessons = self._lessons(exchange, contract, disposal.knowledge)
        shrunk: dict[str, Reason] = {}
        grown: list[Entry] = []
        if self.strategy.is_comparing_vectors:
            shrunk, grown = self._compare_vectors(exchange, contract)
        if (shrunk or grown) and self.strategy.on_rules is OnRules.NOTHING:
            disposal.alert = "vector"
        if disposal.knowledge == knowledge and not (disposal.dropped or shrunk or lessons or grown):
            return []
        put = [(entry, decisions.tags_of(entry)) for entry in (*grown, *lessons)]
        written = self.store.write(
            origin,
            revision,
            disposal.knowledge,
            drop=disposal.dropped,
            drop_ids=shrunk,
            put=put,
            is_beside=self.strategy.keeps_older_values,
            capacity=self._capacity,
        )
        if written is None:
            return None
        events: list[Event] = []
        if disposal.alert:
            events.append(Alerted(origin, disposal.alert))
        self._tell_dropped(written, {**disposal.dropped, **shrunk}, events)
        events += (Stored(entry) for entry in lessons)
        learned_count = Counter(table for entry in lessons for table in entry.tables)
        for table in dict.fromkeys(disposal.restamped):
            count = self.store.count(origin, decisions.table_tag(table)) - learned_count[table]
            if count > 0:
                events.append(Restamped(origin, table, count))
        if grown:
            events.append(Restamped(origin, "", len(grown)))
        return events

    def _lessons(self, exchange: Exchange, contract: Contract, knowledge: Knowledge) -> list[Entry]:
        """The entries that a response teaches: cacheable fixes of the state that is known."""
        return [
            Entry.from_suggestion(
                suggestion,
                origin=exchange.origin,
                operation=exchange.operation,
                request=exchange.request,
                learned_at=self._clock(),
            )
            for suggestion in contract.suggestions
            if suggestion.cache_hint == "cacheable" and decisions.is_current(suggestion, contract, knowledge)
        ]

    def _compare_vectors(
        self, exchange: Exchange, contract: Contract
    ) -> tuple[dict[str, Reason], list[Entry]]:
        shrunk: dict[str, Reason] = {}
        grown: list[Entry] = []
        for suggestion in contract.suggestions:
            if not suggestion.tables:
                continue
            tag = decisions.family_tag(exchange.operation, suggestion.type)
            shorter, longer = decisions.compare_vectors(suggestion, self.store.tagged(exchange.origin, tag))
            shrunk |= {entry.id: Reason.VECTOR_SHRANK for entry in shorter}
            grown += longer
        return shrunk, grown

    def _tell_dropped(self, written: Written, reasons: Mapping[str, Reason], events: list[Event]) -> None:
        for entry, tag in written.dropped:
            events.append(Evicted(entry, reasons.get(tag, Reason.REPLACED)))
        events += (Evicted(entry, Reason.CAPACITY) for entry in written.trimmed)

    def _emit(self, events: list[Event]) -> list[Event]:
        told: list[Event] = []
        for event in events:
            told.append(event)
            match event:
                case Evicted(entry, reason):
                    self._evictions[reason] += 1
                    if reason.is_invalidation:
                        self._note_gone(entry)
                    consumers = self._consumers.pop(entry.id, {})
                    if self.strategy.is_notifying:
                        told += (Notified(consumer, entry) for consumer in consumers)
                case Applied():
                    self._counts["applied"] += 1
                case Stored(entry):
                    self._counts["stored"] += 1
                    self._judge_eviction(entry)
                case Restamped():
                    self._counts["restamped"] += event.count
                case _:
                    pass
        for event in told:
            _log.debug("%s", event)
            if self._on_event is not None:
                self._on_event(event)
        return told

    def _note_consumer(self, consumer: str, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._consumers.setdefault(entry.id, {})[consumer] = None
            self._consumers.move_to_end(entry.id)
        while len(self._consumers) > _MOST_CONSUMED:
            self._consumers.popitem(last=False)

    def _note_gone(self, entry: Entry) -> None:
        self._gone[entry.slot] = entry.parameters
        while len(self._gone) > _MOST_GONE:
            self._gone.popitem(last=False)

    def _judge_eviction(self, entry: Entry) -> None:
        before = self._gone.pop(entry.slot, None) if self._gone else None
        if before is not None:
            self._counts["needless" if before == entry.parameters else "confirmed"] += 1

    def _store_failed(self, error: StoreError) -> None:
        if not self._is_store_failing:
            self._is_store_failing = True
            _log.warning("%s; the agent goes on without memory", error)
            self._emit([StoreFailed(str(error))])


def _decoded(fetched: Fetched | None, message_type: Any) -> Any:
    """A message of the server; None when it has none to give."""
    if fetched is None or fetched.status != 200:
        return None
    try:
        return msgspec.json.decode(fetched.body, type=message_type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
