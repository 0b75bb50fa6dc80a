"""One request under the contract: it sees one state, its refusal is answered, its response is stamped.

The modules for frameworks put `UnderContract` where it belongs in an app: next to the routes, inside of every login.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from shelflife.contract import BadMessage
from shelflife.contract.preconditions import PRECONDITION_HEADER
from shelflife.server.endpoints import EndpointCall, Endpoints
from shelflife.server.feed import Receive, Send
from shelflife.server.feedback import JSON, Answer, error_answer, stamped
from shelflife.server.operations import Operation
from shelflife.server.pinning import Asked, answer_to
from shelflife.server.pins import Listening, Pin
from shelflife.server.provider import Provider

__all__ = ["App", "Scope", "UnderContract", "accept_of", "answer_call", "path_below_root", "serve_call"]

Scope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_VOUCHING = {b"etag": b"W/"} | dict.fromkeys(
    (b"content-encoding", b"content-range", b"content-digest", b"repr-digest", b"digest", b"content-md5"),
    b"identity",
)
"""Headers that vouch for the very bytes of a body, each with the beginning of a value that does not."""

_BODILESS = frozenset({204, 205, 206, 304})
"""Statuses of responses that have no body, or only a part of one."""

_LARGEST_HELD = 1024 * 1024
_VERDICT = PRECONDITION_HEADER.lower().encode()


FindOperation = Callable[[Scope, str], Operation | None]
"""Finds the operation that a request is for, once its handler runs; None when it cannot be told. The second argument
is its path below the contract's root."""


class UnderContract:
    """An app whose requests see one state each, whose refusals are answered and whose responses are
    stamped."""

    def __init__(self, app: App, provider: Provider, find_operation: FindOperation) -> None:
        self.app = app
        self._provider = provider
        self._find_operation = find_operation
        self._key = f"shelflife {id(provider)}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(self.app, self._provider, scope, receive, send)
        elif scope["type"] != "http":
            # A websocket is no request. Nor is it the request in whose task it may have been begun.
            token = self._provider.pinned.set(None)
            try:
                await self.app(scope, receive, send)
            finally:
                self._provider.pinned.reset(token)
        elif scope.get(self._key, self) is not self:
            await self.app(scope, receive, send)  # an app around this one has pinned the request
        else:
            # Noted in the scope and not in the context: a server may begin the task of one request in that of
            # another, and an app may call itself.
            scope[self._key] = self
            listening = await self._serve(scope, receive, send)
            if listening is not None:
                # Only now: the app has let go of whatever it holds for a request, such as a database session.
                await self._provider.feed.stream(*listening, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> Listening | None:
        provider = self._provider
        try:
            pin = await self._pin(scope)
        except BadMessage as error:  # a precondition that cannot be understood cannot be honoured
            answer = error_answer(provider.wire, accept_of(scope), 400, str(error))
            await _send_answer(send, answer, scope["method"])
            return None
        response = _Response(send, pin, scope["method"])

        async def received() -> AsgiMessage:
            message = await receive()
            pin.hear(message)
            return message

        token = provider.pinned.set(pin)
        try:
            await self.app(scope, received, response.send)
        except Exception as error:
            failure = pin.failure_in(error)
            if failure is None or response.has_started or _is_handled(failure, scope):
                await response.release()
                raise
            await response.replace(answer_to(failure, provider, pin, accept_of(scope)))
            return None
        finally:
            pin.is_over = True  # a task that outlives the request has no request any more
            provider.pinned.reset(token)
        if pin.listening is None:
            await response.release()
        self._warn_of_what_went_unheard(pin, response)
        return pin.listening

    async def _pin(self, scope: Scope) -> Pin:
        """What the request sees; `BadMessage` when its precondition cannot be understood."""
        provider, headers = self._provider, {}
        if provider.disclosure or any(name.startswith(b"contract-") for name, _ in scope["headers"]):
            headers = _headers_of(scope)
        find = partial(self._find_operation, scope, path_below_root(scope))
        return await Asked(provider, scope["method"], headers).pinned(find, scope.get("root_path", ""))

    def _warn_of_what_went_unheard(self, pin: Pin, response: "_Response") -> None:
        """Warn an operator, once, of an operation that does not do what clients rely on."""
        is_unjudged = pin.precondition is not None and pin.verdict is None and not pin.is_own_answer
        if response.was_held:
            fault = "answered a refusal of check with 500; let Rejected through, or answer it"
        elif is_unjudged and response.status < 400:
            fault = "carries requests out without judging their preconditions; call check in it first"
        else:
            return
        operation, apps = pin.find_operation(), self._provider.apps
        # A path that a client made up has no place in the log.
        is_known = operation is not None and apps.has_operation(operation.name)
        apps.warn_once(f"{operation.name if operation and is_known else 'an operation'} {fault}")


@dataclass(slots=True)
class _Response:
    """Passes a response on with its stamp. The start of one whose body may be added to waits for that body.

    This runs on every response, so it makes no object and no call without need.
    """

    _send: Send
    _pin: Pin
    _method: str
    status: int = 0
    has_started: bool = False
    was_held: bool = False
    _length_at: int = -1
    """Where among the headers the length of the body is."""
    _start: AsgiMessage | None = None
    _held: list[AsgiMessage] | None = None
    """A 500 after a failed check: the app's own when it returns, a framework's when the failure comes
    out."""

    async def send(self, message: AsgiMessage) -> None:
        if self._pin.listening is not None:
            return  # what a handler answers for the feed does not leave the app
        if message["type"] == "http.response.start":
            self.status = message["status"]
            begun = self._begun(message)
            if begun is None:
                return
            message = begun
            if self._pin.failures and self.status == 500 and not self._pin.is_own_answer:
                self._held = [message]
                self.was_held = True
                return
        elif self._start is not None and message["type"].startswith("http.response."):
            message = await self._send_start(self._start, message)
        elif self._held is not None:
            self._held.append(message)
            if sum(len(one.get("body", b"")) for one in self._held) > _LARGEST_HELD:
                await self.release()
            return
        self.has_started = True
        await self._send(message)

    async def release(self) -> None:
        """Let go of what was held back: it is the app's own."""
        held, self._held = self._held, None
        for message in held or ():
            self.has_started = True
            await self._send(message)

    async def replace(self, answer: Answer) -> None:
        """Answer for the app."""
        self._start = self._held = self._pin.listening = None
        self._pin.is_own_answer = True
        await _send_answer(self.send, answer, self._method)

    def _begun(self, start: AsgiMessage) -> AsgiMessage | None:
        """The start of a response as it goes out; None while it waits for its body."""
        pin, stamp = self._pin, self._pin.stamp
        is_stamped = bool(stamp.members) and pin.may_be_stamped(self.status)
        if not is_stamped and pin.verdict is None:
            return start
        headers = list(start.get("headers", ()))
        begun = {**start, "headers": headers}
        if pin.verdict is not None:
            headers.append((_VERDICT, pin.verdict.encode()))
        if not is_stamped:
            return begun
        headers += _encoded(stamp.beside)
        if self._is_changeable(headers):
            if self._method != "HEAD":
                self._start = begun
                return None
            if self._length_at >= 0:
                del headers[self._length_at]
        headers += _encoded(stamp.headers)
        return begun

    async def _send_start(self, start: AsgiMessage, message: AsgiMessage) -> AsgiMessage:
        """Send the start that waited for this message; the message as it goes out."""
        stamp, headers, at = self._pin.stamp, start["headers"], self._length_at
        self._start = None
        self.has_started = True
        body = bytes(message.get("body", b""))
        is_whole = not message.get("more_body", False) or (at >= 0 and headers[at][1] == b"%d" % len(body))
        body = stamped(body, stamp.members) if is_whole else b""
        if not body:
            headers += _encoded(stamp.headers)
        else:
            message = {**message, "body": body}
            if at >= 0:
                headers[at] = (b"content-length", b"%d" % len(body))
        await self._send(start)
        return message

    def _is_changeable(self, headers: list[tuple[bytes, bytes]]) -> bool:
        """Whether the body may be one that takes the stamp, judged by the start of the response."""
        is_json = False
        for index, (raw_name, value) in enumerate(headers):
            name = raw_name.lower()
            if name == b"content-type":
                is_json = _is_json(value)
            elif name == b"content-length":
                self._length_at = index
            elif name in _VOUCHING and not value.startswith(_VOUCHING[name]):
                return False
        return is_json and self.status not in _BODILESS


async def answer_call(
    endpoints: Endpoints, path: str, scope: Mapping[str, Any], body: AsyncIterator[bytes]
) -> Answer:
    """The answer to a call of one of the contract's own endpoints.

    One for the feed is never sent: the pin notes that the feed begins when the app is done.
    """
    pin, call = endpoints.provider.pin, _call_of(scope, path)
    if pin is not None:
        pin.is_own_answer = True
        if endpoints.is_for_the_feed(call):
            pin.listening = (call.headers, call.query)
            return Answer(200, JSON, b"")
    refusal = endpoints.admit(call)
    if refusal is not None:
        return refusal
    if call.method == "POST":
        call = call._replace(body=await _at_most(body, endpoints.most_bytes))
    return await asyncio.to_thread(endpoints.answer, call)


async def serve_call(endpoints: Endpoints, path: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a call of one of the contract's own endpoints where no handler of a framework does."""
    provider, call = endpoints.provider, _call_of(scope, path)
    if provider.pin is None and endpoints.is_for_the_feed(call):
        await provider.feed.stream(call.headers, call.query, receive, send)
    else:
        await _send_answer(send, await answer_call(endpoints, path, scope, _body_from(receive)), call.method)


def _call_of(scope: Mapping[str, Any], path: str) -> EndpointCall:
    """A request as the endpoints know it, still without its body."""
    query = scope.get("query_string", b"").decode("latin-1")
    return EndpointCall(
        scope["method"], path, query, _headers_of(scope), root_path=scope.get("root_path", "")
    )


def path_below_root(scope: Scope) -> str:
    """The path of a request below where its app is mounted."""
    path: str = scope["path"]
    below = path.removeprefix(scope.get("root_path", ""))
    return below if below.startswith("/") else path


def accept_of(scope: Mapping[str, Any]) -> str:
    """What a request says of the form of an answer."""
    return _headers_of(scope).get("accept", "")


def _headers_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """The headers of a request, by lower-case name. One that comes several times is joined."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


async def _live(app: App, provider: Provider, scope: Scope, receive: Receive, send: Send) -> None:
    """Hold the policies to the app's operations when it has started, and close the provider's files when it
    ends."""
    has_begun: bool | None = None

    async def sent(message: AsgiMessage) -> None:
        nonlocal has_begun
        if has_begun is False:
            return  # what the app says of it comes too late
        if message["type"] == "lifespan.startup.complete":  # an app may add routes as it starts
            try:
                provider.begin_life()
            except Exception as error:
                has_begun = False
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                raise
            has_begun = True
        await send(message)

    try:
        await app(scope, receive, sent)
    finally:
        if has_begun:
            provider.end_life()


def _is_handled(failure: Exception, scope: Scope) -> bool:
    """Whether a Starlette app has a handler of its own for this, which it calls further out."""
    by_type, _ = scope.get("starlette.exception_handlers", ({}, {}))
    return any(kind in by_type for kind in type(failure).__mro__[:-3])


def _encoded(headers: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers]


@lru_cache(maxsize=256)
def _is_json(content_type: bytes) -> bool:
    media_type, *parameters = content_type.lower().replace(b" ", b"").replace(b'"', b"").split(b";")
    charsets = {parameter for parameter in parameters if parameter.startswith(b"charset=")}
    return media_type in (b"application/json", b"application/problem+json") and charsets <= {b"charset=utf-8"}


async def _body_from(receive: Receive) -> AsyncIterator[bytes]:
    """The body of a request that nobody has read yet."""
    while True:
        message = await receive()
        yield message.get("body", b"")
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return


async def _at_most(body: AsyncIterator[bytes], most_bytes: int) -> bytes:
    """The body, or one byte more than the most that may come."""
    whole = bytearray()
    async for part in body:
        whole += part
        if len(whole) > most_bytes:
            break
    return bytes(whole[: most_bytes + 1])


async def _send_answer(send: Send, answer: Answer, method: str) -> None:
    headers = _encoded(answer.headers)
    if answer.content_type:
        headers.append((b"content-type", answer.content_type.encode()))
        headers.append((b"content-length", b"%d" % len(answer.body)))
    body = b"" if method == "HEAD" else answer.body
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
