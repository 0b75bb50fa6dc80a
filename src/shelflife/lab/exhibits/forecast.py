"""What foreseeing drift is worth: questions and stale uses together, beside ways of asking that foresee nothing."""

from collections.abc import Iterator, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple

from shelflife.client import EXACT
from shelflife.lab.exhibits.cells import Column, Exhibit, Kind, Row, count, kind_of, label, number, signed
from shelflife.lab.exhibits.comparison import PLANNER
from shelflife.lab.exhibits.growth import name_beside
from shelflife.lab.exhibits.pools import Runs
from shelflife.lab.scores import ForeseenTenth, RunScore
from shelflife.lab.spec import Consume, Fresh
from shelflife.lab.ways_to_ask import STALE_COSTS, conduct_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "FrontierPanel",
    "Tenth",
    "Weighed",
    "calibration",
    "draw_frontier",
    "forecast",
    "frontier_panels",
    "tenths",
    "weighed",
]

_WAYS: dict[Fresh, str] = {"none": "never", "use": "always", "heuristic": "10 % rule", "forecast": "forecast"}
_FORECAST: Fresh = "forecast"
_INKS = {"none": "faint", "use": "a2", "heuristic": "a1", "forecast": "a2d"}
_MARKS = {"none": "o", "use": "s", "heuristic": "D", "forecast": "o"}
_FEWEST_JUDGED = 200
"""Of fewer forecasts it is not said whether they came true."""

_MOST_APART = 10.0
_JUDGED_AT = 3.0
"""The same uses come by at every price. So that none counts twice, they are judged at one."""


class Weighed(NamedTuple):
    """One stream, where a stale use costs so many questions: the runs of each way to decide, by the same draws."""

    stream: str
    planner: str
    stale_costs: float
    runs: dict[Fresh, list[RunScore]]

    def costs(self, way: Fresh) -> list[float]:
        """Of each draw: its questions, and what its stale uses are worth."""
        return [run.wire.questions + self.stale_costs * run.stale_injections for run in self.runs[way]]

    @property
    def best(self) -> float:
        """What the best of the ways costs that foresee nothing, on average."""
        return fmean(self.costs(self._best_way))

    @property
    def _best_way(self) -> Fresh:
        return min((way for way in self.runs if way != _FORECAST), key=lambda way: fmean(self.costs(way)))

    @property
    def forecast(self) -> float:
        """What foreseeing costs, on average."""
        return fmean(self.costs(_FORECAST))

    @property
    def against_the_best(self) -> float | None:
        """How much more it costs than the best of the others, in percent; None where that costs nothing."""
        return 100 * (self.forecast / self.best - 1) if self.best else None

    @property
    def error(self) -> float | None:
        """The standard error of that: by how much the draws differ in it. None for one draw."""
        apart = [a - b for a, b in zip(self.costs(_FORECAST), self.costs(self._best_way), strict=True)]
        return 100 * stdev(apart) / sqrt(len(apart)) / self.best if len(apart) > 1 and self.best else None


def weighed(runs: Runs) -> Iterator[Weighed]:
    """All that was played in all ways, by stream."""
    played: dict[tuple[str, str], list[RunScore]] = {}
    for run in runs.on_honest_servers:
        if run.spec.arm == EXACT.name and run.spec.consume == Consume.APPLY:
            played.setdefault((run.spec.stream, run.spec.planner), []).append(run)
    for (stream, planner), scores in sorted(played.items()):
        for stale_costs in STALE_COSTS:
            by_way = {way: _by_seed(scores, way, stale_costs) for way in _WAYS}
            seeds = sorted(set.intersection(*(set(by_seed) for by_seed in by_way.values())))
            if seeds:
                found = {way: [by_seed[seed] for seed in seeds] for way, by_seed in by_way.items()}
                yield Weighed(stream, planner, stale_costs, found)


def _by_seed(scores: Sequence[RunScore], way: Fresh, stale_costs: float) -> dict[int, RunScore]:
    return {run.spec.seed: run for run in scores if run.spec.conduct == conduct_of(way, stale_costs)}


def forecast(runs: Runs) -> Exhibit:
    """What each way to decide costs."""
    rows = []
    last = None
    for one in weighed(runs):
        foreseen = one.runs[_FORECAST]
        kind = kind_of(foreseen[0])
        cells = (
            label(one.stream, is_code=True),
            label(one.planner, is_code=True),
            count(one.stale_costs, kind),
            count(len(foreseen), kind),
            *(number(fmean(one.costs(way)), kind, 0) for way in _WAYS),
            signed(one.against_the_best, kind),
            number(one.error, kind),
            count(fmean(run.wire.questions for run in foreseen), kind),
            count(fmean(run.stale_injections for run in foreseen), kind),
            count(fmean(run.stale_executions for run in foreseen), kind),
            count(fmean(run.retries for run in foreseen), kind),
        )
        rows.append(Row(cells, kind, one.stream != last))
        last = one.stream
    return Exhibit(
        "forecast",
        "Drift foreseen",
        "Questions plus what stale uses cost: the forecast should be below the three others where rows have habits, and not above the best of them where they have none.",
        (
            Column("Stream", align="left"),
            PLANNER,
            Column("A stale use is worth"),
            Column("Draws"),
            *(Column(name, "Cost of asking") for name in _WAYS.values()),
            Column("against the best (%)", "Forecast"),
            Column("\N{PLUS-MINUS SIGN}", "Forecast"),
            Column("questions", "Forecast"),
            Column("stale sent", "Forecast"),
            Column("carried out", "Forecast"),
            Column("retries", "Forecast"),
        ),
        tuple(rows),
        (
            "A run costs its questions, and for each value that was sent and not true any more as many questions as a stale use is worth. The costs are means over the draws, and \N{PLUS-MINUS SIGN} is the standard error of how much more or less the forecast costs on the same draw.",
            "Always asks before each use, but for what was heard at that very moment. The 10 % rule asks after a tenth of the time for which a row had not changed by then (RFC 9111, 4.2.2). Where a stale use is worth"
            " one question, nothing is better than never asking.",
            "All of them hear of drift by the replies to their requests: with several rows in use most changes are heard of before the row is used again.",
        ),
    )


class Tenth(NamedTuple):
    """The uses that were said to be stale with a chance within a tenth: in percent, how likely on average, and how many were."""

    uses: int
    said: float
    were: float
    error: float
    """The standard error of how far the two are apart. Uses of one run are no independent draws, and count as one."""

    @property
    def judged(self) -> str:
        if self.uses < _FEWEST_JUDGED:
            return "too few"
        return "came true" if abs(self.were - self.said) <= _MOST_APART else "did not"


def tenths(runs: Sequence[Sequence[ForeseenTenth]]) -> Iterator[Tenth | None]:
    """All runs together; None where nothing was said."""
    for by_run in zip(*runs, strict=True):
        uses = sum(one.uses for one in by_run)
        if not uses:
            yield None
            continue
        said, stale = sum(one.said for one in by_run), sum(one.stale for one in by_run)
        error = sqrt(sum((one.stale - one.said) ** 2 for one in by_run))
        yield Tenth(uses, *(100 * one / uses for one in (said, stale, error)))


def calibration(runs: Runs) -> Exhibit:
    """Whether what is said to be likely comes true as often as it says."""
    judged = (one.runs[_FORECAST] for one in weighed(runs) if one.stale_costs == _JUDGED_AT)
    found = [run for scores in judged for run in scores if run.foreseen]
    rows = []
    for index, tenth in enumerate(tenths([run.foreseen or [] for run in found])):
        kind = kind_of(found[0])
        cells = (
            label(f"{10 * index} to {10 * index + 10} %"),
            count(tenth.uses if tenth else 0, kind),
            number(tenth and tenth.said, kind),
            number(tenth and tenth.were, kind),
            signed(tenth and tenth.were - tenth.said, kind),
            number(tenth and tenth.error, kind),
            label(tenth.judged if tenth else "too few"),
        )
        rows.append(Row(cells, kind, index == 0))
    return Exhibit(
        "forecast-calibration",
        "Forecasts and what came of them",
        "Before each use it was said how likely the fix is to be stale: of all that was said to be so likely, as many should have been.",
        (
            Column("Said to be stale", align="left"),
            Column("Uses"),
            Column("said, on average (%)", "Stale"),
            Column("were (%)", "Stale"),
            Column("apart (points)", "Stale"),
            Column("\N{PLUS-MINUS SIGN}", "Stale"),
            Column("Judged", align="left"),
        ),
        tuple(rows),
        (
            f"Over all runs with a forecast in the table before in which a stale use is worth {_JUDGED_AT:.0f} questions, on all its streams together.",
            f"A tenth with at least {_FEWEST_JUDGED} uses is judged: what was said came true if as many were, within {_MOST_APART:.0f} points."
            " \N{PLUS-MINUS SIGN} is the standard error, by how much runs differ.",
        ),
    )


class FrontierPanel(NamedTuple):
    """A stream: of each way to decide, its questions and its stale uses in percent of the episodes. The forecast has one for each price."""

    name: str
    kind: Kind
    points: dict[Fresh, list[tuple[float, float]]]


def frontier_panels(runs: Runs) -> list[FrontierPanel]:
    """All streams that were played in all ways."""
    panels: dict[str, FrontierPanel] = {}
    for one in weighed(runs):
        kind = kind_of(one.runs[_FORECAST][0])
        panel = panels.setdefault(one.stream, FrontierPanel(one.stream, kind, {}))
        for way, scores in one.runs.items():
            at = (
                fmean(100 * run.wire.questions / run.episodes for run in scores),
                fmean(100 * run.stale_injections / run.episodes for run in scores),
            )
            points = panel.points.setdefault(way, [])
            if at not in points:
                points.append(at)
    return list(panels.values())


def draw_frontier(axes: "Axes", panel: FrontierPanel, inks: dict[str, str]) -> None:
    """Draw a panel: the closer to the corner, the better. Few questions are drawn apart, many close together."""
    for way, points in panel.points.items():
        axes.plot(
            *zip(*sorted(points), strict=True),
            "-",
            marker=_MARKS[way],
            ms=8 if way == "none" else 5,  # it is where a forecast is that never asks
            lw=1.4,
            color=inks[_INKS[way]],
            mfc=inks[_INKS[way]] if way == _FORECAST else inks["page"],
            clip_on=False,
            label=_WAYS[way],
            zorder=3 if way == _FORECAST else 2,
        )
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(0, 100)
    axes.set_xticks((0, 1, 10, 100), ("0", "1", "10", "100 %"))
    axes.minorticks_off()
    axes.set_xlabel("questions", color=inks["faint"], size=7.5, labelpad=1)
    name_beside(axes)
