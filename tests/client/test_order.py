"""The order of evidence: which replies may change what a memory believes of a server's log, and which only make it ask."""

import json

import pytest

from shelflife.client import Exchange, Memory, Reply
from shelflife.client.events import Evicted, LogLost, Stored
from shelflife.client.positions import Adopted, Current, Doubted, Forward, OldNews, Place, judged
from shelflife.contract.positions import AT_HEADER, Account, Moved, MovedTable, Named
from shelflife.contract.stamps import state_name
from tests.client.agents import Clock
from tests.client.by_hand import (
    ANOTHER,
    EARLIER,
    FIX,
    HERE,
    JSON,
    LATER,
    OPERATION,
    ROOT,
    THERE,
    Server,
    placed,
    replied,
)

PLACE = Place(at=HERE, mark="m1")
BASE = f"{HERE}:m1"
MOVED = Moved(tables={"t": MovedTable(changed=("k",))})


def seen(said, place=PLACE, sent=None):
    return judged(place, None if sent is None else sent.header, said)


@pytest.mark.spec("11.23")
@pytest.mark.parametrize("since", ["", BASE, THERE, f"{THERE}:m0"])
@pytest.mark.parametrize("place", [PLACE, PLACE.doubted()])
def test_a_reply_at_the_known_position_is_current_and_lifts_no_doubt(since, place):
    assert seen(Account(to=HERE, since=since), place) == (Current(), place)


@pytest.mark.spec("11.24")
def test_moves_from_where_the_memory_is_lead_on_and_keep_its_mark():
    verdict, place = seen(Account(to=THERE, since=BASE, moved=MOVED))
    assert (verdict, place) == (Forward(MOVED), Place(at=THERE, mark="m1"))


@pytest.mark.spec("11.24")
@pytest.mark.parametrize("unknown", ["ahead", "foreign", "old"])
@pytest.mark.parametrize("to", [THERE, ANOTHER, EARLIER])
def test_a_reply_that_cannot_go_on_from_where_the_memory_is_was_made_after_that_and_is_adopted(unknown, to):
    verdict, place = seen(Account(to=to, since=BASE, unknown=unknown))
    assert (verdict, place.at) == (Adopted(is_too_old=unknown == "old"), to)


@pytest.mark.spec("11.25")
@pytest.mark.parametrize(
    "said",
    [
        Account(to=THERE),
        Account(to=THERE, since=BASE),
        Account(to=THERE, since=HERE, moved=MOVED),
        Account(to=THERE, since=f"{HERE}:m0", moved=MOVED),
        Account(to=LATER, since=f"{THERE}:m1", moved=MOVED),
        Account(to=THERE, since=f"{LATER}:m1", unknown="ahead"),
        Account(to=THERE, since=f"{EARLIER}:m0", unknown="old"),
        Account(to=ANOTHER),
        Account(to=ANOTHER, since=f"{EARLIER}:m1", moved=MOVED),
        Account(to=EARLIER, since=f"{THERE}:m1", unknown="ahead"),
        Account(to=EARLIER, since=f"{ANOTHER}:m1", unknown="foreign"),
    ],
)
def test_what_may_be_newer_and_does_not_prove_it_raises_a_doubt(said):
    verdict, place = seen(said)
    assert isinstance(verdict, Doubted)
    assert (place.base, bool(place.doubt)) == (PLACE.base, True)
    _, again = seen(said, place)
    assert again.doubt not in ("", place.doubt)


@pytest.mark.spec("11.25")
@pytest.mark.parametrize(
    "said",
    [
        Account(to=EARLIER),
        Account(to=EARLIER, since=f"{EARLIER}:m1", moved=MOVED),
        Account(to=EARLIER, since=f"{THERE}:m0", unknown="ahead"),
        Account(to=EARLIER, since=f"{THERE}:m1", unknown="old"),
    ],
)
@pytest.mark.parametrize("place", [PLACE, PLACE.doubted()])
def test_anything_else_is_of_the_past_and_changes_nothing(said, place):
    assert seen(said, place) == (OldNews(), place)


@pytest.mark.spec("11.22")
@pytest.mark.parametrize(
    "said", [Account(to=HERE), Account(to=HERE, nonce="0.e4"), Account(to=HERE, unknown="old")]
)
def test_while_no_position_is_known_only_an_answer_counts(said):
    nowhere = Place()
    assert nowhere.new_header().startswith("*;n=")
    assert seen(said, nowhere, Named(nonce="0.e3")) == (OldNews(), nowhere)
    asked = nowhere.new_question()
    verdict, place = seen(Account(to=HERE, nonce=asked.nonce), nowhere, asked)
    assert (verdict, place.at) == (Adopted(), HERE)


@pytest.mark.spec("11.28")
@pytest.mark.parametrize(
    ("said", "verdict", "at"),
    [
        (Account(to=HERE), Current(), HERE),
        (Account(to=THERE, since=BASE, moved=MOVED), Forward(MOVED), THERE),
        (Account(to=EARLIER, since=BASE, unknown="ahead"), Adopted(), EARLIER),
        (Account(to=ANOTHER, since=BASE, unknown="foreign"), Adopted(), ANOTHER),
        (Account(to=THERE, since=BASE, unknown="old"), Adopted(is_too_old=True), THERE),
    ],
)
def test_an_answer_lifts_the_doubts_that_it_was_asked_in(said, verdict, at):
    place = PLACE.doubted()
    asked = place.new_question()
    answer = Account(to=said.to, since=said.since, moved=said.moved, unknown=said.unknown, nonce=asked.nonce)
    found, after = seen(answer, place, asked)
    assert (found, after.at, after.doubt) == (verdict, at, "")
    later = place.doubted()
    found, after = seen(answer, later, asked)
    assert (found, after.at, after.doubt) == (verdict, at, later.doubt)


@pytest.mark.spec("11.28")
def test_an_answer_about_what_is_not_known_any_more_is_none():
    asked = PLACE.doubted().new_question()
    answer = Account(to=EARLIER, since=BASE, unknown="ahead", nonce=asked.nonce)
    for place in (Place(at=THERE, mark="m1"), Place(at=HERE, mark="m2"), Place(at=None, mark="m1")):
        verdict, after = seen(answer, place, asked)
        assert isinstance(verdict, Doubted | OldNews)
        assert after.base == place.base
    replayed = Account(to=EARLIER, since=BASE, unknown="ahead", nonce="0.another")
    _, after = seen(replayed, PLACE.doubted(), asked)
    assert after.doubt


@pytest.mark.spec("11.11", "11.28")
def test_an_answer_that_does_not_say_what_has_moved_settles_nothing():
    place = PLACE.doubted()
    asked = place.new_question()
    verdict, after = seen(Account(to=THERE, since=BASE, nonce=asked.nonce), place, asked)
    assert isinstance(verdict, Doubted)
    assert (after.at, bool(after.doubt)) == (HERE, True)


def recalled(memory):
    return [entry.type for entry in memory.recall(ROOT, OPERATION, {})]


def mark_of(memory):
    return memory.store.known(ROOT).knowledge.place.mark


@pytest.mark.spec("11.21", "11.26")
def test_a_mark_is_kept_by_moves_and_renewed_by_whatever_else_leads_on():
    memory = placed()
    assert (memory.contract_at(ROOT), mark_of(memory)) == (HERE, "")
    replied(memory, HERE, at={"to": THERE, "from": HERE, "moved": {}})
    assert (memory.contract_at(ROOT), recalled(memory)) == (THERE, ["F"])
    told = replied(memory, THERE, at={"to": ANOTHER, "from": THERE, "unknown": "ahead"})
    assert told == [LogLost(ROOT, several=False)]
    first = mark_of(memory)
    assert memory.contract_at(ROOT) == f"{ANOTHER}:{first}"
    replied(memory, f"{ANOTHER}:{first}", at={"to": LATER, "from": f"{ANOTHER}:{first}", "moved": {}})
    assert memory.contract_at(ROOT) == f"{LATER}:{first}"
    replied(memory, f"{LATER}:{first}", at={"to": EARLIER, "from": f"{LATER}:{first}", "unknown": "old"})
    assert mark_of(memory) not in ("", first)
    memory.forget(ROOT)
    assert mark_of(memory) not in ("", first)


@pytest.mark.spec("11.26")
@pytest.mark.parametrize("unknown", ["ahead", "foreign", "old"])
def test_what_is_remembered_of_another_log_stays_and_is_not_used_until_it_is_given_again(unknown):
    server = Server(to=ANOTHER)
    memory = placed(ask=server)
    replied(memory, HERE, at={"to": ANOTHER, "from": HERE, "unknown": unknown})
    assert recalled(memory) == []
    assert len(list(memory.store.entries())) == 1
    told = memory.revalidate(ROOT, OPERATION, {})
    assert (server.questions, recalled(memory)) == (["/contract/fixes"], ["F"])
    assert [(type(event), event.entry.type) for event in told] == [(Stored, "F")]
    assert memory.revalidate(ROOT, OPERATION, {}) == []
    replied(
        memory,
        memory.contract_at(ROOT),
        at={"to": THERE, "from": memory.contract_at(ROOT), "unknown": unknown},
    )
    server.account, server.fixes = {"to": THERE}, []
    told = memory.revalidate(ROOT, OPERATION, {})
    assert [type(event) for event in told] == [Evicted]
    assert list(memory.store.entries()) == []


@pytest.mark.spec("11.27")
def test_in_doubt_nothing_is_recalled_and_the_next_reply_can_settle_it():
    memory = placed()
    replied(memory, None, at=LATER)
    assert (recalled(memory), memory.position(ROOT)) == ([], None)
    named = memory.contract_at(ROOT)
    assert named.startswith(f"{HERE};n=")
    assert memory.contract_at(ROOT) != named  # every nonce is drawn anew
    replied(memory, named, at={"to": LATER, "from": HERE, "moved": {}, "nonce": named.partition("n=")[2]})
    assert (recalled(memory), memory.position(ROOT), memory.contract_at(ROOT)) == (["F"], LATER, LATER)


@pytest.mark.spec("11.27", "9.9")
def test_a_doubt_is_settled_by_a_question_at_once_and_the_reply_then_counts_for_what_it_is():
    server = Server(to=LATER, moved={"tables": {"t": {"changed": ["k"]}}})
    memory = placed(ask=server)
    suggestions = {"recovery_feedback": {"suggestions": [FIX | {"type": "G"}]}}
    replied(memory, "Zzzzzz6", 422, at=LATER, **suggestions)
    assert (server.questions, memory.position(ROOT)) == (["/contract/changes"], LATER)
    assert recalled(memory) == ["G"]
    replied(memory, "Zzzzzz6", 422, at=EARLIER, recovery_feedback={"suggestions": [FIX | {"type": "H"}]})
    assert recalled(memory) == ["G"]


def got(memory, named, at, ask=None):
    """The reply to GET: in the full form, as a cache may keep it. Of its position there is only a header."""
    nonce = named.partition(";")[2]
    headers = JSON | {AT_HEADER: f"{at};{nonce}"}
    reply = Reply(200, b'{"table_versions": {"t": "9"}}', headers)
    return memory.observe(Exchange(ROOT, "GET /x", {}, reply, named), ask)


@pytest.mark.spec("11.14", "11.28")
@pytest.mark.parametrize("at", [HERE, LATER])
def test_the_reply_to_get_settles_a_doubt_where_nothing_has_moved_and_else_the_server_is_asked_at_once(at):
    """What has moved is not in it, so that it can be kept for others. The question after it tells."""
    server = Server(to=LATER, moved={"tables": {"t": {"changed": ["another"]}}})
    clock = Clock()
    memory = placed(clock=clock)
    replied(memory, None, at=LATER)
    assert recalled(memory) == []
    clock.now += 2
    got(memory, memory.contract_at(ROOT), at, server)
    assert server.questions == ([] if at == HERE else ["/contract/changes"])
    assert (recalled(memory), memory.position(ROOT)) == (["F"], at)


@pytest.mark.spec("11.27", "11.31")
def test_a_doubt_that_the_reply_to_get_cannot_settle_is_settled_by_the_next_question_that_is_answered():
    server, clock = Server(), Clock()
    memory = placed(ask=server, clock=clock)
    replied(memory, None, at=LATER)
    got(memory, memory.contract_at(ROOT), LATER)
    assert (server.questions, recalled(memory)) == (["/contract/changes"], [])
    server.account = {"to": LATER, "moved": {}}
    got(memory, memory.contract_at(ROOT), LATER)
    assert (server.questions, recalled(memory)) == (["/contract/changes"], [])  # it was silent a moment ago
    clock.now += 2
    got(memory, memory.contract_at(ROOT), LATER)
    assert server.questions == ["/contract/changes"] * 2
    assert (recalled(memory), memory.position(ROOT)) == (["F"], LATER)


@pytest.mark.spec("11.29")
@pytest.mark.parametrize("headers", [JSON, JSON | {"age": "60"}])
def test_a_server_that_names_no_position_any_more_is_asked_unless_a_cache_speaks_for_it(headers):
    server = Server(to=HERE)
    memory = placed(ask=server)
    replied(memory, HERE, headers=headers, table_versions={"t": "7"})
    assert server.questions == ([] if "age" in headers else ["/contract/changes"])
    assert (recalled(memory), memory.position(ROOT)) == (["F"], HERE)
    silent = Server()
    memory = placed(ask=silent)
    replied(memory, HERE, headers=headers, table_versions={"t": "7"})
    assert recalled(memory) == (["F"] if "age" in headers else [])


STAMPS = {"table_versions": {"t": "7"}, "rules_version": "0123456789abcdef"}


@pytest.mark.spec("5.7", "11.29")
def test_stamps_of_the_state_at_the_known_position_are_asked_about_once_and_others_each_time():
    server = Server(to=HERE, state=state_name(**STAMPS))
    memory = placed(ask=server)
    replied(memory, None, **STAMPS)
    assert server.questions == ["/contract/changes"]
    replied(memory, None, **STAMPS)
    replied(memory, None, **STAMPS)
    assert server.questions == ["/contract/changes"]
    for count in (2, 3):
        replied(memory, None, **STAMPS | {"table_versions": {"t": "6"}})
        assert server.questions == ["/contract/changes"] * count
    assert (recalled(memory), memory.position(ROOT)) == (["F"], HERE)


@pytest.mark.spec("11.29")
@pytest.mark.parametrize("told", [{"to": THERE, "moved": {}}, {"to": ANOTHER, "unknown": "foreign"}])
def test_what_a_state_is_called_is_not_known_any_more_once_the_log_has_gone_on(told):
    server = Server(to=HERE, state=state_name(**STAMPS))
    memory = placed(ask=server)
    replied(memory, None, **STAMPS)
    base = memory.contract_at(ROOT)
    replied(memory, base, at={"from": base, **told})
    server.account = {"to": told["to"]}
    replied(memory, None, **STAMPS)
    assert server.questions == ["/contract/changes"] * 2


@pytest.mark.spec("11.35")
@pytest.mark.parametrize(
    ("status", "expected"), [(200, ["F", "ANOTHER"]), (404, ["F", "G"]), (403, ["F", "G"]), (503, ["F"])]
)
def test_what_a_reply_without_a_position_suggests_is_asked_about_by_the_position_where_it_can_be(
    status, expected
):
    another = FIX | {"tables": [{"table": "t", "version": "7"}], "parameters": {"y": 2}}
    server = Server(to=HERE, state=state_name(**STAMPS))
    server.fixes = [FIX, another | {"type": "ANOTHER"}]
    memory = placed(ask=server)
    replied(memory, None, **STAMPS)
    server.status = status
    replied(memory, None, 422, **STAMPS, recovery_feedback={"suggestions": [another | {"type": "G"}]})
    assert server.questions == ["/contract/changes", "/contract/fixes"]
    assert recalled(memory) == expected


@pytest.mark.spec("11.35")
def test_an_answer_about_fixes_that_names_no_position_either_is_not_asked_about_again():
    suggested = {"suggestions": [FIX | {"type": "G"}]}
    questions = []

    def ask(question):
        questions.append(question.url)
        told = {"to": HERE, "state": state_name(**STAMPS)}
        if question.body is not None:
            return Reply(200, json.dumps(STAMPS | {"recovery_feedback": suggested}).encode())
        nonce = question.url.partition("nonce=")[2].partition("&")[0]
        return Reply(200, json.dumps(told | {"nonce": nonce}).encode())

    memory = placed(ask=ask)
    replied(memory, None, 422, **STAMPS, recovery_feedback=suggested)
    assert [url.partition("?")[0].rpartition("/")[2] for url in questions] == ["changes", "fixes"]
    assert recalled(memory) == ["F"]


@pytest.mark.spec("11.29")
@pytest.mark.parametrize("status", [400, 404, 405])
def test_a_server_that_has_no_log_any_more_is_known_by_its_versions(status):
    server = Server()
    server.status = status
    told = []
    memory = placed(ask=server, on_event=told.append)
    mark = mark_of(memory)
    replied(memory, HERE, table_versions={"t": "1"})
    assert server.questions == ["/contract/changes", "/contract/state"]
    assert told[-1] == LogLost(ROOT, several=False)
    assert (memory.position(ROOT), memory.contract_at(ROOT)[0]) == (None, "*")
    assert memory.store.known(ROOT).knowledge.versions.tables == {"t": "1"}
    assert mark_of(memory) != mark
    assert recalled(memory) == []
    replied(memory, None, 422, table_versions={"t": "1"}, recovery_feedback={"suggestions": [FIX]})
    assert recalled(memory) == ["F"]


@pytest.mark.spec("11.30")
def test_a_log_that_comes_back_within_ten_minutes_answers_beside_another():
    told, clock = [], Clock()
    server = Server(to=HERE)
    memory = placed(on_event=told.append, clock=clock, ask=server)

    def goes_to(at):
        named = memory.contract_at(ROOT)
        told.clear()
        replied(memory, named, at={"to": at, "from": named, "unknown": "foreign"})
        [lost] = [event for event in told if isinstance(event, LogLost)]
        server.account = {"to": at}
        return lost.several

    assert goes_to(ANOTHER) is False
    clock.now += 599
    assert goes_to(HERE) is True
    for _ in range(2):
        assert recalled(memory) == []
        memory.revalidate(ROOT, OPERATION, {})
        assert recalled(memory) == ["F"]  # once
    clock.now += 600
    assert recalled(memory) == ["F"]
    assert recalled(memory) == ["F"]
    assert goes_to(THERE) is False
    clock.now += 600
    assert goes_to(HERE) is False


@pytest.mark.spec("11.30")
def test_several_logs_are_noticed_by_an_agent_whose_clock_is_behind_the_others():
    told, clock = [], Clock()
    memory = placed(on_event=told.append, clock=clock, ask=Server(to=HERE))
    for at in (ANOTHER, HERE):
        named = memory.contract_at(ROOT)
        replied(memory, named, at={"to": at, "from": named, "unknown": "foreign"})
        clock.now -= 30
    assert [event.several for event in told if isinstance(event, LogLost)] == [False, True]
    memory.revalidate(ROOT, OPERATION, {})
    assert recalled(memory) == ["F"]  # once
    assert recalled(memory) == []


@pytest.mark.spec("11.31")
def test_a_server_that_does_not_answer_is_asked_ever_later():
    clock, silent = Clock(), Server()
    memory = placed(clock=clock, ask=silent)
    pauses, last = [], None
    for _ in range(2_000):
        replied(memory, None, at=LATER)
        if silent.questions:
            silent.questions.clear()
            if last is not None:
                pauses.append(clock.now - last)
            last = clock.now
        clock.now += 1
    assert pauses[:9] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert set(pauses[9:]) == {300}
    memory.refresh(ROOT)
    assert silent.questions == ["/contract/changes"]
    silent.account = {"to": HERE}
    memory.refresh(ROOT)
    assert recalled(memory) == ["F"]
    silent.account, _ = {}, silent.questions.clear()
    for _ in range(2):
        replied(memory, None, at=LATER)
        clock.now += 1
    assert silent.questions == ["/contract/changes"] * 2


@pytest.mark.spec("11.22", "11.31")
def test_a_server_of_which_no_position_is_known_is_not_asked_more_often_either():
    """Each reply names a position and is no answer, so that there is something to ask about every second."""
    clock, silent = Clock(), Server()
    memory = Memory(clock=clock, ask=silent)
    asked_at = []
    for _ in range(40):
        replied(memory, None, at=HERE)
        asked_at += [clock.now - 1000] * len(silent.questions)
        silent.questions.clear()
        clock.now += 1
    assert asked_at == [0, 1, 3, 7, 15, 31]
    silent.account = {"to": HERE}
    while memory.position(ROOT) is None:
        replied(memory, None, at=HERE)
        clock.now += 1
    assert clock.now - 1000 == 31 + 32 + 1
    assert silent.questions == ["/contract/changes"]


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_server_that_is_known_by_versions_and_tells_no_position_when_asked_is_held_to_its_versions(version):
    """As with a reply that a cache has kept since the server has a log: it is no answer, and names versions all the same."""
    silent, told = Server(), []
    memory = Memory(ask=silent, on_event=told.append)
    replied(memory, None, 422, table_versions={"t": "1"}, recovery_feedback={"suggestions": [FIX]})
    assert recalled(memory) == ["F"]
    kept = Reply(200, b'{"table_versions": {"t": "%s"}}' % version.encode(), JSON | {AT_HEADER: HERE})
    memory.observe(Exchange(ROOT, "GET /x", {}, kept, memory.contract_at(ROOT)))
    assert silent.questions[0] == "/contract/changes"
    assert recalled(memory) == (["F"] if version == "1" else [])
    assert [type(event) for event in told] == ([Stored] if version == "1" else [Stored, Evicted])
    assert memory.position(ROOT) is None
