"""Reading a response of httpx2 or httpx before its caller does, and leaving it as though nobody had.

The bytes are taken as they came and put back as the response's stream; of what they hold a bounded copy is decoded.
"""

import sys
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

__all__ = ["library_of", "read_ahead", "read_ahead_async"]


def library_of(message: Any) -> Any:
    """The library that a request or response is of."""
    return sys.modules[type(message).__mro__[-2].__module__.partition(".")[0]]


def read_ahead(response: Any, largest: int) -> bytes | None:
    """The decoded body of a response, which is left as though nobody had read it; None when that is too much or fails."""
    stream = response.stream
    head: list[bytes] = []
    rest: Iterable[bytes] = iter(stream)
    length = 0
    is_whole = False
    try:
        for chunk in rest:
            head.append(chunk)
            length += len(chunk)
            if length > largest:
                break
        else:
            is_whole = True
            stream.close()  # the connection may be needed for a question
    except Exception as error:  # noqa: BLE001 - the caller gets it, where it occurred
        rest = _Failing(error)
    response.stream = _of_library(_Replayed, library_of(response).SyncByteStream)(head, rest, stream)
    return _decoded(b"".join(head), response.headers, largest) if is_whole else None


async def read_ahead_async(response: Any, largest: int) -> bytes | None:
    """The same for async responses."""
    stream = response.stream
    head: list[bytes] = []
    rest: AsyncIterable[bytes] = aiter(stream)
    length = 0
    is_whole = False
    try:
        async for chunk in rest:
            head.append(chunk)
            length += len(chunk)
            if length > largest:
                break
        else:
            is_whole = True
            await stream.aclose()
    except Exception as error:  # noqa: BLE001 - the caller gets it, where it occurred
        rest = _Failing(error)
    response.stream = _of_library(_AsyncReplayed, library_of(response).AsyncByteStream)(head, rest, stream)
    return _decoded(b"".join(head), response.headers, largest) if is_whole else None


class _Replayed:
    """The stream of a response once more: what was read ahead, then the rest."""

    def __init__(self, head: list[bytes], rest: Iterable[bytes], stream: Any) -> None:
        self._head = head
        self._rest = rest
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        yield from self._head
        yield from self._rest

    def close(self) -> None:
        self._stream.close()


class _AsyncReplayed:
    """The same for async responses."""

    def __init__(self, head: list[bytes], rest: AsyncIterable[bytes], stream: Any) -> None:
        self._head = head
        self._rest = rest
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._head:
            yield chunk
        async for chunk in self._rest:
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Failing:
    """The rest of a stream that broke off."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __iter__(self) -> Iterator[bytes]:
        raise self._error

    def __aiter__(self) -> AsyncIterator[bytes]:
        raise self._error


@cache
def _of_library(stream: type, base: type) -> Any:
    """A kind of stream as a class of the library, which looks for its own."""
    return type(stream.__name__, (stream, base), {})


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
        try:
            inflated = inflating.decompress(content, largest)
        except zlib.error:
            continue
        return inflated if inflating.eof else None
    return None
