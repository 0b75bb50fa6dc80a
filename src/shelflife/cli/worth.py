"""What a memory is worth: what it holds and what it has done, by server and over time."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from shelflife.client.diary import Noted
from shelflife.client.entries import Entry, Root
from shelflife.client.events import Reason

__all__ = ["Doings", "Worth", "worth_of"]

_DOUBTS = ("suspected", "loglost", "distrusted", f"evicted:{Reason.IN_DOUBT.name.lower()}")
_EVICTED = "evicted:"


class Doings(NamedTuple):
    """What was done, in counts."""

    hits: int = 0
    """How often something was found for a request."""

    misses: int = 0
    """How often nothing was."""

    saved: int = 0
    """Requests accepted at the first attempt with a remembered fix in them: refusals that did not happen."""

    learned: int = 0
    """Fixes that were learned, or given again."""

    evicted: int = 0
    """Fixes that left, for whatever reason."""

    doubts: int = 0
    """Fixes that had to be asked about before they could be used, and servers whose state was in doubt."""


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


def worth_of(entries: Iterable[Entry], noted: Iterable[Noted]) -> Worth:
    """What there is to see of a memory."""
    held, suspect, reasons = Counter[Root](), Counter[Root](), Counter[Reason]()
    by_root: defaultdict[Root, Counter[str]] = defaultdict(Counter)
    by_hour: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for entry in entries:
        held[entry.root] += 1
        suspect[entry.root] += entry.is_suspect
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
