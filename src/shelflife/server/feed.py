"""The change feed: server-sent events that tell every listener what has moved, as soon as it has.

A listener is told the difference between the state that it knows and the current one, never a queue of steps. A slow
one misses nothing and gets nothing twice. A thousand listeners cost one encoding; with aliases, one each.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs
from weakref import WeakSet

from shelflife.contract.compact import EPOCH_HEADER
from shelflife.server.endings import hear_of_the_end
from shelflife.server.registry import Registry
from shelflife.server.state import Face, State

__all__ = ["Feed", "Receive", "Send"]

_log = logging.getLogger("shelflife")

_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_HEARTBEAT_S = 15.0
_MOST_LISTENERS = 10_000
_EPOCH = EPOCH_HEADER.lower()

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class _Listener:
    """Somebody who is told of changes."""

    def __init__(self) -> None:
        self.moved = asyncio.Event()
        self.is_to_end = False


class Feed:
    """The listeners of one provider, on any number of event loops."""

    def __init__(
        self,
        registry: Registry,
        face_of: Callable[[State, Mapping[str, str]], Face],
        heartbeat_s: float = _HEARTBEAT_S,
    ) -> None:
        self._registry = registry
        self._face_of = face_of
        self._heartbeat_s = heartbeat_s
        self._lock = threading.Lock()
        self._listeners: dict[asyncio.AbstractEventLoop, set[_Listener]] = {}
        self._ended: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
        """Loops whose process was told to end."""
        registry.on_change(self._wake)

    @property
    def listener_count(self) -> int:
        """How many are listening now."""
        with self._lock:
            return sum(map(len, self._listeners.values()))

    @property
    def is_full(self) -> bool:
        """Whether another listener would be one too many."""
        return self.listener_count >= _MOST_LISTENERS

    async def stream(self, headers: Mapping[str, str], query: str, receive: Receive, send: Send) -> None:
        """Tell one listener of changes until it leaves, or the process is told to end.

        `headers` are those of its request, by lower-case name.
        """
        loop, listener = asyncio.get_running_loop(), _Listener()
        hear_of_the_end(self.end_listeners)
        with self._lock:
            self._listeners.setdefault(loop, set()).add(listener)
            # A signal may have come since the server accepted this request. Late listeners are not kept either.
            listener.is_to_end = loop in self._ended
        telling = asyncio.create_task(self._tell(headers, _known_by(headers, query), listener, send))
        leaving = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({telling, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            with self._lock:
                self._listeners[loop].discard(listener)
                if not self._listeners[loop]:
                    del self._listeners[loop]
            for task in (telling, leaving):
                task.cancel()
            failed, _ = await asyncio.gather(telling, leaving, return_exceptions=True)
        if isinstance(failed, Exception):
            _log.error("the change feed has failed for a listener", exc_info=failed)

    async def _tell(
        self, headers: Mapping[str, str], known: str | None, listener: _Listener, send: Send
    ) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        while not listener.is_to_end:
            # Cleared before the state is read: a change after this is either seen now, or sets it again.
            listener.moved.clear()
            face = self._face_of(self._registry.state, headers)
            part = b": still here\n\n" if face.epoch == known else _event(face, known)
            known = face.epoch
            del face  # it would keep its state alive until the next one
            await send({"type": "http.response.body", "body": part, "more_body": True})
            with suppress(TimeoutError):
                await asyncio.wait_for(listener.moved.wait(), self._heartbeat_s)
        await send({"type": "http.response.body", "body": b""})

    def _wake(self) -> None:
        with self._lock:
            loops = list(self._listeners)
        for loop in loops:
            with suppress(RuntimeError):  # its loop has ended
                loop.call_soon_threadsafe(self._wake_listeners, loop)

    def _wake_listeners(self, loop: asyncio.AbstractEventLoop) -> None:
        for listener in self._listeners_on(loop):
            listener.moved.set()

    def end_listeners(self, loop: asyncio.AbstractEventLoop) -> None:
        """End all feeds on this loop, and those that are still to come: the process was told to end."""
        with self._lock:
            self._ended.add(loop)
        for listener in self._listeners_on(loop):
            listener.is_to_end = True
            listener.moved.set()

    def _listeners_on(self, loop: asyncio.AbstractEventLoop) -> list[_Listener]:
        with self._lock:
            return list(self._listeners.get(loop, ()))


def _event(face: Face, known: str | None) -> bytes:
    stamp = None if known is None else face.compact_stamp(known)
    if stamp is None:
        name, told = b"resync", b"{" + face.stamp.members + b"}"
    else:
        name, told = b"moved", b"{" + stamp.members + b',"since":"' + (known or "").encode() + b'"}'
    return b"id: " + face.epoch.encode() + b"\nevent: " + name + b"\ndata: " + told + b"\n\n"


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _known_by(headers: Mapping[str, str], query: str) -> str | None:
    """The epoch that a listener says it knows, if any."""
    said = headers.get("last-event-id") or headers.get(_EPOCH)
    if said is None:
        asked = parse_qs(query).get("known")
        return asked[-1] if asked else None
    return said if said.isalnum() else None
