"""What each way of noticing that rules changed costs."""

from collections.abc import Sequence

from shelflife.lab import paper
from shelflife.lab.exhibits.beside import PLANNER, default_note, notes
from shelflife.lab.exhibits.cells import DASH, Cell, Column, Exhibit, Kind, Row, label, row, signed
from shelflife.lab.exhibits.pools import ALL_ARMS, Runs, groups, saved_percent

__all__ = ["price_sheet"]

_POLICIES = {"A2D": "row diffs only", **{arm: one.name for arm, one in paper.PRICE_SHEET.facts.items()}}
_LAZY = "A2DC"


def price_sheet(runs: Runs) -> Exhibit:
    """What each way of noticing that rules changed costs."""
    stream = "rules"
    subjects = runs.subjects(stream)
    rows: list[Row] = []
    for arm in ALL_ARMS:
        if arm not in runs.arms(stream):
            continue
        names = [label(_POLICIES.get(arm, DASH)), label(arm, is_code=True)]
        block: list[Row] = []
        for group in groups(subjects):
            pools = {subject: runs.pool(subject, stream, arm) for subject in group}
            played = [run for pool in pools.values() for run in pool.runs]
            if not played:
                continue
            kind = group[0].kind
            who = [subject for subject, pool in pools.items() if pool.runs]
            deltas = [
                -saved
                for subject, pool in pools.items()
                if (saved := saved_percent(pool, runs.pool(subject, stream, _LAZY))) is not None
            ]
            cells = [
                *names,
                label(who[0].name, is_code=True) if len(who) == 1 else label(f"{len(who)} planners"),
                Cell(_common([run.first_try for run in played]), kind),
                Cell(_common([run.retries for run in played]), kind),
                Cell(_either([_events(run.evictions_by_event) for run in played]), kind),
                Cell(_common([run.restamps for run in played]), kind),
                Cell(_either([_alerts(run.alerts) for run in played]), kind),
                Cell(DASH if arm == _LAZY else _range(deltas), kind),
            ]
            is_compared = kind is Kind.EXACT and group[0].counterpart is not None
            block.append(Row(tuple(cells), kind, not block, is_compared))
        if published := paper.PRICE_SHEET.facts.get(arm):
            block.append(row(Kind.PAPER, [*names, label("3 models"), *_published_policy(published)]))
        elif attempts := paper.PRICE_SHEET_ATTEMPTS.facts.get(arm):
            retries = Cell(str(attempts - 36), Kind.PAPER)
            missing = Cell(DASH, Kind.PAPER)
            block.append(row(Kind.PAPER, [*names, label("3 models"), missing, retries, *[missing] * 4]))
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
            Column("Tokens against lazy (%)"),
        ),
        tuple(rows),
        notes(
            f"{paper.PRICE_SHEET.where}; A2D: {paper.PRICE_SHEET_ATTEMPTS.where}",
            "Evictions are split by event where there are any at both; alerts are the episodes that noticed.",
            default_note(runs.arms(stream)),
        ),
    )


def _published_policy(policy: paper.Policy) -> list[Cell]:
    token_range = policy.token_percent
    return [
        Cell(text, Kind.PAPER)
        for text in (
            str(policy.first_try),
            str(policy.retries),
            _events(policy.evictions),
            str(policy.restamps),
            _alerts(policy.alerts),
            DASH if token_range is None else _range(token_range),
        )
    ]


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
