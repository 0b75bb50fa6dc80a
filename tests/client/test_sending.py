"""A request on its way through a memory, driven by hand: what is sent, what is asked, and what is sent again."""

import json

import msgspec
import pytest

from shelflife.client import Call, Exchange, Grounds, Guard, Held, Memory, Question, Reply, Send, exchange
from shelflife.client.events import Ignored
from shelflife.client.sending import carried_by, precondition_for, sending
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
    assert all(PRECONDITION_HEADER in one.headers for one in sent)


def test_without_a_guard_nothing_is_written_into_what_a_planner_wrote(memory):
    held = Held(memory.recall(ROOT, "POST /x", {"plan": "basic"}), memory.epoch(ROOT), {"plan": "basic"})
    written = CALL._replace(request={"plan": "basic", "promo": "P1"}, held=held, guard=None)
    sent, reply = played(memory, written, refusal("P2", "2", 412, FAILED))
    assert (len(sent), reply.status) == (1, 412)


def test_values_that_a_planner_did_not_take_over_ask_for_nothing(memory):
    held = Held(memory.recall(ROOT, "POST /x", {"plan": "basic"}), memory.epoch(ROOT), {"plan": "basic"})
    [sent], _ = played(memory, CALL._replace(held=held), done())
    assert (sent.carried, sent.headers) == ([], {})


def nested(memory):
    """A memory that remembers to set a field inside of an object."""
    fix = {
        "type": "USE_CODE",
        "parameters": {"options": {"code": "OLD", "note": None}},
        "cache_hint": "cacheable",
        "tables": [{"table": "codes", "version": "1"}],
        "rows": ["codes:basic"],
        "when": {"plan": "basic"},
    }
    body = {"recovery_feedback": {"suggestions": [fix]}, "table_versions": {"codes": "1"}}
    played(memory, CALL, Reply(422, json.dumps(body).encode(), JSON))
    return memory


@pytest.mark.parametrize("options", [None, {}, {"colour": "red"}, {"code": "mine", "note": 1}])
def test_a_fix_inside_of_an_object_is_vouched_for_and_can_be_taken_out_again(options):
    wanted = {"plan": "basic"} | ({} if options is None else {"options": options})
    memory = nested(Memory())
    call = CALL._replace(request=wanted, conditional=True)
    [amended], _ = played(memory, call, done(headers=MET))
    assert amended.request["options"]["code"] == "OLD"
    assert PRECONDITION_HEADER in amended.headers
    assert amended.without == wanted
    held = Held(memory.recall(ROOT, "POST /x", wanted), memory.epoch(ROOT), wanted)
    [written], _ = played(memory, CALL._replace(request=amended.request, held=held), done(headers=MET))
    assert written.headers == amended.headers
    assert written.without == wanted


def test_what_is_too_long_to_be_vouched_for_is_not_sent_at_all(memory, caplog):
    long = {"plan": "basic", "promo": "x" * 20_000}
    [sent], _ = played(memory, CALL._replace(request=long, conditional=True), done())
    assert (sent.request, sent.headers) == (long, {})
    assert "too long to say" in caplog.text


def test_a_fix_that_may_rest_on_any_rule_says_so(memory):
    [entry] = memory.recall(ROOT, "POST /x", {"plan": "basic"})
    of_any = msgspec.structs.replace(entry, grounds=Grounds(("codes",)))
    assert precondition_for("AbCdEfGh", [entry], {}).rules == ()
    assert precondition_for("AbCdEfGh", [entry, of_any], {}).rules is None


def test_an_answer_that_fails_costs_the_answer_and_not_the_reply(memory, caplog):
    def answer(step):
        if isinstance(step, Question):
            raise ConnectionError("gone")
        return done("2")

    assert exchange(memory, CALL, answer).status == 201
    assert "could not be observed" in caplog.text
    assert memory.recall(ROOT, "POST /x", {"plan": "basic"}) == []


def test_a_request_that_fails_fails_for_the_caller(memory):
    def answer(step):
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        exchange(memory, CALL, answer)


def test_states_are_named_for_each_server_however_often_another_moves(memory):
    epoch = memory.epoch(ROOT)
    for number in range(300):
        elsewhere = CALL._replace(root="http://other:80", guard=None)
        played(memory, elsewhere, done(str(number)))
        memory.epoch("http://other:80")
    moved = {"epoch": {"tables": {"codes": {"version": "2", "changed": ["basic"]}}}}
    compact = CALL._replace(compact=True)
    [sent], _ = played(memory, compact, Reply(201, json.dumps(moved).encode(), JSON))
    assert sent.headers[EPOCH_HEADER] == epoch
    assert memory.recall(ROOT, "POST /x", {"plan": "basic"}) == []


def test_a_reply_to_a_state_that_is_not_known_any_more_leaves_the_server_in_doubt(memory):
    seen = []
    memory = Memory(memory.store, on_event=seen.append)
    reply = Reply(200, b'{"epoch": {"tables": {"codes": {"version": "2"}}}}', JSON)
    memory.observe(Exchange(ROOT, "POST /x", {}, reply, epoch="AbCdEfGh"))
    assert [type(event) for event in seen] == [Ignored]
    assert memory.recall(ROOT, "POST /x", {"plan": "basic"}) == []


@pytest.mark.parametrize("body", ["text", None, {}])
def test_a_reply_has_a_body_of_bytes(body):
    with pytest.raises(TypeError, match="the body of a reply is bytes, and not"):
        Reply(200, body)


def test_headers_are_found_however_they_were_written():
    memory = Memory()
    memory.observe(Exchange(ROOT, "POST /x", {}, Reply(200, b"", {"Contract-Tables": '"codes";v="1"'})))
    assert memory.epoch(ROOT) is not None


def test_what_cannot_be_read_of_a_server_that_nothing_is_known_of_is_no_reason_for_doubt():
    memory = Memory()
    broken = Reply(200, b"", JSON, whole=False)
    [event] = memory.observe(Exchange(ROOT, "POST /x", {}, broken))
    assert event.why == "the body of the response could not be read to its end"
    exchange(memory, CALL, lambda step: refusal("P1") if isinstance(step, Send) else None)
    assert memory.recall(ROOT, "POST /x", {"plan": "basic"})
    memory.observe(Exchange(ROOT, "POST /x", {}, broken))
    assert memory.recall(ROOT, "POST /x", {"plan": "basic"}) == []


def test_what_a_request_carries_is_what_json_would_say_it_carries(memory):
    [entry] = memory.recall(ROOT, "POST /x", {"plan": "basic"})
    one = msgspec.structs.replace(entry, parameters={"x": 1})
    assert carried_by({"x": 1}, [one]) == [one]
    assert carried_by({"x": True}, [one]) == []
