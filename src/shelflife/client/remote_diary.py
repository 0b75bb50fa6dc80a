"""A diary in the engine that keeps the memory: of all processes on all machines."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from shelflife.client.circuit import Circuit
from shelflife.client.diary import Noted

__all__ = ["RemoteDiary"]


class RemoteDiary:
    """What a store on another machine has for its diary. One that fails is left alone for a while, and the memory is not."""

    is_remote = True

    def __init__(
        self,
        called: Callable[[str, Callable[[], Any]], Any],
        adding: Callable[[list[Noted]], None],
        reading: Callable[[int], list[Noted]],
    ) -> None:
        """How to call on the engine, and what is done there."""
        self._called, self._adding, self._reading = called, adding, reading
        self._circuit = Circuit()

    def add(self, noted: Iterable[Noted]) -> None:
        """Add to what is there. Always in one order, so that of two who do this neither waits for the other for ever."""
        with self._circuit.trying():
            self._called("written", partial(self._adding, sorted(noted)))

    def read(self, since: int = 0) -> list[Noted]:
        """All that is there from this hour on, the oldest first."""
        found: list[Noted] = self._called("read", partial(self._reading, since))
        return sorted(found)
