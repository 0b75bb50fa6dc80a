"""What a memory costs as it grows: recall, observe and eviction, with both stores, from a thousand fixes to a million."""

import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from benchmarks.figures import Figure, Target, at_most, median_figure, quantity, worst_of_a_hundred_figure
from benchmarks.fixes import (
    OPERATION,
    ORIGIN,
    evicting,
    fill,
    fix,
    number_that_stays,
    request,
    rows_with,
    teaching,
    unchanged,
)
from benchmarks.floors import Floor, FloorAct
from benchmarks.processes import in_fresh_process
from shelflife.client import (
    Condition,
    Guard,
    InProcessStore,
    Memory,
    SqliteStore,
    Store,
    Write,
)
from shelflife.client.events import Evicted, Stored
from shelflife.client.guard import amend

__all__ = ["REMARKS", "measure"]

_MICROSECONDS = 1e6
_MILLISECONDS = 1e3
_ROOM_FOR_ALL = 10_000_000
_MOST_TIMES_SLOWER_LOOKING = 1.3
_MOST_TIMES_SLOWER_WRITING = 2.0
_FOUND_COUNTS = (400, 4_000)
"""Fixes that one request finds; the second is about as many as a memory lets a server have."""

_MOST_TIMES_SLOWER_AMENDING = 15.0
"""Ten times as many fixes; the square of that would be a hundred."""

StoreKind = Literal["in process", "SQLite"]
Act = Literal[
    "first look",
    "kept answer",
    "after another's write",
    "observe, nothing new",
    "observe, a new fix",
    "evict 1",
    "evict 10",
    "evict 1000",
]
_Bounds = tuple[float, float]
"""In µs: for the median, and for the 99th percentile."""

_RECALL_BOUNDS: dict[tuple[StoreKind, Act], _Bounds] = {
    ("in process", "first look"): (6, 20),
    ("in process", "kept answer"): (6, 20),
    ("SQLite", "first look"): (20, 60),
    ("SQLite", "kept answer"): (10, 40),
    ("SQLite", "after another's write"): (30, 100),
}
_LOOKING_FLOORS: dict[StoreKind, tuple[FloorAct, ...]] = {
    "in process": (
        "floor of a first look",
        "floor of a kept answer",
        "an idle loop of six microseconds",
    ),
    "SQLite": ("floor of a first look", "floor of a kept answer", "floor after another's write"),
}
_NOTHING_NEW_BOUNDS: dict[StoreKind, float] = {"in process": 15, "SQLite": 25}
_EVICTION_BOUNDS_MS: dict[tuple[StoreKind, Act], float] = {
    ("in process", "evict 10"): 0.10,
    ("SQLite", "evict 10"): 0.8,
    ("in process", "evict 1000"): 8,
    ("SQLite", "evict 1000"): 90,
}
_SIZE_WITH_BOUNDS = 100_000
_WITH_FLOOR = 2
"""Which of the sizes that is."""

REMARKS = {
    "recall": (
        "First look: a request at random among all that are remembered, as after a start: what it finds is in no cache of the processor, and on"
        " SQLite it is read from the file and decoded. Kept answer: the same 250 requests again, in the same order, with nothing written by"
        " others meanwhile; a process keeps the answers to its last 4,096 looks.",
        "Before each kept answer of SQLite stand a look at whether the folder, and so file and journal, are as they were, and one at whether another"
        " process has written. No cache that is never stale can leave them out, and they are the floor of a kept answer. The second is read off the"
        " head of the index to the journal, which SQLite has in memory, as it does itself; elsewhere than on Linux SQLite is asked, which takes"
        " three microseconds more. For a tenth of a second after a change of the folder the file and its journals are looked at one by one, which"
        " takes three microseconds more, too; on a file system that notes times coarsely, for three seconds.",
        "After another's write: another connection has written to the same root. One statement tells that neither what is known nor the shapes"
        " have changed, and reads the fix. SQLite itself has dropped all pages that it had read before, which is most of what it costs.",
        "Floor: the same work in the same turns with all of ours taken out: our statements by hand, on a file that our store has filled, with"
        " values that were worked out before. A first look by hand is one select and the decoding of one fix. What ours takes beyond it goes to"
        " working out the place, which is a digest, to keeping the answer, to letting go of an older one, and to what a recall in process takes, too.",
        "In process the floor is one look into a dictionary by the two fields that are known to matter. It is over so soon that hardly anything"
        " comes between. A loop of six microseconds that touches no memory shows what does, while a recall lasts: what its 99th percentile has"
        " beyond six is the machine's, which takes the processor away from whoever has it. No collection of garbage falls into a recall, which"
        " leaves nothing behind.",
        "Entries that lay in the order of their places would spare a look one index and two microseconds. A put would then go into the midst of"
        " whole entries, and take thirty more. A file mapped into memory spares no look either, and one that shrinks would end the process.",
    ),
    "observe": (
        "Each response carries the versions of all fifty tables. Nothing new: a success at versions that are known. A new fix: a"
        " rejection whose fix is stored.",
        "Floor of nothing new: the body is decoded and its versions are compared with those that are known; on SQLite after a look at whether"
        " the file is there and as it was. Before each stands a put, which leaves the caches of the processor to others.",
    ),
    "amend": (
        "One request finds all of these fixes, which a hostile server has suggested. All are written into it.",
    ),
    "eviction": (
        "By `memory.observe` from end to end: a response shows that a table has moved, the (local) answer of the server names the row,"
        " and what rests on it goes. This is a server that names only versions. By default a server names its position, and says with its"
        " response what has moved from there, so that nobody has to ask: that is measured among the rivals.",
        "Floor of 10: both bodies are decoded, the ten are taken out of a dictionary by hand, or by our statements out of a file, and it is said"
        " that they have left. Ours is behind it: it checks what both bodies say, compares fifty versions, decides what follows and counts.",
    ),
}


class _Sizes(NamedTuple):
    """How many fixes the stores hold, and how often each thing is done."""

    counts: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    """Eviction starts from the second: a thousand fixes have no row that is shared by many."""
    round_count: int = 20
    recalls_in_a_round: int = 250
    observed_in_a_round: int = 50
    evicted_in_a_round: int = 10


_TINY = _Sizes((200, 2_000, 10_000), 2, recalls_in_a_round=20, observed_in_a_round=5, evicted_in_a_round=2)

Samples = dict[tuple[Act | FloorAct, int], list[float]]
"""Seconds, by what was done and how many fixes there were."""


def measure(is_quick: bool) -> Iterator[Figure]:
    """Both stores, each in a process of its own that holds all sizes."""
    sizes = _TINY if is_quick else _Sizes()
    by_kind: dict[StoreKind, Samples] = {}
    with tempfile.TemporaryDirectory() as folder:
        kinds: tuple[StoreKind, ...] = ("in process", "SQLite")
        for kind in kinds:
            by_kind[kind] = in_fresh_process(_samples, kind, sizes, folder)
    for kind, samples in by_kind.items():
        yield from _recall_figures(kind, samples, sizes.counts)
    for kind, samples in by_kind.items():
        yield from _observe_figures(kind, samples, sizes.counts)
    for kind, samples in by_kind.items():
        yield from _eviction_figures(kind, samples, sizes.counts)
    yield from _amending_figures(sizes.round_count)


def _samples(kind: StoreKind, sizes: _Sizes, folder: str) -> Samples:
    users = [_User(_filled_store(kind, size, folder), size) for size in sizes.counts]
    bare_file = Path(folder, "bare.db") if kind == "SQLite" else None
    floor = Floor(sizes.counts[_WITH_FLOOR], bare_file)
    for _ in range(sizes.round_count):
        floor.round(sizes.recalls_in_a_round, sizes.observed_in_a_round, sizes.evicted_in_a_round)
        for user in users:
            user.recall(sizes.recalls_in_a_round)
            if kind == "SQLite":
                for _ in range(sizes.evicted_in_a_round):
                    user.recall_after_a_write()
            for _ in range(sizes.observed_in_a_round):
                user.observe_nothing_new()
                user.observe_a_new_fix()
            for _ in range(sizes.evicted_in_a_round):
                user.evict("evict 1", 1)
            user.evict("evict 10", 10)
            user.evict("evict 1000", 1000)
    timed: list[_User | Floor] = [*users, floor]
    return {(act, one.size): took_s for one in timed for act, took_s in one.took_s.items()}


def _filled_store(kind: StoreKind, size: int, folder: str) -> Store:
    store: Store = InProcessStore() if kind == "in process" else SqliteStore(Path(folder, f"{size}.db"))
    fill(store, size)
    return store


class _User:
    """Does to one memory what agents do, and keeps the time."""

    def __init__(self, store: Store, size: int) -> None:
        self.size = size
        self.took_s: defaultdict[Act, list[float]] = defaultdict(list)
        self._store = store
        self._other: SqliteStore | None = None
        self._memory = Memory(store, capacity=_ROOM_FOR_ALL, most_evictions=None)
        self._chance = random.Random(size)
        self._next_number = size
        self._moved_counts: dict[int, int] = {}
        self._rows = {count: rows_with(count, size) for count in (1, 10, 1000)}
        for rows in self._rows.values():
            self._chance.shuffle(rows)

    def recall(self, count: int) -> None:
        wanted = [request(number_that_stays(self._chance, self.size)) for _ in range(count)]
        acts: tuple[Act, ...] = ("first look", "kept answer")
        for act in acts:
            for one in wanted:
                self._recall(act, one)

    def recall_after_a_write(self) -> None:
        """Another connection to the same file writes first."""
        if self._other is None and isinstance(self._store, SqliteStore):
            self._other = SqliteStore(self._store.path)
        if self._other is not None:
            known = self._other.known(ORIGIN)
            self._other.write(ORIGIN, known.revision, Write(known.knowledge))
        self._recall("after another's write", request(number_that_stays(self._chance, self.size)))

    def _recall(self, act: Act, wanted: dict[str, Any]) -> None:
        found = self._timed(act, self._memory.recall, ORIGIN, OPERATION, wanted)
        _check(len(found) == 1, f"a recall has found {len(found)} fixes")

    def observe_nothing_new(self) -> None:
        events = self._timed("observe, nothing new", self._memory.observe, unchanged(self._moved_counts))
        _check(events == [], "a response that says nothing new has changed the memory")

    def observe_a_new_fix(self) -> None:
        exchange = teaching(self._next_number, self.size, self._moved_counts)
        self._next_number += 1
        events = self._timed("observe, a new fix", self._memory.observe, exchange)
        _check([type(event) for event in events] == [Stored], "a response has not taught its fix")

    def evict(self, act: Act, fix_count: int) -> None:
        """Let the row of so many fixes change, as long as there is one."""
        if not self._rows[fix_count]:
            return
        exchange, answer = evicting(self._rows[fix_count].pop(), self._moved_counts)
        events = self._timed(act, self._memory.observe, exchange, lambda url: answer)
        evicted_count = sum(isinstance(event, Evicted) for event in events)
        _check(evicted_count == fix_count, f"{evicted_count} fixes were evicted instead of {fix_count}")

    def _timed(self, act: Act, function: Callable[..., Any], *args: Any) -> Any:
        started_at = time.perf_counter()
        result = function(*args)
        self.took_s[act].append(time.perf_counter() - started_at)
        return result


def _check(is_right: bool, otherwise: str) -> None:
    """Make sure that what is measured is what was meant."""
    if not is_right:
        raise RuntimeError(otherwise)


def _recall_figures(kind: StoreKind, samples: Samples, sizes: tuple[int, ...]) -> Iterator[Figure]:
    for (of_kind, act), bounds in _RECALL_BOUNDS.items():
        if of_kind == kind:
            yield from _times("recall", kind, act, act, samples, [sizes[0], *sizes[2:]], bounds)
    for floor in _LOOKING_FLOORS[kind]:
        yield from _times("recall", kind, floor, floor, samples, [sizes[_WITH_FLOOR]])
    act = "first look"
    target = at_most(_MOST_TIMES_SLOWER_LOOKING)
    yield _ratio("recall", kind, act, samples, sizes[-1], sizes[2], target)


def _observe_figures(kind: StoreKind, samples: Samples, sizes: tuple[int, ...]) -> Iterator[Figure]:
    acts: tuple[Act, ...] = ("observe, nothing new", "observe, a new fix")
    for act in acts:
        what = act.partition(", ")[2]
        bounds = (_NOTHING_NEW_BOUNDS[kind], None) if act == "observe, nothing new" else None
        yield from _times("observe", kind, act, what, samples, [sizes[0], *sizes[2:]], bounds)
    floor: FloorAct = "floor of nothing new"
    yield from _times("observe", kind, floor, floor, samples, [sizes[_WITH_FLOOR]])
    yield _ratio("observe", kind, acts[0], samples, sizes[-1], sizes[2], at_most(_MOST_TIMES_SLOWER_LOOKING))
    yield _ratio("observe", kind, acts[1], samples, sizes[-1], sizes[2], at_most(_MOST_TIMES_SLOWER_WRITING))


def _eviction_figures(kind: StoreKind, samples: Samples, sizes: tuple[int, ...]) -> Iterator[Figure]:
    acts: tuple[Act, ...] = ("evict 1", "evict 10", "evict 1000")
    for size in sizes[1:]:
        for act in acts:
            took_s = samples.get((act, size), [])
            if len(took_s) > 1:
                what = f"{kind}: {int(act.split()[1]):,} of {quantity(size)}"
                took_ms = [took * _MILLISECONDS for took in took_s]
                bound = _EVICTION_BOUNDS_MS.get((kind, act)) if size == _SIZE_WITH_BOUNDS else None
                yield median_figure("eviction", what, took_ms, "ms", _or_none(bound))
    size = sizes[_WITH_FLOOR]
    took_ms = [took * _MILLISECONDS for took in samples["floor of 10", size]]
    yield median_figure("eviction", f"{kind}: floor of 10 of {quantity(size)}", took_ms, "ms")
    target = at_most(_MOST_TIMES_SLOWER_WRITING)
    yield _ratio("eviction", kind, "evict 10", samples, sizes[-1], sizes[2], target)


def _amending_figures(round_count: int) -> Iterator[Figure]:
    took_ms: defaultdict[int, list[float]] = defaultdict(list)
    for _ in range(round_count):
        for count in _FOUND_COUNTS:
            entries = [fix(number, count) for number in range(count)]
            entries = [
                msgspec.structs.replace(entry, parameters={f"f{number}": 1}, condition=Condition({}))
                for number, entry in enumerate(entries)
            ]
            started_at = time.perf_counter()
            amended = amend({}, lambda _, found=tuple(entries): found, Guard())  # type: ignore[misc]
            took_ms[count].append((time.perf_counter() - started_at) * _MILLISECONDS)
            _check(len(amended.applied) == count, f"only {len(amended.applied)} fixes were applied")
    few, many = _FOUND_COUNTS
    for count in _FOUND_COUNTS:
        yield median_figure("amend", f"{quantity(count)} for one request", took_ms[count], "ms")
    yield Figure(
        subject="amend",
        what=f"{quantity(many)} against {quantity(few)}: ratio of medians",
        measured=statistics.median(took_ms[many]) / statistics.median(took_ms[few]),
        unit="",
        sample_count=round_count,
        target=at_most(_MOST_TIMES_SLOWER_AMENDING),
    )


def _times(
    subject: str,
    kind: StoreKind,
    act: Act | FloorAct,
    what: str,
    samples: Samples,
    sizes: list[int],
    bounds: tuple[float, float | None] | None = None,
) -> Iterator[Figure]:
    for size in sizes:
        took_us = [took_s * _MICROSECONDS for took_s in samples[act, size]]
        of_median, of_worst = bounds if bounds and size == _SIZE_WITH_BOUNDS else (None, None)
        whole = f"{kind}: {what}, {quantity(size)}"
        yield median_figure(subject, whole, took_us, "µs", _or_none(of_median))
        yield worst_of_a_hundred_figure(subject, whole, took_us, "µs", _or_none(of_worst))


def _or_none(bound: float | None) -> Target | None:
    return None if bound is None else at_most(bound)


def _ratio(
    subject: str, kind: StoreKind, act: Act, samples: Samples, large: int, small: int, target: Target | None
) -> Figure:
    return Figure(
        subject=subject,
        what=f"{kind}: {act}, {quantity(large)} against {quantity(small)}: ratio of medians",
        measured=statistics.median(samples[act, large]) / statistics.median(samples[act, small]),
        unit="",
        sample_count=len(samples[act, large]),
        target=target,
    )
