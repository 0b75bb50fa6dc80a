"""What a reload costs: of a whole table in which ten rows have changed, and of ten rows alone.

Every measurement runs in a fresh process, so that what others have allocated does not count.
"""

import random
import resource
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.discounts import CHANGED_COUNT, TABLE, Rows, changed, check_report, discounts, spread_keys
from benchmarks.figures import Figure, at_most, median_figure, quantity
from benchmarks.processes import in_fresh_process
from shelflife.server import Registry, SqliteLog

__all__ = ["measure"]

_SUBJECT = "reload"
_MEGABYTE = 1_000_000
_MOST_SECONDS_FOR_A_MILLION = 2.0
_MOST_TIMES_SLOWER = 3.0


class _Sizes(NamedTuple):
    """How many rows the tables have, and how often each thing is done."""

    small: int = 10_000
    middling: int = 100_000
    large: int = 1_000_000
    whole_count: int = 9
    change_count: int = 400
    stored_change_count: int = 100


_TINY = _Sizes(1_000, 2_000, 5_000, whole_count=3, change_count=20, stored_change_count=5)


class _Whole(NamedTuple):
    """What reloads of one whole table took."""

    declare_s: float
    """To make the registry in the first place."""
    reload_s: list[float]
    resident_bytes: int
    """The process at its peak, holding the table and its whole new content."""


class _Changes(NamedTuple):
    """What the same change took on a small and on a large table, in turns."""

    small_s: list[float]
    large_s: list[float]


def measure(is_quick: bool) -> Iterator[Figure]:
    """Whole tables of three sizes, then changes of ten rows, then the same with a log in a file and over HTTP."""
    sizes = _TINY if is_quick else _Sizes()
    for row_count in (sizes.small, sizes.middling, sizes.large):
        whole = in_fresh_process(_whole_reloads, row_count, sizes.whole_count)
        yield from _whole_figures(row_count, whole, is_largest=row_count == sizes.large)
        yield _megabytes(
            f"whole table of {quantity(row_count)}: memory that the reload adds at its peak",
            in_fresh_process(_bytes_added_at_peak, row_count),
        )
    changes = in_fresh_process(_changes_side_by_side, sizes.small, sizes.large, sizes.change_count)
    yield from _change_figures(sizes, changes, is_judged=True)
    yield from _with_a_log_in_a_file(sizes)
    yield from _over_http(sizes)


def _with_a_log_in_a_file(sizes: _Sizes) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        whole = in_fresh_process(
            _whole_reloads, sizes.middling, sizes.whole_count, str(Path(folder, "whole.db"))
        )
        yield _milliseconds(
            f"whole table of {quantity(sizes.middling)}, with a log in a file", whole.reload_s
        )
        paths = (str(Path(folder, "small.db")), str(Path(folder, "large.db")))
        changes = in_fresh_process(
            _changes_side_by_side, sizes.small, sizes.large, sizes.stored_change_count, paths
        )
        yield from _change_figures(sizes, changes, suffix=", with a log in a file")


def _over_http(sizes: _Sizes) -> Iterator[Figure]:
    from benchmarks.operating import reloads_over_http  # FastAPI, which the fresh processes do without

    answered = reloads_over_http(sizes.middling, sizes.whole_count)
    size = f"{answered.whole_bytes / _MEGABYTE:.1f} MB of JSON"
    yield _milliseconds(f"whole table of {quantity(sizes.middling)} over HTTP, {size}", answered.whole_s)
    yield _milliseconds(
        f"change of ten rows in a table of {quantity(sizes.middling)} over HTTP", answered.change_s
    )


def _registry(rows: Rows, path: str | None = None) -> Registry:
    return Registry({TABLE: rows}, log=None if path is None else SqliteLog(path))


def _whole_reloads(row_count: int, repeat_count: int, path: str | None = None) -> _Whole:
    declared = discounts(row_count)
    started_at = time.perf_counter()
    registry = _registry(declared, path)
    declare_s = time.perf_counter() - started_at
    del declared
    incoming = discounts(row_count)
    keys = spread_keys(incoming)
    reload_s: list[float] = []
    for repeat in range(repeat_count):
        incoming |= changed(incoming, keys, 1000 + repeat)
        started_at = time.perf_counter()
        report = registry.reload_table(TABLE, incoming)
        reload_s.append(time.perf_counter() - started_at)
        check_report(report)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return _Whole(declare_s, reload_s, peak if sys.platform == "darwin" else peak * 1024)


def _bytes_added_at_peak(row_count: int) -> int:
    """What one reload has allocated and not yet freed, at most, by a trace that starts right before it.

    The table has been changed before, as a table in use has.
    """
    registry = _registry(discounts(row_count))
    incoming = discounts(row_count)
    keys = spread_keys(incoming)
    registry.reload_table(TABLE, set=changed(incoming, keys, 1000))
    incoming |= changed(incoming, keys, 1001)
    tracemalloc.start()
    report = registry.reload_table(TABLE, incoming)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    check_report(report)
    return peak


def _changes_side_by_side(
    small: int, large: int, change_count: int, paths: tuple[str | None, str | None] = (None, None)
) -> _Changes:
    """Ten rows at random, first in one table, then in the other, and so on."""
    chance = random.Random(0)
    changes = _Changes([], [])
    contents = [discounts(small), discounts(large)]
    registries = [_registry(rows, path) for rows, path in zip(contents, paths, strict=True)]
    keys = [list(rows) for rows in contents]
    for number in range(change_count):
        for side, took_s in enumerate(changes):
            rows = changed(contents[side], chance.sample(keys[side], CHANGED_COUNT), 1000 + number)
            started_at = time.perf_counter()
            report = registries[side].reload_table(TABLE, set=rows)
            took_s.append(time.perf_counter() - started_at)
            check_report(report)
    return changes


def _whole_figures(row_count: int, whole: _Whole, *, is_largest: bool) -> Iterator[Figure]:
    name = f"whole table of {quantity(row_count)}"
    target = at_most(_MOST_SECONDS_FOR_A_MILLION) if is_largest else None
    yield median_figure(_SUBJECT, f"{name}, ten rows changed", whole.reload_s, "s", target)
    yield Figure(
        subject=_SUBJECT,
        what=f"{name}: the registry made in the first place",
        measured=whole.declare_s,
        unit="s",
    )
    if is_largest:
        yield _megabytes(f"{name}: the whole process at its peak, both contents in it", whole.resident_bytes)


def _change_figures(
    sizes: _Sizes, changes: _Changes, *, suffix: str = "", is_judged: bool = False
) -> Iterator[Figure]:
    small, large = quantity(sizes.small), quantity(sizes.large)
    yield _milliseconds(f"change of ten rows in a table of {small}{suffix}", changes.small_s)
    yield _milliseconds(f"change of ten rows in a table of {large}{suffix}", changes.large_s)
    yield Figure(
        subject=_SUBJECT,
        what=f"the same change, {large} rows against {small}{suffix}: ratio of medians",
        measured=statistics.median(changes.large_s) / statistics.median(changes.small_s),
        unit="",
        sample_count=len(changes.small_s),
        target=at_most(_MOST_TIMES_SLOWER) if is_judged else None,
    )


def _milliseconds(what: str, samples_s: list[float]) -> Figure:
    return median_figure(_SUBJECT, what, [sample * 1000 for sample in samples_s], "ms")


def _megabytes(what: str, byte_count: int) -> Figure:
    return Figure(subject=_SUBJECT, what=what, measured=byte_count / _MEGABYTE, unit="MB")
