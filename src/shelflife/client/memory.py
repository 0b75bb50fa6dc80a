"""The memory: recall, observe, forget. It owns no storage, and does no I/O but through its store and its fetcher."""

import logging
import math
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Literal

import msgspec

from shelflife.client import decisions
from shelflife.client.attesting import (
    asking_keys,
    is_attested,
    is_of_the_attested_state,
    is_of_the_known_state,
)
from shelflife.client.bounding import MOST_EVICTIONS
from shelflife.client.decisions import Movement, Told
from shelflife.client.doubting import Doubts
from shelflife.client.driving import (
    AsyncPoster,
    Poster,
    Question,
    Steps,
    as_questions,
    driven,
    driven_async,
)
from shelflife.client.entries import Entry, Knowledge, lapsed, place_of
from shelflife.client.events import Distrusted, Event, Ignored, Reason, StoreFailed, Unjudged
from shelflife.client.exchanges import Exchange, as_told, is_json
from shelflife.client.guard import Amended, Guard, amend
from shelflife.client.in_process import InProcessStore
from shelflife.client.learning import Learning, departures
from shelflife.client.questions import AsyncFetcher, Fetched, Fetcher, asking
from shelflife.client.refreshing import Asked, fixes_question, renewals, state_of
from shelflife.client.statistics import Statistics, Tally
from shelflife.client.stores import Store, StoreError
from shelflife.client.strategies import EXACT, Strategy
from shelflife.client.trust import Distrust, Trust
from shelflife.contract import BadMessage, ContractState
from shelflife.contract.compact import Versions
from shelflife.contract.reading import Contract, read_contract
from shelflife.contract.when import value_at

__all__ = ["AsyncFetcher", "Exchange", "Fetched", "Fetcher", "Memory", "Statistics"]

_log = logging.getLogger("shelflife.memory")

_OK = 200
_MOST_TRIES = 64
_MOST_CHECKS = 3
"""Of one request: it may be found again by what its fixes make of it, and others may learn of a movement while the server is asked."""

_BACK_OFF_S = 3.0
_MOST_NAMED = 256
"""Epochs whose versions are kept for responses that are still to come."""


class Memory:
    """What an agent holds across episodes.

    `recall` before a request, `observe` after its response. Whatever the store or the server does, neither fails and neither gives a fix
    that is known to be stale.
    """

    def __init__(
        self,
        store: Store | None = None,
        strategy: Strategy = EXACT,
        *,
        fetch: Fetcher | AsyncFetcher | None = None,
        capacity: int | None = 100_000,
        trust: Trust | None = None,
        most_evictions: int | None = MOST_EVICTIONS,
        on_event: Callable[[Event], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """A memory over a store; without one, in this process alone.

        `fetch` asks servers which rows changed; without it a table that moved is evicted whole. An async one is for `observe_async` alone.
        `trust` names the keys that must vouch for the states of some servers; see `shelflife.integrations.ed25519.trust`.
        `most_evictions` says how many entries of one server may be invalidated within an hour: beyond it they are kept as suspects, which only `check` or a
        response that gives them again brings back; None for any number. `on_event` is told everything that happens; what it raises is logged and goes no further.
        """
        if not (most_evictions is None or (type(most_evictions) is int and most_evictions >= 0)):
            raise ValueError("most_evictions is a whole number from 0 on, or None for any number")
        self.store: Store = InProcessStore() if store is None else store
        self.strategy = strategy
        self._fetch = fetch
        self._trust = trust
        self._on_event = on_event
        self._clock = clock
        self._tally = Tally()
        self._lock = threading.Lock()
        self._deciding = threading.Lock()
        self._last_named: dict[str, tuple[Versions, str]] = {}
        self._named: dict[str, Versions] = {}
        self._doubts = Doubts()
        self._failing: Literal["read", "write"] | None = None
        self._write_failed_at = -math.inf
        self._learning = Learning(
            self.store,
            strategy,
            capacity,
            clock,
            most_evictions=most_evictions,
            is_backing_off=self._is_backing_off,
            has_written=self._has_written,
        )

    def recall(
        self, origin: str, operation: str, request: Mapping[str, Any], *, consumer: str = ""
    ) -> list[Entry]:
        """The fixes that hold for this request, oldest first.

        There are none while it is being found out what a movement of the server's data makes stale; when that fails there are none
        until a later response of the origin has been dealt with. Nor are there any while a key must vouch for the server's state and none does. A `consumer` who gives a name is told, by a `Notified` event, when an entry it has recalled is evicted.
        """
        if not self.strategy.is_remembering:
            return []
        found = self._found(origin, operation, request)
        self._tally.count_recall(is_hit=bool(found))
        if consumer:
            self._tally.note_consumer(consumer, found)
        return found

    def amend(
        self, origin: str, operation: str, request: Mapping[str, Any], guard: Guard | None = None
    ) -> Amended:
        """The request with the remembered fixes that hold for it already in it, as far as the guard allows."""
        amended = amend(request, lambda fields: self._found(origin, operation, fields), guard or Guard())
        if self.strategy.is_remembering:
            self._tally.count_recall(is_hit=bool(amended.applied or amended.refused))
        self._emit(amended.events)
        return amended

    def observe(self, exchange: Exchange, fetch: Fetcher | None = None) -> list[Event]:
        """Learn from a response: drop what it shows to be stale, keep the fixes it gives. Returns what happened."""
        return driven(self._observing(exchange), fetch or self._fetch)

    async def observe_async(
        self, exchange: Exchange, fetch: AsyncFetcher | Fetcher | None = None
    ) -> list[Event]:
        """The same, awaiting the fetcher when it is async. The store is used directly: its verbs take microseconds."""
        return await driven_async(self._observing(exchange), fetch or self._fetch)

    def refresh(self, origin: str, fetch: Fetcher | None = None, post: Poster | None = None) -> list[Event]:
        """Ask a server whether what is known of it still holds, as before an episode; drop what does not. Returns what happened.

        With `post`, the server is also asked what has taken the place of the fixes that went, so that no request has to fail for it.
        """
        return driven(self._refreshing(origin, is_renewing=post is not None), fetch or self._fetch, post)

    async def refresh_async(
        self,
        origin: str,
        fetch: AsyncFetcher | Fetcher | None = None,
        post: AsyncPoster | Poster | None = None,
    ) -> list[Event]:
        """The same, with fetchers that may be awaited."""
        steps = self._refreshing(origin, is_renewing=post is not None)
        return await driven_async(steps, fetch or self._fetch, post)

    def has_suspects(self, origin: str) -> bool:
        """Whether anything of a server is suspect. If not, `check` has nothing to do."""
        try:
            if not self.strategy.is_remembering:
                return False
            tags = decisions.EVERYTHING if self._is_unbelieved(origin) else (decisions.SUSPECT,)
            return any(self.store.count(origin, tag) for tag in tags)
        except StoreError as error:
            self._store_failed(error, "read")
            return False

    def check(
        self,
        origin: str,
        operation: str,
        request: Mapping[str, Any],
        fetch: Fetcher | None = None,
        post: Poster | None = None,
        *,
        guard: Guard | None = None,
    ) -> list[Event]:
        """Before `recall` or `amend`: when something that this request finds is suspect, ask the server about exactly this request. Returns what happened.

        What it gives again can be recalled; what it does not give again goes. Without an answer, for which `post` is needed, it stays suspect. The same goes for what
        the request will find once it is amended, as far as the guard allows.
        """
        return driven(self._checking(origin, operation, request, guard), fetch or self._fetch, post)

    async def check_async(
        self,
        origin: str,
        operation: str,
        request: Mapping[str, Any],
        fetch: AsyncFetcher | Fetcher | None = None,
        post: AsyncPoster | Poster | None = None,
        *,
        guard: Guard | None = None,
    ) -> list[Event]:
        """The same, with fetchers that may be awaited."""
        steps = self._checking(origin, operation, request, guard)
        return await driven_async(steps, fetch or self._fetch, post)

    def hear(
        self,
        origin: str,
        told: bytes,
        since: str | None,
        fetch: Fetcher | None = None,
        post: Poster | None = None,
    ) -> list[Event]:
        """Take in what an event of a server's change feed says; `since` is the epoch that it goes on from, None for a resync.

        With `post`, as for `refresh`, the fixes that went are renewed.
        """
        exchange = as_told(origin, "", {}, told)._replace(epoch=since)
        steps = self._taking_in(exchange, is_renewing=post is not None)
        return driven(steps, fetch or self._fetch, post)

    def epoch(self, origin: str) -> str | None:
        """What to say in the header `Contract-Epoch` of a request, so that the server need not repeat what is known; None for nothing.

        The `Exchange` that is observed afterwards must have it too.
        """
        if not self.strategy.is_remembering or origin in self._doubts:
            return None
        try:
            knowledge = self._known_here(self.store.known(origin).knowledge)
        except StoreError as error:
            self._store_failed(error, "read")
            return None
        if not knowledge.table_versions:
            return None
        versions, epoch = self._last_named.get(origin, (None, ""))
        if versions is None or versions != (knowledge.table_versions, knowledge.rules_version):
            versions = Versions(knowledge.table_versions, knowledge.rules_version)
            epoch = versions.epoch
            with self._lock:
                self._last_named[origin] = versions, epoch
                self._named[epoch] = versions
                while len(self._named) > _MOST_NAMED:
                    del self._named[next(iter(self._named))]
        return epoch

    def forget(
        self,
        origin: str,
        operation: str | None = None,
        type: str | None = None,
        *,
        id: str | None = None,
    ) -> int:
        """Drop the entries of an origin, or of one operation or type of it, or those whose id begins so; tells how many there were.

        With all of an origin goes what is known of its state, and which signed state was seen.
        """
        try:
            for _ in range(_MOST_TRIES):
                known = self.store.known(origin)
                doomed = [
                    entry
                    for tag in decisions.EVERYTHING
                    for entry in self.store.tagged(origin, tag)
                    if operation in (None, entry.operation)
                    and type in (None, entry.type)
                    and entry.id.startswith(id or "")
                ]
                is_all = (operation, type, id) == (None, None, None)
                knowledge = Knowledge() if is_all else known.knowledge
                if not doomed and knowledge == known.knowledge:
                    return 0
                ids = {entry.id: Reason.FORGOTTEN for entry in doomed}
                written = self.store.write(origin, known.revision, knowledge, drop_ids=ids)
                if written is not None:
                    if is_all:
                        self._doubts.forget(origin)
                    self._emit(departures(written, ids))
                    return len(written.dropped)
        except StoreError as error:
            self._store_failed(error, "write")
        return 0

    @property
    def statistics(self) -> Statistics:
        """Counts since this memory was made."""
        return self._tally.statistics

    def _found(self, origin: str, operation: str, request: Mapping[str, Any]) -> list[Entry]:
        if origin in self._doubts or self._doubts.is_settling(origin) or self._is_unattested(origin):
            return []
        found = [entry for entry in self._held(origin, operation, request) if not entry.is_suspect]
        if found:
            self._note_use(found)
        return found

    def _suspects(self, origin: str, operation: str, request: Mapping[str, Any]) -> tuple[Entry, ...]:
        """The suspects that hold for this request."""
        return tuple(entry for entry in self._held(origin, operation, request) if entry.is_suspect)

    def _held(self, origin: str, operation: str, request: Mapping[str, Any]) -> list[Entry]:
        """The entries that hold for this request, suspect or not."""
        if not is_json(operation, request):
            return []
        try:
            places = [
                place_of(origin, operation, {path: value_at(request, path) for path in shape})
                for shape in self.store.shapes(origin, operation)
            ]
            if not places:
                return []
            found = [
                entry
                for entry in self.store.at(places)
                if entry.strategy == self.strategy.name and entry.applies_to(request)
            ]
        except StoreError as error:
            self._store_failed(error, "read")
            return []
        if self._failing == "read":
            self._failing = None
        return found

    def _note_use(self, found: Iterable[Entry]) -> None:
        """That this fails is told, and takes nothing from what was found."""
        try:
            self.store.used([entry.id for entry in found])
        except StoreError as error:
            self._store_failed(error, "write")

    def _observing(self, exchange: Exchange, asked: Asked | None = None) -> Steps[list[Event]]:
        """What `observe` does, asking for what must be fetched. `asked` is what the response is the answer about, if it is one."""
        origin = exchange.origin
        events: list[Event] = []
        if exchange.is_unjudged:
            events = self._emit([Unjudged(origin, exchange.operation)])
        if not self.strategy.is_remembering:
            return events
        try:
            named = None if exchange.epoch is None else self._named.get(exchange.epoch)
            contract = read_contract(exchange.body, exchange.headers, named)
        except BadMessage as error:
            self._doubts.add(origin)
            return events + self._emit([Ignored(origin, str(error))])
        return events + ((yield from self._heeding(exchange, contract, asked)) if contract else [])

    def _heeding(
        self, exchange: Exchange, contract: Contract, asked: Asked | None = None
    ) -> Steps[list[Event]]:
        """What follows from a contract, whatever comes of asking about it."""
        origin = exchange.origin
        events: list[Event] = [Ignored(origin, fault) for fault in contract.faults]
        doubt = self._doubts.since(origin)
        try:
            events += yield from self._dealing(exchange, contract, asked, is_doubted=doubt is not None)
        except StoreError as error:
            self._doubts.add(origin)
            self._store_failed(error, "write")
        except Distrust as distrust:
            self._doubts.add(origin)
            self._lapse(origin)
            if self._doubts.is_news(origin, str(distrust)):
                _log.warning("%s is not believed: %s", origin, distrust)
                events.append(Distrusted(origin, str(distrust)))
        except BaseException:
            self._doubts.add(origin)
            raise
        else:
            self._doubts.settle(origin, doubt)
        return self._emit(events)

    def _refreshing(self, origin: str, *, is_renewing: bool) -> Steps[list[Event]]:
        """What `refresh` does, asking for what must be fetched. Nobody answering changes nothing: no request would get through either."""
        epoch = self.epoch(origin)
        if not self.strategy.is_remembering or (epoch is None and origin not in self._doubts):
            return []
        answer = b""
        if not self._is_unbelieved(origin):
            known = "" if epoch is None else f"?known={epoch}"
            fetched = yield Question(f"{origin}/contract/state{known}")
            if fetched is None or fetched.status != _OK:
                return []
            answer = fetched.body
        return (yield from self._taking_in(as_told(origin, "", {}, answer), is_renewing=is_renewing))

    def _taking_in(self, exchange: Exchange, *, is_renewing: bool) -> Steps[list[Event]]:
        """What a server tells unasked or asked, outside of any request; then what has taken the place of the fixes that went."""
        if self._trust_in(exchange.origin) is not None:
            events = yield from self._heeding(exchange, Contract())  # whatever it tells, its keys are asked
        else:
            events = yield from self._observing(exchange)
        for renewal in renewals(exchange.origin, events) if is_renewing else ():
            answer = yield renewal.question
            if answer is not None and answer.status == _OK:
                told = as_told(exchange.origin, renewal.operation, renewal.request, answer.body)
                events += yield from self._observing(told)
        return events

    def _checking(
        self, origin: str, operation: str, request: Mapping[str, Any], guard: Guard | None
    ) -> Steps[list[Event]]:
        """What `check` does, asking for what must be fetched. The same is not asked twice unless something else was learned meanwhile."""
        events: list[Event] = []
        if self._is_unbelieved(origin):
            events += yield from self._refreshing(origin, is_renewing=False)
        fields, last_asked = request, None
        for _ in range(_MOST_CHECKS if self.has_suspects(origin) else 0):
            suspects = self._suspects(origin, operation, fields)
            if all(guard is not None and guard.refusal(entry) is not None for entry in suspects):
                found = amend(request, lambda found: self._found(origin, operation, found), guard or Guard())
                if found.request == fields:
                    break
                fields = found.request
                continue
            if origin in self._doubts:
                events += yield from self._refreshing(origin, is_renewing=False)
            asked = self._about(origin, operation, fields)
            if asked is None or (fields, asked) == last_asked:
                break
            last_asked = fields, asked
            answer = yield fixes_question(origin, operation, fields)
            if answer is None or answer.status != _OK:
                break
            events += yield from self._observing(as_told(origin, operation, fields, answer.body), asked)
        return events

    def _about(self, origin: str, operation: str, request: Mapping[str, Any]) -> Asked | None:
        """What to ask about; None when that cannot be said: the origin is in doubt or the store fails, or nothing is suspect."""
        suspects = self._suspects(origin, operation, request)
        if origin in self._doubts or not suspects:
            return None
        try:
            return Asked(suspects, self._known_here(self.store.known(origin).knowledge))
        except StoreError as error:
            self._store_failed(error, "read")
            return None

    def _dealing(
        self, exchange: Exchange, contract: Contract, asked: Asked | None, *, is_doubted: bool
    ) -> Steps[list[Event]]:
        """Decide and write, in one piece unless the server must be asked; then what it told counts while the knowledge is the same."""
        origin = exchange.origin
        told: Told | None = None
        asked_with: Knowledge | None = None
        with ExitStack() as settling:
            for _ in range(_MOST_TRIES):
                with self._deciding:
                    known = self.store.known(origin)
                    knowledge = self._known_here(known.knowledge)
                    if told is None or knowledge != asked_with:
                        is_latest = asked is not None and asked.knowledge == knowledge and not is_doubted
                        state = state_of(contract) if is_latest and self._trust_in(origin) is None else None
                        movement = self._movement(origin, knowledge, contract, state, is_doubted=is_doubted)
                        told = None if movement else Told(contract, movement, state)
                    if told is not None:
                        if asked is not None and is_latest and is_of_the_known_state(told):
                            told = told._replace(checked=asked.suspects)
                        events = self._learning.carry_out(exchange, told, known, knowledge)
                        if events is not None:
                            return [*_of_another_state(origin, told), *events]
                        continue
                if asked_with is None:
                    settling.enter_context(self._doubts.settling(origin))
                asked_with = knowledge
                told = yield from as_questions(self._asking(origin, knowledge, contract, movement, state))
        raise StoreError("too many others are writing to the memory at the same time")

    def _movement(
        self,
        origin: str,
        knowledge: Knowledge,
        contract: Contract,
        state: ContractState | None,
        *,
        is_doubted: bool,
    ) -> Movement:
        """How a response differs from what is known; where keys must vouch, all that is not of the attested state must be asked about."""
        movement = decisions.has_moved(knowledge, state or contract, is_doubted=is_doubted)
        trust = self._trust_in(origin)
        if trust is None:
            return movement
        now = self._clock()
        is_settled = not is_doubted and is_of_the_attested_state(knowledge, contract, trust, origin, now)
        return Movement({}, has_rules_moved=False, is_untold=not is_settled)

    def _asking(
        self,
        origin: str,
        knowledge: Knowledge,
        contract: Contract,
        movement: Movement,
        state: ContractState | None,
    ) -> Generator[str, Fetched | None, Told]:
        trust = self._trust_in(origin)
        if trust is not None:
            return asking_keys(origin, knowledge, contract, trust, self._clock())
        return asking(
            origin,
            knowledge,
            contract,
            self.strategy,
            movement,
            is_held=lambda table: self.store.count(origin, decisions.table_tag(table)) > 0,
            state=state,
        )

    def _trust_in(self, origin: str) -> Trust | None:
        """Whose word counts about an origin, where keys must vouch for it."""
        return self._trust if self._trust is not None and self._trust.pins_of(origin) else None

    def _is_unattested(self, origin: str) -> bool:
        """Whether a key must vouch for the state of an origin, and none does at the moment."""
        trust = self._trust_in(origin)
        if trust is None:
            return False
        try:
            knowledge = self._known_here(self.store.known(origin).knowledge)
            return not is_attested(knowledge, trust, origin, self._clock())
        except StoreError as error:
            self._store_failed(error, "read")
            return True

    def _is_unbelieved(self, origin: str) -> bool:
        """Whether a key must be asked before anything of an origin is used."""
        return self._trust_in(origin) is not None and (origin in self._doubts or self._is_unattested(origin))

    def _lapse(self, origin: str) -> None:
        """Keep with what is remembered that a key must be asked before it is used: others, and a later process, must know it too."""
        try:
            known = self.store.known(origin)
            knowledge = msgspec.structs.replace(known.knowledge, attested=lapsed(known.knowledge.attested))
            if knowledge != known.knowledge:
                self.store.write(origin, known.revision, knowledge)
        except StoreError as error:
            self._store_failed(error, "write")

    def _known_here(self, knowledge: Knowledge) -> Knowledge:
        """What is known under this strategy: nothing, where another one has been at work."""
        if knowledge.strategy == self.strategy.name:
            return knowledge
        return Knowledge(strategy=self.strategy.name, attested=lapsed(knowledge.attested))

    def _emit(self, events: Iterable[Event]) -> list[Event]:
        told: list[Event] = []
        for event in events:
            told.append(event)
            notices = self._tally.count(event)
            if self.strategy.is_notifying:
                told += notices
        for event in told:
            _log.debug("%s", event)
            if self._on_event is not None:
                try:
                    self._on_event(event)
                except Exception:  # noqa: BLE001 - whatever it raises, what was observed is observed
                    _log.exception("whoever listens to the events of the memory has failed")
        return told

    def _has_written(self) -> None:
        self._failing = None

    def _is_backing_off(self) -> bool:
        return 0 <= self._clock() - self._write_failed_at < _BACK_OFF_S

    def _store_failed(self, error: StoreError, doing: Literal["read", "write"]) -> None:
        """Say so, once until it works again. What could not be written is not tried again for a moment: the wait for a lock is the agent's."""
        is_news = self._failing is None
        if doing == "write":
            self._failing = "write"
            if not self._is_backing_off():
                self._write_failed_at = self._clock()
        else:
            self._failing = self._failing or "read"
        if is_news:
            _log.warning("%s; the agent goes on without memory", error)
            self._emit([StoreFailed(str(error))])


def _of_another_state(origin: str, told: Told) -> list[Event]:
    """That a response names a state for which no key vouches, where one must: nothing of it counts."""
    if told.attested is None or told.contract.table_versions is None or is_of_the_known_state(told):
        return []
    return [Ignored(origin, "the response is of another state than the signed one: it is late, or forged")]
