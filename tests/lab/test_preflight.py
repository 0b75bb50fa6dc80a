"""The compliance preflight."""

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelflife.cli import main
from shelflife.lab.intervals import wilson
from shelflife.lab.planners import PlannerError
from shelflife.lab.planners.simulated import simulated_planner
from shelflife.lab.preflight import calls_of, preflight


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
    assert shape.follows_the_server is False
    assert all(finding.expected_saving is None for finding in shape.findings)
    assert "did not take over the server's own fix to add a field" in shape.recommendation
    assert "is not known" in shape.recommendation


class Answering:
    """A planner that answers the n-th call, from one, as another one would."""

    kind = "simulated"

    def __init__(self, name, answer):
        self.name, self.answer = name, answer
        self.conversations = []

    def propose(self, messages):
        self.conversations.append(messages)
        return self.answer(len(self.conversations), messages)


def as_planner(name, messages):
    return simulated_planner(name, 0, frozenset()).propose(messages)


def prose(messages):
    return msgspec.structs.replace(as_planner("compliant", messages), text="I would rather not.")


def adding_once_in(count):
    return Answering(
        "sometimes",
        lambda call, messages: as_planner("conservative" if call % count else "compliant", messages),
    )


def test_a_rate_that_cannot_be_told_yet_is_called_probable():
    [shape, *_] = preflight(adding_once_in(8), trials=8).shapes
    assert complied(shape) == {"2": 1, "3": 1, "apply": 8}
    assert "probably pays for fixes that add a field, at Level 3" in shape.recommendation


def test_no_success_at_all_counts_as_sure_only_after_enough_trials():
    few, enough = (tried("conservative", trials)["add a field"].recommendation for trials in (4, 5))
    assert "probably will not pay" in few
    assert "prompt will not pay" in enough


def remembers(messages):
    return len(messages) == 2 and ("amend" in messages[1].content or "parameters" in messages[1].content)


def dearer_with_memory(times, *, adds_every=1):
    """Complies, at every n-th call, and pays so many times as much for a prompt that has a memory in it."""

    def answer(call, messages):
        if not remembers(messages):
            return as_planner("compliant", messages)
        given = as_planner("conservative" if call % adds_every else "compliant", messages)
        usage = msgspec.structs.replace(given.usage, prompt=int(given.usage.prompt * times))
        return msgspec.structs.replace(given, usage=usage)

    return Answering("dear", answer)


def test_a_loss_over_the_whole_interval_is_sure():
    [shape, *_] = preflight(dearer_with_memory(20), trials=8).shapes
    assert complied(shape) == {"2": 8, "3": 8, "apply": 8}
    assert shape.findings[1].saving_high <= 0
    assert "Memory in the prompt will not pay" in shape.recommendation


def test_a_loss_that_the_interval_leaves_open_is_called_probable():
    [shape, *_] = preflight(dearer_with_memory(2.2, adds_every=2), trials=8).shapes
    assert shape.findings[1].expected_saving <= 0 < shape.findings[1].saving_high
    assert "Memory in the prompt probably will not pay" in shape.recommendation


def knowing(messages):
    """Knows every answer without being told."""
    answer = as_planner("forgetful", messages)
    request = json.loads(answer.text)
    known = {"promo_code": "SUMMERSALE25"} if request.get("plan") == "plan_partner_growth" else {}
    return msgspec.structs.replace(answer, text=json.dumps(request | known))


def test_a_planner_that_is_right_without_memory_needs_none_and_saves_nothing():
    [shape, *_] = preflight(Answering("knowing", lambda call, messages: knowing(messages)), trials=5).shapes
    assert complied(shape) == {"2": 5, "3": 5, "apply": 5}
    assert shape.follows_the_server is None
    assert all(finding.expected_saving <= 0.01 for finding in shape.findings)
    assert "needs no memory for fixes that add a field" in shape.recommendation


def test_an_answer_without_a_request_says_nothing_about_following_the_server():
    hesitant = Answering(
        "hesitant",
        lambda call, messages: prose(messages) if call <= 2 else as_planner("compliant", messages),
    )
    [shape, *_] = preflight(hesitant, trials=5).shapes
    assert shape.follows_the_server is True
    assert shape.findings[1].expected_saving > 0


def test_a_planner_that_never_makes_a_request_never_saw_the_fix():
    silent = Answering("silent", lambda call, messages: prose(messages))
    [shape, *_] = preflight(silent, trials=1).shapes
    assert shape.follows_the_server is None
    assert "did not come to see the server's fix to add a field" in shape.recommendation
    assert len(silent.conversations) == 3 * (5 + 3)


def test_the_memory_does_not_learn_from_what_the_planner_sends():
    """A planner that always asks for oats gets a fix for oats, which a memory that watched would apply the next time."""

    def astray(call, messages):
        answer = as_planner("forgetful", messages)
        odd = {"ingredient": "oats", "brand": "quaker_rolled"}
        return msgspec.structs.replace(answer, text=json.dumps(json.loads(answer.text) | odd))

    shapes = {shape.shape: shape for shape in preflight(Answering("astray", astray), trials=3).shapes}
    assert complied(shapes["rewrite a value"]) == {"2": 0, "3": 0, "apply": 0}
    assert "apply 0 of 3" in shapes["rewrite a value"].recommendation


def test_no_two_trials_of_a_way_are_of_the_same_task_while_there_are_others():
    planner = Answering("compliant", lambda call, messages: as_planner("compliant", messages))
    preflight(planner, trials=15)
    tasks = [messages[1].content.splitlines()[0] for messages in planner.conversations if len(messages) == 2]
    for shape in range(3):
        without_memory, *trials = tasks[shape * 46 : shape * 46 + 46]
        assert len({without_memory, *trials}) == 16


def test_the_calls_are_counted_beforehand():
    done = []
    preflight(simulated_planner("compliant", 0, frozenset()), trials=2, on_call=done.append)
    assert sum(done) == calls_of(2) == 24


def test_the_command_has_a_table_for_people_and_json_for_programs(capsys):
    assert main("lab preflight --planner conservative --trials 5".split()) == 0
    shown = capsys.readouterr().out
    assert "conservative (simulated), 5 valid fixes of each shape in each way" in shown
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
