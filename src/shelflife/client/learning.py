"""Writing down what follows from a response: what goes, what is kept, what is new."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

from shelflife.client import decisions
from shelflife.client.decisions import Disposal, Told
from shelflife.client.entries import Entry, Knowledge
from shelflife.client.events import Alerted, Event, Evicted, Reason, Restamped, Stored
from shelflife.client.exchanges import Exchange
from shelflife.client.stores import Known, Store, StoreError, Written
from shelflife.client.strategies import OnRules, Strategy
from shelflife.contract.reading import Contract

__all__ = ["NOT_JSON", "Learning", "departures"]

NOT_JSON = (TypeError, ValueError, OverflowError, RecursionError)
"""What comes of a request whose values JSON cannot carry: nothing is ever learned or recalled for one."""


class Learning:
    """How one memory writes to its store."""

    def __init__(
        self,
        store: Store,
        strategy: Strategy,
        capacity: int | None,
        clock: Callable[[], float],
        *,
        is_backing_off: Callable[[], bool],
        has_written: Callable[[], None],
    ) -> None:
        self._store = store
        self._strategy = strategy
        self._capacity = capacity
        self._clock = clock
        self._is_backing_off = is_backing_off
        self._has_written = has_written

    def carry_out(
        self, exchange: Exchange, told: Told, known: Known, knowledge: Knowledge
    ) -> list[Event] | None:
        """Write what follows from a response; None when somebody else has written meanwhile."""
        origin, contract = exchange.origin, told.contract
        disposal = decisions.dispose(knowledge, told, self._strategy)
        if known.revision and knowledge.strategy != known.knowledge.strategy:
            disposal.dropped[decisions.EVERYTHING] = Reason.ANOTHER_STRATEGY
        lessons = self._lessons(exchange, contract, disposal.knowledge) if disposal.is_teaching else []
        shrunk: dict[str, Reason] = {}
        grown: list[decisions.Grown] = []
        if self._strategy.is_comparing_vectors:
            shrunk, grown = self._compare_vectors(exchange, contract, disposal)
        if (shrunk or grown) and self._strategy.on_rules is OnRules.NOTHING:
            disposal.alert = "vector"
        if disposal.knowledge == known.knowledge and not (disposal.dropped or shrunk or lessons or grown):
            return []
        if self._is_backing_off():
            raise StoreError("the memory could not be written a moment ago")
        put = [*(one.entry for one in grown), *lessons]
        written = self._store.write(
            origin,
            known.revision,
            disposal.knowledge,
            drop=disposal.dropped,
            drop_ids=shrunk,
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
        events += departures(written, {**disposal.dropped, **shrunk})
        events += (Stored(entry) for entry in written.stored)
        events += self._restamps(origin, disposal, lessons)
        grown_count = Counter(table for one in grown for table in one.new_tables)
        events += (Restamped(origin, table, count) for table, count in grown_count.items())
        return events

    def _restamps(self, origin: str, disposal: Disposal, lessons: Iterable[Entry]) -> Iterator[Restamped]:
        """How many entries outlive the movement; where they cannot be counted, all else that was done is told without."""
        learned_count = Counter(table for entry in lessons for table in entry.tables)
        with suppress(StoreError):
            for table in dict.fromkeys(disposal.restamped):
                count = self._store.count(origin, decisions.table_tag(table)) - learned_count[table]
                if count > 0:
                    yield Restamped(origin, table, count)

    def _lessons(self, exchange: Exchange, contract: Contract, knowledge: Knowledge) -> list[Entry]:
        """The entries that a response teaches: cacheable fixes of the state that is known."""
        lessons: dict[str, Entry] = {}
        for suggestion in contract.suggestions:
            if suggestion.cache_hint == "cacheable" and decisions.is_current(suggestion, contract, knowledge):
                try:
                    entry = Entry.from_suggestion(
                        suggestion,
                        origin=exchange.origin,
                        operation=exchange.operation,
                        request=exchange.request,
                        learned_at=self._clock(),
                        strategy=self._strategy.name,
                    )
                    lessons[entry.id] = entry
                except NOT_JSON:
                    continue
        return list(lessons.values())

    def _compare_vectors(
        self, exchange: Exchange, contract: Contract, disposal: Disposal
    ) -> tuple[dict[str, Reason], list[decisions.Grown]]:
        """What suggestions of the known state show about remembered fixes of their type, but for those that go in any case."""
        shrunk: dict[str, Reason] = {}
        grown: list[decisions.Grown] = []
        for suggestion in contract.suggestions:
            if not suggestion.tables or not decisions.is_current(suggestion, contract, disposal.knowledge):
                continue
            tag = decisions.family_tag(exchange.operation, suggestion.type)
            family = [
                entry
                for entry in self._store.tagged(exchange.origin, tag)
                if disposal.dropped.keys().isdisjoint(decisions.tags_of(entry))
            ]
            shorter, longer = decisions.compare_vectors(suggestion, family)
            shrunk |= {entry.id: Reason.VECTOR_SHRANK for entry in shorter}
            grown += longer
        return shrunk, grown


def departures(written: Written, reasons: Mapping[str, Reason]) -> list[Event]:
    """The entries that left, each with the reason; one that another took the place of left for no other."""
    left: list[Event] = [Evicted(entry, reasons.get(tag, Reason.REPLACED)) for entry, tag in written.dropped]
    return left + [Evicted(entry, Reason.CAPACITY) for entry in written.trimmed]
