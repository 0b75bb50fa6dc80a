"""Reading a response of httpx2 or httpx before its caller does, and leaving it as though nobody had.

The bytes are taken as they came and put back as the response's stream; of what they hold a bounded copy is decoded. All of it is
written once, for async clients. The calls of a blocking one are awaited too, and are done at once.
"""

import sys
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

__all__ = ["Async", "Blocking", "library_of", "read_ahead"]


class Blocking:
    """The calls of a blocking client, to be awaited like those of an async one. They are done at once."""

    def chunks(self, stream: Any) -> Any:
        return iter(stream)

    async def next_chunk(self, chunks: Any) -> Any:
        return next(chunks, None)

    async def send(self, transport: Any, request: Any) -> Any:
        return transport.handle_request(request)

    async def close(self, message: Any) -> None:
        message.close()


class Async:
    """The calls of an async client."""

    def chunks(self, stream: Any) -> Any:
        return aiter(stream)

    async def next_chunk(self, chunks: Any) -> Any:
        return await anext(chunks, None)

    async def send(self, transport: Any, request: Any) -> Any:
        return await transport.handle_async_request(request)

    async def close(self, message: Any) -> None:
        await message.aclose()


def library_of(message: Any) -> Any:
    """The library that a request or response is of."""
    return sys.modules[type(message).__mro__[-2].__module__.partition(".")[0]]


async def read_ahead(response: Any, largest: int, calls: Blocking | Async) -> bytes | None:
    """The decoded body of a response, which is left as though nobody had read it; None when that is too much or fails."""
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
            if length > largest:
                break
        else:
            is_whole = True
            await calls.close(stream)  # the connection may be needed for a question
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
