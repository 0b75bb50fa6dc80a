"""From the answer to a reload until the last of four workers goes by it, with the log in a file and in PostgreSQL."""

import os
from collections.abc import Iterator

from benchmarks.engines import postgres
from benchmarks.figures import Figure, at_most, median_figure, worst_of_a_hundred_figure
from benchmarks.workers import LONGEST_MS, WORKER_COUNT, Took, reloads
from shelflife.lab.spec import ADDRESSES

__all__ = ["REMARKS", "measure"]

_SUBJECT = "shared log"
_LOGS = {"file": "SQLite log", "postgres": "PostgreSQL log"}

REMARKS = {
    _SUBJECT: (
        "PostgreSQL tells all workers of a write as soon as it is committed. Of a file, each looks every 5 ms.",
        "What a worker goes by is read from its answer to an ordinary request, as agents see it. Nobody else asks them anything meanwhile.",
    )
}


def measure(is_quick: bool) -> Iterator[Figure]:
    """Some reloads with each log in turns, each timed until the last worker has it."""
    turn_count, reload_count = (1, 3) if is_quick else (5, 40)
    took = {kind: Took([], [], []) for kind in _LOGS}
    with postgres() as address:
        os.environ[ADDRESSES["postgres"]] = address
        for _ in range(turn_count):
            for kind, all_took in took.items():
                for whole, part in zip(
                    all_took, reloads(reload_count, is_busy=False, log_kind=kind), strict=True
                ):
                    whole += part
    for kind, log in _LOGS.items():
        what = f"{log}: from the answer to a reload to the last of {WORKER_COUNT} workers"
        yield median_figure(_SUBJECT, what, took[kind].last_ms, "ms")
        yield worst_of_a_hundred_figure(_SUBJECT, what, took[kind].last_ms, "ms", target=at_most(LONGEST_MS))
        yield median_figure(_SUBJECT, f"{log}: the reload itself over HTTP", took[kind].reload_ms, "ms")
        yield median_figure(_SUBJECT, f"{log}: an ordinary request", took[kind].ask_ms, "ms")
