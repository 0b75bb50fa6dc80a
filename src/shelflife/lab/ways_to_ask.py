"""Ways to decide whether to ask before use, what becomes of each decision, and the runs by which they are compared."""

from collections.abc import Callable, Sequence

from shelflife.client import EXACT, Entry
from shelflife.client.foresight import Forecast, Foresight, chance_of
from shelflife.histories import Histories
from shelflife.lab.spec import PLAIN_STALE_COSTS, Conduct, Consume, Fresh, RunSpec

__all__ = [
    "REPORTED",
    "STALE_COSTS",
    "Always",
    "Heuristic",
    "Weighed",
    "conduct_of",
    "forecast_runs",
    "foresight_of",
]

STALE_COSTS = (1.0, 3.0, 10.0)
"""How many questions a stale use is worth, where ways to decide are compared."""

_SHARE = 0.1
REPORTED = range(1100, 1120)
"""The seeds of the draws that are reported. They were named before anything was drawn by them, and are played once a method is settled:
whoever works on the method draws by seeds below 1000, and tests by those from 2000 on. Those from 1000 on were of a method before."""

_DRAWN = ("habits-regular", "habits-bursts", "habits-led", "habits-random")
_AS_THEY_ARE = ("habits-never", "organic-zones-dated")
"""Streams of which one draw says it all."""


class Always:
    """Asks before each use, but for what was heard this very moment."""

    def is_due(self, entries: Sequence[Entry], histories: Histories, looked_at: float, now: float) -> bool:
        return now > looked_at


class Heuristic:
    """What caches do where a server does not say how long something is good: a tenth as long as it had been by then (RFC 9111, 4.2.2)."""

    def is_due(self, entries: Sequence[Entry], histories: Histories, looked_at: float, now: float) -> bool:
        rests_on = {part for entry in entries for part in entry.grounds.rows or entry.grounds.tables}
        changes = [histories.seen[part][-1].by for part in rests_on if part in histories.seen]
        return now - looked_at > _SHARE * (looked_at - max(changes, default=histories.since))


class Weighed:
    """A foresight whose decisions are written down, each with what the forecast says, whoever decides."""

    def __init__(self, foresight: Foresight, note: Callable[[float, bool, Sequence[Entry]], None]) -> None:
        """`note` is told the chance, whether it is asked, and about what."""
        self._foresight = foresight
        self._note = note

    def is_due(self, entries: Sequence[Entry], histories: Histories, looked_at: float, now: float) -> bool:
        is_due = self._foresight.is_due(entries, histories, looked_at, now)
        self._note(chance_of(entries, histories, looked_at, now), is_due, entries)
        return is_due


def foresight_of(conduct: Conduct) -> Foresight | None:
    """What decides by a conduct."""
    match conduct.fresh:
        case "use":
            return Always()
        case "heuristic":
            return Heuristic()
        case "forecast":
            return Forecast(stale_costs=conduct.stale_costs)
        case _:
            return None


def conduct_of(way: Fresh, stale_costs: float) -> Conduct:
    """How a way to decide is played. What a stale use is worth makes a difference to a forecast alone."""
    return Conduct(
        form="compact", fresh=way, stale_costs=stale_costs if way == "forecast" else PLAIN_STALE_COSTS
    )


def forecast_runs() -> list[RunSpec]:
    """The runs of the forecast, and of what it is compared with."""
    ways: tuple[Fresh, ...] = ("none", "use", "heuristic", "forecast")
    conducts = dict.fromkeys(conduct_of(way, costs) for way in ways for costs in STALE_COSTS)
    streams = [(stream, len(REPORTED)) for stream in _DRAWN] + [(stream, 1) for stream in _AS_THEY_ARE]
    return [
        RunSpec(stream, EXACT.name, "compliant", seed, consume=Consume.APPLY, conduct=conduct)
        for stream, draws in streams
        for seed in REPORTED[:draws]
        for conduct in conducts
    ]
