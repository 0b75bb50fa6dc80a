"""A reverse proxy that adds the contract to an API whose code is not touched: `proxy_app(provider, "http://127.0.0.1:9000")`.

- *Explain*: the API answers first. An error that it answers with gets the fixes of the policies that the request violates.
- *Enforce*: the policies come first, for callers whom the API lets pass at an address that the provider names.

What is no JSON object or form, and what is too large, goes through as it is. So do responses, but for the stamps.
"""

import asyncio
import logging
import math
import re
from collections.abc import AsyncIterator, Coroutine
from typing import Any, NamedTuple

from shelflife.extras import needing
from shelflife.integrations.asgi import EndpointsFirst
from shelflife.integrations.stamping import Headers, Stamping
from shelflife.integrations.under_contract import (
    App,
    Scope,
    UnderContract,
    accept_of,
    send_answer,
    serve_call,
)
from shelflife.integrations.upstreams import (
    NO_WEBSOCKETS,
    Broken,
    Upstream,
    end_to_end,
    fields_of,
    headers_on,
    let_go,
    why_refused,
)
from shelflife.server import MalformedRequest, PolicyFailed, Provider, UsageError, Violation
from shelflife.server.admin import AdminEndpoints
from shelflife.server.endpoints import ContractEndpoints
from shelflife.server.feed import Receive, Send
from shelflife.server.feedback import error_answer, feedback_members, stamped
from shelflife.server.operations import Operation
from shelflife.server.pins import UNSTAMPED, Pin
from shelflife.server.stamps import Stamp

with needing("httpx2"):
    import httpx2

__all__ = ["proxy_app"]

_log = logging.getLogger("shelflife")

_LARGEST_HELD = 1024 * 1024
"""A longer body is not judged, and no fix is added to a longer error."""

_OF_A_BODY = re.compile(rb"content-|expect$|if-|range$|accept-encoding$|idempotency-key$")
_ADDRESS = re.compile(r"https?://[^/?#@\s]+(/[^?#\s]*)?")
_CALLER = re.compile(r"(GET|HEAD|POST) (/[^\s#]*)")
_STRANGER = frozenset({401, 403})
"""Statuses by which an API says that it does not let a caller pass."""

_NOT_NOW = frozenset({429, *range(500, 600)})
"""Statuses by which it says that it cannot tell now: nor could it answer a request."""

_UNTOLD = (
    "the API behind this proxy answers %d where it is to say whom it lets pass, which is no word on that"
)
_NO_CALLER = "the proxy judges them for callers whom it knows: give --as-caller (as_caller= in Python)"
_NO_POLICY = "the proxy judges those of requests that policies are about, with a body of JSON or a form"
_UNREADABLE = "this body begins as an object or is a form, and cannot be read as one: so it cannot be judged"
_OBJECT = re.compile(rb"[\s\x00\xef\xbb\xbf\xfe\xff]*(\{|$)")
"""How a JSON object begins, in any encoding, as far as a body has come."""

_FORM = re.compile(rb"(?i)application/x-www-form-urlencoded\s*(;|$)")


def proxy_app(
    provider: Provider,
    upstream: str,
    *,
    as_caller: str | None = None,
    enforce: bool = False,
    timeout_s: float = 60.0,
) -> App:
    """An ASGI app that hands all requests on to `upstream`, and adds the contract of the provider.

    - `as_caller`: a request such as `GET /me` that the API answers with success for callers whom it knows. It is made with the headers
      of a request. Whoever passes it may ask the contract's endpoints; without it there are none.
    - `enforce`: for such callers the policies come first. Without, the API does.
    - `timeout_s`: how long the API may be silent.
    """
    if not _is_address(upstream):
        raise UsageError(f"an upstream is an address such as http://127.0.0.1:9000, not {upstream!r}")
    if as_caller is not None and not _CALLER.fullmatch(as_caller):
        raise UsageError(f"a caller is known by a request such as 'GET /me', not {as_caller!r}")
    if enforce and as_caller is None:
        raise UsageError(
            "to enforce policies, say by which request the API tells whom it lets pass: as_caller='GET /me'"
        )
    if not 0 < timeout_s < math.inf:
        raise UsageError(
            f"timeout_s is how many seconds the API may be silent, more than none, not {timeout_s!r}"
        )
    proxy = _Proxy(provider, Upstream(upstream, timeout_s), as_caller, enforce=enforce)
    remedy = _NO_CALLER if as_caller is None else _NO_POLICY
    return EndpointsFirst(UnderContract(proxy, provider, proxy.find, remedy=remedy), AdminEndpoints(provider))


def _is_address(text: str) -> bool:
    try:
        port = httpx2.URL(text).port
    except httpx2.InvalidURL:
        return False
    return _ADDRESS.fullmatch(text) is not None and (port is None or 0 < port < 65_536)


async def _part(receive: Receive) -> tuple[bytes, bool]:
    """The next part of a request's body, and whether there is more."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Broken(400, "the client has gone")
    return message.get("body", b""), message.get("more_body", False)


class _Call(NamedTuple):
    """A request on its way."""

    scope: Scope
    receive: Receive
    target: bytes
    headers: Headers
    """As they go on."""

    head: bytes
    """What was read of its body."""

    has_more: bool
    fields: dict[str, Any] | None
    """What policies are shown; None when they are not."""

    is_read: asyncio.Event
    """Set once nobody reads its body any more: then it can be waited for the client to leave."""

    async def body(self) -> AsyncIterator[bytes]:
        if self.head:
            yield self.head
        more = self.has_more
        while more:
            part, more = await _part(self.receive)
            if part:
                yield part
        self.is_read.set()


class _Proxy:
    """The app that hands requests on. The contract is around it: each request has a pin."""

    def __init__(
        self, provider: Provider, upstream: Upstream, as_caller: str | None, *, enforce: bool
    ) -> None:
        self._provider, self._upstream = provider, upstream
        self._as_caller, self._enforces = as_caller, enforce
        self._found = provider.apps.attach_unseen(None)
        names = [one.name for one in provider.policies.operations] if enforce else []
        disclosed = provider.apps.disclosed_fixes(lambda: provider.policies.operations, names)
        self._endpoints = ContractEndpoints(provider, disclosed)

    def find(self, scope: Scope, path: str) -> Operation | None:
        """The operation of a request, as far as the policies name one."""
        return self._found(scope["method"], re.sub(r"\s", "%20", path))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await self._refuse_websocket(scope, receive, send)
        else:
            try:
                await self._serve(scope, receive, send)
            except Broken as broken:
                await self._say(scope, send, broken.status, str(broken))

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        target = scope.get("raw_path") or scope["path"].encode()
        if (why := why_refused(scope, target)) is not None:
            await self._say(scope, send, *why)
        elif self._as_caller is not None and scope["path"] in self._endpoints.by_path:
            await self._serve_endpoint(scope, receive, send)
        else:
            query = scope.get("query_string")
            await self._serve_api(target + b"?" + query if query else target, scope, receive, send)

    async def _serve_endpoint(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One of the contract's, for whom the API lets pass."""
        refusal = await self._refusal_of_caller(scope)
        if refusal is None:
            await serve_call(self._endpoints, scope["path"], scope, receive, send)
        else:
            await _until_gone(self._hand_back(refusal, send), receive)

    async def _serve_api(self, target: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        pin = self._provider.pin
        operation = None if pin is None else pin.find_operation()
        is_concerned = operation is None or bool(self._provider.policies.concerning(operation.name))
        call = await self._begun(scope, receive, target, is_judged=is_concerned)
        if call.fields is not None and operation is None and self._enforces:
            why = "this path is written in another way than the operation it may be meant for"
            await self._say(scope, send, 400, why)
        else:
            await _until_gone(self._answer_for(call, operation, pin, send), receive, call.is_read)

    async def _answer_for(
        self, call: _Call, operation: Operation | None, pin: Pin | None, send: Send
    ) -> None:
        """Judge a request where policies are about it, and hand it on."""
        if call.fields is None or operation is None or pin is None:
            await self._hand_on(call, send)
        elif await self._is_judged(call, operation, pin, send):
            await (self._hand_on(call, send) if self._enforces else self._explain(call, operation, pin, send))

    async def _is_judged(self, call: _Call, operation: Operation, pin: Pin, send: Send) -> bool:
        """Judge what comes before the API, for a caller whom that lets pass. False when it cannot tell whether it does, and has said why."""
        if not self._enforces and (pin.precondition is None or self._as_caller is None):
            return True
        refusal = await self._refusal_of_caller(call.scope)
        if refusal is None:
            # When it only explains, what the policies say has time: but what the caller asks to be sure of has not.
            judge = self._provider.check if self._enforces else self._provider.judge
            judge(call.fields, operation.name)
        elif refusal.status_code in _STRANGER:
            await let_go(refusal)
        else:
            await self._hand_back(refusal, send)
            return False
        return True

    async def _begun(self, scope: Scope, receive: Receive, target: bytes, *, is_judged: bool) -> _Call:
        """A request as it goes on. Its body is read where policies are about it, as far as it is short."""
        headers = headers_on(scope)
        kinds = [value for name, value in headers if name == b"content-type"]
        is_form = bool(kinds) and all(map(_FORM.match, kinds))
        is_packed = any(name == b"content-encoding" and value != b"identity" for name, value in headers)
        # Only this tells whether there is a body: over HTTP/2 no header need.
        head, has_more = await _part(receive)
        fields = None
        if is_judged and not is_packed:
            parts = bytearray(head)
            # An API may take an object for JSON whatever its type says, and whether it has one.
            while has_more and len(parts) <= _LARGEST_HELD and (is_form or _OBJECT.match(parts)):
                part, has_more = await _part(receive)
                parts += part
            head = bytes(parts)
            if not has_more and len(head) <= _LARGEST_HELD:
                begins = _OBJECT.match(head)
                is_object = begins is not None and bool(begins[1])
                fields = fields_of(head, is_form=is_form and not is_object)
                if fields is None and self._enforces and (is_object or is_form):
                    raise Broken(400, _UNREADABLE)
        if fields is not None:  # an error that is packed could not be added to
            headers = [one for one in headers if one[0] != b"accept-encoding"] + [
                (b"accept-encoding", b"identity")
            ]
        is_read = asyncio.Event()
        if not has_more:
            is_read.set()
        return _Call(scope, receive, target, headers, head, has_more, fields, is_read)

    async def _refusal_of_caller(self, scope: Scope) -> httpx2.Response | None:
        """What the API answers to whoever it does not let pass, or when it cannot tell now; None for all others."""
        method, _, target = (self._as_caller or "").partition(" ")
        headers = [one for one in headers_on(scope) if not _OF_A_BODY.match(one[0])]
        answer = await self._upstream.answer(method, target.encode(), headers, None)
        status = answer.status_code
        if status in _STRANGER or status in _NOT_NOW:
            return answer
        await let_go(answer)
        if answer.is_success:
            return None
        # This would be taken for an answer to what the caller has asked: a redirect would even be followed.
        raise Broken(502, _UNTOLD % status)

    async def _hand_on(self, call: _Call, send: Send) -> None:
        await self._hand_back(await self._answer(call), send)

    async def _answer(self, call: _Call) -> httpx2.Response:
        body: AsyncIterator[bytes] | bytes | None = call.body() if call.has_more else call.head or None
        response = await self._upstream.answer(call.scope["method"], call.target, call.headers, body)
        call.is_read.set()  # one that answers early reads no more
        return response

    async def _explain(self, call: _Call, operation: Operation, pin: Pin, send: Send) -> None:
        """Have the API answer. What it says to a caller whom it has let pass is stamped, and an error gets fixes."""
        response = await self._answer(call)
        if response.is_success:
            pin.has_checked = True  # by the API
        stream: AsyncIterator[bytes] = aiter(response.stream)  # type: ignore[arg-type]
        body = _Body([], stream)
        try:
            if 400 <= response.status_code < 500 and (
                violations := self._violated(response, call, operation, pin)
            ):
                members = feedback_members(self._provider.wire, violations, pin.shown.face, pin.shown.stamp)
                body = await _with_fixes(stream, members)
        except BaseException:
            await let_go(response)
            raise
        await self._hand_back(response, send, body)

    def _violated(
        self, response: httpx2.Response, call: _Call, operation: Operation, pin: Pin
    ) -> list[Violation]:
        """What the policies say of a request that the API has refused, where its answer can be added to."""
        status, headers = response.status_code, list(response.headers.raw)
        stamping = Stamping(pin, call.scope["method"])
        stamping.status = status
        if status in UNSTAMPED or not stamping.is_changeable(headers) or not self._provider.level:
            return []
        violations: list[Violation] = []
        try:
            violations = self._provider.violations(call.fields, operation.name)
        except (MalformedRequest, PolicyFailed) as error:
            _log.warning("%s; the API's own answer is left as it is", error)
        pin.has_checked = bool(violations)  # else the error may be one of its login
        return violations

    async def _hand_back(self, response: httpx2.Response, send: Send, body: "_Body | None" = None) -> None:
        """Send what the API answers as it comes."""
        body = body or _Body([], aiter(response.stream))  # type: ignore[arg-type]
        headers = [
            (name, self._upstream.own_path(value) if name == b"location" else value)
            for name, value in end_to_end(response.headers.raw)
        ]
        # That of a 304 is of a body that does not follow: a server would wait for it.
        if body.rest is None or response.status_code == 304:
            headers = [one for one in headers if one[0] != b"content-length"]
        if body.rest is None:
            headers.append((b"content-length", b"%d" % sum(map(len, body.parts))))
        start = {"type": "http.response.start", "status": response.status_code, "headers": headers}
        try:
            await _stream(send, start, body)
        finally:
            await let_go(response)

    async def _say(self, scope: Scope, send: Send, status: int, sentence: str) -> None:
        await send_answer(
            send, error_answer(self._provider.wire, accept_of(scope), status, sentence), scope["method"]
        )

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self._upstream.close()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    async def _refuse_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close"})
            return
        answer = error_answer(self._provider.wire, accept_of(scope), *NO_WEBSOCKETS)
        headers = [(b"content-type", answer.content_type.encode())]
        await send({"type": "websocket.http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": answer.body})


class _Body(NamedTuple):
    """The body of what the API answers."""

    parts: list[bytes]
    """What was read of it already, or what is sent in its place."""

    rest: AsyncIterator[bytes] | None = None
    """What comes after that; None when the parts are all of it."""

    end: httpx2.TransportError | None = None
    """It has broken off after these parts, and does so for the client too."""


async def _with_fixes(rest: AsyncIterator[bytes], members: bytes) -> _Body:
    """The body of an error with these members added; as it is where it takes none."""
    parts, length = list[bytes](), 0
    try:
        async for part in rest:
            parts.append(part)
            length += len(part)
            if length > _LARGEST_HELD:
                return _Body(parts, rest)
    except httpx2.TransportError as error:
        return _Body(parts, rest, error)
    whole = b"".join(parts)
    return _Body([whole if b'"recovery_feedback"' in whole else stamped(whole, Stamp(members, [])) or whole])


async def _stream(send: Send, start: dict[str, Any], body: _Body) -> None:
    await send(start)
    try:
        for part in body.parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        if body.end is not None:
            raise body.end
        if body.rest is not None:
            async for part in body.rest:
                await send({"type": "http.response.body", "body": part, "more_body": True})
    except httpx2.TransportError as error:
        # Without its end a response is not taken for whole: the server closes the connection.
        _log.warning("the API behind this proxy has broken off in the middle of an answer: %s", error)
        return
    await send({"type": "http.response.body", "body": b""})


async def _until_gone(
    work: Coroutine[Any, Any, None], receive: Receive, read: asyncio.Event | None = None
) -> None:
    """Do this for as long as there is somebody to do it for. With `read`, the work itself receives until then."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(receive, read))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _gone(receive: Receive, read: asyncio.Event | None) -> None:
    """Wait until the client is gone."""
    if read is not None:
        await read.wait()
    while (await receive())["type"] != "http.disconnect":
        pass
