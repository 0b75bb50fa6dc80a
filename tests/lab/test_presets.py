"""The planners that are tuned to the paper's models are near them, and say that they are tuned."""

import pytest

from shelflife.lab.grid import execute
from shelflife.lab.paper import LADDER
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
