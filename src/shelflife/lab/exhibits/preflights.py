"""What the preflights found: will memory pay with a planner, for each shape of hint and each way of showing it?"""

from collections.abc import Iterator, Sequence

from shelflife.lab.exhibits.cells import (
    Cell,
    Column,
    Exhibit,
    Kind,
    Row,
    kind_of_planner,
    label,
    number,
    written,
)
from shelflife.lab.exhibits.comparison import PLANNER, notes
from shelflife.lab.preflight import Preflight, calls_of

__all__ = ["preflights_shown"]

_WAYS = {"2": "Level 2", "3": "Level 3", "apply": "applied"}


def preflights_shown(preflights: Sequence[Preflight]) -> Exhibit:
    """One block a planner: what it did with valid fixes."""
    rows: list[Row] = []
    for found in sorted(preflights, key=lambda one: (one.planner_kind, one.planner)):
        rows += _rows(found)
    return Exhibit(
        "preflight",
        "The preflight",
        "Before a memory is built: how often a planner applies a fix that is known to be valid, by what the fix does and how it is shown, and what share of the tokens of an episode that would save.",
        (
            PLANNER,
            Column("The fix", align="left"),
            Column("Shown", align="left"),
            Column("of", "Complied"),
            Column("(%)", "Complied"),
            Column("interval", "Complied"),
            Column("(%)", "Expected saving", is_comparable=False),
            Column("interval", "Expected saving", is_comparable=False),
            Column("What follows", align="left"),
        ),
        tuple(rows),
        notes(
            "What the contract can and cannot engineer, practical recommendation",
            "The paper recommends it, in tens of calls, and gives no numbers of one."
            f" With eight trials for each shape and way it takes {calls_of(8)} calls here.",
            "Intervals are Wilson's, with a confidence of 95 %. A dash is a saving that is not known: the planner did not take over the server's own fix either.",
        ),
    )


def _rows(found: Preflight) -> Iterator[Row]:
    kind = kind_of_planner(found.planner_kind, found.tuned_to, found.planner)
    of_tokens = Kind.ESTIMATED if found.counted_by == "estimated" else kind
    is_first = True
    for shape in found.shapes:
        for index, finding in enumerate(shape.findings):
            yield Row(
                (
                    label(found.planner, is_code=True),
                    label(shape.shape),
                    label(_WAYS[finding.consume]),
                    Cell(f"{finding.complied}/{finding.trials}", kind),
                    number(100 * finding.compliance, kind),
                    _between(finding.low, finding.high, kind),
                    number(_percent(finding.expected_saving), of_tokens),
                    _between(finding.saving_low, finding.saving_high, of_tokens),
                    label("" if index else shape.recommendation),
                ),
                kind,
                is_first,
            )
            is_first = False


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _between(low: float | None, high: float | None, kind: Kind) -> Cell:
    ends = [written(100 * end, 0) for end in (low, high) if end is not None]
    return Cell(" to ".join(ends), kind) if ends else number(None, kind)
