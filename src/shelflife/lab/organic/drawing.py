"""Streams drawn from a history of real releases: which rows are used, how often, and what drifts between."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from random import Random
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from shelflife.lab.organic.releases import Release, ReleasesError, Rows, read_releases, released_on

__all__ = ["Organic", "drawn_from"]

DRIFTING, STEADY = "drifting", "steady"
_MINUTES_A_DAY = 24 * 60


class Organic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a stream is drawn from a history: the table `[organic]` of its manifest."""

    releases: Literal["banks", "zones"]
    """Whose history it is."""

    rows: Annotated[int, Meta(ge=1)]
    """How many rows are in use: drawn from those that are there at first, and that some fix quotes."""

    requests: Annotated[int, Meta(ge=1, le=1_000)]
    """How many episodes there are with each release."""

    drifting: Annotated[float, Meta(ge=0, le=1)] | None = None
    """The share of the rows in use that is drawn from those that drift.

    Then usage is *enriched*: it is drawn toward drift. None for rows as they come.
    """

    skew: Annotated[float, Meta(ge=0, le=10)] = 1.0
    """Of usage, after Zipf: the row of rank r is used in proportion to 1 / r to this power."""

    first: str | None = None
    """The release with which the stream begins; None for the first that is known."""

    last: str | None = None
    frozen: bool = False
    """Nothing is ever released after the first: the same usage with no drift."""

    dated: bool = False
    """Time goes on as it did between the releases, with the episodes spread evenly over it."""

    draw: int = 0
    """Chooses rows and usage."""


class _Kind(NamedTuple):
    """What streams of one history have in common."""

    api: str
    table: str
    """The one whose rows are in use."""

    quoted: tuple[str, ...]
    """The columns that fixes quote. All others drift as well, and make nothing stale."""

    task: str
    input_of: Callable[[str], dict[str, Any]]
    """By the key of a row, the request that needs it."""

    varied: dict[str, list[Any]]


_KINDS = {
    "zones": _Kind(
        "meetings",
        "zones",
        ("utc_offset", "dst_rule"),
        "Plan a weekly meeting of {minutes} minutes, at {start} in the time zone {zone}.",
        lambda key: {"zone": key, "start": "09:30", "minutes": 45},
        {"minutes": [25, 30, 45, 50], "start": ["09:30", "10:00", "14:00", "16:30"]},
    ),
    "banks": _Kind(
        "payouts",
        "banks",
        ("bic", "check_method"),
        "Pay out {amount} {currency} to an account at the bank {bank_code} in {country}.",
        lambda key: {
            **dict(zip(("country", "bank_code"), key.split(":"), strict=True)),
            "amount": 12500,
            "currency": "EUR",
        },
        {"amount": [4900, 12500, 31000, 99900]},
    ),
}


def drawn_from(organic: Organic) -> dict[str, Any]:
    """All that a manifest says of episodes and drift, drawn from the releases. `ReleasesError` where that cannot be."""
    kind = _KINDS[organic.releases]
    releases = read_releases(organic.releases)
    first_of_all = organic.first or releases[0].version
    opening, later = _window(organic, releases)
    first = opening[kind.table]
    constrained = sorted(key for key, row in first.items() if any(column in row for column in kind.quoted))
    drifting = _drifting(kind, first, later)
    chance = Random(organic.draw)  # noqa: S311
    used = _used(organic, constrained, drifting, chance)
    weights = [(rank + 1) ** -organic.skew for rank in range(len(used))]
    order = chance.choices(used, weights, k=organic.requests * (1 + len(later)))
    families = {
        key: {
            "class": DRIFTING if key in drifting else STEADY,
            "hint": "add a field",
            "field": next(column for column in kind.quoted if column in first[key]),
            "task": kind.task,
            "input": kind.input_of(key),
        }
        for key in dict.fromkeys(order)
    }
    return {
        "api": kind.api,
        "governed": DRIFTING if any(family["class"] == DRIFTING for family in families.values()) else STEADY,
        "order": order,
        "families": families,
        "drift": list(_drift(organic, opening, later)),
        "stale_slots": [],
        "varied": kind.varied,
        "history": organic.releases,
        **({"minutes": _minutes(organic, first_of_all, later)} if organic.dated else {}),
    }


def _minutes(organic: Organic, opening: str, later: Sequence[Release]) -> list[float]:
    """From the episode before to each. What comes after the last release has no end, and goes on as before it."""
    days = released_on(organic.releases, [opening, *(release.version for release in later)])
    gaps = [(after - before).days * _MINUTES_A_DAY for before, after in pairwise(days)] or [_MINUTES_A_DAY]
    return [gap / organic.requests for gap in (*gaps, gaps[-1]) for _ in range(organic.requests)]


def _window(organic: Organic, releases: Sequence[Release]) -> tuple[dict[str, Any], list[Release]]:
    """What the tables have in the first release, and the releases after it."""
    versions = [release.version for release in releases]
    ends = []
    for name, default in ((organic.first, versions[0]), (organic.last, versions[-1])):
        if name is not None and name not in versions:
            raise ReleasesError(
                f"there is no release {name} of {organic.releases}: they are {', '.join(versions)}"
            )
        ends.append(versions.index(name or default))
    begin, end = ends
    if begin > end:
        raise ReleasesError(f"the release {organic.first} comes after {organic.last}")
    opening: dict[str, Rows] = {}
    for release in releases[: begin + 1]:
        for table, change in release.tables.items():
            rows = opening.setdefault(table, {})
            rows |= change.set
            for key in change.remove:
                del rows[key]
    return opening, list(releases[begin + 1 : end + 1])


def _drifting(kind: _Kind, first: Rows, later: Sequence[Release]) -> set[str]:
    """The rows of the first release whose quoted values change, or that go, in a later one."""
    now: dict[str, Mapping[str, Any]] = dict(first)
    found = set()
    for release in later:
        change = release.tables[kind.table]
        gone: Iterator[tuple[str, Mapping[str, Any]]] = ((key, {}) for key in change.remove)
        for key, row in chain(change.set.items(), gone):
            before = now.get(key, {})
            if key in first and any(
                before[column] != row.get(column) for column in kind.quoted if column in before
            ):
                found.add(key)
            now[key] = row
    return found


def _used(organic: Organic, constrained: Sequence[str], drifting: set[str], chance: Random) -> list[str]:
    """The rows in use, in the order of their ranks."""
    if organic.drifting is None:
        pools = [(constrained, organic.rows)]
    else:
        hot = [key for key in constrained if key in drifting]
        count = round(organic.rows * organic.drifting)
        pools = [(hot, count), ([key for key in constrained if key not in drifting], organic.rows - count)]
    used: list[str] = []
    for keys, count in pools:
        if count > len(keys):
            raise ReleasesError(f"{count} rows of {organic.releases} are to be drawn from {len(keys)}")
        used += chance.sample(keys, count)
    chance.shuffle(used)
    return used


def _drift(
    organic: Organic, opening: Mapping[str, Rows], later: Sequence[Release]
) -> Iterator[dict[str, Any]]:
    for table, rows in opening.items():
        yield {"after": -1, "says": f"{organic.releases}, as the stream begins", "table": table, "rows": rows}
    for number, release in enumerate(() if organic.frozen else later, start=1):
        for table, change in release.tables.items():
            yield {
                "after": number * organic.requests - 1,
                "says": f"{organic.releases} {release.version}",
                "table": table,
                "set": change.set,
                "remove": change.remove,
                "version": release.version,
            }
