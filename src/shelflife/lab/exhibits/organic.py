"""What memories come to under organic drift: the releases of real reference data, one after another."""

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from shelflife.client import EXACT
from shelflife.lab.exhibits.cells import Column, Exhibit, Row, count, kind_of_tokens, label, number
from shelflife.lab.exhibits.comparison import PLANNER, default_note, notes
from shelflife.lab.exhibits.pools import ALL_ARMS, Pool, Runs, Subject, saved_percent
from shelflife.lab.growth import SinceDrift

__all__ = ["LAST_VALUE", "NO_DRIFT", "OrganicPool", "organic", "organic_growth", "organic_pools"]

NO_DRIFT = "no drift"
_WITHOUT_MEMORY = "A0"
_FIRST_VALUE, LAST_VALUE = "compliant", "compliant-last"
"""The planners that are named after which of two values they take."""

_UNDRIFTED = "-undrifted"
_THIRDS = 3
_NAMES = (Column("Stream", align="left"), PLANNER, Column("Arm", align="left"))
_ARMS_NOTE = (
    "A1 never forgets: of two values compliant takes the first, and compliant-last the last, as if that had been written over the other. A2 forgets all of a table that has moved, A2D the rows that changed, exact the"
    " cells."
)
_RELEASES_NOTE = "In the streams that are called enriched, and in organic-zones-40, usage was drawn toward the rows that drift. In the others it does not care which rows do."


class OrganicPool(NamedTuple):
    """The runs of one arm on one stream, or of the same usage with no drift."""

    stream: str
    subject: Subject
    arm: str
    pool: Pool


def organic_pools(runs: Runs) -> Iterator[OrganicPool]:
    """All runs on streams of real releases, by stream and planner, in the order of exhibits."""
    for stream in runs.organic_streams():
        if stream.endswith(_UNDRIFTED):
            continue
        for subject in runs.subjects(stream):
            for arm in ALL_ARMS:
                if (pool := runs.pool(subject, stream, arm)).runs:
                    yield OrganicPool(stream, subject, arm, pool)
            if (ceiling := _ceiling(runs, stream, subject)).runs:
                yield OrganicPool(stream, subject, NO_DRIFT, ceiling)


def _ceiling(runs: Runs, stream: str, subject: Subject) -> Pool:
    """The same usage with no drift, where all memories come to the same: by any arm that was played."""
    pools = [runs.pool(subject, f"{stream}{_UNDRIFTED}", arm) for arm in (EXACT.name, *reversed(ALL_ARMS))]
    return next((pool for pool in pools if pool.runs), Pool(()))


def _held_against(runs: Runs, stream: str, subject: Subject) -> tuple[Pool, Pool]:
    """What a subject is held against: no memory, and no drift.

    Where nobody has two values to choose from, whoever takes the last does what whoever takes the first does.
    """
    alike = [
        one for one in runs.subjects(stream) if (one.planner, subject.planner) == (_FIRST_VALUE, LAST_VALUE)
    ]
    for one in (subject, *alike):
        without, ceiling = runs.pool(one, stream, _WITHOUT_MEMORY), _ceiling(runs, stream, one)
        if without.runs:
            return without, ceiling
    return Pool(()), Pool(())


def organic(runs: Runs) -> Exhibit:
    """The whole of each run."""
    rows = []
    last = None
    for stream, subject, arm, pool in organic_pools(runs):
        kind = subject.kind
        without, ceiling = _held_against(runs, stream, subject)
        is_memory = arm != _WITHOUT_MEMORY
        cells = (
            label(stream, is_code=True),
            label(subject.name, is_code=True),
            label(arm, is_code=arm != NO_DRIFT),
            number(pool.mean(lambda run: run.episodes), kind, 0),
            count(pool.mean(lambda run: run.retries), kind),
            number(_kept(pool, without, ceiling) if is_memory else None, kind),
            count(pool.mean(lambda run: run.stale_injections) if is_memory else None, kind),
            count(pool.mean(lambda run: run.stale_executions) if is_memory else None, kind),
            count(pool.mean(lambda run: run.evictions) if is_memory else None, kind),
            number(pool.mean(lambda run: run.eviction_precision), kind, 2),
            number(pool.mean(lambda run: run.tokens.total), kind_of_tokens(pool.runs, kind), 0),
            number(
                saved_percent(pool, without) if without.runs and is_memory else None,
                kind_of_tokens(pool.runs, kind),
            ),
            number(pool.mean(lambda run: sum(one.bytes for one in run.by_event) / 1000), kind, 0),
            number(pool.mean(lambda run: run.wire.question_bytes / 1000) if is_memory else None, kind, 0),
        )
        rows.append(Row(cells, kind, (stream, subject) != last))
        last = stream, subject
    return Exhibit(
        "organic",
        "Organic drift",
        "Releases of real reference data, replayed: what each arm makes of drift that nobody thought up. No drift is the same usage with no release after the first: no memory can do better.",
        (
            *_NAMES,
            Column("Episodes"),
            Column("Retries"),
            Column("Saving kept (%)"),
            Column("sent", "Stale values"),
            Column("carried out", "Stale values"),
            Column("Evictions"),
            Column("Precision"),
            Column("in all", "Tokens"),
            Column("saved (%)", "Tokens"),
            Column("in all", "Bytes (kB)"),
            Column("of questions", "Bytes (kB)"),
        ),
        tuple(rows),
        notes(
            None,
            _ARMS_NOTE,
            _RELEASES_NOTE,
            "Saving kept: of the retries that a memory saves where nothing drifts (those of A0 less those with no drift), how many it saves here.",
            "A stale value that is sent is refused, or carried out where the server has nothing to check it by any more.",
            default_note(runs.arms(*runs.organic_streams())),
        ),
    )


def _kept(pool: Pool, without: Pool, ceiling: Pool) -> float | None:
    """How much of what a memory can save is saved, in percent; over arms that were all played with the same seeds."""
    retries = [one.mean(lambda run: run.retries) for one in (pool, without, ceiling)]
    here, most, least = retries
    if here is None or most is None or least is None or most == least:
        return None
    return 100 * (most - here) / (most - least)


def organic_growth(runs: Runs) -> Exhibit:
    """The same runs, by thirds of the releases."""
    measures: tuple[tuple[str, Callable[[SinceDrift], float], int], ...] = (
        ("Retries", lambda one: one.retries, 1),
        ("Stale values sent", lambda one: one.stale_injections, 1),
        ("Evictions", lambda one: one.evictions, 1),
        ("Tokens", lambda one: one.tokens, 0),
        ("Bytes (kB)", lambda one: one.bytes / 1000, 1),
    )
    rows = []
    last = None
    for stream, subject, arm, pool in organic_pools(runs):
        if arm == NO_DRIFT or min(len(run.by_event) for run in pool.runs) < _THIRDS:
            continue  # there are no thirds of its releases
        kind = subject.kind
        token_kind = kind_of_tokens(pool.runs, kind)
        cells = [label(stream, is_code=True), label(subject.name, is_code=True), label(arm, is_code=True)]
        for name, of, digits in measures:
            ends = [_first_and_last([of(one) for one in run.by_event]) for run in pool.runs]
            cells += (
                number(fmean(third), token_kind if name == "Tokens" else kind, digits)
                for third in zip(*ends, strict=True)
            )
        rows.append(Row(tuple(cells), kind, (stream, subject) != last))
        last = stream, subject
    return Exhibit(
        "organic-growth",
        "Organic drift, release by release",
        "What one release and the requests until the next come to, on average over the first and the last third of the releases: the first has most of the first meetings, and what grows from there is"
        " the price of drift.",
        (*_NAMES, *(Column(third, name) for name, _, _ in measures for third in ("first", "last"))),
        tuple(rows),
        (_ARMS_NOTE, _RELEASES_NOTE),
    )


def _first_and_last(values: Sequence[float]) -> list[float]:
    """The means over the first and over the last third of a row of numbers."""
    size = len(values) // _THIRDS
    return [fmean(values[:size]), fmean(values[-size:])]
