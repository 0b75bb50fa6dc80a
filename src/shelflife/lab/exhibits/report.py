"""The report: one HTML file that holds everything and loads nothing."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

import shelflife
from shelflife.lab.exhibits.cells import Cell, Column, Exhibit, Kind, Row, kind_of
from shelflife.lab.exhibits.collection import Collection
from shelflife.lab.exhibits.comparison import compared_with_the_paper
from shelflife.lab.exhibits.figures import INKS, Figure
from shelflife.lab.exhibits.markup import kept_together

__all__ = ["report_html"]

_AFTER = {
    "governed-by-arm": "ladder",
    "funding-by-arm": "ladder",
    "compliance-by-rotations": "rotations",
    "payments-against-recipes": "hint-shapes",
    "organic-retries": "organic",
    "organic-stale": "organic",
    "forecast-frontier": "forecast",
}

_CHARACTER_PX = 8.3
_HEAD_CHARACTER_PX = 9.2
"""Of the widest of the fonts that a reader may have."""

_BESIDE_PX = 11.0
_BEFORE_A_GROUP_PX = 10.0
_SHORTEST_LINE = 11
"""What names something is broken into lines of so many characters at least, and not within words that are not much longer."""

_LONGEST_WORD = 14
_REM_PX = 16
_STEP_REM = 2


class _CellView(NamedTuple):
    label: str
    """What its column is called."""

    text: str
    css: str
    share: str | None
    """Of a rate, as a percentage for the bar under it."""


class _NameView(NamedTuple):
    text: str
    css: str
    is_again: bool
    """The same as in the row above."""


class _RowView(NamedTuple):
    names: list[_NameView]
    cells: list[_CellView]
    kinds: list[Kind]
    is_first: bool


class _Head(NamedTuple):
    text: str
    width: int
    """In columns."""


class _ColumnView(NamedTuple):
    name: str
    css: str
    characters: int
    """How many a line of it has room for at least, if it may be broken into lines; else 0."""


class _TableView(NamedTuple):
    exhibit: Exhibit
    name_heads: list[_ColumnView]
    heads: list[_ColumnView]
    """The other columns."""

    fits_from: int
    """The width from which on it is a table, in rem. On less, each of its rows is a small sheet of its own."""

    group_heads: list[_Head]
    who_at: int
    """The name under which it says where a row comes from."""

    rows: list[_RowView]
    figures: list[tuple[Figure, list[Markup]]]
    """Each with its panels as parts of the page."""


class _Fact(NamedTuple):
    value: str
    says: str


def report_html(collection: Collection, figures: Sequence[Figure]) -> str:
    """The report of a collection."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalized,
    )
    tables = [_table(exhibit, figures) for exhibit in collection.exhibits]
    runs = collection.runs.all
    by_kind = Counter(kind_of(run) for run in runs)
    planners = {kind: sorted({run.spec.planner for run in runs if kind_of(run) is kind}) for kind in Kind}
    days = sorted({run.started_at.partition("T")[0] for run in runs})
    shown = {kind for exhibit in collection.exhibits for kind in exhibit.kinds}
    return environment.get_template("report.html.jinja").render(
        headline=collection.headline,
        headline_kind=collection.headline_kind,
        facts=list(_facts(collection)),
        planners=[(kind, planners[kind], by_kind[kind]) for kind in Kind if planners[kind]],
        legend=[kind for kind in Kind if kind in shown],
        versions=sorted({run.version for run in runs}),
        made_by=shelflife.__version__,
        days=days[:1] if days[:1] == days[-1:] else [days[0], days[-1]],
        tables=tables,
        widths=sorted({table.fits_from for table in tables}),
        left_out=collection.left_out,
        inks=INKS,
    )


def _facts(collection: Collection) -> Iterator[_Fact]:
    runs = collection.runs.all
    yield _Fact(f"{len(runs):,}", "runs" if len(runs) != 1 else "run")
    yield _Fact(f"{sum(run.episodes for run in runs):,}", "episodes")
    planner_count = len({run.spec.planner for run in runs})
    yield _Fact(str(planner_count), "planners" if planner_count != 1 else "planner")
    compared = compared_with_the_paper(collection.exhibits)
    if compared:
        same_count = sum(pair.is_same for pair in compared)
        yield _Fact(f"{same_count} of {len(compared)}", "numbers that need no model, as in the paper")


def _finalized(value: object) -> object:
    return kept_together(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _table(exhibit: Exhibit, figures: Sequence[Figure]) -> _TableView:
    name_count = next((place for place, column in enumerate(exhibit.columns) if column.align == "right"), 1)
    columns = exhibit.columns[name_count:]
    groups: list[_Head] = []
    starts = set()
    for place, column in enumerate(columns):
        if groups and column.group and groups[-1].text == column.group:
            groups[-1] = _Head(column.group, groups[-1].width + 1)
        else:
            groups.append(_Head(column.group, 1))
            starts.add(place)
    is_grouped = any(head.text for head in groups)
    views = [
        _ColumnView(
            column.name,
            _css(column.align == "left", is_grouped and at - name_count in starts),
            _characters(column, exhibit, at) if column.align == "left" else 0,
        )
        for at, column in enumerate(exhibit.columns)
    ]
    return _TableView(
        exhibit,
        views[:name_count],
        views[name_count:],
        _fits_from(exhibit, name_count),
        groups if is_grouped else [],
        next((at for at, column in enumerate(exhibit.columns[:name_count]) if column.name == "Planner"), 0),
        list(_rows(exhibit, name_count, starts if is_grouped else set())),
        [(one, list(_inline(one))) for one in figures if _AFTER.get(one.key) == exhibit.key],
    )


def _characters(column: Column, exhibit: Exhibit, at: int) -> int:
    """The shortest line of a column in characters: of a number all of it, of a text one of a few words."""
    texts = [row.cells[at].text for row in exhibit.rows]
    words = [word for text in texts for word in text.split()]
    if column.align == "right":
        return max(map(len, texts), default=1)
    longest = max(map(len, texts), default=1)
    return max(min(longest, _SHORTEST_LINE), min(max(map(len, words), default=1), _LONGEST_WORD))


def _fits_from(exhibit: Exhibit, name_count: int) -> int:
    """The narrowest width in which all columns have their room, in rem."""
    needed = 0.0
    is_grouped = any(column.group for column in exhibit.columns)
    for group, members in groupby(enumerate(exhibit.columns), key=lambda one: one[1].group):
        widths = []
        for at, column in members:
            text_px = _CHARACTER_PX * _characters(column, exhibit, at)
            widths.append(_BESIDE_PX + max(text_px, _longest_word_px(column.name)))
            is_start = at >= name_count and (column.align == "left" or (is_grouped and not group))
            needed += _BEFORE_A_GROUP_PX * is_start
        needed += max(sum(widths), _longest_word_px(group)) + (_BEFORE_A_GROUP_PX if group else 0)
    steps = -(-needed // (_REM_PX * _STEP_REM))
    return int(steps) * _STEP_REM


def _longest_word_px(head: str) -> float:
    return _HEAD_CHARACTER_PX * max(map(len, head.split()), default=0)


def _rows(exhibit: Exhibit, name_count: int, starts: set[int]) -> Iterator[_RowView]:
    compared: Row | None = None
    above: tuple[Cell, ...] = ()
    for one in exhibit.rows:
        if one.is_first_of_block:
            compared = None
        if one.is_compared and one.kind is Kind.EXACT:
            compared = one
        cells = []
        for place, cell in enumerate(one.cells[name_count:]):
            column = exhibit.columns[name_count + place]
            classes = [_css(column.align == "left", place in starts)]
            if cell.is_missing:
                classes.append("missing")
            elif one.kind is Kind.PAPER and compared is not None:
                ours = compared.cells[name_count + place]
                is_other = not ours.is_missing and ours.text != cell.text
                if is_other and ours.kind is not None and column.is_comparable:
                    classes.append("differs")
            if cell.kind is Kind.ESTIMATED:
                classes.append("estimated")
            is_rate = "(%)" in column.group and one.kind is not Kind.PAPER
            label = f"{column.group} {column.name}".strip()
            css = " ".join(filter(None, classes))
            cells.append(_CellView(label, cell.text, css, _share(cell) if is_rate else None))
        names = [
            _NameView(
                cell.text, "code" if cell.is_code else "", name_count > 1 and above[at : at + 1] == (cell,)
            )
            for at, cell in enumerate(one.cells[:name_count])
        ]
        above = one.cells
        yield _RowView(names, cells, one.kinds, one.is_first_of_block)


def _css(is_left: bool, is_start: bool) -> str:
    return " ".join(name for name, is_on in (("left", is_left), ("start", is_start)) if is_on)


def _share(cell: Cell) -> str | None:
    try:
        value = float(cell.text)
    except ValueError:
        return None
    return f"{value:.1f}%" if 0 <= value <= 100 else None


def _inline(figure: Figure) -> Iterator[Markup]:
    """The panels of a figure as parts of the page: their colours are the page's, and their ids their own."""
    for number, (name, svg) in enumerate(figure.panels):
        text = svg.decode()
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
        opening, _, rest = text.partition(">")
        [box] = re.findall(r'viewBox="([\d. ]+)"', opening)
        rest = rest.replace("xlink:href", "href")
        rest = re.sub(r'\bid="', f'id="{figure.key}-{number}-', rest)
        rest = re.sub(r'(href="|url\()#', rf"\g<1>#{figure.key}-{number}-", rest)
        for ink, colour in INKS.items():
            rest = rest.replace(colour, f"var(--{ink})")
        label = escape(f"{figure.title}: {name}")
        # matplotlib has written this, and has escaped the names in it
        yield Markup(f'<svg viewBox="{box}" role="img" aria-label="{label}">{rest}')  # noqa: S704
