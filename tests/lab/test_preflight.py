"""The compliance preflight."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelflife.cli import main
from shelflife.lab.intervals import wilson
from shelflife.lab.planners import PlannerError
from shelflife.lab.preflight import CallCount, preflight
from shelflife.lab.simulated import simulated_planner


def tried(planner, trials=5):
    found = preflight(simulated_planner(planner, 0, frozenset({"payment_method_token"})), trials=trials)
    return {shape.shape: shape for shape in found.shapes}


def complied(shape):
    return {finding.consume: finding.complied for finding in shape.findings}


def test_for_the_conservative_planner_the_prompt_does_not_pay_for_adding_and_apply_does():
    shapes = tried("conservative")
    assert complied(shapes["add a field"]) == {"2": 0, "3": 0, "apply": 5}
    assert shapes["add a field"].recommendation == (
        "Memory in the prompt will not pay for fixes that add a field; apply will."
    )
    for shape in ("rewrite a value", "conditional rewrite"):
        assert complied(shapes[shape]) == {"2": 5, "3": 5, "apply": 5}
        assert "pays for fixes that rewrite a value" in shapes[shape].recommendation


def test_for_the_compliant_planner_everything_pays():
    for shape in tried("compliant").values():
        assert complied(shape) == {"2": 5, "3": 5, "apply": 5}
        for finding in shape.findings:
            assert 0 < finding.saving_low < finding.expected_saving <= finding.saving_high < 1
        assert "use Level 3, or apply" in shape.recommendation


def test_for_a_planner_that_ignores_memory_only_apply_pays():
    for shape in tried("forgetful").values():
        assert complied(shape) == {"2": 0, "3": 0, "apply": 5}
        assert "will not pay" in shape.recommendation
        assert all(finding.expected_saving < 0 for finding in shape.findings[:2])


def test_a_planner_that_does_not_follow_the_server_leaves_the_saving_unknown():
    shape = tried("seeded:follow=0")["add a field"]
    assert not shape.follows_the_server
    assert all(finding.expected_saving is None for finding in shape.findings)
    assert "is not known" in shape.recommendation


class OnceInEight:
    """A planner that adds a field at every eighth call."""

    name, kind = "once in eight", "simulated"

    def __init__(self):
        self.count = 0

    def propose(self, messages):
        self.count += 1
        name = "conservative" if self.count % 8 else "compliant"
        return simulated_planner(name, 0, frozenset()).propose(messages)


def test_a_rate_that_cannot_be_told_yet_is_called_probable():
    [shape, *_] = preflight(OnceInEight(), trials=8).shapes
    assert complied(shape) == {"2": 1, "3": 1, "apply": 8}
    assert "probably pays for fixes that add a field, at Level 3" in shape.recommendation


def test_the_calls_are_counted_beforehand():
    done = []
    preflight(simulated_planner("compliant", 0, frozenset()), trials=2, on_call=done.append)
    assert sum(done) == CallCount(2).calls == 24


def test_the_command_has_a_table_for_people_and_json_for_programs(capsys):
    assert main("lab preflight --planner conservative --trials 3".split()) == 0
    shown = capsys.readouterr().out
    assert "conservative (simulated), 3 valid fixes of each shape in each way" in shown
    assert "will not pay for fixes that add a field; apply will" in shown
    assert main("lab preflight --planner conservative --trials 2 --json".split()) == 0
    assert json.loads(capsys.readouterr().out)["shapes"][0]["findings"][0]["complied"] == 0
    assert main("lab preflight --planner sim:hal".split()) == 1
    assert "there is no preset 'hal'" in capsys.readouterr().err


def test_a_planner_that_fails_ends_the_preflight():
    class Gone:
        name, kind = "gone", "model"

        def propose(self, messages):
            raise PlannerError("the vendor is gone")

    with pytest.raises(PlannerError, match="the vendor is gone"):
        preflight(Gone())


@given(st.integers(0, 200), st.integers(1, 200))
def test_the_interval_holds_the_rate_and_stays_within_0_and_1(successes, trials):
    successes = min(successes, trials)
    low, high = wilson(successes, trials)
    assert 0 <= low <= successes / trials + 1e-12
    assert successes / trials - 1e-12 <= high <= 1


def test_the_interval_is_wilsons():
    low, high = wilson(8, 10)
    assert math.isclose(low, 0.4902, abs_tol=1e-4)
    assert math.isclose(high, 0.9433, abs_tol=1e-4)
    assert wilson(0, 0) is None
