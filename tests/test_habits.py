"""What past changes say about the next: chances that come true as often as they say, and words that fit."""

import math
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shelflife.habit_forms import Bursts
from shelflife.habits import Habit, chance_of, habit_of
from shelflife.histories import LEAST_SEEN, MOST_SEEN, Histories, Seen

GAP = 24.0


def at_random(chance, until):
    moment = 0.0
    while (moment := moment + chance.expovariate(1 / GAP)) < until:
        yield moment


def regular(chance, until):
    first = chance.random() * GAP
    for number in range(math.ceil(until / GAP)):
        yield first + number * GAP + chance.gauss(0, 0.03 * GAP)


def in_bursts(chance, until):
    moment = 0.0
    while (moment := moment + chance.expovariate(1 / (4 * GAP))) < until:
        for _ in range(4):
            yield moment
            moment += chance.expovariate(1 / (0.02 * GAP))


def looked_at(chance, count):
    moment = 0.0
    for _ in range(count):
        moment += chance.expovariate(1.0)
        yield moment


def seen_by(looks, changes):
    """Of changes, what somebody sees who looks at these moments."""
    before, seen = 0.0, []
    for look in looks:
        if any(before < change <= look for change in changes):
            seen.append(Seen(before, look))
        before = look
    return seen


def forecasts(draw, seed, *, looks=300, leader=None):
    """Each chance that is said of a history as it grows, with whether it came true."""
    chance = Random(seed)
    moments = list(looked_at(chance, looks))
    led_by = [] if leader is None else list(leader(chance, moments[-1]))
    changes = list(draw(chance, moments[-1]) if leader is None else draw(chance, led_by))
    histories, before = Histories(0.0), 0.0
    for now in moments:
        has_changed = any(before < change <= now for change in changes)
        said = habit_of(histories, "it").chance(before, now)
        if said is not None:
            yield said, has_changed
        moved = ["it"] * has_changed + ["other"] * any(before < change <= now for change in led_by)
        if moved:
            histories = histories.after(moved, before, now)
        before = now


def some_time_after(chance, leader):
    for moment in leader:
        yield moment + chance.gauss(3.6, 0.3)


BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.01)
DRAWS = 5


def test_what_is_said_to_be_likely_comes_true_as_often_as_it_says():
    """Over all kinds together: of one kind alone, a careful forecast says too little until it has seen enough of it."""
    said = [
        one
        for draw in (at_random, regular, in_bursts)
        for seed in range(DRAWS)
        for one in forecasts(draw, seed)
    ]
    said += [one for seed in range(DRAWS) for one in forecasts(some_time_after, seed, leader=at_random)]
    assert len(said) >= 200
    for least, most in pairwise(BINS):
        within = [(chance, came) for chance, came in said if least <= chance < most]
        expected = sum(chance for chance, _ in within) / len(within)
        happened = sum(came for _, came in within) / len(within)
        by_chance = 2 * math.sqrt(
            expected * (1 - expected) / len(within)
        )  # which of few makes more of a difference
        assert abs(expected - happened) < max(0.1, by_chance), (least, most, len(within))


@pytest.mark.parametrize(
    ("draw", "kind"), [(regular, "regular"), (in_bursts, "in bursts"), (at_random, "no pattern")]
)
def test_its_kind_is_said_in_a_word(draw, kind):
    chance = Random(1)
    looks = list(looked_at(chance, 800))
    habit = Habit(0.0, seen_by(looks, list(draw(chance, looks[-1]))))
    assert habit.kind == kind
    assert habit.leader is None


def test_the_usual_gap_of_what_is_regular_is_its_period():
    chance = Random(2)
    looks = list(looked_at(chance, 500))
    habit = Habit(0.0, seen_by(looks, list(regular(chance, looks[-1]))))
    assert habit.usual_gap == pytest.approx(GAP, rel=0.1)


def test_what_follows_another_is_said_to_and_by_how_much_is_foreseen():
    chance = Random(3)
    looks = list(looked_at(chance, 600))
    leader = list(at_random(chance, looks[-1]))
    changes = {"it": list(some_time_after(chance, leader)), "other": leader}
    histories = Histories(0.0)
    for before, now in pairwise([0.0, *looks]):
        moved = [name for name, moments in changes.items() if any(before < one <= now for one in moments)]
        histories = histories.after(moved, before, now)
    assert habit_of(histories, "it").kind == "after another"
    assert habit_of(histories, "it").leader == "other"
    now = looks[-1] + 1000
    led = histories.after(["other"], now - 0.1, now)
    assert habit_of(led, "it").chance(now, now + 1) < 0.1
    assert habit_of(led, "it").chance(now, now + 6) > 0.8


@pytest.mark.parametrize("count", range(LEAST_SEEN))
def test_of_what_was_seldom_seen_nothing_is_said(count):
    habit = Habit(0.0, [Seen(number, number + 0.5) for number in range(count)])
    assert habit.chance(10.0, 1000.0) is None
    assert habit.kind == "too little seen"
    assert habit.usual_gap is None


@pytest.mark.parametrize("count", range(1, LEAST_SEEN))
def test_a_part_that_seldom_changed_goes_by_its_share_of_what_changes(count):
    moments = [Seen(number * GAP, number * GAP + 0.5) for number in range(10)]
    histories = Histories(0.0, {"it:part": tuple(moments[:count]), "it": tuple(moments)})
    now = moments[-1].by
    of_all = habit_of(histories, "it").chance(now, now + GAP)
    assert of_all > 0.5
    assert chance_of(histories, "it:part", now, now + GAP) == pytest.approx(of_all * count / 10)
    assert chance_of(histories, "it", now, now + GAP) == of_all
    assert chance_of(histories, "it:other", now, now + GAP) == 0  # it never changed
    assert chance_of(histories, "this:part", now, now + GAP) == 0


def test_a_part_goes_by_nothing_where_too_little_of_all_was_seen():
    once = (Seen(0.0, 0.5),)
    histories = Histories(0.0, {"it:part": once, "it": once})
    assert chance_of(histories, "it:part", 1.0, 1000.0) == 0


gaps = st.lists(st.floats(0.01, 1000), min_size=LEAST_SEEN, max_size=30)


def history_of(gaps, shift=0.0, scale=1.0):
    moment, seen = shift, []
    for gap in gaps:
        seen.append(Seen(moment + 0.5 * gap * scale, moment + gap * scale))
        moment += gap * scale
    return Habit(shift, seen), moment


@given(gaps, st.lists(st.floats(0, 5000), min_size=2, max_size=6))
@settings(max_examples=40)
def test_a_chance_is_one_and_only_grows_with_time(gaps, waits):
    habit, known_at = history_of(gaps)
    said = [habit.chance(known_at, known_at + wait) for wait in sorted(waits)]
    assert all(0 <= chance <= 1 for chance in said)
    assert said == sorted(said)
    assert habit.chance(known_at, known_at) == pytest.approx(0, abs=1e-12)


@given(gaps, st.floats(0.1, 500))
@settings(max_examples=20)
def test_it_does_not_matter_when_the_clock_began_nor_in_what_it_counts(gaps, wait):
    habit, known_at = history_of(gaps)
    expected = habit.chance(known_at, known_at + wait)
    later, later_known_at = history_of(gaps, shift=65536.0)
    assert later.chance(later_known_at, later_known_at + wait) == pytest.approx(expected, abs=1e-6)
    slower, slower_known_at = history_of(gaps, scale=64.0)
    assert slower.chance(slower_known_at, slower_known_at + 64 * wait) == pytest.approx(expected, abs=1e-6)


@given(st.lists(st.sampled_from(["a", "a:1", "b", "b:2"]), min_size=1, max_size=200))
@settings(max_examples=30)
def test_a_history_keeps_the_last_changes_of_what_changed_last(names):
    histories = Histories(0.0)
    for number, name in enumerate(names):
        histories = histories.after([name], number, number + 1)
    for name, seen in histories.seen.items():
        moments = [Seen(number, number + 1) for number, other in enumerate(names) if other == name]
        assert list(seen) == moments[-24:]
    assert histories.looked_at == len(names)


def test_what_many_things_did_is_bounded():
    histories = Histories(0.0)
    for number in range(300):
        histories = histories.after(
            [f"t:{number % 150}", *(f"u:{number}-{one}" for one in range(8))], number, number + 1
        )
    assert sum(map(len, histories.seen.values())) <= 1_000
    assert f"u:{299}-0" in histories.seen
    assert "u:0-0" not in histories.seen


def test_changes_whose_very_moment_is_known_and_several_at_once_can_be_explained():
    habit = Habit(0.0, [Seen(10.0, 10.0), Seen(10.0, 10.0), Seen(20.0, 20.0), Seen(30.0, 30.0)])
    assert 0 < habit.chance(31.0, 41.0) <= 1


def test_what_came_before_all_that_is_kept_of_the_leader_does_not_speak_against_it():
    chance = Random(4)
    leader = [Seen(moment, moment + 0.1) for moment in at_random(chance, 160 * GAP)]
    followed = [Seen(one.after + 1, one.by + 1) for one in leader if chance.random() < 0.5]
    histories = Histories(0.0, {"it": tuple(followed[-MOST_SEEN:]), "other": tuple(leader[-MOST_SEEN:])})
    assert habit_of(histories, "it").leader == "other"


moments = st.lists(st.floats(-1e9, 2e9), min_size=1, max_size=40)


@given(moments, st.floats(-1e9, 2e9))
@settings(max_examples=40)
def test_clocks_that_jump_to_and_fro_leave_a_history_in_order_and_chances_that_are_some(moments, now):
    histories = Histories(moments[0])
    for moment in moments:
        histories = histories.after(["a", "b"], histories.looked_at, moment)
        assert histories.looked_at == moment
        assert all(one.after <= one.by <= moment for seen in histories.seen.values() for one in seen)
    said = habit_of(histories, "a").chance(min(now, histories.looked_at), now)
    assert said is None or 0 <= said <= 1


@pytest.mark.parametrize("apart", [0.0, 1e-7, 1e-6, 1e-3])
def test_changes_of_a_moment_can_be_explained_on_a_clock_that_counts_from_long_ago(apart):
    begun = 1.7e9
    histories = Histories(begun)
    for number in range(30):
        at = begun + number * apart
        histories = histories.after(["a", "b"], at, at)
    said = habit_of(histories, "a").chance(histories.looked_at, histories.looked_at + 60)
    assert said is None or 0 <= said <= 1


def phases(rates, shares, quiet, width, begun, steps=5_000):
    """How likely it is that nothing comes while it is quiet and something within the width, and the phase then: in very small steps."""
    none, some = list(begun), [0.0, 0.0]
    for index in range(steps):
        is_quiet = index < steps // 2
        length = 2 * (quiet if is_quiet else width) / steps
        come = [mass * (1 - math.exp(-rate * length)) for mass, rate in zip(none, rates, strict=True)]
        more = [mass * (1 - math.exp(-rate * length)) for mass, rate in zip(some, rates, strict=True)]
        none = [mass - gone for mass, gone in zip(none, come, strict=True)]
        arrived = sum(more) + (0.0 if is_quiet else sum(come))
        some = [mass - gone + share * arrived for mass, gone, share in zip(some, more, shares, strict=True)]
    return sum(some), some[0] / sum(some)


@pytest.mark.parametrize(("share", "ratio"), [(0.5, 0.03), (0.9375, 0.1), (0.0, 1.0)])
def test_what_several_changes_between_two_looks_come_to_is_what_small_steps_come_to(share, ratio):
    form, scale = Bursts(share, ratio), 20.0
    rates, shares = (1 / (ratio * scale), 1 / scale), (share, 1 - share)
    short = share * ratio / (share * ratio + 1 - share)
    expected = 0.0
    for looks in ([(3.0, 2.0)], [(3.0, 2.0), (0.0, 1.0)], [(3.0, 2.0), (0.0, 1.0), (7.0, 0.5)]):
        log, goes_on = form.looked_through(looks, scale)
        likely, short = phases(rates, shares, *looks[-1], (short, 1 - short))
        expected += math.log(likely)
        assert log == pytest.approx(expected, rel=1e-2)
        assert goes_on.share == pytest.approx(short, rel=1e-2, abs=1e-9)
