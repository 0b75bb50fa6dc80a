"""What a memory is worth: what it holds and what it has done, by server and over time."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from shelflife.client import Store
from shelflife.client.diary import HOUR_S, KEPT_HOURS, KeepsDiary, Noted
from shelflife.client.entries import Root
from shelflife.client.events import Reason
from shelflife.client.strategies import EVERYTHING, SUSPECT

__all__ = ["MEANINGS", "Doings", "Looking", "Worth"]

_DOUBTS = ("suspected", "loglost", "distrusted", f"evicted:{Reason.IN_DOUBT.name.lower()}")
_EVICTED = "evicted:"
_MOST_AHEAD = 2
"""So many hours after the one before are taken for those of a clock that is right."""


class Doings(NamedTuple):
    """What was done, in counts. `MEANINGS` says what each is."""

    hits: int = 0
    misses: int = 0
    saved: int = 0
    learned: int = 0
    evicted: int = 0
    doubts: int = 0


MEANINGS = {
    "hits": "Requests for which one fix or more was remembered. Such a request is still refused where it needs another.",
    "misses": "Requests for which none was.",
    "saved": "Requests accepted at the first attempt with a remembered fix in them: refusals that did not happen.",
    "learned": "Fixes that a server gave, for the first time or again.",
    "evicted": "Fixes that left, for whatever reason.",
    "doubts": "Fixes that a server had to be asked about before they could be used, and servers whose state was in doubt.",
}
"""What is counted, in words for whoever reads it."""


class Worth(NamedTuple):
    """A memory, looked at."""

    held: Counter[Root]
    """How many fixes it holds of each server."""

    suspect: Counter[Root]
    """How many of those have to be asked about before they are used."""

    by_root: dict[Root, Doings]
    by_hour: dict[int, Doings]
    """By hours since 1970, the first first."""

    reasons: Counter[Reason]
    """Why fixes have left."""

    @property
    def total(self) -> Doings:
        """All that was done."""
        return Doings(*map(sum, zip(Doings(), *self.by_root.values(), strict=True)))

    @property
    def roots(self) -> list[Root]:
        """Every server that there is something of."""
        return sorted({*self.held, *self.by_root})


class Looking:
    """Looks at a memory again and again. What is further back than the hour before is read once, and is in the first hour from then on."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock = store, clock
        self._diary = store.diary if isinstance(store, KeepsDiary) else None
        self._past: list[Noted] = []
        self._ahead: dict[tuple[int, Root, str], Noted] = {}
        self._read_from = 0

    def __call__(self) -> Worth:
        """What there is to see of it now."""
        roots = self._store.roots()
        held = Counter({root: self._store.count(root, *EVERYTHING) for root in roots})
        suspect = Counter({root: self._store.count(root, SUSPECT) for root in roots})
        now_from = int(self._clock()) // HOUR_S - 1  # of the hour before some may still be written
        # When the clock was set back, what is written from now on may be in any hour since.
        if now_from < self._read_from:
            self._past, self._ahead, self._read_from = [], {}, 0
        noted = [] if self._diary is None else self._diary.read(self._read_from)
        latest = now_from + _MOST_AHEAD
        # What is far ahead of its time is told again by some engines, and by others not.
        seen = {**self._ahead, **{one[:3]: one for one in noted if one.hour > latest}}
        self._ahead = {what: one for what, one in seen.items() if one.hour > latest}
        self._past += [one for one in noted if one.hour < now_from]
        recent = (one for one in noted if now_from <= one.hour <= latest)
        every = (*self._past, *recent, *self._ahead.values())
        worth = _worth_of(+held, suspect, [_in_time(one, now_from + 1) for one in every])
        self._past, self._read_from = _in_the_first_hour(self._past), now_from
        return worth


def _in_time(noted: Noted, now: int) -> Noted:
    """One of a clock that was far off, at the nearest hour that can be right."""
    return noted._replace(hour=min(max(noted.hour, now - KEPT_HOURS), now))


def _in_the_first_hour(noted: Sequence[Noted]) -> list[Noted]:
    times: Counter[tuple[Root, str]] = Counter()
    for one in noted:
        times[one.root, one.what] += one.times
    first = min((one.hour for one in noted), default=0)
    return [Noted(first, root, what, count) for (root, what), count in times.items()]


def _worth_of(held: Counter[Root], suspect: Counter[Root], noted: Iterable[Noted]) -> Worth:
    reasons = Counter[Reason]()
    by_root: defaultdict[Root, Counter[str]] = defaultdict(Counter)
    by_hour: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for hour, root, what, times in noted:
        if root:
            by_root[root][what] += times
        by_hour[hour][what] += times
        name = what.removeprefix(_EVICTED).upper()
        if what.startswith(_EVICTED) and name in Reason.__members__:
            reasons[Reason[name]] += times
    return Worth(
        held,
        suspect,
        {root: _doings(counts) for root, counts in by_root.items()},
        {hour: _doings(counts) for hour, counts in sorted(by_hour.items())},
        reasons,
    )


def _doings(counts: Counter[str]) -> Doings:
    evicted = sum(times for what, times in counts.items() if what.startswith(_EVICTED))
    doubts = sum(counts[what] for what in _DOUBTS)
    return Doings(counts["hits"], counts["misses"], counts["saved"], counts["stored"], evicted, doubts)
