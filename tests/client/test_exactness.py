"""Exactness, through the real server: nothing recalled that the server would not say now, nothing dropped whose reads stand."""

from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.agents import Agent
from tests.client.histories import HISTORIES, assert_exact, assert_nothing_stale, drifts
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


@pytest.mark.parametrize("names_positions", [False, True])
@settings(max_examples=HISTORIES // 3)
@given(
    content=dense_worlds,
    declared=rule_lists,
    program_list=st.lists(programs, min_size=1, max_size=2),
    requests=st.lists(dense_fields, min_size=1, max_size=2),
    rounds=st.lists(drifts, min_size=1, max_size=4),
    answered=st.lists(st.booleans(), min_size=1, max_size=5),
)
def test_nothing_stale_is_recalled_however_seldom_the_server_answers(
    world, world_address, http, names_positions, content, declared, program_list, requests, rounds, answered
):
    world.make(content, declared, program_list)
    agent = Agent(world_address, "POST /x", http=http, names_positions=names_positions)
    is_answered = cycle(answered)
    agent.asker = lambda question: agent.ask(question) if next(is_answered) else None
    delayed = []
    for events in rounds:
        for request in requests:
            agent.call(request)
        delayed.append(agent.unobserved(requests[0]))
        for event in events:
            world.drift(event)
        agent.call({"unrelated": True})
        assert_nothing_stale(world, agent, requests)
        for late in delayed:
            agent.memory.observe(late)
            assert_nothing_stale(world, agent, requests)
