"""A real server on loopback, for as long as a block runs."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

__all__ = ["listening_on", "serving"]

_LONGEST_START_S = 30.0
_QUIET = {"log_level": "critical", "lifespan": "off", "timeout_graceful_shutdown": 1}
"""An open stream does not keep a server from ending."""


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
    """Says when it has started, and leaves signals to the program it runs in."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


@contextmanager
def serving(app: Any, *, port: int = 0, **options: Any) -> Iterator[str]:
    """Serve an ASGI app on loopback and give its address, e.g. `http://127.0.0.1:49152`.

    The options are uvicorn's.
    """
    with listening_on("127.0.0.1", port) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(app, **{**_QUIET, **options})
        server = _Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            if not server.up.wait(_LONGEST_START_S):
                raise RuntimeError(f"no server started on {address} within {_LONGEST_START_S:.0f} s")
            yield address
        finally:
            server.should_exit = True
            thread.join()
