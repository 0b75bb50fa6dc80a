"""The walk for `affected_downstream`, in a graph of a million nodes and a million edges.

Ten tables are tied in a circle by ten rules. Every row names one row of the next table, so that the rows form rings of 250 nodes that
run through all the tables many times: each row has one edge, and a walk from any of them reaches the other 249.
"""

import random
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from benchmarks.figures import Figure, at_most, median_figure, quantity
from benchmarks.processes import in_fresh_process
from shelflife.server import Registry, Rule
from shelflife.server.graph import downstream

__all__ = ["measure"]

_SUBJECT = "walk"
_TABLE_COUNT = 10
_ROUNDS_OF_A_RING = 25
"""How often a ring comes back to the same table before it closes."""
_START_COUNT = 10
_MOST_MILLISECONDS = 10.0
_TABLES = tuple(f"table_{number}" for number in range(_TABLE_COUNT))


class _Walked(NamedTuple):
    """What the walks and the reloads took."""

    node_count: int
    reached_count: int
    """From ten keys together."""
    walk_s: list[float]
    reload_s: list[float]
    """Of the ten rows, walk included."""


def measure(is_quick: bool) -> Iterator[Figure]:
    """Walk from ten rows in ten different rings, other ones each time."""
    ring_count, repeat_count = (40, 5) if is_quick else (4_000, 200)
    for has_column in (True, False):
        walked = in_fresh_process(_walks, ring_count, repeat_count, has_column)
        rules = "rules that name a column" if has_column else "rules that look at every column"
        yield median_figure(
            _SUBJECT,
            f"{quantity(walked.node_count)} nodes, {rules}: walk from ten keys to"
            f" {walked.reached_count:,} nodes",
            [took_s * 1000 for took_s in walked.walk_s],
            "ms",
            at_most(_MOST_MILLISECONDS),
        )
        yield median_figure(
            _SUBJECT,
            f"{quantity(walked.node_count)} nodes, {rules}: reload of ten rows, with that walk",
            [took_s * 1000 for took_s in walked.reload_s],
            "ms",
        )


def _key(ring: int, round: int) -> str:
    return f"ring-{ring:05d}-{round % _ROUNDS_OF_A_RING:02d}"


def _registry(ring_count: int, *, has_column: bool) -> Registry:
    """A row leads to the row of the same key in the next table; the last table leads to the ring's next round."""
    tables: dict[str, dict[str, dict[str, Any]]] = {
        table: {
            _key(ring, round): {
                "next": _key(ring, round + 1 if table == _TABLES[-1] else round),
                "label": f"row {ring} of {table}",
                "amount": ring,
            }
            for ring in range(ring_count)
            for round in range(_ROUNDS_OF_A_RING)
        }
        for table in _TABLES
    }
    rules = (
        Rule(from_table=table, to_table=to_table, relation="next", via="next" if has_column else None)
        for table, to_table in zip(_TABLES, (*_TABLES[1:], _TABLES[0]), strict=True)
    )
    return Registry(tables, rules)


def _walks(ring_count: int, repeat_count: int, has_column: bool) -> _Walked:
    registry = _registry(ring_count, has_column=has_column)
    chance = random.Random(0)
    walk_s: list[float] = []
    reload_s: list[float] = []
    expected_count = _START_COUNT * (_TABLE_COUNT * _ROUNDS_OF_A_RING - 1)
    for repeat in range(repeat_count):
        rings = chance.sample(range(ring_count), _START_COUNT)
        keys = [_key(ring, chance.randrange(_ROUNDS_OF_A_RING)) for ring in rings]
        state = registry.state
        started_at = time.perf_counter()
        reached = downstream(state.tables, state.rules, _TABLES[0], keys)
        walk_s.append(time.perf_counter() - started_at)
        rows = state.tables[_TABLES[0]].rows
        changed = {key: {**rows[key], "amount": -1 - repeat} for key in keys}
        started_at = time.perf_counter()
        report = registry.reload_table(_TABLES[0], set=changed)
        reload_s.append(time.perf_counter() - started_at)
        if len(reached) != expected_count or report.affected_downstream != reached:
            raise RuntimeError(f"a walk has reached {len(reached)} nodes instead of {expected_count}")
    node_count = sum(len(table.rows) for table in registry.state.tables.values())
    return _Walked(node_count, expected_count, walk_s, reload_s)
