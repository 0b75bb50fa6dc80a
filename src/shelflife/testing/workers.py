"""Several worker processes that serve one app, and end with the process that started them."""

import multiprocessing
import os
import signal
import socket
import threading
from typing import Any

from shelflife.extras import needing

with needing("server"):
    import uvicorn
    from uvicorn.supervisors import Multiprocess

__all__ = ["end_with_parent", "run_workers"]


def run_workers(make_app: str, count: int, listener: socket.socket, **settings: Any) -> None:
    """Serve the app that `module:function` makes in so many processes, until this one is told to end.

    What the function must know is for it to find in its environment.
    """
    Multiprocess(uvicorn.Config(make_app, factory=True, workers=count, **settings), [listener]).run()


def end_with_parent() -> None:
    """In a worker: one whose parent was killed would go on for ever, and nobody could tell it to end."""
    threading.Thread(target=_end_after, args=[multiprocessing.parent_process()], daemon=True).start()


def _end_after(parent: Any) -> None:
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
