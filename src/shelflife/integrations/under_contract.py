"""One request under the contract: it sees one state, its refusal is answered, its response is stamped.

The modules for frameworks put `UnderContract` where it belongs in an app: next to the routes, inside of every login.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, MutableMapping
from functools import partial
from typing import Any

from shelflife.contract import BadMessage
from shelflife.contract.positions import AT_HEADER
from shelflife.contract.preconditions import PRECONDITION_HEADER
from shelflife.integrations.stamping import (
    CALL_CHECK,
    CONTRACT_KEY,
    Stamping,
    headers_of_answer,
    is_pinned_around,
    warn_of_what_went_unheard,
)
from shelflife.server.endpoints import EndpointCall, Endpoints
from shelflife.server.feed import Receive, Send
from shelflife.server.feedback import Answer, error_answer, stamped
from shelflife.server.operations import Operation
from shelflife.server.pinning import Incoming, answer_to
from shelflife.server.pins import LONGEST_KEPT, Pin
from shelflife.server.provider import Provider

__all__ = [
    "App",
    "Scope",
    "UnderContract",
    "accept_of",
    "answer_call",
    "live",
    "path_below_root",
    "send_answer",
    "serve_call",
]

Scope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
App = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI app; each framework has types of its own for what it takes."""

_LARGEST_HELD = 1024 * 1024
_START = "http.response.start"
_JSON = (b"content-type", b"application/json")
_USUAL = frozenset({200, 201, 202, 203})
"""Statuses of successes that have a body."""

_SAID_IN = frozenset({AT_HEADER.lower().encode(), PRECONDITION_HEADER.lower().encode()})
"""Where a client says something to the contract."""

FindOperation = Callable[[Scope, str], Operation | None]
"""Finds the operation that a request is for, once its handler runs; None when it cannot be told. The second argument
is its path below the contract's root."""


class UnderContract:
    """An app whose requests see one state each, whose refusals are answered and whose responses are
    stamped. `remedy` tells an operator how preconditions come to be judged."""

    def __init__(
        self,
        app: App,
        provider: Provider,
        find_operation: FindOperation,
        *,
        own: App | None = None,
        remedy: str = CALL_CHECK,
    ) -> None:
        """`own` is called in place of the app for paths like those of the contract's endpoints."""
        self.app = app
        self._own = app if own is None else own
        self._remedy = remedy
        self.provider = provider
        self._find_operation = find_operation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (CONTRACT_KEY in scope and is_pinned_around(self, scope)):
            await self._pass_on(scope, receive, send)
            return
        # Noted in the scope and not in the context: a server may begin the task of one request in that of
        # another, and an app may call itself.
        scope[CONTRACT_KEY] = self
        provider, shown, is_heard, pin = self.provider, None, True, _Request()
        pin.scope, pin.receive_plain, pin.pass_on, pin.usual_start = scope, receive, send, None
        pin.path = path = path_below_root(scope) if scope.get("root_path") else scope["path"]
        pin.is_over = pin.has_passed = False  # to find that in the class would take longer
        for name, _ in scope["headers"]:
            if name in _SAID_IN:
                break
        else:
            if scope["method"] != "HEAD":  # which gets the length of a body, and none
                shown = provider.shown
                if (  # else it is as `usual` would give it
                    shown is None
                    or shown.state is not provider.registry.state
                    or shown.readiness is not provider.readiness
                    or shown.is_of_a_shared_log
                ):
                    shown = provider.usual()
        if shown is not None:
            pin.shown, pin.find, pin.is_plain = shown, self._find_operation, shown.is_plain
            is_heard = shown.is_heard
        else:
            try:
                await self._pin(pin, scope)
            except BadMessage as error:  # a precondition that cannot be understood cannot be honoured
                answer = error_answer(provider.wire, accept_of(scope), 400, str(error))
                await send_answer(send, answer, scope["method"])
                return
        if provider.clients is not None:
            pin.headers = partial(_headers_of, scope, provider.clients.reads)
        outer = provider.pinned.get()
        provider.pinned.set(pin)
        try:
            app = self._own if "/contract/" in path else self.app
            if is_heard:
                pin.body = b""
                await app(scope, pin.receive, pin.send)
            else:
                await app(scope, receive, pin.send)
        except BaseException as error:  # noqa: BLE001 - what is no refusal is raised again
            try:
                failure = pin.failure_in(error)
                if failure is None or pin.has_started or _is_handled(error, scope):
                    # A request that is cancelled ends now: nothing more may be waited for.
                    if isinstance(error, Exception):
                        await pin.release()
                    raise
                await pin.replace(answer_to(failure, provider, pin, accept_of(scope)))
            finally:
                pin.let_go()
            return
        finally:
            # A task that outlives the request has no request any more, nor has whoever comes after it in the same context: to take it out
            # of that would take longer than to put it in.
            pin.is_over = True
            if outer is not None and not outer.is_over:
                provider.pinned.set(outer)
        if pin.is_plain:  # as `let_go` does it
            pin.receive_plain, pin.pass_on = _no_more, _nowhere
            pin.scope, pin.body = None, b""
            if provider.clients is not None:
                pin.headers = dict
        else:
            await self._end(pin, receive, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What is no request, or is one that an app around this one has pinned."""
        if scope["type"] == "lifespan":
            await live(self.app, self.provider.begin_life, self.provider.end_life, scope, receive, send)
        elif scope["type"] == "http":
            app = self._own if "/contract/" in path_below_root(scope) else self.app
            await app(scope, receive, send)
        else:
            # A websocket is no request. Nor is it the request in whose task it may have been begun.
            token = self.provider.pinned.set(None)
            try:
                await self.app(scope, receive, send)
            finally:
                self.provider.pinned.reset(token)

    async def _end(self, pin: "_Request", receive: Receive, send: Send) -> None:
        """What is left to do once the app has returned."""
        provider, listening = self.provider, pin.listening
        try:
            if listening is None:
                await pin.release()
            warn_of_what_went_unheard(
                provider, pin, pin.status, was_refusal=pin.was_held, remedy=self._remedy
            )
        finally:
            pin.let_go()
        if listening is not None:
            # Only now: the app has let go of whatever it holds for a request, such as a database session.
            await listening(receive, send)

    async def _pin(self, pin: Pin, scope: Scope) -> None:
        """Put into a pin what the request sees; `BadMessage` when its precondition cannot be understood."""
        incoming = Incoming(self.provider, scope["method"], _headers_of(scope))
        pin.find = self._find_operation
        await incoming.pin(pin, scope.get("root_path", ""))


async def _no_more() -> AsgiMessage:
    """What a task receives that has outlived its request: a server tells it the same."""
    return {"type": "http.disconnect"}


async def _nowhere(message: AsgiMessage) -> None:
    """Where such a task sends to."""
    raise RuntimeError(f"the request is over, and {message['type']} can no longer be sent for it")


class _Request(Pin):
    """A request, and what passes its response on with a stamp. The start of one whose body may be added to waits for that body."""

    scope: Scope | None
    path: str
    """Below the contract's root, as it was before the app has found where it is mounted."""
    receive_plain: Receive
    pass_on: Send
    usual_start: AsgiMessage | None
    """The start of a usual response, which waits for its body."""
    status: int = 0
    has_started: bool = False
    was_held: bool = False
    _stamping: Stamping | None = None
    """What becomes of a response that is not a usual one."""
    _waiting_start: AsgiMessage | None = None
    """The start of such a one, where that waits for its body."""
    _held: list[AsgiMessage] | None = None
    """A 500 after a failed check: the app's own when it returns, a framework's when the failure comes out."""

    def let_go(self) -> None:
        """Let go of what the request was asked with, and of where it is answered."""
        super().let_go()
        self.scope, self.receive_plain, self.pass_on = None, _no_more, _nowhere

    def find_operation(self) -> Operation | None:
        """The operation that the app has found for the request."""
        return None if self.scope is None else self.find(self.scope, self.path)

    async def receive(self) -> AsgiMessage:
        """Receive, and keep what the client sends for whoever checks it."""
        message = await self.receive_plain()
        part = message.get("body")
        if not self.body and type(part) is bytes and len(part) <= LONGEST_KEPT:
            self.body = part  # as `hear` would do, which most bodies need not call
        elif part:
            self.hear(part)
        return message

    async def send(self, message: AsgiMessage) -> None:
        """Most responses go by this alone: a success of JSON that has its length and no more headers, and a body in one piece. It calls
        few others, for a server does this amid much else: what counts is how much has to be looked at. All else goes by steps which would
        do the same for these."""
        start = self.usual_start
        if start is not None:
            self.usual_start = None
            part = message.get("body")
            if type(part) is bytes and (len(message) == 2 or message.get("more_body") is False):
                shown = self.shown
                body = stamped(part, shown.stamp)
                if body:
                    self.has_started = True
                    shown.counts.stamped += 1
                    pass_on = self.pass_on
                    start["headers"] = [(b"content-length", b"%d" % len(body)), _JSON]
                    await pass_on(start)
                    await pass_on({"type": "http.response.body", "body": body})
                    return
            await self._send(start)
        elif self.is_plain and (self.has_run or self.has_checked):
            headers = message.get("headers")
            if (
                type(headers) is list
                and len(headers) == 2
                and headers[1] == _JSON
                and headers[0][0] == b"content-length"
                and message.get("status") in _USUAL
            ):
                # an app may send the same again and again, or change it once it is sent
                self.usual_start = {**message, "headers": headers.copy()}
                return
        await self._send(message)

    @property
    def _method(self) -> str:
        """That of the request."""
        method: str = "" if self.scope is None else self.scope["method"]
        return method

    async def _send(self, message: AsgiMessage) -> None:
        kind = message["type"]
        if self.listening is not None:
            return  # what a handler answers for the feed does not leave the app
        if kind == _START:
            self._stamping = stamping = Stamping(self, self._method)
            self.status = stamping.status = message["status"]
            plain = message.get("headers", ())
            headers, waits = stamping.begun(plain)
            if headers is not plain:
                message = {**message, "headers": headers}
            if waits:
                self._waiting_start = message
                return
            if self.failures and self.status == 500 and not self.is_own_answer:
                self._held = [message]
                self.was_held = True
                return
        elif (
            self._waiting_start is not None
            and self._stamping is not None
            and kind.startswith("http.response.")
        ):
            start, self._waiting_start = self._waiting_start, None
            part = bytes(message.get("body", b""))
            is_all = not message.get("more_body", False)
            body = self._stamping.first_part(start["headers"], part, is_all=is_all)
            if body is not part:
                message = {**message, "body": body}
            self.has_started = True
            await self.pass_on(start)
        elif self._held is not None:
            self._held.append(message)
            if sum(len(one.get("body", b"")) for one in self._held) > _LARGEST_HELD:
                await self.release()
            return
        self.has_started = True
        await self.pass_on(message)

    async def release(self) -> None:
        """Let go of what was held back: it is the app's own."""
        held, self._held = self._held, None
        for message in held or ():
            self.has_started = True
            await self.pass_on(message)

    async def replace(self, answer: Answer) -> None:
        """Answer for the app."""
        self.usual_start = self._waiting_start = self._held = self.listening = None
        self.is_own_answer = True
        await send_answer(self.send, answer, self._method)


async def answer_call(
    endpoints: Endpoints, path: str, scope: Mapping[str, Any], body: AsyncIterator[bytes]
) -> Answer:
    """The answer to a call of one of the contract's own endpoints. The body of one for the feed is empty, and not sent."""
    call = _call_of(scope, path)
    begun = endpoints.begin(call)
    if begun is not None:
        return begun
    if call.method == "POST":
        call = call._replace(body=await _at_most(body, endpoints.most_bytes))
    return await asyncio.to_thread(endpoints.answer, call)


async def serve_call(endpoints: Endpoints, path: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a call of one of the contract's own endpoints where no handler of a framework does."""
    provider, call = endpoints.provider, _call_of(scope, path)
    if provider.pin is None and endpoints.is_for_the_feed(call):
        await endpoints.listen_for(call)(receive, send)
    else:
        await send_answer(send, await answer_call(endpoints, path, scope, _body_from(receive)), call.method)


def _call_of(scope: Mapping[str, Any], path: str) -> EndpointCall:
    """A request as the endpoints know it, still without its body."""
    query = scope.get("query_string", b"").decode("latin-1")
    return EndpointCall(
        scope["method"], path, query, _headers_of(scope), root_path=scope.get("root_path", "")
    )


def path_below_root(scope: Scope) -> str:
    """The path of a request below where its app is mounted."""
    path: str = scope["path"]
    root_path = scope.get("root_path")
    if not root_path:
        return path
    below = path.removeprefix(root_path)
    return below if below.startswith("/") else path


def accept_of(scope: Mapping[str, Any]) -> str:
    """What a request says of the form of an answer."""
    return _headers_of(scope).get("accept", "")


def _headers_of(scope: Mapping[str, Any], wanted: Collection[bytes] | None = None) -> dict[str, str]:
    """The headers of a request, by lower-case name, or those of them that are wanted. One that comes several times is joined."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        if wanted is not None and raw_name not in wanted:
            continue
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


async def live(
    app: App,
    begin: Callable[[], None],
    end: Callable[[], None],
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """The life of an app: it begins with its own start, and ends with its end. What keeps it from beginning keeps the app from starting."""
    has_begun: bool | None = None

    async def sent(message: AsgiMessage) -> None:
        nonlocal has_begun
        if has_begun is False:
            return  # what the app says of it comes too late
        if message["type"] == "lifespan.startup.complete":  # an app may add routes as it starts
            try:
                begin()
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
            end()


def _is_handled(error: BaseException, scope: Scope) -> bool:
    """Whether a Starlette app has a handler of its own for this, which it calls further out. For a group it looks by the group alone."""
    by_type, _ = scope.get("starlette.exception_handlers", ({}, {}))
    return any(kind in by_type for kind in type(error).__mro__[:-3])


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


async def send_answer(send: Send, answer: Answer, method: str) -> None:
    """Answer with something of the contract's own."""
    body = b"" if method == "HEAD" else answer.body
    await send({"type": "http.response.start", "status": answer.status, "headers": headers_of_answer(answer)})
    await send({"type": "http.response.body", "body": body})
