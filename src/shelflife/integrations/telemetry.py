"""What both sides need of OpenTelemetry: counts that live on when what was counted is gone, for any number of memories and providers."""

import threading
import weakref
from collections import Counter
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
        self._living: dict[int, Callable[[], Mapping[Series, int]]] = {}
        self._past: Counter[Series] = Counter()

    def add(self, owner: Owner, read: Callable[[], Mapping[Series, int]]) -> None:
        """Count with somebody. `read` must not hold them: when they go, what it gives then is kept."""
        with self._lock:
            self._living[id(owner)] = read
        weakref.finalize(owner, self._bury, id(owner)).atexit = False

    def _bury(self, id: int) -> None:
        with self._lock:
            self._past.update(self._living.pop(id)())

    def observing(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """Tells one metric."""

        def observe(options: CallbackOptions) -> Iterable[Observation]:
            with self._lock:
                totals, readers = Counter(self._past), [*self._living.values()]
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
