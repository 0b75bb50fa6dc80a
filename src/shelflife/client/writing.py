"""What is written about a response, and how much of one server may go within an hour."""

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from shelflife.client.asking import Exchange
from shelflife.client.entries import Entry, Root, Shape
from shelflife.client.events import Alerted, Event, Evicted, Ignored, Reason, Restamped, Stored, Suspected
from shelflife.client.reading import Contract
from shelflife.client.shelf import Shelf
from shelflife.client.steps import Disposal, is_current
from shelflife.client.stores import Filed, Known, StoreError, Write, Written
from shelflife.client.strategies import EVERYTHING, STANDING, SUSPECT, Revision, table_tag
from shelflife.contract.values import is_carried
from shelflife.contract.versions import Versions

__all__ = [
    "MOST_AT_A_PLACE",
    "MOST_EVICTIONS",
    "MOST_SHAPES",
    "Lessons",
    "Writing",
    "departures",
    "what_is_taught",
]

MOST_EVICTIONS = 32
"""By default: of the fixes that one agent remembers of one server, so many may be invalidated within an hour.

They are few enough to be renewed when a memory is refreshed. Where a server changes more, as with a nightly reload, each fix that is
needed again costs a question, where it would have cost a request that fails. A server that moves with every response takes one fix for
every two requests once it has taken all there were.
"""

MOST_SHAPES = 64
"""Of one operation: each costs every recall a look, and an honest server has about as many as policies."""

MOST_AT_A_PLACE = 64
"""Each costs every request that finds it a look. It is as many as one response may suggest."""

_NOT_CARRIED = "nothing is learned for a request that has something in it which JSON cannot carry"
_UNSURE = "a rule that they rest on has changed, or the policy that gave them"
_MOVED_ON = "the server is at another state than the one that gave them"
_AN_HOUR_S = 3600.0
_MANY_TAGS = 64
"""To count what bears one of so many takes longer than to count all entries of a root."""


class Bound:
    """Counts invalidations by server, for one memory. Its owner sees to it that one thread at a time does so for each."""

    def __init__(self, most: int | None, clock: Callable[[], float]) -> None:
        self.most = most
        self._clock = clock
        self._noted: dict[Root, deque[tuple[float, int]]] = {}

    def room(self, root: Root) -> float:
        """How many more entries of a server may go now."""
        if self.most is None:
            return math.inf
        noted = self._noted.get(root, deque())
        now = self._clock()
        while noted and not 0 <= now - noted[0][0] < _AN_HOUR_S:
            noted.popleft()
        return self.most - sum(count for _, count in noted)

    def note(self, root: Root, count: int) -> None:
        """So many have gone."""
        if self.most is not None and count:
            self._noted.setdefault(root, deque()).append((self._clock(), count))

    @property
    def why(self) -> str:
        """Why entries are suspect, in one sentence."""
        return f"more than {self.most} remembered fixes of this server would have gone within an hour"


class Lessons(msgspec.Struct, frozen=True):
    """The entries that a response teaches."""

    known: list[Entry]
    """Fixes of the state that is known."""

    outrun: list[Entry]
    """As suspects: fixes of the state that the response names, where the server has moved on from that."""

    left_out: Sequence[str] = ()
    """Why others are not learned."""


_NOTHING_TAUGHT = Lessons([], [])
_NOTHING_REVISED = Revision()


def what_is_taught(
    exchange: Exchange, contract: Contract, disposal: Disposal, *, learned_at: float, strategy: str
) -> Lessons:
    """What is to be kept of a response: its cacheable fixes, for a request that JSON can carry.

    A response that names its position is of the state that is known. Of any other, the versions tell.
    """
    known: dict[str, Entry] = {}
    outrun: dict[str, Entry] = {}
    cacheable = [
        one for one in contract.suggestions if one.cache_hint == "cacheable" and disposal.is_teaching
    ]
    if cacheable and not is_carried(exchange.operation, exchange.request):
        return Lessons([], [], (_NOT_CARRIED,))
    for suggestion in cacheable:
        entry = Entry.from_suggestion(
            suggestion,
            exchange.request,
            root=exchange.root,
            operation=exchange.operation,
            learned_at=learned_at,
            strategy=strategy,
            generation=disposal.knowledge.generation,
        )
        is_placed = contract.account is not None and bool(entry.grounds.tables)
        if is_placed or is_current(suggestion, contract, disposal.knowledge.versions):
            known[entry.id] = entry
        elif is_current(suggestion, contract, contract.versions or Versions({})):
            outrun[entry.id] = _as_suspect(entry)
    return Lessons(list(known.values()), list(outrun.values()))


class _Room:
    """What may be found by the requests of one operation, so that no server makes its own recalls slow."""

    def __init__(self, shapes: Iterable[Shape], filed: Iterable[Filed]) -> None:
        self.refused: Counter[str] = Counter()
        self._shapes = set(shapes)
        self._slots = defaultdict[str, set[str]](set)
        for one in filed:
            self._slots[one.entry.place].add(one.slot)

    def takes(self, filed: Filed) -> bool:
        """Whether there is room for one more, which takes it; else it is noted why not."""
        shape, slots = filed.entry.condition.shape, self._slots[filed.entry.place]
        if shape not in self._shapes and len(self._shapes) >= MOST_SHAPES:
            self.refused[
                f"what is remembered depends on {MOST_SHAPES} other choices of request fields already"
            ] += 1
        elif filed.slot not in slots and len(slots) >= MOST_AT_A_PLACE:
            self.refused[f"{MOST_AT_A_PLACE} are remembered for the same request already"] += 1
        else:
            self._shapes.add(shape)
            slots.add(filed.slot)
            return True
        return False


class Writing:
    """How one memory writes to its store. Its owner sees to it that one thread at a time does so for each root."""

    def __init__(
        self, shelf: Shelf, capacity: int | None, most_evictions: int | None, clock: Callable[[], float]
    ) -> None:
        self._shelf = shelf
        self._store = shelf.store
        self._strategy = shelf.strategy
        self._telling = shelf.telling
        self._capacity = capacity
        self._clock = clock
        self._bound = Bound(most_evictions, clock)

    def carried_out(
        self,
        exchange: Exchange,
        contract: Contract,
        known: Known,
        disposal: Disposal,
        checked: Sequence[Entry] = (),
    ) -> list[Event] | None:
        """Write what follows from a response, with what it teaches; None when somebody else has written meanwhile.

        `checked` are the suspects that the response is the answer about.
        """
        root = exchange.root
        taught = _NOTHING_TAUGHT
        if contract.suggestions:
            taught = what_is_taught(
                exchange, contract, disposal, learned_at=self._clock(), strategy=self._strategy.name
            )
            taught = self._as_far_as_there_is_room(exchange, taught)
        if known.revision and disposal.knowledge.strategy != known.knowledge.strategy:
            disposal.dropped |= dict.fromkeys(EVERYTHING, Reason.ANOTHER_STRATEGY)
        lessons = taught.known
        outrun = self._untaken(root, taught, disposal) if taught.outrun else []
        revision = _NOTHING_REVISED
        if lessons:
            revision = self._strategy.revises(lessons, lambda tag: self._staying(root, tag, disposal))
        drop, drop_ids = disposal.dropped, revision.dropped
        if checked:
            drop_ids = {**drop_ids, **_unconfirmed(checked, lessons)}
        unsure = self._unsure(root, disposal) if disposal.suspect else []
        put = [*map(_as_suspect, unsure), *outrun, *revision.put, *lessons]
        told: list[Event] = [Ignored(root, why) for why in taught.left_out] if taught.left_out else []
        if not (drop or drop_ids or put) and disposal.knowledge == known.knowledge:
            return told if self._shelf.is_still(root, known) else None
        suspects = self._too_many(root, drop)
        if suspects:
            drop = {tag: reason for tag, reason in drop.items() if not reason.is_invalidation}
            put = [*map(_as_suspect, suspects), *put]
        filed = [self._filed(one) for one in put] if put else []
        counted = {table: table_tag(table) for table in disposal.kept}
        write = Write(disposal.knowledge, drop, drop_ids, filed, self._capacity, [*counted.values()])
        written = self._store.write(root, known.revision, write)
        if written is None:
            return None
        if self._telling.failing_at:
            self._telling.store_works("write")
        left = departures(written, {**drop, **drop_ids} if drop_ids else drop)
        if self._bound.most is not None:
            self._bound.note(root, sum([one.reason.is_invalidation for one in left]))
        if disposal.knowledge.split_at is not None:
            self._shelf.confirm(root, lessons)
        alert = revision.alert or disposal.alert
        if alert:
            told.append(Alerted(root, alert))
        told += left
        if suspects or unsure or outrun:
            told += self._suspicions(root, suspects, unsure, outrun, lessons)
        if written.stored:
            told += [Stored(entry) for entry in written.stored if not entry.is_suspect]
        if disposal.kept:
            told += self._restamps(root, counted, lessons)
        if revision.kept:
            told += [Restamped(root, table, count) for table, count in Counter(revision.kept).items()]
        return told

    def _suspicions(
        self,
        root: Root,
        spared: Sequence[Entry],
        unsure: Sequence[Entry],
        outrun: Sequence[Entry],
        lessons: Sequence[Entry],
    ) -> Iterator[Suspected]:
        """What is suspect from now on, unless it was given again with this very response."""
        given = {entry.slot for entry in lessons}
        for entries, why in ((spared, self._bound.why), (unsure, _UNSURE), (outrun, _MOVED_ON)):
            suspects = tuple(_as_suspect(entry) for entry in entries if entry.slot not in given)
            if suspects:
                yield Suspected(root, suspects, why)

    def _filed(self, entry: Entry) -> Filed:
        filed = self._strategy.files(entry)
        tags = (SUSPECT,) if entry.is_suspect else (STANDING, *filed.tags)
        return Filed(filed.entry, filed.slot, tags)

    def _stays(self, entry: Entry, disposal: Disposal) -> bool:
        return disposal.dropped.keys().isdisjoint(self._filed(entry).tags)

    def _staying(self, root: Root, tag: str, disposal: Disposal) -> list[Entry]:
        return [entry for entry in self._store.tagged(root, tag) if self._stays(entry, disposal)]

    def _unsure(self, root: Root, disposal: Disposal) -> list[Entry]:
        """The entries that must be revalidated, but for those that go for another reason."""
        held = self._store.tagged(root, *disposal.suspect)
        return [entry for entry in held if self._stays(entry, disposal)]

    def _too_many(self, root: Root, dropped: Mapping[str, Reason]) -> list[Entry]:
        """The entries that are invalidated, where they are more than may go; else none, and mostly without a look at them."""
        room = self._bound.room(root)
        if room == math.inf:
            return []
        tags = [tag for tag, reason in dropped.items() if reason.is_invalidation]
        if len(tags) > _MANY_TAGS and self._store.count(root, STANDING) <= room:
            return []
        if not tags or self._store.count(root, *tags) <= room:
            return []
        doomed = self._store.tagged(root, *tags)
        return doomed if len(doomed) > room else []

    def _restamps(self, root: Root, kept: Mapping[str, str], lessons: Sequence[Entry]) -> list[Restamped]:
        """How many entries outlive the movement of tables; where they cannot be counted, all else that was done is told without."""
        learned = [table for entry in lessons for table in entry.grounds.tables] if lessons else []
        told = []
        try:
            for table, tag in kept.items():
                count = self._store.count(root, tag) - learned.count(table)
                if count > 0:
                    told.append(Restamped(root, table, count))
        except StoreError:
            pass
        return told

    def _as_far_as_there_is_room(self, exchange: Exchange, taught: Lessons) -> Lessons:
        """What is taught, but for what no recall is to look through."""
        entries = [*taught.known, *taught.outrun]
        if not entries:
            return taught
        operation = exchange.operation
        shapes = [*self._store.shapes(exchange.root, operation)]
        held = self._store.at(exchange.root, [*{entry.place for entry in entries}]) if shapes else []
        if len(shapes) + len(entries) <= MOST_SHAPES and len(held) + len(entries) <= MOST_AT_A_PLACE:
            return taught  # whatever they are
        room = _Room(shapes, map(self._strategy.files, held))
        known, outrun = (
            [entry for entry in some if room.takes(self._strategy.files(entry))]
            for some in (taught.known, taught.outrun)
        )
        why = [
            f"there are too many fixes for {operation}, and {count} left out: {why}"
            for why, count in room.refused.items()
        ]
        return Lessons(known, outrun, why)

    def _untaken(self, root: Root, lessons: Lessons, disposal: Disposal) -> list[Entry]:
        """What the server has moved on from, where nothing else is and stays the answer to the same."""
        if self._bound.most is None:
            return []
        held = self._store.at(root, [entry.place for entry in lessons.outrun])
        staying = [entry for entry in held if self._stays(entry, disposal)]
        taken = {entry.slot for entry in (*lessons.known, *staying)}
        return [entry for entry in lessons.outrun if entry.slot not in taken]


def _as_suspect(entry: Entry) -> Entry:
    return msgspec.structs.replace(entry, is_suspect=True)


def _unconfirmed(checked: Sequence[Entry], lessons: Sequence[Entry]) -> dict[str, Reason]:
    """The suspects that the server was asked about and did not give again."""
    given = {entry.id for entry in lessons}
    return {entry.id: Reason.UNCONFIRMED for entry in checked if entry.id not in given}


def departures(written: Written, reasons: Mapping[str, Reason]) -> list[Evicted]:
    """The entries that left, each with the reason; one that another took the place of left for no other."""
    left = [Evicted(entry, reasons.get(tag, Reason.REPLACED)) for entry, tag in written.dropped]
    if written.trimmed:
        left += [Evicted(entry, Reason.CAPACITY) for entry in written.trimmed]
    return left
