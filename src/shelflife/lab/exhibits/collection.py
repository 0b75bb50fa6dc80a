"""All exhibits of a set of runs, in their order, what is left out, and what it comes to in one sentence."""

from collections.abc import Sequence
from typing import NamedTuple

from shelflife.lab.exhibits.cells import Exhibit, Kind, written
from shelflife.lab.exhibits.clients import clients
from shelflife.lab.exhibits.comparison import agreement_with_the_paper
from shelflife.lab.exhibits.compliance import (
    classes,
    domains,
    hint_shapes,
    intervals,
    ladder,
    rotation_schedules,
    rotations,
    undrifted,
)
from shelflife.lab.exhibits.conducts import beyond_the_paper, matching, under_attack
from shelflife.lab.exhibits.controls import uncompleted, untouched
from shelflife.lab.exhibits.costs import savings, tokens, wire
from shelflife.lab.exhibits.coverage import coverage
from shelflife.lab.exhibits.forecast import calibration, forecast
from shelflife.lab.exhibits.levels import consumption, vectors
from shelflife.lab.exhibits.organic import organic, organic_growth
from shelflife.lab.exhibits.pools import Pool, Runs, Subject
from shelflife.lab.exhibits.preflights import preflights_shown
from shelflife.lab.exhibits.price_sheet import price_sheet
from shelflife.lab.exhibits.sensitivity import precisions, slot_widths
from shelflife.lab.exhibits.settings import measured, prompt_sensitivity
from shelflife.lab.exhibits.streams import other_streams, what_was_run
from shelflife.lab.exhibits.wire_fields import wire_fields
from shelflife.lab.preflight import Preflight
from shelflife.lab.scores import RunScore

__all__ = ["Collection", "LeftOut", "collection_of", "exhibit_keys"]

_BY_RUNS = (
    *(ladder, precisions, slot_widths, savings, classes, untouched, price_sheet, tokens, hint_shapes),
    *(domains, rotations, rotation_schedules, undrifted, uncompleted, intervals, wire, wire_fields),
    *(organic, organic_growth),
    *(matching, consumption, vectors, beyond_the_paper, under_attack),
    *(forecast, calibration, clients),
    *(measured, prompt_sensitivity),
)
_NEEDS = {
    price_sheet: "the rule stream",
    rotations: "a stream of rotations",
    rotation_schedules: "a stream of rotations by an exact planner at both A1 and A2D",
    undrifted: "the undrifted stream",
    intervals: "the drifted stream by a planner that has chance in it",
    matching: "the drifted stream at Level 1",
    organic: "a stream of real releases",
    organic_growth: "a stream of real releases",
    precisions: "a stream whose tables drift by an arm that evicts",
    uncompleted: "any stream in the paper's conduct",
    consumption: "the drifted stream or recipes with one planner that was shown its fixes in two ways",
    vectors: "one stream at both Level 1 and Level 4 with --match family",
    wire_fields: "a server at Level 1 with --match family, or at a level above it",
    under_attack: "a stream with a hostile server",
    forecast: "one stream in all ways to ask before use",
    calibration: "one stream in all ways to ask before use",
    clients: "the drifted stream by a client that was scored",
    measured: "any stream by a real model",
    prompt_sensitivity: "any stream in more than one wording",
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
    others = (agreement_with_the_paper([]), preflights_shown([]))
    return frozenset(exhibit.key for exhibit in (*made, *others))


def collection_of(scores: Sequence[RunScore], preflights: Sequence[Preflight] = ()) -> Collection:
    """Every exhibit for which there are runs, and that of the preflights that were kept beside them."""
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
    tried = preflights_shown(preflights)
    if not tried.rows:
        left_out.append(LeftOut(tried.title, "no preflight was kept; see shelflife lab preflight --out"))
    more = (exhibit for exhibit in (tried, other_streams(runs)) if exhibit.rows)
    exhibits += (*more, coverage(runs), what_was_run(runs))
    headline, kind = _headline(runs)
    return Collection(headline, kind, tuple(exhibits), tuple(left_out), runs)


def _headline(runs: Runs) -> tuple[str, Kind | None]:
    """The finding in one sentence, by the best evidence there is."""
    for kind in (Kind.MEASURED, Kind.EXACT, Kind.TUNED, Kind.SIMULATED):
        rungs = [
            rung
            for subject in runs.subjects("drifted")
            if subject.kind is kind and (rung := _rung(runs, subject)) is not None
        ]
        # one planner that was played in several ways is still one
        rungs = [rung for rung in rungs if rung.subject.is_as_in_the_paper] or rungs
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
    funding = [pool(arm).percent(lambda run: run.after_split) for arm in ("A2", "A2D")]
    return _Rung(subject, a1.percent or 0.0, a2d.percent or 0.0, *funding)


def _sentence(kind: Kind, rungs: Sequence[_Rung]) -> str:
    if kind is Kind.EXACT or len(rungs) == 1:
        best = rungs[0]
        name = best.subject.name
        who = "a planner that does as it is shown" if name == "compliant" else name
        ends = [written(end, 1) for end in (best.a1, best.a2d)]
        if ends[0] == ends[1]:
            moved = f"leaves {who} at"
        else:
            moved = f"{'lifts' if best.a2d > best.a1 else 'drops'} {who} from {ends[0]} to"
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
