"""What memory saves and what the contract costs: tokens, retries, and bytes on the wire."""

from collections.abc import Callable

from shelflife.lab import paper
from shelflife.lab.exhibits.cells import (
    DASH,
    Cell,
    Column,
    Exhibit,
    Kind,
    Row,
    count,
    kind_of_tokens,
    label,
    number,
    signed,
    written,
)
from shelflife.lab.exhibits.comparison import (
    PLANNER,
    default_note,
    notes,
    rows_beside_the_paper,
    with_default,
)
from shelflife.lab.exhibits.pools import Pool, Runs, Subject, groups, saved_percent
from shelflife.lab.scores import RunScore, SavingFactors

__all__ = ["savings", "tokens", "wire"]

_STREAM = "drifted"


def tokens(runs: Runs) -> Exhibit:
    """What a stream costs in tokens and retries."""
    stream = "drifted"
    saving_arms = with_default(("A1", "A2", "A2D"), runs, stream)
    retry_arms = ["A0", *saving_arms]

    def here(subject: Subject) -> list[Cell]:
        pools = {arm: runs.pool(subject, stream, arm) for arm in retry_arms}
        saved = {arm: saved_percent(pools[arm], pools["A0"]) for arm in saving_arms}
        a1, a2d = saved["A1"], saved["A2D"]
        played = [run for pool in pools.values() for run in pool.runs]
        token_kind = kind_of_tokens(played, subject.kind)
        return [
            *(number(saved[arm], token_kind) for arm in saving_arms),
            signed(None if a1 is None or a2d is None else a2d - a1, token_kind),
            *(count(pools[arm].mean(lambda run: run.retries), subject.kind) for arm in retry_arms),
            Cell(" and ".join(sorted({run.tokens.source for run in played})) or DASH, token_kind),
        ]

    def published(model: str) -> list[Cell] | None:
        known = paper.TOKENS.facts.get(model)
        return known and [
            *(number(known.saving.get(arm), Kind.PAPER) for arm in saving_arms),
            signed(known.gain, Kind.PAPER),
            *(count(known.retries.get(arm), Kind.PAPER) for arm in retry_arms),
            Cell("vendor", Kind.PAPER),
        ]

    return Exhibit(
        "tokens-and-retries",
        "What it costs in tokens and retries",
        "How much of the tokens of its own run without a memory a planner saves, and how many attempts beyond the first it needs for 36 tasks.",
        (
            PLANNER,
            *(Column(arm, "Tokens saved (%)", is_comparable=False) for arm in saving_arms),
            Column("A2D\N{MINUS SIGN}A1", "Gain", is_comparable=False),
            *(Column(arm, "Retries per stream") for arm in retry_arms),
            Column("counted by", "Tokens", align="left", is_comparable=False),
        ),
        rows_beside_the_paper(runs.subjects(stream), here, published),
        notes(
            paper.TOKENS.where,
            "Compared only within a planner, over the seeds that both arms have; estimated counts are those of one public tokenizer over the same messages, not a bill.",
            default_note(saving_arms),
        ),
    )


def savings(runs: Runs) -> Exhibit:
    """The savings equation, by arm."""
    arms = with_default(("A1", "A2", "A2D"), runs, _STREAM)

    def here(subject: Subject) -> list[Cell]:
        pools = [runs.pool(subject, _STREAM, arm) for arm in arms]
        factors = (
            [_share(pool, lambda one: one.valid, lambda one: one.chances) for pool in pools],
            [_share(pool, lambda one: one.complied, lambda one: one.valid) for pool in pools],
            [_share(pool, lambda one: one.complied, lambda one: one.chances) for pool in pools],
        )
        return [number(share, subject.kind) for shares in factors for share in shares]

    return Exhibit(
        "savings",
        "Savings, taken apart",
        "What a memory saves is validity, which the contract controls, times compliance, which the planner controls: validity should hardly depend"
        " on the planner, and only the product is worth anything.",
        (
            PLANNER,
            *(Column(arm, "Validity (%)") for arm in arms),
            *(Column(arm, "\N{MULTIPLICATION SIGN} compliance (%)") for arm in arms),
            *(Column(arm, "= chances taken (%)") for arm in arms),
        ),
        rows_beside_the_paper(runs.subjects(_STREAM), here, lambda model: None),
        (
            "A chance is an episode that meets a constraint not for the first time, stale slots included; it is valid when something was shown and"
            " all of it was true, and taken when the first attempt then succeeded.",
            "This compliance is over the valid chances of all classes; the ladder's is over the governed class alone.",
            "The paper states the equation and gives no table of it.",
        ),
    )


def _share(
    pool: Pool, part: Callable[[SavingFactors], int], whole: Callable[[SavingFactors], int]
) -> float | None:
    of = sum(whole(run.saving) for run in pool.runs)
    return 100 * sum(part(run.saving) for run in pool.runs) / of if of else None


def wire(runs: Runs) -> Exhibit:
    """Bytes of responses, and what of them is there for the sake of invalidation."""
    arms = with_default(("A0", "A1", "A2", "A2D"), runs, _STREAM)
    rows: list[Row] = []
    for group in groups(runs.subjects()):
        kind = group[0].kind
        everything = [run for subject in group for run in runs.of(subject)]
        if not sum(run.wire.responses for run in everything):
            continue
        by_arm = [
            _contract_percent([run for subject in group for run in runs.pool(subject, _STREAM, arm).runs])
            for arm in arms
        ]
        cells = [
            label(group[0].name, is_code=True) if len(group) == 1 else label(f"{len(group)} planners"),
            label(str(group[0].level)),
            *(number(share, kind) for share in by_arm),
            *_in_all(everything, kind),
        ]
        rows.append(Row(tuple(cells), kind, True))
    if rows:
        cost = paper.WIRE.facts
        texts = (f"{cost.responses:,}", str(cost.mean_bytes), str(cost.mean_contract_bytes))
        shares = (*[DASH] * len(arms), *texts, written(cost.contract_percent, 1), DASH)
        cells = [label("7 models"), label("1"), *(Cell(text, Kind.PAPER) for text in shares)]
        rows.append(Row(tuple(cells), Kind.PAPER, True))
    return Exhibit(
        "wire",
        "What the contract costs on the wire",
        "Of the bytes of a response, those that are there only so that a memory can tell what is still true: a failure carries more of them than a"
        " success, so an arm that fails less pays less.",
        (
            PLANNER,
            Column("Level", align="left"),
            *(Column(arm, "Contract, drifted stream (%)") for arm in arms),
            Column("responses", "All runs"),
            Column("bytes", "Mean response"),
            Column("of them contract", "Mean response"),
            Column("contract (%)", "Mean response"),
            Column("bytes", "Mean request"),
        ),
        tuple(rows),
        notes(
            paper.WIRE.where,
            "The fix itself, its type and its parameters, is not counted. The paper counts the fields of Level 1 only, over responses of which three in ten carry none;"
            " here every response carries those of the level that is named, so the shares stand beside each other for scale.",
        ),
    )


def _contract_percent(played: list[RunScore]) -> float | None:
    total = sum(run.wire.bytes for run in played)
    return 100 * sum(run.wire.contract_bytes for run in played) / total if total else None


def _in_all(played: list[RunScore], kind: Kind) -> list[Cell]:
    responses = sum(run.wire.responses for run in played)
    return [
        number(responses, kind, 0),
        number(sum(run.wire.bytes for run in played) / responses, kind, 0),
        number(sum(run.wire.contract_bytes for run in played) / responses, kind, 0),
        number(_contract_percent(played), kind),
        number(sum(run.wire.request_bytes for run in played) / responses, kind, 0),
    ]
