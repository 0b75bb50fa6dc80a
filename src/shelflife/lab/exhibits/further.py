"""What the paper has no table for: the savings equation taken apart, how sure the rates are, bytes on the wire, what was run."""

from collections import Counter
from collections.abc import Callable
from statistics import stdev

from shelflife.lab import paper
from shelflife.lab.exhibits.beside import PLANNER, notes, rows_beside_the_paper, with_default
from shelflife.lab.exhibits.cells import (
    DASH,
    Cell,
    Column,
    Exhibit,
    Kind,
    Row,
    kind_of,
    label,
    number,
    row,
    signed,
    written,
)
from shelflife.lab.exhibits.pools import Pool, Runs, Subject, groups
from shelflife.lab.intervals import Interval, difference_interval, mean_interval, rate_interval
from shelflife.lab.scores import RunScore, SavingFactors

__all__ = ["intervals", "savings", "what_was_run", "wire"]

_STREAM = "drifted"


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


def intervals(runs: Runs) -> Exhibit:
    """How far compliance, its gain and the retries may be off."""
    arms = ("A1", "A2D")

    def here(subject: Subject) -> list[Cell]:
        kind = subject.kind
        pools = [runs.pool(subject, _STREAM, arm) for arm in arms]
        a1, a2d = (pool.compliance for pool in pools)
        by_seed = [run.compliance for run in pools[1].runs if run.compliance is not None]
        retries = [run.retries for run in pools[1].runs]
        cells: list[Cell] = []
        for rate in (a1, a2d):
            cells.append(number(None if rate is None else rate.percent, kind))
            cells.append(_between(None if rate is None else rate_interval(rate), kind))
        gain, gain_interval = None, None
        if a1 is not None and a2d is not None:
            gain = (a2d.percent or 0.0) - (a1.percent or 0.0)
            gain_interval = difference_interval(a2d, a1)
        return [
            *cells,
            signed(gain, kind),
            _between(gain_interval, kind),
            number(stdev(by_seed) if len(by_seed) > 1 else None, kind),
            number(pools[1].mean(lambda run: run.retries), kind),
            _between(mean_interval(retries), kind),
            Cell(str(len(retries)) if retries else DASH, kind),
        ]

    by_chance = [subject for subject in runs.subjects(_STREAM) if subject.kind is not Kind.EXACT]
    return Exhibit(
        "intervals",
        "How sure the rates are",
        "With a confidence of 95 % the value lies between the two ends: where two intervals lie apart, the arms differ by more than chance.",
        (
            PLANNER,
            Column("rate", "Compliance at A1 (%)"),
            Column("interval", "Compliance at A1 (%)"),
            Column("rate", "Compliance at A2D (%)"),
            Column("interval", "Compliance at A2D (%)"),
            Column("points", "Gain, A2D\N{MINUS SIGN}A1"),
            Column("interval", "Gain, A2D\N{MINUS SIGN}A1"),
            Column("at A2D", "SD over seeds"),
            Column("mean", "Retries at A2D"),
            Column("interval", "Retries at A2D"),
            Column("n", "Seeds"),
        ),
        rows_beside_the_paper(by_chance, here, lambda model: None),
        (
            "Rates: Wilson's interval over the pooled episodes, which stays honest at 0 and 100 %, where an interval over three equal seeds would have no width;"
            " it takes episodes for independent, so the spread over seeds stands beside it.",
            "Gain: Newcombe's interval from the two. Retries: Student's t over seeds, and a dash where all seeds came to the same, for it would have no width.",
            "Exact planners are not here, for there is no chance in them. The paper gives one bound: no standard deviation over seeds above 18.1 points.",
        ),
    )


def _between(interval: Interval | None, kind: Kind) -> Cell:
    text = DASH if interval is None else " to ".join(written(end, 1) for end in interval)
    return Cell(text, kind)


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
        rows.append(row(kind, cells, is_first_of_block=True))
    if rows:
        cost = paper.WIRE.facts
        texts = (f"{cost.responses:,}", str(cost.mean_bytes), str(cost.mean_contract_bytes))
        shares = (*[DASH] * len(arms), *texts, written(cost.contract_percent, 1), DASH)
        cells = [label("7 models"), label("1"), *(Cell(text, Kind.PAPER) for text in shares)]
        rows.append(row(Kind.PAPER, cells, is_first_of_block=True))
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


def what_was_run(runs: Runs) -> Exhibit:
    """The runs that everything else is made from."""
    counted: dict[tuple[str, str, Kind], list[RunScore]] = {}
    for run in sorted(runs.all, key=lambda run: (run.stream, kind_of(run).value)):
        counted.setdefault((run.stream, run.title, kind_of(run)), []).append(run)
    rows = []
    last = None
    for (stream, title, kind), played in counted.items():
        cells = [
            label(stream, is_code=True),
            label(title),
            number(len(played), kind, 0),
            number(sum(run.episodes for run in played), kind, 0),
            number(sum(run.completed for run in played), kind, 0),
            number(len({run.planner for run in played}), kind, 0),
            number(len({run.arm for run in played}), kind, 0),
            number(len({run.seed for run in played}), kind, 0),
            label(_served(played)),
        ]
        rows.append(row(kind, cells, is_first_of_block=stream != last))
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
    rows.append(row(Kind.PAPER, cells, is_first_of_block=True))
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
        notes(paper.EXTENT.where),
    )


def _served(played: list[RunScore]) -> str:
    served = Counter((run.model.served or f"{run.model.requested} (not told)") for run in played if run.model)
    return ", ".join(sorted(served)) or DASH
