"""What the transports of HTTP clients share: a memory that watches every response and amends requests.

Nothing is read ahead of the caller: what a JSON response says is kept as the caller reads it, up to 1 MB, and the memory has taken it in
before the caller is told of its end. Other responses are not touched. So the time that a server takes for them is the caller's, with the
caller's timeouts. The memory's own questions have a bound in all; with `requests` only each read of them has. Whatever goes wrong with the memory is logged and never reaches the
caller: the server may have carried the request out.

All of it is written once, for async clients. The calls of a blocking one are awaited too, and are done at once.
"""

import asyncio
import json
import logging
import math
import re
import sys
import time
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, nullcontext, suppress
from decimal import Decimal
from functools import cache, cached_property, partial
from typing import Any, Generic, NamedTuple, Self, TypeVar

import msgspec

from shelflife.client.asking import (
    LARGEST_ANSWER,
    Advanced,
    Fields,
    Patience,
    Question,
    Reply,
    advanced,
    advanced_in_thread,
)
from shelflife.client.channels import HTTP
from shelflife.client.entries import Entry, digest_of, origin_of
from shelflife.client.guard import Amended, AnyGuard, Guard
from shelflife.client.logins import note_status
from shelflife.client.memory import Memory
from shelflife.client.reading import JSON_TYPE, is_in_body
from shelflife.client.sending import Call, Send, sending
from shelflife.contract.values import members_once
from shelflife.integrations.counting import counting_in
from shelflife.integrations.taking import MemoryFirst

__all__ = ["AsyncCalls", "AsyncWatching", "BlockingWatching", "Watched", "at_once", "method_and_target"]

_log = logging.getLogger("shelflife.memory")

_LARGEST_WATCHED = 1024 * 1024
_BODY_NOT_UNDERSTOOD = " with a body that is no JSON object"
_VOUCHING = re.compile(
    r"(?i)[^:]*(digest|signature|checksum|hmac|jws|md5|sha-?(1|256|384|512))|([^:]*-)?(hash|mac|sign):"
    r"|authorization: (.*(signature=|hash=|qop=\"?auth-int)|[^ ]*hmac|mac |sharedkey)"
)
_NOT_OF_A_QUESTION = re.compile(
    r"(?i)content-|transfer-encoding|expect|if-|range|idempotency-key|prefer|accept|digest|signature|contract-"
)
_OF_A_BODY = {"content-length", "transfer-encoding"}
_LONGEST_WAIT_FOR_A_CONNECTION_S = 1.0
"""Of a question; an open stream may hold the only one of the pool."""

Request = TypeVar("Request")
Response = TypeVar("Response")
Result = TypeVar("Result")


def method_and_target(request: Any) -> str:
    """The operation of a request whose path holds no identifiers. Of a query, which may hold a key, only a digest is kept."""
    query = f"?{digest_of(request.url.query.decode())[:12]}" if request.url.query else ""
    return f"{request.method} {request.url.path}{query}"


class BlockingCalls:
    """The calls of a blocking client, to be awaited like those of an async one. They are done at once."""

    chunks = staticmethod(iter)

    async def advance(self, go_on: Callable[[Any], Any], value: Any) -> Advanced:
        return advanced(go_on, value)

    def within(self, until: float) -> AbstractAsyncContextManager[Any]:
        return nullcontext()  # nobody can call off a blocking call: its timeouts must do

    async def next_chunk(self, chunks: Any) -> Any:
        return next(chunks, None)

    async def send(self, transport: Any, request: Any) -> Any:
        return transport.handle_request(request)

    async def close(self, message: Any) -> None:
        with suppress(Exception):  # it is not needed any more, however it goes
            message.close()


class AsyncCalls:
    """The calls of an async client."""

    chunks = staticmethod(aiter)

    async def advance(self, go_on: Callable[[Any], Any], value: Any) -> Advanced:
        return await advanced_in_thread(go_on, value)

    @asynccontextmanager
    async def within(self, until: float) -> AsyncIterator[None]:
        import anyio  # which comes with the libraries, for their async clients

        with anyio.move_on_after(until - time.monotonic()):
            yield

    async def next_chunk(self, chunks: Any) -> Any:
        return await anext(chunks, None)

    async def send(self, transport: Any, request: Any) -> Any:
        return await transport.handle_async_request(request)

    async def close(self, message: Any) -> None:
        """To the end, though whoever waits for it is cancelled meanwhile: else its connection would be lost to the pool."""
        with suppress(Exception):
            try:
                asyncio.get_running_loop()
            except RuntimeError:  # of another library, in which what closes is not cancelled
                await message.aclose()
            else:
                await asyncio.shield(asyncio.ensure_future(message.aclose()))


def _left(longest_s: float, until: float) -> float:
    return max(min(longest_s, until - time.monotonic()), 0.001)


class _RunningDown:
    """A timeout of sockets that runs down, for a server that always sends the next byte in time.

    A blocking client hands it to the socket before each read. There it is asked for a whole number, as anything is that is no float.
    """

    def __init__(self, longest_s: float, until: float) -> None:
        self._longest_s = longest_s
        self._until = until

    def __index__(self) -> int:
        if time.monotonic() >= self._until:
            raise TimeoutError("the server has not answered in time")
        return math.ceil(_left(self._longest_s, self._until))


class _GuardOfRequest(NamedTuple):
    """Allows nothing where a reason against it lies in the request. That is looked for only when there is something to allow."""

    why_hands_off: Callable[[], str | None]
    guard: AnyGuard

    def refusal(self, entry: Entry) -> str | None:
        return self.why_hands_off() or self.guard.refusal(entry)

    def objection(self, entry: Entry, outcome: Fields) -> str | None:
        return self.guard.objection(entry, outcome)


class _Watching(MemoryFirst, Generic[Request, Response]):
    """What both kinds of transports do."""

    _default_transport: Callable[[], Any]
    _calls: BlockingCalls | AsyncCalls

    def __init__(
        self,
        memory: Memory,
        transport: Any = None,
        *,
        guard: Guard | None = HTTP.guard,
        operation: Callable[[Request], str] = method_and_target,
        compact: bool = HTTP.compact,
        conditional: bool = HTTP.conditional,
    ) -> None:
        """Watch for a memory.

        - `transport` is the one that is watched, and sends; by default one of the library's own.
        - `guard` says what may be written into requests; with None the memory only learns.
        - `operation`: names the operation of a request. By default it is the method and the path, with a digest of the query.
        - `conditional`: an amended request asks the server not to carry it out if something that the fix rests on has moved. It is then
          amended anew and sent again, before the caller sees anything. When that does not help, it goes out as it came.
        - `compact`: requests say which position in the server's log the memory knows, and the server tells what has moved from there. Without,
          it tells its versions each time, as in the paper, and a late reply cannot be told from a new one.
        """
        given: tuple[object, object] = memory, guard  # whatever a program without types hands in
        if not (isinstance(given[0], Memory) and isinstance(given[1], Guard | None)):
            raise TypeError("a transport takes a Memory, and a Guard or None")
        self.memory = memory
        self._transport = self._default_transport() if transport is None else transport
        self._guard = guard
        self._operation = operation
        self._is_compact = compact
        self._is_conditional = conditional

    def _call(self, request: Any) -> Call:
        """The request as the memory knows it."""
        operation, fields = self._operation(request), _fields(request)
        guard: AnyGuard | None = self._guard
        if fields is None:
            guard = None
            if _content(request) != b"":
                operation += _BODY_NOT_UNDERSTOOD  # so that nothing is taken for the fix of an empty request
        elif guard is not None:
            # found out once: a server may have suggested many fixes, and the body may be long
            guard = _GuardOfRequest(why_hands_off=cache(partial(_why_hands_off, request)), guard=guard)
        address, method, path = _address(request), request.method, request.url.path
        conditional, compact = self._is_conditional, self._is_compact
        return Call(address, operation, fields or {}, guard, conditional, compact, path=path, method=method)

    async def _handled(self, request: Request, transport: Any = None) -> Response:
        """Send a request, and let the memory watch. It may have a transport of its own."""
        transport = self._transport if transport is None else transport
        try:
            call = self._call(request)
        except Exception:  # noqa: BLE001 - an agent's request does not fail for want of memory
            _log.warning("a request is not understood, and goes past the memory", exc_info=True)
            return await self._calls.send(transport, request)  # type: ignore[no-any-return]
        step = _Step(self.memory, call, request, transport, self._calls)
        try:
            await step.go_on()
        except BaseException:
            if step.response is not None:
                await self._calls.close(step.response)  # nobody else will: it is not handed on
            raise
        return step.response  # type: ignore[no-any-return]


def at_once(calls: Coroutine[Any, Any, Result]) -> Result:
    """What calls of a blocking client come to. All that is awaited there is done at once: the first step is the last."""
    try:
        calls.send(None)
    except StopIteration as end:
        outcome: Result = end.value
        return outcome
    raise AssertionError("a blocking client does not wait")


class _Step:
    """One request on its way through a memory: up to its response, and on from there once that was read."""

    def __init__(
        self, memory: Memory, call: Call, request: Any, transport: Any, calls: BlockingCalls | AsyncCalls
    ) -> None:
        self.response: Any = None
        if call.conditional:
            call = call._replace(is_undone=self._is_undone)
        self._steps: Generator[Send | Question, Reply | None, object] = sending(memory, call)
        self._is_remote = memory.is_remote
        self._operation = call.operation
        self._request = self._last = request
        """What was to be sent, and what was sent last."""
        self._transport = transport
        self.calls = calls

    @cached_property
    def _patience(self) -> Patience:
        return Patience()  # most steps ask nothing

    async def go_on(self, reply: Reply | None = None) -> None:
        """Do what the memory wants to have done: to the end, or until the caller has to read the response first."""
        try:
            while True:
                step = await self._next(reply) if self._is_remote else self._steps.send(reply)
                if isinstance(step, Question):
                    reply = await self._answered(step)
                else:
                    reply = await self._sent(step)
                    if reply is None:
                        return
        except (StopIteration, StopAsyncIteration):
            return
        except BaseException:
            self._steps.close()
            raise

    async def _next(self, reply: Reply | None) -> Send | Question:
        """The next step, where whoever must not wait for a store does not."""
        now = await self.calls.advance(self._steps.send, reply)
        if now.is_over:
            raise StopAsyncIteration
        step: Send | Question = now.value
        return step

    async def leave(self, reply: Reply) -> None:
        """The caller has not read the response to its end. What there is of it counts, and nobody is asked about it."""
        with closing(self._steps), suppress(StopIteration, StopAsyncIteration):
            if self._is_remote:
                await self._next(reply)
            else:
                self._steps.send(reply)

    async def _sent(self, send: Send) -> Reply | None:
        """What came back; None where that is for the caller to read first."""
        request = self._last = _to_send(self._request, send)
        if request is not self._request:
            written = [applied.fields for applied in send.amended.applied] if send.amended else []
            _log.debug("%s goes out with %s, and %s in its headers", self._operation, written, send.headers)
        response = self.response = await self.calls.send(self._transport, request)
        response.extensions["shelflife_sent"] = request
        reply = partial(_reply, response.status_code, response.headers)
        if response.status_code == 412 and send.is_refused_as_stale(reply(None)) and self._is_undone():
            return reply(await self._refusal(request))  # it is sent again, and nobody else reads this
        if not is_in_body(response.headers, self._operation):
            return reply(b"")
        if response.is_stream_consumed:  # somebody underneath has read it, and the library keeps what it was
            return reply(_short(response.content, _LARGEST_WATCHED))
        response.stream = _watched_in(_library_of(response))(response, self)
        return None

    def _is_undone(self) -> bool:
        """Whether a request that was refused is known to have been sent once: the transport may be one that sends it again."""
        return getattr(self._last.stream, "sent_count", 0) == 1

    async def _refusal(self, request: Any) -> bytes | None:
        """The body of the response; None when it cannot be read."""
        with self._patience as until:
            async with self.calls.within(until):
                with suppress(Exception):
                    request.extensions["timeout"] = self._timeouts(until)
                    return await self._read(self.response, _LARGEST_WATCHED, until)
        return None

    async def _answered(self, question: Question) -> Reply | None:
        """What a server answers; None when it does not, whatever the transport raises then."""
        if not self._patience:
            return None
        with self._patience as until:
            async with self.calls.within(until):
                with suppress(Exception):
                    request = _to_ask(self._request, question, self._timeouts(until))
                    answer = await self.calls.send(self._transport, request)
                    note_status(question.url, answer.status_code)
                    body = await self._read(answer, LARGEST_ANSWER, until)
                    return None if body is None else Reply(answer.status_code, body)
        return None

    def _timeouts(self, until: float) -> dict[str, Any]:
        """What a request must not take longer than, where the caller waits for it on our account."""
        given = self._request.extensions.get("timeout") or {}
        is_on_sockets = isinstance(self._transport, _library_of(self._request).HTTPTransport)
        timeout = _RunningDown if is_on_sockets else _left
        limits = {what: timeout(given.get(what) or math.inf, until) for what in ("connect", "read", "write")}
        longest_s = min(given.get("pool") or math.inf, _LONGEST_WAIT_FOR_A_CONNECTION_S)
        return {**limits, "pool": _left(longest_s, until)}

    async def _read(self, response: Any, largest: int, until: float) -> bytes | None:
        """The decoded body of a response, which is closed then; None when it is too much, or takes too long."""
        calls, head, length = self.calls, list[bytes](), 0
        try:
            if response.is_stream_consumed:
                return _short(response.content, largest)
            chunks = calls.chunks(response.stream)
            while (chunk := await calls.next_chunk(chunks)) is not None:
                head.append(chunk)
                length += len(chunk)
                if length > largest or time.monotonic() > until:
                    return None
        finally:
            await calls.close(response)
        return _decoded(b"".join(head), response.headers, largest)


class BlockingWatching(_Watching[Request, Response]):
    """A transport of a blocking client."""

    _calls = BlockingCalls()

    def handle_request(self, request: Request) -> Response:
        """Send a request, and let the memory watch."""
        return at_once(self._handled(request))

    def close(self) -> None:
        """Close the transport that does the work."""
        self._transport.close()

    def __enter__(self) -> Self:
        self._transport.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._transport.__exit__(*exception)


class AsyncWatching(_Watching[Request, Response]):
    """A transport of an async client."""

    _calls = AsyncCalls()

    async def handle_async_request(self, request: Request) -> Response:
        """Send a request, and let the memory watch."""
        return await self._handled(request)

    async def aclose(self) -> None:
        """Close the transport that does the work."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self._transport.__aexit__(*exception)


def _address(request: Any) -> str:
    """The address that a request means: on a machine with several servers, its `Host` header says which."""
    host = request.headers.get("host") or request.url.netloc.decode()
    return f"{request.url.scheme}://{host}{request.url.path}"


def _to_ask(request: Any, question: Question, timeouts: Mapping[str, Any]) -> Any:
    """A question to the server that a request went to: with its credentials, without its body, and not for long."""
    own = [header for header in request.headers.multi_items() if not _NOT_OF_A_QUESTION.match(header[0])]
    asked = {"accept": "application/json", "accept-encoding": "gzip, deflate", **question.headers}
    if question.body is not None:
        asked["content-type"] = "application/json"
    url = request.url.join(question.url.removeprefix(origin_of(_address(request))))
    options = {"content": question.body, "extensions": {"timeout": timeouts}}
    return type(request)(question.method, url, headers=[*own, *asked.items()], **options)


def _content(request: Any) -> bytes | None:
    """The body of a request where it is in memory anyway; None for an upload that is still to be read."""
    is_in_memory = isinstance(request.stream, _library_of(request).ByteStream)
    return request.read() if is_in_memory else None


def _fields(request: Any) -> dict[str, Any] | None:
    content = _content(request) if JSON_TYPE.match(request.headers.get("content-type", "")) else None
    if not content or len(content) > _LARGEST_WATCHED:
        return None
    with suppress(ValueError, RecursionError):
        fields = json.loads(content.decode(), parse_constant=_refuse)
        return fields if isinstance(fields, dict) else None
    return None


def _why_hands_off(request: Any) -> str | None:
    """Why the body of a request must go out as it is; None when it may be written anew."""
    if any(_VOUCHING.match(f"{name}: {value}") for name, value in request.headers.items()):
        return "a header of the request vouches for its body as it is"
    try:
        json.loads(request.content, object_pairs_hook=members_once, parse_float=_exact)
    except (ValueError, ArithmeticError):
        return "the request has members or numbers that would not survive being written anew"
    return None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _exact(digits: str) -> float:
    number = float(digits)
    if Decimal(repr(number)) != Decimal(digits):
        raise ValueError(f"{digits} has too many digits")
    return number


def _to_send(request: Any, send: Send) -> Any:
    """The request as it goes out: the caller's own, with another body where something was amended."""
    request.extensions["shelflife"] = send.amended or Amended(dict(send.request), [], [])
    body, replaced = {"stream": request.stream}, {name.lower() for name in send.headers}
    if send.amended is not None and send.amended.applied:
        body = {"content": json.dumps(send.request, separators=(",", ":")).encode()}
        replaced |= _OF_A_BODY
    elif not send.headers:
        return request
    own = [header for header in request.headers.multi_items() if header[0].lower() not in replaced]
    headers, extensions = [*own, *send.headers.items()], dict(request.extensions)
    sent = type(request)(request.method, request.url, headers=headers, extensions=extensions, **body)
    content = _content(sent)  # whoever looks at what was sent finds its body
    if send.precondition is not None:
        sent.stream = counting_in(_library_of(request))(content)
    return sent


def _library_of(message: Any) -> Any:
    """The library that a request or response is of; of those that are ours, the module."""
    module = type(message).__mro__[-2].__module__
    return sys.modules[module if module.startswith("shelflife.") else module.partition(".")[0]]


class Watched:
    """The stream of a response as it comes. What the caller has read of it is shown to the memory once there is no more.

    A caller who leaves before that is not held up: what was not read teaches nothing, and leaves the server in doubt.
    """

    def __init__(self, response: Any, step: _Step) -> None:
        self._stream = response.stream
        self._status, self._headers = response.status_code, response.headers
        self._step: _Step | None = step
        self._head = bytearray()
        self._is_short = True

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            self.keep(chunk)
            yield chunk
        at_once(self.end())

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self.keep(chunk)
            yield chunk
        await self.end()

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            at_once(self.leave())

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            await self.leave()

    @property
    def is_open(self) -> bool:
        """Whether the memory still waits for the end."""
        return self._step is not None

    def keep(self, chunk: bytes) -> None:
        """Something that the caller has read."""
        if self._is_short:
            self._head += chunk
        if len(self._head) > _LARGEST_WATCHED:
            self.give_up()

    def give_up(self) -> None:
        """What the caller reads cannot be looked at."""
        self._head, self._is_short = bytearray(), False

    def _body(self) -> bytes | None:
        return _decoded(bytes(self._head), self._headers, _LARGEST_WATCHED) if self._is_short else None

    async def end(self) -> None:
        """The caller has read all of it."""
        if self._step is not None:
            await self._step.calls.close(self._stream)  # the connection may be needed for a question
            step, self._step = self._step, None
            await step.go_on(_reply(self._status, self._headers, self._body()))

    async def leave(self) -> None:
        """The caller reads no more of it."""
        step, self._step = self._step, None
        if step is not None:
            body = self._body()
            await step.leave(_reply(self._status, self._headers, body if body and _is_whole(body) else None))


@cache
def _watched_in(library: Any) -> Any:
    """The stream as a class of the library, which looks for its own."""
    return type("_Watched", (Watched, library.SyncByteStream, library.AsyncByteStream), {})


def _reply(status: int, headers: Mapping[str, str], body: bytes | None) -> Reply:
    """What came back, with the body that could be read of it, if any."""
    return Reply(status, body or b"", headers, body is not None)


def _short(content: bytes, largest: int) -> bytes | None:
    return content if len(content) <= largest else None


def _is_whole(body: bytes) -> bool:
    """Whether a JSON value is there to its end, though nobody has seen the end of the response."""
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _decoded(content: bytes, headers: Mapping[str, str], largest: int) -> bytes | None:
    """A body without its encodings; None when one of them is not known, or what it holds is too large or broken."""
    decoded: bytes | None = content
    for encoding in reversed(headers.get("content-encoding", "").lower().split(",")):
        if decoded and encoding.strip() not in ("", "identity"):
            decoded = _inflated(decoded, encoding.strip(), largest)
    return decoded


def _inflated(content: bytes, encoding: str, largest: int) -> bytes | None:
    windows = {"gzip": (31,), "x-gzip": (31,), "deflate": (15, -15)}
    for window in windows.get(encoding, ()):
        inflating = zlib.decompressobj(window)
        with suppress(zlib.error):
            inflated = inflating.decompress(content, largest)
            return inflated if inflating.eof else None
    return None
