"""The rules of positions, held by a model: hand-made traces, random histories, and mutants of the traces.

`SHELFLIFE_TESTS=long` plays many more. A history that breaks something is shrunk and told.
"""

import os
import random

import pytest

from tests.positions.client import Rules
from tests.positions.environments import ENVIRONMENTS
from tests.positions.histories import Environment
from tests.positions.searching import broken, drawn, mutants, searched, shrunk, told
from tests.positions.traces import TRACES, UNDER_ONE_NAME, fitting

IS_LONG = os.environ.get("SHELFLIFE_TESTS") == "long"
SEEDS = range(1, 26) if IS_LONG else (1,)
HISTORY_COUNT = 1_000 if IS_LONG else 400
"""For each seed and environment, of either kind: drawn, and mutated."""

NEEDLESS = {"old_is_adopted", "suspects_answered_without_doubt"}
"""Rules that save questions, or are cautious, and without which nothing was found to break."""


def assert_nothing_breaks(histories, environment, rules=None):
    found = searched(histories, environment, rules)
    if found.shortest is not None:
        pytest.fail(told(found.shortest, environment, rules), pytrace=False)


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_holds_with_all_rules(name):
    trace = TRACES[name]
    assert broken(trace.moves, trace.environment) is None, told(trace.moves, trace.environment)


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_breaks_without_its_rule(name):
    trace = TRACES[name]
    assert broken(trace.moves, trace.environment, Rules()._replace(**{trace.rule: False}))


def test_every_rule_is_needed_by_a_trace():
    ours = {rule for rule, is_ours in Rules()._asdict().items() if is_ours}
    assert {trace.rule for trace in TRACES.values()} == ours - NEEDLESS


@pytest.mark.parametrize("name", UNDER_ONE_NAME)
def test_a_log_that_begins_anew_under_its_old_name_is_taken_for_what_it_was(name):
    trace = UNDER_ONE_NAME[name]
    assert broken(trace.moves, trace.environment)
    assert shrunk(trace.moves, trace.environment) == trace.moves
    assert broken(trace.moves, *trace.repaired) is None, told(trace.moves, *trace.repaired)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_random_histories_hold(name, seed):
    environment = ENVIRONMENTS[name]
    assert_nothing_breaks(drawn(random.Random(seed), environment, HISTORY_COUNT), environment)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_mutants_of_the_traces_hold(name, seed):
    environment = ENVIRONMENTS[name]
    histories = mutants(random.Random(seed), environment, fitting(environment), HISTORY_COUNT)
    assert_nothing_breaks(histories, environment)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rule", sorted(NEEDLESS))
def test_mutants_of_the_traces_hold_without_what_is_needless(rule, seed):
    environment = ENVIRONMENTS["all that servers do"]
    histories = mutants(random.Random(seed), environment, fitting(environment), HISTORY_COUNT)
    assert_nothing_breaks(histories, environment, Rules()._replace(**{rule: False}))


def test_what_is_left_of_a_long_history_is_short_and_told():
    trace, chance = TRACES["V2: moves of a former life begin at the number that is known"], random.Random(1)
    without_marks = Rules(marks=False)
    noise = next(drawn(chance, Environment(), 1))
    left = shrunk([*trace.moves, *noise], trace.environment, without_marks)
    assert left == trace.moves
    assert told(left, trace.environment, without_marks).splitlines()[-2:] == [
        "      what was said at 6 is Forward: at 1/c00002; remembers a=(1, 0)",
        "=> S: a is recalled as (1, 0) and is (0, 0); there was evidence (gone by) at 10",
    ]
