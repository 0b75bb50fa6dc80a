"""A reload as an operator makes it: JSON to `POST /admin/reload-table` of a running server."""

import http.client
import time
from typing import Any, NamedTuple

import msgspec
from fastapi import FastAPI

from benchmarks.discounts import TABLE, changed, check_report, discounts, spread_keys
from benchmarks.processes import served
from shelflife.integrations.fastapi import install
from shelflife.server import Provider, ReloadReport

__all__ = ["Answered", "reloads_over_http"]

_ADMIN_TOKEN = "benchmark"


class Answered(NamedTuple):
    """How long the operator waited."""

    whole_s: list[float]
    """For the whole table."""
    change_s: list[float]
    """For ten rows of it."""
    whole_bytes: int
    """The size of the whole table as JSON."""


def reloads_over_http(row_count: int, repeat_count: int) -> Answered:
    """Send the whole table with ten rows changed, then a change of ten rows, and so on."""
    incoming = discounts(row_count)
    keys = spread_keys(incoming)
    answered = Answered([], [], len(_body(rows=incoming)))
    with served(_reloadable_app, row_count) as server:
        for repeat in range(repeat_count):
            incoming |= changed(incoming, keys, 1000 + 2 * repeat)
            answered.whole_s.append(_posted_in_s(server.port, _body(rows=incoming)))
            change = changed(incoming, keys, 1001 + 2 * repeat)
            answered.change_s.append(_posted_in_s(server.port, _body(set=change)))
    return answered


def _reloadable_app(row_count: int) -> FastAPI:
    app = FastAPI()
    install(app, Provider({TABLE: discounts(row_count)}, admin_token=_ADMIN_TOKEN))
    return app


def _body(**content: Any) -> bytes:
    return msgspec.json.encode({"table": TABLE, **content})


def _posted_in_s(port: int, body: bytes) -> float:
    """Send a reload, check its report, and say how long the answer took."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {_ADMIN_TOKEN}"}
    try:
        started_at = time.perf_counter()
        connection.request("POST", "/admin/reload-table", body, headers)
        answer = connection.getresponse().read()
        took_s = time.perf_counter() - started_at
    finally:
        connection.close()
    check_report(msgspec.json.decode(answer, type=ReloadReport))
    return took_s
