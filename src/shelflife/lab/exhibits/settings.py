"""Runs beside one another that differ in how they were played: all that real models played, and one base prompt in several wordings."""

from collections.abc import Iterable, Sequence

import msgspec

from shelflife.lab.exhibits.cells import (
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
from shelflife.lab.exhibits.comparison import PLANNER, default_note, notes
from shelflife.lab.exhibits.pools import ALL_ARMS, Pool, Runs, saved_percent
from shelflife.lab.scores import RunScore
from shelflife.lab.spec import PLAIN_CONSUME, PLAIN_LEVEL, PLAIN_WORDING, Consume, RunSpec
from shelflife.lab.wordings import wordings

__all__ = ["measured", "prompt_sensitivity"]

_WITHOUT_MEMORY = "A0"
_ARM = Column("Arm", align="left")


def measured(runs: Runs) -> Exhibit:
    """What every run of a real model came to, however it was played."""
    pools = _pools(run for run in runs.all if kind_of(run) is Kind.MEASURED)
    rows = []
    last: RunSpec | None = None
    for spec, pool in sorted(pools.items(), key=lambda one: _place(one[0])):
        names = (
            label(spec.stream, is_code=True),
            label(spec.planner, is_code=True),
            label(_how(spec)),
            label(spec.arm, is_code=True),
        )
        against = pools.get(_without_memory(spec), Pool(()))
        block = msgspec.structs.replace(spec, arm="")
        rows.append(Row((*names, *_numbers(pool, against)), Kind.MEASURED, block != last))
        last = block
    return Exhibit(
        "measured",
        "A real model, measured",
        "Every run of a real model, however it was played: along the ladder retries and tokens should fall, and where the client writes fixes in, the model need not comply.",
        (
            Column("Stream", align="left"),
            PLANNER,
            Column("Fixes are", align="left"),
            _ARM,
            Column("Done"),
            Column("First try"),
            Column("Retries"),
            Column("all", "Evictions"),
            Column("right", "Evictions"),
            Column("Restamps"),
            Column("Compliance (%)"),
            Column("Stale done"),
            Column("spent", "Tokens", is_comparable=False),
            Column("saved (%)", "Tokens", is_comparable=False),
        ),
        tuple(rows),
        notes(
            None,
            "The planner is the model as its server names it, with the digest of its file where the server tells one. It is asked at temperature 0 where it takes one.",
            "Tokens are those that the server counts. What is saved is against the same model without memory, where that was run.",
            "Done: episodes that were completed. Right: the share of evictions that were right, which is their precision. Stale done: requests that were carried out with a remembered value that the server would not give any more.",
            default_note([spec.arm for spec in pools]),
        ),
    )


def prompt_sensitivity(runs: Runs) -> Exhibit:
    """What the words of the base prompt make of the same runs."""
    by_rest: dict[RunSpec, dict[str, Pool]] = {}
    for spec, pool in _pools(runs.on_honest_servers).items():
        rest = msgspec.structs.replace(spec, wording=PLAIN_WORDING)
        by_rest.setdefault(rest, {})[spec.wording] = pool
    rows = []
    for rest in sorted((one for one in by_rest if len(by_rest[one]) > 1), key=_place):
        for index, wording in enumerate(sorted(by_rest[rest], key=_place_of_wording)):
            pool = by_rest[rest][wording]
            kind = kind_of(pool.runs[0])
            names = (
                label(rest.stream, is_code=True),
                label(rest.planner, is_code=True),
                label(_how(rest)),
                label(rest.arm, is_code=True),
                label(wording, is_code=True),
            )
            rows.append(Row((*names, *_of_wording(pool, kind)), kind, not index))
    return Exhibit(
        "prompt-sensitivity",
        "Prompt sensitivity",
        "The same runs with the base prompt in other words: a planner that reads for sense should come to the same in each, but for tokens.",
        (
            Column("Stream", align="left"),
            PLANNER,
            Column("Fixes are", align="left"),
            _ARM,
            Column("Wording", align="left"),
            Column("Done"),
            Column("First try"),
            Column("Retries"),
            Column("Compliance (%)"),
            Column("Tokens", is_comparable=False),
        ),
        tuple(rows),
        notes(
            None,
            "The paper has one base prompt for each domain, and names what other words would do as untested (its limitations, Prompt and task coverage).",
            f"Each wording ({', '.join(wordings())}) says the same; every record keeps its words. Simulated planners find their places in all of them, so nothing but their tokens can differ.",
        ),
    )


def _pools(runs: Iterable[RunScore]) -> dict[RunSpec, Pool]:
    """Runs that differ in their seed alone. Of a model, the one that was served."""
    found: dict[RunSpec, list[RunScore]] = {}
    for run in runs:
        served = run.model.served if run.model else None
        spec = msgspec.structs.replace(run.spec, seed=0, planner=served or run.spec.planner)
        found.setdefault(spec, []).append(run)
    return {spec: Pool(tuple(played)) for spec, played in found.items()}


def _place(spec: RunSpec) -> tuple[str, str, bool, tuple[str, ...], int, str, int]:
    """As in the paper first, then the more the less it is."""
    is_other = spec.consume != PLAIN_CONSUME or spec.wording != PLAIN_WORDING
    further = (*spec.conduct.words, spec.consume.value, spec.wording)
    return (
        *(spec.stream, spec.planner, is_other or bool(spec.conduct.words)),
        *(further, -spec.level, spec.wording, ALL_ARMS.index(spec.arm)),
    )


def _place_of_wording(wording: str) -> tuple[int, str]:
    known = list(wordings())
    return (known.index(wording) if wording in known else len(known)), wording


def _without_memory(spec: RunSpec) -> RunSpec:
    """What a run's tokens are held against. Without a memory there is nothing to consume."""
    return RunSpec(spec.stream, _WITHOUT_MEMORY, spec.planner, level=spec.level, wording=spec.wording)


def _how(spec: RunSpec) -> str:
    """How fixes reach the request, and what is not as in the paper."""
    shown = {
        Consume.LEVEL_1: "listed, with no word on merging",
        Consume.LEVEL_2: "listed",
        Consume.LEVEL_3: "amendments",
        Consume.APPLY: "applied",
    }
    parts = ["not there" if spec.arm == _WITHOUT_MEMORY else shown[spec.consume], *spec.conduct.words]
    if spec.level != PLAIN_LEVEL:
        parts.append(f"level {spec.level}")
    if spec.wording != PLAIN_WORDING:
        parts.append(f"{spec.wording} wording")
    return ", ".join(parts)


def _numbers(pool: Pool, against: Pool) -> Sequence[Cell]:
    kind = Kind.MEASURED
    compliance = pool.compliance
    is_itself = pool.runs[0].spec.arm == _WITHOUT_MEMORY
    of_tokens = kind_of_tokens(pool.runs, kind)
    return (
        label(pool.completed or "")._replace(kind=kind),
        count(pool.mean(lambda run: run.first_try), kind),
        count(pool.mean(lambda run: run.retries), kind),
        count(pool.mean(lambda run: run.evictions), kind),
        number(pool.mean(lambda run: run.eviction_precision), kind, 2),
        count(pool.mean(lambda run: run.restamps), kind),
        number(None if compliance is None else compliance.percent, kind),
        count(pool.mean(lambda run: run.stale_executions), kind),
        number(pool.mean(lambda run: run.tokens.total), of_tokens, 0),
        signed(None if is_itself else saved_percent(pool, against), of_tokens),
    )


def _of_wording(pool: Pool, kind: Kind) -> Sequence[Cell]:
    compliance = pool.compliance
    return (
        label(pool.completed or "")._replace(kind=kind),
        count(pool.mean(lambda run: run.first_try), kind),
        count(pool.mean(lambda run: run.retries), kind),
        number(None if compliance is None else compliance.percent, kind),
        number(pool.mean(lambda run: run.tokens.total), kind_of_tokens(pool.runs, kind), 0),
    )
