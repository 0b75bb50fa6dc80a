"""One level of the protocol at a time, with everything else as it was: how a fix is shown, and what a vector adds."""

from collections.abc import Iterator, Sequence

import msgspec

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
    signed,
)
from shelflife.lab.exhibits.comparison import PLANNER, notes
from shelflife.lab.exhibits.pools import ALL_ARMS, Pool, Runs, Subject
from shelflife.lab.scores import RunScore
from shelflife.lab.spec import PLAIN_CONSUME, PLAIN_LEVEL, Conduct, Consume, RunSpec

__all__ = ["consumption", "vectors"]

_PAYMENTS, _RECIPES = "drifted", "recipes"
_WAYS = {
    Consume.LEVEL_1: "1: listed",
    Consume.LEVEL_2: "2: listed, to be merged verbatim",
    Consume.LEVEL_3: "3: the input amended",
    Consume.APPLY: "applied by the client",
}
_WITHOUT, _WITH = 1, 4


def consumption(runs: Runs) -> Exhibit:
    """What each way of showing a fix is worth, in both domains."""
    rows: list[Row] = []
    for stream in (_PAYMENTS, _RECIPES):
        for who, shown in _by_planner(runs, stream).items():
            for arm in runs.arms(stream):
                pools = {way: runs.pool(one, stream, arm) for way, one in shown.items()}
                lines = list(_of_ways(pools, who.kind))
                names = (label(stream, is_code=True), label(who.name, is_code=True), label(arm, is_code=True))
                rows += (
                    Row((*names, *cells), who.kind, not index)
                    for index, cells in enumerate(lines if len(lines) > 1 else ())
                )
    if rows:
        rows.append(_published_lift())
    return Exhibit(
        "consumption",
        "How a fix is shown",
        "The same fixes, shown in one way and in another: where Level 2 is what makes a planner comply, the step from 1 to 2 should be as large in recipes as in payments.",
        (
            Column("Stream", align="left"),
            PLANNER,
            Column("Arm", align="left"),
            Column("Shown", align="left"),
            Column("(%)", "Compliance"),
            Column("step", "Compliance"),
            Column("First try (%)"),
            Column("Retries"),
            Column("Completed"),
            Column("Tokens", is_comparable=False),
        ),
        tuple(rows),
        notes(
            f"{paper.LEVEL_2_LIFT.where}; Level 2 in recipes: Future work, cross-domain compliance isolation",
            "1: the fixes are listed in the prompt, and no sentence says what to do with them. 2: the system prompt has the paper's sentence, to merge them verbatim. 3: the input is shown already amended,"
            " with the same sentence. A step is against the way above it, in points.",
            "A planner without chance in it does what it is shown in any way, and a seeded one has one rate for all: their rows say what each way costs in tokens, and nothing of what it is worth. Only rows that are measured do.",
            "The paper asks whether Level 2 is the lever whatever the domain, and has not played it in recipes.",
        ),
    )


def _by_planner(runs: Runs, stream: str) -> dict[Subject, dict[Consume, Subject]]:
    """Who played a stream, by the way in which fixes were shown, all else being the same."""
    found: dict[Subject, dict[Consume, Subject]] = {}
    for subject in runs.subjects(stream):
        if subject.level == PLAIN_LEVEL:
            who = subject._replace(consume=PLAIN_CONSUME, counterpart=None)
            found.setdefault(who, {})[subject.consume] = subject
    return found


def _of_ways(pools: dict[Consume, Pool], kind: Kind) -> Iterator[list[Cell]]:
    above: float | None = None
    for way in (one for one in Consume if one in pools):
        pool = pools[way]
        if pool.compliance is None:
            continue
        rate = pool.compliance.percent
        step = None if above is None or rate is None else rate - above
        first = 100 * sum(run.first_try for run in pool.runs) / sum(run.episodes for run in pool.runs)
        yield [
            label(_WAYS[way]),
            number(rate, kind),
            signed(step, kind),
            number(first, kind),
            count(pool.mean(lambda run: run.retries), kind),
            Cell(pool.completed or DASH, kind),
            number(pool.mean(lambda run: run.tokens.total), kind_of_tokens(pool.runs, kind), 0),
        ]
        above = rate


def _published_lift() -> Row:
    missing = Cell(DASH, Kind.PAPER)
    cells = [
        *(label(_PAYMENTS, is_code=True), label("2 Claude models"), label(DASH)),
        *(label(_WAYS[Consume.LEVEL_2]), missing, signed(paper.LEVEL_2_LIFT.facts, Kind.PAPER)),
        *[missing] * 4,
    ]
    return Row(tuple(cells), Kind.PAPER, True)


def vectors(runs: Runs) -> Exhibit:
    """What dependency vectors change by themselves: the paper's own members at Level 1 and at Level 4."""
    found: dict[tuple[RunSpec, Kind], dict[int, list[RunScore]]] = {}
    for run in runs.on_honest_servers:
        spec = run.spec
        if spec.conduct == Conduct(match="family") and spec.consume == PLAIN_CONSUME and spec.arm != "A0":
            all_else = msgspec.structs.replace(spec, seed=0, level=_WITHOUT)
            found.setdefault((all_else, kind_of(run)), {}).setdefault(spec.level, []).append(run)
    rows: list[Row] = []
    above: tuple[str, str] | None = None
    for (spec, kind), levels in sorted(found.items(), key=lambda one: _place(*one[0])):
        pools = [Pool(tuple(levels.get(level, ()))) for level in (_WITHOUT, _WITH)]
        if all(pool.runs for pool in pools):
            names = (label(text, is_code=True) for text in (spec.stream, spec.planner, spec.arm))
            is_first = (spec.stream, spec.planner) != above
            rows.append(Row((*names, *_of_levels(pools, kind)), kind, is_first))
            above = spec.stream, spec.planner
    heads = (
        *("Retries", "Compliance (%)", "Stale values sent", "Evictions", "Precision", "Restamps"),
        *("Alerts", "Contract (%)"),
    )
    return Exhibit(
        "vectors",
        "Level 4 by itself",
        "A fix that names one table (Level 1), and the same with all tables that it rests on (Level 4); arm, planner and all else are the same, and nothing is known but the paper's own members.",
        (
            Column("Stream", align="left"),
            PLANNER,
            Column("Arm", align="left"),
            *(Column(f"L{level}", head) for head in heads for level in (_WITHOUT, _WITH)),
        ),
        tuple(rows),
        notes(
            "Limitations, single-table dependencies: what vectors alone do for compliance has not been isolated",
            "On the paper's stream a vector changes nothing but bytes, for what drifts is the one table that the fix names. On second-table it is another one: then, with rows, the stale"
            " value is dropped before it is sent; at Level 1 it is sent, refused and learned anew, for the same number of retries. A compliance that is over the episodes after that does not change.",
            "With whole tables (A2) a vector costs: when a table is bumped with no row changed, every fix that rests on it goes, not only those that name it.",
            "Where rules drift, a vector is all that a lazy client (A2DC) can notice it by. At Level 1 it notices nothing, and on that stream needs fewer retries for it: no value had changed.",
        ),
    )


def _place(spec: RunSpec, kind: Kind) -> tuple[bool, str, bool, str, int]:
    """Payments first, and in a stream what was measured."""
    is_other = kind is not Kind.MEASURED
    return spec.stream != _PAYMENTS, spec.stream, is_other, spec.planner, ALL_ARMS.index(spec.arm)


def _of_levels(pools: Sequence[Pool], kind: Kind) -> list[Cell]:
    def rate(pool: Pool) -> float | None:
        return pool.compliance.percent if pool.compliance else None

    return [
        *(count(pool.mean(lambda run: run.retries), kind) for pool in pools),
        *(number(rate(pool), kind) for pool in pools),
        *(count(pool.mean(lambda run: run.stale_injections), kind) for pool in pools),
        *(count(pool.mean(lambda run: run.evictions), kind) for pool in pools),
        *(number(pool.mean(lambda run: run.eviction_precision), kind, 2) for pool in pools),
        *(count(pool.mean(lambda run: run.restamps), kind) for pool in pools),
        *(count(pool.mean(lambda run: len(run.alerts)), kind) for pool in pools),
        *(number(pool.mean(lambda run: run.wire.contract_percent), kind) for pool in pools),
    ]
