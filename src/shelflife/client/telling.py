"""Saying what happens: to whoever listens, to the log and to the statistics; and once when the store fails."""

import logging
import math
from collections.abc import Callable, Iterable

from shelflife.client.events import Event, StoreFailed
from shelflife.client.statistics import Tally
from shelflife.client.stores import StoreError

__all__ = ["Telling"]

_log = logging.getLogger("shelflife.memory")

_BACK_OFF_S = 3.0


class Telling:
    """What one memory tells. Threads may share it."""

    def __init__(self, on_event: Callable[[Event], None] | None, clock: Callable[[], float]) -> None:
        self.tally = Tally()
        self._on_event = on_event
        self._clock = clock
        self._failing = ""
        self._write_failed_at = -math.inf

    def tell(self, events: Iterable[Event]) -> list[Event]:
        """Tell everybody, and hand the events on."""
        told = list(events)
        for event in told:
            self.tally.count(event)
            _log.debug("%s", event)
            if self._on_event is not None:
                try:
                    self._on_event(event)
                except Exception:  # noqa: BLE001 - whatever it raises, what was observed is observed
                    _log.exception("whoever listens to the events of the memory has failed")
        return told

    def store_works(self, doing: str) -> None:
        """The store could be read, or written. One that cannot be written may still be read."""
        if doing == "write" or self._failing == "read":
            self._failing = ""

    def store_failed(self, error: StoreError, doing: str) -> None:
        """Say so, once until it works again."""
        is_news = not self._failing
        if doing == "write" and not self._is_backing_off:
            self._write_failed_at = self._clock()
        if doing == "write" or is_news:
            self._failing = doing
        if is_news:
            _log.warning("%s; the agent goes on without memory", error)
            self.tell([StoreFailed(str(error))])

    def check_back_off(self) -> None:
        """What could not be written is not tried again for a moment: the wait for a lock is the agent's."""
        if self._is_backing_off:
            raise StoreError("the memory could not be written a moment ago")

    @property
    def _is_backing_off(self) -> bool:
        return 0 <= self._clock() - self._write_failed_at < _BACK_OFF_S
