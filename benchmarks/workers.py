"""From the answer to a reload until the last of four worker processes over one log goes by it.

What a worker goes by is read from its answer to an ordinary request, as agents see it: a question would have it look first. There is a connection
to each worker, and the reloads come to all of them in turn.
"""

import http.client
import json
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from benchmarks.figures import Figure, at_most, median_figure, worst_of_a_hundred_figure
from benchmarks.load import Load, post_bytes
from shelflife.lab.workers import served_by_workers

__all__ = ["LONGEST_MS", "REMARKS", "WORKER_COUNT", "Took", "measure", "reloads"]

_SUBJECT = "workers"
WORKER_COUNT = 4
_BUSY_CONNECTION_COUNT = 8
LONGEST_MS = 50
_GIVE_UP_S = 120.0
_ADMIN_TOKEN = "benchmark"
_WORKER = "worker"
_TABLE, _PLAN = "active_csm_codes", "plan_partner_growth"
_ORDER = {
    "customer": "cus_ada",
    "plan": "plan_basic_annual",
    "amount": 12000,
    "currency": "usd",
    "payment_method_token": "acme_pm_visa_credit",
}
_HEADERS = {"Content-Type": "application/json", "Authorization": f"Bearer {_ADMIN_TOKEN}"}

REMARKS = {
    _SUBJECT: (
        "A worker looks every 5 ms whether another has written, so the last of three others needs 4.0 ms at the median whatever else is"
        " quick. The rest is reading the entry, and the request that finds it out.",
        "Busy, four workers and whoever asks share the cores, and a worker looks when it gets one. The target is for workers that"
        " have time to look.",
    )
}


class Took(NamedTuple):
    """Of each reload, in ms."""

    reload_ms: list[float]
    last_ms: list[float]
    """From its answer to the first answer by it of the last worker."""

    ask_ms: list[float]
    """The requests by which that was found out."""


def measure(is_quick: bool) -> Iterator[Figure]:
    """Some reloads, each timed until the last worker has it: of workers that do nothing else, then of busy ones."""
    reload_count = 5 if is_quick else 200
    what = f"from the answer to a reload to the last of {WORKER_COUNT} workers"
    took = reloads(reload_count, is_busy=False)
    yield median_figure(_SUBJECT, what, took.last_ms, "ms")
    yield worst_of_a_hundred_figure(_SUBJECT, what, took.last_ms, "ms", target=at_most(LONGEST_MS))
    yield median_figure(_SUBJECT, "the reload itself over HTTP, by one of them", took.reload_ms, "ms")
    yield median_figure(_SUBJECT, "an ordinary request to one of them", took.ask_ms, "ms")
    busy = f"kept busy by {_BUSY_CONNECTION_COUNT} connections"
    took = reloads(reload_count, is_busy=True)
    yield median_figure(_SUBJECT, f"{what}, {busy}", took.last_ms, "ms")
    yield worst_of_a_hundred_figure(_SUBJECT, f"{what}, {busy}", took.last_ms, "ms")
    yield median_figure(_SUBJECT, f"an ordinary request to one of them, {busy}", took.ask_ms, "ms")


def reloads(reload_count: int, *, is_busy: bool, log_kind: str = "file") -> Took:
    """So many reloads, by each of the workers in turn."""
    took = Took([], [], [])
    with (
        served_by_workers("acme", 6, _ADMIN_TOKEN, WORKER_COUNT, log_kind, told_in=_WORKER) as workers,
        ExitStack() as stack,
    ):
        stack.enter_context(_kept_busy(workers.address) if is_busy else nullcontext())
        connections = _one_to_each(workers.address, stack)  # now: one that is idle for 5 s is ended
        for number in range(reload_count):
            reloader = connections[number % WORKER_COUNT]
            code = {_PLAN: {"code": f"CODE{number}"}}
            begun_at = time.perf_counter()
            report = _posted(reloader, "/admin/reload-table", {"table": _TABLE, "set": code})
            answered_at = time.perf_counter()
            others = [one for one in connections if one is not reloader]
            took.ask_ms.extend(_asked_until(others, report["new_version"]))
            took.last_ms.append(1000 * (time.perf_counter() - answered_at))
            took.reload_ms.append(1000 * (answered_at - begun_at))
    return took


def _one_to_each(address: str, stack: ExitStack) -> list[http.client.HTTPConnection]:
    """Connections are opened, and come to any worker, until there is one to each."""
    found: dict[str | None, http.client.HTTPConnection] = {}
    while len(found) < WORKER_COUNT:
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=_GIVE_UP_S)
        connection.request("POST", "/subscriptions", json.dumps(_ORDER), _HEADERS)  # the first is slower
        answer = connection.getresponse()
        answer.read()
        if (worker := answer.headers[_WORKER]) in found:
            connection.close()
        else:
            found[worker] = stack.enter_context(closing(connection))
    return [*found.values()]


def _asked_until(waiting: list[http.client.HTTPConnection], version: str) -> Iterator[float]:
    """Ask each until it goes by a version, and say how long each answer took."""
    until = time.monotonic() + _GIVE_UP_S
    while waiting:
        behind = []
        for connection in waiting:
            asked_at = time.perf_counter()
            told = _posted(connection, "/subscriptions", _ORDER)["table_versions"][_TABLE]
            yield 1000 * (time.perf_counter() - asked_at)
            if told != version:
                behind.append(connection)
        waiting = behind
        if time.monotonic() > until:
            raise RuntimeError(f"{len(waiting)} workers have not seen a reload within {_GIVE_UP_S:.0f} s")


@contextmanager
def _kept_busy(address: str) -> Iterator[None]:
    spawning = multiprocessing.get_context("spawn")
    is_busy = spawning.Event()
    process = spawning.Process(target=_keep_busy, args=[urlsplit(address).port, is_busy], daemon=True)
    process.start()
    try:
        if not is_busy.wait(_GIVE_UP_S):
            raise RuntimeError("nobody has kept the workers busy")
        yield
    finally:
        process.kill()
        process.join()


def _keep_busy(port: int, is_busy: Any) -> None:
    request = post_bytes("/subscriptions", json.dumps(_ORDER).encode())
    with Load(port, request, lambda response: b" 201 " in response, _BUSY_CONNECTION_COUNT) as load:
        while True:
            load.round(100)
            is_busy.set()


def _posted(connection: http.client.HTTPConnection, path: str, content: Any) -> Any:
    connection.request("POST", path, json.dumps(content), _HEADERS)
    return json.loads(connection.getresponse().read())
