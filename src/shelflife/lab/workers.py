"""The server of a run in worker processes over one log. As a program it is the first of them, and ends when its input does."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from shelflife.errors import ShelflifeError
from shelflife.lab.engines import log_of_a_run, remove_log
from shelflife.testing.serving import listening_on
from shelflife.testing.workers import end_with_parent, run_workers

__all__ = ["Workers", "WorkersError", "served_by_workers", "worker_app"]

_SETTINGS = "SHELFLIFE_LAB_SERVER"
"""The variable in which the processes are told what to serve: an admin token is not for everybody to see."""

_WHO = "/lab/worker"
_LONGEST_START_S = 60.0
_LONGEST_END_S = 10.0
_LOOK_AGAIN_S = 0.005


class WorkersError(ShelflifeError):
    """Worker processes do not start, or not come to one state: one sentence for people."""


class Workers:
    """The worker processes of a server, each asked over a connection of its own."""

    def __init__(self, address: str, log: str, connections: dict[int, http.client.HTTPConnection]) -> None:
        self.address = address
        self.log = log
        """Where they keep what they share."""
        self.connections = connections
        """By the id of the process."""

    def agree(self, longest_s: float) -> None:
        """Wait until all of them tell the same state."""
        until = time.monotonic() + longest_s
        while len({_told(connection)["state"] for connection in self.connections.values()}) > 1:
            if time.monotonic() > until:
                raise WorkersError(
                    f"the {len(self.connections)} workers have not come to one state within {longest_s:g} s"
                )
            time.sleep(_LOOK_AGAIN_S)


@contextmanager
def served_by_workers(
    api: str, level: int, admin_token: str, count: int, log_kind: str = "file"
) -> Iterator[Workers]:
    """An API in so many processes, for as long as the block runs and this process lives."""
    chosen = {"api": api, "level": level, "admin_token": admin_token, "count": count, "log_kind": log_kind}
    settings = json.dumps(chosen)
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
        address, log = json.loads(told)
        left.callback(remove_log, log)  # where somebody has killed it
        with ExitStack() as stack:
            yield Workers(address, log, _one_to_each(address, count, stack))
    finally:
        process.stdin.close()
        try:
            process.wait(_LONGEST_END_S)
        except subprocess.TimeoutExpired:
            process.kill()  # its workers end with it
            process.wait()
        process.stdout.close()
        left.close()


def _one_to_each(address: str, count: int, stack: ExitStack) -> dict[int, http.client.HTTPConnection]:
    """Connections are opened, and come to any worker, until there is one to each."""
    host, port = urlsplit(address).hostname or "", urlsplit(address).port
    until = time.monotonic() + _LONGEST_START_S
    found: dict[int, http.client.HTTPConnection] = {}
    while len(found) < count:
        if time.monotonic() > until:
            raise WorkersError(
                f"{len(found)} of {count} workers have started within {_LONGEST_START_S:.0f} s"
            )
        connection = http.client.HTTPConnection(host, port, timeout=_LONGEST_START_S)
        worker = _told(connection)["pid"]
        if worker in found:
            connection.close()
        else:
            found[worker] = stack.enter_context(closing(connection))
    return found


def _told(connection: http.client.HTTPConnection) -> dict[str, Any]:
    """What the worker at the other end says of itself."""
    try:
        connection.request("GET", _WHO)
        told: dict[str, Any] = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise WorkersError(f"a worker of the server of the run has gone: {error!r}") from error
    return told


def worker_app() -> Any:
    """The app of one worker. Beside what the API answers, it tells who it is and which state it is at."""
    from shelflife.lab.apis import (
        APIS,
    )  # only here: the first process has no app, and starts the others sooner
    from shelflife.server import WireFormat

    end_with_parent()
    settings = json.loads(os.environ[_SETTINGS])
    api = APIS[settings["api"]]
    provider = api.provider(
        wire=WireFormat(level=settings["level"]), admin_token=settings["admin_token"], log=settings["log"]
    )
    app = api.app(provider)

    async def telling(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != _WHO:
            await app(scope, receive, send)
            return
        provider.be_ready()
        state = provider.registry.state
        told = json.dumps({"pid": os.getpid(), "state": f"{state.number} {state.digest}"}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(told))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": told})

    return telling


def _main() -> None:
    """Serve until whoever has started this lets go of its input, or is no more."""
    settings = json.loads(os.environ[_SETTINGS])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # until the workers have a better way to end
    threading.Thread(target=_end_with_input, daemon=True).start()
    with log_of_a_run(settings["log_kind"]) as log, listening_on("127.0.0.1", 0) as listener:
        os.environ[_SETTINGS] = json.dumps({**settings, "log": log})
        with suppress(BrokenPipeError):
            sys.stdout.write(json.dumps([f"http://127.0.0.1:{listener.getsockname()[1]}", log]) + "\n")
            sys.stdout.flush()
        run_workers(
            "shelflife.lab.workers:worker_app",
            settings["count"],
            listener,
            log_level="critical",
            timeout_keep_alive=24 * 60 * 60,
            timeout_graceful_shutdown=1,
        )


def _end_with_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    _main()
