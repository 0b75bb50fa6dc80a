"""What the requests of a client say about its memory. Pure: counts in, a verdict out.

That needs no order: whoever was refused comes again with the fix, so requests that were let through and had not been refused before are
the rest.

Verdicts come of what was seen of late. What has come of requests in all is counted besides: each once, however many fixes it is for.
"""

from collections.abc import Collection, Iterator, Mapping
from operator import add
from typing import Literal, NamedTuple, TypeVar

import msgspec

from shelflife.server.lessons import OTHERS, Cell, Lesson, Requests, Way
from shelflife.server.likeness import covers, taken_for, way_of

__all__ = ["ClientScore", "PolicyScore", "Verdict", "score_of"]

Verdict = Literal[
    "remembers and follows",
    "remembers and does not forget",
    "forgets too much",
    "does not remember",
    "does not comply with added fields",
    "not enough seen",
]

_FEWEST_CHANCES = 3
_FEWEST_WITHOUT_A_CHANGE = 20
"""So many chances show that a client does not remember, where nothing has changed yet. Whether it forgets cannot show then."""

_FEWEST_SIGNS = 2
"""So many signs of the same are no accident."""

_OFTEN_FORGOTTEN = 0.2
_Number = TypeVar("_Number", int, float)
_ANY = "", None
"""Stands among the ways for a fix that is told whatever it replaces. It is the same for as long as what it rests on is."""


class PolicyScore(msgspec.Struct, frozen=True, kw_only=True):
    """How a client gets on with a policy."""

    tasks: int
    """How often it had to do with it: like requests, where one that is sent again counts once."""

    right_at_once: int


class ClientScore(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a client: its requests in all, and of late what came of each fix. A request counts for all the fixes that it needs."""

    client: str
    verdict: Verdict
    in_all: Requests
    tasks: int
    right_at_once: int
    """How many of these had the fix without being told: so many requests were spared."""

    policies: dict[str, PolicyScore]
    refused: int
    """How often a policy has refused it with a fix that can be kept."""

    followed: int
    """After how many of these the fix has come."""

    repeated: int
    """How often it was refused again for what it had been given the fix for, and nothing that this rests on has changed since."""

    stale: int
    """How often a value came that had been right before a change."""

    stale_after_told: int
    """How often after it had been given the new one."""

    longest_stale_s: float
    """The longest time after a change at which the previous value has come."""

    could_save: int
    """Requests that a memory which follows would have spared besides."""

    sampled: bool
    """Whether requests were left out since it was first seen, because there were too many at a time: these numbers are of the others."""


class _Tally(NamedTuple):
    """What came of one lesson, or of several."""

    tasks: int = 0
    kept: int = 0
    dropped: int = 0
    stale_again: int = 0
    kept_after_changes: int = 0
    kept_over_moves: int = 0
    dropped_over_moves: int = 0
    unseen_over_moves: int = 0
    refused: int = 0
    followed: int = 0
    stale: int = 0
    moves: int = 0
    longest_stale_s: float = 0.0

    @property
    def chances(self) -> int:
        return self.kept + self.dropped + self.stale_again

    @property
    def is_kept_mostly(self) -> bool:
        return self.kept >= self.dropped

    def plus(self, other: "_Tally") -> "_Tally":
        counts = map(add, self, other)
        longest_s = max(self.longest_stale_s, other.longest_stale_s)
        return _Tally._make(counts)._replace(longest_stale_s=longest_s)


def score_of(
    client: str, lessons: Mapping[str, Lesson], in_all: Requests, *, is_sampled: bool = False
) -> ClientScore:
    """What the requests of a client come to."""
    adding = rewriting = _Tally()
    by_policy: dict[str, _Tally] = {}
    for lesson in lessons.values():
        tally = _Tally()
        for part, told in _parts(lesson):
            tally = tally.plus(_tally(part, told))
        if lesson.adds:
            adding = adding.plus(tally)
        else:
            rewriting = rewriting.plus(tally)
        by_policy[lesson.policy] = by_policy.get(lesson.policy, _Tally()).plus(tally)
    whole = adding.plus(rewriting)
    return ClientScore(
        client=client,
        verdict=_verdict(adding, rewriting),
        in_all=in_all,
        tasks=whole.tasks,
        right_at_once=whole.kept,
        policies={id: PolicyScore(tasks=one.tasks, right_at_once=one.kept) for id, one in by_policy.items()},
        refused=whole.refused,
        followed=whole.followed,
        repeated=whole.dropped,
        stale=whole.stale,
        stale_after_told=whole.stale_again,
        longest_stale_s=round(whole.longest_stale_s, 1),
        could_save=whole.dropped + whole.stale_again,
        sampled=is_sampled or any(lesson.is_in_part for lesson in lessons.values()),
    )


def _verdict(adding: _Tally, rewriting: _Tally) -> Verdict:
    whole = adding.plus(rewriting)
    fewest = _FEWEST_CHANCES if whole.moves else _FEWEST_WITHOUT_A_CHANGE
    if whole.chances < fewest:
        return "not enough seen"
    if whole.stale_again >= _FEWEST_SIGNS and whole.stale_again >= whole.dropped:
        return "remembers and does not forget"
    are_enough = min(adding.chances, rewriting.chances) >= _FEWEST_CHANCES
    if are_enough and rewriting.is_kept_mostly and not adding.is_kept_mostly:
        return "does not comply with added fields"
    is_half_seen = 0 < rewriting.chances < _FEWEST_CHANCES and rewriting.is_kept_mostly
    if not whole.is_kept_mostly:
        return "not enough seen" if is_half_seen else "does not remember"
    is_swept = whole.dropped_over_moves >= max(_FEWEST_SIGNS, whole.kept_over_moves)
    again = whole.dropped + whole.stale_again
    is_often = again > _FEWEST_SIGNS and again >= _OFTEN_FORGOTTEN * whole.chances
    if is_swept or is_often:
        return "forgets too much"
    if whole.unseen_over_moves and whole.kept_over_moves + whole.dropped_over_moves < _FEWEST_SIGNS:
        return "not enough seen"
    if whole.stale and not whole.kept_after_changes:
        return "not enough seen"  # previous values have come, and no new one has been kept yet
    is_up_to_date = whole.kept_after_changes + whole.kept_over_moves >= _FEWEST_SIGNS
    return "remembers and follows" if is_up_to_date else "not enough seen"


def _tally(lesson: Lesson, always: set[str]) -> _Tally:
    """What came of a lesson. While what it rests on is the same, one refusal teaches it, and every other need not have been.

    Of what was let through, what was told then counts, and what has `always` been right to send.
    """
    whole, earlier = _Tally(), {*lesson.earlier}
    known: set[tuple[str, int | None]] = set()
    for group in _grouped(lesson):
        told = {one for cell in group for one in _told(cell)}
        right = [sum(_of_these(cell.passed, always | told or cell.passed).values()) for cell in group]
        wrong = [sum(cell.refused.values()) for cell in group]
        passed, refused = sum(right), sum(wrong)
        stale = sum(
            count for cell in group for value, count in cell.refused.items() if _is_any(value, earlier)
        )
        known.discard(_ANY)
        agains = [_again(cell, known, group) for cell in group]
        again = sum(agains)
        stale_again = min(again, max(0, stale - 1))
        moves = [index for index in range(1, len(group)) if right[index] or wrong[index]]
        since = min((cell.changed_at for cell in group if cell.changed_at), default=0.0)
        last = [
            at
            for cell in group
            for value, at in cell.last_refused_at.items()
            if since and _is_any(value, earlier - told)
        ]
        whole = whole.plus(
            _Tally(
                tasks=max(passed, refused),
                kept=max(0, passed - refused),
                dropped=again - stale_again,
                stale_again=stale_again,
                kept_after_changes=max(0, passed - refused) if earlier else 0,
                kept_over_moves=sum(not wrong[index] and not group[index].is_cut for index in moves),
                dropped_over_moves=sum(
                    bool((agains if group[index].ways else wrong)[index]) for index in moves
                ),
                unseen_over_moves=sum(not wrong[index] and group[index].is_cut for index in moves),
                refused=refused,
                followed=min(passed, refused),
                stale=stale,
                moves=len(moves) + bool(earlier and (passed or refused)),
                longest_stale_s=max([0.0, *(at - since for at in last)]),
            )
        )
        earlier |= told
    return whole


def _again(cell: Cell, known: set[tuple[str, int | None]], group: list[Cell]) -> int:
    """How often it was refused for what it had been told before. What it is told now is known from here on.

    Refusals that were under way together, each of them followed, are no sign of that.
    """
    again = 0
    for name, refused in cell.refused.items():
        way = cell.ways.get(name)
        if way is None or name != OTHERS:
            told = _ANY if way is None else (way_of(name), way.grounds_at)
            again += refused
            if told not in known:
                again -= _at_first(cell, told[0], cell.told if way is None else way.told, group)
                known.add(told)
    return max(0, again)


def _at_first(cell: Cell, way: str, told: str, group: list[Cell]) -> int:
    """How many refusals a client could not have spared when it was told something: one, or as many as it had under way at the time."""
    early = cell.early.get(way)
    if early is None:
        return 1
    passed = sum(sum(_of_these(one.passed, [told]).values()) for one in group)
    followed_at = min(
        (at for one in group for at in _of_these(one.first_passed_at, [told]).values()), default=0.0
    )
    before = sum(at <= followed_at for at in early.at)
    return max(1, min(passed, before + (early.more if before == len(early.at) else 0)))


def _told(cell: Cell) -> set[str]:
    return {cell.told, *(way.told for way in cell.ways.values())} - {""}


def _of_these(passed: Mapping[str, _Number], told: Collection[str]) -> dict[str, _Number]:
    return {value: count for value, count in passed.items() if any(covers(value, one) for one in told)}


def _is_any(refused: str, told: Collection[str]) -> bool:
    """Whether what was refused holds any of these."""
    carried = taken_for(refused)
    return any(covers(carried, one) for one in told)


def _parts(lesson: Lesson) -> list[tuple[Lesson, set[str]]]:
    """What is counted for itself, with what is right to send at any time.

    A fix that goes by what it replaces is as many fixes as it tells different things. A request that was let through shows only what it
    has now: it belongs to all values for which that was told, so these are one.
    """
    cells = lesson.cells.values()
    is_one = all(
        len(told := _told(cell)) < 2 and (not cell.ways or _of_these(cell.passed, told) == cell.passed)
        for cell in cells
    )
    if is_one and not lesson.is_in_part:
        return [(lesson, set())]
    told_for: dict[str, set[str]] = {}
    for cell in cells:
        for name, way in {"": Way(cell.told), **cell.ways}.items():
            if way.told:
                told_for.setdefault(name, set()).add(way.told)
    parts: list[tuple[set[str], set[str]]] = []
    for name, values in told_for.items():
        names = {name}
        for part in [one for one in parts if one[1] & values]:
            parts.remove(part)
            names, values = names | part[0], values | part[1]
        parts.append((names, values))
    return [
        (
            msgspec.structs.replace(
                lesson, cells={at: _part(cell, names, told) for at, cell in lesson.cells.items()}
            ),
            told,
        )
        for names, told in parts
    ]


def _part(cell: Cell, names: set[str], told: set[str]) -> Cell:
    """What a cell has of some of the values that are replaced, and of what was told for them."""
    ways = {name: way for name, way in cell.ways.items() if name in names and way.told}
    is_any = "" in names
    grounds = [way.grounds_at for way in ways.values() if way.grounds_at is not None]
    return msgspec.structs.replace(
        cell,
        told=cell.told if is_any else "",
        grounds_at=max(grounds, default=cell.grounds_at if is_any else None),
        passed=_of_these(cell.passed, told),
        refused={
            name: count
            for name, count in cell.refused.items()
            if name in ways or (is_any and name not in cell.ways)
        },
        ways=ways,
    )


def _grouped(lesson: Lesson) -> Iterator[list[Cell]]:
    """The cells of a lesson in order, together while what the fix rests on is the same."""
    group: list[Cell] = []
    at: int | None = None
    for number in sorted(lesson.cells):
        cell = lesson.cells[number]
        if group and None not in (at, cell.grounds_at) and cell.grounds_at != at:
            yield group
            group = []
        group.append(cell)
        at = at if cell.grounds_at is None else cell.grounds_at
    if group:
        yield group
