"""Responses that come late and servers that were rolled back: without an answer nobody can tell one from the other."""

import json

import pytest

from shelflife.client import Memory, Reply
from shelflife.client.events import Evicted, Stored
from shelflife.client.in_process import InProcessStore
from shelflife.lab.arms import ARMS
from tests.acme_world import FREE, FUNDING_1, FUNDS, GOVERNED, rotate
from tests.client.agents import knows, learn
from tests.client.responses import FIX, said

ORIGIN = "http://h:80"


@pytest.fixture(params=["nobody to ask", "an answer that fails", "A2"])
def memory(request):
    if request.param == "A2":
        return Memory(strategy=ARMS["A2"])
    return Memory(ask=None if request.param == "nobody to ask" else lambda question: Reply(500, b""))


def stamped(version, rules=None):
    """A response with a fix, at a version of its table."""
    fix = FIX | {"parameters": {"x": version}, "tables": [{"table": "t", "version": version}]}
    body = {"table_versions": {"t": version}, "recovery_feedback": {"suggestions": [fix]}}
    return said(body | ({"rules_version": rules} if rules else {}))


def values(memory):
    return [entry.parameters["x"] for entry in memory.recall(ORIGIN, "POST /x", {"a": 1})]


def test_a_late_response_from_before_a_change_of_the_rules_teaches_nothing(agent, provider):
    late = agent.unobserved(FUNDING_1)
    provider.registry.reload_rules(remove=[FUNDS])
    learn(agent, FREE)
    agent.memory.observe(late)
    assert agent.of(Stored) == []
    assert knows(agent, FUNDING_1) == []


def test_unasked_a_version_that_has_passed_is_neither_learned_from_nor_returned_to(memory):
    memory.observe(stamped("1"))
    memory.observe(stamped("2"))
    memory.observe(stamped("1"))
    assert values(memory) == []


def test_unasked_nothing_is_learned_of_a_table_until_it_has_a_version_that_was_never_seen(memory):
    for version in ("1", "2", "1", "2", "1"):
        memory.observe(stamped(version))
    assert values(memory) == []
    memory.observe(stamped("3"))
    assert values(memory) == ["3"]


def test_unasked_a_late_response_costs_the_other_tables_nothing(memory):
    other = FIX | {"type": "G", "table": "u", "tables": [{"table": "u", "version": "1"}], "rows": ["u:k"]}
    both = {"table_versions": {"t": "2", "u": "1"}, "recovery_feedback": {"suggestions": [other]}}
    memory.observe(said({"table_versions": {"t": "1", "u": "1"}}))
    memory.observe(said(both))
    memory.observe(said({"table_versions": {"t": "1", "u": "1"}}))
    assert [entry.type for entry in memory.recall(ORIGIN, "POST /x", {})] == ["G"]


def test_unasked_rules_that_have_passed_are_not_returned_to():
    memory = Memory()
    memory.observe(stamped("1", rules="r1"))
    memory.observe(stamped("1", rules="r2"))
    assert values(memory) == ["1"]
    memory.observe(stamped("1", rules="r1"))
    assert values(memory) == []
    memory.observe(stamped("1", rules="r3"))
    assert values(memory) == ["1"]


def test_once_the_server_answers_a_table_in_question_is_learned_of_again():
    memory = Memory()
    for version in ("1", "2", "1"):
        memory.observe(stamped(version))
    state = json.dumps({"table_versions": {"t": "2"}}).encode()
    memory.observe(stamped("2"), ask=lambda question: Reply(200, state))
    assert values(memory) == ["2"]


def test_a_table_that_has_vanished_does_not_come_back_with_a_late_response():
    state = json.dumps({"table_versions": {}}).encode()
    memory = Memory(ask=lambda question: Reply(200, state) if question.url.endswith("/state") else None)
    memory.observe(stamped("1"))
    memory.observe(said({"table_versions": {}}))
    memory.observe(stamped("1"))
    assert values(memory) == []


def test_a_response_that_comes_after_many_versions_is_still_late_to_a_server_that_answers(agent, provider):
    late = agent.unobserved(GOVERNED)
    learn(agent, FREE)
    rotate(provider)
    rows = provider.registry.rows("active_csm_codes")
    for number in range(20):
        provider.registry.reload_table("active_csm_codes", rows, version=f"v{number}")
        agent.call(FREE)
    agent.call(GOVERNED)
    agent.memory.observe(late)
    assert knows(agent, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]


def test_what_has_passed_is_bounded():
    memory = Memory()
    for number in range(100):
        memory.observe(stamped(str(number)))
    assert memory.store.known(ORIGIN).knowledge.superseded == {"t": tuple(str(n) for n in range(91, 99))}


def test_no_server_makes_the_record_of_what_has_passed_grow_without_end():
    memory = Memory()
    for number in range(3):
        memory.observe(said({"table_versions": {f"t{number}_{n}": "1" for n in range(800)}}))
    assert len(memory.store.known(ORIGIN).knowledge.superseded) == 1000


def test_in_doubt_and_with_nobody_to_ask_a_response_teaches_nothing():
    memory = Memory()
    memory.observe(stamped("1"))
    memory.observe(said(b"{"))
    memory.observe(stamped("1"))
    assert values(memory) == []
    memory.observe(stamped("1"))
    assert values(memory) == ["1"]


def test_a_server_that_denies_the_version_it_gave_is_not_believed_either_way():
    """As behind a balancer, with one replica ahead of the other."""

    def behind(question):
        told = {"since": "1", "version": "1", "known": True, "added": [], "removed": [], "changed": []}
        if "2" in question.url:
            told = {"since": "2", "version": "1", "known": False}
        return Reply(200, json.dumps({"tables": {"t": told}, "table_versions": {"t": "1"}}).encode())

    memory = Memory(ask=behind)
    memory.observe(stamped("1"))
    events = memory.observe(said({"table_versions": {"t": "2"}}))
    assert [type(event) for event in events] == [Evicted]
    assert values(memory) == []


TAG_1 = {"contract-state": '"s1"', "contract-tables": '"t";v="1"'}


def test_the_name_of_a_state_goes_with_its_versions():
    memory = Memory()
    memory.observe(said(b"", TAG_1))
    assert memory.store.known(ORIGIN).knowledge.state_tag == "s1"
    memory.observe(said({"table_versions": {"t": "1"}}))
    assert memory.store.known(ORIGIN).knowledge.state_tag == "s1"
    memory.observe(stamped("2"))
    assert memory.store.known(ORIGIN).knowledge.state_tag is None
    memory.observe(said(b"", {"contract-state": '"s1"'}))
    assert values(memory) == []
    assert memory.store.known(ORIGIN).knowledge.versions.tables == {}


def test_a_name_is_not_given_to_the_newer_state_that_was_answered_with():
    state = json.dumps({"table_versions": {"t": "3"}}).encode()
    memory = Memory(ask=lambda question: Reply(200, state))
    memory.observe(said(b"", TAG_1))
    memory.observe(said(b"", {"contract-state": '"s2"'}))
    assert memory.store.known(ORIGIN).knowledge.state_tag is None
    memory.observe(said(b"", {"contract-state": '"s3"'}))
    assert memory.store.known(ORIGIN).knowledge.state_tag == "s3"
    memory.observe(said(b"", {"contract-state": '"s1"'}))
    assert memory.store.known(ORIGIN).knowledge.state_tag == "s3"


def test_what_another_strategy_has_kept_is_not_recalled_and_goes_with_the_next_response():
    store = InProcessStore()
    careless = Memory(store, strategy=ARMS["A1"])
    careless.observe(stamped("1"))
    careless.observe(said({"table_versions": {"t": "2"}}))
    assert values(careless) == ["1"]
    exact = Memory(store)
    assert values(exact) == []
    events = exact.observe(said({"table_versions": {"t": "2"}}))
    assert [event.reason.name for event in events] == ["ANOTHER_STRATEGY"]
    assert list(store.entries()) == []
