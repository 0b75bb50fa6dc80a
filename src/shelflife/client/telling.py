"""Saying what happens: to whoever listens, to the log and to the statistics; and once when the store fails."""

import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import finalize

import msgspec

from shelflife.client.asking import Exchange, Fields
from shelflife.client.diary import HOUR_S, Diary, Noted
from shelflife.client.entries import Entry, Root, digest_in_bytes, is_below
from shelflife.client.events import Applied, Event, Evicted, Reason, Refused, Stored, StoreFailed, Unjudged
from shelflife.client.stores import StoreError
from shelflife.contract import Suggestion
from shelflife.contract.names import shown
from shelflife.errors import ShelflifeError
from shelflife.forks import Locking

__all__ = ["Statistics", "Telling"]

_log = logging.getLogger("shelflife.memory")

_MOST_GONE = 10_000
"""Of each root."""
_MOST_LATELY = 1_000
_MOST_WARNED = 100
"""So many warnings at most are told once: the names in them are a server's, which may think up ever new ones."""

_UNJUDGED = (
    "a request for %s with remembered values was answered by %s, and nobody has said that they still hold: they may"
    " have been stale"
)
_SERVER_FAILURE = 500

_MOST_REFUSED = 100
"""So many requests that were refused are in mind, the last ones. Agents mend a request soon, or never."""

_WRITTEN_EVERY_S = 2.0
"""So long what was counted waits at most before it is written, as long as something happens. A process that is killed takes it along."""

_MOST_ROOTS = 1_000
_OTHERS = "others"
"""Stands for the servers beyond these: replies may send an agent to ever new ones."""


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """What a memory has done since it was made.

    `stale_prevented` are evictions because something had changed. Of these, `confirmed` are those after which the server gave another value,
    `needless` those after which it gave the same one; of the others it is not known yet. `saved` are refusals that did not happen.
    """

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

    saved: int
    """Requests that were accepted at their first attempt, with a remembered fix in them. Each would have been refused first."""

    @property
    def precision(self) -> float | None:
        """The share of evictions that were right, among those of which it is known; None when it is of none."""
        judged = self.confirmed + self.needless
        return self.confirmed / judged if judged else None


class Counting(Locking):
    """Counts by server what a memory does, and writes it into its diary now and then. Threads may share it."""

    def __init__(self, diary: Diary | None, clock: Callable[[], float]) -> None:
        self._diary = diary
        self._clock = clock
        self.by_root: dict[Root, Counter[str]] = {}
        self._written: dict[Root, Counter[str]] = {}
        self._last_at: float | None = None
        self._is_failing = False
        super().__init__()

    def count(self, root: Root, what: str, count: int = 1) -> None:
        """Something happened. It is written with what else was counted, unless that was done a moment ago."""
        with self._lock:
            counts = self.by_root.get(root)
            if counts is None:
                counts = self.by_root.setdefault(
                    root if len(self.by_root) < _MOST_ROOTS else _OTHERS, Counter()
                )
            counts[what] += count
        if self._diary is None:
            return
        now = self._clock()
        if self._last_at is None:
            self._last_at = now
        elif not 0 <= now - self._last_at < _WRITTEN_EVERY_S:  # also when the clock was set back
            self.write()

    @property
    def total(self) -> Counter[str]:
        """What happened, of all servers together."""
        with self._lock:
            return sum(self.by_root.values(), Counter())

    def after_fork_in_child(self) -> None:
        """The parent writes what it has counted."""
        super().after_fork_in_child()
        self._written = {root: counts.copy() for root, counts in self.by_root.items()}

    def write(self) -> bool:
        """Write what was counted since the last time, and whether that is done. What cannot be written waits for the next time; it is said once.

        Where only the answer was lost, it counts twice.
        """
        diary, now = self._diary, self._clock()
        if diary is None:
            return True
        with self._lock:
            self._last_at = now
            hour = int(now // HOUR_S)
            news = {
                root: counts - self._written.get(root, Counter()) for root, counts in self.by_root.items()
            }
            noted = [
                Noted(hour, root, what, count)
                for root, counts in news.items()
                for what, count in counts.items()
            ]
            self._add_up(news, 1)
        if not noted:
            return True
        try:
            diary.add(noted)
            self._is_failing = False
            return True
        except ShelflifeError as error:
            if not self._is_failing:
                _log.warning("%s; what the memory does is not noted", error)
            self._is_failing = True
            with self._lock:
                self._add_up(news, -1)
            return False

    def _add_up(self, news: dict[Root, Counter[str]], sign: int) -> None:
        for root, counts in news.items():
            written = self._written.setdefault(root, Counter())
            for what, count in counts.items():
                written[what] += sign * count


class _Gone(dict[Root, OrderedDict[str, dict[str, Any]]]):
    """Which values are gone, by server. Of too many servers the first goes."""

    def __missing__(self, root: Root) -> OrderedDict[str, dict[str, Any]]:
        if len(self) >= _MOST_ROOTS:
            del self[next(iter(self))]
        return self.setdefault(root, OrderedDict())


class _Refused(msgspec.Struct, frozen=True):
    """A request that a server has refused, with fixes for some of its fields."""

    root: Root
    operation: str
    fixed: frozenset[str]
    rest: bytes
    """The digest of all other fields, as they were sent."""

    def is_mended_by(self, root: Root, operation: str, request: Fields) -> bool:
        """Whether a request is the same but for what was fixed. The contract may have been found below its server meanwhile."""
        return (
            operation == self.operation
            and (is_below(root, self.root) or is_below(self.root, root))
            and _rest(request, self.fixed) == self.rest
        )


class Telling(Locking):
    """What one memory tells. It also counts, and remembers within bounds which values are gone. Threads may share it."""

    def __init__(
        self,
        on_event: Callable[[Event], None] | None,
        clock: Callable[[], float],
        diary: Diary | None = None,
    ) -> None:
        super().__init__()
        self._counting = Counting(diary, clock)
        self.count = self._counting.count
        """Something happened that is no event: `hits` or `misses`."""
        self.write_diary = self._counting.write
        if diary is not None:
            # Agents are often short-lived, and seldom close their memory: it is written when this goes, or when the program ends.
            finalize(self, diary.at_the_end, self.write_diary)
        self._gone = _Gone()
        self._gone_lately: list[Entry] = []
        """What is still to be put down there, which takes a digest for each."""
        self._warned: set[str] = set()
        self._refused: deque[_Refused] = deque(maxlen=_MOST_REFUSED)
        self.listeners = [] if on_event is None else [on_event]
        """Who is told every event. What they raise is logged, and goes no further."""
        self.failing_at = ""
        """What the store could not do when it was last tried; empty while it works."""

    def tell(self, events: Iterable[Event]) -> list[Event]:
        """Tell everybody, and hand the events on."""
        told = list(events)
        if not told:
            return told
        self._count(told)
        is_logged = _log.isEnabledFor(logging.DEBUG)
        if not is_logged and not self.listeners:  # as mostly; of what has left there may be thousands
            return told
        for event in told:
            if is_logged:
                _log.debug("%s", event)
            for told_to in self.listeners:
                try:
                    told_to(event)
                except Exception:  # noqa: BLE001 - whatever it raises, what was observed is observed
                    _log.exception("whoever listens to the events of the memory has failed")
        return told

    def note_refused(self, exchange: Exchange, suggestions: Iterable[Suggestion]) -> None:
        """A request was refused, with these fixes.

        A server refuses for all its reasons at once. Where one of several fixes was remembered, the request is refused for the others as it
        would have been without: when it is mended and accepted, no refusal was spared.
        """
        fixed = frozenset(name for one in suggestions for name in one.parameters)
        named = _named(exchange.operation, exchange.path)
        with suppress(TypeError, ValueError, RecursionError):  # one that is no JSON was not sent so
            refused = _Refused(exchange.root, named, fixed, _rest(exchange.request, fixed))
            with self._lock:
                self._refused.append(refused)

    def is_mended(self, root: Root, operation: str, path: str | None, request: Fields) -> bool:
        """Whether a request that was accepted is one that was refused, mended. From then on that is done with."""
        if not self._refused:  # as mostly
            return False
        named = _named(operation, path)
        with self._lock:
            found = [one for one in self._refused if one.is_mended_by(root, named, request)]
            for one in found:
                self._refused.remove(one)
        return bool(found)

    def _tell_refusal(self, refused: Refused) -> None:
        """Of each operation and reason, which names the field: nobody need wonder why nothing is applied."""
        self.warn_once(f"the guard keeps what is remembered out of {refused.entry.operation}: {refused.why}")

    def tell_unjudged(self, exchange: Exchange) -> list[Event]:
        """Nobody has found the precondition of a request to be met. A server that has failed says nothing of what it does elsewhere."""
        if exchange.reply.status < _SERVER_FAILURE:
            self.warn_once(_UNJUDGED % (shown(exchange.operation), exchange.root))
        return self.tell([Unjudged(exchange.root, exchange.operation)])

    def warn_once(self, text: str) -> None:
        """Warn, unless that was said before."""
        if text not in self._warned and len(self._warned) < _MOST_WARNED:
            self._warned.add(text)
            _log.warning("%s", text)

    def store_works(self, doing: str) -> None:
        """The store could be read, or written. One that cannot be written may still be read."""
        if doing == "write" or self.failing_at == "read":
            self.failing_at = ""

    def store_failed(self, error: StoreError, doing: str) -> None:
        """Say so, once until it works again."""
        is_news = not self.failing_at
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

    @property
    def statistics(self) -> Statistics:
        """The counts as they are now."""
        counts = self._counting.total
        evictions = {reason: count for reason in Reason if (count := counts[_EVICTED[reason]])}
        names = (
            "hits",
            "misses",
            "stored",
            "restamped",
            "applied",
            "suspected",
            "confirmed",
            "needless",
            "saved",
        )
        return Statistics(
            **{name: counts[name] for name in names},
            stale_prevented=sum(count for reason, count in evictions.items() if reason.is_invalidation),
            evictions={reason.name.lower(): count for reason, count in sorted(evictions.items())},
        )

    def _count(self, told: Iterable[Event]) -> None:
        """Count events, and keep in mind what is gone. Of those that left for the same reason there may be thousands."""
        counted: list[tuple[Root, str, int]] = []
        refused: list[Refused] = []
        root, reason, left_count, is_invalidation = "", Reason.CAPACITY, 0, False
        with self._lock:
            lately = self._gone_lately
            for event in told:
                if type(event) is not Evicted:
                    of = _root_of(event)
                    counted.append((of, type(event).__name__.lower(), getattr(event, "count", 1)))
                    if type(event) is Stored:
                        counted += self._judged(event.entry)
                    elif type(event) is Refused:
                        refused.append(event)
                    continue
                entry = event.entry
                if event.reason is not reason or entry.root != root:
                    counted.append((root, _EVICTED[reason], left_count))
                    root, reason, left_count = entry.root, event.reason, 0
                    is_invalidation = reason.is_invalidation
                left_count += 1
                if is_invalidation:
                    lately.append(entry)
            if len(lately) > _MOST_LATELY:
                self._put_down_gone()
        counted.append((root, _EVICTED[reason], left_count))
        for of, what, count in counted:
            if count:
                self.count(of, what, count)
        for one in refused:
            self._tell_refusal(one)

    def _put_down_gone(self) -> None:
        """Keep of what has gone only what is compared with what comes in its place."""
        lately, self._gone_lately = self._gone_lately, []
        for entry in lately:
            gone = self._gone[entry.root]
            gone[entry.slot] = entry.parameters
            if len(gone) > _MOST_GONE:
                gone.popitem(last=False)

    def _judged(self, entry: Entry) -> list[tuple[Root, str, int]]:
        """Whether it was right that something has gone, if this has come in its place."""
        self._put_down_gone()
        before = self._gone[entry.root].pop(entry.slot, None)
        if before is None:
            return []
        return [(entry.root, "needless" if before == entry.parameters else "confirmed", 1)]


_EVICTED = {reason: f"evicted:{reason.name.lower()}" for reason in Reason}
"""What evictions are counted as."""


def _named(operation: str, path: str | None) -> str:
    """What a request is for, wherever its contract is found to live."""
    return operation if path is None else f"{operation.partition(' ')[0]} {path}"


def _rest(request: Fields, fixed: frozenset[str]) -> bytes:
    return digest_in_bytes({name: value for name, value in request.items() if name not in fixed})


def _root_of(event: Event) -> Root:
    """The server that an event is about; empty when it is about none."""
    match event:
        case Stored(entry) | Evicted(entry) | Applied(entry) | Refused(entry):
            return entry.root
        case StoreFailed():
            return ""
        case _:
            return event.root
