"""The figures of organic drift: how retries and stale values add up, release by release."""

from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from shelflife.client import EXACT
from shelflife.lab.exhibits.cells import Kind
from shelflife.lab.exhibits.organic import LAST_VALUE, NO_DRIFT, OrganicPool, organic_pools
from shelflife.lab.exhibits.pools import Runs
from shelflife.lab.growth import SinceDrift
from shelflife.lab.scores import RunScore

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["GrowthPanel", "draw_growth", "growth_panels", "name_beside"]

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
    """For each release, what there was of it up to the next, in percent of all episodes."""


def growth_panels(runs: Runs, of: Callable[[SinceDrift], int]) -> list[GrowthPanel]:
    """All that can be drawn of something that adds up."""
    pools = list(organic_pools(runs))
    panels = []
    for stream in dict.fromkeys(one.stream for one in pools):
        here = [one for one in pools if one.stream == stream]
        last = next((one for one in here if (one.subject.planner, one.arm) == (LAST_VALUE, "A1")), None)
        added = {} if last is None else {"A1, last": _line(last, of)}
        for subject in dict.fromkeys(one.subject for one in here):
            lines = {one.arm: _line(one, of) for one in here if one.subject == subject and one.arm in _STYLES}
            if subject.planner == LAST_VALUE or len(lines) < 2:
                continue
            if subject.kind is Kind.EXACT:
                lines |= added
            name = stream if subject.kind is Kind.EXACT else f"{stream}, {subject.name}"
            panels.append(GrowthPanel(name, subject.kind, lines))
    return panels


def _line(organic: OrganicPool, of: Callable[[SinceDrift], int]) -> list[float]:
    runs = [_grown(run, of) for run in organic.pool.runs]
    return [sum(values) / len(values) for values in zip(*runs, strict=True)]


def _grown(run: RunScore, of: Callable[[SinceDrift], int]) -> list[float]:
    return [100 * total / run.episodes for total in accumulate(map(of, run.by_event))]


def name_beside(axes: "Axes") -> None:
    """Say to the right of a panel how its lines are called."""
    axes.legend(
        loc="center left",
        bbox_to_anchor=(1, 0.5),
        fontsize=7,
        frameon=False,
        handlelength=1.4,
        borderpad=0,
        labelspacing=0.25,
    )


def draw_growth(axes: "Axes", panel: GrowthPanel, inks: dict[str, str]) -> None:
    """Draw the lines of a panel, the highest first, and beside them how each is called."""
    releases = max(len(line) for line in panel.lines.values())
    for name, line in sorted(panel.lines.items(), key=lambda one: -one[1][-1]):
        ink, stroke = _STYLES[name]
        # where nothing is released, only the end is known
        points = list(enumerate(line, start=1)) if len(line) > 1 else [(1, line[0]), (releases, line[0])]
        axes.plot(*zip(*points, strict=True), stroke, lw=1.5, color=inks[ink], clip_on=False, label=name)
    name_beside(axes)
    axes.set_xticks((1, releases))
    axes.set_xlabel("releases", color=inks["faint"], size=7.5, labelpad=-6)
    axes.set_xlim(1, releases)
