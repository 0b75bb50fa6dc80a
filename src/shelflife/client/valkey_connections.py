"""Connections to a Valkey: made by the driver, and waited for until a moment and no longer.

The driver bounds every wait for itself, so that an engine which drips, each time in time, would hold up an agent's step without end. And what
it does beside sending and receiving takes longer than Valkey does.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from shelflife.extras import needing

with needing("redis"):
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

__all__ = ["Check", "Connections", "client_of"]

_LONGEST_CONNECTING_S = 1.0
_AT_ONCE = 65536
_NO_PRIMARY = (redis.exceptions.ReadOnlyError, redis.exceptions.MasterDownError)
"""What one says that has become a replica. It ends none of its connections, and new ones may lead to the primary."""

Check = Callable[[Callable[[bytes], Any]], None]
"""Finds out whether a Valkey can be relied on, by what that answers to commands; raises if not."""


def client_of(url: str, *, longest_s: float, retry_count: int) -> Any:
    """A client of the driver's, which waits so long each time."""
    return redis.Redis.from_url(
        url,
        socket_timeout=longest_s,
        socket_connect_timeout=_LONGEST_CONNECTING_S,
        retry=Retry(NoBackoff(), retry_count, supported_errors=(redis.ConnectionError,)),
        client_name="shelflife",
    )


class _Line:
    """A socket that is waited for until a moment. To the driver, it is a socket."""

    def __init__(self, socket: Any, until: float) -> None:
        self.until = until
        self._socket = socket
        self._unread = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def sendall(self, said: bytes) -> None:
        self._bound()
        self._socket.sendall(said)

    def recv(self, size: int) -> bytes:
        if self._unread:
            told, self._unread = self._unread, b""
            return told
        self._bound()
        received: bytes = self._socket.recv(size)
        return received

    def recv_into(self, buffer: Any) -> int:
        told = self.recv(len(buffer))
        buffer[: len(told)] = told
        return len(told)

    def answer(self, command: bytes) -> bytes | None:
        """What is answered, where that is one text that comes at once, as it mostly does; else None, and it is the driver's to read."""
        self.sendall(command)
        told = self.recv(_AT_ONCE)
        end = told.find(b"\r\n")
        if end > 0 and told.startswith(b"$") and len(told) == end + int(told[1:end]) + 4:
            return told[end + 2 : -2]
        self._unread = told
        return None

    def _bound(self) -> None:
        left_s = self.until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("it has not answered in time")
        self._socket.settimeout(left_s)


@cache
def _bounded(kind: Any) -> Any:
    """A class of the driver's for connections, with lines that are bounded."""

    class Bounded(kind):  # type: ignore[misc]
        until = 0.0
        line: _Line | None = None
        check: Check

        def _connect(self) -> _Line:
            self.line = _Line(super()._connect(), self.until)
            return self.line

        def disconnect(self, *how: Any, **named: Any) -> None:
            self.line = None
            super().disconnect(*how, **named)

        def answer(self, command: bytes) -> Any:
            if self.line is None:
                self.connect()
                self.check(self._answer)
            return self._answer(command)

        def _answer(self, command: bytes) -> Any:
            line: Any = self.line
            line.until = self.until
            told = line.answer(command)
            return self.read_response() if told is None else told

    return Bounded


class Connections:
    """Those of one store, for any number of threads. What was found out about a Valkey holds for a connection, and no longer."""

    def __init__(self, client: Any, check: Check) -> None:
        """They are as the client's are. Each is checked when it is made."""
        self._pool, self._check = client.connection_pool, check
        self._idle: list[Any] = []
        """Those that nobody uses just now."""

    def answer(self, command: bytes, until: float) -> Any:
        """What Valkey answers to a command until this moment.

        What was sent over a connection that had ended, or to one that is no primary any more, is sent again. A write that was carried out
        is then found to be too late, and is decided anew.
        """
        idle = self._idle
        try:
            connection = idle.pop()
        except IndexError:
            connection = self._new()
        connection.until = until
        try:
            try:
                return connection.answer(command)
            except (redis.ConnectionError, OSError, *_NO_PRIMARY) as error:
                if isinstance(error, TimeoutError):
                    raise
                connection.disconnect()
                return connection.answer(command)
        except redis.exceptions.NoScriptError:
            raise  # which says nothing of the Valkey
        except BaseException:
            # Its answer could be taken for that of the next command. And whatever else is wrong, it is found out by new ones.
            connection.disconnect()
            self.close()
            raise
        finally:
            idle.append(connection)
            # Two race here: this, and `close`, which first puts another list there. Whichever comes last ends what is in this one.
            if idle is not self._idle:
                _end(idle)

    def _new(self) -> Any:
        connection = _bounded(self._pool.connection_class)(**self._pool.connection_kwargs)
        connection.check = self._check
        return connection

    def close(self) -> None:
        """Let go of those that nobody uses now, and of the others as soon as they are not used any more."""
        idle, self._idle = self._idle, []
        _end(idle)

    def after_fork_in_child(self) -> None:
        """What the parent is connected to is its own."""
        self._idle = []


def _end(connections: list[Any]) -> None:
    with suppress(IndexError):
        while True:
            connections.pop().disconnect()
