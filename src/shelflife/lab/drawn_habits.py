"""Streams drawn by habits: rows that change regularly, in bursts, after one another or at random, and usage at uneven times."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from random import Random
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

__all__ = ["Habits", "drawn_by"]

_ZONES = ("Africa/Accra", "America/Lima")
_OFFSETS = tuple(f"{sign}{hour:02}:00" for sign in "+-" for hour in range(1, 12))
_MINUTES_AN_HOUR = 60

_MOST = Meta(min_length=1, max_length=100)
_Lengths = Annotated[tuple[Annotated[float, Meta(gt=0)], ...], _MOST]


class Habits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How rows change in a stream: the table `[habits]` of its manifest.

    Of each list the seed chooses one for each row. The lists were written down before anything was played by them: round numbers, around
    the hour that it is from one use to the next.
    """

    kind: Literal["regular", "bursts", "led", "random", "never"]
    """Each row changes by itself, but where they are led: there every second one follows the one before it."""

    episodes: Annotated[int, Meta(ge=1, le=10_000)]
    gap: _Lengths = (12.0, 24.0, 48.0)
    """Between two changes of a row, or between two bursts, in hours; on average, where it is not regular."""

    uneven: Annotated[tuple[Annotated[float, Meta(ge=0, le=1)], ...], _MOST] = (0.01, 0.03, 0.1)
    """By how much what is regular varies: its spread, as a share of it."""

    burst: Annotated[tuple[Annotated[int, Meta(ge=1, le=1_000)], ...], _MOST] = (4, 8, 16)
    """How many changes there are in one."""

    within: _Lengths = (0.5, 1.0, 2.0)
    """From one change to the next in a burst, in hours and on average."""

    behind: _Lengths = (1.0, 2.0, 4.0)
    """By how much one follows another, in hours."""


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
    if habits.kind == "never":
        return
    gap, uneven = chance.choice(habits.gap), chance.choice(habits.uneven)
    burst, within = chance.choice(habits.burst), chance.choice(habits.within)
    moment = chance.random() * gap
    while moment < until:
        if habits.kind == "regular":
            yield moment + chance.gauss(0, uneven * gap)
            moment += gap
        elif habits.kind == "bursts":
            for _ in range(burst):
                yield moment
                moment += chance.expovariate(1 / within)
            moment += chance.expovariate(1 / gap)
        else:
            yield moment
            moment += chance.expovariate(1 / gap)


def _behind(habits: Habits, leader: Sequence[float], chance: Random) -> Iterator[float]:
    delay, uneven = chance.choice(habits.behind), chance.choice(habits.uneven)
    for moment in leader:
        yield moment + chance.gauss(delay, uneven * delay)


def _drift(changes: Sequence[tuple[float, str]], moments: Sequence[float]) -> Iterator[dict[str, Any]]:
    """A change comes after the last episode before it. Each gives its row a value that it had not just before."""
    made: Counter[str] = Counter()
    for moment, zone in changes:
        made[zone] += 1
        yield _set(bisect_left(moments, moment) - 1, {zone: _OFFSETS[made[zone] % len(_OFFSETS)]})


def _set(after: int, offsets: dict[str, str]) -> dict[str, Any]:
    rows = {zone: {"utc_offset": offset} for zone, offset in offsets.items()}
    return {"after": after, "table": "zones", "set": rows}
