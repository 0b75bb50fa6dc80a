"""How things change: what the moments of past changes say about the next one. It knows nothing of contracts, and reads no clock.

A change is seldom seen when it happens: it is known to lie between two looks. What the gaps between changes may follow is a list of forms
(regular, at random, in bursts), each at many scales. All of them are weighed by how well they explain what was seen, and a chance is the
mean over all that are left: nothing is ever decided to be the one true form, so that what is not known well is not said with certainty.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise, product
from typing import Literal, Self, TypeVar

import msgspec

from shelflife.habit_forms import (
    ALONE,
    AT_RANDOM,
    BEHIND,
    BY_THE_CLOCK,
    SPREADS,
    STRAY,
    WITHOUT_MEMORY,
    Bursts,
    ByTheClock,
    Form,
    Regular,
    mass_of,
)
from shelflife.histories import LEAST_SEEN, MOST_SEEN, Histories, Seen

__all__ = ["Habit", "Kind", "chance_of", "habit_of"]

Kind = Literal["regular", "in bursts", "after another", "no pattern", "too little seen"]
"""What is said of something to people, where it is as good as certain."""

_MOST_LEADERS = 2

_AS_GOOD_AS_CERTAIN = 0.9
_NEGLIGIBLE = 7.0
"""How much less likely than the best, as a logarithm, a form may be before it is left out."""

_MOST_KEPT = 256
"""A thing that has not changed is explained once, whatever else does."""

_Name = TypeVar("_Name")

_LEAST_WIDTH = 1e-6
"""Of the time between two looks, as a share of all the time that there was."""

_WHERE_IN_IT = ((0.1127, 5 / 18), (0.5, 8 / 18), (0.8873, 5 / 18))
"""Where in the time between two looks a change may have been, with weights: the points of Gauss."""

_STEPS, _STEP = 2, 1.2
"""So many times and periods around those that fit best are tried, so far apart as a share of how well these are known."""

_PERIODS = 4.2
"""How wide periods are spread beforehand, as a share of the usual gap: as wide as the scales of what comes at random."""

_A_LEADER = 0.3
"""How likely it is beforehand that something follows another, as against going by itself."""

_FOLLOWS = (0.6, 0.95)
"""How many of the leader's changes are followed."""


def _still(form: Form, gap: float, follows: float) -> float:
    """How likely it is that nothing has come by then, where something comes at all so often."""
    return 1 - follows + follows * math.exp(-form.hazard(gap))


class _Guess(msgspec.Struct, frozen=True):
    """A form at a scale, and how likely it is that gaps follow it."""

    form: Form
    scale: float
    begun_at: float
    """When the gap that goes on now began."""

    follows: float = 1.0
    """How much of what begins so ends in a change."""

    weight: float = 0.0
    leader: str | None = None
    behind: float | None = None
    """Where no gap goes on, as the leader has not changed again: by how much its next change would be followed."""

    def still(self, known_at: float, now: float) -> float:
        """How likely it is that nothing has changed by now, given that nothing was seen to until then."""
        if self.behind is not None:
            return math.exp(-max(0.0, now - known_at - self.behind) / self.scale)
        return _still(self.form, (now - self.begun_at) / self.scale, self.follows)


class Habit:
    """What is known of how one thing changes."""

    def __init__(
        self, since: float, seen: Sequence[Seen], leaders: Mapping[str, Sequence[Seen]] | None = None
    ) -> None:
        """`since` when it was looked at, and its changes in their order; likewise those of what it may follow."""
        self.seen = _wide_enough(since, seen)
        self._guesses: list[_Guess] = []
        if len(self.seen) == MOST_SEEN:  # there may have been more: what came before the first is not known
            since, self.seen = self.seen[0].by, self.seen[1:]
        if len(self.seen) < LEAST_SEEN or self.seen[-1].by <= since:  # of a clock that stands still too
            return
        leaders = leaders or {}
        led = {name: _Led.of(changes, since, self.seen) for name, changes in leaders.items()}
        closest = sorted(
            (name for name, one in led.items() if len(one.delays) >= LEAST_SEEN),
            key=lambda name: led[name].usual,
        )
        by_others = [
            (guess, log + math.log(_A_LEADER / len(led)))
            for name in closest[:_MOST_LEADERS]
            for guess, log in _explained_by(name, tuple(leaders[name]), since, self.seen)
        ]
        self._guesses = _settled([*_explained_alone(since, self.seen), *by_others])

    def chance(self, known_at: float, now: float) -> float | None:
        """That it has changed since it was last known to be as it is known; None where too little was seen to say."""
        if not self._guesses:
            return None
        before = after = 0.0
        for guess in self._guesses:
            before += guess.weight * guess.still(known_at, known_at)
            after += guess.weight * guess.still(known_at, now)
        return 1 - after / before if before > 0 else 1.0

    @property
    def kind(self) -> Kind:
        """The form that is as good as certain, if there is one."""
        if not self._guesses:
            return "too little seen"
        return _certain((_kind_of(guess), guess.weight) for guess in self._guesses) or "no pattern"

    @property
    def leader(self) -> str | None:
        """What it follows; None where that is not as good as certain."""
        return _certain((guess.leader, guess.weight) for guess in self._guesses)

    @property
    def usual_gap(self) -> float | None:
        """Between two changes, at the median; None where too little was seen."""
        middles = [(one.after + one.by) / 2 for one in self.seen]
        gaps = sorted(later - earlier for earlier, later in pairwise(middles))
        return gaps[len(gaps) // 2] if len(middles) >= LEAST_SEEN else None


def habit_of(histories: Histories, name: str) -> Habit:
    """How one of several things changes, which may follow another of its kind. It is worked out once."""
    habits = vars(histories).setdefault("habits", {})
    if name not in habits:
        seen = histories.seen.get(name, ())
        kind = name.partition(":")[1]
        others = {
            other: changes
            for other, changes in histories.seen.items()
            if other != name and other.partition(":")[1] == kind and len(changes) >= LEAST_SEEN
        }
        habits[name] = Habit(histories.since, seen, others)
    habit: Habit = habits[name]
    return habit


def chance_of(histories: Histories, name: str, known_at: float, now: float) -> float:
    """That one of them has changed since it was last known to be as it is known; 0 where too little was seen to say.

    A part that was seldom seen to change goes by what it is a part of, and by its share of what changes there.
    """
    own = habit_of(histories, name).chance(known_at, now)
    if own is not None:
        return own
    whole = name.partition(":")[0]
    seen, of_all = histories.seen.get(name), histories.seen.get(whole, ())
    if not seen or len(of_all) < LEAST_SEEN:
        return 0.0
    share = sum(one.by >= of_all[0].by for one in seen) / len(of_all)
    return share * (habit_of(histories, whole).chance(known_at, now) or 0.0)


def _kind_of(guess: _Guess) -> Kind:
    if guess.leader is not None:
        return "after another"
    if isinstance(guess.form, Bursts):
        return "in bursts" if guess.form.ratio < 1 else "no pattern"
    return "regular" if isinstance(guess.form, Regular | ByTheClock) else "no pattern"


def _certain(shares: Iterable[tuple[_Name, float]]) -> _Name | None:
    """What has so much of the weight that nothing else counts."""
    sums: dict[_Name, float] = {}
    for name, weight in shares:
        sums[name] = sums.get(name, 0.0) + weight
    return next((name for name, weight in sums.items() if weight >= _AS_GOOD_AS_CERTAIN), None)


def _wide_enough(since: float, seen: Sequence[Seen]) -> tuple[Seen, ...]:
    """Changes of which the very moment is known are given a little room: else nothing could explain two at once."""
    if not seen:
        return ()
    finest = 8 * math.ulp(seen[-1].by)  # of numbers that are so large
    least = max((seen[-1].by - since) * _LEAST_WIDTH, finest)
    return tuple(one if one.by - one.after >= least else Seen(one.by - least, one.by) for one in seen)


@lru_cache(_MOST_KEPT)
def _explained_alone(since: float, seen: tuple[Seen, ...]) -> list[tuple[_Guess, float]]:
    """Those forms that explain changes best that go by themselves."""
    by_the_clock = (
        _guesses_by_the_clock(seen) if len(seen) > LEAST_SEEN else ()
    )  # any two gaps may be about even
    return _likely([*_guesses_alone(since, seen), *_guesses_through_looks(since, seen), *by_the_clock])


@lru_cache(_MOST_KEPT)
def _explained_by(
    name: str, leader: tuple[Seen, ...], since: float, seen: tuple[Seen, ...]
) -> list[tuple[_Guess, float]]:
    """Those forms that explain changes best by those of another."""
    return _likely(_guesses_by(name, _Led.of(leader, since, seen), since, seen))


def _guesses_alone(since: float, seen: Sequence[Seen]) -> Iterator[tuple[_Guess, float]]:
    """How well each form explains changes that go by themselves, as a logarithm.

    When the first gap began is not known: its end is taken to come at random.
    """
    gaps = [_gap(earlier, later) for earlier, later in pairwise(seen)]
    first = _gap(Seen(since, since), seen[0])
    last = seen[-1]
    for form, likely in ALONE:
        scales = form.scales(_usual(gaps))
        for scale in scales:
            log = math.log(likely * (1 - _A_LEADER) / len(scales))
            log += AT_RANDOM.ending(*first, form.mean * scale)
            log += sum(form.ending(least, most, scale) for least, most in gaps)
            for where, share in _WHERE_IN_IT:
                begun_at = last.after + where * (last.by - last.after)
                yield _Guess(form, scale, begun_at), log + math.log(share)


def _guesses_through_looks(since: float, seen: Sequence[Seen]) -> Iterator[tuple[_Guess, float]]:
    """The same for what may come several times between two looks."""
    usual = _usual([_gap(earlier, later) for earlier, later in pairwise(seen)])
    begins = (since, *(one.by for one in seen[:-1]))
    looks = [
        (max(0.0, one.after - begun), one.by - one.after) for begun, one in zip(begins, seen, strict=True)
    ]
    known = _log_known(seen)
    for form, likely in WITHOUT_MEMORY:
        scales = form.scales(usual)
        for scale in scales:
            log, goes_on = form.looked_through(looks, scale)
            log += math.log(likely * (1 - _A_LEADER) / len(scales)) + known
            yield _Guess(goes_on, scale, seen[-1].by), log


def _log_known(seen: Sequence[Seen]) -> float:
    """By how much more it counts where each change lies within what is known of it, to be held against gaps that are known by both ends."""
    widths = [one.by - one.after for one in seen]
    return sum(math.log((a + b) / b) for a, b in pairwise(widths))


def _guesses_by_the_clock(seen: Sequence[Seen]) -> Iterator[tuple[_Guess, float]]:
    """How well even times explain changes, for times and periods around those that fit best.

    Each change lies within what is known of it. To be held against forms of gaps, which are known by both of their ends, it counts for more.
    """
    middles = [(one.after + one.by) / 2 for one in seen]
    widths = [one.by - one.after for one in seen]
    usual = _usual([_gap(earlier, later) for earlier, later in pairwise(seen)])
    ticks = list(accumulate((max(1, round((b - a) / usual)) for a, b in pairwise(middles)), initial=0))
    middle_tick, middle = _mean(ticks), _mean(middles)
    off = [tick - middle_tick for tick in ticks]
    square = sum(one * one for one in off)
    period = sum(one * (moment - middle) for one, moment in zip(off, middles, strict=True)) / square
    known = _log_known(seen)
    log_missed = (ticks[-1] + 1 - len(ticks)) * math.log(STRAY)
    span = seen[-1].by - seen[0].after
    for spread in SPREADS:
        error = math.hypot(_mean(widths) / math.sqrt(12), spread * period)
        step, period_step = _STEP * error / math.sqrt(len(seen)), _STEP * error / math.sqrt(square)
        likely = BY_THE_CLOCK * (1 - _A_LEADER) / len(SPREADS)
        beforehand = likely * min(1, step / period) * min(1, period_step / (_PERIODS * period))
        for at, by in product(range(-_STEPS, _STEPS + 1), repeat=2):
            length = period + by * period_step
            begun = middle + at * step
            log = math.log(beforehand) + known + log_missed
            for one, tick in zip(seen, off, strict=True):
                due = begun + tick * length
                within = mass_of(one.after - due, one.by - due, spread * length)
                log += math.log((1 - STRAY) * within + STRAY * (one.by - one.after) / span)
            yield _Guess(ByTheClock(spread), length, begun + off[-1] * length), log


def _guesses_by(name: str, led: "_Led", since: float, seen: Sequence[Seen]) -> Iterator[tuple[_Guess, float]]:
    """How well the changes of another explain these: some time after each of its changes there is one of these, or none."""
    span = seen[-1].by - since
    unexplained = sum(math.log((one.by - one.after) / span) for one in led.left) - 1
    # of what came before all that is known of the other nothing can be said: it counts as if it had come at random
    unexplained += sum(math.log((one.by - one.after) / span * len(seen)) - 1 for one in led.before)
    for (form, likely), follows in product(BEHIND, _FOLLOWS):
        scales = form.scales(_usual(led.delays))
        for scale in scales:
            log = math.log(likely / len(_FOLLOWS) / len(scales)) + unexplained
            log += sum(form.ending(least, most, scale) for least, most in led.delays)
            log += len(led.delays) * math.log(follows)
            log += sum(math.log(_still(form, wait / scale, follows)) for wait in led.waits)
            if led.begun_at is None:  # it has not changed since, or nobody saw it
                usual_gap, behind = span / len(led.delays), form.mean * scale
                yield _Guess(AT_RANDOM, usual_gap, seen[-1].by, leader=name, behind=behind), log
            else:
                yield _Guess(form, scale, led.begun_at, follows, leader=name), log


class _Led(msgspec.Struct, frozen=True):
    """Changes, told by those of something else that came before them."""

    delays: list[tuple[float, float]]
    """Where one followed: the least and the most that was between."""

    waits: list[float]
    """Where none followed until the next: how long that was."""

    left: list[Seen]
    """Those that followed nothing."""

    before: list[Seen]
    """Those that came before all that is known of the other."""

    begun_at: float | None
    """When the last came, where none has followed it yet."""

    @property
    def usual(self) -> float:
        """Between the two, at the most and on average, counting what followed nothing as long."""
        return (
            sum(most for _, most in self.delays) / len(self.delays) * (1 + len(self.left) + len(self.waits))
        )

    @classmethod
    def of(cls, leader: Sequence[Seen], since: float, seen: Sequence[Seen]) -> Self:
        leads = [lead for lead in leader if lead.by > since]
        known_since = leader[0].after if len(leader) == MOST_SEEN else since
        before = [one for one in seen if one.by <= known_since]
        delays, waits, left = [], [], list(seen[len(before) :])
        begun_at = None
        for index, lead in enumerate(leads):
            end = leads[index + 1].after if index + 1 < len(leads) else math.inf
            hit = next((one for one in left if one.by > lead.after and one.after < end), None)
            if hit is not None:
                left.remove(hit)
                delays.append(_gap(lead, hit))
            elif end < math.inf:
                waits.append(max(0.0, end - lead.by))
            else:
                begun_at = (lead.after + lead.by) / 2
        return cls(delays, waits, left, before, begun_at)


def _likely(explained: Iterable[tuple[_Guess, float]]) -> list[tuple[_Guess, float]]:
    """All that is not negligible."""
    found = list(explained)
    best = max(log for _, log in found)
    return [(guess, log) for guess, log in found if log > best - _NEGLIGIBLE]


def _settled(explained: Sequence[tuple[_Guess, float]]) -> list[_Guess]:
    """The same, with weights that come to one."""
    kept = _likely(explained)
    best = max(log for _, log in kept)
    whole = math.fsum(math.exp(log - best) for _, log in kept)
    return [msgspec.structs.replace(guess, weight=math.exp(log - best) / whole) for guess, log in kept]


def _mean(values: Sequence[float]) -> float:
    """As that of `statistics`, whose import takes longer than that of this module."""
    return math.fsum(values) / len(values)


def _usual(gaps: Sequence[tuple[float, float]]) -> float:
    """The gap in the middle, by where it is most likely to end."""
    middles = sorted((least + most) / 2 for least, most in gaps)
    return middles[len(middles) // 2]


def _gap(earlier: Seen, later: Seen) -> tuple[float, float]:
    """The least and the most that may be between two changes."""
    return max(0.0, later.after - earlier.by), max(0.0, later.by - earlier.after)
