"""From a reload to a thousand listeners of the change feed, beside the least that any server could do for them.

The listeners are plain sockets in this process, so that no client library is measured. In turns with the feed, a bare asyncio server
writes the very bytes of the feed's last event to as many others: one write for each, and nothing else.
"""

import asyncio
import json
import selectors
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.figures import Figure, at_most, median_figure, worst_of_a_hundred_figure
from benchmarks.processes import (
    keep_to_the_servers_core,
    keeping_off_the_servers_core,
    served,
    started,
)
from shelflife.integrations.asgi import ContractMiddleware, contract_app
from shelflife.server import Provider

__all__ = ["REMARKS", "measure"]

_SUBJECT = "feed fan-out"
REMARKS = {
    _SUBJECT: (
        "All servers are on one core, so what counts for the last listener is how much all of them do. Four workers tell as many listeners as one"
        " does, and besides each of three reads the change from the file, and all note how far they are. To be woken at once in place of looking"
        " every 5 ms brought nothing here, and to look more often took the core from others; to note only once the listeners are told brought a"
        " millisecond.",
    )
}
_END_OF_EVENT = b"\n\n"
_TOKEN = "benchmark"
_WORKER_COUNT = 4
_LONGEST_SILENCE_S = 30.0
_ASK = b"GET /contract/changes HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"


def measure(is_quick: bool) -> Iterator[Figure]:
    """Some reloads, each timed at every listener; with a log in the process, and with one that workers share."""
    listener_count, reload_count = (20, 3) if is_quick else (1000, 200)
    yield from _figures(f"{listener_count:,} listeners", *_alternated(1, listener_count, reload_count))
    yield from _figures(
        f"{listener_count:,} listeners of {_WORKER_COUNT} workers with a shared log",
        *_alternated(_WORKER_COUNT, listener_count, reload_count),
    )


class _Told(NamedTuple):
    """How long it took until each listener had an event, for some of them."""

    last_ms: list[float]
    all_ms: list[float]

    def note(self, took_ms: list[float]) -> None:
        self.last_ms.append(max(took_ms))
        self.all_ms.extend(took_ms)

    @property
    def worst_of_a_hundred_ms(self) -> float:
        return statistics.quantiles(self.all_ms, n=100, method="inclusive")[-1]


def _figures(whom: str, feed: _Told, bare: _Told) -> Iterator[Figure]:
    yield median_figure(_SUBJECT, f"from a reload to the last of {whom}", feed.last_ms, "ms")
    yield worst_of_a_hundred_figure(_SUBJECT, f"from a reload to each of {whom}", feed.all_ms, "ms")
    yield worst_of_a_hundred_figure(_SUBJECT, f"the same bytes to each of {whom}, barely", bare.all_ms, "ms")
    yield Figure(
        subject=_SUBJECT,
        what=f"{whom}: ratio of these two",
        measured=feed.worst_of_a_hundred_ms / bare.worst_of_a_hundred_ms,
        unit="",
        sample_count=len(feed.all_ms),
        target=at_most(2),
    )


def _alternated(worker_count: int, listener_count: int, reload_count: int) -> tuple[_Told, _Told]:
    """In turns a reload and a bare fan-out, to as many listeners."""
    feed, bare = _Told([], []), _Told([], [])
    with ExitStack() as stack:
        log = ""
        if worker_count > 1:
            log = str(Path(stack.enter_context(TemporaryDirectory())) / "log.db")
        servers = [stack.enter_context(served(_feed_app, log)) for _ in range(worker_count)]
        ports = [server.port for server in servers]
        bare_servers = [stack.enter_context(started(_fan_out_barely)) for _ in range(worker_count)]
        bare_ports = [server.port for server in bare_servers]
        listeners = stack.enter_context(_Listeners(ports, listener_count))
        bare_listeners = stack.enter_context(_Listeners(bare_ports, listener_count))
        operator = stack.enter_context(socket.create_connection(("127.0.0.1", ports[0])))
        commands = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for port in bare_ports]
        stack.enter_context(keeping_off_the_servers_core())
        for number in range(1, reload_count + 1):
            reload = _reload_request(number)
            feed.note(listeners.told_by(lambda request=reload: operator.sendall(request)))  # type: ignore[misc]
            operator.recv(1 << 16)
            event = listeners.last_heard
            bare.note(bare_listeners.told_by(lambda event=event: _command(commands, event)))  # type: ignore[misc]
    return feed, bare


def _feed_app(log: str) -> Any:
    tables = {f"table_{number}": {"k": {"v": 0}} for number in range(50)}
    provider = Provider(tables, admin_token=_TOKEN, log=log or None)
    return ContractMiddleware(contract_app(provider), provider)


def _reload_request(number: int) -> bytes:
    body = json.dumps({"table": "table_7", "set": {"k": {"v": number}}}).encode()
    head = f"POST /admin/reload-table HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {_TOKEN}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def _command(commands: Sequence[socket.socket], event: bytes) -> None:
    for command in commands:
        command.sendall(b"TELL%08d" % len(event) + event)


class _Listeners:
    """Open connections, spread over servers. Each has been answered, and told something."""

    def __init__(self, ports: Sequence[int], count: int) -> None:
        self.last_heard = b""
        """What one of them has received last."""
        self._selector = selectors.DefaultSelector()
        self._sockets = [
            socket.create_connection(("127.0.0.1", ports[number % len(ports)])) for number in range(count)
        ]
        for one in self._sockets:
            one.setblocking(False)
            self._selector.register(one, selectors.EVENT_READ)
        self.told_by(lambda: [one.send(_ASK) for one in self._sockets])

    def __enter__(self) -> "_Listeners":
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for one in self._sockets:
            one.close()

    def told_by(self, act: Callable[[], object]) -> list[float]:
        """How many milliseconds pass, from when something begins to be done, until each of them is told something."""
        received = dict.fromkeys(self._sockets, b"")
        took_ms: list[float] = []
        begun_at = time.perf_counter()
        act()
        while len(took_ms) < len(self._sockets):
            ready = self._selector.select(_LONGEST_SILENCE_S)
            if not ready:
                raise RuntimeError(f"the listeners heard nothing for {_LONGEST_SILENCE_S:.0f} s")
            for key, _ in ready:
                one: Any = key.fileobj
                part = one.recv(1 << 16)
                if not part:
                    raise RuntimeError("a server has hung up on a listener")
                was_told = received[one].endswith((_END_OF_EVENT, _END_OF_EVENT + b"\r\n"))
                received[one] += part
                if not was_told and _END_OF_EVENT in received[one]:
                    took_ms.append(1000 * (time.perf_counter() - begun_at))
                    self.last_heard = received[one]
        return took_ms


def _fan_out_barely(channel: "Connection[Any, Any]") -> None:
    """Serve listeners by asyncio and nothing else: whoever commands it has its bytes written to all of them."""
    keep_to_the_servers_core()
    asyncio.run(_serve_barely(channel))


async def _serve_barely(channel: "Connection[Any, Any]") -> None:
    listeners: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readexactly(4)
        if asked != b"TELL":
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: here" + _END_OF_EVENT)
            listeners.append(writer)
        while asked == b"TELL":
            event = await reader.readexactly(int(await reader.readexactly(8)))
            for listener in listeners:
                listener.write(event)
            asked = await reader.read(4)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    channel.send(server.sockets[0].getsockname()[1])
    is_over = asyncio.Event()

    def hear_of_the_end() -> None:
        try:
            channel.recv()
        except (EOFError, OSError):
            is_over.set()

    asyncio.get_running_loop().add_reader(channel.fileno(), hear_of_the_end)
    await is_over.wait()
