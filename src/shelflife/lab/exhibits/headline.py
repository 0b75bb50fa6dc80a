"""What the runs come to, in one sentence."""

from collections.abc import Sequence
from typing import NamedTuple

from shelflife.lab.exhibits.cells import Kind, written
from shelflife.lab.exhibits.pools import Pool, Runs, Subject

__all__ = ["headline_of"]


def headline_of(runs: Runs) -> tuple[str, Kind | None]:
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
