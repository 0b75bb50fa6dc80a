"""What a server makes of clients from their requests alone, beside what they are."""

from collections.abc import Iterator
from typing import get_args

from shelflife.lab.exhibits.cells import DASH, Cell, Column, Exhibit, Kind, Row, count, label
from shelflife.lab.exhibits.comparison import PLANNER
from shelflife.lab.exhibits.pools import ALL_ARMS, Runs
from shelflife.lab.known_clients import KNOWN
from shelflife.lab.scores import RunScore
from shelflife.server.verdicts import Verdict

__all__ = ["clients"]

_STREAM = "drifted"
_NOT_ENOUGH: Verdict = "not enough seen"
_WITH_CHANCE = {
    Kind.TUNED: "tuned to the paper",
    Kind.SIMULATED: "others with chance",
    Kind.MEASURED: "real models",
}


def clients(runs: Runs) -> Exhibit:
    """How often a server said what of each client."""
    by_chance = [*_with_chance(runs)]
    notes = [
        "A verdict is what the page of a provider's operator says of a client. How a memory forgets can only show when something changes: until"
        " then nothing should be said of any client."
    ]
    if by_chance:
        notes.append(
            "What a planner with chance in it is to a server depends on how often it does as it is shown, so it stands in no column by right."
        )
    return Exhibit(
        "clients",
        "Clients, as the server sees them",
        "How many runs the server put down as what, from requests alone: the clients that are known should stand in the column that says what they are.",
        (
            Column("Arm", align="left"),
            PLANNER,
            Column("Is", align="left"),
            Column("Runs"),
            *(Column(verdict, "Said at the end") for verdict in get_args(Verdict)),
            Column(_NOT_ENOUGH, "Said before the first change"),
        ),
        (*_known(runs), *by_chance),
        tuple(notes),
    )


def _known(runs: Runs) -> Iterator[Row]:
    last = None
    for (arm, planner), verdict in KNOWN.items():
        played = [run for run in _judged(runs, arm, Kind.EXACT) if run.spec.planner == planner]
        if played:
            named = (label(arm, is_code=True), label(planner, is_code=True), label(verdict))
            yield _row(named, played, Kind.EXACT, is_first=verdict != last)
            last = verdict


def _with_chance(runs: Runs) -> Iterator[Row]:
    for kind, name in _WITH_CHANCE.items():
        is_first = True
        for arm in ALL_ARMS:
            if played := _judged(runs, arm, kind):
                yield _row(
                    (label(arm, is_code=True), label(name), label(DASH)), played, kind, is_first=is_first
                )
                is_first = False


def _judged(runs: Runs, arm: str, kind: Kind) -> list[RunScore]:
    subjects = [one for one in runs.subjects(_STREAM) if one.kind is kind and one.is_as_in_the_paper]
    found = (run for subject in subjects for run in runs.pool(subject, _STREAM, arm).runs)
    return [run for run in found if run.verdict is not None]


def _row(named: tuple[Cell, ...], played: list[RunScore], kind: Kind, *, is_first: bool) -> Row:
    said = (sum(run.verdict == verdict for run in played) for verdict in get_args(Verdict))
    before = sum(run.first_verdict == _NOT_ENOUGH for run in played)
    return Row((*named, *(count(one, kind) for one in (len(played), *said, before))), kind, is_first)
