"""The report: one HTML file that holds everything and loads nothing."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

import shelflife
from shelflife.lab.exhibits.cells import Cell, Exhibit, Kind, Row, kind_of
from shelflife.lab.exhibits.collection import Collection
from shelflife.lab.exhibits.comparison import compared_with_the_paper
from shelflife.lab.exhibits.figures import INKS, Figure

__all__ = ["report_html"]

_AFTER = {
    "governed-by-arm": "ladder",
    "funding-by-arm": "ladder",
    "compliance-by-rotations": "rotations",
    "payments-against-recipes": "hint-shapes",
}
_LONGEST_ON_A_LINE = 34


class _CellView(NamedTuple):
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


class _TableView(NamedTuple):
    exhibit: Exhibit
    name_heads: list[str]
    heads: list[tuple[str, str]]
    """The other columns: what they are called, and their style."""

    group_heads: list[_Head]
    who_at: int
    """The name under which it says where a row comes from."""

    rows: list[_RowView]
    figures: list[tuple[Figure, Markup]]
    """Each with its drawing as a part of the page."""


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
    )
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
        tables=[_table(exhibit, figures) for exhibit in collection.exhibits],
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
        yield _Fact(f"{same_count} of {len(compared)}", "exact numbers as in the paper")


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
    return _TableView(
        exhibit,
        [column.name for column in exhibit.columns[:name_count]],
        [
            (column.name, _css(column.align == "left", is_grouped and place in starts))
            for place, column in enumerate(columns)
        ],
        groups if is_grouped else [],
        next((at for at, column in enumerate(exhibit.columns[:name_count]) if column.name == "Planner"), 0),
        list(_rows(exhibit, name_count, starts if is_grouped else set())),
        [(one, _inline(one)) for one in figures if _AFTER.get(one.key) == exhibit.key],
    )


def _rows(exhibit: Exhibit, name_count: int, starts: set[int]) -> Iterator[_RowView]:
    compared: Row | None = None
    above: tuple[Cell, ...] = ()
    wide = {
        at
        for at, column in enumerate(exhibit.columns)
        if column.align == "left"
        and any(len(one.cells[at].text) > _LONGEST_ON_A_LINE for one in exhibit.rows)
    }
    for one in exhibit.rows:
        if one.is_first_of_block:
            compared = None
        if one.is_compared and one.kind is Kind.EXACT:
            compared = one
        cells = []
        for place, cell in enumerate(one.cells[name_count:]):
            column = exhibit.columns[name_count + place]
            classes = [_css(column.align == "left", place in starts)]
            if name_count + place in wide:
                classes.append("wide")
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
            cells.append(
                _CellView(cell.text, " ".join(filter(None, classes)), _share(cell) if is_rate else None)
            )
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


def _inline(figure: Figure) -> Markup:
    """A drawing as a part of the page: its colours are the page's, and its ids are its own."""
    text = figure.svg.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    opening, _, rest = text.partition(">")
    [box] = re.findall(r'viewBox="([\d. ]+)"', opening)
    rest = rest.replace("xlink:href", "href")
    rest = re.sub(r'\bid="', f'id="{figure.key}-', rest)
    rest = re.sub(r'(href="|url\()#', rf"\g<1>#{figure.key}-", rest)
    for name, colour in INKS.items():
        rest = rest.replace(colour, f"var(--{name})")
    # matplotlib has written this, and has escaped the names in it
    return Markup(  # noqa: S704
        f'<svg viewBox="{box}" role="img" aria-labelledby="{figure.key}-title" width="{box.split()[2]}">{rest}'
    )
