"""Foresight: whether what a fix rests on is likely to have changed since its server was heard, so that asking pays before use."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from shelflife.client.entries import Entry, Knowledge, Root
from shelflife.contract.positions import Moved
from shelflife.histories import Histories, changed_names

__all__ = ["Forecast", "Foresight", "Lookout", "chance_of"]

_MOST_ROOTS = 1_000
"""Of so many servers it is known when they were last heard: replies may send an agent to ever new ones."""


class Foresight(Protocol):
    """Decides whether to ask a server before what is remembered of it is used."""

    def is_due(self, entries: Sequence[Entry], histories: Histories, looked_at: float, now: float) -> bool:
        """Whether to ask before these are used. They were good when the server was last heard."""
        ...


class Forecast:
    """Asks where a stale fix is so likely that a question costs less."""

    def __init__(self, *, stale_costs: float = 3.0) -> None:
        """One that knows what a stale fix costs.

        - `stale_costs` says how many questions one use of a stale fix is worth.
        """
        if not stale_costs > 0:
            raise ValueError("stale_costs says how many questions a stale use is worth: a number above 0")
        self.stale_costs = stale_costs

    def is_due(self, entries: Sequence[Entry], histories: Histories, looked_at: float, now: float) -> bool:
        return self.stale_costs * chance_of(entries, histories, looked_at, now) > 1


class Lookout:
    """Where a memory looks out for what is due: when it last heard each server, and what it has seen to change there."""

    def __init__(self, foresight: Foresight, clock: Callable[[], float]) -> None:
        self._foresight = foresight
        self._clock = clock
        self._looked_at: dict[Root, float] = {}

    def note_look(self, root: Root) -> None:
        """A reply was of the state that is known."""
        self._looked_at.pop(root, None)
        self._looked_at[root] = self._clock()
        if len(self._looked_at) > _MOST_ROOTS:
            with suppress(KeyError, RuntimeError):  # another thread has just done the same
                del self._looked_at[next(iter(self._looked_at))]

    def was_heard(self, root: Root, since: float) -> bool:
        """Whether there was one since then."""
        return self._looked_at.get(root, 0.0) >= since

    def with_history(self, root: Root, knowledge: Knowledge, moved: Moved | None) -> Knowledge:
        """What is known, with what has moved since the last look."""
        now = self._clock()
        histories = knowledge.histories or Histories(now)
        if moved is not None:
            histories = histories.after(_names_of(moved), self._last_look(root, histories, now), now)
        return msgspec.structs.replace(knowledge, histories=histories)

    def is_due(self, root: Root, entries: Sequence[Entry], histories: Histories, now: float) -> bool:
        """Whether to ask before these are used."""
        return self._foresight.is_due(entries, histories, self._last_look(root, histories, now), now)

    def _last_look(self, root: Root, histories: Histories, now: float) -> float:
        """Of what another process has heard it is known only when something had changed."""
        last = max(self._looked_at.get(root, histories.since), histories.looked_at)
        return min(now, last)  # a clock may have been set back


def chance_of(entries: Sequence[Entry], histories: Histories, looked_at: float, now: float) -> float:
    """That one of them has gone stale since. What was seldom or never seen to change counts for nothing."""
    from shelflife.habits import chance_of as chance_of_one  # which most memories do without

    good = 1.0
    for part in dict.fromkeys(part for entry in entries for part in _parts_of(entry)):
        good *= 1 - chance_of_one(histories, part, looked_at, now)
    return 1 - good


def _parts_of(entry: Entry) -> tuple[str, ...]:
    rows = entry.grounds.rows
    return entry.grounds.tables if rows is None else rows


def _names_of(moved: Moved) -> Iterator[str]:
    """What has moved, by the names under which it is kept: tables, and their rows where not too many have."""
    for table, change in moved.tables.items():
        yield from changed_names(table, (*change.added, *change.removed, *change.changed))
