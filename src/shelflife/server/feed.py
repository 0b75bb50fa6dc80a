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
from weakref import WeakKeyDictionary, WeakSet

import msgspec
from msgspec import UNSET

from shelflife.contract.positions import AT_HEADER, Account, Named, Position
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
_HEARTBEAT_S = 15.0
_LONGEST_CATCH_UP_S = 10.0
_LONGEST_EVENT = 64 * 1024
"""A longer account says only that the server has gone on. The listener then asks."""

_MOST_LISTENERS = 10_000
_MOST_ACCOUNTS = 256
_STILL_HERE = b": still here\n\n"
_AT = AT_HEADER.lower()
_encode = msgspec.json.Encoder().encode

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
        face_of: Callable[[State, Mapping[str, str]], Face | None],
        heartbeat_s: float = _HEARTBEAT_S,
    ) -> None:
        """`face_of` gives what a state shows to a client; None when this process cannot speak for it."""
        self._registry = registry
        self._face_of = face_of
        self.heartbeat_s = heartbeat_s
        """While nothing moves, a listener hears so often that somebody is there. Never set it to more than 15."""
        self._lock = threading.Lock()
        self._listeners: dict[asyncio.AbstractEventLoop, set[_Listener]] = {}
        self._ended: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
        """Loops whose process was told to end."""
        self._accounts: WeakKeyDictionary[Face, dict[Position | None, Account]] = WeakKeyDictionary()
        """What has moved to a state, by where from."""
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

    async def _tell(self, headers: Mapping[str, str], known: Named, listener: _Listener, send: Send) -> None:
        if not await self._can_answer(known) or self._face_of(self._registry.state, headers) is None:
            await send({"type": "http.response.start", "status": 503, "headers": [(b"retry-after", b"5")]})
            await send({"type": "http.response.body", "body": b""})
            return
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        while not listener.is_to_end:
            # Cleared before the state is read: a change after this is either seen now, or sets it again.
            listener.moved.clear()
            face = self._face_of(self._registry.state, headers)
            if face is None:
                break  # a sign of life would say that nothing has moved
            part = _STILL_HERE
            if known.nonce or face.position != known.position:
                part, known = self._event(face, known), Named(face.position, known.mark)
            del face  # it would keep its state alive until the next one
            await send({"type": "http.response.body", "body": part, "more_body": True})
            with suppress(TimeoutError):
                await asyncio.wait_for(listener.moved.wait(), self.heartbeat_s)
        await send({"type": "http.response.body", "body": b""})

    async def _can_answer(self, known: Named) -> bool:
        """Where a listener asks, or knows more than this process does, look at the end of the log; False when it cannot be reached.

        Else a process that lags behind would say that what the listener knows is not in the log.
        """
        registry = self._registry
        is_ahead = known.position is not None and known.position.number > registry.state.number
        if registry.is_shared and (known.nonce or is_ahead):
            try:
                await asyncio.wait_for(asyncio.to_thread(registry.catch_up), _LONGEST_CATCH_UP_S)
            except (LogError, TimeoutError) as error:
                _log.info("a listener could not be answered from the end of the log: %s", error)
                return False
        return True

    def _event(self, face: Face, known: Named) -> bytes:
        accounts = self._accounts.setdefault(face, {})
        account = accounts.get(known.position)
        if account is None:
            if len(accounts) >= _MOST_ACCOUNTS:
                accounts.clear()
            account = accounts[known.position] = face.account(Named(known.position))
        since = known.base if account.since else ""
        told = _encode(msgspec.structs.replace(account, since=since, nonce=known.nonce))
        is_whole = len(told) <= _LONGEST_EVENT
        if not is_whole:
            told = _encode(Account(to=account.to, since=since, nonce=known.nonce))
        name = b"moved" if is_whole and account.moved is not UNSET else b"resync"
        return b"id: " + account.to.encode() + b"\nevent: " + name + b"\ndata: " + told + b"\n\n"

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


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _known_by(headers: Mapping[str, str], query: str) -> Named:
    """What a listener says it knows, if anything."""
    said = headers.get("last-event-id") or headers.get(_AT) or parse_qs(query).get("known", [""])[-1]
    return Named.from_header(said) or Named()
