"""Under attack: what a hostile server does to a memory, and what each defence leaves of that."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from shelflife.lab.exhibits.cells import (
    Cell,
    Column,
    Exhibit,
    Kind,
    Row,
    kind_of,
    kind_of_tokens,
    label,
    number,
    signed,
)
from shelflife.lab.exhibits.comparison import PLANNER, default_note
from shelflife.lab.exhibits.conducts import Way
from shelflife.lab.exhibits.pools import ALL_ARMS, Pool, Runs, saved_percent
from shelflife.lab.scores import RunScore
from shelflife.lab.spec import PLAIN, PLAIN_CONSUME, PLAIN_LEVEL

__all__ = ["under_attack"]

_HONEST = {
    "injection": "undrifted",
    "bumping": "drifted",
    "pinned": "silent",
    "lying": "silent",
    "disclosure": "recipes",
}
"""The same streams with nothing done to the agents."""

_WITHOUT_MEMORY = "A0"
_NOTES = (
    "The attacks. Injection: the server adds an amount of its own to every fix. Bumping: it says with every response that all has changed. Pinned: a proxy answers for ever with an old state. Lying: the server"
    " itself does, and signs it, which no defence stops. Disclosure: somebody collects the names of tables and rows.",
    "The defences: a guard lets remembered fixes set nothing about money (default), or the fields of the stream alone (fields). A bound keeps what would go beyond so many evictions an hour, and"
    " has the server asked before it is used. Trust: states are signed for ten episodes, and nothing else is believed. Aliases: names and keys have others in their place; counts: diffs also tell only how many.",
    "Injected: requests that were carried out with a value that the server had slipped into a fix, by the memory at a first attempt, or by a planner that follows the server's answer in the same"
    " episode. No memory has a part in the latter.",
    "Names: tables, row keys and relations of the server that agents were told, but for those in requests and fixes. Questions are those of the memory's own accord. Tokens are compared with those of A0 under the same attack.",
)


class _Block(NamedTuple):
    """Runs that differ in their arm, their conduct, their way of consuming and their seed alone."""

    stream: str
    hostile: str | None
    planner: str
    served: str | None
    kind: Kind
    level: int


class _Played(NamedTuple):
    """How a run of a block was played."""

    arm: str
    way: Way


_PLAINLY = Way(PLAIN_CONSUME, PLAIN)
_BASELINE = _Played(_WITHOUT_MEMORY, _PLAINLY)


def under_attack(runs: Runs) -> Exhibit:
    """One row for each attack and defence; before them no memory at all, and the same on an honest server."""
    return Exhibit(
        "under-attack",
        "Under attack",
        "What a hostile server makes of a memory: what each defence saves, what it costs, and what it cannot stop.",
        (
            Column("Attack", align="left"),
            PLANNER,
            Column("Arm", align="left"),
            Column("Defence", align="left"),
            Column("Completed"),
            Column("Retries"),
            Column("spent", "Tokens", is_comparable=False),
            Column("vs A0 (%)", "Tokens", is_comparable=False),
            Column("asked", "Questions"),
            Column("bytes", "Questions"),
            Column("sent", "Stale values"),
            Column("done", "Stale values"),
            Column("memory", "Injected"),
            Column("answers", "Injected"),
            Column("Names"),
        ),
        tuple(_rows(runs)),
        tuple(note for note in (*_NOTES, default_note(_arms(runs))) if note),
    )


def _arms(runs: Runs) -> list[str]:
    return [run.spec.arm for run in runs.all if run.hostile]


def _rows(runs: Runs) -> Iterator[Row]:
    by_block = _blocks(runs)
    for block in sorted((block for block in by_block if block.hostile), key=_place):
        here = by_block[block]
        there = by_block.get(block._replace(stream=_HONEST.get(block.stream, ""), hostile=None), {})
        arms = [arm for arm in ALL_ARMS if any(played.arm == arm for played in here)]
        baseline = here.get(_BASELINE, Pool(()))
        is_first = True
        for arm in arms:
            honest = there.get(_Played(arm, _PLAINLY))
            if honest and arm != _WITHOUT_MEMORY:
                yield _row(block, arm, "(no attack)", honest, baseline, is_first=is_first)
                is_first = False
            for played in sorted((one for one in here if one.arm == arm), key=lambda one: one.way.rank):
                defence = "no memory" if arm == _WITHOUT_MEMORY else played.way.said or "none"
                yield _row(block, arm, defence, here[played], baseline, is_first=is_first)
                is_first = False


def _blocks(runs: Runs) -> dict[_Block, dict[_Played, Pool]]:
    found: dict[_Block, dict[_Played, list[RunScore]]] = {}
    for run in runs.all:
        served = run.model.served if run.model else None
        block = _Block(run.spec.stream, run.hostile, run.spec.planner, served, kind_of(run), run.spec.level)
        played = _Played(run.spec.arm, Way(run.spec.consume, run.spec.conduct))
        found.setdefault(block, {}).setdefault(played, []).append(run)
    return {
        block: {played: Pool(tuple(pooled)) for played, pooled in ways.items()}
        for block, ways in found.items()
    }


def _place(block: _Block) -> tuple[int, str, str, str, int]:
    known = [*_HONEST]
    place = known.index(block.stream) if block.stream in known else len(known)
    return place, block.stream, block.kind.value, block.planner, -block.level


def _row(block: _Block, arm: str, defence: str, pool: Pool, baseline: Pool, *, is_first: bool) -> Row:
    kind = block.kind
    level = "" if block.level == PLAIN_LEVEL else f", level {block.level}"
    saved = None if pool is baseline else saved_percent(pool, baseline)

    def mean(of: Callable[[RunScore], float | None], digits: int = 1) -> Cell:
        return number(pool.mean(of), kind, digits)

    cells = (
        label(block.stream, is_code=True),
        label(f"{block.planner}{level}", is_code=True),
        label(arm, is_code=True),
        label(defence),
        label(pool.completed or "")._replace(kind=kind),
        mean(lambda run: run.retries),
        number(pool.mean(lambda run: run.tokens.total), kind_of_tokens(pool.runs, kind), 0),
        signed(None if saved is None else -saved, kind_of_tokens(pool.runs, kind)),
        mean(lambda run: run.wire.questions),
        mean(lambda run: run.wire.question_bytes, 0),
        mean(lambda run: run.stale_injections),
        mean(lambda run: run.stale_executions),
        mean(lambda run: run.injected),
        mean(lambda run: run.injected_by_answers),
        mean(lambda run: run.disclosed, 0),
    )
    return Row(cells, kind, is_first)
