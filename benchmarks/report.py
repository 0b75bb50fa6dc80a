"""The results of a run: as a table on the way, as JSON for programs, as Markdown for people."""

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.figures import Figure, Target, shown

__all__ = ["Run", "printed_line"]

_COLUMNS = ("what", "measured", "quartiles", "samples", "target", "met")
_MARK_COLUMNS = ("measured elsewhere", "ours is")
_WIDTH = 96


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one run has measured, and on what."""

    name: str
    """What was run; the files are called after it."""

    measured_on: str
    """The day, as an ISO date."""

    is_smoke_run: bool
    """Sizes and counts were tiny, so no figure says anything and no target is judged."""

    took_s: float
    figures: tuple[Figure, ...]
    about: str
    """How it was measured, in a sentence or two."""

    packages: tuple[str, ...]
    """Those whose versions matter here."""

    made_by: str = "make bench"
    """The command that writes the page."""

    remarks: dict[str, tuple[str, ...]] = {}
    """What must be said beside the figures, by subject."""

    def write_to(self, folder: Path) -> tuple[Path, Path]:
        """Write the two files."""
        folder.mkdir(parents=True, exist_ok=True)
        json_path, markdown_path = folder / f"{self.name}.json", folder / f"{self.name}.md"
        json_path.write_bytes(
            msgspec.json.format(msgspec.json.encode(self._for_programs()), indent=2) + b"\n"
        )
        markdown_path.write_text(self._for_people(), encoding="utf-8")
        return json_path, markdown_path

    def _for_programs(self) -> dict[str, Any]:
        members: dict[str, Any] = msgspec.to_builtins(self)
        verdicts = [None if self.is_smoke_run else figure.is_met for figure in self.figures]
        members["figures"] = [
            {**figure, "is_met": verdict}
            for figure, verdict in zip(members["figures"], verdicts, strict=True)
        ]
        return {**members, "machine": self._machine()}

    def _for_people(self) -> str:
        machine = self._machine()
        packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
        lines = [
            f"# Benchmarks: {self.name}",
            "",
            f"Measured on {self.measured_on} with Python {machine['python']} on {machine['cpu_count']} CPUs"
            f" ({machine['system']}), in {self.took_s:.0f} s; {packages}.",
            "",
            f"Each figure is the median of its samples, with the quartiles beside it. {self.about} `{self.made_by}` writes this page anew.",
        ]
        if self.is_smoke_run:
            lines += ["", "**This was a smoke run: sizes are tiny, and no figure means anything.**"]
        lines += self._in_short()
        for subject in dict.fromkeys(figure.subject for figure in self.figures):
            lines += ["", f"## {subject.capitalize()}", ""]
            figures = [figure for figure in self.figures if figure.subject == subject]
            has_marks = any(figure.mark for figure in figures)
            head = [*_COLUMNS, *(_MARK_COLUMNS if has_marks else ())]
            lines += [_row(head), _row(["---"] * len(head))]
            lines += [_row(self._cells(figure)[: len(head)]) for figure in figures]
            remarks = self.remarks.get(subject, ())
            lines += ["", *(f"- {remark}" for remark in remarks)] if remarks else []
        return "\n".join(lines) + "\n"

    def _in_short(self) -> list[str]:
        """What a reader wants to know before the tables: how many targets are met, and which are not."""
        judged = [figure for figure in self.figures if figure.target and not self.is_smoke_run]
        missed = [figure for figure in judged if not figure.is_met]
        if not judged:
            return []
        so_many = f"all {len(judged)}" if not missed else f"{len(judged) - len(missed)} of {len(judged)}"
        lines = ["", f"**In short**: {so_many} targets are met{'. These are not:' if missed else '.'}"]
        lines += [""] if missed else []
        lines += [
            f"- {figure.what}: {shown(figure.measured, figure.unit)}, and it should be"
            f" {_bound(figure.target, figure.unit)}."
            for figure in missed
        ]
        lines += [
            "",
            "Rows with a target are held to it; the others are the figures behind them.",
        ]
        return lines

    def _cells(self, figure: Figure) -> list[str]:
        is_judged = not self.is_smoke_run
        return [
            figure.what,
            shown(figure.measured, figure.unit),
            _quartiles(figure),
            f"{figure.sample_count}",
            _bound(figure.target, figure.unit),
            _verdict(figure, is_judged=is_judged),
            shown(figure.mark.value, figure.unit) if figure.mark else "",
            _standing(figure, is_judged=is_judged),
        ]

    def _machine(self) -> dict[str, Any]:
        return {
            "python": platform.python_version(),
            "cpu_count": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
            "packages": {name: number for name in self.packages if (number := _version(name))},
        }


def printed_line(figure: Figure, *, is_judged: bool) -> str:
    """A figure as one line of the table that is shown while the run goes on."""
    target = ""
    if figure.target:
        target += f"  {_bound(figure.target, figure.unit)}: {_verdict(figure, is_judged=is_judged)}"
    if figure.mark:
        target += f"  mark {shown(figure.mark.value, figure.unit)}: {_standing(figure, is_judged=is_judged)}"
    quartiles = f"  ({_quartiles(figure)})" if figure.low is not None else ""
    return f"  {figure.what:{_WIDTH}} {shown(figure.measured, figure.unit):>12}{quartiles}{target}"


def _quartiles(figure: Figure) -> str:
    if figure.low is None or figure.high is None:
        return ""
    return (
        f"{shown(figure.low, '')} to {shown(figure.high, '')}"
        if not figure.unit
        else (
            f"{shown(figure.low, figure.unit).removesuffix(figure.unit).strip()} to {shown(figure.high, figure.unit)}"
        )
    )


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _bound(target: Target | None, unit: str) -> str:
    return f"{target.bound} {target.value:g} {unit}".strip() if target else ""


def _verdict(figure: Figure, *, is_judged: bool) -> str:
    if figure.target is None:
        return ""
    if not is_judged:
        return "not judged"
    return "met" if figure.is_met else "missed"


def _standing(figure: Figure, *, is_judged: bool) -> str:
    """How a figure stands to the mark that others have set."""
    if figure.mark is None:
        return ""
    if not is_judged:
        return "not judged"
    return "ahead" if figure.mark.is_met_by(figure.measured) else "behind"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
