"""How much hangs on a definition: how many episodes after a drift are left out, and which eviction is called right."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from shelflife.client import EXACT
from shelflife.lab import paper
from shelflife.lab.exhibits.cells import (
    DASH,
    Cell,
    Column,
    Exhibit,
    Kind,
    Row,
    label,
    number,
    signed,
    written,
)
from shelflife.lab.exhibits.comparison import PLANNER, default_note, notes, rows_beside_the_paper
from shelflife.lab.exhibits.pools import Pool, Runs, Subject, groups
from shelflife.lab.judging import SLOT_WIDTHS
from shelflife.lab.scores import FirstTry, RunScore

__all__ = ["precisions", "slot_widths"]

_STREAM = "drifted"
_PUBLISHED_WIDTH = 2
_ARMS = ("A2", "A2D", EXACT.name)
_DEFINITIONS = {"value": "by value", "row": "by row", "table": "by table", "count": "1 / count"}


def slot_widths(runs: Runs) -> Exhibit:
    """Compliance by how many episodes after each drift are left out."""
    arms = ("A1", "A2D")

    def here(stream: str, subject: Subject) -> list[Cell]:
        rates = {arm: _by_width(runs.pool(subject, stream, arm)) for arm in arms}
        return [
            *(number(rates[arm][width], subject.kind) for arm in arms for width in SLOT_WIDTHS),
            *(_gain(rates["A1"][width], rates["A2D"][width], subject.kind) for width in SLOT_WIDTHS),
        ]

    rows: list[Row] = []
    for stream in (_STREAM, *runs.rotation_streams()):
        is_the_papers = stream == _STREAM
        lines = rows_beside_the_paper(
            [
                one
                for one in runs.subjects(stream)
                if one.is_as_in_the_paper and (is_the_papers or one.kind is Kind.EXACT)
            ],
            partial(here, stream),
            _published_widths if is_the_papers else lambda model: None,
        )
        rows += (line._replace(cells=(label(stream, is_code=True), *line.cells)) for line in lines)
    return Exhibit(
        "slot-widths",
        "How much hangs on the stale slot",
        "Compliance when none, one, two or three governed episodes after each rotation are left out: the more are, the better A1 looks,"
        " for what is left out of it are failures.",
        (
            Column("Stream", align="left"),
            PLANNER,
            *(
                Column(str(width), f"Compliance at {arm} (%), left out", is_comparable=False)
                for arm in arms
                for width in SLOT_WIDTHS
            ),
            *(
                Column(str(width), "Gain, A2D\N{MINUS SIGN}A1, left out", is_comparable=False)
                for width in SLOT_WIDTHS
            ),
        ),
        tuple(rows),
        notes(
            "Measurement Hygiene; the numbers: Table tab:ladder",
            "The paper's text leaves out the first governed episode after each rotation, and its denominators (nine of eleven) say two. It says that widening the slot by one episode raises"
            " compliance at A1, and does not say by how much.",
            "With none left out, every arm with a memory fails in the first governed episode after the rotation. From one on a planner that does what it is shown is right at A2D in all that are left.",
            "Each rotation has slots of its own, so the more there are the more hangs on the width: see also Why the gap stops widening.",
        ),
    )


def _published_widths(model: str) -> list[Cell] | None:
    known = paper.LADDER.facts.get(model)
    if known is None:
        return None
    missing = Cell(DASH, Kind.PAPER)
    a1, a2d = (number(known.compliance.get(arm), Kind.PAPER) for arm in ("A1", "A2D"))
    can_rise = known.compliance["A1"] not in (0, 100)
    wider = Cell("higher", Kind.PAPER) if can_rise else missing
    return [
        *(missing, missing, a1, wider),
        *(missing, missing, a2d, missing),
        *(missing, missing, signed(known.gain, Kind.PAPER), missing),
    ]


def _by_width(pool: Pool) -> dict[int, float | None]:
    def rate(width: int) -> Callable[[RunScore], FirstTry | None]:
        return lambda run: run.compliance_by_width[width] if run.compliance_by_width else None

    return {width: pool.percent(rate(width)) for width in SLOT_WIDTHS}


def _gain(a1: float | None, a2d: float | None, kind: Kind) -> Cell:
    return signed(None if a1 is None or a2d is None else a2d - a1, kind)


class _Line(NamedTuple):
    who: str
    is_code: bool
    kind: Kind
    counterpart: str | None
    cells: tuple[Cell, ...]


def precisions(runs: Runs) -> Exhibit:
    """What was evicted and what was kept, and the precision of that by four definitions."""
    rows: list[Row] = []
    streams = [_STREAM, *(stream for stream in runs.streams() if stream != _STREAM)]
    for stream in streams:
        for arm in _ARMS:
            lines = list(_merged(_lines(runs, stream, arm)))
            for line in lines:
                names = (label(stream, is_code=True), label(arm, is_code=True))
                who = label(line.who, is_code=line.is_code)
                theirs = _published(stream, arm, line)
                rows.append(Row((*names, who, *line.cells), line.kind, True, theirs is not None))
                if theirs is not None:
                    rows.append(Row((*names, *theirs), Kind.PAPER))
    return Exhibit(
        "precision",
        "What was evicted and what was kept",
        "An eviction is right if the server would not give the fix any more. By other definitions, which the paper speaks of, the same evictions read otherwise.",
        (
            Column("Stream", align="left"),
            Column("Arm", align="left"),
            PLANNER,
            Column("Completed", is_comparable=False),
            Column("Evictions", is_comparable=False),
            Column("Restamps"),
            *(
                Column(name, "Precision", is_comparable=definition == "table")
                for definition, name in _DEFINITIONS.items()
            ),
        ),
        tuple(rows),
        notes(
            f"{paper.LADDER.where}; restamps and the definition by table: {paper.RESTAMPS.where}; 1 / count: Metrics",
            "By value: the server would not give the fix any more, or would not name one of its tables with it; this is the precision of all other exhibits. By row: the server's diff names a row that the fix"
            " rests on. By table: a table that it rests on has moved. 1 / count: one over the number of evictions, as the paper's Metrics have it.",
            "By table A2 evicts nothing wrongly, as the paper says of itself. And 1 / count is right only where exactly one eviction is: with two right ones it reads 0.50, so it cannot be"
            " what a stream with two rotations is scored by.",
            "A restamp is an entry that was kept though a table of its own had moved, counted once for each time. The paper's set-up calls"
            f" {_restamps_in_the_setup()} restamp correct, and its section on hygiene speaks of a reference of {_usual_restamps()}: on its stream the bump concerns three entries."
            " gemini-3.5-flash has 0, 0 and 1 there, for its episodes do not complete.",
            "Streams whose drift is of tables and rows, with planners that consume as the paper's do; a number that differs between runs has both its ends.",
            default_note(runs.arms(*streams)),
        ),
    )


def _restamps_in_the_setup() -> str:
    return written(paper.RESTAMPS_IN_THE_SETUP.facts, 0)


def _usual_restamps() -> str:
    return written(max(max(seeds) for seeds in paper.RESTAMPS.facts.values()), 0)


def _lines(runs: Runs, stream: str, arm: str) -> Iterator[_Line]:
    for group in groups([one for one in runs.subjects(stream) if one.is_as_in_the_paper]):
        pools = {subject: pool for subject in group if (pool := runs.pool(subject, stream, arm)).runs}
        played = [run for pool in pools.values() for run in pool.runs]
        if not any(run.precision_by["table"] is not None for run in played):
            continue
        kind, first = group[0].kind, next(iter(pools))
        cells = (
            Cell(Pool(tuple(played)).completed or DASH, kind),
            _ends([run.evictions for run in played], kind, 0),
            _ends([run.restamps for run in played], kind, 0),
            *(
                _ends([run.precision_by[definition] for run in played], kind, 2)
                for definition in _DEFINITIONS
            ),
        )
        is_alone = len(pools) == 1
        yield _Line(
            first.name if is_alone else f"{len(pools)} planners",
            is_alone,
            kind,
            first.counterpart if is_alone else None,
            cells,
        )


def _merged(lines: Iterable[_Line]) -> Iterator[_Line]:
    """Deterministic planners that come to the same on one line, the one that stands for a model of the paper's first."""
    by_content: dict[object, list[_Line]] = {}
    for line in lines:
        by_content.setdefault((line.kind, line.cells), []).append(line)
    for alike in by_content.values():
        known = next((line.counterpart for line in alike if line.counterpart), None)
        yield alike[0]._replace(who=", ".join(line.who for line in alike), counterpart=known)


def _ends(values: Sequence[float | None], kind: Kind, digits: int) -> Cell:
    found = [value for value in values if value is not None]
    if not found:
        return Cell(DASH, kind)
    return Cell(" to ".join(dict.fromkeys(written(end, digits) for end in (min(found), max(found)))), kind)


def _published(stream: str, arm: str, line: _Line) -> list[Cell] | None:
    """The paper's row under one planner, or under all that are tuned to its models."""
    if stream != _STREAM or arm == EXACT.name or (line.counterpart is None and line.kind is not Kind.TUNED):
        return None
    models = [line.counterpart] if line.counterpart else list(paper.LADDER.facts)
    known = [paper.LADDER.facts[model] for model in models]
    by_row = [one.precision_at_a2 if arm == "A2" else one.precision_at_a2d for one in known]
    seeds = [seed for model in models for seed in paper.RESTAMPS.facts[model]]
    missing = Cell(DASH, Kind.PAPER)
    # a mean over seeds that is no whole number of evictions says of no run how many it made
    evictions = [1 / value for value in by_row if (1 / value).is_integer()]
    return [
        label(line.counterpart or f"{len(models)} models", is_code=line.counterpart is not None),
        missing,
        _ends(evictions, Kind.PAPER, 0),
        _ends(seeds, Kind.PAPER, 0) if arm == "A2D" else missing,
        missing,
        _ends(by_row, Kind.PAPER, 2),
        number(paper.PRECISION_BY_TABLE.facts.get(arm), Kind.PAPER, 2),
        _ends(by_row, Kind.PAPER, 2),
    ]
