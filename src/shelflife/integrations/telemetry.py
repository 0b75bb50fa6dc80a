"""What both sides need of OpenTelemetry: counts that live on when what was counted is gone, for any number of memories and providers."""

import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from typing import Any, Generic, TypeVar

from shelflife.extras import needing

with needing("opentelemetry"):
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter

__all__ = ["SCOPE", "VERSION", "Sources", "meter_of", "once"]

SCOPE = "shelflife"
VERSION = version("shelflife")

Owner = TypeVar("Owner", bound=object)
Series = tuple[str, tuple[tuple[str, str], ...]]
"""The name of a metric, and its attributes."""


def meter_of(meter_provider: MeterProvider | None) -> Meter:
    """What measures of this package are made with."""
    return get_meter(SCOPE, VERSION, meter_provider)


class Sources(Generic[Owner]):
    """Where the counts of one kind come from: everything that was instrumented for the same meters, added up.

    An SDK takes the callbacks of the first instrument of a name, and no others. So there is one for all.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: dict[object, Callable[[], Mapping[Series, int]]] = {}
        self._gone: deque[object] = deque()
        """Whose owners are gone. They may go at any moment, also while this thread holds the lock: so nothing else is done then."""
        self._past: Counter[Series] = Counter()

    def add(self, owner: Owner, read: Callable[[], Mapping[Series, int]]) -> None:
        """Count with somebody. `read` must not hold them: when they go, what it gives then is kept."""
        name = object()
        with self._lock:
            self._bury()
            self._readers[name] = read
        weakref.finalize(owner, self._gone.append, name).atexit = False

    def _bury(self) -> None:
        """Keep what was counted by those who are gone. Whoever calls it holds the lock."""
        while self._gone:
            self._past.update(self._readers.pop(self._gone.popleft())())

    def observing(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """Tells one metric."""

        def observe(options: CallbackOptions) -> Iterable[Observation]:
            with self._lock:
                self._bury()
                totals, readers = Counter(self._past), [*self._readers.values()]
            for read in readers:
                totals.update(read())
            return [
                Observation(count, dict(attributes))
                for (of, attributes), count in totals.items()
                if of == name
            ]

        return observe


_instrumented: weakref.WeakSet[Any] = weakref.WeakSet()


def once(what: object) -> bool:
    """Whether something is instrumented for the first time."""
    is_first = what not in _instrumented
    _instrumented.add(what)
    return is_first
