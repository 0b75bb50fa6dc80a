"""A memory that has pinned a key: it follows a server that signs exactly, and nobody else gets anything out of it or into it."""

import json
import re

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shelflife.apis.acme import ROTATED_CODES, acme_app, acme_provider
from shelflife.client import Guard, Memory, Reply, StoreError
from shelflife.client.events import Distrusted, Evicted, Ignored, LogLost, Stored
from shelflife.client.in_process import InProcessStore
from shelflife.integrations.ed25519 import trust
from shelflife.integrations.httpx2 import MemoryTransport
from shelflife.server import Signing
from shelflife.testing import serving
from tests.acme_world import FREE, FUNDING_1, GOVERNED, rotate
from tests.client.agents import Clock, only_get, posting
from tests.client.histories import HISTORIES, assert_exact, assert_nothing_stale, drifts, has_changed
from tests.client.wires import DAY_S, KEY, SIGNED, UNSIGNED, Naming, Wire, asked, held, tamper
from tests.programs import programs
from tests.worlds import dense_fields, dense_worlds, rule_lists

pytestmark = pytest.mark.usefixtures("servers_end_soon")


@pytest.fixture
def provider(tmp_path, clock):
    provider = acme_provider(log=tmp_path / "log.db", signing=Signing(signer=KEY, clock=clock))
    yield provider
    provider.close()


@pytest.fixture
def agent(address, store, clock, request):
    options = getattr(request, "param", {})
    with Naming(address, store=store, clock=clock, trust=trust({address: [KEY.key]}), **options) as agent:
        yield agent


@pytest.fixture
def wire(agent):
    return Wire(agent)


@pytest.mark.spec("15.11")
def test_a_server_that_signs_is_asked_once_for_each_state_and_never_for_its_changes(agent, provider):
    for _ in range(3):
        agent.call(GOVERNED)
    assert agent.recall(GOVERNED)
    assert asked(agent) == ["signed"]
    provider.registry.reload_table(
        "recommended_credit_token", {**provider.registry.rows("recommended_credit_token")}, version="2.0.0"
    )
    agent.call(FREE)
    assert agent.of(Evicted) == []
    assert agent.recall(GOVERNED)
    rotate(provider)
    agent.call(FREE)
    assert [event.entry.parameters for event in agent.of(Evicted)] == [{"promo_code": "SUMMERSALE25"}]
    assert asked(agent) == ["signed"] * 3
    assert agent.of(Distrusted) == []


@settings(max_examples=HISTORIES // 4)
@given(
    content=dense_worlds,
    declared=rule_lists,
    program_list=st.lists(programs, min_size=1, max_size=3),
    requests=st.lists(dense_fields, min_size=1, max_size=4),
    rounds=st.lists(st.tuples(drifts, st.integers(0, 4)), min_size=1, max_size=3),
)
def test_exact_with_signed_states_too(
    tmp_path_factory, world, world_address, http, content, declared, program_list, requests, rounds
):
    path = tmp_path_factory.mktemp("signed") / "log.db"
    world.make(content, declared, program_list, log=path, signing=Signing(signer=KEY))
    with_keys = trust({world_address: [KEY.key]})
    agent = Naming(world_address, "POST /x", http=http, trust=with_keys)
    try:
        assert_exact(world, agent, requests, rounds)
    finally:
        world.provider.close()
    assert not any("/contract/changes" in url or "/contract/state" in url for url in agent.asked)


@pytest.mark.spec("15.11")
@settings(max_examples=HISTORIES // 4)
@given(
    content=dense_worlds,
    declared=rule_lists,
    program_list=st.lists(programs, min_size=1, max_size=2),
    requests=st.lists(dense_fields, min_size=1, max_size=3),
    rounds=st.lists(
        st.tuples(st.one_of(st.just([]), drifts), st.sampled_from(["nothing", *UNSIGNED, *SIGNED])),
        min_size=1,
        max_size=6,
    ),
)
def test_whoever_sits_on_the_wire_can_evict_nothing_that_stands(
    tmp_path_factory, world, world_address, http, content, declared, program_list, requests, rounds
):
    path = tmp_path_factory.mktemp("signed") / "log.db"
    clock = Clock()
    world.make(content, declared, program_list, log=path, signing=Signing(signer=KEY, clock=clock))
    agent = Naming(world_address, "POST /x", http=http, clock=clock, trust=trust({world_address: [KEY.key]}))
    wire = Wire(agent)
    states = [world.provider.state]
    learned_at = {}
    try:
        for events, tampered in [([], "nothing"), *rounds]:
            for event in events:
                world.drift(event)
            states.append(world.provider.state)
            tamper(wire, tampered)
            for request in [{"unrelated": True}, *requests]:
                clock.now += 300
                wire.call(request)
                for evicted in agent.of(Evicted):
                    since = states[learned_at[evicted.entry.id] :]
                    is_right = any(has_changed(evicted.entry, since[0], state) for state in since)
                    assert is_right or not evicted.reason.is_invalidation
                learned_at |= {event.entry.id: len(states) - 1 for event in agent.of(Stored)}
                agent.events.clear()
            if tampered in ("nothing", *UNSIGNED):  # what is not signed changes nothing at all
                assert_nothing_stale(world, agent, requests)
        tamper(wire, "nothing")
        clock.now += 300
        agent.call({"unrelated": True})
        assert_nothing_stale(world, agent, requests)
        for request in requests:
            agent.call(request)
            remembered = {entry.type for entry in agent.recall(request)}
            now = world.provider.violations(request)
            assert remembered == {
                one.suggestion.type for one in now if one.suggestion.cache_hint == "cacheable"
            }
    finally:
        world.provider.close()


@pytest.mark.spec("15.12")
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("answer forged", "forged"),
        ("answer replayed", "the answer to another question: it is replayed"),
        ("no answer", "gave none"),
        ("signed by another", "not pinned"),
        ("question changed", "the answer to another question"),
    ],
)
def test_what_is_remembered_is_suspect_until_a_check_and_the_user_is_told_why(agent, wire, clock, how, why):
    agent.call(GOVERNED)
    before = held(agent)
    tamper(wire, how)
    for _ in range(3):
        for _ in range(2):  # the second time it is not asked
            wire.call(GOVERNED)
            assert agent.recall(GOVERNED) == []
        clock.now += 5
    assert held(agent) == before
    assert agent.of(Evicted) == []
    (told,) = agent.of(Distrusted)
    assert told.root == agent.origin
    assert re.search(why, told.why)
    agent.memory.refresh(agent.origin)
    assert agent.recall(GOVERNED) == []
    tamper(wire, "nothing")
    agent.memory.refresh(agent.origin)
    assert [entry.parameters for entry in agent.recall(GOVERNED)] == before
    # and should it begin again, it is told again
    tamper(wire, how)
    wire.call(GOVERNED)
    assert len(agent.of(Distrusted)) == 2
    assert (held(agent), agent.of(LogLost)) == (before, [])


@pytest.mark.spec("15.11")
@pytest.mark.parametrize("how", UNSIGNED)
def test_what_is_forged_and_not_signed_costs_a_question_and_nothing_else(agent, wire, how):
    agent.call(GOVERNED)
    before = held(agent)
    tamper(wire, how)
    wire.call(FUNDING_1)
    assert asked(agent) == ["signed", "signed"]
    expected = ["the reply is of another state than the signed one: it is late, or forged"]
    assert [event.why for event in agent.of(Ignored)] == ([] if how == "position hidden" else expected)
    assert (held(agent), agent.of(Evicted), agent.of(LogLost)) == (before, [], [])
    assert agent.recall(GOVERNED)
    assert agent.recall(FUNDING_1) == []


def test_a_late_reply_teaches_and_drops_nothing(agent, provider):
    agent.call(GOVERNED)
    late = agent.unobserved(GOVERNED)
    rotate(provider)
    agent.call(GOVERNED)
    before = held(agent)
    agent.memory.observe(late)
    assert before == held(agent) == [entry.parameters for entry in agent.recall(GOVERNED)]
    assert before == [{"promo_code": "WINTERLAUNCH26"}]


@pytest.mark.spec("15.12")
def test_replayed(agent, wire, provider):
    agent.call(GOVERNED)
    rotate(provider)
    agent.call(GOVERNED)
    before = held(agent)
    tamper(wire, "answer replayed")
    wire.call(GOVERNED)
    assert "the answer to another question: it is replayed" in agent.of(Distrusted)[0].why
    assert (held(agent), agent.recall(GOVERNED)) == (before, [])


@pytest.mark.spec("15.12")
def test_frozen(agent, wire, provider, clock):
    """Somebody gives for ever the reply that was given at first, and answers nothing: that works until it expires, and no longer."""
    first = agent.unobserved(GOVERNED)
    wire.tamper_response = lambda exchange: first
    wire.call(GOVERNED)
    wire.tamper_answer = lambda question, answer: None
    rotate(provider)
    clock.now += DAY_S - 1
    wire.call(GOVERNED)
    assert agent.recall(GOVERNED)
    assert asked(agent) == ["signed"]
    clock.now += 1
    assert agent.recall(GOVERNED) == []
    assert agent.memory.position(agent.origin) is None
    wire.call(GOVERNED)
    assert "asked for its signed state and gave none" in agent.of(Distrusted)[0].why
    assert (held(agent), agent.recall(GOVERNED)) == ([{"promo_code": "SUMMERSALE25"}], [])
    clock.now += 1
    wire.tamper_answer = lambda question, answer: wire.answers[0]
    wire.call(GOVERNED)
    assert "it is replayed" in agent.of(Distrusted)[1].why
    assert (held(agent), agent.recall(GOVERNED)) == ([{"promo_code": "SUMMERSALE25"}], [])
    clock.now += 2
    tamper(wire, "nothing")
    agent.call(FREE)
    assert held(agent) == []


def test_replies_do_not_put_off_the_end_of_a_keys_word(agent, wire, clock):
    """Replies at the position that is vouched for renew nothing; only an answer does."""
    agent.call(GOVERNED)
    for _ in range(23):
        clock.now += 3600
        agent.call(GOVERNED)
    assert asked(agent) == ["signed"]
    clock.now += 3600
    assert agent.recall(GOVERNED) == []
    agent.call(GOVERNED)
    assert agent.recall(GOVERNED)
    assert asked(agent) == ["signed", "signed"]


def test_a_server_that_does_not_answer_is_not_asked_with_every_reply(agent, wire, clock):
    agent.call(GOVERNED)
    tamper(wire, "no answer")
    agent.asked.clear()
    for _ in range(5):
        wire.call(GOVERNED)
    assert asked(agent) == ["signed"]
    clock.now += 1
    wire.call(GOVERNED)
    wire.call(GOVERNED)
    assert asked(agent) == ["signed"] * 2
    agent.memory.refresh(agent.origin)
    assert asked(agent) == ["signed"] * 3
    clock.now += 300
    tamper(wire, "nothing")
    wire.call(GOVERNED)
    assert asked(agent) == ["signed"] * 4
    assert agent.recall(GOVERNED)


@pytest.mark.spec("15.14")
def test_who_is_too_far_behind_revalidates_all_that_is_remembered(agent, provider, wire):
    for request in (GOVERNED, FUNDING_1):
        agent.call(request)
    before = held(agent)
    too_long_to_tell = {f"{n:0500}": {"code": "X"} for n in range(3_000)}
    provider.registry.reload_table("active_csm_codes", set=too_long_to_tell | ROTATED_CODES)
    agent.call(FREE)
    assert [event.several for event in agent.of(LogLost)] == [False]
    assert (held(agent), agent.of(Evicted), agent.of(Distrusted)) == (before, [], [])
    assert agent.recall(GOVERNED) == agent.recall(FUNDING_1) == []
    agent.memory.revalidate(agent.origin, agent.operation, FUNDING_1)
    assert [entry.parameters for entry in agent.recall(FUNDING_1)] == [
        {"payment_method_token": "acme_pm_visa_credit"}
    ]
    agent.memory.revalidate(agent.origin, agent.operation, GOVERNED)
    assert [entry.parameters for entry in agent.recall(GOVERNED)] == [{"promo_code": "WINTERLAUNCH26"}]
    assert asked(agent) == ["signed", "signed", "fixes", "fixes"]


@pytest.mark.spec("15.11")
def test_a_server_that_does_not_sign_teaches_nothing_where_a_key_is_pinned():
    with (
        serving(acme_app(acme_provider())) as address,
        Naming(address, trust=trust({address: [KEY.key]})) as agent,
    ):
        agent.call(GOVERNED)
        assert held(agent) == []
        assert [event.why for event in agent.of(Distrusted)] == [
            "the server was asked for its signed state and gave none"
        ]
    with (
        serving(acme_app(acme_provider())) as address,
        Naming(address, trust=trust({"https://elsewhere.example": [KEY.key]})) as agent,
    ):
        agent.call(GOVERNED)
        assert agent.recall(GOVERNED)


@pytest.mark.spec("15.11")
def test_a_reply_that_names_no_position_is_not_believed(address, store, clock):
    """As of a server that knows only the paper: there is nothing that a key could vouch for."""
    with Naming(address, store=store, clock=clock, trust=trust({address: [KEY.key]})) as agent:
        agent.memory.observe(agent.sent(GOVERNED, {}))
        assert (held(agent), agent.asked) == ([], [])
        assert [event.why for event in agent.of(Distrusted)] == [
            "the server names no position in its log, and only that can be signed"
        ]
        agent.memory.refresh(address)
        agent.memory.observe(agent.sent(GOVERNED, {}))
        assert held(agent) == []
        assert agent.of(Distrusted)[1:] == []


def test_refresh_asks_a_key_and_nobody_else(agent, provider, clock):
    agent.call(GOVERNED)
    agent.asked.clear()
    agent.memory.refresh(agent.origin)
    assert asked(agent) == ["signed"]
    rotate(provider)
    agent.memory.refresh(agent.origin, only_get(agent.ask))
    assert asked(agent) == ["signed", "signed"]
    assert held(agent) == []
    agent.call(GOVERNED)
    clock.now += DAY_S
    assert agent.recall(GOVERNED) == []
    agent.memory.refresh(agent.origin)
    assert [entry.parameters for entry in agent.recall(GOVERNED)] == [{"promo_code": "WINTERLAUNCH26"}]
    assert asked(agent) == ["signed"] * 3


def test_what_the_change_feed_tells_is_asked_about(agent, provider):
    agent.call(GOVERNED)
    forged = {"to": "Forged9", "from": agent.memory.contract_at(agent.origin), "moved": {"tables": {}}}
    agent.memory.hear(agent.origin, json.dumps(forged).encode())
    assert agent.recall(GOVERNED)
    rotate(provider)
    face = provider.face(provider.state, {})
    agent.memory.hear(agent.origin, json.dumps({"to": str(face.position)}).encode())
    assert [entry.parameters for entry in agent.recall(GOVERNED)] == [{"promo_code": "WINTERLAUNCH26"}]
    assert asked(agent) == ["signed", "signed", "signed", "fixes"]


def test_the_transport_checks_before_it_uses_what_is_no_longer_vouched_for(address, provider, store, clock):
    asked = []

    class Counting(httpx2.HTTPTransport):
        def handle_request(self, request):
            asked.append(request.url.path)
            return super().handle_request(request)

    memory = Memory(store, trust=trust({address: [KEY.key]}), clock=clock)
    transport = MemoryTransport(memory, Counting(), guard=Guard())
    with httpx2.Client(base_url=address, transport=transport) as client:
        statuses = [client.post("/subscriptions", json=GOVERNED).status_code for _ in range(2)]
        # nothing is known at first, and so nothing has to be vouched for before it is used
        assert (statuses, asked) == ([422, 201], ["/subscriptions", "/contract/signed", "/subscriptions"])
        clock.now += DAY_S
        asked.clear()
        assert client.post("/subscriptions", json=GOVERNED).status_code == 201
        assert asked == ["/contract/signed", "/subscriptions"]
        rotate(provider)
        clock.now += DAY_S
        asked.clear()
        assert client.post("/subscriptions", json=GOVERNED).status_code == 201
        assert asked == ["/contract/signed", "/contract/fixes", "/subscriptions"]


@pytest.mark.parametrize("agent", [{"most_evictions": 0}], indirect=True)
def test_suspects_of_a_server_that_signs_are_confirmed_by_its_answer(agent, provider):
    agent.call(GOVERNED)
    rotate(provider)
    agent.call(FREE)
    assert agent.recall(GOVERNED) == []
    assert held(agent) == [{"promo_code": "SUMMERSALE25"}]

    agent.memory.revalidate(agent.origin, agent.operation, GOVERNED)
    assert [entry.parameters for entry in agent.recall(GOVERNED)] == [{"promo_code": "WINTERLAUNCH26"}]
    assert held(agent) == [{"promo_code": "WINTERLAUNCH26"}]


def test_a_doubt_is_settled_by_a_key_and_not_by_a_response_that_looks_right(agent, wire, clock):
    agent.call(GOVERNED)
    tamper(wire, "no answer")
    wire.call(GOVERNED)
    wire.tamper_response = lambda exchange: exchange
    clock.now += 5
    wire.call(GOVERNED)
    assert agent.recall(GOVERNED) == []
    tamper(wire, "nothing")
    clock.now += 5
    wire.call(GOVERNED)
    assert agent.recall(GOVERNED)


@pytest.mark.parametrize("agent", [{"most_evictions": 0}], indirect=True)
def test_an_answer_of_another_state_than_the_signed_one_unconfirms_nothing(agent, provider):
    agent.call(GOVERNED)
    rotate(provider)
    agent.call(FREE)
    for at in ("Forged9", {"to": "Forged9", "from": agent.memory.contract_at(agent.origin), "moved": {}}):
        forged = json.dumps({"recovery_feedback": {"suggestions": []}, "at": at}).encode()
        agent.memory.revalidate(
            agent.origin,
            agent.operation,
            GOVERNED,
            posting(agent, lambda question, forged=forged: Reply(200, forged)),
        )
        assert held(agent) == [{"promo_code": "SUMMERSALE25"}]
    agent.memory.revalidate(agent.origin, agent.operation, GOVERNED)
    assert held(agent) == [{"promo_code": "WINTERLAUNCH26"}]


def test_where_the_store_cannot_tell_nothing_is_vouched_for(address, clock):
    class Failing(InProcessStore):
        is_failing = False

        def known(self, root):
            if self.is_failing:
                raise StoreError("the store is gone")
            return super().known(root)

        def find(self, root, operation, request):
            self.known(root)
            return super().find(root, operation, request)

    store = Failing()
    with Naming(address, store=store, clock=clock, trust=trust({address: [KEY.key]})) as agent:
        agent.call(GOVERNED)
        assert agent.recall(GOVERNED)
        store.is_failing = True
        assert agent.recall(GOVERNED) == []
