"""Throughput of an app whose log can be shared against the same app with its log in its own process.

Two processes of the same code differ by a percent or two, so each ratio is divided by that of a copy against itself.
"""

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.engines import postgres
from benchmarks.figures import Figure, at_least, median_figure
from benchmarks.subscriptions import contract_app
from benchmarks.throughput import Comparison, Neighbours, Side, compared

__all__ = ["measure"]

_SUBJECT = "shared log throughput"
_LEAST = 0.98
_TABLE_COUNT = 6


def measure(is_quick: bool) -> Iterator[Figure]:
    """Alternate rounds with each log and without, and of a copy against itself."""
    alone = Side("alone", contract_app, _TABLE_COUNT)
    copy = Comparison("a copy against itself", alone._replace(name="alone, again"), alone)
    with postgres() as address, tempfile.TemporaryDirectory() as folder:
        in_file = Side("file", contract_app, _TABLE_COUNT, log=str(Path(folder, "log.db")))
        in_postgres = in_file._replace(name="postgres", log=f"{address}&schema=shop")
        comparisons = (
            Comparison("log in a file", in_file, alone),
            Comparison("log in PostgreSQL", in_postgres, alone),
            copy,
        )
        neighbours = compared(comparisons, is_quick=is_quick)
    noise = _rates(neighbours[copy.what])
    yield median_figure(_SUBJECT, f"{copy.what}: ratio of throughput", noise)
    for comparison in comparisons[:-1]:
        rates = _rates(neighbours[comparison.what])
        yield median_figure(_SUBJECT, f"{comparison.what}: ratio of throughput to one in the process", rates)
        yield Figure(
            subject=_SUBJECT,
            what=f"{comparison.what}: the same, divided by that of a copy against itself",
            measured=statistics.median(rates) / statistics.median(noise),
            unit="",
            sample_count=len(rates),
            target=at_least(_LEAST),
        )


def _rates(neighbours: list[Neighbours]) -> list[float]:
    return [pair.with_contract.responses_per_s / pair.without.responses_per_s for pair in neighbours]
