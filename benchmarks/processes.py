"""Processes that a benchmark starts and ends: a server, and a fresh one for a single measurement."""

import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    import uvicorn

__all__ = [
    "Served",
    "in_fresh_process",
    "keep_to_the_servers_core",
    "keeping_off_the_servers_core",
    "served",
    "start_by_forking",
    "started",
]

_LONGEST_START_S = 120.0
_LONGEST_END_S = 10.0
_KEEP_ALIVE_S = 600
_starting: SpawnContext | ForkServerContext = multiprocessing.get_context("spawn")
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
AppFactory = Callable[..., Any]
"""Makes an ASGI app in the server's process; a function of a module, so that it can be sent there."""


def start_by_forking() -> None:
    """From now on, for a smoke run: processes need not import everything anew, and are not quite fresh."""
    global _starting
    _starting = multiprocessing.get_context("forkserver")
    _starting.set_forkserver_preload(["uvicorn", "benchmarks.subscriptions"])


def in_fresh_process(
    function: Callable[Parameters, Result], *args: Parameters.args, **options: Parameters.kwargs
) -> Result:
    """Call the function in a process of its own, where nothing was allocated before."""
    with ProcessPoolExecutor(max_workers=1, mp_context=_starting) as executor:
        return executor.submit(function, *args, **options).result()


class Served:
    """A server that has been started."""

    def __init__(self, channel: "Connection[Any, Any]") -> None:
        self._channel = channel

    @cached_property
    def port(self) -> int:
        """Where it listens; the first look waits until it does."""
        if not self._channel.poll(_LONGEST_START_S):
            raise RuntimeError(f"no server started within {_LONGEST_START_S:.0f} s")
        try:
            port: int = self._channel.recv()
        except EOFError:
            raise RuntimeError("a server ended before it listened; its traceback stands above") from None
        return port

    def cpu_s(self) -> float:
        """The processor time that the server's process has used so far, in user and system."""
        self._channel.send("cpu")
        used_s: float = self._channel.recv()
        return used_s


@contextmanager
def served(make_app: AppFactory, *args: Any) -> Iterator[Served]:
    """Serve the app that `make_app` gives, by uvicorn on loopback, in a process and on a core of its own."""
    with started(_serve, make_app, args) as server:
        yield server


@contextmanager
def started(serve: Callable[..., None], *args: Any) -> Iterator[Served]:
    """Run a server in a process of its own: it sends its port by the channel that it is given first, and ends when that is closed."""
    channel, servers_end = _starting.Pipe()
    process = _starting.Process(target=serve, args=(servers_end, *args), daemon=True)
    process.start()
    servers_end.close()
    try:
        yield Served(channel)
    finally:
        channel.close()
        process.join(_LONGEST_END_S)
        if process.is_alive():
            process.kill()
            process.join()


@contextmanager
def keeping_off_the_servers_core() -> Iterator[None]:
    """Within this block this process leaves to servers the core that they run on, where there is more than one."""
    cores = _cores()
    if len(cores) < 2:
        yield
        return
    os.sched_setaffinity(0, cores[:-1])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def keep_to_the_servers_core() -> None:
    """From now on this process runs on the core that servers run on."""
    if cores := _cores():
        os.sched_setaffinity(0, cores[-1:])


def _cores() -> list[int]:
    """The cores that this process may run on; none where the system does not tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _serve(channel: "Connection[Any, Any]", make_app: AppFactory, args: tuple[Any, ...]) -> None:
    import uvicorn

    config = uvicorn.Config(
        make_app(*args),
        http="httptools",
        loop="asyncio",
        lifespan="off",
        log_level="critical",
        access_log=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    server = uvicorn.Server(config)
    keep_to_the_servers_core()
    threading.Thread(target=_tell_cpu_time, args=(channel, server), daemon=True).start()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # asyncio turns Nagle's algorithm off only on sockets that it has made itself.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel.send(listener.getsockname()[1])
        server.run(sockets=[listener])


def _tell_cpu_time(channel: "Connection[Any, Any]", server: "uvicorn.Server") -> None:
    """Answer until the benchmark hangs up, which ends the server."""
    try:
        while True:
            channel.recv()
            channel.send(time.process_time())
    except (EOFError, OSError):
        server.should_exit = True
