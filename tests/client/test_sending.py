"""A request on its way through a memory, driven by hand: what is sent, what is asked, and what is sent again."""

import json

import pytest

from shelflife.client import Call, Guard, Held, Memory, Question, Reply, Send, exchange
from shelflife.client.sending import sending
from shelflife.contract.compact import EPOCH_HEADER
from shelflife.contract.preconditions import PRECONDITION_HEADER

ROOT = "http://h:80"
CALL = Call(ROOT, "POST /x", {"plan": "basic"}, guard=Guard())
JSON = {"content-type": "application/json"}
FAILED = JSON | {"contract-precondition": "failed"}
MET = JSON | {"contract-precondition": "met"}


def refusal(code, version="1", status=422, headers=JSON):
    """A reply whose fix is to set this code."""
    fix = {
        "type": "USE_PROMO",
        "parameters": {"promo": code},
        "cache_hint": "cacheable",
        "table": "codes",
        "tables": [{"table": "codes", "version": version}],
        "rows": ["codes:basic"],
        "when": {"plan": "basic"},
        "unless": {"promo": [code]},
    }
    body = {"recovery_feedback": {"suggestions": [fix]}, "table_versions": {"codes": version}}
    return Reply(status, json.dumps(body).encode(), headers)


def done(version="1", headers=JSON):
    return Reply(201, json.dumps({"table_versions": {"codes": version}}).encode(), headers)


@pytest.fixture
def memory():
    """One that remembers a fix."""
    memory = Memory()
    exchange(memory, CALL, lambda step: refusal("P1"))
    return memory


def played(memory, call, *replies):
    """Every request that is sent, each answered with the next reply, and what came of it. Questions have no answer."""
    steps, sent, reply = sending(memory, call), [], None
    waiting = list(replies)
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as end:
            return sent, end.value
        reply = None
        if isinstance(step, Send):
            sent.append(step)
            reply = waiting.pop(0)
        else:
            assert isinstance(step, Question)


def test_without_a_guard_a_request_goes_out_as_it_is_and_its_reply_is_learned_from():
    memory = Memory()
    [sent], reply = played(memory, CALL._replace(guard=None), refusal("P1"))
    assert (sent.request, sent.headers, sent.carried) == ({"plan": "basic"}, {}, [])
    assert reply.status == 422
    assert [entry.parameters for entry in memory.recall(ROOT, "POST /x", {"plan": "basic"})] == [
        {"promo": "P1"}
    ]


def test_with_a_guard_what_is_remembered_is_in_it(memory):
    [sent], _ = played(memory, CALL, done())
    assert sent.request == {"plan": "basic", "promo": "P1"}
    assert sent.without == {"plan": "basic"}
    assert [entry.parameters for entry in sent.carried] == [{"promo": "P1"}]


def test_a_request_that_had_no_reply_teaches_nothing_and_is_not_sent_again(memory):
    sent, reply = played(memory, CALL._replace(conditional=True), None)
    assert (len(sent), reply) == (1, None)
    assert memory.statistics.stored == 1


def test_what_it_says_and_asks_is_in_its_headers(memory):
    epoch = memory.epoch(ROOT)
    for conditional, compact, expected in (
        (False, False, set()),
        (True, False, {PRECONDITION_HEADER}),
        (False, True, {EPOCH_HEADER}),
        (True, True, {PRECONDITION_HEADER, EPOCH_HEADER}),
    ):
        [sent], _ = played(memory, CALL._replace(conditional=conditional, compact=compact), done(headers=MET))
        assert set(sent.headers) == expected
        assert sent.headers.get(EPOCH_HEADER, epoch) == epoch


def test_nothing_is_asked_of_the_server_where_nothing_is_carried(memory):
    [sent], _ = played(memory, CALL._replace(request={"plan": "other"}, conditional=True), done())
    assert PRECONDITION_HEADER not in sent.headers


def test_stale_values_are_mended_with_the_fresh_fix_and_the_request_is_sent_again(memory):
    stale = refusal("P2", "2", 412, FAILED)
    sent, reply = played(memory, CALL._replace(conditional=True), stale, done("2", MET))
    assert [one.request.get("promo") for one in sent] == ["P1", "P2"]
    assert reply.status == 201


def test_a_server_that_never_has_enough_gets_the_request_as_it_came(memory):
    again = [refusal(f"P{number}", str(number), 412, FAILED) for number in (2, 3)]
    sent, reply = played(memory, CALL._replace(conditional=True), *again, done("4"))
    assert [one.request.get("promo") for one in sent] == ["P1", "P2", None]
    assert PRECONDITION_HEADER not in sent[-1].headers
    assert reply.status == 201


def test_a_412_of_the_api_itself_is_handed_on(memory):
    sent, reply = played(memory, CALL._replace(conditional=True), Reply(412, b"{}", JSON))
    assert (len(sent), reply.status) == (1, 412)


def test_values_that_a_planner_took_over_are_vouched_for_and_mended_alike(memory):
    held = Held(memory.recall(ROOT, "POST /x", {"plan": "basic"}), memory.epoch(ROOT), {"plan": "basic"})
    written = CALL._replace(request={"plan": "basic", "promo": "P1", "note": 1}, held=held)
    sent, _ = played(memory, written, refusal("P2", "2", 412, FAILED), done("2", MET))
    assert [one.request for one in sent] == [
        {"plan": "basic", "promo": "P1", "note": 1},
        {"plan": "basic", "promo": "P2", "note": 1},
    ]
    assert sent[0].without == {"plan": "basic", "note": 1}


def test_without_a_guard_nothing_is_written_into_what_a_planner_wrote(memory):
    held = Held(memory.recall(ROOT, "POST /x", {"plan": "basic"}), memory.epoch(ROOT), {"plan": "basic"})
    written = CALL._replace(request={"plan": "basic", "promo": "P1"}, held=held, guard=None)
    sent, reply = played(memory, written, refusal("P2", "2", 412, FAILED))
    assert (len(sent), reply.status) == (1, 412)


def test_values_that_a_planner_did_not_take_over_ask_for_nothing(memory):
    held = Held(memory.recall(ROOT, "POST /x", {"plan": "basic"}), memory.epoch(ROOT), {"plan": "basic"})
    [sent], _ = played(memory, CALL._replace(held=held), done())
    assert (sent.carried, sent.headers) == ([], {})
