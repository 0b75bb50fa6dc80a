"""Reading a response of httpx2 or httpx before its caller does, and leaving it as though nobody had.

The bytes are taken as they came and put back as the response's stream; of what they hold a bounded copy is decoded. It is written once,
as for an async client: what a blocking one calls gives at once what could otherwise be awaited.
"""

import inspect
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from functools import cache
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple, TypeVar

from shelflife.client.asking import driven

__all__ = ["ASYNC", "BLOCKING", "Calls", "at_once", "library_of", "read_ahead", "settled"]

Outcome = TypeVar("Outcome")


class Calls(NamedTuple):
    """What is called on behalf of a blocking client, or of an async one."""

    handler: Callable[[Any], Callable[[Any], Any]]
    """Of a transport: what sends a request."""

    close: Callable[[Any], Any]
    chunks: Callable[[Any], Any]
    next_chunk: Callable[[Any, None], Any]


BLOCKING = Calls(attrgetter("handle_request"), methodcaller("close"), iter, next)
ASYNC = Calls(attrgetter("handle_async_request"), methodcaller("aclose"), aiter, anext)


async def settled(given: Any) -> Any:
    """What a call has given, once it is there."""
    return await given if inspect.isawaitable(given) else given


def at_once(steps: Coroutine[Any, Any, Outcome]) -> Outcome:
    """What steps come to that make the calls of a blocking client, and so have nothing to wait for."""
    return driven(steps.__await__(), None)


def library_of(message: Any) -> Any:
    """The library that a request or response is of."""
    return sys.modules[type(message).__mro__[-2].__module__.partition(".")[0]]


async def read_ahead(response: Any, largest: int, calls: Calls) -> bytes | None:
    """The decoded body of a response, which is left as though nobody had read it; None when that is too much or fails."""
    stream = response.stream
    head: list[bytes] = []
    rest = calls.chunks(stream)
    length = 0
    is_whole = False
    try:
        while (chunk := await settled(calls.next_chunk(rest, None))) is not None:
            head.append(chunk)
            length += len(chunk)
            if length > largest:
                break
        else:
            is_whole = True
            await settled(calls.close(stream))  # the connection may be needed for a question
    except Exception as error:  # noqa: BLE001 - the caller gets it, where it occurred
        rest = _Failing(error)
    response.stream = _replayed_in(library_of(response))(head, rest, stream)
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
