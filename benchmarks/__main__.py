"""`python -m benchmarks`: run every subject, or one, and write down what was measured."""

import argparse
import importlib
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.figures import Figure, Subject
from benchmarks.report import Run, printed_line

__all__ = ["main"]

SUBJECTS = ("throughput", "reload", "walk")
"""Each is the module that measures it. It is imported when it runs, because every process that a benchmark spawns imports this module."""
_ALL = "server"
_RESULTS = Path(__file__).with_name("results")


def main(arguments: list[str] | None = None) -> None:
    """Measure, show and write."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure what the software costs. A missed target is told and is no failure of the run.",
    )
    parser.add_argument("subject", nargs="?", choices=SUBJECTS, help="only this one; by default, all of them")
    parser.add_argument("--quick", action="store_true", help="a smoke run of some seconds; measures nothing")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where to write; by default benchmarks/results, and nowhere if --quick",
    )
    options = parser.parse_args(arguments)
    run = _measured(options.subject, is_smoke_run=options.quick)
    folder = options.out or (None if options.quick else _RESULTS)
    if folder is not None:
        for path in run.write_to(folder):
            print(f"Wrote {path}")


def _measured(subject: str | None, *, is_smoke_run: bool) -> Run:
    started_at = time.monotonic()
    figures: list[Figure] = []
    for name in [subject] if subject else SUBJECTS:
        print(name, flush=True)
        measure: Subject = importlib.import_module(f"benchmarks.{name}").measure
        for figure in measure(is_smoke_run):
            figures.append(figure)
            print(printed_line(figure, is_judged=not is_smoke_run), flush=True)
    return Run(
        name=subject or _ALL,
        measured_on=datetime.now(UTC).date().isoformat(),
        is_smoke_run=is_smoke_run,
        took_s=time.monotonic() - started_at,
        figures=tuple(figures),
    )


if __name__ == "__main__":
    main()
