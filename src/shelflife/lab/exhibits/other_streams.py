"""Streams that no other exhibit is about, such as those that somebody wrote for an API of their own."""

import re

from shelflife.lab.exhibits.beside import PLANNER, default_note
from shelflife.lab.exhibits.beyond import MADE_FOR_IT
from shelflife.lab.exhibits.cells import Column, Exhibit, Row, kind_of_tokens, label, number
from shelflife.lab.exhibits.pools import ALL_ARMS, Pool, Runs, Subject
from shelflife.lab.scores import FirstTry

__all__ = ["other_streams"]

_SHOWN_ELSEWHERE = re.compile(rf"drifted|undrifted|rules|recipes|rotations-\d+|{MADE_FOR_IT}")


def other_streams(runs: Runs) -> Exhibit:
    """What every arm came to on every such stream."""
    rows: list[Row] = []
    streams = [name for name in runs.streams() if not _SHOWN_ELSEWHERE.fullmatch(name)]
    for stream in streams:
        for subject in runs.subjects(stream):
            played = [(arm, pool) for arm in ALL_ARMS if (pool := runs.pool(subject, stream, arm)).runs]
            rows += (
                _row(stream, subject, arm, pool, is_first=index == 0)
                for index, (arm, pool) in enumerate(played)
            )
    notes = (
        default_note(runs.arms(*streams)),
        "Counts are means over seeds, rates are pooled over their episodes.",
    )
    return Exhibit(
        "other-streams",
        "Other streams",
        "What each arm came to: first tries and compliance should rise along the ladder, retries and tokens should fall, and evictions should be right.",
        (
            Column("Stream", align="left"),
            PLANNER,
            Column("Arm", align="left"),
            Column("Completed"),
            Column("First try (%)"),
            Column("Compliance (%)"),
            Column("Retries"),
            Column("Evictions"),
            Column("Precision"),
            Column("Restamps"),
            Column("Tokens"),
        ),
        tuple(rows),
        tuple(note for note in notes if note),
    )


def _row(stream: str, subject: Subject, arm: str, pool: Pool, *, is_first: bool) -> Row:
    kind = subject.kind
    compliance = pool.compliance
    cells = (
        label(stream, is_code=True),
        label(subject.name, is_code=True),
        label(arm, is_code=True),
        label(pool.completed or "")._replace(kind=kind),
        number(pool.percent(lambda run: FirstTry(run.episodes, run.first_try)), kind),
        number(None if compliance is None else compliance.percent, kind),
        number(pool.mean(lambda run: run.retries), kind),
        number(pool.mean(lambda run: run.evictions), kind),
        number(pool.mean(lambda run: run.eviction_precision), kind, 2),
        number(pool.mean(lambda run: run.restamps), kind),
        number(pool.mean(lambda run: run.tokens.total), kind_of_tokens(pool.runs, kind), 0),
    )
    return Row(cells, kind, is_first)
