"""Saying what happens: to whoever listens, to the log and to the statistics; and once when the store fails."""

import logging
import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from shelflife.client.entries import Root
from shelflife.client.events import Event, Evicted, Reason, Refused, Stored, StoreFailed
from shelflife.client.stores import StoreError
from shelflife.forks import Locking

__all__ = ["Statistics", "Telling"]

_log = logging.getLogger("shelflife.memory")

_BACK_OFF_S = 3.0
_MOST_GONE = 10_000
"""Of each root."""
_MOST_REFUSALS = 100
"""So many at most are told: the names in them are a server's, which may think up ever new ones."""


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """What a memory has done since it was made."""

    hits: int
    """How often something was found for a request."""

    misses: int
    """How often nothing was."""

    stored: int
    """Fixes that were learned."""

    restamped: int
    """Entries that were found to be still good after a table of theirs had moved."""

    applied: int
    """Fixes that were written into requests."""

    stale_prevented: int
    """Evictions because something the entry rests on had changed."""

    evictions: dict[str, int]
    """By reason."""

    suspected: int
    """Entries that were kept as suspects, which are not used until they are revalidated."""

    confirmed: int
    """Evictions because of a change after which the server gave another value for the same fields."""

    needless: int
    """Those after which it gave the same value again."""

    @property
    def precision(self) -> float | None:
        """The share of evictions that were right, among those of which it is known; None when it is of none."""
        judged = self.confirmed + self.needless
        return self.confirmed / judged if judged else None


class Telling(Locking):
    """What one memory tells. It also counts, and remembers within bounds which values are gone. Threads may share it."""

    def __init__(self, on_event: Callable[[Event], None] | None, clock: Callable[[], float]) -> None:
        super().__init__()
        self._counts: Counter[str] = Counter()
        self._hit_count = self._miss_count = 0
        self._evictions: Counter[Reason] = Counter()
        self._gone: defaultdict[Root, OrderedDict[str, dict[str, Any]]] = defaultdict(OrderedDict)
        self._refusals: set[str] = set()
        self._on_event = on_event
        self._clock = clock
        self.failing_at = ""
        """What the store could not do when it was last tried; empty while it works."""
        self._write_failed_at = -math.inf

    def tell(self, events: Iterable[Event]) -> list[Event]:
        """Tell everybody, and hand the events on."""
        told = list(events)
        if not told:
            return told
        with self._lock:
            for event in told:
                self._count(event)
        is_logged = _log.isEnabledFor(logging.DEBUG)
        for event in told:
            if is_logged:
                _log.debug("%s", event)
            if isinstance(event, Refused):
                self._tell_refusal(event)
            if self._on_event is not None:
                try:
                    self._on_event(event)
                except Exception:  # noqa: BLE001 - whatever it raises, what was observed is observed
                    _log.exception("whoever listens to the events of the memory has failed")
        return told

    def _tell_refusal(self, refused: Refused) -> None:
        """Warn once for each operation and reason, which names the field: nobody need wonder why nothing is applied."""
        text = f"the guard keeps what is remembered out of {refused.entry.operation}: {refused.why}"
        if text not in self._refusals and len(self._refusals) < _MOST_REFUSALS:
            self._refusals.add(text)
            _log.warning("%s", text)

    def store_works(self, doing: str) -> None:
        """The store could be read, or written. One that cannot be written may still be read."""
        if doing == "write" or self.failing_at == "read":
            self.failing_at = ""
        if doing == "write":
            self._write_failed_at = -math.inf

    def store_failed(self, error: StoreError, doing: str) -> None:
        """Say so, once until it works again."""
        is_news = not self.failing_at
        if doing == "write" and not self._is_backing_off:
            self._write_failed_at = self._clock()
        if doing == "write" or is_news:
            self.failing_at = doing
        if is_news:
            _log.warning("%s; the agent goes on without memory", error)
            self.tell([StoreFailed(str(error))])

    def store_has_lost(self, why: str) -> None:
        """Say so. It works all the same."""
        _log.warning("%s; its servers are asked before anything is used", why)
        self.tell([StoreFailed(why)])

    @contextmanager
    def failing(self, doing: str) -> Iterator[None]:
        """While the store is read or written; what it cannot do is told, and goes no further."""
        try:
            yield
        except StoreError as error:
            self.store_failed(error, doing)

    def check_back_off(self) -> None:
        """What could not be written is not tried again for a moment: the wait for a lock is the agent's."""
        if self._is_backing_off:
            raise StoreError("the memory could not be written a moment ago")

    @property
    def _is_backing_off(self) -> bool:
        return 0 <= self._clock() - self._write_failed_at < _BACK_OFF_S

    @property
    def statistics(self) -> Statistics:
        """The counts as they are now."""
        with self._lock:
            counts, evictions = Counter(self._counts), Counter(self._evictions)
            counts["hits"], counts["misses"] = self._hit_count, self._miss_count
        names = ("hits", "misses", "stored", "restamped", "applied", "suspected", "confirmed", "needless")
        return Statistics(
            **{name: counts[name] for name in names},
            stale_prevented=sum(count for reason, count in evictions.items() if reason.is_invalidation),
            evictions={reason.name.lower(): count for reason, count in sorted(evictions.items())},
        )

    def count_recall(self, *, is_hit: bool) -> None:
        """A recall found something, or did not."""
        with self._lock:
            if is_hit:
                self._hit_count += 1
            else:
                self._miss_count += 1

    def _count(self, event: Event) -> None:
        """Count an event, under the lock."""
        if isinstance(event, Evicted):
            reason, entry = event.reason, event.entry
            self._evictions[reason] += 1
            if reason.is_invalidation:
                gone = self._gone[entry.root]
                gone[entry.slot] = entry.parameters
                if len(gone) > _MOST_GONE:
                    gone.popitem(last=False)
            return
        self._counts[type(event).__name__.lower()] += getattr(event, "count", 1)
        if isinstance(event, Stored):
            gone, slot = self._gone[event.entry.root], event.entry.slot
            if slot in gone:
                is_same = gone.pop(slot) == event.entry.parameters
                self._counts["needless" if is_same else "confirmed"] += 1
