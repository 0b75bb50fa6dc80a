"""The planners that are tuned to the paper's models are near them, and say that they are tuned."""

from statistics import fmean

import pytest

from shelflife.lab.grid import execute
from shelflife.lab.paper import LADDER, PRICE_SHEET, TOKENS
from shelflife.lab.planners.simulated import PRESETS, stand_in_for
from shelflife.lab.spec import RunSpec


def test_there_is_a_preset_for_every_model_of_the_paper():
    assert set(PRESETS) == set(LADDER.facts)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_complies_about_as_often_as_its_model_and_says_that_it_is_tuned(name, tmp_path):
    scores = execute(
        [RunSpec("drifted", "A2D", stand_in_for(name), seed) for seed in range(3)], tmp_path
    ).scores
    assert {score.tuned_to for score in scores} == {name}
    assert {score.planner_kind for score in scores} == {"simulated"}
    complied = sum(score.eligible_first_try for score in scores)
    pooled = 100 * complied / sum(score.eligible for score in scores)
    assert pooled == pytest.approx(LADDER.facts[name].compliance["A2D"], abs=15)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_needs_about_as_many_retries_without_a_memory_as_its_model(name, tmp_path):
    scores = execute(
        [RunSpec("drifted", "A0", stand_in_for(name), seed) for seed in range(3)], tmp_path
    ).scores
    assert fmean(score.retries for score in scores) == pytest.approx(
        TOKENS.facts[name].retries["A0"], rel=0.1
    )


@pytest.mark.parametrize("name", ["claude-haiku-4-5", "claude-sonnet-4-6", "claude-sonnet-5"])
def test_on_the_rule_stream_the_three_models_do_the_same(name, tmp_path):
    policies = PRICE_SHEET.facts
    scores = execute([RunSpec("rules", arm, stand_in_for(name)) for arm in policies], tmp_path).scores
    assert [(score.first_try, score.retries) for score in scores] == [
        (policy.first_try, policy.retries) for policy in policies.values()
    ]


def test_a_planner_that_guesses_finds_conditional_rewrites_by_itself_and_nothing_else(tmp_path):
    specs = [RunSpec("drifted", arm, f"seeded:guess={rate}") for rate in (0, 1) for arm in ("A0", "A2D")]
    without, never, always, remembering = execute(specs, tmp_path).scores
    assert (without.retries, never.retries) == (27, 7)
    assert (always.retries, always.classes["governed"].first_try) == (12, 0)
    assert (remembering.retries, remembering.evictions) == (2, 1)
