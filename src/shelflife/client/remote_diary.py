"""A diary in the engine that keeps the memory: of all processes on all machines."""

import time
from collections.abc import Callable, Iterable
from functools import partial
from threading import Thread, main_thread
from typing import Any

from shelflife.client.circuit import Circuit
from shelflife.client.diary import Noted

__all__ = ["RemoteDiary"]

_LAST_TRIES_S = (0.0, 2.0, 4.0, 8.0)
"""The pauses before each of the last tries; each longer than the circuit's after as many failures."""


class RemoteDiary:
    """What a store on another machine has for its diary. One that fails is left alone for a while, and the memory is not."""

    def __init__(
        self,
        called: Callable[[str, Callable[[], Any]], Any],
        adding: Callable[[list[Noted]], None],
        reading: Callable[[int], list[Noted]],
        is_in_use: Callable[[], bool],
    ) -> None:
        """How to call on the engine, what is done there, and whether the store was not let go of."""
        self._called, self._adding, self._reading = called, adding, reading
        self._is_in_use = is_in_use
        self._circuit = Circuit()

    def add(self, noted: Iterable[Noted]) -> None:
        """Add to what is there. Always in one order, so that of two who do this neither waits for the other for ever."""
        with self._circuit.trying():
            self._called("written", partial(self._adding, sorted(noted)))

    def read(self, since: int = 0) -> list[Noted]:
        """All that is there from this hour on, the oldest first."""
        found: list[Noted] = self._called("read", partial(self._reading, since))
        return sorted(found)

    def at_the_end(self, write: Callable[[], bool]) -> None:
        """Nothing is opened anew where the store was let go of: nobody would close it.

        Collection may come in the middle of anything: this very thread may be about to write to the same engine. So another one writes,
        unless the program ends and only this one is left.
        """
        if not self._is_in_use():
            return
        if main_thread().is_alive():
            Thread(target=self._write_the_last, args=(write,), name="shelflife-diary").start()
        else:
            write()

    def _write_the_last(self, write: Callable[[], bool]) -> None:
        """Nobody comes later to write what has failed now: a collection that holds everything up for a second is enough for that. So it is
        tried again, but the program's end does not wait for it."""
        for pause_s in _LAST_TRIES_S:
            until = time.monotonic() + pause_s
            while time.monotonic() < until and main_thread().is_alive():
                time.sleep(0.1)
            if not self._is_in_use() or write() or not main_thread().is_alive():
                return
