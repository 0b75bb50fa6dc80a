"""A bound on evictions: a server that moves with every response costs round trips, and not the memory."""

import asyncio
import json

import httpx2
import msgspec
import pytest

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.client import Exchange, Memory, Reply
from shelflife.client.events import Evicted, Reason, Stored, Suspected
from shelflife.client.guard import Guard
from shelflife.client.strategies import Exact
from shelflife.lab.arms import ARMS
from shelflife.testing import serving
from tests.acme_world import CONTROL, FREE, FUNDING_1, GOVERNED, bump, rotate, stir
from tests.client.agents import Agent, knows, learn, posting


@pytest.fixture
def agent(address, store, clock):
    with Agent(address, store=store, clock=clock, most_evictions=0) as agent:
        yield agent


def check(agent, request, **options):
    return agent.memory.revalidate(agent.origin, agent.operation, request, **options)


def suspects(agent):
    return [entry.parameters for entry in agent.memory.store.entries() if entry.is_suspect]


def test_what_goes_beyond_the_bound_is_kept_and_not_handed_out(agent, provider):
    learn(agent, GOVERNED, CONTROL)
    rotate(provider)
    agent.call(FREE)
    [suspected] = agent.of(Suspected)
    assert suspected.why == "more than 0 remembered fixes of this server would have gone within an hour"
    assert (suspected.root, suspected.count) == (agent.origin, 1)
    assert agent.of(Evicted) == []
    assert suspects(agent) == [{"promo_code": "SUMMERSALE25"}]
    assert knows(agent, GOVERNED) == []
    assert agent.memory.amend(agent.origin, agent.operation, GOVERNED).applied == []
    assert knows(agent, CONTROL) == [{"currency": "eur"}]
    assert agent.memory.statistics.suspected == 1
    assert agent.memory.statistics.stale_prevented == 0


def test_within_the_bound_all_is_as_ever(address, provider):
    with Agent(address) as agent:
        learn(agent, GOVERNED)
        rotate(provider)
        agent.call(FREE)
        assert [event.reason for event in agent.of(Evicted)] == [Reason.ROW_CHANGED]
        assert agent.of(Suspected) == []
        assert suspects(agent) == []
        assert check(agent, GOVERNED) == []


def rotate_to(provider, code):
    provider.registry.reload_table("active_csm_codes", set={"plan_partner_growth": {"code": code}})


def test_an_hour_later_as_many_may_go_again(address, provider, store, clock):
    with Agent(address, store=store, clock=clock, most_evictions=1) as agent:
        outcomes = []
        for code in ("WINTERLAUNCH26", "SUMMERSALE25", "WINTERLAUNCH26"):
            learn(agent, GOVERNED)
            rotate_to(provider, code)
            agent.call(FREE)
            outcomes += [type(event) for event in agent.events if not isinstance(event, Stored)]
            clock.now += 1800
        assert outcomes == [Evicted, Suspected, Evicted]


def test_one_movement_beyond_the_bound_takes_nothing_at_all(address, provider, store):
    with Agent(address, store=store, most_evictions=1) as agent:
        learn(agent, GOVERNED, FUNDING_1, CONTROL)
        stir(provider, 1)
        agent.call(FREE)
        assert (len(agent.of(Evicted)), len(suspects(agent))) == (0, 2)
        assert knows(agent, CONTROL) == [{"currency": "eur"}]


def test_the_bound_is_that_of_one_server(address, provider, store):
    other_provider = acme_provider()
    with (
        serving(acme_app(other_provider)) as other,
        Agent(address, store=store, most_evictions=1) as agent,
    ):
        for origin, moved in ((address, provider), (other, other_provider)):
            agent.origin = origin
            learn(agent, GOVERNED)
            rotate(moved)
            agent.call(FREE)
            assert (len(agent.of(Evicted)), len(agent.of(Suspected))) == (1, 0)


def test_a_suspect_that_is_suspected_again_is_told_once(agent, provider):
    learn(agent, GOVERNED)
    for number in range(3):
        rotate_to(provider, f"C{number}")
        agent.call(FREE)
    assert len(agent.of(Suspected)) == 1


def test_a_check_that_finds_nothing_suspect_asks_nothing(agent, provider):
    learn(agent, GOVERNED, CONTROL)
    assert check(agent, GOVERNED) == []
    rotate(provider)
    agent.call(FREE)
    agent.asked.clear()
    assert check(agent, CONTROL) == []
    assert check(agent, FREE) == []
    assert agent.asked == []


def test_what_the_server_gives_again_can_be_recalled(agent, provider):
    learn(agent, FUNDING_1)
    stir(provider, 1)
    agent.call(FREE)
    assert (knows(agent, FUNDING_1), len(suspects(agent))) == ([], 1)
    agent.asked.clear()
    assert [type(event) for event in check(agent, FUNDING_1)] == [Stored]
    assert agent.asked == [f"{agent.origin}/contract/fixes"]
    assert len(knows(agent, FUNDING_1)) == 1
    assert suspects(agent) == []


def test_another_value_takes_the_place_of_a_suspect(agent, provider):
    learn(agent, GOVERNED)
    rotate(provider)
    agent.call(FREE)
    evicted, stored = check(agent, GOVERNED)
    assert evicted.reason is Reason.UNCONFIRMED
    assert stored.entry.parameters == {"promo_code": "WINTERLAUNCH26"}
    assert knows(agent, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]


def test_what_the_server_does_not_give_again_goes(agent, provider):
    learn(agent, GOVERNED)
    provider.registry.reload_table("required_promo_policy", remove=["plan_partner_growth"])
    agent.call(FREE)
    [evicted] = check(agent, GOVERNED)
    assert evicted.reason is Reason.UNCONFIRMED
    assert list(agent.memory.store.entries()) == []
    assert agent.memory.statistics.evictions == {"unconfirmed": 1}


def test_a_response_that_gives_it_again_does_as_well(agent, provider):
    learn(agent, GOVERNED)
    rotate(provider)
    agent.call(FREE)
    agent.call(GOVERNED)
    assert knows(agent, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]
    assert suspects(agent) == []


@pytest.mark.parametrize(
    "answer",
    [
        None,
        Reply(500, b""),
        Reply(404, b"{}"),
        Reply(200, b"{}"),
        Reply(200, b"{"),
        Reply(200, b'{"recovery_feedback": {"suggestions": []}}'),
    ],
)
def test_without_a_usable_answer_it_stays_suspect(agent, provider, answer):
    learn(agent, GOVERNED)
    rotate(provider)
    agent.call(FREE)
    asked = []

    def send(question):
        asked.append(json.loads(question.body))
        return answer

    agent.memory.revalidate(agent.origin, agent.operation, GOVERNED, posting(agent, send))
    assert asked == [{"operation": agent.operation, "request": GOVERNED}]
    assert knows(agent, GOVERNED) == []
    assert suspects(agent) == [{"promo_code": "SUMMERSALE25"}]
    agent.memory.revalidate(agent.origin, agent.operation, GOVERNED, lambda question: None)
    assert suspects(agent) == [{"promo_code": "SUMMERSALE25"}]


def test_a_movement_that_the_answer_shows_takes_only_what_it_touches(agent, provider):
    learn(agent, GOVERNED, FUNDING_1, CONTROL)
    rotate(provider)
    agent.call(FREE)
    bump(provider)
    assert [type(event) for event in check(agent, GOVERNED)][:2] == [Evicted, Stored]
    assert all(knows(agent, request) for request in (GOVERNED, FUNDING_1, CONTROL))


def test_an_answer_that_others_have_overtaken_is_asked_for_again(agent, provider):
    learn(agent, GOVERNED)
    rotate(provider)
    agent.call(FREE)
    answers = []

    def overtaken(question):
        answers.append(agent.ask(question))
        if len(answers) == 1:
            rotate_to(provider, "SUMMERSALE25")
            agent.call(FREE)
        return answers[-1]

    agent.memory.revalidate(agent.origin, agent.operation, GOVERNED, posting(agent, overtaken))
    assert len(answers) == 2
    assert knows(agent, GOVERNED) == [{"promo_code": "SUMMERSALE25"}]


def test_a_doubt_that_arises_while_the_server_is_asked_is_settled_first(agent, provider):
    learn(agent, GOVERNED)
    rotate(provider)
    agent.call(FREE)
    headers = {"content-type": "application/json"}
    malformed = Exchange(agent.origin, agent.operation, {}, Reply(200, b'{"table_versions": 5}', headers))

    def doubted(question):
        answer = agent.ask(question)
        rotate_to(provider, "SUMMERSALE25")
        agent.memory.observe(malformed)
        return answer

    agent.memory.revalidate(agent.origin, agent.operation, GOVERNED, posting(agent, doubted))
    assert knows(agent, GOVERNED) in ([], [{"promo_code": "SUMMERSALE25"}])
    agent.memory.observe(malformed)
    check(agent, GOVERNED)
    agent.memory.refresh(agent.origin)
    assert knows(agent, GOVERNED) in ([], [{"promo_code": "SUMMERSALE25"}])


def test_an_origin_in_doubt_is_asked_for_its_state_first(agent, provider):
    learn(agent, GOVERNED)
    rotate(provider)
    agent.call(FREE)
    headers = {"content-type": "application/json"}
    agent.memory.observe(
        Exchange(agent.origin, agent.operation, {}, Reply(200, b'{"table_versions": 5}', headers))
    )
    agent.asked.clear()
    agent.memory.revalidate(
        agent.origin,
        agent.operation,
        GOVERNED,
        ask=lambda question: None if question.body is None else agent.ask(question),
    )
    assert agent.asked == []
    check(agent, GOVERNED)
    assert knows(agent, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]


def test_what_a_request_finds_once_it_is_amended_is_checked_too(address, store):
    with Agent(address, operation="POST /x", store=store, most_evictions=0) as agent:

        def told(version, *fixes):
            suggestions = [
                {
                    "type": name.upper(),
                    "parameters": {name: 1},
                    "cache_hint": "cacheable",
                    "table": "t",
                    "tables": [{"table": "t", "version": version}],
                    "rows": ["t:k"],
                    "when": when,
                    "unless": {name: [1]},
                }
                for name, when in fixes
            ]
            feedback = {"suggestions": suggestions}
            return json.dumps({"table_versions": {"t": version}, "recovery_feedback": feedback}).encode()

        first, second = ("a", {}), ("b", {"a": 1})

        def send(question):
            request = json.loads(question.body)["request"]
            due = [second] if request == {"a": 1} else [first] if not request else []
            asked.append(request)
            return Reply(200, told("2", *due))

        asked = []
        headers = {"content-type": "application/json"}
        for request, fixes in (({}, [first]), ({"a": 1}, [second])):
            agent.memory.observe(
                Exchange(agent.origin, agent.operation, request, Reply(422, told("1", *fixes), headers)),
                lambda question: None,
            )
        agent.memory.observe(
            Exchange(agent.origin, agent.operation, {"x": 1}, Reply(200, told("2"), headers)),
            lambda question: None,
        )
        assert len(suspects(agent)) == 2
        agent.memory.revalidate(agent.origin, agent.operation, {}, posting(agent, send))
        assert asked == [{}, {"a": 1}]
        assert agent.memory.amend(agent.origin, agent.operation, {}).request == {"a": 1, "b": 1}


def test_what_the_guard_refuses_is_not_asked_about(agent, provider):
    learn(agent, GOVERNED)
    rotate(provider)
    agent.call(FREE)
    agent.asked.clear()
    assert check(agent, GOVERNED, guard=Guard(operations=frozenset())) == []
    assert agent.asked == []
    assert check(agent, GOVERNED, guard=Guard())


def test_asynchronously_it_is_the_same(agent, provider):
    learn(agent, GOVERNED)
    rotate(provider)
    agent.call(FREE)

    async def story():
        async with httpx2.AsyncClient(trust_env=False) as http:

            async def send(question):
                method = "GET" if question.body is None else "POST"
                response = await http.request(method, question.url, content=question.body)
                return Reply(response.status_code, response.content)

            return await agent.memory.revalidate_async(agent.origin, agent.operation, GOVERNED, send)

    assert [type(event) for event in asyncio.run(story())] == [Evicted, Stored]
    assert knows(agent, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]


def test_suspects_are_forgotten_and_distrusted_like_all_others(agent, provider, store):
    learn(agent, GOVERNED, CONTROL)
    rotate(provider)
    agent.call(FREE)
    assert agent.memory.forget(agent.origin) == 2
    learn(agent, GOVERNED)
    rotate_to(provider, "X")
    agent.call(FREE)
    assert len(suspects(agent)) == 1
    with Agent(agent.origin, store=store, strategy=ARMS["A2"]) as another:
        assert check(another, GOVERNED) == []
        another.call(FREE)
        assert [event.reason for event in another.of(Evicted)] == [Reason.ANOTHER_STRATEGY]
        assert list(store.entries()) == []


class Beside(Exact):
    """A second value stands beside the first."""

    name = "beside"

    def files(self, entry):
        return msgspec.structs.replace(super().files(entry), slot=entry.id)


def test_a_strategy_that_keeps_older_values_hands_no_suspect_out_either(address, provider, store):
    with Agent(address, store=store, strategy=Beside(), most_evictions=0) as agent:
        learn(agent, GOVERNED)
        rotate(provider)
        agent.call(FREE)
        assert (knows(agent, GOVERNED), len(suspects(agent))) == ([], 1)
        check(agent, GOVERNED)
        assert knows(agent, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]
        assert suspects(agent) == []


@pytest.mark.parametrize("wrong", [-1, 1.5, "3", True])
def test_a_bound_is_a_whole_number(wrong):
    with pytest.raises(ValueError, match="a whole number from 0 on"):
        Memory(most_evictions=wrong)
