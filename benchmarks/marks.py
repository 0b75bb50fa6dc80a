"""Our SQLite store beside a hand-made inverted index: as measured elsewhere, and built here and measured in turns with ours."""

import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.figures import (
    Figure,
    Target,
    at_least,
    at_most,
    median_figure,
    quantity,
    worst_of_a_hundred_figure,
)
from benchmarks.fixes import (
    OPERATION,
    ORIGIN,
    filed,
    fill,
    fix,
    number_that_stays,
    request,
    row_tag_of,
    rows_with,
)
from benchmarks.floors import BareFile
from benchmarks.handmade import HandmadeIndex
from benchmarks.processes import in_fresh_process
from shelflife.client import InProcessStore, Memory, SqliteStore, Store, Write
from shelflife.client.strategies import row_tag, table_tag

__all__ = ["REMARKS", "measure"]

_SUBJECT = "marks"
_MARKS: dict[str, Target] = {
    "recall": at_most(22),
    "recall, 99th percentile": at_most(70),
    "evict 1": at_most(0.095),
    "evict 1000": at_most(84),
    "put": at_least(6000),
}
_LEAST_PUTS = at_least(5500)
_DISKCACHE = "diskcache, here"
_FLOOR = "floor, our statements alone"
"""In µs, ms and puts a second; measured elsewhere on two cores at 100 thousand fixes, and safe against the crash of a process."""

REMARKS = {
    _SUBJECT: (
        "Measured elsewhere is another machine. What is hand-made here is an index of the same kind on this machine, in turns with ours: how far"
        " it is from the marks is due to the machine and to who else was at work on it, how far ours is from it is due to us.",
        "The hand-made index looks a key up and hands out bytes. `memory.recall` works out the place from the request, asks whether another"
        " process has written, decodes the fix, checks that it holds, and notes its use.",
        "A put of the hand-made index touches a fix, its key, three tags, and these by the fix: 8.3 pages of the journal on average. One of ours"
        " touches the entry, its place, three tags, and the row that guards against a second writer, in which is counted, too: 8.6 pages of half"
        " that size. One of diskcache touches an item, its key, its one tag, and a row with the size of all: 6.1 pages. Most"
        " of a put is its commit, and the checkpoint that each page waits for.",
        "Pages of 2 KB are half of what SQLite takes by itself. A put writes 17 KB of journal with them where it wrote 30, so half as many puts"
        " wait until the journal is carried over. A first look takes half a microsecond longer, for the trees are deeper. A page of 1 KB would"
        " hold a single fix, and the file would be two fifths larger.",
        "The floor is our statements on a file that our store has filled, with values that were worked out before: no memory, no store, no check."
        " What ours takes beyond it is the entry itself, with three digests, its tags, and two looks at whether the file is there and as it was.",
        "Where ours is behind: a first look decodes a fix and works out its place by a digest, where the others hand out bytes by a key that they"
        " are given (a recall that is kept spares both, and asks whether the file is still so, which neither of the others does); and a put"
        " files a fix by its place, by each table and by the policy, and counts these, where diskcache keeps a single tag. The hand-made index is the like comparison:"
        " it has the tags of tables and rows.",
        "diskcache (`Cache` with an index of its tags, WAL, `synchronous = normal`): `get`, `set` with the row as the one tag that an item can"
        " have, `evict`. It keeps no way from a table to its fixes.",
        "Eviction here is the store's `write` alone, for a like comparison; above it is `memory.observe` from end to end.",
    )
}


class _Sizes(NamedTuple):
    """How many fixes there are, and how often each thing is done."""

    fix_count: int = 100_000
    round_count: int = 10
    recalls_in_a_round: int = 500
    puts_in_a_round: int = 500
    safest_puts_in_a_round: int = 20
    evicted_in_a_round: int = 20


_TINY = _Sizes(
    10_000, 2, recalls_in_a_round=10, puts_in_a_round=10, safest_puts_in_a_round=2, evicted_in_a_round=2
)

Samples = dict[tuple[str, str], list[float]]
"""By who did it and what: seconds, or puts a second."""


class _Side(NamedTuple):
    """What can be done to one of the things compared."""

    recall: Callable[[dict[str, Any]], object]
    evict: Callable[[str], int]
    put: Callable[[int], object]


def measure(is_quick: bool) -> Iterator[Figure]:
    """Recall, evictions and puts of both, in turns; then puts of our other stores."""
    sizes = _TINY if is_quick else _Sizes()
    with tempfile.TemporaryDirectory() as folder:
        samples = in_fresh_process(_samples, sizes, folder)
    at_size = f"of {quantity(sizes.fix_count)}"
    for who, is_ours in (("ours", True), ("hand-made, here", False), (_DISKCACHE, False)):
        if (who, "recall") not in samples:
            continue  # it is not installed
        marks = _MARKS if is_ours else {}
        recall_us = [took_s * 1e6 for took_s in samples[who, "recall"]]
        what = f"{who}: recall of one {at_size}"
        yield median_figure(_SUBJECT, what, recall_us, "µs", mark=marks.get("recall"))
        yield worst_of_a_hundred_figure(
            _SUBJECT, what, recall_us, "µs", mark=marks.get("recall, 99th percentile")
        )
        kept_us = [took_s * 1e6 for took_s in samples[who, "kept recall"]]
        yield median_figure(_SUBJECT, f"{who}: the same recalls again", kept_us, "µs")
        for act, words in (("evict 1", "1 match"), ("evict 1000", "1,000 matches")):
            took_ms = [took_s * 1e3 for took_s in samples.get((who, act), ())]
            if len(took_ms) > 1:
                what = f"{who}: eviction of {words} {at_size}"
                yield median_figure(_SUBJECT, what, took_ms, "ms", mark=marks.get(act))
        what = f"{who}: puts, safe against a crash of the process"
        target = _LEAST_PUTS if is_ours else None
        yield median_figure(_SUBJECT, what, samples[who, "put"], "/s", target, mark=marks.get("put"))
        if not is_ours:
            yield from _against(who, samples)
    yield median_figure(_SUBJECT, f"{_FLOOR}: puts", samples[_FLOOR, "put"], "/s")
    for who in ("ours, safe against power loss", "ours, in process"):
        yield median_figure(_SUBJECT, f"{who}: puts", samples[who, "put"], "/s")


def _against(who: str, samples: Samples) -> Iterator[Figure]:
    """How many times as fast as another ours is."""
    for act, is_rate in (("recall", False), ("kept recall", False), ("put", True)):
        theirs, ours = (statistics.median(samples[one, act]) for one in (who, "ours"))
        is_judged = (act, who) in (("kept recall", "hand-made, here"), ("put", _DISKCACHE))
        yield Figure(
            subject=_SUBJECT,
            what=f"{act}: ours is so many times as fast as {who}",
            measured=ours / theirs if is_rate else theirs / ours,
            unit="",
            sample_count=len(samples[who, act]),
            target=at_least(1) if is_judged else None,
        )


def _samples(sizes: _Sizes, folder: str) -> Samples:
    ours = SqliteStore(Path(folder, "ours.db"))
    fill(ours, sizes.fix_count)
    by_hand = HandmadeIndex(Path(folder, "by-hand.db"))
    by_hand.put(_for_the_index(number, sizes.fix_count) for number in range(sizes.fix_count))
    sides = {
        "ours": _our_side(ours, sizes.fix_count),
        "hand-made, here": _Side(
            lambda wanted: by_hand.recall(_key(wanted)),
            by_hand.evict,
            lambda number: by_hand.put([_for_the_index(number, sizes.fix_count)]),
        ),
    }
    if find_spec("diskcache"):
        sides[_DISKCACHE] = _side_of_diskcache(Path(folder, "diskcache"), sizes.fix_count)
    bare = BareFile(Path(folder, "bare.db"), sizes.fix_count)
    safest = SqliteStore(Path(folder, "safest.db"), durable=True)
    only_puts = {
        "ours, safe against power loss": (_our_side(safest, sizes.fix_count), sizes.safest_puts_in_a_round),
        "ours, in process": (_our_side(InProcessStore(), sizes.fix_count), sizes.puts_in_a_round),
    }
    samples: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    chance = random.Random(0)
    rows = {fix_count: rows_with(fix_count, sizes.fix_count) for fix_count in (1, 1000)}
    for fewer in rows.values():
        chance.shuffle(fewer)
    for round in range(sizes.round_count):
        first_new = sizes.fix_count * 2 + round * sizes.puts_in_a_round
        wanted = [
            request(number_that_stays(chance, sizes.fix_count)) for _ in range(sizes.recalls_in_a_round)
        ]
        single = [rows[1].pop() for _ in range(sizes.evicted_in_a_round)]
        shared = [rows[1000].pop()] if rows[1000] else []
        for who, side in sides.items():
            for act in ("recall", "kept recall"):
                for one in wanted:
                    samples[who, act].append(_took_s(side.recall, one))
            for row in single:
                samples[who, "evict 1"].append(_took_s(side.evict, row_tag_of(row)))
            for row in shared:
                samples[who, "evict 1000"].append(_took_s(side.evict, row_tag_of(row)))
            samples[who, "put"].append(_puts_per_s(side, first_new, sizes.puts_in_a_round))
        samples[_FLOOR, "put"].append(
            _bare_puts_per_s(bare, range(first_new, first_new + sizes.puts_in_a_round))
        )
        for who, (side, put_count) in only_puts.items():
            samples[who, "put"].append(_puts_per_s(side, first_new, put_count))
    return dict(samples)


def _bare_puts_per_s(bare: BareFile, new: range) -> float:
    bared = [bare.bared(number) for number in new]
    started_at = time.perf_counter()
    for one in bared:
        bare.put(one)
    return len(bared) / (time.perf_counter() - started_at)


def _our_side(store: Store, size: int) -> _Side:
    memory = Memory(store, capacity=None)

    def evict(tag: str) -> int:
        known = store.known(ORIGIN)
        written = store.write(ORIGIN, known.revision, Write(known.knowledge, drop=[tag]))
        return len(written.dropped) if written else 0

    def put(number: int) -> object:
        entry = fix(number, size)
        known = store.known(ORIGIN)
        return store.write(ORIGIN, known.revision, Write(known.knowledge, put=[filed(entry)]))

    return _Side(lambda wanted: memory.recall(ORIGIN, OPERATION, wanted), evict, put)


def _side_of_diskcache(folder: Path, size: int) -> _Side:
    from diskcache import Cache

    cache = Cache(str(folder), tag_index=True, eviction_policy="none", size_limit=2**40)

    def put(number: int) -> object:
        key, fix, tags = _for_the_index(number, size)
        return cache.set(key, fix, tag=tags[-1])

    with cache.transact():
        for number in range(size):
            put(number)
    return _Side(lambda wanted: cache.get(_key(wanted)), cache.evict, put)


def _key(wanted: dict[str, Any]) -> str:
    return f"{ORIGIN} {OPERATION} {wanted['customer']} {wanted['plan']}"


def _for_the_index(number: int, size: int) -> tuple[str, bytes, list[str]]:
    entry = fix(number, size)
    tags = [
        *(table_tag(table) for table in entry.grounds.tables),
        *(row_tag(table, key) for table, rows in entry.grounds.rests_on.items() for key in rows or ()),
    ]
    return _key(entry.condition.when), msgspec.json.encode(entry), tags


def _took_s(function: Callable[[Any], object], argument: Any) -> float:
    started_at = time.perf_counter()
    result = function(argument)
    took_s = time.perf_counter() - started_at
    if not result:
        raise RuntimeError(f"{argument} was not there")
    return took_s


def _puts_per_s(side: _Side, first_number: int, put_count: int) -> float:
    started_at = time.perf_counter()
    for number in range(first_number, first_number + put_count):
        side.put(number)
    return put_count / (time.perf_counter() - started_at)
