"""All exhibits of a set of runs, what they come to in one sentence, and how they compare with the paper."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shelflife.lab.exhibits.by_planner import classes, hint_shapes, ladder, rotations, tokens, undrifted
from shelflife.lab.exhibits.cells import Cell, Column, Exhibit, Kind, Row, label, number, row, written
from shelflife.lab.exhibits.coverage import coverage
from shelflife.lab.exhibits.further import intervals, savings, what_was_run, wire
from shelflife.lab.exhibits.other_streams import other_streams
from shelflife.lab.exhibits.pools import Pool, Runs, Subject
from shelflife.lab.exhibits.price_sheet import price_sheet
from shelflife.lab.scores import RunScore

__all__ = ["Collection", "LeftOut", "collection_of"]

_BY_RUNS = (ladder, savings, classes, price_sheet, tokens, hint_shapes, rotations, undrifted, intervals, wire)
_STREAMS_OF = {
    price_sheet: "the rule stream",
    rotations: "a stream of rotations",
    undrifted: "the undrifted stream",
    intervals: "the drifted stream by a planner that has chance in it",
}


class LeftOut(NamedTuple):
    """An exhibit that the runs do not suffice for."""

    title: str
    why: str


class Collection(NamedTuple):
    """What there is to show."""

    headline: str
    headline_kind: Kind | None
    exhibits: tuple[Exhibit, ...]
    left_out: tuple[LeftOut, ...]
    runs: Runs


def collection_of(scores: Sequence[RunScore]) -> Collection:
    """Every exhibit for which there are runs."""
    runs = Runs(scores)
    exhibits: list[Exhibit] = []
    left_out: list[LeftOut] = []
    for build in _BY_RUNS:
        exhibit = build(runs)
        if exhibit.rows:
            exhibits.append(exhibit)
        else:
            needed = _STREAMS_OF.get(build, "the drifted stream")
            left_out.append(LeftOut(exhibit.title, f"there is no run on {needed}"))
    agreement = _agreement(exhibits)
    if agreement.rows:
        exhibits.insert(1, agreement)
    others = other_streams(runs)
    exhibits += (*([others] if others.rows else ()), coverage(runs), what_was_run(runs))
    headline, kind = _headline(runs)
    return Collection(headline, kind, tuple(exhibits), tuple(left_out), runs)


def _blocks(exhibit: Exhibit) -> Iterator[list[Row]]:
    block: list[Row] = []
    for one in exhibit.rows:
        if one.is_first_of_block and block:
            yield block
            block = []
        block.append(one)
    if block:
        yield block


def _agreement(exhibits: Sequence[Exhibit]) -> Exhibit:
    """Cell by cell, where the exact planners and the paper say the same."""
    rows = []
    for exhibit in exhibits:
        by_planner: dict[str, list[tuple[str, Cell, Cell]]] = {}
        for block in _blocks(exhibit):
            theirs = next((one for one in block if one.kind is Kind.PAPER), None)
            for ours in block:
                if theirs is not None and ours.is_compared and ours.kind is Kind.EXACT:
                    who = next(
                        c for c, h in zip(ours.cells, exhibit.columns, strict=True) if h.name == "Planner"
                    )
                    by_planner.setdefault(who.text, []).extend(_pairs(exhibit, ours, theirs))
        for planner, pairs in by_planner.items():
            apart = [
                f"{where}: {ours.text} here, {theirs.text} there"
                for where, ours, theirs in pairs
                if ours.text != theirs.text
            ]
            cells = [
                label(exhibit.title),
                label(planner, is_code=True),
                number(len(pairs), Kind.EXACT, 0),
                number(len(pairs) - len(apart), Kind.EXACT, 0),
                label("; ".join(apart) or "nothing"),
            ]
            rows.append(row(Kind.EXACT, cells, is_first_of_block=True))
    return Exhibit(
        "agreement",
        "Against the paper, cell by cell",
        "Of the numbers that the paper prints and that need no model, how many come out the same when the stream is played through the real server.",
        (
            Column("Exhibit", align="left"),
            Column("Planner", align="left"),
            Column("Compared"),
            Column("The same"),
            Column("What differs", align="left"),
        ),
        tuple(rows),
        (
            "The planner compliant is held against gpt-5-mini and compliant-last against gpt-5.4-mini, the models that do as they do with two values for one field;"
            " the price sheet against the paper's three, which agree in every count.",
            "Tokens are not compared, for the paper's are vendors' bills for other prompts; what a model found by itself, without a memory, cannot come out the same either.",
        ),
    )


def _pairs(exhibit: Exhibit, ours: Row, theirs: Row) -> Iterator[tuple[str, Cell, Cell]]:
    for column, left, right in zip(exhibit.columns, ours.cells, theirs.cells, strict=True):
        is_in_both = left.kind is not None and not left.is_missing and not right.is_missing
        if is_in_both and column.is_comparable:
            group = column.group.removesuffix(" (%)")
            yield f"{group} {column.name}".strip(), left, right


def _headline(runs: Runs) -> tuple[str, Kind | None]:
    """The finding in one sentence, by the best evidence there is."""
    for kind in (Kind.MEASURED, Kind.EXACT, Kind.TUNED, Kind.SIMULATED):
        rungs = [
            rung
            for subject in runs.subjects("drifted")
            if subject.kind is kind and (rung := _rung(runs, subject)) is not None
        ]
        if rungs:
            return _sentence(kind, rungs), kind
    return (
        "No planner has played the drifted stream at both A1 and A2D, so there is no ladder to read yet.",
        None,
    )


class _Rung(NamedTuple):
    subject: Subject
    a1: float
    a2d: float
    funding_a2: float | None
    funding_a2d: float | None


def _rung(runs: Runs, subject: Subject) -> _Rung | None:
    def pool(arm: str) -> Pool:
        return runs.pool(subject, "drifted", arm)

    a1, a2d = pool("A1").compliance, pool("A2D").compliance
    if a1 is None or a2d is None:
        return None
    funding = [pool(arm).percent(lambda run: run.funding_post) for arm in ("A2", "A2D")]
    return _Rung(subject, a1.percent or 0.0, a2d.percent or 0.0, *funding)


def _sentence(kind: Kind, rungs: Sequence[_Rung]) -> str:
    if kind is Kind.EXACT or len(rungs) == 1:
        best = rungs[0]
        name = best.subject.name
        who = "a planner that does as it is shown" if name == "compliant" else name
        ends = [written(end, 1) for end in (best.a1, best.a2d)]
        moved = f"lifts {who} from {ends[0]} to" if ends[0] != ends[1] else f"leaves {who} at"
        said = f"Row-level invalidation {moved} {ends[1]} % compliance"
        if best.funding_a2 is not None and best.funding_a2d is not None:
            verb = "keeps what table-level invalidation throws away"
            if best.funding_a2d <= best.funding_a2:
                verb = "keeps no more than table-level invalidation"
            said += (
                f", and {verb}: {written(best.funding_a2d, 1)} against {written(best.funding_a2, 1)} %"
                " first try on a class that never drifted"
            )
        return f"{said}."
    gains = [one.a2d - one.a1 for one in rungs]
    risen = sum(gain > 0.05 for gain in gains)
    return (
        f"From naive memory to row-level invalidation compliance rises for {risen} of {len(rungs)} planners,"
        f" by up to {written(max(gains), 1)} points."
    )
