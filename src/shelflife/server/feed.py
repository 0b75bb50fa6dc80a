"""The change feed: server-sent events that tell every listener what has moved, as soon as it has.

A listener is told the difference between the state that it knows and the current one, never a queue of steps. A slow
one misses nothing and gets nothing twice. What has moved is worked out once for all who know the same; with aliases,
once for each.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs
from weakref import WeakSet

from msgspec import UNSET

from shelflife.contract.positions import AT_HEADER, Named, Position
from shelflife.server.endings import hear_of_the_end
from shelflife.server.errors import LogError
from shelflife.server.faces import Face
from shelflife.server.keeping_up import in_time
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

_MOST_LISTENERS = 10_000
_STILL_HERE = b": still here\n\n"
_AT = AT_HEADER.lower()

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Feed:
    """The listeners of one provider, on any number of event loops."""

    def __init__(
        self, registry: Registry, face_of: Callable[[State, Mapping[str, str]], Face | None]
    ) -> None:
        """`face_of` gives what a state shows to a client; None when this process cannot speak for it."""
        self._registry = registry
        self._face_of = face_of
        self.heartbeat_s = 15.0
        """While nothing moves, a listener hears so often that somebody is there. Never set it to more than 15."""
        self._lock = threading.Lock()
        self._listeners: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        """Each is woken, on its loop, when there may be something to tell."""
        self._ended: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
        """Loops whose process was told to end."""
        registry.on_change(self._wake)

    @property
    def listener_count(self) -> int:
        """How many are listening now."""
        return len(self._listeners)

    @property
    def is_full(self) -> bool:
        """Whether another listener would be one too many."""
        return self.listener_count >= _MOST_LISTENERS

    async def stream(self, headers: Mapping[str, str], query: str, receive: Receive, send: Send) -> None:
        """Tell one listener of changes until it leaves, or the process is told to end.

        `headers` are those of its request, by lower-case name.
        """
        moved = asyncio.Event()
        listener = asyncio.get_running_loop(), moved
        hear_of_the_end(self.end_listeners)
        with self._lock:
            self._listeners.add(listener)
        telling = asyncio.create_task(self._tell(headers, _known_by(headers, query), moved, send))
        leaving = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({telling, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            with self._lock:
                self._listeners.remove(listener)
            for task in (telling, leaving):
                task.cancel()
            failed, _ = await asyncio.gather(telling, leaving, return_exceptions=True)
        if isinstance(failed, Exception):
            _log.error("the change feed has failed for a listener", exc_info=failed)

    async def _tell(self, headers: Mapping[str, str], known: Named, moved: asyncio.Event, send: Send) -> None:
        try:
            await _look_at_the_end(self._registry, bool(known.nonce), known.position)
            face = self._face_now(headers, moved)
        except LogError as error:
            _log.info("a listener could not be answered from the end of the log: %s", error)
            face = None
        if face is None:
            await send({"type": "http.response.start", "status": 503, "headers": [(b"retry-after", b"5")]})
            await send({"type": "http.response.body", "body": b""})
            return
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        # A signal may have come since the server accepted this request. Late listeners are not kept either.
        while face is not None and asyncio.get_running_loop() not in self._ended:
            part = _STILL_HERE
            if known.nonce or face.position != known.position:
                part, known = _event(face, known), Named(face.position, known.mark)
            del face  # it would keep its state alive until the next one
            await send({"type": "http.response.body", "body": part, "more_body": True})
            with suppress(TimeoutError):
                async with asyncio.timeout(self.heartbeat_s):
                    await moved.wait()
            face = self._face_now(headers, moved)
        await send({"type": "http.response.body", "body": b""})

    def _face_now(self, headers: Mapping[str, str], moved: asyncio.Event) -> Face | None:
        """What the listener is shown; None where a sign of life would say more than this process knows."""
        moved.clear()  # before the state is read: a change after this is either seen now, or sets it again
        return None if self._registry.is_cut_off else self._face_of(self._registry.state, headers)

    def _wake(self) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for loop, moved in listeners:
            with suppress(RuntimeError):  # its loop has ended
                loop.call_soon_threadsafe(moved.set)

    def end_listeners(self, loop: asyncio.AbstractEventLoop) -> None:
        """End all feeds on this loop, and those that are still to come: the process was told to end."""
        with self._lock:
            self._ended.add(loop)
        self._wake()


async def _look_at_the_end(registry: Registry, is_asked: bool, *known: Position | None) -> None:
    """Where a client asks, or knows more than this process does, take in what is at the end of the log; else `LogError`.

    Else a process that lags behind would say that what the client knows is not in the log. It is read in a thread: others
    may have loaded whole tables.
    """
    is_ahead = any(one is not None and one.number > registry.state.number for one in known)
    if registry.is_shared and (is_asked or is_ahead):
        await in_time(registry.catch_up)


def _event(face: Face, known: Named) -> bytes:
    account, told = face.account_within(_LONGEST_EVENT, known)
    name = b"resync" if account.moved is UNSET else b"moved"
    return b"id: " + account.to.encode() + b"\nevent: " + name + b"\ndata: " + told + b"\n\n"


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _known_by(headers: Mapping[str, str], query: str) -> Named:
    """What a listener says it knows, if anything."""
    said = headers.get("last-event-id") or headers.get(_AT) or parse_qs(query).get("known", [""])[-1]
    return Named.from_header(said) or Named()
