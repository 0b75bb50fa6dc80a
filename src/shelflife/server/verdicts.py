"""What the requests of a client say about its memory. Pure: counts in, a verdict out.

A request is like another when it has the same values in the fields that a policy has read and its fix does not set. Of like requests it
is counted which were refused and which were let through, each by a digest of what came in the fields that the fix sets. That needs no
order: whoever was refused comes again with the fix, so requests that were let through and had not been refused before are the rest. So
the counts of several workers can be added up.

Verdicts come of what was seen of late. What has come of requests in all is counted besides: each once, however many fixes it is for.
"""

from collections.abc import Iterable, Iterator, Mapping
from operator import add
from typing import Literal, NamedTuple

import msgspec

from shelflife.server.likeness import covers

__all__ = [
    "Cell",
    "ClientScore",
    "Given",
    "Lesson",
    "PolicyScore",
    "Requests",
    "Seen",
    "Verdict",
    "added_up",
    "end_oldest",
    "score_of",
]

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
_MOST_EARLIER = 16


class Cell(msgspec.Struct, omit_defaults=True):
    """What came of like requests while no table has moved that their fix rests on."""

    grounds_at: int | None = None
    """The place in the log of the last change of what the fix rests on; None where this worker does not know what that is."""

    changed_at: float = 0.0
    """When the change was that it began with; 0 where that is not known."""

    told: str = ""
    """The digest of what the fix sets; empty where this worker has not given it."""

    passed: dict[str, int] = {}
    """How many requests were let through, by the digest of what they had in the fields that the fix sets."""

    refused: dict[str, int] = {}
    last_refused_at: dict[str, float] = {}
    is_cut: bool = False
    """Whether requests may have been left out between the change that it began with and the first that was seen."""


class Lesson(msgspec.Struct, omit_defaults=True):
    """A fix that a client was given for like requests, whatever its values are at the moment."""

    operation: str
    policy: str
    type: str
    reads: tuple[str, ...]
    """The fields by which requests are like each other."""

    sets: tuple[str, ...]
    tables: tuple[str, ...]
    adds: bool = False
    """Whether a request was refused that lacked what the fix sets."""

    cells: dict[int, Cell] = {}
    """By the place in the log of the last change of any of the tables."""

    earlier: dict[str, int] = {}
    """What the fix has set before these: by digest, the last place in the log at which it was right or came all the same."""


class Given(msgspec.Struct, omit_defaults=True):
    """The fixes of one type that a policy has given."""

    sets: tuple[str, ...] = ()
    rests_on: dict[str, tuple[str, ...] | None] = {}
    """By table, the columns that were read for the latest of them; None for all."""


class Requests(msgspec.Struct, frozen=True):
    """How many requests of a client came to what. Both are sums, so they never go back."""

    passed: int = 0
    """Requests that were let through, and are like one that it was given a fix for."""

    refused: int = 0
    """Requests that were refused with a fix that can be kept."""


class Seen(msgspec.Struct, omit_defaults=True):
    """All that a worker has seen."""

    fixes: dict[str, dict[str, Given]] = {}
    """By policy and type."""

    clients: dict[str, dict[str, Lesson]] = {}
    """By the name of the client and a digest that is the same for like requests."""

    requests: dict[str, Requests] = {}
    """By the name of the client, since the worker began."""

    sampled: set[str] = set()
    """Clients some of whose requests may have been left out, because there were too many at a time."""


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


def added_up(seen: Iterable[Seen]) -> Seen:
    """What all workers have seen together."""
    whole = Seen()
    for one in seen:
        for policy, by_type in one.fixes.items():
            _add_fixes(whole.fixes.setdefault(policy, {}), by_type)
        for client, lessons in one.clients.items():
            known = whole.clients.setdefault(client, {})
            for id, lesson in lessons.items():
                if id in known:
                    _add_lesson(known[id], lesson)
                else:
                    known[id] = msgspec.convert(msgspec.to_builtins(lesson), Lesson)  # a copy to add to
        for client, came in one.requests.items():
            so_far = whole.requests.get(client, Requests())
            whole.requests[client] = Requests(so_far.passed + came.passed, so_far.refused + came.refused)
        whole.sampled |= one.sampled
    return whole


def end_oldest(lesson: Lesson) -> None:
    """Keep of the oldest cell what was right then, for as long as that still comes: the only sign that a client does not forget."""
    at = min(lesson.cells)
    oldest = lesson.cells.pop(at)
    following = lesson.cells[min(lesson.cells)]
    if oldest.grounds_at is not None and oldest.grounds_at == following.grounds_at:
        following.told = following.told or oldest.told  # it is right still
    else:
        lesson.earlier[oldest.told] = at
    lesson.earlier |= {value: at for value in oldest.refused if value in lesson.earlier}
    if len(lesson.earlier) > _MOST_EARLIER:
        del lesson.earlier[min(lesson.earlier, key=lesson.earlier.__getitem__)]


def score_of(
    client: str, lessons: Mapping[str, Lesson], in_all: Requests, *, is_sampled: bool = False
) -> ClientScore:
    """What the requests of a client come to."""
    adding = rewriting = _Tally()
    by_policy: dict[str, _Tally] = {}
    for lesson in lessons.values():
        tally = _tally(lesson)
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
        sampled=is_sampled,
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
    is_up_to_date = whole.kept_after_changes + whole.kept_over_moves >= _FEWEST_SIGNS
    return "remembers and follows" if is_up_to_date else "not enough seen"


def _tally(lesson: Lesson) -> _Tally:
    """What came of a lesson. While what it rests on is the same, one refusal teaches it, and every other need not have been."""
    whole, earlier = _Tally(), {*lesson.earlier}
    for group in _grouped(lesson):
        told = next((cell.told for cell in group if cell.told), "")
        right = [
            sum(count for value, count in cell.passed.items() if not told or covers(value, told))
            for cell in group
        ]
        wrong = [sum(cell.refused.values()) for cell in group]
        passed, refused = sum(right), sum(wrong)
        stale = sum(count for cell in group for value, count in cell.refused.items() if value in earlier)
        again = max(0, refused - 1)
        stale_again = min(again, max(0, stale - 1))
        moves = [index for index in range(1, len(group)) if right[index] or wrong[index]]
        since = min((cell.changed_at for cell in group if cell.changed_at), default=0.0)
        last = [
            at
            for cell in group
            for value, at in cell.last_refused_at.items()
            if since and value in earlier and value != told
        ]
        whole = whole.plus(
            _Tally(
                tasks=max(passed, refused),
                kept=max(0, passed - refused),
                dropped=again - stale_again,
                stale_again=stale_again,
                kept_after_changes=max(0, passed - refused) if earlier else 0,
                kept_over_moves=sum(not wrong[index] and not group[index].is_cut for index in moves),
                dropped_over_moves=sum(bool(wrong[index]) for index in moves),
                unseen_over_moves=sum(not wrong[index] and group[index].is_cut for index in moves),
                refused=refused,
                followed=min(passed, refused),
                stale=stale,
                moves=len(moves) + bool(earlier and (passed or refused)),
                longest_stale_s=max([0.0, *(at - since for at in last)]),
            )
        )
        earlier.add(told)
    return whole


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


def _add_fixes(whole: dict[str, Given], one: Mapping[str, Given]) -> None:
    for type, given in one.items():
        of_type = whole.setdefault(type, Given(given.sets))
        of_type.rests_on = {**of_type.rests_on, **given.rests_on}


def _add_lesson(whole: Lesson, one: Lesson) -> None:
    whole.adds = whole.adds or one.adds
    for value, place in one.earlier.items():
        whole.earlier[value] = max(place, whole.earlier.get(value, 0))
    for number, cell in one.cells.items():
        into = whole.cells.setdefault(number, Cell())
        into.told = into.told or cell.told
        known = [one for one in (into.grounds_at, cell.grounds_at) if one is not None]
        into.grounds_at = max(known, default=None)
        into.changed_at = max(into.changed_at, cell.changed_at)
        into.is_cut = into.is_cut or cell.is_cut
        for counts, more in ((into.passed, cell.passed), (into.refused, cell.refused)):
            for value, count in more.items():
                counts[value] = counts.get(value, 0) + count
        for value, at in cell.last_refused_at.items():
            into.last_refused_at[value] = max(at, into.last_refused_at.get(value, 0.0))
