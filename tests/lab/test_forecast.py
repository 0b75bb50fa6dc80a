"""Drift foreseen: ahead of ways of asking that foresee nothing where rows have habits, and as good as the best of them where they have none."""

import os
from functools import cache
from itertools import product
from statistics import fmean

import pytest

from shelflife.client.foresight import chance_of
from shelflife.lab.exhibits import collection_of
from shelflife.lab.exhibits.figures import figures_of
from shelflife.lab.exhibits.forecast import tenths, weighed
from shelflife.lab.exhibits.pools import Runs
from shelflife.lab.grid import execute
from shelflife.lab.organic.releases import ReleasesError, released_on
from shelflife.lab.scenarios import load
from shelflife.lab.scores import ForeseenTenth
from shelflife.lab.spec import Consume, RunSpec
from shelflife.lab.ways_to_ask import STALE_COSTS, conduct_of, forecast_runs
from tests.lab.forecast_oracle import foretold

IS_LONG = os.environ.get("SHELFLIFE_TESTS") == "long"
SEEDS = range(2000, 2020 if IS_LONG else 2001)
"""None of them was drawn by when the method was worked on, and none is reported."""

WITHIN = 1.05
WITH_HABITS = ["habits-regular", "habits-bursts", "habits-led"]
WITHOUT = ["habits-random", "habits-never"]
BASELINES = ("none", "use", "heuristic")
MADE_FOR_IT = ("habits-bursts", 10.0)
"""Here the 10 % rule asks at nearly every use while a burst goes on, and that is what pays."""


@cache
def drawn(stream, way):
    """What all draws of a stream should come to."""
    scenario = load(stream)
    said = chance_of if way == "forecast" else None
    return [foretold(scenario.drawn_for(seed), way, chance_of=said) for seed in SEEDS]


def costs(stream, way, stale_costs):
    """On average over the draws. What is foreseen does not depend on what a stale use is worth, only what is done about it."""
    if way != "forecast":
        return fmean(run.cost(stale_costs) for run in drawn(stream, way))
    return fmean(
        sum(1 if stale_costs * chance > 1 else stale_costs * is_stale for chance, is_stale in run.said)
        for run in drawn(stream, way)
    )


@pytest.mark.parametrize(
    ("stream", "stale_costs"),
    [pair for pair in product(WITH_HABITS, STALE_COSTS[1:]) if pair != MADE_FOR_IT],
)
def test_where_rows_have_habits_the_forecast_is_ahead_of_all_that_foresee_nothing(stream, stale_costs):
    best = min(costs(stream, way, stale_costs) for way in BASELINES)
    assert costs(stream, "forecast", stale_costs) < best


def test_where_the_ten_percent_rule_is_at_its_best_the_forecast_is_as_good():
    stream, stale_costs = MADE_FOR_IT
    best = min(costs(stream, way, stale_costs) for way in BASELINES)
    assert best == costs(stream, "heuristic", stale_costs)
    assert costs(stream, "forecast", stale_costs) <= WITHIN * best


@pytest.mark.parametrize("stale_costs", STALE_COSTS)
@pytest.mark.parametrize("stream", WITHOUT)
def test_where_rows_have_none_it_costs_no_more_than_the_best_of_them(stream, stale_costs):
    best = min(costs(stream, way, stale_costs) for way in BASELINES)
    assert costs(stream, "forecast", stale_costs) <= WITHIN * best


@pytest.mark.parametrize("stream", WITH_HABITS)
def test_where_a_stale_use_is_worth_one_question_nothing_is_asked(stream):
    assert costs(stream, "forecast", 1.0) == costs(stream, "none", 1.0)
    assert costs(stream, "none", 1.0) == min(costs(stream, way, 1.0) for way in BASELINES)


def test_what_is_foreseen_on_all_streams_together_comes_true_as_often_as_it_says():
    runs = [by_tenths(run.said) for stream in (*WITH_HABITS, *WITHOUT) for run in drawn(stream, "forecast")]
    judged = [tenth.judged for tenth in tenths(runs) if tenth is not None]
    assert set(judged) <= {"came true", "too few"}
    assert judged.count("came true") >= (8 if IS_LONG else 2)


def by_tenths(said):
    within = [[one for one in said if min(int(one[0] * 10), 9) == tenth] for tenth in range(10)]
    return [
        ForeseenTenth(len(one), sum(chance for chance, _ in one), sum(is_stale for _, is_stale in one))
        for one in within
    ]


def test_a_tenth_is_judged_only_where_enough_was_said_and_runs_count_as_one_draw_each():
    runs = [[ForeseenTenth(150, 30.0, 40)], [ForeseenTenth(150, 30.0, 26)]]
    [tenth] = tenths(runs)
    assert (tenth.uses, tenth.said, tenth.were, tenth.judged) == (300, 20.0, 22.0, "came true")
    assert tenth.error == pytest.approx(100 * (10**2 + 4**2) ** 0.5 / 300)
    assert next(tenths(runs[:1])).judged == "too few"
    assert next(tenths([[ForeseenTenth(200, 40.0, 61)]])).judged == "did not"
    assert list(tenths([[ForeseenTenth(0, 0.0, 0)]])) == [None]


@pytest.mark.parametrize("stream", WITH_HABITS)
def test_each_change_that_is_drawn_gives_its_row_another_value(stream):
    for seed in range(2000, 2010):
        values = {}
        for drift in load(stream).drawn_for(seed).drift:
            for zone, row in drift.set.items():
                assert values.get(zone) != row
                values[zone] = row


SHORT = """
name = "short"
like = "habits-regular"
title = "Rows that change regularly, shortly"

[habits]
episodes = 60
gap = [4.0]
"""


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A short stream, played in all ways."""
    folder = tmp_path_factory.mktemp("short")
    path = folder / "short.toml"
    path.write_text(SHORT)
    conducts = dict.fromkeys(run.conduct for run in forecast_runs())
    specs = [
        RunSpec(str(path), "exact", "compliant", consume=Consume.APPLY, conduct=conduct)
        for conduct in conducts
    ]
    return path, execute(specs, folder).scores


def test_a_real_memory_of_a_real_server_does_what_can_be_foretold_from_the_stream(short):
    path, scores = short
    scenario = load(str(path)).drawn_for(0)
    assert len(scores) == 6
    for score in scores:
        conduct = score.spec.conduct
        expected = foretold(scenario, conduct.fresh, conduct.stale_costs, chance_of)
        assert (score.wire.questions, score.stale_injections, score.retries) == expected[:3], conduct
        if conduct.fresh == "forecast":
            assert sum(tenth.uses for tenth in score.foreseen) == len(expected.said)
            assert sum(tenth.stale for tenth in score.foreseen) == sum(stale for _, stale in expected.said)


def test_the_report_has_what_each_way_costs_the_calibration_and_the_frontier(short):
    _, scores = short
    collection = collection_of(scores)
    shown = {exhibit.key: exhibit for exhibit in collection.exhibits}
    assert [row.cells[0].text for row in shown["forecast"].rows] == ["short"] * 3
    assert len(shown["forecast-calibration"].rows) == 10
    assert [one.stale_costs for one in weighed(Runs(scores))] == list(STALE_COSTS)
    figures, _ = figures_of(Runs(scores))
    [frontier] = [figure for figure in figures if figure.key == "forecast-frontier"]
    assert [name for name, _ in frontier.panels] == ["short"]


def test_where_one_way_was_not_played_nothing_is_compared(short):
    _, scores = short
    some = [score for score in scores if score.spec.conduct.fresh != "use"]
    assert list(weighed(Runs(some))) == []


FEWER = """
name = "fewer"
like = "organic-zones-dated"
title = "Fewer requests"

[organic]
requests = 1
"""


def test_real_releases_come_too_seldom_to_be_foreseen_and_that_costs_nothing(tmp_path):
    path = tmp_path / "fewer.toml"
    path.write_text(FEWER)
    conducts = [conduct_of("none", 10.0), conduct_of("forecast", 10.0)]
    specs = [
        RunSpec(str(path), "exact", "compliant", consume=Consume.APPLY, conduct=conduct)
        for conduct in conducts
    ]
    never, forecast = execute(specs, tmp_path).scores
    assert forecast.wire.questions == never.wire.questions
    assert forecast.stale_injections == never.stale_injections
    assert forecast.foreseen[0].uses == sum(tenth.uses for tenth in forecast.foreseen) > 0


def test_the_days_of_releases_are_known_and_in_order():
    versions = [drift.version for drift in load("organic-zones-dated").drift if drift.version]
    days = released_on("zones", versions)
    assert days == sorted(days)


def test_a_release_of_no_known_day_is_said():
    with pytest.raises(ReleasesError, match=r"it is not known on which day zones 1999\.1 was released"):
        released_on("zones", ["1999.1"])
