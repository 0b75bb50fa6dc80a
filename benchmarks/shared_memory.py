"""A memory that agents on many machines share: on PostgreSQL and on Valkey, beside one of this machine and what people would use there."""

import asyncio
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.engines import Engines, engines
from benchmarks.figures import Figure, Target, at_least, at_most
from benchmarks.fleet_contenders import (
    BY_HAND,
    CASHEWS,
    IN_PROCESS,
    LANGGRAPH,
    fleet_contenders,
    ours_on,
)
from benchmarks.processes import in_fresh_process
from benchmarks.turns import Sampled, Sizes, sampled_in_turns

__all__ = ["REMARKS", "measure"]

_SUBJECT = "shared memory"
_TINY = Sizes(1_000, 2, recalls_in_a_round=5, puts_in_a_round=5)
_MOST_TIMES_SLOWER_NEAR = 1.5
_MOST_TIMES_SLOWER_RECALL = 1.1
_ENGINES = ("PostgreSQL", "Valkey")
_RIVALS = {LANGGRAPH: "PostgreSQL", BY_HAND: "PostgreSQL", CASHEWS: "Valkey"}

REMARKS = {
    _SUBJECT: (
        "ours: as on the page of the memory. A recall asks the engine once, and sees one moment of it. Where it is near, what was recalled"
        " before is recalled again without asking, as long as the engine tells of all that others write.",
        "Dropping by row: the store is handed the row, as the others are, and gives back what it has dropped; it has to look first at what"
        " it writes upon. Eviction by row is all of `memory.observe`: the response is read, which tells what has moved from the position that the"
        " request named, as by default. On Valkey that is one command, and nothing is looked at before: what `observe` takes beyond its floor is"
        " spent in this process, on checking, deciding, counting and telling. Floor: the response is decoded, the same command, which was made"
        " before, goes over a bare socket, its answer is decoded, and it is said what has left.",
        "langgraph (`PostgresStore.from_conn_string`, which prepares every statement): `get`, `put`; for a row `search` with a filter over"
        " the namespace, then one batch of deletions. The store has no index that helps; with one added by hand it looks at no more"
        " than it must.",
        "cashews (`redis://`): `get`, `set` with tags, `delete_tags`. It takes several commands for a put and for an eviction, and whoever comes"
        " between two of them, or fails there, leaves keys without tags. Near is its `client_side`.",
    )
}


def measure(is_quick: bool) -> Iterator[Figure]:
    """All contenders that are installed; a quick run does with ours, so that the suite needs none of the others."""
    sizes = _TINY if is_quick else Sizes()
    with tempfile.TemporaryDirectory() as folder, engines() as started:
        sampled = in_fresh_process(_samples, sizes, folder, started, only_ours=is_quick)
    for one in sampled:
        yield from one.figures(_SUBJECT)
    by_name = {one.name: one for one in sampled}
    for engine in _ENGINES:
        near = by_name[ours_on(engine, near=True)]
        what = f"recall: {near.name}, takes so many times as long as {IN_PROCESS}"
        target = at_most(_MOST_TIMES_SLOWER_NEAR)
        yield _ratio(what, near.recall_s, by_name[IN_PROCESS].recall_s, target)
    for name, engine in _RIVALS.items():
        if name in by_name:
            yield from _against(by_name[name], by_name[ours_on(engine)])


def _against(rival: Sampled, ours: Sampled) -> Iterator[Figure]:
    what = f"recall: {ours.name}, takes so many times as long as {rival.name}"
    yield _ratio(what, ours.recall_s, rival.recall_s, at_most(_MOST_TIMES_SLOWER_RECALL))
    as_fast = f"{ours.name}, is so many times as fast as {rival.name}"
    yield _ratio(f"dropping by row: {as_fast}", rival.evict_s, ours.drop_s, at_least(1))
    yield _ratio(f"eviction by row: {as_fast}", rival.evict_s, ours.evict_s, at_least(1))
    yield _ratio(f"put: {as_fast}", rival.put_s, ours.put_s)


def _ratio(what: str, took_s: list[float], of_s: list[float], target: Target | None = None) -> Figure:
    return Figure(
        subject=_SUBJECT,
        what=what,
        measured=statistics.median(took_s) / statistics.median(of_s),
        unit="",
        sample_count=len(took_s),
        target=target,
    )


def _samples(sizes: Sizes, folder: str, engines: Engines, *, only_ours: bool) -> list[Sampled]:
    with ExitStack() as stack:
        found = fleet_contenders(Path(folder), engines, stack, only_ours=only_ours)
        return asyncio.run(sampled_in_turns(found, sizes))
