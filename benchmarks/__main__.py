"""`python -m benchmarks`: run every subject, or one, and write down what was measured."""

import argparse
import importlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.figures import Figure, Subject
from benchmarks.pages import PAGES, Page, page_of
from benchmarks.processes import start_by_forking
from benchmarks.report import Run, printed_line

__all__ = ["main"]

_NAMES = tuple(page.name for page in PAGES)
_SUBJECTS = tuple(subject for page in PAGES for subject in page.subjects)
_RESULTS = Path(__file__).with_name("results")


def main(arguments: list[str] | None = None) -> None:
    """Measure, show and write."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure what the software costs. A missed target is told and is no failure of the run.",
    )
    parser.add_argument(
        "what",
        nargs="*",
        metavar="PAGE|SUBJECT",
        help=f"only these of {', '.join((*_NAMES, *_SUBJECTS))}; by default, all pages",
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run of some seconds; measures nothing")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where to write; by default benchmarks/results, and nowhere if --quick",
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.what) - {*_NAMES, *_SUBJECTS}:
        parser.error(f"there is no {unknown.pop()}")
    if options.quick:
        start_by_forking()
    folder = options.out or (None if options.quick else _RESULTS)
    wanted = options.what or _NAMES
    runs = [(page.name, page, page.subjects) for page in PAGES if page.name in wanted]
    runs += [(one, page_of(one), (one,)) for one in wanted if one in _SUBJECTS]
    for name, page, subjects in runs:
        run = _measured(name, page, subjects, is_smoke_run=options.quick)
        if folder is not None:
            for path in run.write_to(folder):
                print(f"Wrote {path}")


def _measured(name: str, page: Page, subjects: Sequence[str], *, is_smoke_run: bool) -> Run:
    started_at = time.monotonic()
    figures: list[Figure] = []
    remarks: dict[str, tuple[str, ...]] = {}
    for subject in subjects:
        print(subject, flush=True)
        # Imported only now, because every process that a benchmark spawns imports this module.
        module = importlib.import_module(f"benchmarks.{subject}")
        measure: Subject = module.measure
        for figure in measure(is_smoke_run):
            figures.append(figure)
            print(printed_line(figure, is_judged=not is_smoke_run), flush=True)
        remarks |= getattr(module, "REMARKS", {})
    return Run(
        name=name,
        measured_on=datetime.now(UTC).date().isoformat(),
        is_smoke_run=is_smoke_run,
        took_s=time.monotonic() - started_at,
        figures=tuple(figures),
        about=page.about,
        packages=page.packages,
        made_by=page.made_by,
        remarks=remarks,
    )


if __name__ == "__main__":
    main()
