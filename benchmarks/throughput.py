"""Throughput of an app with the contract against the same app without.

Real uvicorn (httptools, asyncio) in a process for each side, the load generator in this one. Short rounds alternate between the two
sides of a comparison, and what is reported is the median of the ratios of neighbouring rounds. A few responses before each round are not
timed: the others have been served meanwhile, and one app has part in many comparisons in a row, so that it would find more of itself in the
processor's caches than the other. The servers are started anew several times, because two processes of the very same code differ by a
percent or two; how much is reported too.
"""

import json
import sys
import timeit
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple
from urllib.error import HTTPError

from benchmarks.figures import Figure, Target, at_least, median_figure
from benchmarks.load import Load, post_bytes
from benchmarks.processes import Served, keeping_off_the_servers_core, served
from benchmarks.subscriptions import (
    BAD_REQUEST,
    GOOD_REQUEST,
    PATH,
    bare_app,
    contract_app,
    hand_written_app,
    measured_app,
    promised_app,
    scored_app,
    stamped_app,
    stamped_barely_app,
    unasked_app,
    unmeasured_app,
    viewed_app,
)
from shelflife.server.counting import Counts
from shelflife.server.log import InProcessLog

__all__ = ["REMARKS", "Comparison", "Neighbours", "Side", "compared", "measure"]

_SUBJECT = "throughput"
_MANY_TABLES = 500
_ROUND_LENGTH = 64
"""Responses in a round. A round of any length scatters alike here, so many short ones tell more than a few long ones."""
_LEAD_IN_LENGTH = 16
"""Responses before it that are not timed."""
_WARM_UP_COUNT = 1000
_UNPROCESSABLE = 422
_MICROSECONDS = 1_000_000


REMARKS = {
    _SUBJECT: (
        "The floors are ASGI middleware of a few lines, with nothing in them that could be left out. One wraps what the app sends, and adds"
        " the same bytes to every body, which it changes in place; another also pins a state for each request and looks whether the body is an"
        " object that takes the stamp. No contract that leaves FastAPI as it is can cost less than these. Where one of them is below a"
        " target, that target cannot be met in this way.",
        "Another floor keeps by hand every promise that concerns the request of this benchmark: it also tells nothing before the client is"
        " let in, keeps what the client has sent, and answers refusals with their fixes. It serves no other request. The last one does the"
        " same, but for its policies: they are those of the contract, and read by its views, which can record what they read.",
        "What the contract adds to that is what makes it serve any other request: it notes which endpoint has run, also where nothing is"
        " checked; an object for each request, which knows what to do with all other kinds of responses; the choice of policies by"
        " operation. None of it takes long, and there is no one part that takes most: what counts is how many steps there are, and how much"
        " memory they look at, for each takes several times as long amid a server as in a loop by itself. None of it is work for the garbage"
        " collector: a request that is over is held by nothing. Some have been tried in other ways, at every promise: the stamping inside of"
        " the route, where no message has to wait, closures in place of an object, all of it in fewer functions, rows that are dictionaries."
        " None of these made a difference that could be told from that between two copies of one app. What did make one is a single object in"
        " place of two, of a class that has all defaults, so that it is made at once and its attributes are set and read by the quickest of"
        " the interpreter's ways; and one thing to look at for all that requests have in common.",
    )
}


class Side(NamedTuple):
    """One app, in a process of its own."""

    name: str
    make_app: Callable[..., Any]
    table_count: int = 0
    """How many tables the stamp must name; 0 where there must be no stamp."""
    has_checks: bool = True
    log: str | None = None
    """Where it keeps its log; None for one in its process."""

    @property
    def app_arguments(self) -> tuple[int | str, ...]:
        return (*([self.table_count] if self.table_count else ()), *([self.log] if self.log else ()))


class Comparison(NamedTuple):
    """Two sides whose rounds alternate."""

    what: str
    with_contract: Side
    without: Side
    target: Target | None = None


_BY_HAND = Side("checks by hand", hand_written_app)
_BY_HAND_AGAIN = Side("checks by hand, again", hand_written_app)
_BARE = Side("no checks", bare_app, has_checks=False)

_COMPARISONS = (
    Comparison("two policies, 6 tables", Side("contract 6", contract_app, 6), _BY_HAND, at_least(0.95)),
    Comparison(
        f"two policies, {_MANY_TABLES} tables",
        Side("contract 500", contract_app, _MANY_TABLES),
        _BY_HAND,
        at_least(0.93),
    ),
    Comparison(
        "stamping only, 6 tables",
        Side("stamps 6", stamped_app, 6, has_checks=False),
        _BARE,
        at_least(0.97),
    ),
    Comparison(
        f"stamping only, {_MANY_TABLES} tables",
        Side("stamps 500", stamped_app, _MANY_TABLES, has_checks=False),
        _BARE,
        at_least(0.95),
    ),
    Comparison(
        "metrics kept in a log and asked for every second, against none",
        Side("measured 6", measured_app, 6),
        Side("unmeasured 6", unmeasured_app, 6),
        at_least(0.98),
    ),
    Comparison(
        "clients scored too, against metrics alone",
        Side("scored 6", scored_app, 6),
        Side("measured 6", measured_app, 6),
    ),
    Comparison(
        "floor: a middleware that adds the same stamp to every body, and asks nothing",
        Side("unasked 6", unasked_app, 6, has_checks=False),
        _BARE,
    ),
    Comparison(
        f"floor: the same with the stamp of {_MANY_TABLES} tables",
        Side("unasked 500", unasked_app, _MANY_TABLES, has_checks=False),
        _BARE,
    ),
    Comparison(
        "floor: a middleware that pins a state and stamps objects with it, by hand",
        Side("stamped barely 6", stamped_barely_app, 6, has_checks=False),
        _BARE,
    ),
    Comparison(
        "floor: all that is promised to a usual request with two policies, by hand",
        Side("promised 6", promised_app, 6),
        _BY_HAND,
    ),
    Comparison(
        f"floor: the same with the stamp of {_MANY_TABLES} tables, by hand",
        Side("promised 500", promised_app, _MANY_TABLES),
        _BY_HAND,
    ),
    Comparison(
        "floor: the same by hand with 6 tables, and policies that read by views which can record",
        Side("viewed 6", viewed_app, 6),
        _BY_HAND,
    ),
    Comparison("noise: an app against its own copy", _BY_HAND_AGAIN, _BY_HAND),
)


class _Running(NamedTuple):
    """A side that is being served, with its connections."""

    server: Served
    load: Load

    def round(self) -> "_Cost":
        self.load.round(_LEAD_IN_LENGTH)
        cpu_before_s = self.server.cpu_s()
        round = self.load.round(_ROUND_LENGTH)
        server_cpu_s = self.server.cpu_s() - cpu_before_s
        return _Cost(round.responses_per_s, server_cpu_s / _ROUND_LENGTH, round.own_cpu_s / _ROUND_LENGTH)


class _Cost(NamedTuple):
    """What one round says about one side."""

    responses_per_s: float
    server_cpu_s: float
    """For each response."""
    load_cpu_s: float
    """What the load generator used for each response."""


class Neighbours(NamedTuple):
    """Two rounds, one right after the other."""

    with_contract: _Cost
    without: _Cost


def measure(is_quick: bool) -> Iterator[Figure]:
    """Alternate rounds of every comparison, over several starts of the servers."""
    neighbours = compared(_COMPARISONS, is_quick=is_quick)
    for comparison in _COMPARISONS:
        yield from _figures_of(comparison, neighbours[comparison.what])
    yield _figure_of_increments(is_quick)
    costs = [pair.without for pair in neighbours[_COMPARISONS[0].what]]
    yield median_figure(
        _SUBJECT, "responses of the app with checks by hand", [cost.responses_per_s for cost in costs], "/s"
    )
    yield median_figure(
        _SUBJECT,
        "its CPU per response",
        [cost.server_cpu_s * _MICROSECONDS for cost in costs],
        "µs",
    )
    yield median_figure(
        _SUBJECT,
        "its share of a core; well below 1, others were at work here",
        [cost.responses_per_s * cost.server_cpu_s for cost in costs],
    )
    yield median_figure(
        _SUBJECT,
        "the load generator's CPU per response",
        [cost.load_cpu_s * _MICROSECONDS for cost in costs],
        "µs",
    )


def _figure_of_increments(is_quick: bool) -> Figure:
    """What a request that is let through adds to the counts, which nobody can turn off."""
    counts = Counts(InProcessLog())

    def increments() -> None:
        counts.passed += 1
        counts.stamped += 1

    repeats, number = (3, 1000) if is_quick else (20, 100_000)
    took_us = [
        took_s / number * _MICROSECONDS for took_s in timeit.repeat(increments, number=number, repeat=repeats)
    ]
    return median_figure(_SUBJECT, "counting a request that is let through", took_us, "µs")


def compared(comparisons: Sequence[Comparison], *, is_quick: bool) -> dict[str, list[Neighbours]]:
    """The rounds of each comparison, by what it is, over several starts of the servers."""
    start_count, cycle_count = (1, 3) if is_quick else (5, 52)
    neighbours: dict[str, list[Neighbours]] = {comparison.what: [] for comparison in comparisons}
    sides = _sides(comparisons)
    for start in range(1, start_count + 1):
        print(f"  {len(sides)} servers, start {start} of {start_count}", file=sys.stderr)
        with ExitStack() as stack:
            servers = {
                side: stack.enter_context(served(side.make_app, *side.app_arguments)) for side in sides
            }
            running = {side.name: _ready(side, server, stack) for side, server in servers.items()}
            stack.enter_context(keeping_off_the_servers_core())
            for side in running.values():
                side.load.round(20 if is_quick else _WARM_UP_COUNT)
            for cycle in range(cycle_count):
                for comparison in comparisons:
                    pair = (running[comparison.with_contract.name], running[comparison.without.name])
                    neighbours[comparison.what].append(_alternated(*pair, contract_first=cycle % 2 == 0))
    return neighbours


def _figures_of(comparison: Comparison, neighbours: list[Neighbours]) -> Iterator[Figure]:
    what = comparison.what
    rates = [pair.with_contract.responses_per_s / pair.without.responses_per_s for pair in neighbours]
    cpu_ratios = [pair.without.server_cpu_s / pair.with_contract.server_cpu_s for pair in neighbours]
    added_s = [pair.with_contract.server_cpu_s - pair.without.server_cpu_s for pair in neighbours]
    yield median_figure(_SUBJECT, f"{what}: ratio of throughput", rates, "", comparison.target)
    yield median_figure(_SUBJECT, f"{what}: the same by server CPU", cpu_ratios, "", comparison.target)
    yield median_figure(
        _SUBJECT, f"{what}: added CPU per response", [cpu * _MICROSECONDS for cpu in added_s], "µs"
    )


def _sides(comparisons: Sequence[Comparison]) -> list[Side]:
    both = (side for comparison in comparisons for side in (comparison.with_contract, comparison.without))
    return list({side.name: side for side in both}.values())


def _alternated(with_contract: _Running, without: _Running, *, contract_first: bool) -> Neighbours:
    if contract_first:
        cost_with = with_contract.round()
        return Neighbours(cost_with, without.round())
    cost_without = without.round()
    return Neighbours(with_contract.round(), cost_without)


def _ready(side: Side, server: Served, stack: ExitStack) -> _Running:
    _check_answers(side, server.port)
    is_right = _is_stamped if side.table_count else _is_created
    load = Load(server.port, post_bytes(PATH, GOOD_REQUEST), is_right)
    return _Running(server, stack.enter_context(load))


def _is_created(response: bytes) -> bool:
    return response.startswith(b"HTTP/1.1 2")


def _is_stamped(response: bytes) -> bool:
    return (
        response.startswith(b"HTTP/1.1 2")
        and b'"table_versions":{"' in response
        and b'"rules_version":"' in response[-64:]
    )


def _check_answers(side: Side, port: int) -> None:
    """Make sure that both sides do what they are compared for."""
    status, answer = _answered(port, GOOD_REQUEST)
    stamps = {"table_versions", "rules_version"} & answer.keys()
    named_count = len(answer.get("table_versions", ()))
    if not answer.get("success") or named_count != side.table_count or bool(stamps) != bool(named_count):
        raise RuntimeError(f"the side {side.name} gave {status} with stamps for {named_count} tables")
    if side.has_checks and _answered(port, BAD_REQUEST)[0] != _UNPROCESSABLE:
        raise RuntimeError(f"the side {side.name} lets a bad request pass")


def _answered(port: int, body: bytes) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{PATH}", body, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except HTTPError as refusal:
        with refusal:
            return refusal.code, {}
