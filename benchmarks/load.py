"""A load generator that costs much less than the server it drives.

A handful of keep-alive connections on loopback, each with one request under way; request bytes made once, responses measured by
their `Content-Length` and not parsed further.
"""

import selectors
import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

__all__ = ["Load", "Round", "post_bytes"]

_RECEIVED_AT_ONCE = 1 << 16
_LONGEST_SILENCE_S = 60.0


class Round(NamedTuple):
    """What one burst of requests took."""

    response_count: int
    elapsed_s: float
    own_cpu_s: float
    """What the load generator itself has used."""

    @property
    def responses_per_s(self) -> float:
        return self.response_count / self.elapsed_s


class LoadFailed(Exception):
    """The server was silent, hung up, or gave a response that it should not give."""


def post_bytes(path: str, body: bytes) -> bytes:
    """A POST request of JSON, ready to be sent."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class _Connection:
    """One keep-alive connection and the part of a response that has arrived."""

    __slots__ = ("received", "socket", "wanted_length")

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=_LONGEST_SILENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""
        self.wanted_length = 0

    def take_response(self) -> bytes | None:
        """Read what has arrived; the response, once it is whole."""
        part = self.socket.recv(_RECEIVED_AT_ONCE)
        if not part:
            raise LoadFailed("the server has hung up")
        received = self.received = self.received + part if self.received else part
        if not self.wanted_length:
            head_length = received.find(b"\r\n\r\n")
            if head_length < 0:
                return None
            self.wanted_length = head_length + 4 + _content_length(received[:head_length])
        if len(received) < self.wanted_length:
            return None
        self.received, self.wanted_length = b"", 0
        return received


def _content_length(head: bytes) -> int:
    start = head.lower().index(b"\r\ncontent-length:") + len(b"\r\ncontent-length:")
    end = head.find(b"\r\n", start)
    return int(head[start : end if end > 0 else None])


class Load:
    """Connections to one server, kept for many rounds."""

    def __init__(
        self, port: int, request: bytes, is_right: Callable[[bytes], bool], connection_count: int = 8
    ) -> None:
        self._request = request
        self._is_right = is_right
        self._selector = selectors.DefaultSelector()
        self._connections = [_Connection(port) for _ in range(connection_count)]
        for connection in self._connections:
            self._selector.register(connection.socket, selectors.EVENT_READ, connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._selector.close()
        for connection in self._connections:
            connection.socket.close()

    def round(self, response_count: int) -> Round:
        """Send this many requests and check each response."""
        request, is_right, select = self._request, self._is_right, self._selector.select
        sent_count = done_count = 0
        cpu_at_start, started_at = time.process_time(), time.perf_counter()
        for connection in self._connections[:response_count]:
            connection.socket.sendall(request)
            sent_count += 1
        while done_count < response_count:
            ready = select(_LONGEST_SILENCE_S)
            if not ready:
                raise LoadFailed(f"the server was silent for {_LONGEST_SILENCE_S:.0f} s")
            for key, _ in ready:
                response = key.data.take_response()
                if response is None:
                    continue
                if not is_right(response):
                    raise LoadFailed(f"a response is not as it should be: {response[:300]!r}")
                done_count += 1
                if sent_count < response_count:
                    key.data.socket.sendall(request)
                    sent_count += 1
        elapsed_s = time.perf_counter() - started_at
        return Round(response_count, elapsed_s, time.process_time() - cpu_at_start)
