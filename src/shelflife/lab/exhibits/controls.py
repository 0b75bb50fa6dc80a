"""What should not move at all: the classes that no event touches, and the episodes that were not completed."""

from collections.abc import Iterator, Sequence

from shelflife.lab import paper
from shelflife.lab.exhibits.cells import DASH, Cell, Column, Exhibit, Kind, Row, count, label, number
from shelflife.lab.exhibits.comparison import (
    PLANNER,
    default_note,
    notes,
    rows_beside_the_paper,
    with_default,
)
from shelflife.lab.exhibits.pools import Pool, Runs, Subject
from shelflife.lab.scores import RunScore

__all__ = ["uncompleted", "untouched"]

_STREAM = "drifted"
_LADDER = ("A0", "A1", "A2", "A2D", "A2DC", "A2DG")
_IN_OTHER_EXHIBITS = ("A1", "A2D")
_KINDS = (Kind.MEASURED, Kind.EXACT, Kind.TUNED, Kind.SIMULATED)


def untouched(runs: Runs) -> Exhibit:
    """The control class by arm, A0 included, and the episodes without a constraint."""
    arms = with_default([arm for arm in _LADDER if arm in runs.arms(_STREAM)], runs, _STREAM)
    subjects = [subject for subject in runs.subjects(_STREAM) if subject.is_as_in_the_paper]

    def here(subject: Subject) -> list[Cell]:
        pools = [runs.pool(subject, _STREAM, arm) for arm in arms]
        return [
            *(number(_control(pool), subject.kind) for pool in pools),
            *_free([run for pool in pools for run in pool.runs], subject.kind),
        ]

    def published(model: str) -> list[Cell] | None:
        ladder, known = paper.LADDER.facts.get(model), paper.CLASSES.facts.get(model)
        if ladder is None or known is None:
            return None
        told = paper.UNTOUCHED.facts
        by_arm = known.control
        if model != told.other_than_that:
            by_arm = dict.fromkeys(ladder.compliance, told.control)
        return [*(number(by_arm.get(arm), Kind.PAPER) for arm in arms), *[Cell(DASH, Kind.PAPER)] * 3]

    return Exhibit(
        "untouched",
        "What no event touches",
        "First tries on rows that never drift: memory alone should be worth the step from A0 to A1, no arm should lose any of it, and a task"
        " without a constraint should succeed at once with every arm.",
        (
            PLANNER,
            *(Column(arm, "Control (%)", is_comparable=arm not in _IN_OTHER_EXHIBITS) for arm in arms),
            Column("runs", "No constraint"),
            Column("episodes", "No constraint"),
            Column("first try", "No constraint"),
        ),
        (
            *rows_beside_the_paper(subjects, here, published),
            *_in_all(runs, subjects, arms),
        ),
        notes(
            paper.UNTOUCHED.where,
            "The paper gives the control class at A0 as 0.0 % on five of its seven models, and does not say on which. A planner that finds some answers by"
            " itself is right there at times without a memory.",
            "Of six control episodes the first is a first meeting, so 83.3 % is all that there is to have.",
            default_note(arms),
        ),
    )


def _control(pool: Pool) -> float | None:
    return pool.percent(lambda run: run.classes.get("control"))


def _free(played: Sequence[RunScore], kind: Kind) -> list[Cell]:
    found = [run.classes["free"] for run in played if "free" in run.classes]
    return [
        number(len(found), kind, 0),
        number(sum(one.episodes for one in found), kind, 0),
        number(sum(one.first_try for one in found), kind, 0),
    ]


def _in_all(runs: Runs, subjects: Sequence[Subject], arms: Sequence[str]) -> list[Row]:
    """All planners of a kind together, and the paper's models."""
    rows: list[Row] = []
    for kind in _KINDS:
        alike = [subject for subject in subjects if subject.kind is kind]
        at_a0 = [rate for one in alike if (rate := _control(runs.pool(one, _STREAM, "A0"))) is not None]
        played = [run for one in alike for arm in arms for run in runs.pool(one, _STREAM, arm).runs]
        if len(alike) > 1:
            zero = Cell(f"0.0 for {at_a0.count(0.0)} of {len(at_a0)}" if at_a0 else DASH, kind)
            cells = [zero if arm == "A0" else Cell(DASH, kind) for arm in arms]
            rows.append(Row((label(f"{len(alike)} planners"), *cells, *_free(played, kind)), kind, not rows))
    if not rows:
        return []
    told = paper.UNTOUCHED.facts
    zero = Cell(f"0.0 for {told.zero_at_a0} of {told.models}", Kind.PAPER)
    cells = [zero if arm == "A0" else Cell(DASH, Kind.PAPER) for arm in arms]
    totals = [number(value, Kind.PAPER, 0) for value in (told.runs, told.free, told.free)]
    return [*rows, Row((label(f"{told.models} models"), *cells, *totals), Kind.PAPER)]


_CLASSES = {"governed": ("governed", "celiac"), "funding": ("funding",), "control": ("control",)}
"""The classes of both APIs, by what the paper calls them."""


def uncompleted(runs: Runs) -> Exhibit:
    """How many episodes were given up, by arm and by class, over all streams."""
    arms = ("A0", "A1", "A2", "A2D")

    def here(subject: Subject) -> list[Cell]:
        played = runs.of(subject)
        by_arm = [_given_up([run for run in played if run.spec.arm == arm]) for arm in arms]
        others = _given_up([run for run in played if run.spec.arm not in arms])
        return [
            count(sum(run.episodes for run in played), subject.kind),
            count(_given_up(played), subject.kind),
            *(count(value, subject.kind) for value in (*by_arm, others)),
            *(count(value, subject.kind) for value in _given_up_by_class(played)),
        ]

    def published(model: str) -> list[Cell] | None:
        known = paper.UNCOMPLETED.facts.get(model)
        if known is None:
            return None
        none = None if known.all else 0
        values = [
            *(known.by_arm.get(arm, none) for arm in arms),
            none,
            *(known.by_class.get(name, none) for name in _CLASSES),
            known.all - sum(known.by_class.values()),
        ]
        return [
            Cell(DASH, Kind.PAPER),
            count(known.all, Kind.PAPER),
            *(count(one, Kind.PAPER) for one in values),
        ]

    return Exhibit(
        "uncompleted",
        "Episodes that were not completed",
        "How often a planner gave up after its fifth attempt, by arm and by class: a fix that is remembered should lead to fewer of these, and none should come of it.",
        (
            PLANNER,
            Column("played", "Episodes", is_comparable=False),
            Column("not completed", "Episodes"),
            *(Column(name, "With arm", is_comparable=False) for name in (*arms, "others")),
            *(Column(name, "In class", is_comparable=False) for name in (*_CLASSES, "others")),
        ),
        rows_beside_the_paper(
            [one for one in runs.subjects() if one.is_as_in_the_paper or _given_up(runs.of(one))],
            here,
            published,
        ),
        notes(
            paper.UNCOMPLETED.where,
            "All streams that were played in the paper's conduct; planners that were shown their fixes in another way only if they gave something up. Celiac episodes of recipes count as governed, incompatible ones as others. An episode ends with its fifth attempt, as in the paper.",
            "A tuned planner gives up as often as its rates of following the server make it: these were set after the paper's failures, and the split by arm is what comes of them.",
        ),
    )


def _given_up_by_class(played: Sequence[RunScore]) -> Iterator[int | None]:
    """In each class that has a name, and in all others; None where nothing of it was played."""
    named = {name for names in _CLASSES.values() for name in names}
    others = {name for run in played for name in run.uncompleted} - named
    for names in (*_CLASSES.values(), others):
        counts = [run.uncompleted[name] for run in played for name in names if name in run.uncompleted]
        yield sum(counts) if counts else None


def _given_up(played: Sequence[RunScore]) -> int | None:
    return sum(run.episodes - run.completed for run in played) if played else None
