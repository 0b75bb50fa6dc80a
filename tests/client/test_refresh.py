"""Asking before use: nothing stale is tried, and what took its place is there already."""

import asyncio
import json

import httpx2
import pytest

from shelflife.client import Exchange, Reply
from shelflife.client.events import Evicted, Reason, Stored
from shelflife.client.sending import carried_by, precondition_for
from shelflife.contract.merging import patch_between
from shelflife.contract.positions import AT_HEADER
from shelflife.contract.preconditions import PRECONDITION_HEADER
from tests.acme_world import CONTROL, FREE, FUNDING_1, GOVERNED, rotate
from tests.client.agents import Agent, knows, learn, only_get


class Positioned(Agent):
    """Names in every request the position that its memory knows."""

    def ask(self, question):
        self.asked.append(question.url)
        response = self.http.request(
            question.method, question.url, content=question.body, headers=dict(question.headers)
        )
        return Reply(response.status_code, response.content)

    def call(self, request):
        method, path = self.operation.split(" ")
        headers = {AT_HEADER: self.memory.contract_at(self.origin)}
        response = self.http.request(method, self.origin + path, json=request, headers=headers)
        self.memory.observe(self.exchange(request, response))
        return response

    def exchange(self, request, response):
        named = response.request.headers.get(AT_HEADER)
        return super().exchange(request, response)._replace(at=named)


@pytest.fixture(params=["positions", "versions"])
def agent(request, address):
    with (Positioned if request.param == "positions" else Agent)(address) as agent:
        yield agent


@pytest.mark.spec("12.1")
def test_while_nothing_moves_it_costs_one_short_question(agent):
    learn(agent, GOVERNED)
    at = agent.memory.position(agent.origin)
    assert agent.memory.refresh(agent.origin) == []
    [asked] = agent.asked
    question = "/contract/state" if at is None else f"/contract/changes?from={at}&nonce="
    assert asked.removeprefix(agent.origin).startswith(question)
    assert knows(agent, GOVERNED) == [{"promo_code": "SUMMERSALE25"}]


@pytest.mark.spec("12.1")
def test_what_has_gone_stale_is_dropped_before_it_is_used(agent, provider):
    learn(agent, GOVERNED, CONTROL)
    rotate(provider)
    [evicted] = agent.memory.refresh(agent.origin, only_get(agent.ask))
    assert evicted.reason is Reason.ROW_CHANGED
    assert knows(agent, GOVERNED) == []
    assert knows(agent, CONTROL) == [{"currency": "eur"}]


@pytest.mark.spec("12.1")
def test_what_took_its_place_is_there_without_a_request_that_failed(agent, provider):
    learn(agent, GOVERNED, FUNDING_1)
    rotate(provider)
    happened = agent.memory.refresh(agent.origin)
    assert [type(event) for event in happened] == [Evicted, Stored]
    assert knows(agent, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]
    assert agent.http.post(
        agent.origin + "/subscriptions", json=GOVERNED | {"promo_code": "WINTERLAUNCH26"}
    ).is_success
    assert agent.memory.statistics.precision == 1.0


def test_a_fix_that_is_not_needed_any_more_just_goes(agent, provider):
    learn(agent, GOVERNED)
    provider.registry.reload_table("required_promo_policy", remove=["plan_partner_growth"])
    assert [type(event) for event in agent.memory.refresh(agent.origin)] == [Evicted]
    assert knows(agent, GOVERNED) == []


def test_nothing_known_is_nothing_to_ask(agent):
    assert agent.memory.refresh(agent.origin) == []
    assert agent.asked == []


def test_a_server_that_does_not_answer_changes_nothing(agent, provider):
    learn(agent, GOVERNED)
    rotate(provider)
    for fetched in (None, Reply(500, b""), Reply(404, b"{}")):
        assert agent.memory.refresh(agent.origin, lambda question, fetched=fetched: fetched) == []
    assert knows(agent, GOVERNED) == [{"promo_code": "SUMMERSALE25"}]


def test_nonsense_in_place_of_the_fresh_fix_leaves_the_memory_without(agent, provider):
    learn(agent, GOVERNED)
    rotate(provider)
    agent.memory.refresh(
        agent.origin, lambda question: agent.ask(question) if question.body is None else Reply(200, b"{")
    )
    agent.call(FREE)
    assert knows(agent, GOVERNED) == []


def test_asynchronously_it_is_the_same(agent, provider):
    learn(agent, GOVERNED)
    rotate(provider)

    async def story():
        async with httpx2.AsyncClient(trust_env=False) as http:

            async def ask(question):
                response = await http.request(
                    question.method, question.url, content=question.body, headers=dict(question.headers)
                )
                return Reply(response.status_code, response.content)

            return await agent.memory.refresh_async(agent.origin, ask)

    assert [type(event) for event in asyncio.run(story())] == [Evicted, Stored]
    assert knows(agent, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]


def test_a_refresh_lifts_a_doubt(agent):
    learn(agent, GOVERNED)
    headers = {"content-type": "application/json"}
    agent.memory.observe(
        Exchange(agent.origin, agent.operation, {}, Reply(200, b'{"table_versions": 5}', headers))
    )
    assert knows(agent, GOVERNED) == []
    agent.memory.refresh(agent.origin)
    assert knows(agent, GOVERNED) == [{"promo_code": "SUMMERSALE25"}]


@pytest.mark.spec("12.7")
def test_the_server_says_what_it_would_suggest_and_carries_nothing_out(address):
    with httpx2.Client(base_url=address, trust_env=False) as http:
        asked = {"operation": "POST /subscriptions", "request": {"plan": "plan_partner_growth"}}
        told = http.post("/contract/fixes", json=asked)
        assert told.status_code == 200
        [suggestion] = told.json()["recovery_feedback"]["suggestions"]
        assert suggestion["parameters"] == {"promo_code": "SUMMERSALE25"}
        assert suggestion["when"] == {"plan": "plan_partner_growth"}
        for operation in ("x", "GET /subscriptions", "POST /nowhere", ""):
            nothing = http.post("/contract/fixes", json={"operation": operation, "request": {}})
            assert nothing.status_code == 404
            assert nothing.json() == {
                "success": False,
                "error": "fixes of this operation are told only to clients that make the request",
            }
        for body in (b"{", b"[]", json.dumps({"request": {}}).encode()):
            assert http.post("/contract/fixes", content=body).status_code in (400, 422)


def test_a_precondition_is_made_of_what_the_carried_entries_rest_on(address, provider):
    with Positioned(address) as agent:
        learn(agent, GOVERNED)
        entries = agent.recall(GOVERNED)
        sent = GOVERNED | {"promo_code": "SUMMERSALE25"}
        assert carried_by(sent, entries) == entries
        assert carried_by(GOVERNED, entries) == []
        was = patch_between(sent, GOVERNED)
        assert was == {"promo_code": None}
        precondition = precondition_for(agent.memory.position(agent.origin), entries, was)
        assert precondition.cells == {
            "required_promo_policy": {"plan_partner_growth": ("code_of",)},
            "active_csm_codes": {"plan_partner_growth": ("code",)},
            "promo_eligibility": {"SUMMERSALE25": ()},
        }
        assert precondition.rules == ("active_csm_codes:requires_recognition",)
        assert precondition.policies == (entries[0].grounds.policy,)
        headers = {
            PRECONDITION_HEADER: precondition.header,
            AT_HEADER: agent.memory.contract_at(agent.origin),
        }
        url = agent.origin + "/subscriptions"
        provider.registry.reload_table("token_funding_map", set={"another": {"funding": "debit"}})
        assert agent.http.post(url, json=sent, headers=headers).status_code == 201
        rotate(provider)
        refused = agent.http.post(url, json=sent, headers=headers)
        assert refused.status_code == 412
        agent.memory.observe(agent.exchange(GOVERNED, refused))
        assert knows(agent, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]
