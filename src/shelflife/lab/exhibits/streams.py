"""The runs by stream: what was run at all, and what came of streams that no other exhibit is about."""

import re
from collections import Counter

from shelflife.lab import paper
from shelflife.lab.exhibits.cells import (
    DASH,
    Cell,
    Column,
    Exhibit,
    Kind,
    Row,
    count,
    kind_of,
    kind_of_tokens,
    label,
    number,
)
from shelflife.lab.exhibits.comparison import PLANNER, default_note, notes
from shelflife.lab.exhibits.conducts import MADE_FOR_IT
from shelflife.lab.exhibits.pools import ALL_ARMS, Pool, Runs, Subject
from shelflife.lab.scores import FirstTry, RunScore

__all__ = ["other_streams", "what_was_run"]

_SHOWN_ELSEWHERE = re.compile(rf"drifted|undrifted|rules|recipes|rotations-\d+.*|{MADE_FOR_IT}")


def other_streams(runs: Runs) -> Exhibit:
    """What every arm came to on every such stream."""
    rows: list[Row] = []
    organic = runs.organic_streams()
    streams = [
        name for name in runs.streams() if name not in organic and not _SHOWN_ELSEWHERE.fullmatch(name)
    ]
    for stream in streams:
        for subject in runs.subjects(stream):
            played = [(arm, pool) for arm in ALL_ARMS if (pool := runs.pool(subject, stream, arm)).runs]
            rows += (
                _row(stream, subject, arm, pool, is_first=index == 0)
                for index, (arm, pool) in enumerate(played)
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
        notes(
            None,
            default_note(runs.arms(*streams)),
            "Counts are means over seeds, rates are pooled over their episodes.",
        ),
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
        count(pool.mean(lambda run: run.retries), kind),
        count(pool.mean(lambda run: run.evictions), kind),
        number(pool.mean(lambda run: run.eviction_precision), kind, 2),
        count(pool.mean(lambda run: run.restamps), kind),
        number(pool.mean(lambda run: run.tokens.total), kind_of_tokens(pool.runs, kind), 0),
    )
    return Row(cells, kind, is_first)


def what_was_run(runs: Runs) -> Exhibit:
    """The runs that everything else is made from."""
    counted: dict[tuple[str, str, Kind], list[RunScore]] = {}
    for run in sorted(runs.all, key=lambda run: (run.spec.stream, kind_of(run).value)):
        counted.setdefault((run.spec.stream, run.title, kind_of(run)), []).append(run)
    rows = []
    last = None
    for (stream, title, kind), played in counted.items():
        cells = [
            label(stream, is_code=True),
            label(title),
            number(len(played), kind, 0),
            number(sum(run.episodes for run in played), kind, 0),
            number(sum(run.completed for run in played), kind, 0),
            number(len({run.spec.planner for run in played}), kind, 0),
            number(len({run.spec.arm for run in played}), kind, 0),
            number(len({run.spec.seed for run in played}), kind, 0),
            label(_served(played)),
        ]
        rows.append(Row(tuple(cells), kind, stream != last))
        last = stream
    extent = paper.EXTENT.facts
    theirs = (
        f"{extent.runs:,}",
        f"{extent.episodes:,}",
        f"{extent.episodes - extent.uncompleted:,}",
        str(extent.models),
    )
    numbers = [*(Cell(text, Kind.PAPER) for text in theirs), *[Cell(DASH, Kind.PAPER)] * 2]
    cells = [label("all"), label("the whole evaluation"), *numbers, label(DASH)]
    rows.append(Row(tuple(cells), Kind.PAPER, True))
    return Exhibit(
        "runs",
        "What was run",
        "Every number in this report comes from these runs: real server, real memory, real HTTP, and a planner of the kind that is named.",
        (
            Column("Stream", align="left"),
            Column("What it is", align="left"),
            Column("Runs"),
            Column("Episodes"),
            Column("Completed"),
            Column("Planners"),
            Column("Arms"),
            Column("Seeds"),
            Column("Models served", align="left"),
        ),
        tuple(rows),
        notes(paper.EXTENT.where, _probed(runs)),
    )


def _probed(runs: Runs) -> str | None:
    """Whether models were those that were asked for."""
    asked = [run.model for run in runs.all if run.model]
    if not asked:
        return None
    same_count = sum(
        (one.served or "").partition("@")[0] == one.requested.rpartition("/")[2] for one in asked
    )
    return (
        f"Of {len(asked):,} runs with a model {same_count:,} were served by the one that was asked for, by its own word;"
        f" in the paper all {paper.PROBES.facts} were ({paper.PROBES.where})."
    )


def _served(played: list[RunScore]) -> str:
    served = Counter((run.model.served or f"{run.model.requested} (not told)") for run in played if run.model)
    return ", ".join(sorted(served)) or DASH
