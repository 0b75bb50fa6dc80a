"""The contract as plain ASGI middleware, for any framework that speaks ASGI.

It pins one state of the world to each request, answers the contract's own endpoints, turns a `Rejected` into its answer, and stamps every
response: in the body where that is a JSON object the server may add to, in headers everywhere else.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from functools import lru_cache
from typing import Any

from shelflife.contract import BadMessage
from shelflife.contract.preconditions import Precondition
from shelflife.integrations.feed import Feed
from shelflife.server.endpoints import CHANGES_PATH, Call, Endpoints
from shelflife.server.errors import PolicyFailed
from shelflife.server.feedback import Answer, form_asked_for, stamped
from shelflife.server.policies import Rejected
from shelflife.server.preconditions import is_met, refusal_of_malformed, unmet
from shelflife.server.provider import Pin, Provider
from shelflife.server.repairs import Repair, RepairedStamp, is_lenient
from shelflife.server.state import CompactStamp, Face, Stamp

__all__ = ["ContractMiddleware"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

AnyStamp = Stamp | CompactStamp | RepairedStamp

_log = logging.getLogger("shelflife")

_TELLING = {
    b"content-type": "type",
    b"content-length": "length",
    b"etag": "etag",
    b"content-encoding": "bytes",
    b"content-range": "bytes",
    b"content-digest": "bytes",
    b"repr-digest": "bytes",
    b"digest": "bytes",
    b"content-md5": "bytes",
}
"""Headers that tell whether a body may be added to; the last ones vouch for its very bytes."""

_SERVER_ERROR = 500
_LARGEST_REPAIRED = 1024 * 1024
_CACHED = frozenset({"GET", "HEAD"})
"""Methods whose responses a cache may give to another client, who knows another epoch or other aliases."""

_BODILESS = frozenset({204, 205, 206, 304})
"""Statuses of responses that have no body, or only a part of one."""


class ContractMiddleware:
    """Wraps an ASGI app; `provider` says what its policies consult and what goes on the wire.

    `left_alone` are paths whose bodies are never added to.
    """

    def __init__(self, app: App, provider: Provider, left_alone: Collection[str] = ()) -> None:
        self.app = app
        self.provider = provider
        self._left_alone = frozenset(left_alone)
        self._level = provider.level
        self._disclosure = provider.disclosure
        self._endpoints = Endpoints(provider)
        self.feed = Feed(provider)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            try:
                await self.app(scope, receive, send)
            finally:
                if scope["type"] == "lifespan":
                    self.provider.close()
            return
        path = scope["path"]
        if root_path := scope.get("root_path"):
            path = path.removeprefix(root_path.rstrip("/"))
        if path in self._endpoints.paths:
            if path == CHANGES_PATH and b"text/event-stream" in _accepted(scope) and not self.feed.is_full:
                await self.feed.stream(_headers(scope), _query(scope), receive, send)
                return
            await _send_answer(send, await self._own_endpoint(scope, path, receive), scope["method"])
            return
        pin = Pin(self.provider.registry.state)
        if self._disclosure is None or not self._level:
            face = pin.state.face(self._level)
        else:
            face = self._disclosure.face(pin.state, self._level, _headers(scope))
        stamp: Stamp | CompactStamp | None = None
        if self._level:
            stamp = face.stamp
            if wishes := _wishes(scope):
                epoch = wishes.get(b"contract-epoch")
                if epoch is not None:
                    stamp = face.compact_stamp(epoch) or stamp
                precondition = wishes.get(b"contract-precondition")
                if precondition is not None:
                    refusal = await self._unmet_precondition(
                        precondition, scope, path, receive, pin, face, stamp
                    )
                    if refusal is not None:
                        await _send_answer(send, refusal, scope["method"], stamp.vary)
                        return
                if self._is_repaired(wishes.get(b"prefer", ""), scope, path):
                    await self._serve_repaired(scope, receive, send, path, pin, face, stamp)
                    return
        if await self._serve(scope, receive, send, path, pin, stamp):
            await self._send_failure(scope, send, pin, face, stamp)

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, path: str, pin: Pin, stamp: AnyStamp | None
    ) -> bool:
        """Let the app answer; True when it has not, because its check failed."""
        response = _Response(send, scope["method"], stamp, pin, path not in self._left_alone)
        token = self.provider.pinned.set(pin)
        try:
            await self.app(scope, receive, response.send)
        except Exception as error:
            if response.has_started or not (response.is_withheld or error is pin.failure):
                raise
            response.is_withheld = True
        finally:
            self.provider.pinned.reset(token)
        return response.is_withheld and pin.failure is not None

    async def _send_failure(
        self, scope: Scope, send: Send, pin: Pin, face: Face, stamp: Stamp | CompactStamp | None
    ) -> None:
        if pin.failure is not None:
            answer = self._answer_to(pin.failure, scope, face, stamp)
            await _send_answer(send, answer, scope["method"], stamp.vary if stamp else "")

    def _is_repaired(self, prefer: str, scope: Scope, path: str) -> bool:
        return is_lenient(prefer) and f"{scope['method']} {path}" in self.provider.repaired_operations

    async def _serve_repaired(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        path: str,
        pin: Pin,
        face: Face,
        stamp: Stamp | CompactStamp,
    ) -> None:
        """Let the app answer; where its check refuses the request with fixes that can be kept, merge them and let it answer again."""
        body = await _read_body(receive, _LARGEST_REPAIRED)
        repair = Repair(body)
        current = pin
        while await self._serve(
            _with_length(scope, repair.body), _replayed(repair.body), send, path, current, repair.stamp(stamp)
        ):
            if not repair.merge(current.failure):
                await self._send_failure(scope, send, pin, face, stamp)  # as though nothing had been tried
                return
            current = Pin(pin.state)

    async def _unmet_precondition(
        self,
        value: str,
        scope: Scope,
        path: str,
        receive: Receive,
        pin: Pin,
        face: Face,
        stamp: Stamp | CompactStamp,
    ) -> Answer | None:
        """The refusal of a request whose remembered values may have gone stale; None when it may go on."""
        try:
            precondition = Precondition.from_header(value)
        except BadMessage as error:
            return refusal_of_malformed(error)
        if is_met(precondition, face):
            return None
        body = await _read_body(receive, _LARGEST_REPAIRED)
        form = form_asked_for(_header(scope, b"accept"), self.provider.feedback.error_form)
        operation = f"{scope['method']} {path}"
        token = self.provider.pinned.set(pin)
        try:
            return unmet(precondition, self.provider, pin.state, face, operation, body, form, stamp)
        finally:
            self.provider.pinned.reset(token)

    def _answer_to(
        self,
        failure: Rejected | PolicyFailed,
        scope: Scope,
        face: Face,
        stamp: Stamp | CompactStamp | None,
    ) -> Answer:
        feedback = self.provider.feedback
        form = form_asked_for(_header(scope, b"accept"), feedback.error_form)
        if isinstance(failure, Rejected):
            return feedback.rejection(failure, form, face, stamp)
        _log.error("%s; the request was answered with 500", failure, exc_info=failure.__cause__)
        return feedback.failure(face, form)

    async def _own_endpoint(self, scope: Scope, path: str, receive: Receive) -> Answer:
        call = Call(scope["method"], path, _query(scope), _headers(scope))
        refusal = self._endpoints.admit(call)
        if refusal is not None:
            return refusal
        if call.method == "POST":
            call = call._replace(body=await _read_body(receive, self._endpoints.most_bytes(path)))
        return await asyncio.to_thread(self._endpoints.answer, call)


class _Response:
    """Passes a response on with its stamp. The start of one whose body may be added to waits for that body.

    This runs on every response, so it makes no object and no call that it can do without.
    """

    __slots__ = (
        *("_headers", "_length_at", "_may_change", "_method", "_pin", "_send", "_stamp", "_start"),
        *("has_started", "is_withheld"),
    )
    _headers: list[tuple[bytes, bytes]]
    _length_at: int

    def __init__(self, send: Send, method: str, stamp: AnyStamp | None, pin: Pin, may_change: bool) -> None:
        self._send = send
        self._pin = pin
        self._method = method
        self._stamp = stamp
        self._may_change = may_change
        self._start: Message | None = None
        self.has_started = False
        self.is_withheld = False
        """The app has made a 500 of what `check` raised; the answer to that goes out instead."""

    async def send(self, message: Message) -> None:
        start = self._start
        stamp = self._stamp
        if self._pin.failure is not None and not self.has_started:
            if message["type"] == "http.response.start" and message["status"] == _SERVER_ERROR:
                self.is_withheld = True
            if self.is_withheld:
                return
        if start is not None and stamp is not None and message["type"].startswith("http.response."):
            headers, at = self._headers, self._length_at
            self._start = None
            self.has_started = True
            body = b""
            if message["type"] == "http.response.body":
                body = message.get("body", b"")
                if message.get("more_body", False) and (at < 0 or headers[at][1] != b"%d" % len(body)):
                    body = b""
                elif body:
                    body = stamped(bytes(body), stamp.members)
            if not body:
                headers += _encoded(stamp)
            else:
                message = {**message, "body": body}
                if at >= 0:
                    headers[at] = (b"content-length", b"%d" % len(body))
            await self._send({**start, "headers": headers})
        elif message["type"] == "http.response.start" and stamp is not None:
            headers = list(message.get("headers", ()))
            if stamp.vary and self._method in _CACHED:
                headers.append((b"vary", stamp.vary.encode()))
            if stamp.is_repaired:
                headers.append((b"preference-applied", b"handling=lenient"))
            if self._is_changeable(message["status"], headers):
                self._start, self._headers = message, headers
                return
            headers += _encoded(stamp)
            message = {**message, "headers": headers}
            self.has_started = True
        else:
            self.has_started = True
        await self._send(message)

    def _is_changeable(self, status: int, headers: list[tuple[bytes, bytes]]) -> bool:
        """Whether the body may be one that takes the stamp, judged by the start of the response."""
        may_change = self._may_change and status not in _BODILESS
        is_json = False
        self._length_at = -1
        for index, (name, value) in enumerate(headers):
            telling = _TELLING.get(name) or _TELLING.get(name.lower())
            if telling is None:
                continue
            if telling == "type":
                is_json = _is_json(value)
            elif telling == "length":
                self._length_at = index
            elif not value.startswith(b"W/" if telling == "etag" else b"identity"):
                may_change = False
        if not (may_change and is_json):
            return False
        if self._method == "HEAD":
            if self._length_at >= 0:
                del headers[self._length_at]
            return False
        return True


@lru_cache(maxsize=4)
def _encoded(stamp: AnyStamp) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in stamp.headers]


@lru_cache(maxsize=256)
def _is_json(content_type: bytes) -> bool:
    media_type, *parameters = content_type.lower().replace(b" ", b"").replace(b'"', b"").split(b";")
    charsets = {parameter for parameter in parameters if parameter.startswith(b"charset=")}
    return media_type in (b"application/json", b"application/problem+json") and charsets <= {b"charset=utf-8"}


def _wishes(scope: Scope) -> dict[bytes, str] | None:
    """What a client asks of the contract itself; None, mostly, for nothing. Looked for once, on every request."""
    wishes: dict[bytes, str] | None = None
    for name, value in scope["headers"]:
        if name[:9] == b"contract-" or name == b"prefer":
            wishes = wishes or {}
            said = value.decode("latin-1")
            wishes[name] = f"{wishes[name]}, {said}" if name in wishes else said
    return wishes


def _with_length(scope: Scope, body: bytes) -> Scope:
    headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
    return {**scope, "headers": [*headers, (b"content-length", b"%d" % len(body))]}


def _replayed(body: bytes) -> Receive:
    """Gives a body that was read before, once; then nothing more comes."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Message:
        return next(messages, {"type": "http.disconnect"})

    return receive


def _accepted(scope: Scope) -> bytes:
    return _header(scope, b"accept").encode("latin-1") if scope["method"] == "GET" else b""


def _query(scope: Scope) -> str:
    query: bytes = scope.get("query_string", b"")
    return query.decode("latin-1")


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _header(scope: Scope, name: bytes) -> str:
    return b",".join(value for key, value in scope["headers"] if key == name).decode("latin-1")


async def _read_body(receive: Receive, most_bytes: int) -> bytes:
    """The body, or one byte more than the most that may come."""
    parts: list[bytes] = []
    size = 0
    while size <= most_bytes:
        message = await receive()
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            break
    return b"".join(parts)[: most_bytes + 1]


async def _send_answer(send: Send, answer: Answer, method: str, vary: str = "") -> None:
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in answer.headers]
    if vary and method in _CACHED:
        headers.append((b"vary", vary.encode()))
    if answer.status != 304:
        headers.append((b"content-type", answer.content_type.encode()))
        headers.append((b"content-length", b"%d" % len(answer.body)))
    body = b"" if method == "HEAD" else answer.body
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
