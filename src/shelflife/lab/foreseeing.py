"""How agents of the lab decide whether to ask before use, and what becomes of each decision."""

from collections.abc import Callable, Sequence

from shelflife.client import Entry
from shelflife.client.foresight import Forecast, Foresight, chance_of
from shelflife.habits import Histories
from shelflife.lab.spec import Conduct

__all__ = ["Always", "Heuristic", "Weighed", "foresight_of"]

_SHARE = 0.1


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
