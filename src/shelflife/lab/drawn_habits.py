"""Streams drawn by habits: rows that change regularly, in bursts, after one another or at random, and usage at uneven times."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, count
from random import Random
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

__all__ = ["Habits", "drawn_by"]

_ZONES = ("Africa/Accra", "America/Lima")
_OFFSETS = tuple(f"{sign}{hour:02}:00" for sign in "+-" for hour in range(1, 12))
_MINUTES_AN_HOUR = 60
_BURST = 6
"""How many changes there are in one."""

_WITHIN_A_BURST = 0.05
"""How long it is from one change to the next there, as a share of the usual gap."""

_BETWEEN_BURSTS = 4
"""How long it is from one burst to the next, as a multiple of the usual gap."""

_BEHIND = 0.15
"""By how much one follows another, as a share of the usual gap."""


class Habits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How rows change in a stream: the table `[habits]` of its manifest."""

    kind: Literal["regular", "bursts", "led", "random", "never"]
    """Each row changes by itself, but where they are led: there every second one follows the one before it."""

    episodes: Annotated[int, Meta(ge=1, le=10_000)]
    usual_gap: Annotated[float, Meta(gt=0)] = 16.0
    """Between two changes of a row, in hours and on average."""

    uneven: Annotated[float, Meta(ge=0, le=1)] = 0.03
    """By how much what is regular varies: its spread as a share of it."""


def drawn_by(habits: Habits, seed: int = 0) -> dict[str, Any]:
    """All that a manifest says of episodes and drift.

    The seed chooses when rows change, and which of them is used when. From one use to the next it is an hour on average.
    """
    chance = Random(seed)  # noqa: S311
    gaps = [chance.expovariate(1.0) for _ in range(habits.episodes)]
    moments = list(accumulate(gaps))
    changes: list[tuple[float, str]] = []
    leader: list[float] = []
    for zone in _ZONES:
        is_led = habits.kind == "led" and bool(leader)
        own = list(_behind(habits, leader, chance) if is_led else _by_itself(habits, moments[-1], chance))
        leader = [] if is_led else own
        changes += ((moment, zone) for moment in own if moments[0] < moment <= moments[-1])
    return {
        "api": "meetings",
        "governed": "in use",
        "order": [chance.choice(_ZONES) for _ in moments],
        "families": {zone: _FAMILY | {"input": {**_INPUT, "zone": zone}} for zone in _ZONES},
        "drift": [_set(-1, dict.fromkeys(_ZONES, _OFFSETS[0])), *_drift(sorted(changes), moments)],
        "stale_slots": [],
        "varied": {"minutes": [25, 30, 45, 50]},
        "minutes": [gap * _MINUTES_AN_HOUR for gap in gaps],
    }


_INPUT = {"start": "09:30", "minutes": 45}
_FAMILY = {
    "class": "in use",
    "hint": "add a field",
    "field": "utc_offset",
    "task": "Plan a weekly meeting of {minutes} minutes, at {start} in the time zone {zone}.",
}


def _by_itself(habits: Habits, until: float, chance: Random) -> Iterator[float]:
    """The moments at which a row changes."""
    gap = habits.usual_gap
    if habits.kind == "never":
        return
    moment = chance.random() * gap
    while moment < until:
        if habits.kind == "regular":
            yield moment + chance.gauss(0, habits.uneven * gap)
            moment += gap
        elif habits.kind == "bursts":
            for _ in range(_BURST):
                yield moment
                moment += chance.expovariate(1 / (_WITHIN_A_BURST * gap))
            moment += chance.expovariate(1 / (_BETWEEN_BURSTS * gap))
        else:
            yield moment
            moment += chance.expovariate(1 / gap)


def _behind(habits: Habits, leader: Sequence[float], chance: Random) -> Iterator[float]:
    delay = _BEHIND * habits.usual_gap
    for moment in leader:
        yield moment + chance.gauss(delay, habits.uneven * delay)


def _drift(changes: Sequence[tuple[float, str]], moments: Sequence[float]) -> Iterator[dict[str, Any]]:
    """A change comes after the last episode before it. Each gives its row a value that it had not just before."""
    for number, (moment, zone) in zip(count(1), changes, strict=False):
        yield _set(bisect_left(moments, moment) - 1, {zone: _OFFSETS[number % len(_OFFSETS)]})


def _set(after: int, offsets: dict[str, str]) -> dict[str, Any]:
    rows = {zone: {"utc_offset": offset} for zone, offset in offsets.items()}
    return {"after": after, "table": "zones", "set": rows}
