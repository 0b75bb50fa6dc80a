"""What the transports of httpx2 and httpx share: a memory that watches every response and, with a guard, amends requests.

A JSON response is read ahead, up to 1 MB, and put back as it came; other responses are not touched. Whatever goes wrong with the memory is
logged and never reaches the caller: the server may have carried the request out.

All of it is written once, for async clients. The calls of a blocking one are awaited too, and are done at once.
"""

import json
import logging
import math
import re
import sys
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from functools import cache, partial
from typing import Any, Generic, Self, TypeVar

from shelflife.client.asking import Question, Reply, driven_async
from shelflife.client.entries import Entry, digest_of, origin_of
from shelflife.client.guard import Guard
from shelflife.client.memory import Memory
from shelflife.client.sending import Call, Send, sending
from shelflife.contract.values import members_once

__all__ = ["AsyncWatching", "BlockingWatching"]

_log = logging.getLogger("shelflife.memory")

_LARGEST_WATCHED = 1024 * 1024
_LARGEST_ANSWER = 8 * 1024 * 1024
_BODY_NOT_UNDERSTOOD = " with a body that is no JSON object"
_VOUCHING = re.compile(r"(?i)[^:]*(digest|signature|content-md5|content-sha256)|authorization: .*signature=")
_NOT_OF_A_QUESTION = re.compile(
    r"(?i)content-|transfer-encoding|expect|if-|range|idempotency-key|prefer|accept|digest|signature|contract-"
)
_OF_A_BODY = {"content-length", "transfer-encoding"}
_LONGEST_ANSWER_S = 5.0
_LONGEST_WAITS_S = {"connect": 5.0, "read": 5.0, "write": 5.0, "pool": 1.0}
"""Of a question; an open stream may hold the only connection of the pool."""

Request = TypeVar("Request")
Response = TypeVar("Response")


def method_and_target(request: Any) -> str:
    """The operation of a request whose path holds no identifiers. Of a query, which may hold a key, only a digest is kept."""
    query = f"?{digest_of(request.url.query.decode())[:12]}" if request.url.query else ""
    return f"{request.method} {request.url.path}{query}"


class _Blocking:
    """The calls of a blocking client, to be awaited like those of an async one. They are done at once."""

    chunks = staticmethod(iter)

    async def next_chunk(self, chunks: Any) -> Any:
        return next(chunks, None)

    async def send(self, transport: Any, request: Any) -> Any:
        return transport.handle_request(request)

    async def close(self, message: Any) -> None:
        message.close()


class _Async:
    """The calls of an async client."""

    chunks = staticmethod(aiter)

    async def next_chunk(self, chunks: Any) -> Any:
        return await anext(chunks, None)

    async def send(self, transport: Any, request: Any) -> Any:
        return await transport.handle_async_request(request)

    async def close(self, message: Any) -> None:
        await message.aclose()


class _GuardOfRequest(Guard, frozen=True, kw_only=True):
    """Allows nothing where a reason against it lies in the request. That is looked for only when there is something to allow."""

    why_hands_off: Callable[[], str | None]
    guard: Guard

    def __post_init__(self) -> None:
        """The guard was checked when it was made."""

    def refusal(self, entry: Entry) -> str | None:
        return self.why_hands_off() or self.guard.refusal(entry)


class _Watching(Generic[Request, Response]):
    """What both kinds of transports do."""

    _default_transport: Callable[[], Any]
    _calls: _Blocking | _Async

    def __init__(
        self,
        memory: Memory,
        transport: Any = None,
        *,
        guard: Guard | None = None,
        operation: Callable[[Request], str] = method_and_target,
        compact: bool = True,
        conditional: bool = False,
    ) -> None:
        """Watch another transport, by default one of the library's own.

        - `guard`: amend requests too, with what is remembered and the guard allows.
        - `operation`: names the operation of a request. By default it is the method and the path, with a digest of the query.
        - `conditional`: an amended request asks the server not to carry it out if something that the fix rests on has moved. It is then
          amended anew and sent again, before the caller sees anything. When that does not help, it goes out as it came.
        - `compact`: requests say which position in the server's log the memory knows, and the server tells what has moved from there. Without,
          it tells its versions each time, as in the paper, and a late reply cannot be told from a new one.
        """
        given: tuple[object, object] = memory, guard  # whatever a program without types hands in
        if not (isinstance(given[0], Memory) and isinstance(given[1], Guard | None)):
            raise TypeError("a transport takes a Memory, and a Guard where requests are to be amended")
        self.memory = memory
        self._transport = self._default_transport() if transport is None else transport
        self._guard = guard
        self._operation = operation
        self._is_compact = compact
        self._is_conditional = conditional

    def _call(self, request: Any) -> Call:
        """The request as the memory knows it."""
        operation, fields, guard = self._operation(request), _fields(request), self._guard
        if fields is None:
            guard = None
            if _content(request) != b"":
                operation += _BODY_NOT_UNDERSTOOD  # so that nothing is taken for the fix of an empty request
        elif guard is not None:
            # found out once: a server may have suggested many fixes, and the body may be long
            guard = _GuardOfRequest(why_hands_off=cache(partial(_why_hands_off, request)), guard=guard)
        root = self.memory.root_of(_address(request))
        method, path = request.method, request.url.path
        conditional, compact = self._is_conditional, self._is_compact
        return Call(root, operation, fields or {}, guard, conditional, compact, path=path, method=method)

    async def _handled(self, request: Request) -> Response:
        """Send a request, and let the memory watch."""
        response: Any = None

        async def answer(step: Send | Question) -> Reply | None:
            nonlocal response
            if isinstance(step, Question):
                return await self._answered(request, step)
            if response is not None:
                await self._calls.close(response)  # it was refused, and the request is sent again
            response = await self._calls.send(self._transport, _to_send(request, step))
            is_read = _is_json(response.headers)
            body = await _read_ahead(response, _LARGEST_WATCHED, self._calls) if is_read else b""
            return Reply(response.status_code, body or b"", response.headers, whole=body is not None)

        try:
            call = self._call(request)
        except Exception:  # noqa: BLE001 - an agent's request does not fail for want of memory
            _log.warning("a request is not understood, and goes past the memory", exc_info=True)
            return await self._calls.send(self._transport, request)  # type: ignore[no-any-return]
        try:
            await driven_async(sending(self.memory, call), answer)
        except BaseException:
            if response is not None:
                await self._calls.close(response)  # nobody else will: it is not handed on
            raise
        return response  # type: ignore[no-any-return]

    async def _answered(self, request: Request, question: Question) -> Reply | None:
        try:
            until = time.monotonic() + _LONGEST_ANSWER_S
            answer = await self._calls.send(self._transport, _to_ask(request, question))
            try:
                body = await _read_ahead(answer, _LARGEST_ANSWER, self._calls, until)
            finally:
                await self._calls.close(answer)
        except Exception:  # noqa: BLE001 - whatever the transport raises, the server could not tell
            return None
        return None if body is None else Reply(answer.status_code, body)


class BlockingWatching(_Watching[Request, Response]):
    """A transport of a blocking client."""

    _calls = _Blocking()

    def handle_request(self, request: Request) -> Response:
        """Send a request, and let the memory watch."""
        try:
            # all that is awaited there is done at once: the first step is the last
            self._handled(request).send(None)
        except StopIteration as end:
            response: Response = end.value
            return response
        raise AssertionError("a blocking transport does not wait")

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

    _calls = _Async()

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


def _to_ask(request: Any, question: Question) -> Any:
    """A question to the server that a request went to: with its credentials, without its body, and not for long."""
    own = [header for header in request.headers.multi_items() if not _NOT_OF_A_QUESTION.match(header[0])]
    asked = {"accept": "application/json", "accept-encoding": "gzip, deflate", **question.headers}
    if question.body is not None:
        asked["content-type"] = "application/json"
    given = request.extensions.get("timeout") or {}
    timeout = {what: min(given.get(what) or longest, longest) for what, longest in _LONGEST_WAITS_S.items()}
    url = request.url.join(question.url.removeprefix(origin_of(_address(request))))
    options = {"content": question.body, "extensions": {"timeout": timeout}}
    return type(request)(question.method, url, headers=[*own, *asked.items()], **options)


def _is_json(headers: Mapping[str, str]) -> bool:
    """Whether a body is one JSON value; streams of them, and of events, are left alone."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type == "application/json" or media_type.endswith("+json")


def _content(request: Any) -> bytes | None:
    """The body of a request where it is in memory anyway; None for an upload that is still to be read."""
    is_in_memory = isinstance(request.stream, _library_of(request).ByteStream)
    return request.read() if is_in_memory else None


def _fields(request: Any) -> dict[str, Any] | None:
    content = _content(request) if _is_json(request.headers) else None
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
    request.extensions.pop("shelflife", None)  # of what was sent before
    if send.amended is not None:
        request.extensions["shelflife"] = send.amended
    body, replaced = {"stream": request.stream}, {name.lower() for name in send.headers}
    if send.amended is not None and send.amended.applied:
        body = {"content": json.dumps(send.request, separators=(",", ":")).encode()}
        replaced |= _OF_A_BODY
    elif not send.headers:
        return request
    own = [header for header in request.headers.multi_items() if header[0].lower() not in replaced]
    headers = [*own, *send.headers.items()]
    return type(request)(request.method, request.url, headers=headers, extensions=request.extensions, **body)


def _library_of(message: Any) -> Any:
    """The library that a request or response is of."""
    return sys.modules[type(message).__mro__[-2].__module__.partition(".")[0]]


async def _read_ahead(
    response: Any, largest: int, calls: _Blocking | _Async, until: float = math.inf
) -> bytes | None:
    """The decoded body of a response, which is left as though nobody had read it.

    None when that is too much, takes longer than until a moment of the monotonic clock, or fails.
    """
    if response.is_stream_consumed:  # somebody underneath has read it, and the library keeps what it was
        return response.content if len(response.content) <= largest else None
    stream = response.stream
    head: list[bytes] = []
    rest = calls.chunks(stream)
    length = 0
    is_whole = False
    try:
        while (chunk := await calls.next_chunk(rest)) is not None:
            head.append(chunk)
            length += len(chunk)
            if length > largest or time.monotonic() > until:
                break
        else:
            is_whole = True
            await calls.close(stream)  # the connection may be needed for a question
    except Exception as error:  # noqa: BLE001 - the caller gets it, where it occurred
        rest = _Failing(error)
    response.stream = _replayed_in(_library_of(response))(head, rest, stream)
    return _decoded(b"".join(head), response.headers, largest) if is_whole else None


class _Replayed:
    """The stream of a response once more: what was read ahead, then the rest."""

    def __init__(self, head: list[bytes], rest: Any, stream: Any) -> None:
        self._head = head
        self._rest = rest
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        yield from self._head
        yield from self._rest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._head:
            yield chunk
        async for chunk in self._rest:
            yield chunk

    def close(self) -> None:
        self._stream.close()

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Failing:
    """The rest of a stream that broke off."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __iter__(self) -> Any:
        raise self._error

    __aiter__ = __iter__


@cache
def _replayed_in(library: Any) -> Any:
    """The stream as a class of the library, which looks for its own."""
    return type("_Replayed", (_Replayed, library.SyncByteStream, library.AsyncByteStream), {})


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
