"""What each conduct brings and costs on an honest server, and what each defence leaves of an attack."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, get_args

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
from shelflife.lab.exhibits.comparison import PLANNER, default_note, notes
from shelflife.lab.exhibits.pools import ALL_ARMS, Pool, Runs, counterpart, saved_percent
from shelflife.lab.scores import RunScore
from shelflife.lab.spec import (
    PLAIN,
    PLAIN_CONSUME,
    PLAIN_LEVEL,
    PLAIN_WORDING,
    Conduct,
    Consume,
    Fresh,
    Match,
)

__all__ = ["MADE_FOR_IT", "beyond_the_paper", "matching", "under_attack"]

MADE_FOR_IT = "silent"
"""The stream that is shown beyond the paper whatever it was played with."""

_OF_THE_PAPER = "drifted"
_CONSUMED = {Consume.APPLY: "applied"}
_HONEST = {
    "injection": "undrifted",
    "bumping": "drifted",
    "pinned": "silent",
    "lying": "silent",
    "disclosure": "recipes",
}
"""The same streams with nothing done to the agents."""

_MATCHES: dict[Match, str] = {
    "family": "tasks of its family",
    "request": "the identical request",
    "operation": "all requests of its operation",
    "absent": "all requests that lack what it sets",
}
_SAYS_WHEN = "what it says itself (Level 6)"
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


class _Way(NamedTuple):
    """How a run was played, beside its arm."""

    consume: Consume
    conduct: Conduct

    @property
    def words(self) -> str:
        """What is not as in the paper."""
        consumed = _CONSUMED.get(self.consume, f"consume {self.consume}")
        is_other = self.consume != PLAIN_CONSUME
        return ", ".join([consumed] * is_other + [*self.conduct.words])

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


class _Block(NamedTuple):
    """Runs that differ in their arm, their seed and their way alone."""

    stream: str
    hostile: str | None
    planner: str
    served: str | None
    kind: Kind
    level: int
    counterpart: str | None
    """The paper's model whose numbers belong beside."""


class _Played(NamedTuple):
    """How a run of a block was played."""

    arm: str
    way: _Way


_PLAINLY = _Way(PLAIN_CONSUME, PLAIN)


def _blocks(runs: Runs) -> dict[_Block, dict[_Played, Pool]]:
    """All runs in the plain wording by what they have in common, in the order of exhibits."""
    found: dict[_Block, dict[_Played, list[RunScore]]] = {}
    for run in (one for one in runs.all if one.spec.wording == PLAIN_WORDING):
        spec, served = run.spec, run.model.served if run.model else None
        block = _Block(
            spec.stream, run.hostile, spec.planner, served, kind_of(run), spec.level, counterpart(run)
        )
        played = _Played(spec.arm, _Way(spec.consume, spec.conduct))
        found.setdefault(block, {}).setdefault(played, []).append(run)
    return {
        block: {played: Pool(tuple(found[block][played])) for played in sorted(found[block], key=_rank)}
        for block in sorted(found, key=_place)
    }


def _place(block: _Block) -> tuple[int, str, str, str, int]:
    known = [*_HONEST]
    place = known.index(block.stream) if block.stream in known else len(known)
    return place, block.stream, block.kind.value, block.planner, -block.level


def _rank(played: _Played) -> tuple[Any, ...]:
    return ALL_ARMS.index(played.arm), *played.way.rank


def _names(block: _Block, arm: str, how: str) -> list[Cell]:
    level = "" if block.level == PLAIN_LEVEL else f", level {block.level}"
    return [
        label(block.stream, is_code=True),
        label(f"{block.planner}{level}", is_code=True),
        label(arm, is_code=True),
        label(how),
    ]


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
        tuple(_rows_of_conducts(runs)),
        notes(
            f"{paper.TOKENS.where}; its share of the contract: {paper.WIRE.where}, over all its runs and Level 1 alone",
            "Compact: responses tell only what the client does not know. Check: the memory asks before each episode whether its state still holds. Feed: it follows the server's change feed. Use: it asks before each use. Heuristic and forecast: it does where a change may be due, see Drift foreseen."
            " Precondition: a request with remembered values is refused when what they rest on has moved, and mended without the planner. Applied: the client writes fixes in. Agents share one memory."
            " Guard, bound, trust, aliases and counts are defences: see Under attack.",
            "Stale values are of a remembered fix that the server would not give any more to the request that taught it: first attempts that were sent with one, requests that were"
            " refused for it and mended, and requests that were done with it.",
            "The contract's part is that in the bodies of responses, and in whole requests and responses as HTTP/1.1 has them. Bytes asked are those of questions of the memory's own accord, and what the"
            " feed tells: URLs and bodies. In all: also with these, as whole messages. With several agents these numbers are the first one's, stale values are those of all, and the retries of all others stand beside.",
            default_note([arm for _, arm, _ in _beyond(runs)]),
        ),
    )


def _beyond(runs: Runs) -> Iterator[tuple[_Block, str, dict[_Way, Pool]]]:
    """The blocks and arms with which something was played on an honest server that the paper does not have."""
    for block, pools in _blocks(runs).items():
        for arm in dict.fromkeys(played.arm for played in pools) if not block.hostile else ():
            ways = {played.way: pool for played, pool in pools.items() if played.arm == arm}
            ways = {way: pool for way, pool in ways.items() if way.conduct.match == PLAIN.match}
            if block.stream == MADE_FOR_IT or any(way.conduct != PLAIN for way in ways):
                yield block, arm, ways


def _rows_of_conducts(runs: Runs) -> Iterator[Row]:
    for block, arm, ways in _beyond(runs):
        theirs = _published(block, arm)
        for index, (way, pool) in enumerate(ways.items()):
            cells = (*_names(block, arm, way.words or "as in the paper"), *_of_conduct(pool, block.kind))
            yield Row(cells, block.kind, not index)
            if theirs and index == 0:
                yield theirs


def _of_conduct(pool: Pool, kind: Kind) -> list[Cell]:
    def mean(of: Callable[[RunScore], float | None]) -> Cell:
        return count(pool.mean(of), kind)

    return [
        mean(lambda run: run.retries),
        mean(lambda run: sum(run.retries_by_agent[1:]) if run.spec.conduct.agents > 1 else None),
        mean(lambda run: run.stale_injections),
        mean(lambda run: run.mended if run.spec.conduct.precondition else None),
        mean(lambda run: run.stale_executions),
        number(pool.mean(lambda run: run.wire.contract_percent), kind),
        number(pool.mean(lambda run: run.wire.contract_percent_both_ways), kind),
        number(pool.mean(lambda run: run.wire.contract_percent_in_all), kind),
        number(pool.mean(lambda run: run.wire.question_bytes), kind, 0),
        number(pool.mean(lambda run: run.tokens.total), kind_of_tokens(pool.runs, kind), 0),
    ]


def _published(block: _Block, arm: str) -> Row | None:
    """The paper's row for a planner and an arm, where it has one."""
    costs = paper.TOKENS.facts.get(block.counterpart or "")
    retries = costs.retries.get(arm) if costs else None
    if retries is None or (block.stream, block.level) != (_OF_THE_PAPER, PLAIN_LEVEL):
        return None
    missing = Cell(DASH, Kind.PAPER)
    cells = [
        *_names(block._replace(planner=block.counterpart or ""), arm, "published"),
        count(retries, Kind.PAPER),
        *[missing] * 4,
        number(paper.WIRE.facts.contract_percent, Kind.PAPER),
        *[missing] * 4,
    ]
    return Row(tuple(cells), Kind.PAPER)


def matching(runs: Runs) -> Exhibit:
    """What the paper's own wire comes to, by what a client takes a remembered fix to be for."""
    arms = ("A0", "A1", "A2", "A2D")
    told = {(1, match): how for match, how in _MATCHES.items()} | {(PLAIN_LEVEL, PLAIN.match): _SAYS_WHEN}
    found: dict[tuple[str, str | None, Kind], dict[tuple[int, Match], dict[str, list[RunScore]]]] = {}
    for run in runs.on_honest_servers:
        spec, conduct = run.spec, run.spec.conduct
        way = spec.level, conduct.match
        played = spec.stream, spec.consume, spec.wording
        is_of_it = played == (_OF_THE_PAPER, PLAIN_CONSUME, PLAIN_WORDING)
        if is_of_it and conduct == Conduct(match=conduct.match) and way in told and spec.arm in arms:
            who = spec.planner, counterpart(run), kind_of(run)
            found.setdefault(who, {}).setdefault(way, {}).setdefault(spec.arm, []).append(run)
    rows: list[Row] = []
    for (planner, model, kind), ways in found.items():
        if all(level == PLAIN_LEVEL for level, _ in ways):
            continue
        for index, way in enumerate(one for one in told if one in ways):
            pools = [Pool(tuple(ways[way].get(arm, ()))) for arm in arms]
            cells = (label(told[way]), label(planner, is_code=True), *_of_match(pools, kind))
            rows.append(Row(cells, kind, not index))
        costs = paper.TOKENS.facts.get(model or "")
        if costs:
            retries = [count(costs.retries.get(arm), Kind.PAPER) for arm in arms]
            rest = [Cell(DASH, Kind.PAPER)] * (len(rows[-1].cells) - 2 - len(retries))
            rows.append(
                Row((label("published"), label(model or "", is_code=True), *retries, *rest), Kind.PAPER)
            )
    return Exhibit(
        "matching",
        "The paper's own wire",
        "At Level 1 a fix says neither which requests it is for nor which row it came from. What a memory comes to there is up to what its client takes a fix to be for.",
        (
            Column("A fix is taken to be for", align="left"),
            PLANNER,
            *(Column(arm, "Retries") for arm in arms),
            *(Column(arm, "Evictions") for arm in arms[2:]),
            Column("A2", "Precision"),
            Column("A2D", "Precision"),
            Column("A2D", "Restamps"),
            *(Column(arm, "Misapplied") for arm in arms[1:]),
        ),
        tuple(rows),
        notes(
            f"{paper.TOKENS.where}; the wire: Levels, and Design Decisions",
            "The paper's numbers come out of its own wire for a client that knows which tasks are of one family (here: those for the same plan), and that takes a changed key for the row of a fix if"
            " it is a value of the request that taught it. Its client must have known both; the paper says neither, and no member of its wire tells either.",
            "Going by the identical request helps nearly nobody. Going by the operation, or by the fields that a request lacks, puts fixes into requests that they are not for:"
            " these are misapplied. At A1 that costs more than no memory, and at A2D it leaves next to nothing of the saving.",
            "On our wire a fix says itself what it is for (when, unless) and what it rests on (cells), so that no client has to guess.",
        ),
    )


def _of_match(pools: Sequence[Pool], kind: Kind) -> list[Cell]:
    *_, a2, a2d = pools
    return [
        *(count(pool.mean(lambda run: run.retries), kind) for pool in pools),
        *(count(pool.mean(lambda run: run.evictions), kind) for pool in (a2, a2d)),
        *(number(pool.mean(lambda run: run.eviction_precision), kind, 2) for pool in (a2, a2d)),
        count(a2d.mean(lambda run: run.restamps), kind),
        *(count(pool.mean(lambda run: run.misapplied), kind) for pool in pools[1:]),
    ]


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
        tuple(_rows_of_attacks(runs)),
        notes(None, *_NOTES, default_note([run.spec.arm for run in runs.all if run.hostile])),
    )


def _rows_of_attacks(runs: Runs) -> Iterator[Row]:
    by_block = _blocks(runs)
    for block, pools in by_block.items():
        if not block.hostile:
            continue
        there = by_block.get(block._replace(stream=_HONEST.get(block.stream, ""), hostile=None), {})
        baseline = pools.get(_Played(_WITHOUT_MEMORY, _PLAINLY), Pool(()))
        lines: list[tuple[str, str, Pool]] = []
        for played, pool in pools.items():
            arm = played.arm
            honest = there.get(_Played(arm, _PLAINLY))
            if arm == _WITHOUT_MEMORY:
                lines.append((arm, "no memory", pool))
                continue
            if honest and all(arm != shown for shown, *_ in lines):
                lines.append((arm, "(no attack)", honest))
            lines.append((arm, played.way.words or "none", pool))
        for index, (arm, defence, pool) in enumerate(lines):
            cells = (*_names(block, arm, defence), *_of_attack(pool, baseline, block.kind))
            yield Row(cells, block.kind, not index)


def _of_attack(pool: Pool, baseline: Pool, kind: Kind) -> list[Cell]:
    saved = None if pool is baseline else saved_percent(pool, baseline)

    def mean(of: Callable[[RunScore], float | None]) -> Cell:
        return count(pool.mean(of), kind)

    return [
        label(pool.completed or "")._replace(kind=kind),
        mean(lambda run: run.retries),
        number(pool.mean(lambda run: run.tokens.total), kind_of_tokens(pool.runs, kind), 0),
        signed(None if saved is None else -saved, kind_of_tokens(pool.runs, kind)),
        mean(lambda run: run.wire.questions),
        number(pool.mean(lambda run: run.wire.question_bytes), kind, 0),
        mean(lambda run: run.stale_injections),
        mean(lambda run: run.stale_executions),
        mean(lambda run: run.injected),
        mean(lambda run: run.injected_by_answers),
        mean(lambda run: run.disclosed),
    ]
