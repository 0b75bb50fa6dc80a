"""How many entries of one server may go within an hour, so that one that keeps moving cannot empty a memory."""

from collections import deque
from collections.abc import Callable

__all__ = ["MOST_EVICTIONS", "MOVED_ON", "Bound"]

MOST_EVICTIONS = 32
"""By default: of the fixes that one agent remembers of one server, so many may be invalidated within an hour.

They are few enough to be renewed when a memory is refreshed. A server that changes more, as a nightly reload may, costs a question for each fix that is
needed again, where each would have cost a request that fails. One that moves with every response takes one fix for every two requests once it has taken all there were.
"""

MOVED_ON = "the server has moved on since it gave them"
"""Why fixes of a response are suspect, in one sentence: without a bound they are not even kept."""

_AN_HOUR_S = 3600.0


class Bound:
    """Counts invalidations by origin, in this process. Its owner sees to it that one thread at a time does so."""

    def __init__(self, most: int | None, clock: Callable[[], float]) -> None:
        self.most = most
        self._clock = clock
        self._noted: dict[str, deque[tuple[float, int]]] = {}

    def room(self, origin: str) -> int | None:
        """How many more entries of an origin may go now; None for any number."""
        if self.most is None:
            return None
        noted = self._noted.get(origin)
        if not noted:
            return self.most
        now = self._clock()
        while noted and not 0 <= now - noted[0][0] < _AN_HOUR_S:
            noted.popleft()
        return self.most - sum(count for _, count in noted)

    def note(self, origin: str, count: int) -> None:
        """So many have gone."""
        if self.most is not None and count:
            self._noted.setdefault(origin, deque()).append((self._clock(), count))

    @property
    def why(self) -> str:
        """Why entries are suspect, in one sentence."""
        return f"more than {self.most} remembered fixes of this server would have gone within an hour"
