"""What a memory has done, counted from its events."""

import threading
from collections import Counter, OrderedDict
from typing import Any

import msgspec

from shelflife.client.entries import Entry
from shelflife.client.events import Applied, Event, Evicted, Reason, Restamped, Stored, Suspected

__all__ = ["Statistics", "Tally"]

_MOST_GONE = 10_000


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """What a memory has done since it was made."""

    hits: int
    misses: int
    stored: int
    restamped: int
    applied: int
    stale_prevented: int
    """Evictions because something the entry rests on had changed."""

    evictions: dict[str, int]
    """By reason."""

    suspected: int
    """Entries that were kept from being evicted, and from being handed out, by the bound on evictions."""

    confirmed: int
    """Of these evictions, those after which the server gave another value for the same."""

    needless: int
    """Those after which it gave the same value again."""

    @property
    def precision(self) -> float | None:
        """The share of evictions that were right, among those of which it is known; None when it is of none."""
        judged = self.confirmed + self.needless
        return self.confirmed / judged if judged else None


class Tally:
    """Counts, and remembers within bounds which values are gone. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._evictions: Counter[Reason] = Counter()
        self._gone: OrderedDict[str, dict[str, Any]] = OrderedDict()

    @property
    def statistics(self) -> Statistics:
        """The counts as they are now."""
        with self._lock:
            counts, evictions = Counter(self._counts), Counter(self._evictions)
        return Statistics(
            hits=counts["hits"],
            misses=counts["misses"],
            stored=counts["stored"],
            restamped=counts["restamped"],
            applied=counts["applied"],
            stale_prevented=sum(count for reason, count in evictions.items() if reason.is_invalidation),
            evictions={reason.name.lower(): count for reason, count in sorted(evictions.items())},
            suspected=counts["suspected"],
            confirmed=counts["confirmed"],
            needless=counts["needless"],
        )

    def count_recall(self, *, is_hit: bool) -> None:
        """A recall found something, or did not."""
        with self._lock:
            self._counts["hits" if is_hit else "misses"] += 1

    def count(self, event: Event) -> None:
        """Count an event."""
        with self._lock:
            match event:
                case Evicted(entry, reason):
                    self._evictions[reason] += 1
                    if reason.is_invalidation:
                        self._note_gone(entry)
                case Suspected():
                    self._counts["suspected"] += event.count
                case Applied():
                    self._counts["applied"] += 1
                case Stored(entry):
                    self._counts["stored"] += 1
                    self._judge_eviction(entry)
                case Restamped():
                    self._counts["restamped"] += event.count
                case _:
                    pass

    def _note_gone(self, entry: Entry) -> None:
        self._gone[entry.slot] = entry.parameters
        while len(self._gone) > _MOST_GONE:
            self._gone.popitem(last=False)

    def _judge_eviction(self, entry: Entry) -> None:
        before = self._gone.pop(entry.slot, None) if self._gone else None
        if before is not None:
            self._counts["needless" if before == entry.parameters else "confirmed"] += 1
