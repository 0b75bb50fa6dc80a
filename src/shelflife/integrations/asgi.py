"""The contract as plain ASGI middleware, for any framework that speaks ASGI.

It pins one state of the world to each request, answers the contract's own endpoints, turns a `Rejected` into its answer, and stamps every
response: in the body where that is a JSON object the server may add to, in headers everywhere else.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from functools import lru_cache
from typing import Any

from shelflife.server.endpoints import PATHS, Call, Endpoints
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


class ContractMiddleware:
    """Wraps an ASGI app; `provider` says what its policies consult and what goes on the wire."""

    def __init__(self, app: App, provider: Provider) -> None:
        self.app = app
        self.provider = provider
        self._endpoints = Endpoints(provider)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path in PATHS:
            await _send_answer(send, await self._own_endpoint(scope, path, receive), scope["method"])
            return
        with self.provider.one_state() as state:
            level = self.provider.level
            response = _Stamping(send, scope["method"], state.stamp(level)) if level else _Passing(send)
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
        if call.method != "POST":
            return self._endpoints.answer(call)
        body = await _read_body(receive, self.provider.most_reload_bytes)
        return await asyncio.to_thread(self._endpoints.answer, call._replace(body=body))


class _Passing:
    """Lets a response through as it is."""

    __slots__ = ("_send", "has_started")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_started = False

    async def send(self, message: Message) -> None:
        self.has_started = True
        await self._send(message)


class _Stamping:
    """Holds back the start of a response until its first body message tells where the stamp can go."""

    __slots__ = ("_method", "_send", "_stamp", "_start", "has_started")

    def __init__(self, send: Send, method: str, stamp: Stamp) -> None:
        self._send = send
        self._method = method
        self._stamp = stamp
        self._start: Message | None = None
        self.has_started = False

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self.has_started = True
            self._start = message
            return
        if self._start is not None and kind.startswith("http.response."):
            start, self._start = self._start, None
            if kind == "http.response.body":
                self._stamp_response(start, message)
            else:
                self._add_headers(start)
            await self._send(start)
        await self._send(message)

    def _stamp_response(self, start: Message, message: Message) -> None:
        length_at: int | None = None
        may_change = start["status"] not in (204, 205, 206, 304)
        is_json = False
        headers = start.get("headers", ())
        for index, (name, value) in enumerate(headers):
            name = name.lower()
            if name == b"content-type":
                is_json = _is_json(value)
            elif name == b"content-length":
                length_at = index
            elif name in _VOUCHED_FOR or (name == b"etag" and not value.startswith(b"W/")):
                may_change = may_change and value == b"identity"
        if not (may_change and is_json):
            self._add_headers(start)
            return
        if self._method == "HEAD":
            self._add_headers(start)
            if length_at is not None:
                del start["headers"][length_at]
            return
        body = message.get("body", b"")
        is_whole = not message.get("more_body", False) or (
            length_at is not None and headers[length_at][1] == b"%d" % len(body)
        )
        new_body = stamped(body, self._stamp.members) if is_whole else b""
        if not new_body:
            self._add_headers(start)
            return
        message["body"] = new_body
        if length_at is not None:
            start["headers"] = list(headers)
            start["headers"][length_at] = (b"content-length", b"%d" % len(new_body))

    def _add_headers(self, start: Message) -> None:
        start["headers"] = [*start.get("headers", ()), *_encoded(self._stamp)]


@lru_cache(maxsize=4)
def _encoded(stamp: Stamp) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in stamp.headers]


@lru_cache(maxsize=256)
def _is_json(content_type: bytes) -> bool:
    media_type, *parameters = content_type.lower().replace(b" ", b"").split(b";")
    is_json = media_type == b"application/json" or (
        media_type.startswith(b"application/") and media_type.endswith(b"+json")
    )
    return is_json and all(
        parameter.strip(b'"') in (b"charset=utf-8", b'charset="utf-8', b"")
        or not parameter.startswith(b"charset")
        for parameter in parameters
    )


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
