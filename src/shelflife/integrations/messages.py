"""Requests and responses in the shape that `watching` knows from httpx2, for clients of other libraries.

Only what is used there. The module stands for a library: its names are looked up in it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

__all__ = [
    "AsyncByteStream",
    "ByteStream",
    "HTTPTransport",
    "Headers",
    "Request",
    "Response",
    "SyncByteStream",
]


class HTTPTransport:
    """None of ours hands its timeouts to sockets before each read."""


class SyncByteStream:
    """A body that a blocking client reads."""


class AsyncByteStream:
    """A body that an async client reads."""


class ByteStream:
    """The body of a request that is in memory."""

    sent_count = 0
    """How often it was sent. Whoever sends it counts."""

    def __init__(self, content: bytes) -> None:
        self.content = content


class Headers(Mapping[str, str]):
    """Headers, found by their names in any case. One that comes several times is joined."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._pairs = list(pairs)
        self._by_name: dict[str, str] = {}
        for name, value in self._pairs:
            known = self._by_name.get(name.lower())
            self._by_name[name.lower()] = value if known is None else f"{known}, {value}"

    def __getitem__(self, name: str) -> str:
        return self._by_name[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def multi_items(self) -> list[tuple[str, str]]:
        """All of them, as they were written."""
        return self._pairs


class _Url:
    def __init__(self, text: str) -> None:
        self._text = text
        parts = urlsplit(text)
        self.scheme, self.path = parts.scheme, parts.path or "/"
        self.netloc, self.query = parts.netloc.rpartition("@")[2].encode(), parts.query.encode()

    def __str__(self) -> str:
        return self._text

    def join(self, target: str) -> str:
        return urljoin(self._text, target)


class Request:
    """A request. Without content its body is some stream that is not looked at."""

    def __init__(
        self,
        method: str,
        url: object,
        *,
        headers: Iterable[tuple[str, str]],
        content: bytes | None = None,
        stream: Any = None,
        extensions: dict[str, Any] | None = None,
    ) -> None:
        self.method, self.url = method, _Url(str(url))
        self.stream = ByteStream(content or b"") if stream is None else stream
        pairs = list(headers)
        if content is not None and not any(name.lower() == "content-length" for name, _ in pairs):
            pairs.append(("Content-Length", str(len(content))))
        self.headers = Headers(pairs)
        self.extensions = extensions if extensions is not None else {}

    @property
    def content(self) -> bytes:
        """The body, where it is in memory."""
        return self.read()

    def read(self) -> bytes:
        """The same."""
        content: bytes = self.stream.content
        return content


class Response:
    """A response. Its stream gives the body as the library gives it, mostly decoded, and closes it."""

    is_stream_consumed = False
    content = b""

    def __init__(
        self,
        status_code: int,
        headers: Iterable[tuple[str, str]],
        stream: Any,
        of: Any,
        *,
        is_decoded: bool = True,
    ) -> None:
        self.status_code = status_code
        self.headers = Headers(
            (name, value)
            for name, value in headers
            if not (is_decoded and name.lower() == "content-encoding")
        )
        self.stream = stream
        self.extensions: dict[str, Any] = {}
        self.of = of
        """The library's own."""

    def close(self) -> None:
        """Let go of the connection."""
        self.stream.close()

    async def aclose(self) -> None:
        """The same."""
        await self.stream.aclose()
