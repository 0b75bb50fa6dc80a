"""A diary in the engine that keeps the memory: of all processes on all machines."""

from collections.abc import Callable, Iterable
from functools import partial
from threading import Thread, main_thread
from typing import Any

from shelflife.client.circuit import Circuit
from shelflife.client.diary import Noted

__all__ = ["RemoteDiary"]


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

    def at_the_end(self, write: Callable[[], None]) -> None:
        """Nothing is opened anew where the store was let go of: nobody would close it.

        Collection may come in the middle of anything: this very thread may be about to write to the same engine. So another one writes,
        unless the program ends and only this one is left.
        """
        if not self._is_in_use():
            return
        if main_thread().is_alive():
            Thread(target=write, name="shelflife-diary").start()
        else:
            write()
