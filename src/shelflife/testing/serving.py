"""A real server on loopback, for as long as a block runs."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from shelflife.errors import ShelflifeError
from shelflife.extras import needing
from shelflife.server.errors import leaves_of

with needing("server"):
    import uvicorn

__all__ = ["ServingError", "listening_on", "serving"]

_LONGEST_START_S = 30.0
_TICK_S = 0.1
_LOOK_AGAIN_S = 0.001
_QUIET = {"log_level": "critical", "timeout_graceful_shutdown": 1, "timeout_keep_alive": 60}
"""An open stream does not keep a server from ending. Clients end connections that were idle for 5 seconds, and so would uvicorn: a
request could meet the end of its connection."""


class ServingError(ShelflifeError, RuntimeError):
    """An app does not start, or not in time."""


def listening_on(host: str, port: int) -> socket.socket:
    """A socket that listens on a port, 0 being any that is free, and answers without delay.

    asyncio turns Nagle's algorithm off only for sockets that name their protocol, which these do not; with it a small
    answer in two writes waits 40 ms for the client's acknowledgement.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


class _Server(uvicorn.Server):
    """Says when it has started, or why not, and leaves signals to the program it runs in."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()
        self._told_to_end = asyncio.Event()
        self._end: Callable[[], object] = self._told_to_end.set

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        self._end = partial(loop.call_soon_threadsafe, self._told_to_end.set)
        await super().startup(sockets)
        self.up.set()

    def end(self) -> None:
        """Have it end, from another thread."""
        self.should_exit = True
        with suppress(RuntimeError):  # its loop is closed: it has ended by itself
            self._end()

    async def main_loop(self) -> None:
        """uvicorn's own looks ten times a second whether it is to end. This one is told."""
        ticks = 0
        while not await self.on_tick(ticks):
            ticks += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self._told_to_end.wait(), _TICK_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End as uvicorn does, which waits a tenth of a second whether or not anybody is still there."""
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(_LOOK_AGAIN_S)
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel()
        await self.lifespan.shutdown()

    def run_to_its_end(self, listener: socket.socket) -> None:
        """Serve until told to end. uvicorn raises `SystemExit` when the app does not start."""
        try:
            self.run(sockets=[listener])
        except SystemExit:
            self.should_exit = True
        finally:
            self.up.set()


class _Noting:
    """Hands everything on to an app, and notes why that does not start."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.failure = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return

        async def noted(message: Any) -> None:
            if message["type"] == "lifespan.startup.failed":
                self.failure = self.failure or message.get("message", "").strip()
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except BaseException as error:
            self.failure = "; ".join(str(leaf) or repr(leaf) for leaf in leaves_of(error))
            raise


@contextmanager
def serving(app: Any, *, port: int = 0, **options: Any) -> Iterator[str]:
    """Serve an ASGI app on loopback and give its address, e.g. `http://127.0.0.1:49152`.

    The app's start and end are part of it. An app that does not start is a `ServingError` that says why. The options are
    uvicorn's.
    """
    with listening_on("127.0.0.1", port) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(app, **{**_QUIET, **options})
        config.load()
        noting = config.loaded_app = _Noting(config.loaded_app)
        server = _Server(config)
        thread = threading.Thread(target=server.run_to_its_end, args=[listener], daemon=True)
        thread.start()
        try:
            if not server.up.wait(_LONGEST_START_S):
                raise ServingError(f"no server started on {address} within {_LONGEST_START_S:.0f} s")
            if server.should_exit:
                raise ServingError(f"the app did not start: {noting.failure or 'it does not say why'}")
            yield address
        finally:
            server.end()
            thread.join()
