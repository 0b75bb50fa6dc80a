"""A request on its way through a memory, driven by hand: what is sent, what is asked, and what is sent again."""

import json

import msgspec
import pytest

from shelflife.client import Call, Exchange, Grounds, Guard, Held, Memory, Question, Reply, Send, exchange
from shelflife.client.events import Ignored, Unjudged
from shelflife.client.sending import carried_by, precondition_for, sending
from shelflife.contract import Suggestion
from shelflife.contract.cells import rows_of_cells
from shelflife.contract.compact import compacted
from shelflife.contract.merging import merged
from shelflife.contract.positions import AT_HEADER, Named, Position
from shelflife.contract.preconditions import PRECONDITION_HEADER, Precondition
from shelflife.contract.values import same_json
from shelflife.contract.when import as_read

ROOT = "http://h:80"
CALL = Call(ROOT, "POST /x", {"plan": "basic"}, guard=Guard())
JSON = {"content-type": "application/json"}
FAILED = JSON | {"contract-precondition": "failed"}
MET = JSON | {"contract-precondition": "met"}
FIX = Suggestion(
    type="USE_PROMO",
    parameters={"promo": "P1"},
    cache_hint="cacheable",
    table="codes",
    rows=("codes:basic",),
    cells={"codes": {"basic": ("code",)}},
    when={"plan": "basic"},
    unless={"promo": ("P1",)},
)


def at(number):
    return str(Position(number, "Abcdef"))


def told(step, number):
    """What a server at a position says of that, when the code of a plan has changed with every one."""
    named, to = Named.from_header(step.headers[AT_HEADER]), at(number)
    account = {"to": to, "nonce": named.nonce} if named.nonce else {"to": to}
    if named.position is not None and str(named.position) != to:
        account |= {"from": named.base, "moved": {"tables": {"codes": {"changed": ["basic"]}}}}
    return {"at": account}


def replying(status, number, headers, *fixes):
    def reply(step):
        body = told(step, number)
        if fixes:
            suggestions = [msgspec.to_builtins(compacted(fix, "a1b")) for fix in fixes]
            body["recovery_feedback"] = {"suggestions": suggestions}
        return Reply(status, json.dumps(body).encode(), headers)

    return reply


def refusal(code, number=1, status=422, headers=JSON):
    """A reply whose fix is to set this code."""
    fix = msgspec.structs.replace(FIX, parameters={"promo": code}, unless={"promo": (code,)})
    return replying(status, number, headers, fix)


def done(number=1, headers=JSON):
    return replying(201, number, headers)


def answering(reply):
    """To every request this reply, and to no question any."""
    return lambda step: reply(step) if isinstance(step, Send) else None


@pytest.fixture
def memory():
    """One that remembers a fix."""
    memory = Memory()
    exchange(memory, CALL, answering(refusal("P1")))
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
            reply = reply(step) if callable(reply) else reply
        else:
            assert isinstance(step, Question)


def grounds_of(send):
    return Precondition.from_header(send.headers[PRECONDITION_HEADER])


def test_without_a_guard_a_request_goes_out_as_it_is_and_its_reply_is_learned_from():
    memory = Memory()
    [sent], reply = played(memory, CALL._replace(guard=None), refusal("P1"))
    assert (sent.request, sent.carried) == ({"plan": "basic"}, [])
    assert sent.headers.keys() == {AT_HEADER}
    assert sent.headers[AT_HEADER].startswith("*;n=")
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


@pytest.mark.spec("11.2", "12.2")
@pytest.mark.parametrize("conditional", [True, False])
@pytest.mark.parametrize("compact", [True, False])
def test_what_it_says_and_asks_is_in_its_headers(memory, conditional, compact):
    call = CALL._replace(conditional=conditional, compact=compact)
    plain = Reply(201, b"{}", MET)
    [sent], _ = played(memory, call, plain)
    expected = {PRECONDITION_HEADER, AT_HEADER} if conditional else {AT_HEADER} if compact else set()
    assert set(sent.headers) == expected
    assert sent.headers.get(AT_HEADER, at(1)) == at(1)
    if conditional:
        assert grounds_of(sent).at == at(1)
        assert (grounds_of(sent).cells is None) is compact
    assert sent.request == {"plan": "basic", "promo": "P1"}


@pytest.mark.spec("12.9")
def test_of_a_server_that_names_no_position_nothing_can_be_asked_and_that_is_told():
    seen = []
    memory = Memory(on_event=seen.append)
    fix = msgspec.to_builtins(FIX) | {"tables": [{"table": "codes", "version": "1"}]}
    body = {"recovery_feedback": {"suggestions": [fix]}, "table_versions": {"codes": "1"}}
    refused = Reply(422, json.dumps(body).encode(), JSON)
    played(memory, CALL, refused)
    named = Named.from_header(memory.contract_at(ROOT))
    assert (memory.position(ROOT), named.position, bool(named.nonce)) == (None, None, True)
    carried_out = Reply(201, b'{"table_versions": {"codes": "1"}}', JSON)
    for conditional, reply in ((True, carried_out), (True, refused), (False, carried_out)):
        seen.clear()
        [sent], _ = played(memory, CALL._replace(conditional=conditional), reply)
        assert (sent.request, sent.headers.keys()) == ({"plan": "basic", "promo": "P1"}, {AT_HEADER})
        assert (Unjudged(ROOT, "POST /x") in seen) is (conditional and reply is carried_out)


def test_nothing_is_asked_of_the_server_where_nothing_is_carried(memory):
    [sent], _ = played(memory, CALL._replace(request={"plan": "other"}, conditional=True), done())
    assert sent.headers == {AT_HEADER: at(1)}


def test_stale_values_are_mended_with_the_fresh_fix_and_the_request_is_sent_again(memory):
    stale = refusal("P2", 2, 412, FAILED)
    sent, reply = played(memory, CALL._replace(conditional=True), stale, done(2, MET))
    assert [one.request.get("promo") for one in sent] == ["P1", "P2"]
    assert reply.status == 201


@pytest.mark.spec("12.2")
def test_a_first_try_says_in_brief_that_nothing_has_moved_and_a_second_what_it_rests_on(memory):
    stale = refusal("P2", 2, 412, FAILED)
    sent, _ = played(memory, CALL._replace(conditional=True), stale, done(2, MET))
    first, second = map(grounds_of, sent)
    assert (first.at, first.cells, first.rules, first.policies) == (at(1), None, None, None)
    assert (second.at, second.cells) == (at(2), {"codes": {"basic": ("code",)}})
    assert (second.rules, second.policies) == ((), ("a1b",))
    assert first.was == second.was == {"promo": None}
    assert [one.headers[AT_HEADER] for one in sent] == [at(1), at(2)]


def test_a_server_that_never_has_enough_gets_the_request_as_it_came(memory):
    again = [refusal(f"P{number}", number, 412, FAILED) for number in (2, 3)]
    sent, reply = played(memory, CALL._replace(conditional=True), *again, done(4))
    assert [one.request.get("promo") for one in sent] == ["P1", "P2", None]
    assert PRECONDITION_HEADER not in sent[-1].headers
    assert reply.status == 201


def test_a_412_of_the_api_itself_is_handed_on(memory):
    sent, reply = played(memory, CALL._replace(conditional=True), Reply(412, b"{}", JSON))
    assert (len(sent), reply.status) == (1, 412)


def test_values_that_a_planner_took_over_are_vouched_for_and_mended_alike(memory):
    held = Held(memory.recall(ROOT, "POST /x", {"plan": "basic"}), memory.position(ROOT), {"plan": "basic"})
    written = CALL._replace(request={"plan": "basic", "promo": "P1", "note": 1}, held=held)
    sent, _ = played(memory, written, refusal("P2", 2, 412, FAILED), done(2, MET))
    assert [one.request for one in sent] == [
        {"plan": "basic", "promo": "P1", "note": 1},
        {"plan": "basic", "promo": "P2", "note": 1},
    ]
    assert sent[0].without == {"plan": "basic", "note": 1}
    assert all(PRECONDITION_HEADER in one.headers for one in sent)


def test_without_a_guard_nothing_is_written_into_what_a_planner_wrote(memory):
    held = Held(memory.recall(ROOT, "POST /x", {"plan": "basic"}), memory.position(ROOT), {"plan": "basic"})
    written = CALL._replace(request={"plan": "basic", "promo": "P1"}, held=held, guard=None)
    sent, reply = played(memory, written, refusal("P2", 2, 412, FAILED))
    assert (len(sent), reply.status) == (1, 412)


def test_values_that_a_planner_did_not_take_over_ask_for_nothing(memory):
    held = Held(memory.recall(ROOT, "POST /x", {"plan": "basic"}), memory.position(ROOT), {"plan": "basic"})
    [sent], _ = played(memory, CALL._replace(held=held), done())
    assert (sent.carried, sent.headers) == ([], {AT_HEADER: at(1)})


def nested(memory):
    """A memory that remembers to set a field inside of an object."""
    parameters = {"options": {"code": "OLD", "note": None}}
    fix = msgspec.structs.replace(FIX, parameters=parameters, unless=msgspec.UNSET)
    played(memory, CALL, replying(422, 1, JSON, fix))
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
    held = Held(memory.recall(ROOT, "POST /x", wanted), memory.position(ROOT), wanted)
    [written], _ = played(memory, CALL._replace(request=amended.request, held=held), done(headers=MET))
    assert written.headers == amended.headers
    assert written.without == wanted


@pytest.mark.parametrize("extra", [{}, {"colour": "red"}])
@pytest.mark.parametrize("options", ["text", ["a"], {"code": None}, {"code": {"a": 1}}, None])
def test_what_a_planner_wrote_beside_a_fix_stays_when_that_is_taken_out(options, extra):
    before = {"plan": "basic", "options": options}
    memory = nested(Memory())
    held = Held(memory.recall(ROOT, "POST /x", before), memory.position(ROOT), before)
    written = {"plan": "basic", "options": {"code": "OLD"} | extra, "note": 1}
    [sent], _ = played(memory, CALL._replace(request=written, held=held), done(headers=MET))
    was_there = options if isinstance(options, dict) else {}
    expected = was_there | extra if was_there or extra else options
    assert sent.without == {"plan": "basic", "options": expected, "note": 1}
    assert same_json(as_read(merged(written, grounds_of(sent).was)), as_read(sent.without))


def test_an_object_that_came_with_fixes_goes_with_them():
    memory = nested(Memory())
    before = {"plan": "basic"}
    held = Held(memory.recall(ROOT, "POST /x", before), memory.position(ROOT), before)
    for extra, left in (({}, before), ({"colour": "red"}, before | {"options": {"colour": "red"}})):
        written = {"plan": "basic", "options": {"code": "OLD"} | extra}
        [sent], _ = played(memory, CALL._replace(request=written, held=held), done(headers=MET))
        assert sent.without == left


LONG = {"plan": "basic", "promo": "x" * 20_000}


@pytest.mark.spec("12.2", "12.5")
def test_what_takes_a_long_text_out_again_is_not_said_and_the_request_is_mended_all_the_same(memory):
    [sent], _ = played(memory, CALL._replace(request=LONG, conditional=True), done(headers=MET))
    assert (sent.request, sent.without) == ({"plan": "basic", "promo": "P1"}, LONG)
    assert grounds_of(sent) == Precondition(at=at(1))
    stale = refusal("P2", 2, 412, FAILED)
    again, reply = played(memory, CALL._replace(request=LONG, conditional=True), stale, done(2, MET))
    assert [one.request["promo"] for one in again] == ["P1", "P2"]
    assert (grounds_of(again[1]).cells, grounds_of(again[1]).was) == ({"codes": {"basic": ("code",)}}, {})
    assert reply.status == 201


def test_without_what_takes_them_out_the_fixes_of_a_refusal_are_for_the_request_with_the_values_in_it(memory):
    whole = msgspec.structs.replace(
        FIX, parameters={"promo": "P2"}, cells=msgspec.UNSET, unless=msgspec.UNSET
    )
    whole = msgspec.to_builtins(msgspec.structs.replace(whole, when=msgspec.UNSET, rows=msgspec.UNSET))
    whole["tables"] = [{"table": "codes", "version": "2"}]

    def stale(step):
        body = told(step, 2) | {"table_versions": {"codes": "2"}}
        body["recovery_feedback"] = {"suggestions": [whole]}
        return Reply(412, json.dumps(body).encode(), FAILED)

    sent, _ = played(memory, CALL._replace(request=LONG, conditional=True), stale, done(2))
    assert [one.request for one in sent] == [{"plan": "basic", "promo": "P1"}, LONG]
    found = memory.recall(ROOT, "POST /x", {"plan": "basic", "promo": "P1"})
    assert [entry.parameters for entry in found] == [{"promo": "P2"}]
    assert memory.recall(ROOT, "POST /x", LONG) == []


def resting_on(memory, cells):
    """A memory whose fix rests on these cells, and what is sent with it."""
    fix = msgspec.structs.replace(FIX, cells=cells, rows=rows_of_cells(cells), table=next(iter(cells)))
    played(memory, CALL, replying(422, 1, JSON, fix))
    [sent], _ = played(memory, CALL._replace(conditional=True, compact=False), done(headers=MET))
    assert sent.request == {"plan": "basic", "promo": "P1"}
    assert len(sent.headers[PRECONDITION_HEADER]) <= 4096
    return grounds_of(sent)


@pytest.mark.spec("12.2")
def test_what_is_too_long_to_be_named_cell_by_cell_is_named_in_a_shorter_form():
    few = {"codes": {f"stock-keeping-unit-number-{number:04d}": ("price",) for number in range(10)}}
    many = {"codes": {f"stock-keeping-unit-number-{number:04d}": ("price",) for number in range(200)}}
    tables = {f"table_of_stock_keeping_units_number_{number:04d}": {"k": ("price",)} for number in range(150)}
    exact, of_tables, brief = (resting_on(Memory(), cells) for cells in (few, many, tables))
    assert exact.cells == few
    assert (of_tables.cells, of_tables.rules, of_tables.policies) == ({"codes": None}, (), ("a1b",))
    assert (brief.cells, brief.rules, brief.policies) == (None, None, None)
    assert exact.was == of_tables.was == brief.was == {"promo": None}


def test_a_fix_that_may_rest_on_any_rule_says_so(memory):
    [entry] = memory.recall(ROOT, "POST /x", {"plan": "basic"})
    of_any = msgspec.structs.replace(entry, grounds=Grounds(("codes",)))
    assert precondition_for(at(1), [entry], {}).rules == ()
    assert precondition_for(at(1), [entry, of_any], {}).rules is None


def test_a_fix_that_may_be_of_any_policy_says_so(memory):
    [entry] = memory.recall(ROOT, "POST /x", {"plan": "basic"})
    of_any = msgspec.structs.replace(entry, grounds=Grounds(("codes",), entry.grounds.cells, ()))
    assert precondition_for(at(1), [entry], {}).policies == ("a1b",)
    assert precondition_for(at(1), [entry, of_any], {}).policies is None


def test_an_answer_that_fails_costs_the_answer_and_not_the_reply(memory, caplog):
    def answer(step):
        if isinstance(step, Question):
            raise ConnectionError("gone")
        return Reply(201, json.dumps({"at": at(2)}).encode(), JSON)

    assert exchange(memory, CALL, answer).status == 201
    assert "/contract/changes?from=" in caplog.text
    assert "whoever answers has failed" in caplog.text
    assert memory.recall(ROOT, "POST /x", {"plan": "basic"}) == []


def test_a_request_that_fails_fails_for_the_caller(memory):
    def answer(step):
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        exchange(memory, CALL, answer)


def test_positions_are_named_for_each_server_however_often_another_moves(memory):
    elsewhere = CALL._replace(root="http://other:80", guard=None)
    for number in range(300):
        [sent], _ = played(memory, elsewhere, done(number))
        assert number == 0 or sent.headers[AT_HEADER] == at(number - 1)
    [sent], _ = played(memory, CALL, done(2))
    assert sent.headers[AT_HEADER] == at(1)
    assert (memory.position(ROOT), memory.position("http://other:80")) == (at(2), at(299))
    assert memory.recall(ROOT, "POST /x", {"plan": "basic"}) == []


@pytest.mark.spec("11.25", "11.27")
def test_a_reply_about_what_is_not_known_leaves_the_server_in_doubt(memory):
    account = {"to": at(9), "from": at(8), "moved": {}}
    reply = Reply(200, json.dumps({"at": account}).encode(), JSON)
    memory.observe(Exchange(ROOT, "POST /x", {}, reply, at=at(8)))
    assert memory.recall(ROOT, "POST /x", {"plan": "basic"}) == []
    [sent], _ = played(memory, CALL._replace(conditional=True), done(1))
    named = Named.from_header(sent.headers[AT_HEADER])
    assert (str(named.position), bool(named.nonce)) == (at(1), True)
    assert (sent.request, PRECONDITION_HEADER in sent.headers) == ({"plan": "basic"}, False)
    assert len(memory.recall(ROOT, "POST /x", {"plan": "basic"})) == 1  # its reply was the answer


@pytest.mark.spec("12.9")
@pytest.mark.parametrize(
    ("reply", "is_told"),
    [
        (Reply(200, b"{}", JSON), True),
        (Reply(500, b"{}", JSON), True),
        (Reply(200, b"{}", FAILED), True),
        (Reply(200, b"{}", MET), False),
        (Reply(404, b"{}", JSON), False),
    ],
)
def test_that_nobody_has_judged_a_precondition_is_told(memory, reply, is_told):
    seen = []
    memory = Memory(memory.store, on_event=seen.append)
    [sent], _ = played(memory, CALL._replace(conditional=True), reply)
    assert PRECONDITION_HEADER in sent.headers
    assert (Unjudged(ROOT, "POST /x") in seen) is is_told


def test_the_log_warns_once_of_an_operation_whose_preconditions_nobody_judges(memory, caplog):
    for operation, reply in (("POST /x", done()), ("POST /x", done()), ("POST /y", done())):
        played(memory, CALL._replace(operation=operation, conditional=True), reply)
    assert (
        caplog.text.count("a request for 'POST /x' with remembered values was answered by http://h:80") == 1
    )
    assert "'POST /y'" not in caplog.text  # nothing is remembered for it


@pytest.mark.parametrize("reply", [Reply(502, b"{}", JSON), Reply(201, b"{}", MET), Reply(404, b"{}", JSON)])
def test_the_log_says_nothing_of_what_was_judged_or_has_failed(memory, reply, caplog):
    played(memory, CALL._replace(conditional=True), reply)
    assert caplog.text == ""


@pytest.mark.parametrize("body", [None, {}, 1])
def test_a_reply_has_a_body_of_bytes_or_text(body):
    with pytest.raises(TypeError, match="the body of a reply is bytes or text, and not"):
        Reply(200, body)


@pytest.mark.parametrize("kind", [str, str.encode, lambda text: bytearray(text.encode())])
def test_a_body_is_read_in_whatever_form_a_client_gives_it(kind):
    memory = Memory()
    reply = Reply(200, kind('{"table_versions": {"codes": "1"}, "name": "Zo\xeb"}'), JSON)
    memory.observe(Exchange(ROOT, "POST /x", {}, reply))
    assert memory.store.known(ROOT).knowledge.versions.tables == {"codes": "1"}
    assert json.loads(reply.body)["name"] == "Zo\xeb"


def test_text_that_is_no_text_is_not_read_and_fails_nobody():
    events = Memory().observe(Exchange(ROOT, "POST /x", {}, Reply(200, '{"at": "\ud800', JSON)))
    assert [type(event) for event in events] == [Ignored]


def test_headers_are_found_however_they_were_written():
    memory = Memory()
    memory.observe(Exchange(ROOT, "POST /x", {}, Reply(200, b"", {"Contract-Tables": '"codes";v="1"'})))
    assert memory.store.known(ROOT).knowledge.versions.tables == {"codes": "1"}
    asked = memory.contract_at("http://other:80")
    told_at = {"CONTRACT-AT": asked.replace("*", at(7))}
    memory.observe(Exchange("http://other:80", "POST /x", {}, Reply(200, b"", told_at), asked))
    assert memory.position("http://other:80") == at(7)


def test_what_cannot_be_read_of_a_server_that_nothing_is_known_of_is_no_reason_for_doubt():
    memory = Memory()
    broken = Reply(200, b"", JSON, whole=False)
    [event] = memory.observe(Exchange(ROOT, "POST /x", {}, broken))
    assert event.why == "the body of the response could not be read to its end"
    exchange(memory, CALL, answering(refusal("P1")))
    assert memory.recall(ROOT, "POST /x", {"plan": "basic"})
    memory.observe(Exchange(ROOT, "POST /x", {}, broken))
    assert memory.recall(ROOT, "POST /x", {"plan": "basic"}) == []


def test_what_a_request_carries_is_what_json_would_say_it_carries(memory):
    [entry] = memory.recall(ROOT, "POST /x", {"plan": "basic"})
    one = msgspec.structs.replace(entry, parameters={"x": 1})
    assert carried_by({"x": 1}, [one]) == [one]
    assert carried_by({"x": True}, [one]) == []
