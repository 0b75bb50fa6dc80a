"""What each way of noticing that rules changed costs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from shelflife.client import EXACT
from shelflife.lab import paper
from shelflife.lab.exhibits.cells import (
    DASH,
    Cell,
    Column,
    Exhibit,
    Kind,
    Row,
    kind_of_tokens,
    label,
    signed,
)
from shelflife.lab.exhibits.comparison import PLANNER, default_note, notes
from shelflife.lab.exhibits.pools import Runs, groups, saved_percent

__all__ = ["price_sheet"]

_STREAM = "rules"
_LAZY = "A2DC"
_POLICIES = {
    "A2D": "row diffs only",
    **{arm: policy.name for arm, policy in paper.PRICE_SHEET.facts.items()},
    EXACT.name: "rule by rule, ours",
}


def price_sheet(runs: Runs) -> Exhibit:
    """One block a policy: who played it here, and the paper."""
    rows: list[Row] = []
    for arm, policy in _POLICIES.items():
        if arm not in runs.arms(_STREAM):
            continue
        names = (label(policy), label(arm, is_code=True))
        lines = list(_merged(_played(runs, arm)))
        block = [
            Row(
                (*names, label(line.who, is_code=line.is_code), *line.cells),
                line.kind,
                not index,
                line.is_compared,
            )
            for index, line in enumerate(lines)
        ]
        if theirs := _published(arm):
            block.append(Row((*names, label("3 models"), *theirs), Kind.PAPER))
        rows += block
    return Exhibit(
        "price-sheet",
        "The price of noticing that rules changed",
        "The same 36 episodes with one rule removed after episode 11 and one added after episode 23: fewer evictions at an alert as early as"
        " the drift is better.",
        (
            Column("Policy", align="left"),
            Column("Arm", align="left"),
            PLANNER,
            Column("First try"),
            Column("Retries"),
            Column("Evictions"),
            Column("Restamps"),
            Column("Alerts at"),
            Column("Tokens against lazy (%)", is_comparable=False),
        ),
        tuple(rows),
        notes(
            f"{paper.PRICE_SHEET.where}; A2D: {paper.PRICE_SHEET_ATTEMPTS.where}",
            "Evictions are split by event where there are any at both; alerts are the episodes that noticed.",
            default_note(runs.arms(_STREAM)),
        ),
    )


class _Line(NamedTuple):
    who: str
    is_code: bool
    kind: Kind
    is_compared: bool
    cells: tuple[Cell, ...]


def _played(runs: Runs, arm: str) -> Iterator[_Line]:
    for group in groups(runs.subjects(_STREAM)):
        pools = {subject: pool for subject in group if (pool := runs.pool(subject, _STREAM, arm)).runs}
        if not pools:
            continue
        subject, kind = group[0], group[0].kind
        played = [run for pool in pools.values() for run in pool.runs]
        deltas = [
            -saved
            for subject, pool in pools.items()
            if (saved := saved_percent(pool, runs.pool(subject, _STREAM, _LAZY))) is not None
        ]
        texts = (
            _common([run.first_try for run in played]),
            _common([run.retries for run in played]),
            _either([_events(run.evictions_by_event) for run in played]),
            _common([run.restamps for run in played]),
            _either([_alerts(run.alerts) for run in played]),
        )
        is_alone = len(pools) == 1
        yield _Line(
            next(iter(pools)).name if is_alone else f"{len(pools)} planners",
            is_alone,
            kind,
            kind is Kind.EXACT and subject.counterpart is not None,
            (
                *(Cell(text, kind) for text in texts),
                Cell(DASH if arm == _LAZY else _range(deltas), kind_of_tokens(played, kind)),
            ),
        )


def _merged(lines: Iterable[_Line]) -> Iterator[_Line]:
    """Deterministic planners that come to the same on one line."""
    by_content: dict[object, list[_Line]] = {}
    for line in lines:
        by_content.setdefault((line.kind, line.is_compared, line.cells), []).append(line)
    for alike in by_content.values():
        yield alike[0]._replace(who=", ".join(line.who for line in alike))


def _published(arm: str) -> list[Cell] | None:
    missing = Cell(DASH, Kind.PAPER)
    if attempts := paper.PRICE_SHEET_ATTEMPTS.facts.get(arm):
        return [missing, Cell(str(attempts - paper.PRICE_SHEET_EPISODES), Kind.PAPER), *[missing] * 4]
    policy = paper.PRICE_SHEET.facts.get(arm)
    if policy is None:
        return None
    texts = (
        str(policy.first_try),
        str(policy.retries),
        _events(policy.evictions),
        str(policy.restamps),
        _alerts(policy.alerts),
        DASH if policy.token_percent is None else _range(policy.token_percent),
    )
    return [Cell(text, Kind.PAPER) for text in texts]


def _events(evictions: Sequence[int]) -> str:
    return " + ".join(str(count) for count in evictions if count) or "0"


def _alerts(episodes: Sequence[int]) -> str:
    return "/".join(map(str, episodes)) or "none"


def _common(values: Sequence[int]) -> str:
    """What all have in common, or between what and what they lie."""
    return " to ".join(dict.fromkeys(map(str, (min(values), max(values)))))


def _either(texts: Sequence[str]) -> str:
    return " or ".join(sorted(set(texts)))


def _range(values: Sequence[float]) -> str:
    ends = [signed(value, Kind.PAPER, 2).text for value in (min(values), max(values))] if values else [DASH]
    return " to ".join(dict.fromkeys(ends))
