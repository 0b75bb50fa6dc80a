"""The figure of organic drift: how retries add up, release by release."""

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from shelflife.client import EXACT
from shelflife.lab.exhibits.cells import Kind
from shelflife.lab.exhibits.organic import NO_DRIFT, OrganicPool, organic_pools
from shelflife.lab.exhibits.pools import Runs
from shelflife.lab.scores import RunScore

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["GrowthPanel", "draw_growth", "growth_panels"]

_LAST_VALUE = "compliant-last"
_ROOM_FOR_A_NAME = 13
"""In percent points of a panel."""

_STYLES = {
    "A0": ("a0", "-"),
    "A1": ("a1", "--"),
    "A1, last": ("a1", ":"),
    "A2": ("a2", "-"),
    "A2D": ("a2d", "--"),
    EXACT.name: ("a2d", "-"),
    NO_DRIFT: ("faint", ":"),
}
"""By what a line is called, its ink and its stroke."""


class GrowthPanel(NamedTuple):
    """A stream, as one planner has played it; a planner that takes the last of two values adds its own A1."""

    name: str
    kind: Kind
    lines: dict[str, list[float]]
    """For each release, the retries up to the next in percent of all requests."""


def growth_panels(runs: Runs) -> list[GrowthPanel]:
    """All that can be drawn."""
    pools = list(organic_pools(runs))
    panels = []
    for stream in dict.fromkeys(one.stream for one in pools):
        here = [one for one in pools if one.stream == stream]
        added = {
            "A1, last": _line(one) for one in here if (one.subject.planner, one.arm) == (_LAST_VALUE, "A1")
        }
        for subject in dict.fromkeys(one.subject for one in here):
            lines = {one.arm: _line(one) for one in here if one.subject == subject and one.arm in _STYLES}
            if subject.planner == _LAST_VALUE or len(lines) < 2:
                continue
            if subject.kind is Kind.EXACT:
                lines |= added
            others = sum(one.stream == stream for one in panels)
            name = f"{stream}, {subject.name}" if others or subject.kind is not Kind.EXACT else stream
            panels.append(GrowthPanel(name, subject.kind, lines))
    return panels


def _line(of: OrganicPool) -> list[float]:
    runs = [_grown(run) for run in of.pool.runs]
    return [sum(values) / len(values) for values in zip(*runs, strict=True)]


def _grown(run: RunScore) -> list[float]:
    return [100 * total / run.episodes for total in accumulate(one.retries for one in run.by_event)]


def draw_growth(axes: "Axes", panel: GrowthPanel, inks: dict[str, str]) -> None:
    """Draw the lines of a panel, with their names at their ends, apart even where the lines are not."""
    releases = max(len(line) for line in panel.lines.values())
    for name, line in panel.lines.items():
        ink, stroke = _STYLES[name]
        # what has no releases has its end alone
        points = list(enumerate(line, start=1)) if len(line) > 1 else [(1, line[0]), (releases, line[0])]
        axes.plot(*zip(*points, strict=True), stroke, lw=1.5, color=inks[ink], clip_on=False)
    _name_ends(axes, panel.lines, releases)
    axes.set_xticks((1, releases))
    axes.set_xlabel("releases", color=inks["faint"], size=7.5, labelpad=-4)
    axes.set_xlim(1, releases * 1.42)


def _name_ends(axes: "Axes", lines: dict[str, Sequence[float]] | dict[str, list[float]], at: int) -> None:
    lowest = 0.0
    for name in sorted(lines, key=lambda name: lines[name][-1]):
        place = max(lines[name][-1], lowest)
        lowest = place + _ROOM_FOR_A_NAME
        axes.annotate(name, (at, place), (4, 0), textcoords="offset points", va="center", size=7)
