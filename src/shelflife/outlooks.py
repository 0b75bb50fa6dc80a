"""What is said to people of how things change: how often, by what habit, and when the next change is due."""

from typing import NamedTuple

from shelflife.habits import Habit, Kind, habit_of
from shelflife.histories import Histories

__all__ = ["CONFIDENCE", "Due", "Outlook", "outlooks"]

CONFIDENCE = 0.8
"""How likely it is that what is due comes within the time that is said."""

_FURTHEST = 1_000
"""As a multiple of the usual gap: of what is later nothing is said."""

_EXACTLY = 1e-3


class Due(NamedTuple):
    """When the next change is to be expected."""

    after: float
    by: float


class Outlook(NamedTuple):
    """What is said of one thing, or of a part of it."""

    name: str
    changes: int
    """How many are on record: of what has changed often, the last ones."""

    last_at: float
    habit: Kind
    follows: str | None
    """What it changes after."""

    usual_gap: float | None
    due: Due | None
    """None where there is no pattern to tell it by."""


def outlooks(histories: Histories, looked_at: float) -> list[Outlook]:
    """Of all that was seen to change, given that nothing has since the last look. What is due first comes first."""
    found = []
    for name, seen in histories.seen.items():
        habit = habit_of(histories, name)
        due = _due(habit, looked_at)
        found.append(Outlook(name, len(seen), seen[-1].by, habit.kind, habit.leader, habit.usual_gap, due))
    return sorted(found, key=lambda one: (one.due is None, one.due, -one.changes, one.name))


def _due(habit: Habit, looked_at: float) -> Due | None:
    if habit.kind in ("no pattern", "too little seen") or not habit.usual_gap:
        return None
    ends = [
        _when(habit, looked_at, habit.usual_gap, part)
        for part in ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
    ]
    return None if ends[0] is None or ends[1] is None else Due(ends[0], ends[1])


def _when(habit: Habit, looked_at: float, usual_gap: float, chance: float) -> float | None:
    """The moment by which it is so likely to have changed."""
    early, late = 0.0, usual_gap
    while (habit.chance(looked_at, looked_at + late) or 0.0) < chance:
        early, late = late, 2 * late
        if late > _FURTHEST * usual_gap:
            return None
    while late - early > _EXACTLY * usual_gap:
        middle = (early + late) / 2
        if (habit.chance(looked_at, looked_at + middle) or 0.0) < chance:
            early = middle
        else:
            late = middle
    return looked_at + late
