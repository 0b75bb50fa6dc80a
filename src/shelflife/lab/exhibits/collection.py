"""All exhibits of a set of runs, in their order, and what is left out."""

from collections.abc import Sequence
from typing import NamedTuple

from shelflife.lab.exhibits.agreement import agreement_with_the_paper
from shelflife.lab.exhibits.beyond import beyond_the_paper
from shelflife.lab.exhibits.by_planner import classes, hint_shapes, ladder, rotations, tokens, undrifted
from shelflife.lab.exhibits.cells import Exhibit, Kind
from shelflife.lab.exhibits.coverage import coverage
from shelflife.lab.exhibits.further import intervals, savings, what_was_run, wire
from shelflife.lab.exhibits.headline import headline_of
from shelflife.lab.exhibits.other_streams import other_streams
from shelflife.lab.exhibits.pools import Runs
from shelflife.lab.exhibits.price_sheet import price_sheet
from shelflife.lab.exhibits.under_attack import under_attack
from shelflife.lab.scores import RunScore

__all__ = ["Collection", "LeftOut", "collection_of", "exhibit_keys"]

_BY_RUNS = (
    *(ladder, savings, classes, price_sheet, tokens, hint_shapes, rotations, undrifted, intervals, wire),
    *(beyond_the_paper, under_attack),
)
_NEEDS = {
    price_sheet: "the rule stream",
    rotations: "a stream of rotations",
    undrifted: "the undrifted stream",
    intervals: "the drifted stream by a planner that has chance in it",
    under_attack: "a stream with a hostile server",
    beyond_the_paper: "the silent stream, and none of another conduct than the paper's",
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


def exhibit_keys() -> frozenset[str]:
    """What exhibits are called, whether or not there are runs for them."""
    nothing = Runs([])
    made = [build(nothing) for build in (*_BY_RUNS, other_streams, coverage, what_was_run)]
    return frozenset(exhibit.key for exhibit in (*made, agreement_with_the_paper([])))


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
            needed = _NEEDS.get(build, "the drifted stream")
            left_out.append(LeftOut(exhibit.title, f"there is no run on {needed}"))
    agreement = agreement_with_the_paper(exhibits)
    if agreement.rows:
        exhibits.insert(1, agreement)
    others = other_streams(runs)
    exhibits += (*([others] if others.rows else ()), coverage(runs), what_was_run(runs))
    headline, kind = headline_of(runs)
    return Collection(headline, kind, tuple(exhibits), tuple(left_out), runs)
