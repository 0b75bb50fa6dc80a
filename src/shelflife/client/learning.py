"""Writing down what follows from a response: what goes, what is kept, what is new."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

import msgspec

from shelflife.client import decisions
from shelflife.client.attesting import is_of_the_known_state
from shelflife.client.bounding import MOVED_ON, Bound
from shelflife.client.decisions import Disposal, Told
from shelflife.client.entries import Entry, Knowledge
from shelflife.client.events import Alerted, Event, Evicted, Reason, Restamped, Stored, Suspected
from shelflife.client.exchanges import Exchange, is_json
from shelflife.client.stores import Known, Store, StoreError, Written
from shelflife.client.strategies import OnRules, Strategy
from shelflife.contract.reading import Contract

__all__ = ["Learning", "departures"]

_MANY_TAGS = 64
"""To count what bears one of so many takes longer than to count all entries of an origin."""


class Learning:
    """How one memory writes to its store."""

    def __init__(
        self,
        store: Store,
        strategy: Strategy,
        capacity: int | None,
        clock: Callable[[], float],
        *,
        most_evictions: int | None,
        is_backing_off: Callable[[], bool],
        has_written: Callable[[], None],
    ) -> None:
        self._store = store
        self._strategy = strategy
        self._capacity = capacity
        self._clock = clock
        self._bound = Bound(most_evictions, clock)
        self._is_backing_off = is_backing_off
        self._has_written = has_written

    def carry_out(
        self, exchange: Exchange, told: Told, known: Known, knowledge: Knowledge
    ) -> list[Event] | None:
        """Write what follows from a response; None when somebody else has written meanwhile."""
        origin, contract = exchange.origin, told.contract
        disposal = decisions.dispose(knowledge, told, self._strategy)
        if known.revision and knowledge.strategy != known.knowledge.strategy:
            disposal.dropped |= dict.fromkeys(decisions.EVERYTHING, Reason.ANOTHER_STRATEGY)
        if told.attested is not None and not is_of_the_known_state(told):
            disposal.is_teaching = False
        lessons, outrun = self._lessons(exchange, told, disposal)
        shrunk: dict[str, Entry] = {}
        grown: list[decisions.Grown] = []
        if self._strategy.is_comparing_vectors:
            shrunk, grown = self._compare_vectors(exchange, contract, disposal)
        if (shrunk or grown) and self._strategy.on_rules is OnRules.NOTHING:
            disposal.alert = "vector"
        drop_ids = dict.fromkeys(shrunk, Reason.VECTOR_SHRANK)
        drop_ids |= _unconfirmed(told.checked, lessons)
        is_anything_done = disposal.dropped or drop_ids or lessons or grown or outrun
        if disposal.knowledge == known.knowledge and not is_anything_done:
            return []
        if self._is_backing_off():
            raise StoreError("the memory could not be written a moment ago")
        drop = disposal.dropped
        suspects = [_as_suspect(entry) for entry in self._too_many(origin, drop, shrunk)]
        if suspects:
            drop = {tag: reason for tag, reason in drop.items() if not reason.is_invalidation}
            drop_ids = {id: reason for id, reason in drop_ids.items() if not reason.is_invalidation}
        put = [*suspects, *outrun, *(one.entry for one in grown), *lessons]
        written = self._store.write(
            origin,
            known.revision,
            disposal.knowledge,
            drop=drop,
            drop_ids=drop_ids,
            put=[(entry, decisions.tags_of(entry)) for entry in put],
            is_beside=self._strategy.keeps_older_values,
            capacity=self._capacity,
        )
        if written is None:
            return None
        self._has_written()
        events: list[Event] = []
        if disposal.alert:
            events.append(Alerted(origin, disposal.alert))
        left = departures(written, {**drop, **drop_ids})
        self._bound.note(origin, sum(one.reason.is_invalidation for one in left))
        events += left
        taught = {entry.slot for entry in lessons}
        suspected = tuple(entry for entry in suspects if entry.slot not in taught)
        if suspected:
            events.append(Suspected(origin, suspected, self._bound.why))
        if outrun:
            events.append(Suspected(origin, tuple(outrun), MOVED_ON))
        events += (Stored(entry) for entry in written.stored if not entry.is_suspect)
        events += self._restamps(origin, disposal, lessons)
        grown_count = Counter(table for one in grown for table in one.new_tables)
        events += (Restamped(origin, table, count) for table, count in grown_count.items())
        return events

    def _too_many(self, origin: str, dropped: Mapping[str, Reason], shrunk: dict[str, Entry]) -> list[Entry]:
        """The entries that are invalidated, where they are more than may go; else none, and mostly without a look at them."""
        room = self._bound.room(origin)
        tags = [tag for tag, reason in dropped.items() if reason.is_invalidation]
        if room is None or not (tags or shrunk):
            return []
        if len(tags) > _MANY_TAGS and self._store.count(origin, decisions.STANDING) <= room:
            return []
        if sum(self._store.count(origin, tag) for tag in tags) + len(shrunk) <= room:
            return []
        doomed = {entry.id: entry for tag in tags for entry in self._store.tagged(origin, tag)} | shrunk
        return list(doomed.values()) if len(doomed) > room else []

    def _restamps(self, origin: str, disposal: Disposal, lessons: Iterable[Entry]) -> Iterator[Restamped]:
        """How many entries outlive the movement; where they cannot be counted, all else that was done is told without."""
        learned_count = Counter(table for entry in lessons for table in entry.tables)
        with suppress(StoreError):
            for table in dict.fromkeys(disposal.restamped):
                count = self._store.count(origin, decisions.table_tag(table)) - learned_count[table]
                if count > 0:
                    yield Restamped(origin, table, count)

    def _lessons(self, exchange: Exchange, told: Told, disposal: Disposal) -> tuple[list[Entry], list[Entry]]:
        """The entries that a response teaches: cacheable fixes of the state that is known; and as suspects those of another state, where nothing else is known for the same."""
        lessons: dict[str, Entry] = {}
        outrun: dict[str, Entry] = {}
        contract = told.contract
        is_keeping_outrun = self._bound.most is not None and told.attested is None
        is_teaching = disposal.is_teaching and is_json(exchange.operation, exchange.request)
        for suggestion in contract.suggestions if is_teaching else ():
            is_current = decisions.is_current(suggestion, contract, disposal.knowledge)
            is_outrun = is_keeping_outrun and decisions.is_outrun(suggestion, contract, disposal.knowledge)
            if suggestion.cache_hint == "cacheable" and (is_current or is_outrun):
                entry = Entry.from_suggestion(
                    suggestion,
                    origin=exchange.origin,
                    operation=exchange.operation,
                    request=exchange.request,
                    learned_at=self._clock(),
                    strategy=self._strategy.name,
                    is_suspect=not is_current,
                )
                (lessons if is_current else outrun)[entry.id] = entry
        taught = {entry.slot for entry in lessons.values()}
        return list(lessons.values()), [
            entry
            for entry in outrun.values()
            if entry.slot not in taught and not self._is_taken(entry, disposal)
        ]

    def _is_taken(self, entry: Entry, disposal: Disposal) -> bool:
        """Whether there is, and stays, an entry that is the answer to the same."""
        return any(
            held.slot == entry.slot and disposal.dropped.keys().isdisjoint(decisions.tags_of(held))
            for held in self._store.at([entry.place])
        )

    def _compare_vectors(
        self, exchange: Exchange, contract: Contract, disposal: Disposal
    ) -> tuple[dict[str, Entry], list[decisions.Grown]]:
        """What suggestions of the known state show about remembered fixes of their type, but for those that go in any case."""
        shrunk: dict[str, Entry] = {}
        grown: list[decisions.Grown] = []
        for suggestion in contract.suggestions if disposal.is_teaching else ():
            if not suggestion.tables or not decisions.is_current(suggestion, contract, disposal.knowledge):
                continue
            tag = decisions.family_tag(exchange.operation, suggestion.type)
            family = [
                entry
                for entry in self._store.tagged(exchange.origin, tag)
                if disposal.dropped.keys().isdisjoint(decisions.tags_of(entry))
            ]
            shorter, longer = decisions.compare_vectors(suggestion, family)
            shrunk |= {entry.id: entry for entry in shorter}
            grown += longer
        return shrunk, grown


def _as_suspect(entry: Entry) -> Entry:
    return msgspec.structs.replace(entry, is_suspect=True)


def _unconfirmed(checked: Iterable[Entry], lessons: Iterable[Entry]) -> dict[str, Reason]:
    """The suspects that the server was asked about and did not give again."""
    given = {entry.id for entry in lessons}
    return {entry.id: Reason.UNCONFIRMED for entry in checked if entry.id not in given}


def departures(written: Written, reasons: Mapping[str, Reason]) -> list[Evicted]:
    """The entries that left, each with the reason; one that another took the place of left for no other."""
    left = [Evicted(entry, reasons.get(tag, Reason.REPLACED)) for entry, tag in written.dropped]
    return left + [Evicted(entry, Reason.CAPACITY) for entry in written.trimmed]
