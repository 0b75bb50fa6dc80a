"""Whether what a memory showed and dropped was right, by the records of a run; and how that reads by other definitions."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from shelflife.lab.records import Drifted, Evicted, RunStarted, Shown

__all__ = ["SLOT_WIDTHS", "eligible_by_width", "is_right", "is_true", "precision", "precision_by"]

SLOT_WIDTHS = (0, 1, 2, 3)
"""How many episodes after a drift may be left out of the compliance. The paper's tables leave out two."""


def is_true(entry: Shown, episode: int, drifts: Sequence[Drifted]) -> bool:
    """Whether the server would still have given a remembered fix in an episode."""
    return _vector(entry, episode, drifts) is not None


def is_right(eviction: Evicted, drifts: Sequence[Drifted]) -> bool:
    """Whether an entry was rightly dropped: it was stale, or names a table that the server would name no more."""
    vector = _vector(eviction.entry, eviction.episode, drifts)
    return vector is None or bool({*eviction.entry.tables}.difference(vector))


def precision(
    evictions: Sequence[Evicted],
    drifts: Sequence[Drifted],
    is_right: Callable[[Evicted, Sequence[Drifted]], bool] = is_right,
) -> float | None:
    """The share of evictions that were right; None where there was none."""
    if not evictions:
        return None
    return sum(is_right(eviction, drifts) for eviction in evictions) / len(evictions)


def precision_by(evictions: Sequence[Evicted], drifts: Sequence[Drifted]) -> dict[str, float | None]:
    """The same by each definition that the paper speaks of.

    - `value`: the server would not give the fix any more, or would not name one of its tables with it. This is the score's own.
    - `row`: the server's diff names a row that it rests on.
    - `table`: a table that it rests on has moved, which the paper says would warrant a cleared table.
    - `count`: one over the number of evictions, as the paper writes it: of a run's evictions, one is taken to be right.

    Rows and tables say nothing where rules drift, and rows nothing of a fix that does not tell its own.
    """
    is_of_tables = all(drift.table is not None for drift in drifts)
    tells_rows = all(eviction.entry.rows is not None for eviction in evictions)
    return {
        "value": precision(evictions, drifts),
        "row": precision(evictions, drifts, _is_right_by_row) if is_of_tables and tells_rows else None,
        "table": precision(evictions, drifts, _is_right_by_table) if is_of_tables else None,
        "count": 1 / len(evictions) if evictions else None,
    }


def _is_right_by_row(eviction: Evicted, drifts: Sequence[Drifted]) -> bool:
    changed = {row for drift in _since(eviction.entry, eviction.episode, drifts) for row in drift.rows}
    return not changed.isdisjoint(eviction.entry.rows or ())


def _is_right_by_table(eviction: Evicted, drifts: Sequence[Drifted]) -> bool:
    moved = {drift.table for drift in _since(eviction.entry, eviction.episode, drifts)}
    return not moved.isdisjoint(eviction.entry.tables)


def _since(entry: Shown, episode: int, drifts: Sequence[Drifted]) -> list[Drifted]:
    """What has drifted between the episode that taught an entry and another."""
    return [drift for drift in drifts if entry.learned_in <= drift.after < episode]


def _vector(entry: Shown, episode: int, drifts: Sequence[Drifted]) -> Sequence[str] | None:
    """The tables that the server would have named with a remembered fix in an episode; None if it would not have given that fix."""
    judged = [drift.judged[entry.id] for drift in _since(entry, episode, drifts) if entry.id in drift.judged]
    if not judged:
        return entry.tables
    return next((fix.tables for fix in judged[-1].fixes if fix.is_same(entry)), None)


def eligible_by_width(start: RunStarted, moments: Sequence[int]) -> dict[int, list[int]]:
    """The episodes over which compliance would be measured, by how many after each drift are left out as stale slots.

    A drift that has no stale slot has none at any width. The families that it concerns are those of its slots.
    """
    met_again = [
        index
        for index, in_class in enumerate(start.classes)
        if in_class == start.governed and index not in start.first_meetings
    ]
    slots: dict[int, list[int]] = {}
    for slot in start.stale_slots:
        slots.setdefault(max((moment for moment in moments if moment < slot), default=-1), []).append(slot)
    following: list[list[int]] = []
    for moment, end in pairwise([*sorted(slots), len(start.classes)]):
        families = {start.families[slot] for slot in slots[moment]}
        following.append(
            [index for index in met_again if moment < index <= end and start.families[index] in families]
        )
    return {
        width: [index for index in met_again if all(index not in after[:width] for after in following)]
        for width in SLOT_WIDTHS
    }
