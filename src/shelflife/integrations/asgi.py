"""The contract as plain ASGI middleware, for any framework that speaks ASGI.

It pins one state of the world to each request, answers the contract's own endpoints, turns a `Rejected` into its answer, and stamps every
response: in the body where that is a JSON object the server may add to, in headers everywhere else.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from functools import lru_cache
from typing import Any

from shelflife.server.endpoints import Call, Endpoints
from shelflife.server.errors import PolicyFailed
from shelflife.server.feedback import Answer, form_asked_for, stamped
from shelflife.server.policies import Rejected
from shelflife.server.provider import Provider
from shelflife.server.state import Stamp

__all__ = ["ContractMiddleware"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = logging.getLogger("shelflife")

_VOUCHED_FOR = frozenset(
    {b"content-encoding", b"content-range", b"content-digest", b"repr-digest", b"digest", b"content-md5"}
)
"""Headers that describe the very bytes of the body, which must then stay as they are."""

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
        self._endpoints = Endpoints(provider)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", "").rstrip("/"))
        if path in self._endpoints.paths:
            await _send_answer(send, await self._own_endpoint(scope, path, receive), scope["method"])
            return
        with self.provider.one_state() as state:
            level = self.provider.level
            stamp = state.stamp(level) if level else None
            response = _Response(send, scope["method"], stamp, may_change=path not in self._left_alone)
            try:
                await self.app(scope, receive, response.send)
            except (Rejected, PolicyFailed) as error:
                if response.has_started:
                    raise
                form = form_asked_for(_header(scope, b"accept"), self.provider.feedback.error_form)
                if isinstance(error, Rejected):
                    answer = self.provider.feedback.rejection(error, form)
                else:
                    _log.error("%s; the request was answered with 500", error, exc_info=error.__cause__)
                    answer = self.provider.feedback.failure(state, form)
                await _send_answer(send, answer, scope["method"])

    async def _own_endpoint(self, scope: Scope, path: str, receive: Receive) -> Answer:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        call = Call(scope["method"], path, scope.get("query_string", b"").decode("latin-1"), headers)
        refusal = self._endpoints.admit(call)
        if refusal is not None:
            return refusal
        if call.method == "POST":
            call = call._replace(body=await _read_body(receive, self.provider.most_reload_bytes))
        return await asyncio.to_thread(self._endpoints.answer, call)


class _Response:
    """Passes a response on with its stamp. The start of one whose body may be added to waits for that body."""

    __slots__ = ("_length", "_may_change", "_method", "_send", "_stamp", "_start", "has_started")

    def __init__(self, send: Send, method: str, stamp: Stamp | None, *, may_change: bool) -> None:
        self._send = send
        self._method = method
        self._stamp = stamp
        self._may_change = may_change
        self._start: Message | None = None
        self._length: bytes | None = None
        self.has_started = False

    async def send(self, message: Message) -> None:
        if self._stamp is None:
            self.has_started = True
        elif message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            message = {**message, "headers": headers}
            if self._is_changeable(message["status"], headers):
                self._start = message
                return
            headers += _encoded(self._stamp)
            self.has_started = True
        elif self._start is not None and message["type"].startswith("http.response."):
            start, self._start = self._start, None
            body = self._stamped_body(message)
            if body:
                message = {**message, "body": body}
                if self._length is not None:
                    _replace_length(start["headers"], len(body))
            else:
                start["headers"] += _encoded(self._stamp)
            self.has_started = True
            await self._send(start)
        await self._send(message)

    def _is_changeable(self, status: int, headers: list[tuple[bytes, bytes]]) -> bool:
        """Whether the body may be one that takes the stamp, judged by the start of the response."""
        may_change = self._may_change and status not in _BODILESS
        is_json = False
        for name, value in headers:
            name = name.lower()
            if name == b"content-type":
                is_json = _is_json(value)
            elif name == b"content-length":
                self._length = value
            elif name in _VOUCHED_FOR or (name == b"etag" and not value.startswith(b"W/")):
                may_change = may_change and value == b"identity"
        if not (may_change and is_json):
            return False
        if self._method == "HEAD":
            headers[:] = [header for header in headers if header[0].lower() != b"content-length"]
            return False
        return True

    def _stamped_body(self, message: Message) -> bytes:
        """The first body message with the stamp in it; b"" when it takes none."""
        if message["type"] != "http.response.body" or self._stamp is None:
            return b""
        body = bytes(message.get("body", b""))
        is_whole = not message.get("more_body", False) or self._length == b"%d" % len(body)
        return stamped(body, self._stamp.members) if is_whole else b""


def _replace_length(headers: list[tuple[bytes, bytes]], length: int) -> None:
    for index, (name, _) in enumerate(headers):
        if name.lower() == b"content-length":
            headers[index] = (b"content-length", b"%d" % length)


@lru_cache(maxsize=4)
def _encoded(stamp: Stamp) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in stamp.headers]


@lru_cache(maxsize=256)
def _is_json(content_type: bytes) -> bool:
    media_type, *parameters = content_type.lower().replace(b" ", b"").replace(b'"', b"").split(b";")
    charsets = {parameter for parameter in parameters if parameter.startswith(b"charset=")}
    return media_type in (b"application/json", b"application/problem+json") and charsets <= {b"charset=utf-8"}


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


async def _send_answer(send: Send, answer: Answer, method: str) -> None:
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in answer.headers]
    if answer.status != 304:
        headers.append((b"content-type", answer.content_type.encode()))
        headers.append((b"content-length", b"%d" % len(answer.body)))
    body = b"" if method == "HEAD" else answer.body
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
