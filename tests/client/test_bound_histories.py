"""The bound over random histories with an honest server, and against a server that moves with everything it says."""

import tempfile
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shelflife.client.guard import Guard
from shelflife.client.in_process import InProcessStore
from shelflife.client.sqlite import SqliteStore
from shelflife.testing import serving
from tests.acme_world import FUNDING_1, GOVERNED, Restless
from tests.client.agents import Agent
from tests.client.histories import HISTORIES, assert_nothing_stale, drifts
from tests.programs import programs
from tests.worlds import dense_fields, dense_worlds, rule_lists

STORES = ["in process", "sqlite"]


@contextmanager
def opened(kind):
    """A store of a kind, for as long as a block runs."""
    if kind == "in process":
        yield InProcessStore()
        return
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "memory.db")
        yield store
        store.close()


def check(agent, request, ask=None):
    return agent.memory.revalidate(agent.origin, agent.operation, request, ask)


def handed_out(agent, request):
    return {entry.id for entry in agent.recall(request)}


@settings(max_examples=HISTORIES // 2)
@given(
    content=dense_worlds,
    declared=rule_lists,
    program_list=st.lists(programs, min_size=1, max_size=3),
    requests=st.lists(dense_fields, min_size=1, max_size=3),
    rounds=st.lists(drifts, min_size=1, max_size=3),
    most=st.sampled_from([0, 1, 3]),
    kind=st.sampled_from(STORES),
)
def test_with_an_honest_server_nothing_stale_is_handed_out_and_nothing_good_is_lost(
    world, world_address, http, content, declared, program_list, requests, rounds, most, kind
):
    world.make(content, declared, program_list)
    with opened(kind) as store:
        bounded = Agent(world_address, "POST /x", http=http, store=store, most_evictions=most)
        unbounded = Agent(world_address, "POST /x", http=http, most_evictions=None)
        agents = (bounded, unbounded)
        for agent in agents:
            for request in requests:
                agent.call(request)
        for events in rounds:
            for event in events:
                world.drift(event)
            unbounded.memory.refresh(world_address)
            for request in requests:
                bounded.asked.clear()
                check(bounded, request)
                if not bounded.asked:
                    bounded.memory.refresh(world_address)
                    check(bounded, request)
                assert_nothing_stale(world, bounded, requests)
                assert handed_out(bounded, request) >= handed_out(unbounded, request)
            for agent in agents:
                agent.call(requests[0])
            assert_nothing_stale(world, bounded, requests)


@pytest.mark.parametrize("names_positions", [False, True])
@settings(max_examples=HISTORIES // 3)
@given(
    content=dense_worlds,
    declared=rule_lists,
    program_list=st.lists(programs, min_size=1, max_size=2),
    requests=st.lists(dense_fields, min_size=1, max_size=2),
    rounds=st.lists(drifts, min_size=1, max_size=4),
    answered=st.lists(st.booleans(), min_size=1, max_size=5),
    most=st.sampled_from([0, 1, 3, 32]),
)
def test_nothing_stale_is_handed_out_however_seldom_the_server_answers(
    world,
    world_address,
    http,
    names_positions,
    content,
    declared,
    program_list,
    requests,
    rounds,
    answered,
    most,
):
    world.make(content, declared, program_list)
    agent = Agent(world_address, "POST /x", http=http, names_positions=names_positions, most_evictions=most)
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
            for request in requests:
                check(agent, request)
                assert_nothing_stale(world, agent, requests)


def statuses(agent, requests, round_count):
    """What comes of requests that are checked and amended before they are sent."""
    outcomes = []
    for _ in range(round_count):
        for request in requests:
            check(agent, request)
            amended = agent.memory.amend(
                agent.origin, agent.operation, request, Guard(decides_for_caller=True)
            )
            outcomes.append(agent.call(amended.request).status_code)
    return outcomes


@pytest.mark.parametrize("kind", STORES)
def test_a_server_that_moves_with_everything_it_says_costs_round_trips_and_not_the_memory(kind):
    restless = Restless()
    with (
        serving(restless) as address,
        opened(kind) as store,
        Agent(address, store=store, most_evictions=0) as agent,
    ):
        assert statuses(agent, [GOVERNED, FUNDING_1], 6) == [422, 422] + [201, 201] * 5
        restless.said.clear()
        assert statuses(agent, [GOVERNED], 1) == [201]
        assert restless.said == ["/contract/fixes", "/subscriptions", "/contract/changes"]


@pytest.mark.parametrize("kind", STORES)
def test_an_answer_counts_as_it_stands_when_the_server_moves_on_before_it_says_what_changed(kind):
    restless = Restless()
    with (
        serving(restless) as address,
        opened(kind) as store,
        Agent(address, store=store, most_evictions=0) as agent,
    ):
        statuses(agent, [GOVERNED, FUNDING_1], 2)
        check(agent, GOVERNED)
        restless.said.clear()
        check(agent, FUNDING_1)
        assert restless.said == ["/contract/fixes", "/contract/changes"]
        assert len(agent.recall(FUNDING_1)) == 1
        assert agent.recall(GOVERNED) == []


@pytest.mark.parametrize("kind", STORES)
def test_without_a_bound_it_costs_the_memory(kind):
    with (
        serving(Restless()) as address,
        opened(kind) as store,
        Agent(address, store=store, most_evictions=None) as agent,
    ):
        assert statuses(agent, [GOVERNED, FUNDING_1], 6) == [422] * 12
        assert list(store.entries()) == []


@pytest.mark.parametrize("kind", STORES)
def test_when_the_bound_is_reached_the_server_has_nothing_more_to_take(kind):
    with (
        serving(Restless()) as address,
        opened(kind) as store,
        Agent(address, store=store, most_evictions=3) as agent,
    ):
        outcomes = statuses(agent, [GOVERNED], 12)
        assert outcomes[-4:] == [201] * 4
        assert agent.memory.statistics.stale_prevented == 3
