"""The contract around an ASGI app.

`ContractMiddleware` is for any app that speaks ASGI and knows little of it. The modules for Starlette, FastAPI and Litestar put the same pieces where they belong in such an app: `UnderContract`
next to the routes, inside of every login, and `AdminMiddleware` before everything.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from shelflife.contract import BadMessage, ErrorMessage
from shelflife.contract.preconditions import PRECONDITION_HEADER, Precondition
from shelflife.server.endpoints import AdminEndpoints, Call, ContractEndpoints, Endpoints
from shelflife.server.errors import MalformedRequest
from shelflife.server.feedback import JSON, Answer, form_asked_for, stamped
from shelflife.server.operations import FixesTold, Operations
from shelflife.server.pins import Listening, Pin
from shelflife.server.policies import Refusal
from shelflife.server.provider import Provider
from shelflife.server.state import CompactStamp, Stamp

__all__ = ["AdminMiddleware", "ContractMiddleware", "UnderContract", "contract_app"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

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

_BAD_REQUEST = 400
_SERVER_ERROR = 500
_NOT_MODIFIED = 304
_UNTOLD = frozenset({401, 403, 405, 407, 429})
"""Statuses by which an app says that somebody may not ask, or not now: such a response tells nothing of the contract."""

_CACHED = frozenset({"GET", "HEAD"})
"""Methods whose responses a cache may give to another client, who knows another epoch or other aliases."""

_BODILESS = frozenset({204, 205, 206, 304})
"""Statuses of responses that have no body, or only a part of one."""

_LARGEST_HELD = 1024 * 1024


class Routes(Protocol):
    """What can be known of the routes of an app."""

    def listed(self) -> Operations | None:
        """All operations of the app; None when they cannot be listed."""

    def name(self, scope: Scope, path: str) -> str:
        """What the operation of a request is called, from when its handler runs; `path` is its path below the contract's root."""

    def is_operation(self, scope: Scope, path: str) -> bool:
        """Whether the app has found one of its own operations for a request: not so when something before the routes has answered."""


class UnderContract:
    """An app whose requests see one state each, whose refusals are answered and whose responses are stamped."""

    def __init__(self, app: App, provider: Provider, routes: Routes) -> None:
        self.app = app
        self._provider = provider
        self._routes = routes
        self._level = provider.level
        self._disclosure = provider.disclosure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            listening = await self._serve(scope, receive, send)
            if listening is not None:
                # Only now: whatever the app holds for a request, such as a database session, it has let go of.
                await self._provider.feed.stream(*listening, receive, send)
        elif scope["type"] == "lifespan":
            await _live(self.app, self._provider, scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> Listening | None:
        provider, path = self._provider, path_below_root(scope)
        provider.open()
        try:
            pin = self._pin(scope, path)
        except BadMessage as error:
            await _send_answer(send, _bad_request(error), scope["method"])
            return None
        response = _Response(send, pin, self._routes, scope, path)
        token = provider.pinned.set(pin)
        try:
            await self.app(scope, receive, response.send)
        except Exception as error:
            failure = _failure_in(error, pin)
            if failure is None or response.has_started:
                await response.release()
                raise
            await response.replace(answer_to(failure, provider, pin, scope))
            return None
        finally:
            provider.pinned.reset(token)
        if pin.listening is None:
            await response.release()
        self._tell_what_went_unheard(pin, response)
        return pin.listening

    def _pin(self, scope: Scope, path: str) -> Pin:
        """What the request sees; `BadMessage` when it asks for what cannot be understood, and so cannot be kept."""
        state = self._provider.registry.state
        if self._disclosure is None or not self._level:
            face = state.face(self._level)
        else:
            face = self._disclosure.face(state, self._level, headers_of(scope))
        stamp: Stamp | CompactStamp | None = None
        precondition = None
        if self._level:
            stamp = face.stamp
            if wishes := _wishes(scope):
                if epoch := wishes.get(b"contract-epoch"):
                    stamp = face.compact_stamp(epoch) or stamp
                grounds = wishes.get(b"contract-precondition")
                if grounds is not None:
                    precondition = Precondition.from_header(grounds)
        return Pin(state, face, stamp, lambda: self._routes.name(scope, path), precondition)

    def _tell_what_went_unheard(self, pin: Pin, response: "_Response") -> None:
        """Warn an operator, once, of an operation that does not do what clients rely on."""
        if response.was_held:
            self._provider.tell_once(
                f"{pin.operation()} answered a refusal of check with 500; let Rejected through, or answer it"
            )
        if pin.precondition is not None and pin.verdict is None and response.status < _BAD_REQUEST:
            self._provider.tell_once(
                f"{pin.operation()} carries requests out without judging their preconditions; call check in it first"
            )


class AdminMiddleware:
    """Answers an operator's calls, and hands everything else on."""

    def __init__(self, app: App, provider: Provider) -> None:
        self.app = app
        self._endpoints = AdminEndpoints(provider)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and path_below_root(scope) in self._endpoints.by_path:
            answer = await answered(self._endpoints, call_of(scope, path_below_root(scope)), receive)
            await _send_answer(send, answer, scope["method"])
        else:
            await self.app(scope, receive, send)


class ContractMiddleware:
    """Gives the contract to any ASGI app: the operator's endpoints, the answers to `provider.check`, the stamps.

    The endpoints for clients are not among them, for a middleware stands before the app's own login: mount `contract_app` where that holds, or say that they are `public`. `operations` are
    those of the app, as `POST /orders/{id}`: policies are held to them, and successful responses of theirs are stamped. Without them only responses to requests that were checked are.
    """

    def __init__(
        self, app: App, provider: Provider, *, operations: Collection[str] | None = None, public: bool = False
    ) -> None:
        routes = _GivenRoutes(provider, operations)
        provider.attach(routes.listed)
        under_contract: App = UnderContract(app, provider, routes)
        if public:
            under_contract = _Public(under_contract, provider)
        self._app = AdminMiddleware(under_contract, provider)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def contract_app(provider: Provider, *, fixes: Collection[str] = ()) -> App:
    """The endpoints for clients as an ASGI app, to be mounted at `/contract` where the app's own login holds.

    `fixes` are the operations whose fixes may be told to whoever may ask here, without making the request.
    """
    told = Operations.named(fixes)
    provider.tell_fixes_of(fixes)
    return _EndpointsApp(provider, ContractEndpoints(provider, FixesTold(lambda: told, fixes)))


class _EndpointsApp:
    """Answers calls to the endpoints for clients, wherever it is mounted."""

    def __init__(self, provider: Provider, endpoints: ContractEndpoints) -> None:
        self._provider = provider
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        call = call_of(scope, "/contract/" + scope["path"].rpartition("/")[2])
        if call.path not in self._endpoints.by_path:
            await _send_answer(send, _not_found(), call.method)
        elif self._endpoints.is_for_the_feed(call) and not self._provider.feed.is_full:
            await self._provider.feed.stream(call.headers, call.query, receive, send)
        else:
            await _send_answer(send, await answered(self._endpoints, call, receive), call.method)


class _Public:
    """Answers the endpoints for clients before the app, and tells all fixes."""

    def __init__(self, app: App, provider: Provider) -> None:
        def told_fixes_of(asked: str) -> str:
            operation = provider.policies.operations.find(asked)
            return asked if operation is None else operation.name

        endpoints = ContractEndpoints(provider, told_fixes_of)
        self._app = app
        self._paths = endpoints.by_path
        self._answering = _EndpointsApp(provider, endpoints)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and path_below_root(scope) in self._paths:
            await self._answering(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class _GivenRoutes:
    """The operations that a provider has listed by hand, or those that its policies are for."""

    def __init__(self, provider: Provider, operations: Collection[str] | None) -> None:
        self._provider = provider
        self._listed = None if operations is None else Operations.named(operations)

    def listed(self) -> Operations | None:
        return self._listed

    def name(self, scope: Scope, path: str) -> str:
        line = f"{scope['method']} {path}"
        operation = (self._listed or self._provider.policies.operations).find(line)
        return line if operation is None else operation.name

    def is_operation(self, scope: Scope, path: str) -> bool:
        return self._listed is not None and self._listed.find(f"{scope['method']} {path}") is not None


class _Response:
    """Passes a response on with its stamp. The start of one whose body may be added to waits for that body.

    This runs on every response, so it makes no object and no call that it can do without.
    """

    __slots__ = (
        *("_held", "_headers", "_length_at", "_method", "_path", "_pin", "_routes", "_scope", "_send"),
        *("_start", "has_started", "status", "was_held"),
    )
    _headers: list[tuple[bytes, bytes]]
    _length_at: int

    def __init__(self, send: Send, pin: Pin, routes: Routes, scope: Scope, path: str) -> None:
        self._send = send
        self._pin = pin
        self._routes = routes
        self._scope = scope
        self._path = path
        self._method: str = scope["method"]
        self._start: Message | None = None
        self._held: list[Message] | None = None
        """A 500 after a failed check: the app's own when it returns, a framework's when the failure comes out."""
        self.status = 0
        self.has_started = False
        self.was_held = False

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self.status = message["status"]
            if self._pin.listening is not None:
                return
            if self._pin.failures and message["status"] == _SERVER_ERROR:
                self._held = [message]
                self.was_held = True
                return
            begun = self._begun(message)
            if begun is None:
                return
            message = begun
        elif self._start is not None and kind.startswith("http.response."):
            message = await self._send_start(self._start, message)
        elif self._held is not None:
            self._held.append(message)
            if sum(len(one.get("body", b"")) for one in self._held) > _LARGEST_HELD:
                await self.release()
            return
        elif self._pin.listening is not None:
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
        self._held = None
        vary = self._pin.stamp.vary if self._pin.stamp else ""
        verdict = self._pin.verdict
        if verdict is not None:
            answer = answer._replace(headers=(*answer.headers, (PRECONDITION_HEADER, verdict)))
        await _send_answer(self._send, answer, self._method, vary)

    def _may_be_told(self, status: int) -> bool:
        """Whether a response of this status may tell of the contract.

        Errors and redirections may be a login's, whatever they look like: they tell of it only to a request that has come as far as `check`.
        """
        if status in _UNTOLD or status >= _SERVER_ERROR or self._pin.answered:
            return False
        if self._pin.has_checked:
            return True
        is_success = 200 <= status < 300 or status == _NOT_MODIFIED
        return is_success and self._routes.is_operation(self._scope, self._path)

    def _begun(self, start: Message) -> Message | None:
        """The start of a response as it goes out; None while it waits for its body."""
        pin, status = self._pin, self.status
        stamp = pin.stamp if pin.stamp is not None and self._may_be_told(status) else None
        if stamp is None and pin.precondition is None:
            return start
        headers = list(start.get("headers", ()))
        if pin.verdict is not None:
            headers.append((PRECONDITION_HEADER.lower().encode(), pin.verdict.encode()))
        if stamp is None:
            return {**start, "headers": headers}
        if stamp.vary and self._method in _CACHED:
            headers.append((b"vary", stamp.vary.encode()))
        if self._is_changeable(status, headers):
            self._start, self._headers = start, headers
            return None
        headers += _encoded(stamp)
        return {**start, "headers": headers}

    async def _send_start(self, start: Message, message: Message) -> Message:
        """Send the start that waited for this message; the message as it goes out."""
        stamp, headers, at = self._pin.stamp, self._headers, self._length_at
        assert stamp is not None  # noqa: S101 - a start waits only for a stamp
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
        return message

    def _is_changeable(self, status: int, headers: list[tuple[bytes, bytes]]) -> bool:
        """Whether the body may be one that takes the stamp, judged by the start of the response."""
        may_change = status not in _BODILESS
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


def answer_to(failure: Exception, provider: Provider, pin: Pin, scope: Scope) -> Answer:
    """The answer to a request whose check has raised this, and whose app has not answered it."""
    feedback = provider.feedback
    form = form_asked_for(_header(scope, b"accept"), feedback.error_form)
    if isinstance(failure, Refusal):
        return feedback.refusal(failure, form, pin.face, pin.stamp)
    if isinstance(failure, MalformedRequest):
        return feedback.malformed(failure, form)
    _log.error("%s; the request was answered with 500", failure, exc_info=failure.__cause__)
    return feedback.failure(form)


async def answered(endpoints: Endpoints, call: Call, receive: Receive) -> Answer:
    """The answer to a call of one of the contract's own endpoints."""
    refusal = endpoints.admit(call)
    if refusal is not None:
        return refusal
    if call.method == "POST":
        call = call._replace(body=await _read_body(receive, endpoints.most_bytes))
    return await asyncio.to_thread(endpoints.answer, call)


def tell_that_it_is_open(provider: Provider, guards: Mapping[str, Sequence[str]], remedy: str) -> None:
    """Warn a provider whose operations ask for something that the contract's endpoints do not; `guards` says what, by operation."""
    if guards:
        operation, asked_for = min(guards.items())
        others = f" (and {len(guards) - 1} more)" if len(guards) > 1 else ""
        provider.tell_once(
            f"{operation}{others} asks for {' and '.join(sorted(asked_for))}, and the contract's endpoints do not:"
            f" whoever can reach them is told the tables and their versions; {remedy}"
        )


def call_of(scope: Scope, path: str) -> Call:
    """A request as the endpoints know it, still without its body."""
    query: bytes = scope.get("query_string", b"")
    return Call(scope["method"], path, query.decode("latin-1"), headers_of(scope))


def path_below_root(scope: Scope) -> str:
    """The path of a request below where its app is mounted."""
    path: str = scope["path"]
    root = scope.get("root_path", "").rstrip("/")
    below = path.removeprefix(root)
    return below if below.startswith("/") else path


def headers_of(scope: Scope) -> dict[str, str]:
    """The headers of a request, by lower-case name."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def _live(app: App, provider: Provider, scope: Scope, receive: Receive, send: Send) -> None:
    """Hold the policies to the app's operations when it starts, and let go of the provider's files when it ends; not before, and not where the app has no such life."""
    is_ending = False

    async def received() -> Message:
        nonlocal is_ending
        message = await receive()
        if message["type"] == "lifespan.startup":
            try:
                provider.open()
            except Exception as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                raise
        is_ending = is_ending or message["type"] == "lifespan.shutdown"
        return message

    try:
        await app(scope, received, send)
    finally:
        if is_ending:
            provider.close()


def _failure_in(error: BaseException, pin: Pin) -> Exception | None:
    """What `check` has raised for this request, when that is all that an app has let through; a task group puts it into a group."""
    leaves = list(_leaves(error))
    if not all(any(leaf is failure for failure in pin.failures) for leaf in leaves):
        return None
    first = leaves[0]
    return first if isinstance(first, Exception) else None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


@lru_cache(maxsize=4)
def _encoded(stamp: Stamp | CompactStamp) -> list[tuple[bytes, bytes]]:
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
        if name[:9] == b"contract-":
            wishes = wishes or {}
            said = value.decode("latin-1")
            wishes[name] = f"{wishes[name]}, {said}" if name in wishes else said
    return wishes


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


def _bad_request(error: BadMessage) -> Answer:
    return Answer(400, JSON, msgspec.json.encode(ErrorMessage(error=str(error))))


def _not_found() -> Answer:
    return Answer(404, JSON, msgspec.json.encode(ErrorMessage(error="there is no such endpoint")))


async def _send_answer(send: Send, answer: Answer, method: str, vary: str = "") -> None:
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in answer.headers]
    if vary and method in _CACHED:
        headers.append((b"vary", vary.encode()))
    if answer.status != _NOT_MODIFIED:
        headers.append((b"content-type", answer.content_type.encode()))
        headers.append((b"content-length", b"%d" % len(answer.body)))
    body = b"" if method == "HEAD" else answer.body
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
