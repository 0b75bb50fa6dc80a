"""Our memory side by side with an HTTP cache, a tagged cache and an agent framework's store: the same work, in turns, in one run."""

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.contenders import Contender, contenders
from benchmarks.figures import Figure, at_least, median_figure, quantity
from benchmarks.fixes import number_that_stays, numbers_resting_on, request, rows_with
from benchmarks.processes import in_fresh_process

__all__ = ["REMARKS", "measure"]

_SUBJECT = "rivals"
_EVICTED_COUNT = 10

REMARKS = {
    _SUBJECT: (
        "ours: `memory.recall`; for a put and an eviction `memory.observe`, which also reads the response and the versions of fifty tables"
        " in it. Only ours finds out by itself that something went stale, and finds a fix for a request that differs in other fields.",
        "requests-cache (`SQLiteCache`, WAL): `create_key` and `get_response`, `save_response`; it can delete by key or clear everything, so"
        " for a row all responses are read (`filter`) and those that name it deleted. It holds a tenth of what the others hold, because to fill it"
        " takes a millisecond a response.",
        "cashews (`mem://`): `get`, `set` with tags, `delete_tags`. It evicts by row as precisely as ours and with less work, for it gives"
        " nothing back of what it drops; tags need its in-process or Redis backend, and a tag keeps naming keys that were replaced.",
        "langgraph (`InMemoryStore`, and `SqliteStore` with WAL): `get`, `put`; for a row `search` with a filter over the namespace, then"
        " `delete` of each. A filter compares one field with one value, so a fix that rests on two rows cannot be found by both.",
        "Where ours is behind: cashews and langgraph recall by one look at a key that is the whole request, while ours works out the place"
        " from the fields that matter, checks that the fix holds and notes its use; cashews evicts without reading a response or telling what"
        " went; langgraph puts into one table and keeps no way from a row to its fixes, which its eviction pays for.",
    )
}


class _Sizes(NamedTuple):
    """How many fixes there are, and how often each thing is done."""

    fix_count: int = 100_000
    round_count: int = 20
    recalls_in_a_round: int = 50
    puts_in_a_round: int = 25


_TINY = _Sizes(2_000, 2, recalls_in_a_round=5, puts_in_a_round=5)


class _Sampled(NamedTuple):
    """What one contender has taken, in seconds."""

    name: str
    is_durable: bool
    fix_count: int
    recall_s: list[float]
    put_s: list[float]
    evict_s: list[float]


def measure(is_quick: bool) -> Iterator[Figure]:
    """All contenders that are installed; a quick run does with ours, so that the suite needs none of the others."""
    sizes = _TINY if is_quick else _Sizes()
    with tempfile.TemporaryDirectory() as folder:
        sampled = in_fresh_process(_samples, sizes, folder, only_ours=is_quick)
    for one in sampled:
        size = quantity(one.fix_count)
        yield median_figure(
            _SUBJECT, f"{one.name}: recall of one of {size}", _scaled(one.recall_s, 1e6), "µs"
        )
        yield median_figure(_SUBJECT, f"{one.name}: put", _scaled(one.put_s, 1e6), "µs")
        what = f"{one.name}: eviction of the ten of {size} that rest on one row"
        yield median_figure(_SUBJECT, what, _scaled(one.evict_s, 1e3), "ms")
    for one in sampled:
        ours = next(other for other in sampled if other.is_durable == one.is_durable)
        if ours is not one:
            yield from _against(one, ours)


def _against(rival: _Sampled, ours: _Sampled) -> Iterator[Figure]:
    """How many times as fast as a rival of the same kind ours is."""
    for act, theirs_s, ours_s, is_judged in (
        ("recall", rival.recall_s, ours.recall_s, True),
        ("eviction by row", rival.evict_s, ours.evict_s, True),
        ("put", rival.put_s, ours.put_s, False),
    ):
        yield Figure(
            subject=_SUBJECT,
            what=f"{act}: {ours.name}, is so many times as fast as {rival.name}",
            measured=statistics.median(theirs_s) / statistics.median(ours_s),
            unit="",
            sample_count=len(theirs_s),
            target=at_least(1) if is_judged else None,
        )


def _scaled(took_s: list[float], factor: float) -> list[float]:
    return [took * factor for took in took_s]


def _samples(sizes: _Sizes, folder: str, *, only_ours: bool) -> list[_Sampled]:
    return asyncio.run(_sampled_in_turns(sizes, Path(folder), only_ours=only_ours))


async def _sampled_in_turns(sizes: _Sizes, folder: Path, *, only_ours: bool) -> list[_Sampled]:
    visits: list[tuple[Contender, _Sampled]] = []
    for one in contenders(folder, only_ours=only_ours):
        size = min(sizes.fix_count, one.most_fixes)
        await one.fill(size)
        visits.append((one, _Sampled(one.name, one.is_durable, size, [], [], [])))
    chance = random.Random(0)
    for round in range(sizes.round_count):
        for contender, sampled in visits:
            await _visit(contender, sampled, round, sizes, chance)
    return [sampled for _, sampled in visits]


async def _visit(
    contender: Contender, sampled: _Sampled, round: int, sizes: _Sizes, chance: random.Random
) -> None:
    """One round with one contender."""
    size = sampled.fix_count
    wanted = [request(number_that_stays(chance, size)) for _ in range(sizes.recalls_in_a_round)]
    for one in wanted:
        sampled.recall_s.append(await _took_s(contender.recall, one))
    first_new = size * 2 + round * sizes.puts_in_a_round
    for number in range(first_new, first_new + sizes.puts_in_a_round):
        sampled.put_s.append(await _took_s(contender.put, contender.lesson(number, size)))
    if round < contender.evictions_wanted:
        row = rows_with(_EVICTED_COUNT, size)[round]
        sampled.evict_s.append(await _took_s(contender.evict, contender.news(row)))
        await _check_eviction(contender, row, wanted[0], size)


async def _took_s(function: Callable[[Any], Awaitable[object]], argument: Any) -> float:
    started_at = time.perf_counter()
    await function(argument)
    return time.perf_counter() - started_at


async def _check_eviction(contender: Contender, row: str, wanted: dict[str, Any], size: int) -> None:
    """Make sure that what rests on the row is gone, and what does not is still there."""
    gone = [await contender.recall(request(number)) for number in numbers_resting_on(row, size)]
    kept = await contender.recall(wanted)
    if len(gone) != _EVICTED_COUNT or any(gone) or not kept:
        raise RuntimeError(f"{contender.name} has not evicted exactly what rests on {row}")
