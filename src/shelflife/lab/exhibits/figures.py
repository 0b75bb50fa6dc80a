"""Figures, drawn only from what the runs hold, with the paper's values beside where its text gives them."""

import io
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from shelflife.lab import paper
from shelflife.lab.exhibits.cells import DASH, Kind
from shelflife.lab.exhibits.collection import LeftOut
from shelflife.lab.exhibits.forecast import FrontierPanel, draw_frontier, frontier_panels
from shelflife.lab.exhibits.growth import GrowthPanel, draw_growth, growth_panels
from shelflife.lab.exhibits.pools import Runs, Subject
from shelflife.lab.scores import FirstTry, RunScore

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

__all__ = ["INKS", "Figure", "figures_of"]

INKS = {
    "ink": "#1c2430",
    "faint": "#8a93a0",
    "rule": "#dfe3e8",
    "page": "#ffffff",
    "a0": "#c9ced6",
    "a1": "#e0a93f",
    "a2": "#c4573f",
    "a2d": "#17496e",
}
"""What each colour of a figure is called. They differ in lightness, so they stay apart in grey."""

_ARMS = ("A0", "A1", "A2", "A2D")
_PANEL_WIDTH, _PANEL_HEIGHT = 2.35, 1.75
_PER_LINE = 4
_LONGEST_TITLE, _SHORTEST_NAME = 24, 6
"""In letters, over a panel."""
_ROOM_FOR_A_NUMBER = 16
"""In percent points of a panel."""


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure of runs, one panel a subject, and what a reader needs to read it. It is drawn when it is looked at."""

    key: str
    title: str
    guide: str
    needs: str
    subjects: Sequence[Subject | GrowthPanel | FrontierPanel]
    draw: Callable[["Axes", Any, bool], None]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(kind for kind in Kind if any(one.kind is kind for one in self.subjects))

    @cached_property
    def svg(self) -> bytes:
        return self._saved(self._whole, "svg")

    @cached_property
    def png(self) -> bytes:
        return self._saved(self._whole, "png")

    @cached_property
    def panels(self) -> tuple[tuple[str, bytes], ...]:
        """For a page of any width: each panel by itself, with whom it is of. All panels are of one size."""
        return tuple((one.name, self._saved(self._canvas([one]), "svg")) for one in self.subjects)

    @cached_property
    def _whole(self) -> "Canvas":
        return self._canvas(self.subjects)

    def _canvas(self, subjects: Sequence[Subject | GrowthPanel | FrontierPanel]) -> "Canvas":
        """A panel for each of the subjects. A panel has the same size however many there are."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        line_count = -(-len(subjects) // _PER_LINE)
        column_count = min(_PER_LINE, len(subjects))
        with self._settings():
            canvas = Canvas(
                figsize=(column_count * _PANEL_WIDTH, line_count * _PANEL_HEIGHT + 0.1),
                layout=ConstrainedLayoutEngine(h_pad=0.09, w_pad=0.06),
            )
            FigureCanvasAgg(canvas)
            for place, axes in enumerate(canvas.subplots(line_count, column_count, squeeze=False).flat):
                if place >= len(subjects):
                    axes.set_visible(False)
                    continue
                subject = subjects[place]
                self.draw(axes, subject, place % _PER_LINE == 0)
                axes.set_title(_shortened(subject.name), loc="left", size=8.5, weight="bold", pad=14)
                kind = subject.kind.value
                axes.text(0, 1.03, kind, transform=axes.transAxes, size=7, color=INKS["faint"])
            canvas.draw_without_rendering()
            canvas.set_layout_engine(None)  # it is laid out: else it would be anew for each format
        return canvas

    def _saved(self, canvas: "Canvas", format: str) -> bytes:
        target = io.BytesIO()
        metadata: dict[str, Any] = {"Date": None} if format == "svg" else {}
        with self._settings():
            canvas.savefig(target, format=format, dpi=200, facecolor=INKS["page"], metadata=metadata)
        return target.getvalue()

    def _settings(self) -> AbstractContextManager[None]:
        import matplotlib as mpl

        settings: dict[str, Any] = {
            "font.family": "sans-serif",
            "font.sans-serif": ["DejaVu Sans"],
            "font.size": 8,
            "text.color": INKS["ink"],
            "xtick.color": INKS["ink"],
            "ytick.color": INKS["faint"],
            "text.parse_math": False,
            "svg.fonttype": "none",
            "svg.hashsalt": self.key,
        }
        return mpl.rc_context(settings)  # type: ignore[arg-type]


def figures_of(runs: Runs) -> tuple[list[Figure], list[LeftOut]]:
    """The figures for which there are runs, and those for which there are none."""
    figures = _figures(runs)
    left_out = [
        LeftOut(f"Figure: {one.title}", f"there is no run on {one.needs}")
        for one in figures
        if not one.subjects
    ]
    return [one for one in figures if one.subjects], left_out


def figure_keys() -> frozenset[str]:
    """What figures are called, whether or not there are runs for them."""
    return frozenset(one.key for one in _figures(Runs([])))


def _figures(runs: Runs) -> list[Figure]:
    return [
        _governed(runs),
        _funding(runs),
        _rotations(runs),
        _domains(runs),
        *_organic(runs),
        _frontier(runs),
    ]


def _governed(runs: Runs) -> Figure:
    return _bars(
        runs,
        "governed-by-arm",
        "First try on the class that drifts, by arm",
        "Each panel is a planner on the drifted stream: memory lifts the rate, and invalidation keeps it up after the rotation.",
        lambda run: run.governed_scored,
        {model: known.governed for model, known in paper.CLASSES.facts.items()},
        paper.GOVERNED_WITHOUT_MEMORY.facts,
    )


def _funding(runs: Runs) -> Figure:
    return _bars(
        runs,
        "funding-by-arm",
        "First try after drift on a class that never drifted, by arm",
        "The same runs, seen from funding: clearing whole tables at A2 empties what no event touched, and rows at A2D bring it back.",
        lambda run: run.after_split,
        {model: known.funding_post for model, known in paper.LADDER.facts.items()},
        paper.FUNDING_WITHOUT_MEMORY.facts,
    )


def _bars(
    runs: Runs,
    key: str,
    title: str,
    guide: str,
    of: Callable[[RunScore], FirstTry | None],
    published: dict[str, dict[str, float]],
    floors: dict[str, float],
) -> Figure:
    def rates(subject: Subject) -> list[float | None]:
        return [runs.pool(subject, "drifted", arm).percent(of) for arm in _ARMS]

    def draw(axes: "Axes", subject: Subject, is_first_in_line: bool) -> None:
        model = subject.counterpart or ""
        theirs = {"A0": floors.get(model), **published.get(model, {})}
        for place, (arm, rate) in enumerate(zip(_ARMS, rates(subject), strict=True)):
            colour = INKS[arm.lower()]
            text = DASH if rate is None else f"{rate:.0f}"
            axes.bar(place, rate or 0, width=0.7, color=colour)
            beside = theirs.get(arm)
            height = rate or 0
            is_crossed = beside is not None and height <= beside < height + _ROOM_FOR_A_NUMBER
            top = beside if is_crossed and beside is not None else height
            axes.annotate(text, (place, top), (0, 3), textcoords="offset points", ha="center", size=8)
            if beside is not None:
                for colour, width in ((INKS["page"], 3.2), (INKS["ink"], 1.4)):
                    axes.plot([place - 0.42, place + 0.42], [beside] * 2, color=colour, lw=width, zorder=3)
        axes.set_xticks(range(len(_ARMS)), _ARMS)
        _percent_axis(axes, is_first_in_line)

    subjects = [one for one in runs.subjects("drifted") if any(rate is not None for rate in rates(one))]
    return Figure(
        key,
        title,
        f"{guide} A line across is the paper's value, where it gives one.",
        "the drifted stream",
        subjects,
        draw,
    )


def _rotations(runs: Runs) -> Figure:
    streams = runs.rotation_streams()

    def points(subject: Subject, arm: str) -> list[tuple[int, float]]:
        found = []
        for stream in streams:
            pool = runs.pool(subject, stream, arm)
            if (rate := pool.compliance) is not None and rate.percent is not None:
                found.append((len(pool.runs[0].evictions_by_event), rate.percent))
        return sorted(found)

    def draw(axes: "Axes", subject: Subject, is_first_in_line: bool) -> None:
        known = paper.ROTATIONS.facts.get(subject.counterpart or "")
        for arm, span in known.compliance.items() if known and subject.kind is not Kind.EXACT else ():
            axes.axhspan(*_widened(span), color=INKS[arm.lower()], alpha=0.16, lw=0)
        _lines(
            axes,
            _Line("A2D", INKS["a2d"], points(subject, "A2D")),
            _Line("A1", INKS["a1"], points(subject, "A1")),
        )
        counts = sorted({count for arm in ("A1", "A2D") for count, _ in points(subject, arm)})
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.set_xlabel("rotations", color=INKS["faint"], size=7.5, labelpad=1)
        axes.set_xlim(min(counts) - 0.35, max(counts) + 0.9)
        _percent_axis(axes, is_first_in_line)

    subjects = (
        [one for one in runs.subjects(*streams) if points(one, "A1") or points(one, "A2D")] if streams else []
    )
    return Figure(
        "compliance-by-rotations",
        "Compliance against the number of rotations",
        "One, two and three rotations in the same 36 episodes: a flat solid line says that row-level invalidation absorbs more drift. A shaded band is"
        " the range that the paper's text gives.",
        "a stream of rotations",
        subjects,
        draw,
    )


def _domains(runs: Runs) -> Figure:
    domains: dict[str, Callable[[RunScore], FirstTry | None]] = {
        "drifted": lambda run: run.governed_scored,
        "recipes": lambda run: run.classes.get("celiac"),
    }

    def points(subject: Subject, stream: str) -> list[tuple[int, float]]:
        rates = [runs.pool(subject, stream, arm).percent(domains[stream]) for arm in _ARMS]
        return [(place, rate) for place, rate in enumerate(rates) if rate is not None]

    def draw(axes: "Axes", subject: Subject, is_first_in_line: bool) -> None:
        _lines(
            axes,
            _Line("payments", INKS["a2d"], points(subject, "drifted")),
            _Line("recipes", INKS["a2"], points(subject, "recipes")),
        )
        axes.set_xticks(range(len(_ARMS)), _ARMS)
        axes.set_xlim(-0.3, len(_ARMS) + 0.75)
        _percent_axis(axes, is_first_in_line)

    subjects = [one for one in runs.subjects("recipes") if all(points(one, name) for name in domains)]
    return Figure(
        "payments-against-recipes",
        "Payments against recipes",
        "First try on the class that drift targets, in both domains: the same ladder, climbed by a hint that adds a field and by one that replaces a value.",
        "both the drifted stream and recipes by the same planner",
        subjects,
        draw,
    )


def _organic(runs: Runs) -> list[Figure]:
    stale = growth_panels(runs, lambda one: one.stale_injections)
    most = max((max(line) for panel in stale for line in panel.lines.values()), default=0.0)
    top = next((top for top in (10, 20, 50) if most <= top), 100)

    def draw(axes: "Axes", panel: GrowthPanel, is_first_in_line: bool, top: int = 100) -> None:
        draw_growth(axes, panel, INKS)
        _percent_axis(axes, is_first_in_line, top)

    needs = "a stream of real releases with two arms"
    return [
        Figure(
            "organic-retries",
            "Retries under organic drift, release by release",
            "Each panel is a stream of real releases. A line adds up the retries of an arm, in percent of all episodes: where it is steep nothing is saved, where it is flat everything is."
            " The dotted grey line is where the same usage ends with no drift at all.",
            needs,
            growth_panels(runs, lambda one: one.retries),
            draw,
        ),
        Figure(
            "organic-stale",
            "Stale values sent under organic drift, release by release",
            "The same runs: a line adds up the requests that went out with a value that was not true any more, in percent of all episodes. Whoever writes the new value over the old one needs no more retries than exact, and"
            " finds out by sending the old one.",
            needs,
            stale,
            partial(draw, top=top),
        ),
    ]


def _frontier(runs: Runs) -> Figure:
    panels = frontier_panels(runs)
    most = max(
        (stale for panel in panels for points in panel.points.values() for _, stale in points), default=0.0
    )

    def draw(axes: "Axes", panel: FrontierPanel, is_first_in_line: bool) -> None:
        draw_frontier(axes, panel, INKS)
        _percent_axis(axes, is_first_in_line, next((top for top in (2, 5, 10, 20, 50) if most <= top), 100))

    return Figure(
        "forecast-frontier",
        "Stale uses against questions",
        "Each panel is a stream. Upward there are the stale values that were sent, and to the right the questions, both in percent of all episodes: the closer to the corner, the better."
        " The line is the forecast, from where a stale use is worth one question to where it is worth ten.",
        "one stream in all ways to ask before use",
        panels,
        draw,
    )


class _Line(NamedTuple):
    """A line of a panel; the first of two is solid."""

    name: str
    colour: str
    points: list[tuple[int, float]]


def _lines(axes: "Axes", solid: _Line, dashed: _Line) -> None:
    """Two lines with their names at their ends, apart even where the lines are not."""
    there = [line for line in (dashed, solid) if line.points]
    for line in there:
        style, marker = ("-", "o") if line is solid else ("--", "s")
        axes.plot(
            *zip(*line.points, strict=True),
            style,
            marker=marker,
            ms=4.5,
            lw=1.6,
            color=line.colour,
            mfc=line.colour if line is solid else INKS["page"],
            clip_on=False,
        )
    lowest = _ROOM_FOR_A_NUMBER / 2
    for line in sorted(there, key=lambda line: line.points[-1][1]):
        at, height = line.points[-1]
        place = max(height, lowest)
        lowest = place + _ROOM_FOR_A_NUMBER
        axes.annotate(line.name, (at, place), (7, 0), textcoords="offset points", va="center", size=8)


def _widened(ends: tuple[float, float]) -> tuple[float, float]:
    low, high = ends
    return (low - 1, high + 1) if low == high else (low, high)


def _percent_axis(axes: "Axes", is_first_in_line: bool, top: int = 100) -> None:
    axes.set_ylim(0, 1.12 * top)
    marks = ("0", f"{top / 2:g}", f"{top} %") if is_first_in_line else ("", "", "")
    axes.set_yticks((0, top / 2, top), marks)
    axes.tick_params(length=0, pad=4.5)
    axes.grid(axis="y", color=INKS["rule"], lw=0.8)
    axes.set_axisbelow(True)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(INKS["faint"])


def _shortened(name: str) -> str:
    """As much as fits over a panel: how it was played stays, and the beginning of the model's own name."""
    one_line = " ".join(name.split())
    if len(one_line) <= _LONGEST_TITLE:
        return one_line
    planner, comma, settings = one_line.rpartition(", ")
    model = (planner or settings).rpartition("/")[2]
    played = f"{comma}{settings}" if planner else ""
    room = max(_LONGEST_TITLE - len(played), _SHORTEST_NAME)
    return f"{_cut(model, room)}{_cut(played, _LONGEST_TITLE - _SHORTEST_NAME)}"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}\N{HORIZONTAL ELLIPSIS}"
