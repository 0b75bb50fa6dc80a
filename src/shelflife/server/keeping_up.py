"""Keeping up with a log that others append to, in a thread; and how far each of them has come.

A worker that cannot reach its log may go on for a while by what it knows. Others count with it for a little longer than that, from when
it was last heard of. So whoever finds that nobody is behind knows that nobody tells an older state as what is so.
"""

import asyncio
import logging
import math
import random
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from shelflife.clocks import unsleeping_s
from shelflife.contract.messages import Workers
from shelflife.forks import Locking
from shelflife.server.errors import LogError
from shelflife.server.log import Log
from shelflife.server.state import State

__all__ = ["STALE_FOR_S", "Keeper", "Looks"]

_log = logging.getLogger("shelflife")

STALE_FOR_S = 10.0
"""So long a worker that cannot reach its log tells what it knows as what is so, unless its provider says otherwise."""

_LONGEST_WAIT_S = 0.5
"""So long at most it takes until one that was missed is found, or one that is to end does."""

_PAUSE_S = 0.5
"""So long on average one that cannot read the log waits until it tries again."""

_SIGN_OF_LIFE_S = 2.0
"""So often a worker is heard of, at least."""

_LOOK_AGAIN_S = 0.02
_LISTENERS_FIRST_S = 0.005
"""So long a worker that has come further waits before it says so: whoever listens is told meanwhile. To say it takes the file and the core
that others need, to be as far."""

_LONGEST_LOOK_S = 2.0


class Keeper:
    """Keeps one registry at the end of its log."""

    def __init__(
        self, log: Log, take_in: Callable[[], State], tell: Callable[[], None], stale_for_s: float
    ) -> None:
        """`take_in` reads the log and gives the state at its end; `tell` is called when that fails for the first time."""
        self._log, self._take_in, self._tell = log, take_in, tell
        self._stale_for_s = stale_for_s
        self._heard_for_s = stale_for_s + 2 * _SIGN_OF_LIFE_S
        """It may have looked at the log just before the next sign of life, and goes on from then."""
        self.is_cut_off = False
        """Whether it cannot read the log now."""
        self._thread: threading.Thread | None = None
        self.worker = ""
        """Names this worker, anew each time that it starts."""
        self._noted: tuple[State | None, float] = None, 0.0
        """The state with which it was last heard of, and when."""
        self._at_the_end_at: float | None = None
        """When it was last known to be at the end of the log."""
        self.on_beat: list[Callable[[], None]] = []
        """What is done besides, in the same thread, every half second or so."""
        self._failing: set[int] = set()
        """Which of these have failed the last time."""

    @property
    def is_running(self) -> bool:
        """Whether it keeps up, in this process."""
        return self._thread is not None

    @property
    def unreached_s(self) -> float:
        """For how long it has not been at the end of the log; 0 where it need not be."""
        at = self._at_the_end_at
        return 0.0 if at is None else unsleeping_s() - at

    @property
    def is_out_of_date(self) -> bool:
        """Whether what it knows is not to be told any more as what is so. It goes by the clock: a log may hang without an error."""
        at = self._at_the_end_at  # it is asked for every request, so this calls nothing but the clock
        return at is not None and unsleeping_s() - at > self._stale_for_s

    def start(self, number: int) -> None:
        """Begin, unless it has. The worker is known before it looks: whoever asks later how far all have come counts with it."""
        if self._thread is None:
            self.worker = secrets.token_hex(8)
            self._log.note(self.worker, number, self._heard_for_s)
            self._keep_up()
            self._thread = threading.Thread(target=self._run, name="shelflife-log", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End, and say so.

        Two race here: this, and a request that comes meanwhile. Once it is said, others no longer wait for this worker, and a reload may be
        over that it has not heard of. So before that it ceases to vouch for what it knows.
        """
        thread, worker = self._thread, self.worker  # whoever starts meanwhile is another worker
        self._thread = None
        if thread is None:
            return
        thread.join()
        self._at_the_end_at = -math.inf
        if not self.is_cut_off:
            try:
                self._log.note(worker, 0, 0)
            except LogError as error:
                _log.info("others count with this worker for %g s: %s", self._heard_for_s, error)

    def forget(self) -> None:
        """In a child process the thread is not there."""
        self._thread = self._at_the_end_at = None

    def workers(self, number: int, wait_s: float) -> Workers:
        """How many there are, and how many have not come as far as a number: as soon as none is left, or after so many seconds."""
        until = time.monotonic() + wait_s
        while True:
            reached = dict(self._log.workers())
            reached.pop(self.worker, None)
            behind = sum(one < number for one in reached.values())
            if not behind or time.monotonic() >= until:
                return Workers(live=len(reached) + (self._thread is not None), behind=behind)
            time.sleep(_LOOK_AGAIN_S)

    def _run(self) -> None:
        while self._thread is threading.current_thread():
            try:
                self._log.wait(_LONGEST_WAIT_S)
                self._keep_up(_LISTENERS_FIRST_S)
                self.is_cut_off = False
            except Exception as error:  # noqa: BLE001 - whatever it is, nobody else would find out
                if not self.is_cut_off:
                    self.is_cut_off = True
                    _log.warning("%s; what others reload is not seen until it can", error)
                    self._tell()
                time.sleep(_PAUSE_S * random.uniform(0.5, 1.5))  # noqa: S311 - not all workers at once
            else:
                self._beat()

    def _beat(self) -> None:
        """Do what is done besides. What goes wrong there has nothing to do with the log, and is told once."""
        for index, told in enumerate(self.on_beat):
            try:
                told()
                self._failing.discard(index)
            except Exception:  # noqa: BLE001 - whatever it is, it is logged
                if index not in self._failing:
                    self._failing.add(index)
                    _log.exception("something that is done beside following the log has failed")

    def _keep_up(self, listeners_first_s: float = 0.0) -> None:
        looked_at = unsleeping_s()  # before: what comes while it reads may be missed
        state = self._take_in()
        noted, noted_at = self._noted
        if state is not noted or looked_at - noted_at >= _SIGN_OF_LIFE_S:
            if state is not noted:
                time.sleep(listeners_first_s)
            self._log.note(self.worker, state.number, self._heard_for_s)
            self._noted = state, looked_at
        self._at_the_end_at = looked_at


class Looks(Locking):
    """What is done with a log where nobody may wait for long: in a thread of its own, one thing after the other.

    Whoever comes while something is done shares the next turn with all who want the same: what is appended before they come is seen then.
    So a log that hangs holds up one thread, and none that an app has use for.
    """

    def __init__(self) -> None:
        self._next: dict[Callable[[], None], Future[BaseException | None]] = {}
        self._is_at_it = False
        super().__init__()

    def after_fork_in_child(self) -> None:
        super().after_fork_in_child()
        self._next, self._is_at_it = {}, False

    async def in_time(self, call: Callable[[], None]) -> None:
        """Have something done; `LogError` when it takes too long."""
        try:
            async with asyncio.timeout(_LONGEST_LOOK_S):
                _raised(await asyncio.wrap_future(self._begun(call)))
        except TimeoutError:
            raise _not_free() from None

    def in_time_blocking(self, call: Callable[[], None]) -> None:
        """The same for a thread that waits."""
        try:
            _raised(self._begun(call).result(_LONGEST_LOOK_S))
        except TimeoutError:
            raise _not_free() from None

    def _begun(self, call: Callable[[], None]) -> Future[BaseException | None]:
        """What will become of it: what it raises, or None. It has not begun yet."""
        with self._lock:
            done = self._next.get(call)
            if done is None:
                done = self._next[call] = Future()
                done.set_running_or_notify_cancel()  # whoever ceases to wait cancels it for nobody else
            if not self._is_at_it:
                self._is_at_it = True
                threading.Thread(target=self._run, name="shelflife-look", daemon=True).start()
            return done

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._next:
                    self._is_at_it = False
                    return
                call = next(iter(self._next))
                done = self._next.pop(call)
            try:
                call()
                done.set_result(None)
            except BaseException as error:  # noqa: BLE001 - it is raised by whoever waits
                done.set_result(error)


def _raised(error: BaseException | None) -> None:
    if error is not None:
        raise error


def _not_free() -> LogError:
    return LogError(f"the log was not free for {_LONGEST_LOOK_S:g} s")
