"""How a near cache hears of what others write: over a channel of the engine, which shows all the time how far it may be behind."""

import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

import msgspec

from shelflife.client.entries import Root
from shelflife.clocks import unsleeping_s
from shelflife.forks import Locking

__all__ = ["LONGEST_LAG_S", "Channel", "Listener", "Message", "News"]

_log = logging.getLogger("shelflife.memory")

LONGEST_LAG_S = 1.0
"""A near cache that may be further behind than this is not used."""

_LONGEST_UNASKED_S = 10.0
"""After this long a near copy is held to the engine: somebody may have emptied that by other means than ours, and no channel tells so."""

_SIGN_EVERY_S = 0.2
_LONGEST_SIGN_S = 1.0
_PAUSE_S = 1.0
_LONGEST_END_S = 1.0
"""So long the thread that listens is waited for when it is to end."""

_MOST_ROOTS = 10_000


Message = tuple[str, str, str, str, list[str], list[str]]
"""News as an engine sends it. The revisions are texts, for they have more bits than a number of JSON or Lua may have; no knowledge is an
empty text."""


class News(msgspec.Struct, frozen=True):
    """A write that somebody has made."""

    root: Root
    """Empty where all that there was has been removed."""

    before: int
    revision: int
    """What it has led to, from the revision before."""

    knowledge: bytes | None = None
    """None where all of the root must be looked at anew: there was too much to tell."""

    places: tuple[str, ...] = ()
    """Where entries have come or gone."""

    operations: tuple[str, ...] = ()
    """Those of these entries."""

    @classmethod
    def from_message(cls, message: Message) -> "News":
        """What a message of the channel says."""
        root, before, revision, knowledge, places, operations = message
        known = knowledge.encode() if knowledge else None
        return cls(root, int(before), int(revision), known, tuple(places), tuple(operations))


class Listener(Protocol):
    """A connection over which an engine tells of writes. Every verb may raise what its driver raises."""

    def wait(self, timeout_s: float) -> Iterable[News | str]:
        """What is told within this time, in the order in which it came about; at once when there is something. A text is a sign."""

    def ask(self, sign: str) -> None:
        """Have the engine tell this sign, as it tells of a write: whatever a write needs, this does too.

        It is asked for over another connection. An answer over the one that listens would only show that somebody is there: a pooler
        answers by any of its connections, and one that has ceased to be the primary answers as before.
        """

    def close(self) -> None:
        """Leave it."""


class Channel(Locking):
    """Listens in a thread of its own. While it cannot, nothing is near."""

    def __init__(
        self,
        connect: Callable[[], Listener],
        hear: Callable[[News | None], None],
        failures: tuple[type[Exception], ...],
    ) -> None:
        """`hear` is told each write, and None when it cannot be known what was written. `failures` is all that a listener may raise."""
        self.life: object | None = None
        """Another one for each connection; None while there is none."""
        self.newest: dict[Root, int] = {}
        """The highest revision of each root that was heard of in this life."""
        self._connect = connect
        self._hear = hear
        self._failures = failures
        self.caught_up_at = -math.inf
        """All that was written until this time has been heard of."""
        self._thread: threading.Thread | None = None
        self._is_told = False
        super().__init__()

    def listen(self) -> None:
        """Begin to listen, unless it does. Recalls that come at once all do this."""
        if self._is_listening:
            return
        with self._lock:
            if not self._is_listening:
                self.life, self.caught_up_at = None, -math.inf
                self._thread = threading.Thread(target=self._listen, name="shelflife-near", daemon=True)
                self._thread.start()

    @property
    def _is_listening(self) -> bool:
        thread = self._thread
        return thread is not None and thread.is_alive()  # one that has stayed behind at a fork is not

    def covers(self, life: object | None, looked_at: float) -> bool:
        """Whether what was looked at in this life, at that time, is as all that was heard of since has left it; else it begins to listen.

        Now and then it is asked for all the same, for what no channel tells of.
        """
        now = unsleeping_s()
        if (
            life is not None
            and life is self.life
            and now - self.caught_up_at <= LONGEST_LAG_S
            and now - looked_at < _LONGEST_UNASKED_S
        ):
            return True
        self.listen()
        return False

    @property
    def lag_s(self) -> float:
        """So far it may be behind."""
        return unsleeping_s() - self.caught_up_at

    def close(self) -> None:
        """Stop to listen, until somebody asks again. A thread that is still connecting leaves when it has: it may take seconds."""
        with self._lock:
            thread, self._thread, self.life = self._thread, None, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(_LONGEST_END_S)

    @property
    def _is_wanted(self) -> bool:
        """A thread that is not wanted any more may find another one at work. What it has still heard is so; else it changes nothing."""
        return self._thread is threading.current_thread()

    def _listen(self) -> None:
        while self._is_wanted:
            try:
                listener = self._connect()
            except self._failures as error:
                self._lose(error)
                continue
            try:
                self._live(listener)
            except self._failures as error:
                self._lose(error)
            finally:
                with suppress(Exception):  # it is not needed any more, however it goes
                    listener.close()

    def _live(self, listener: Listener) -> None:
        # The life begins before what was kept is cleared: whoever has looked before it began does not keep that, and what was kept
        # between the two is cleared with the rest.
        with self._lock:
            if not self._is_wanted:
                return
            self.newest.clear()
            self.life, self._is_told = object(), False
        self._hear(None)
        while self._is_wanted:
            self._catch_up(listener)
            self._take(listener.wait(_SIGN_EVERY_S))

    def _catch_up(self, listener: Listener) -> None:
        """A sign that is heard shows that whatever was written before it was asked for has been heard of."""
        sign, asked_at, until = secrets.token_hex(8), unsleeping_s(), time.monotonic() + _LONGEST_SIGN_S
        listener.ask(sign)
        while sign not in self._take(listener.wait(max(until - time.monotonic(), 0.0))):
            if time.monotonic() >= until:
                raise TimeoutError(
                    "a sign was not heard; behind a pooler that hands out connections by transaction none is"
                )
        with self._lock:
            if self._is_wanted:
                self.caught_up_at = asked_at

    def _take(self, told: Iterable[News | str]) -> list[str]:
        """Go by what was told. Of that, these are signs."""
        signs = []
        for news in told:
            if isinstance(news, str):
                signs.append(news)
                continue
            if not news.root:
                raise ValueError("all that was in it was removed")
            if len(self.newest) > _MOST_ROOTS:
                raise ValueError("too many roots were heard of; it begins anew")
            # first this: whoever has looked before it and keeps what it saw after it must find out
            self.newest[news.root] = max(news.revision, self.newest.get(news.root, 0))
            self._hear(news)
        return signs

    def _lose(self, error: Exception) -> None:
        with self._lock:
            if not self._is_wanted:
                return
            self.life, was_told, self._is_told = None, self._is_told, True
        self._hear(None)
        if not was_told:
            why = " ".join(str(error).split())
            _log.warning(
                "what others write to the memory is not heard of (%s); each recall asks the store", why
            )
        pause_until = time.monotonic() + _PAUSE_S
        while time.monotonic() < pause_until and self._is_wanted:
            time.sleep(_PAUSE_S / 20)
