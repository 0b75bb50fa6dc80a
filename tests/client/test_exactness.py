"""Exactness, through the real server: nothing recalled that the server would not say now, nothing dropped whose reads stand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.agents import Agent
from tests.client.histories import HISTORIES, assert_exact, drifts
from tests.programs import programs
from tests.worlds import dense_fields, dense_worlds, rule_lists


@pytest.mark.parametrize("names_positions", [False, True])
@settings(max_examples=HISTORIES)
@given(
    content=dense_worlds,
    declared=rule_lists,
    program_list=st.lists(programs, min_size=1, max_size=3),
    requests=st.lists(dense_fields, min_size=1, max_size=4),
    rounds=st.lists(st.tuples(drifts, st.integers(0, 4)), min_size=1, max_size=3),
)
def test_the_default_strategy_is_exact(
    world, world_address, http, names_positions, content, declared, program_list, requests, rounds
):
    world.make(content, declared, program_list)
    agent = Agent(world_address, "POST /x", http=http, names_positions=names_positions)
    assert_exact(world, agent, requests, rounds)
