"""The server of a run in worker processes over one log. As a program it starts them, and ends them when its input ends."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from socket import socket
from typing import Any, NamedTuple

import uvicorn
import uvicorn.protocols.http.auto  # this and all else here by the one that the workers are forked off, and not by each of them

from shelflife.errors import ShelflifeError
from shelflife.lab.apis import APIS
from shelflife.lab.engines import log_of_a_run, remove_log
from shelflife.server import WireFormat
from shelflife.server.logs import log_at
from shelflife.testing.serving import listening_on

__all__ = ["Workers", "WorkersError", "served_by_workers"]

_SETTINGS = "SHELFLIFE_LAB_SERVER"
"""The variable in which the processes are told what to serve: an admin token is not for everybody to see."""

_LONGEST_START_S = 60.0
_LONGEST_END_S = 10.0
_LOOK_AGAIN_S = 0.01


class WorkersError(ShelflifeError):
    """Worker processes do not start, or not come to one state: one sentence for people."""


class Workers(NamedTuple):
    """The worker processes of a server."""

    address: str
    log: str
    """Where they keep what they share."""


@contextmanager
def served_by_workers(
    api: str, level: int, admin_token: str, count: int, log_kind: str = "file", *, told_in: str = ""
) -> Iterator[Workers]:
    """An API in so many processes, for as long as the block runs and this process lives.

    In the header `told_in`, if it is given, each response says which process it is of.
    """
    chosen = {"api": api, "level": level, "admin_token": admin_token, "count": count, "log_kind": log_kind}
    settings = json.dumps({**chosen, "told_in": told_in})
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, _SETTINGS: settings},
        start_new_session=True,  # Ctrl-C is for this process, which ends the others
    )
    assert process.stdin is not None  # noqa: S101
    assert process.stdout is not None  # noqa: S101
    left = ExitStack()
    try:
        told = process.stdout.readline()
        if not told:
            raise WorkersError("the server of the run did not start")
        workers = Workers(*json.loads(told))
        left.callback(remove_log, workers.log)  # where somebody has killed it
        _wait_for(count, workers.log)
        yield workers
    finally:
        process.stdin.close()
        try:
            process.wait(_LONGEST_END_S)
        except subprocess.TimeoutExpired:
            process.kill()  # its workers end with it
            process.wait()
        process.stdout.close()
        left.close()


def _wait_for(count: int, place: str) -> None:
    """Each worker is in the log as soon as it serves."""
    until = time.monotonic() + _LONGEST_START_S
    with closing(log_at(place)) as log:
        while (live := len(log.workers())) < count:
            if time.monotonic() > until:
                raise WorkersError(f"{live} of {count} workers have started within {_LONGEST_START_S:.0f} s")
            time.sleep(_LOOK_AGAIN_S)


def _main() -> None:
    """Serve until whoever has started this lets go of its input, or is no more."""
    settings = json.loads(os.environ[_SETTINGS])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with log_of_a_run(settings["log_kind"]) as log, listening_on("127.0.0.1", 0) as listener:
        watched, held = os.pipe()
        for _ in range(settings["count"]):
            if not os.fork():
                os.close(held)
                _serve(settings, log, listener, watched)
        os.close(watched)
        with suppress(BrokenPipeError):
            sys.stdout.write(json.dumps([f"http://127.0.0.1:{listener.getsockname()[1]}", log]) + "\n")
            sys.stdout.flush()
        try:
            sys.stdin.read()
        finally:
            os.close(held)
            with suppress(ChildProcessError):
                while True:
                    os.wait()


def _serve(settings: dict[str, Any], log: str, listener: socket, watched: int) -> None:
    """One worker, in a process of its own, which ends with the first."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        threading.Thread(target=_end_with_the_first, args=[watched], daemon=True).start()
        api = APIS[settings["api"]]
        provider = api.provider(
            wire=WireFormat(level=settings["level"]), admin_token=settings["admin_token"], log=log
        )
        config = uvicorn.Config(
            api.app(provider),
            log_level="critical",
            ws="none",
            timeout_graceful_shutdown=1,
            headers=[(settings["told_in"], str(os.getpid()))] if settings["told_in"] else None,
        )
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        os._exit(0)


def _end_with_the_first(watched: int) -> None:
    """Nothing is ever sent: the pipe ends when the first process lets go of it, or is no more."""
    os.read(watched, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    _main()
