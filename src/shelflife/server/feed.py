"""The change feed: server-sent events that tell every listener what has moved, as soon as it has.

A listener is told the difference between the state that it knows and the current one, never a queue of steps. A slow
one misses nothing and gets nothing twice. What has moved is worked out once for all who know the same; with aliases,
once for each.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import Any
from urllib.parse import parse_qs
from weakref import WeakSet

import msgspec
from msgspec import UNSET

from shelflife.contract.positions import AT_HEADER, Named, Position
from shelflife.forks import Forked, mind_forks
from shelflife.server.endings import hear_of_the_end
from shelflife.server.errors import LogError
from shelflife.server.faces import Face
from shelflife.server.registry import Registry
from shelflife.server.state import State

__all__ = ["Feed", "Receive", "Send"]

_log = logging.getLogger("shelflife")

_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_LONGEST_EVENT = 64 * 1024
"""A longer account says only that the server has gone on. The listener then asks."""

_MOST_EVENTS = 64
"""So many are kept with a state: those for listeners who know the same are needed at the same time."""

_MOST_LISTENERS = 10_000
_WOKEN_AT_ONCE = 64
_SHARED = "listeners"
_TOLD_EVERY_S = 2.0
_TOLD_FOR_S = 10.0
"""So long others count with the listeners of a worker that has ended without a word."""

_LAST_WORD_S = 2.0
"""So long a listener may take to read its last event, once the process is told to end."""

_STILL_HERE = b": still here\n\n"
_AT = AT_HEADER.lower()
_encode = msgspec.json.Encoder().encode

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Feed(Forked):
    """The listeners of one provider, on any number of event loops.

    Nothing here has a lock: a loop's listeners come and go in its own thread, and whoever looks at all loops looks at a copy. What a closed
    loop leaves behind may be collected at any moment, also while a thread has such a lock.
    """

    def __init__(
        self, registry: Registry, face_of: Callable[[State, Mapping[str, str]], Face | None]
    ) -> None:
        """`face_of` gives what a state shows to a client; None when this process cannot speak for it."""
        self._registry = registry
        self._face_of = face_of
        self.heartbeat_s = 15.0
        """While nothing moves, a listener hears so often that somebody is there. Never set it to more than 15."""
        self.after_fork_in_child()
        mind_forks(self)
        registry.on_change(self._wake)

    def after_fork_in_child(self) -> None:
        """Begin with nobody: who listens to the parent is told by the parent."""
        self._audiences: dict[asyncio.AbstractEventLoop, _Audience] = {}
        self._ended: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
        """Loops whose process was told to end."""
        self._told_at, self._was_heard = 0.0, False
        """When the other workers were told of listeners, and whether there were any."""

    @property
    def listener_count(self) -> int:
        """How many are listening now."""
        return sum(
            len(audience.telling) for loop, audience in [*self._audiences.items()] if not loop.is_closed()
        )

    def tell_others(self) -> None:
        """Tell the other workers how many listen here, if it is time for that."""
        registry = self._registry
        now, count = time.monotonic(), self.listener_count
        if now - self._told_at >= _TOLD_EVERY_S and (count or self._was_heard):
            self._told_at, self._was_heard = now, bool(count)
            with suppress(LogError):
                registry.share(_SHARED, registry.worker, b"%d" % count, _TOLD_FOR_S)

    def all_listeners(self) -> int:
        """How many listen, at this worker and at the others; `LogError` when that cannot be told."""
        registry = self._registry
        others = registry.shared(_SHARED) if registry.is_shared else {}
        return self.listener_count + sum(
            int(count) for name, count in others.items() if name != registry.worker
        )

    @property
    def is_full(self) -> bool:
        """Whether another listener would be one too many."""
        return self.listener_count >= _MOST_LISTENERS

    async def stream(self, headers: Mapping[str, str], query: str, receive: Receive, send: Send) -> None:
        """Tell one listener of changes until it leaves, or the process is told to end.

        `headers` are those of its request, by lower-case name.
        """
        await self._stream(partial(self._tell, headers, _known_by(headers, query), send), receive)

    async def stream_to_operator(self, receive: Receive, send: Send) -> None:
        """Tell an operator that there is something new to look at, whatever clients may be told."""
        await self._stream(partial(self._tell_operator, send), receive)

    async def _stream(
        self, tell: "Callable[[_Audience], Coroutine[Any, Any, None]]", receive: Receive
    ) -> None:
        loop = asyncio.get_running_loop()
        hear_of_the_end(self.end_listeners)
        audience = self._audience_on(loop)
        # A signal may have come since the server accepted this request. Late listeners are not kept either.
        audience.is_over = loop in self._ended
        telling = asyncio.create_task(tell(audience))
        audience.add(telling)
        leaving = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({telling, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            audience.telling.discard(telling)
            if not audience.telling:
                self._audiences.pop(loop, None)
            if not loop.is_closed():  # else this is collected, and nothing can be awaited any more
                for task in (telling, leaving):
                    task.cancel()
                failed, _ = await asyncio.gather(telling, leaving, return_exceptions=True)
        if isinstance(failed, Exception):
            _log.error("the change feed has failed for a listener", exc_info=failed)

    def _audience_on(self, loop: asyncio.AbstractEventLoop) -> "_Audience":
        """The listeners on a loop. With the first of them those go who were left on loops that are closed."""
        if loop not in self._audiences:
            for closed in [one for one in [*self._audiences] if one.is_closed()]:
                self._audiences.pop(closed, None)
            self._audiences[loop] = _Audience(loop)
        return self._audiences[loop]

    async def _tell_operator(self, send: Send, audience: "_Audience") -> None:
        registry, told = self._registry, b""
        if not registry.is_followed:
            with suppress(LogError):  # that the log is away is told, too
                await registry.looks.in_time(registry.follow)
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        while not audience.is_over:
            turn = audience.turn  # before the state is read, as below
            now = _encode({"number": registry.state.number, "is_cut_off": registry.is_cut_off})
            part = _STILL_HERE if now == told else b"event: moved\ndata: " + now + b"\n\n"
            told = now
            await send({"type": "http.response.body", "body": part, "more_body": True})
            if turn == audience.turn:
                await audience.next_look(self.heartbeat_s)
        await send({"type": "http.response.body", "body": b""})

    async def _tell(
        self, headers: Mapping[str, str], known: Named, send: Send, audience: "_Audience"
    ) -> None:
        try:
            await _look_at_the_end(self._registry, bool(known.nonce), known.position)
            # before the state is read: a change after this is either seen now, or is another turn
            turn = audience.turn
            face = self._face_now(headers)
            is_reached = not self._registry.is_cut_off
        except LogError as error:
            is_reached = False
            _log.info("a listener could not be answered from the end of the log: %s", error)
            face = None
        if face is None:
            self._registry.counts.count("withheld_answers", "policies" if is_reached else "log")
            await send({"type": "http.response.start", "status": 503, "headers": [(b"retry-after", b"5")]})
            await send({"type": "http.response.body", "body": b""})
            return
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        while face is not None and not audience.is_over:
            part = _STILL_HERE
            if known.nonce or face.position != known.position:
                part = _event(face, known)
                known = Named(face.position, known.mark) if known.mark else face.named
                self._registry.counts.fed += 1
            del face  # it would keep its state alive until the next one
            await send({"type": "http.response.body", "body": part, "more_body": True})
            if turn == audience.turn:
                await audience.next_look(self.heartbeat_s)
            turn = audience.turn
            face = self._face_now(headers)
        await send({"type": "http.response.body", "body": b""})

    def _face_now(self, headers: Mapping[str, str]) -> Face | None:
        """What the listener is shown; None where a sign of life would say more than this process knows."""
        return None if self._registry.is_cut_off else self._face_of(self._registry.state, headers)

    def _wake(self) -> None:
        for loop, audience in [*self._audiences.items()]:
            with suppress(RuntimeError):  # its loop has ended
                loop.call_soon_threadsafe(audience.wake)

    def end_listeners(self, loop: asyncio.AbstractEventLoop) -> None:
        """End all feeds on this loop, and those that are still to come: the process was told to end."""
        self._ended.add(loop)
        if loop in self._audiences:
            self._audiences[loop].end()
        self._wake()


class _Audience:
    """The listeners on one event loop. All are woken when there may be something to tell; only the loop's thread does that."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.telling: set[asyncio.Task[None]] = set()
        """One for each listener."""
        self.turn = 0
        """How often they were woken."""
        self.is_over = False
        """Whether the process was told to end."""
        self._loop = loop
        self._until: dict[asyncio.Future[None], float] = {}
        """Until when each waits. All wait for as long, so the first is the first to be woken, and one timer is enough for them."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, telling: asyncio.Task[None]) -> None:
        """Take in a listener, who is told by this task."""
        self.telling.add(telling)
        if self.is_over:
            self._bound(telling)

    def end(self) -> None:
        """The process was told to end."""
        self.is_over = True
        for telling in self.telling:
            self._bound(telling)

    def _bound(self, telling: asyncio.Task[None]) -> None:
        """Wait no longer for a listener that does not read: the server would wait for it."""
        self._loop.call_later(_LAST_WORD_S, telling.cancel)

    def wake(self) -> None:
        """Have all look again, also those who are just being told something."""
        self.turn += 1
        due, self._until = deque(self._until), {}
        self._wake_some(due)

    def _wake_some(self, due: deque[asyncio.Future[None]]) -> None:
        """Wake the next of them, and others after these have been told. If all were woken at once, as much would be alive at once, and Python
        would search all that there is for garbage: with a thousand listeners that takes longer than to tell them."""
        for _ in range(min(_WOKEN_AT_ONCE, len(due))):
            _end(due.popleft())
        if due:
            self._loop.call_soon(self._wake_some, due)

    def next_look(self, at_most_s: float) -> asyncio.Future[None]:
        """What is done once they are woken, or after so many seconds. One that nobody awaits any more goes then, too."""
        woken = self._loop.create_future()
        until = self._until[woken] = self._loop.time() + at_most_s
        if self._timer is None:
            self._timer = self._loop.call_at(until, self._wake_the_due)
        return woken

    def _wake_the_due(self) -> None:
        """Wake those whose time has run out. The next timer is for whoever comes after them."""
        now, self._timer = self._loop.time(), None
        for woken in [*takewhile(lambda one: self._until[one] <= now, self._until)]:
            del self._until[woken]
            _end(woken)
        if self._until:
            self._timer = self._loop.call_at(next(iter(self._until.values())), self._wake_the_due)


def _end(wait: asyncio.Future[None]) -> None:
    if not wait.done():  # the time may have run out, or the listener have gone
        wait.set_result(None)


async def _look_at_the_end(registry: Registry, is_asked: bool, *known: Position | None) -> None:
    """Where a client asks, or knows more than this process does, take in what is at the end of the log; else `LogError`.

    Else a process that lags behind would say that what the client knows is not in the log. It is read in a thread: others
    may have loaded whole tables.
    """
    is_ahead = any(one is not None and one.number > registry.state.number for one in known)
    if registry.is_shared and (is_asked or is_ahead):
        await registry.looks.in_time(registry.catch_up)


def _event(face: Face, known: Named) -> bytes:
    """What a listener is told. All who know the same position are told the same, each with its own mark, so that is written once."""
    if known.nonce or known.position is None:
        return _written(face, known)[0]
    event, spare = face.events.get(known.position) or (b"", 0)
    if not event:
        event, spare = face.events[known.position] = _written(face, Named(known.position))
        if len(face.events) > _MOST_EVENTS:
            face.events.clear()
    if not known.mark:
        return event
    mark = f":{known.mark}".encode()
    if len(mark) > spare:
        return _written(face, known)[0]
    base = b'"from":"' + str(known.position).encode()
    return event.replace(base, base + mark, 1)


def _written(face: Face, known: Named) -> tuple[bytes, int]:
    """An event, and how many bytes more would be in it before it was too long."""
    account, told = face.account_within(_LONGEST_EVENT, known)
    name = b"resync" if account.moved is UNSET else b"moved"
    event = b"id: " + account.to.encode() + b"\nevent: " + name + b"\ndata: " + told + b"\n\n"
    return event, _LONGEST_EVENT - len(told)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _known_by(headers: Mapping[str, str], query: str) -> Named:
    """What a listener says it knows, if anything."""
    said = headers.get("last-event-id") or headers.get(_AT) or parse_qs(query).get("known", [""])[-1]
    return Named.from_header(said) or Named()
