"""The same work done by several contenders in turns, so that what else the machine does meets all of them."""

import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple

from benchmarks.contenders import Contender, Ours
from benchmarks.figures import Figure, median_figure, quantity
from benchmarks.fixes import number_that_stays, numbers_resting_on, request, row_tag_of, rows_with

__all__ = ["Sampled", "Sizes", "sampled_in_turns", "scaled"]

_EVICTED_COUNT = 10


class Sizes(NamedTuple):
    """How many fixes there are, and how often each thing is done."""

    fix_count: int = 100_000
    round_count: int = 20
    recalls_in_a_round: int = 50
    puts_in_a_round: int = 25


class Sampled(NamedTuple):
    """What one contender has taken, in seconds."""

    name: str
    is_durable: bool
    fix_count: int
    recall_s: list[float]
    put_s: list[float]
    evict_s: list[float]
    drop_s: list[float]
    """Of ours: what a store takes that is handed the row."""

    floor_s: list[float]
    """Of ours, where it can be had: what an eviction takes with all of ours taken out."""

    def figures(self, subject: str) -> Iterator[Figure]:
        """Each act for itself."""
        size = quantity(self.fix_count)
        yield median_figure(
            subject, f"{self.name}: recall of one of {size}", scaled(self.recall_s, 1e6), "µs"
        )
        yield median_figure(subject, f"{self.name}: put", scaled(self.put_s, 1e6), "µs")
        what = f"{self.name}: eviction of the ten of {size} that rest on one row"
        yield median_figure(subject, what, scaled(self.evict_s, 1e3), "ms")
        if self.drop_s:
            what = f"{self.name}: dropping these ten by the row"
            yield median_figure(subject, what, scaled(self.drop_s, 1e3), "ms")
        if self.floor_s:
            what = f"{self.name}: floor of such an eviction"
            yield median_figure(subject, what, scaled(self.floor_s, 1e3), "ms")


def scaled(took_s: list[float], factor: float) -> list[float]:
    """Seconds in another unit."""
    return [took * factor for took in took_s]


async def sampled_in_turns(contenders: Sequence[Contender], sizes: Sizes) -> list[Sampled]:
    """Fill each, then let them do each round one after the other."""
    visits: list[tuple[Contender, Sampled]] = []
    for one in contenders:
        size = min(sizes.fix_count, one.most_fixes)
        await one.fill(size)
        visits.append((one, Sampled(one.name, one.is_durable, size, [], [], [], [], [])))
    chance = random.Random(0)
    for round in range(sizes.round_count):
        for contender, sampled in visits:
            await _visit(contender, sampled, round, sizes, chance)
    return [sampled for _, sampled in visits]


async def _visit(
    contender: Contender, sampled: Sampled, round: int, sizes: Sizes, chance: random.Random
) -> None:
    """One round with one contender."""
    size = sampled.fix_count
    wanted = [request(number_that_stays(chance, size)) for _ in range(sizes.recalls_in_a_round)]
    if contender.is_near:
        for one in wanted:
            await contender.recall(one)
    for one in wanted:
        sampled.recall_s.append(await _took_s(contender.recall, one))
    first_new = size * 2 + round * sizes.puts_in_a_round
    for number in range(first_new, first_new + sizes.puts_in_a_round):
        sampled.put_s.append(await _took_s(contender.put, contender.lesson(number, size)))
    if round < contender.evictions_wanted:
        rows = rows_with(_EVICTED_COUNT, size)
        sampled.evict_s.append(await _took_s(contender.evict, contender.news(rows[round])))
        await _check_eviction(contender, rows[round], wanted[0], size)
        if isinstance(contender, Ours):
            row = rows[-1 - round]
            sampled.drop_s.append(await _took_s(contender.drop, row_tag_of(row)))
            await _check_eviction(contender, row, wanted[0], size)
            row = rows[len(rows) // 2 + round]
            bare = contender.bare_eviction(row)
            if bare is not None:
                sampled.floor_s.append(await _took_s(contender.carry_out, bare))
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
