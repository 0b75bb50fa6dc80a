"""What goes beyond the paper: what each further part of the contract brings, and what it costs."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, get_args

from shelflife.lab import paper
from shelflife.lab.exhibits.cells import (
    DASH,
    Cell,
    Column,
    Exhibit,
    Kind,
    Row,
    kind_of,
    kind_of_tokens,
    label,
    number,
    row,
)
from shelflife.lab.exhibits.comparison import PLANNER, default_note, notes
from shelflife.lab.exhibits.pools import ALL_ARMS, Pool, Runs, counterpart
from shelflife.lab.scores import RunScore
from shelflife.lab.spec import PLAIN, PLAIN_CONSUME, PLAIN_LEVEL, Conduct, Consume, Fresh

__all__ = ["MADE_FOR_IT", "Way", "beyond_the_paper"]

MADE_FOR_IT = "silent"
"""The stream that is shown here whatever it was played with."""

_OF_THE_PAPER = "drifted"
_AS_IN_THE_PAPER = "as in the paper"
_CONSUMED = {Consume.APPLY: "applied"}


class _Block(NamedTuple):
    """Runs that differ in their conduct, their way of consuming and their seed alone."""

    stream: str
    planner: str
    served: str | None
    kind: Kind
    level: int
    arm: str
    counterpart: str | None
    """The paper's model whose numbers belong beside."""


class Way(NamedTuple):
    """How a run was played, beside its arm."""

    consume: Consume
    conduct: Conduct

    @property
    def name(self) -> str:
        """What is not as in the paper."""
        return self.said or _AS_IN_THE_PAPER

    @property
    def said(self) -> str:
        """The same, and nothing where there is none."""
        consumed = (
            [] if self.consume == PLAIN_CONSUME else [_CONSUMED.get(self.consume, f"consume {self.consume}")]
        )
        return ", ".join([*consumed, *self.conduct.words])

    @property
    def rank(self) -> tuple[int, int, bool, bool, int, bool, int, tuple[str, ...]]:
        """The fewer changes the earlier."""
        is_other, conduct = self.consume != PLAIN_CONSUME, self.conduct
        change_count = len(conduct.words) + is_other
        fresh_at = get_args(Fresh).index(conduct.fresh)
        return (
            *(conduct.agents, change_count, is_other),
            *(conduct.precondition, fresh_at, conduct.form == "full"),
            *(conduct.bound or 0, conduct.words),
        )


def beyond_the_paper(runs: Runs) -> Exhibit:
    """One row for each conduct, and the paper's best arm beside."""
    return Exhibit(
        "beyond",
        "Beyond the paper",
        "What each part of the contract brings that the paper does not have: a memory that hears of drift in time should need no retry for it, nothing stale"
        " should be done, and the compact form should take less of the wire.",
        (
            Column("Stream", align="left"),
            PLANNER,
            Column("Arm", align="left"),
            Column("Conduct", align="left"),
            Column("first", "Retries"),
            Column("others", "Retries"),
            Column("sent", "Stale values"),
            Column("mended", "Stale values"),
            Column("done", "Stale values"),
            Column("responses", "Contract (%)"),
            Column("both ways", "Contract (%)"),
            Column("in all", "Contract (%)"),
            Column("asked", "Bytes"),
            Column("spent", "Tokens", is_comparable=False),
        ),
        tuple(_rows(runs)),
        notes(
            f"{paper.TOKENS.where}; its share of the contract: {paper.WIRE.where}, over all its runs and Level 1 alone",
            "Compact: responses tell only what the client does not know. Check: the memory asks before each episode whether its state still holds. Feed: it follows the server's change feed."
            " Precondition: a request with remembered values is refused when what they rest on has moved, and mended without the planner. Applied: the client writes fixes in. Agents share one memory."
            " Guard, bound, trust, aliases and counts are defences: see Under attack.",
            "Stale values are of a remembered fix of which a row or rule had changed since it was learned, by the server's own report: first attempts that were sent with one, requests that were"
            " refused for it and mended, and requests that were done with it.",
            "The contract's part is that in the bodies of responses, and in whole requests and responses as HTTP/1.1 has them. Bytes asked are those of questions of the memory's own accord, and what the"
            " feed tells: URLs and bodies. In all: also with these, as whole messages. With several agents these numbers are the first one's, stale values are those of all, and the retries of all others stand beside.",
            default_note([block.arm for block in _blocks(runs)]),
        ),
    )


def _rows(runs: Runs) -> Iterator[Row]:
    for block, ways in _blocks(runs).items():
        theirs = _published(block)
        for index, way in enumerate(sorted(ways, key=lambda way: way.rank)):
            yield Row((*_names(block, way.name), *_cells(ways[way], block.kind)), block.kind, not index)
            if theirs and index == 0:
                yield theirs


def _blocks(runs: Runs) -> dict[_Block, dict[Way, Pool]]:
    """The blocks in which something was played that the paper does not have."""
    found: dict[_Block, dict[Way, list[RunScore]]] = {}
    for run in runs.on_honest_servers:
        served = run.model.served if run.model else None
        block = _Block(
            run.spec.stream,
            run.spec.planner,
            served,
            kind_of(run),
            run.spec.level,
            run.spec.arm,
            counterpart(run),
        )
        found.setdefault(block, {}).setdefault(Way(run.spec.consume, run.spec.conduct), []).append(run)
    shown = {
        block: {way: Pool(tuple(played)) for way, played in ways.items()}
        for block, ways in found.items()
        if block.stream == MADE_FOR_IT or any(way.conduct != PLAIN for way in ways)
    }
    return dict(sorted(shown.items(), key=lambda item: _place(item[0])))


def _place(block: _Block) -> tuple[str, str, str, int, int]:
    return block.stream, block.kind.value, block.planner, -block.level, ALL_ARMS.index(block.arm)


def _names(block: _Block, way: str) -> list[Cell]:
    level = "" if block.level == PLAIN_LEVEL else f", level {block.level}"
    return [
        label(block.stream, is_code=True),
        label(f"{block.planner}{level}", is_code=True),
        label(block.arm, is_code=True),
        label(way),
    ]


def _cells(pool: Pool, kind: Kind) -> list[Cell]:
    def mean(of: Callable[[RunScore], float | None], digits: int = 1) -> Cell:
        return number(pool.mean(of), kind, digits)

    return [
        mean(lambda run: run.retries),
        mean(lambda run: sum(run.retries_by_agent[1:]) if run.spec.conduct.agents > 1 else None),
        mean(lambda run: run.stale_injections),
        mean(lambda run: run.mended if run.spec.conduct.precondition else None),
        mean(lambda run: run.stale_executions),
        mean(lambda run: run.wire.contract_percent),
        mean(lambda run: run.wire.contract_percent_both_ways),
        mean(lambda run: run.wire.contract_percent_in_all),
        mean(lambda run: run.wire.question_bytes, 0),
        number(pool.mean(lambda run: run.tokens.total), kind_of_tokens(pool.runs, kind), 0),
    ]


def _published(block: _Block) -> Row | None:
    """The paper's row for a planner and an arm, where it has one."""
    costs = paper.TOKENS.facts.get(block.counterpart or "")
    retries = costs.retries.get(block.arm) if costs else None
    if retries is None or (block.stream, block.level) != (_OF_THE_PAPER, PLAIN_LEVEL):
        return None
    missing = Cell(DASH, Kind.PAPER)
    cells = [
        *_names(block._replace(planner=block.counterpart or ""), "published"),
        number(retries, Kind.PAPER),
        *[missing] * 4,
        number(paper.WIRE.facts.contract_percent, Kind.PAPER),
        *[missing] * 4,
    ]
    return row(Kind.PAPER, cells)
