"""A circuit for a store that does not answer: one step waits for it, the next ones do not."""

import math
import time

from shelflife.client.pauses import Pauses
from shelflife.client.stores import StoreError
from shelflife.forks import Locking

__all__ = ["Circuit"]

_PAUSES = Pauses(1.0, 30.0)


class Circuit(Locking):
    """Whether a store is tried at all: one that has failed is left alone for a while, ever longer.

    Threads share it. Several may be waiting for a store when it fails: that is one failure, and whoever was let in before it was noted adds
    nothing to it.
    """

    def __init__(self, pauses: Pauses = _PAUSES) -> None:
        self._pauses = pauses
        self._pause_s = 0.0
        self._noted_at = self._let_in_at = -math.inf
        self._why = ""
        super().__init__()

    def check(self, *, tries: bool = True) -> float:
        """`StoreError` while it is open. Else the time. The first who comes when the pause is over tries, and the others wait on."""
        now = time.monotonic()
        with self._lock:
            if self._pause_s and now - max(self._noted_at, self._let_in_at) < self._pause_s:
                failure = StoreError(self._why)
                failure.is_away = True
                raise failure
            if tries:
                self._let_in_at = now
            return now

    def close(self) -> None:
        """It has answered."""
        self._pause_s = 0.0

    def open(self, let_in_at: float, why: StoreError) -> None:
        """It has failed whoever was let in at that time."""
        with self._lock:
            if let_in_at > self._noted_at:
                self._pause_s = self._pauses.after(self._pause_s)
                self._noted_at, self._why = time.monotonic(), str(why)

    def trying(self) -> "_Trying":
        """A block in which it is tried: any `StoreError` opens it. Each write has one, and a generator would cost more."""
        return _Trying(self)


class _Trying:
    __slots__ = ("_circuit", "_let_in_at")

    def __init__(self, circuit: Circuit) -> None:
        self._circuit = circuit

    def __enter__(self) -> None:
        self._let_in_at = self._circuit.check()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._circuit.close()
        elif isinstance(error, StoreError):
            self._circuit.open(self._let_in_at, error)
