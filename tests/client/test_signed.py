"""A memory that has pinned a key: it follows a server that signs exactly, and nobody else gets anything out of it or into it."""

import base64
import json
import re
import shutil
from contextlib import closing

import httpx2
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shelflife.apis.acme import ROTATED_CODES, acme_app, acme_provider
from shelflife.client import Guard, Memory, Question, Reply, SqliteStore, StoreError
from shelflife.client.events import Distrusted, Evicted, Ignored, Stored
from shelflife.client.in_process import InProcessStore
from shelflife.contract.signed import statement_input
from shelflife.integrations.ed25519 import SigningKey, trust
from shelflife.integrations.httpx2 import MemoryTransport
from shelflife.server import Signing
from shelflife.testing import serving
from tests.acme_world import FREE, GOVERNED, rotate
from tests.client.agents import Agent, only_get, posting
from tests.client.histories import HISTORIES, assert_exact, assert_nothing_stale, drifts, has_changed
from tests.programs import programs
from tests.worlds import dense_fields, dense_worlds, rule_lists

DAY_S = 24 * 3600
KEY = SigningKey.new()


class Wire:
    """What lies between an agent and its server: it may change whatever comes back."""

    def __init__(self, agent):
        self.agent = agent
        self.answers = []
        self.tamper_answer = lambda question, answer: answer
        self.tamper_response = lambda exchange: exchange
        honest = agent.ask

        def ask(question):
            answer = honest(question)
            if answer is not None and "/contract/signed" in question.url:
                self.answers.append(answer)
            return self.tamper_answer(question, answer)

        agent.asker = ask

    def call(self, request):
        self.agent.memory.observe(self.tamper_response(self.agent.unobserved(request)))


@pytest.fixture
def provider(tmp_path, clock):
    provider = acme_provider(state_file=tmp_path / "state.db", signing=Signing(signer=KEY, clock=clock))
    yield provider
    provider.close()


@pytest.fixture
def agent(address, store, clock, request):
    options = getattr(request, "param", {})
    with Agent(address, store=store, clock=clock, trust=trust({address: [KEY.key]}), **options) as agent:
        yield agent


@pytest.fixture
def wire(agent):
    return Wire(agent)


def held(agent):
    return [entry.parameters for entry in agent.memory.store.entries()]


def asked(agent):
    return [url.rpartition("/contract/")[2].partition("?")[0] for url in agent.asked]


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
    path = tmp_path_factory.mktemp("signed") / "state.db"
    world.make(content, declared, program_list, state_file=path, signing=Signing(signer=KEY))
    with_keys = trust({world_address: [KEY.key]})
    agent = Agent(world_address, "POST /x", http=http, trust=with_keys)
    try:
        assert_exact(world, agent, requests, rounds)
    finally:
        world.provider.close()
    assert not any("/contract/changes" in url or "/contract/state" in url for url in agent.asked)


tampering = st.sampled_from(
    ["nothing", "stamps forged", "answer forged", "answer replayed", "no answer", "signed by another"]
)


@pytest.mark.spec("15.10")
@settings(max_examples=HISTORIES // 4)
@given(
    content=dense_worlds,
    declared=rule_lists,
    program_list=st.lists(programs, min_size=1, max_size=2),
    requests=st.lists(dense_fields, min_size=1, max_size=3),
    rounds=st.lists(st.tuples(st.one_of(st.just([]), drifts), tampering), min_size=1, max_size=6),
)
def test_whoever_sits_on_the_wire_can_evict_nothing_that_stands(
    tmp_path_factory, world, world_address, http, content, declared, program_list, requests, rounds
):
    path = tmp_path_factory.mktemp("signed") / "state.db"
    world.make(content, declared, program_list, state_file=path, signing=Signing(signer=KEY))
    agent = Agent(world_address, "POST /x", http=http, trust=trust({world_address: [KEY.key]}))
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
                wire.call(request)
                for evicted in agent.of(Evicted):
                    since = states[learned_at[evicted.entry.id] :]
                    is_right = any(has_changed(evicted.entry, since[0], state) for state in since)
                    assert is_right or not evicted.reason.is_invalidation
                learned_at |= {event.entry.id: len(states) - 1 for event in agent.of(Stored)}
                agent.events.clear()
        tamper(wire, "nothing")
        agent.call({"unrelated": True})
        assert_nothing_stale(world, agent, requests)
    finally:
        world.provider.close()


def tamper(wire, how):
    wire.tamper_answer = lambda question, answer: answer
    wire.tamper_response = lambda exchange: exchange
    match how:
        case "stamps forged":
            wire.tamper_response = with_other_stamps
        case "answer forged":
            wire.tamper_response = with_other_stamps
            wire.tamper_answer = lambda question, answer: msgspec.structs.replace(
                answer, body=answer.body.replace(b"1.0.0", b"6.6.6").replace(b"A", b"B", 1)
            )
        case "answer replayed":
            wire.tamper_response = with_other_stamps
            wire.tamper_answer = lambda question, answer: wire.answers[0]
        case "no answer":
            wire.tamper_answer = lambda question, answer: None
        case "signed by another":
            wire.tamper_answer = lambda question, answer: (
                by_another_key(answer) if "/signed" in question.url else answer
            )


def with_other_stamps(exchange):
    body = json.loads(exchange.reply.body)
    body["table_versions"] = dict.fromkeys(body["table_versions"], "6.6.6")
    return exchange._replace(reply=msgspec.structs.replace(exchange.reply, body=json.dumps(body).encode()))


def by_another_key(answer):
    thief = SigningKey.new()
    tree = msgspec.json.decode(answer.body)
    for one in tree["statements"]:
        one["statement"] = one["statement"].replace("1.0.0", "6.6.6")
        one["key"] = thief.key
        one["signature"] = base64.b64encode(thief.sign(statement_input(one["statement"]))).decode()
    return msgspec.structs.replace(answer, body=msgspec.json.encode(tree))


@pytest.mark.spec("15.10")
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("answer forged", "forged|cannot be read|malformed|not pinned|signature"),
        ("no answer", "gave none"),
        ("signed by another", "not pinned"),
    ],
)
def test_what_is_remembered_is_suspect_until_a_check_and_the_user_is_told_why(agent, wire, how, why):
    agent.call(GOVERNED)
    before = held(agent)
    tamper(wire, how)
    wire.tamper_response = with_other_stamps
    for _ in range(3):
        wire.call(GOVERNED)
        assert agent.recall(GOVERNED) == []
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
    wire.tamper_response = with_other_stamps
    wire.call(GOVERNED)
    assert len(agent.of(Distrusted)) == 2


def test_forged_stamps_cost_a_question_and_nothing_else(agent, wire):
    agent.call(GOVERNED)
    before = held(agent)
    tamper(wire, "stamps forged")
    wire.call(GOVERNED)
    assert asked(agent) == ["signed", "signed"]
    assert [event.why for event in agent.of(Ignored)] == [
        "the response is of another state than the signed one: it is late, or forged"
    ]
    assert held(agent) == before
    assert agent.recall(GOVERNED)


@pytest.mark.spec("15.10")
def test_replayed(agent, wire, provider):
    agent.call(GOVERNED)
    rotate(provider)
    agent.call(GOVERNED)
    before = held(agent)
    tamper(wire, "answer replayed")
    wire.call(GOVERNED)
    assert "replayed, or the server was rolled back" in agent.of(Distrusted)[0].why
    assert (held(agent), agent.recall(GOVERNED)) == (before, [])


@pytest.mark.spec("15.10")
def test_frozen(agent, wire, provider, clock):
    """Somebody answers for ever with what was said at first: that works until it expires, and no longer."""
    first = agent.unobserved(GOVERNED)
    wire.tamper_response = lambda exchange: first
    wire.tamper_answer = lambda question, answer: wire.answers[0]
    wire.call(GOVERNED)
    rotate(provider)
    clock.now += DAY_S - 1
    wire.call(GOVERNED)
    assert agent.recall(GOVERNED)
    clock.now += 1
    assert agent.recall(GOVERNED) == []
    wire.call(GOVERNED)
    assert "has expired: somebody holds newer ones back" in agent.of(Distrusted)[0].why
    assert (held(agent), agent.recall(GOVERNED)) == ([{"promo_code": "SUMMERSALE25"}], [])
    tamper(wire, "nothing")
    agent.call(FREE)
    assert held(agent) == []


@pytest.mark.spec("15.10")
def test_rolled_back_and_forked(tmp_path, store, clock):
    """Two servers with one key that have gone apart, behind one name."""
    for name in ("one.db", "two.db"):
        provider = acme_provider(state_file=tmp_path / "first.db", signing=Signing(signer=KEY, clock=clock))
        provider.lineage.answer(None, provider.face(provider.state, {}))
        provider.close()
        shutil.copy(tmp_path / "first.db", tmp_path / name)
    one = acme_provider(state_file=tmp_path / "one.db", signing=Signing(signer=KEY, clock=clock))
    two = acme_provider(state_file=tmp_path / "two.db", signing=Signing(signer=KEY, clock=clock))
    behind = [acme_app(one)]

    async def app(scope, receive, send):
        await behind[0](scope, receive, send)

    with (
        serving(app) as address,
        Agent(address, store=store, clock=clock, trust=trust({address: [KEY.key]})) as agent,
    ):
        rotate(one)
        agent.call(GOVERNED)
        before = held(agent)
        behind[0] = acme_app(two)
        agent.call(GOVERNED)
        assert "rolled back" in agent.of(Distrusted)[-1].why
        two.registry.reload_table("active_csm_codes", set=ROTATED_CODES, version="9.9.9")
        agent.call(GOVERNED)
        assert "two different states" in agent.of(Distrusted)[-1].why
        assert (held(agent), agent.of(Evicted), agent.recall(GOVERNED)) == (before, [], [])
        behind[0] = acme_app(one)
        agent.call(GOVERNED)
        assert [entry.parameters for entry in agent.recall(GOVERNED)] == before
        # whoever wants to go on with the other one forgets all of the origin
        behind[0] = acme_app(two)
        agent.memory.forget(address)
        agent.call(GOVERNED)
        assert held(agent) == [{"promo_code": "WINTERLAUNCH26"}]
    one.close()
    two.close()


def test_a_server_that_does_not_sign_teaches_nothing_where_a_key_is_pinned():
    with (
        serving(acme_app(acme_provider())) as address,
        Agent(address, trust=trust({address: [KEY.key]})) as agent,
    ):
        agent.call(GOVERNED)
        assert held(agent) == []
        assert [event.why for event in agent.of(Distrusted)] == [
            "the server was asked for its signed state and gave none"
        ]
    with (
        serving(acme_app(acme_provider())) as address,
        Agent(address, trust=trust({"https://elsewhere.example": [KEY.key]})) as agent,
    ):
        agent.call(GOVERNED)
        assert agent.recall(GOVERNED)


def test_refresh_asks_for_the_signed_state_only_when_something_moved(agent, provider, clock):
    agent.call(GOVERNED)
    agent.asked.clear()
    agent.memory.refresh(agent.origin)
    assert asked(agent) == ["state"]
    rotate(provider)
    agent.memory.refresh(agent.origin, only_get(agent.ask))
    assert asked(agent) == ["state", "state", "signed"]
    assert held(agent) == []
    agent.call(GOVERNED)
    clock.now += DAY_S
    assert agent.recall(GOVERNED) == []
    agent.memory.refresh(agent.origin)
    assert [entry.parameters for entry in agent.recall(GOVERNED)] == [{"promo_code": "WINTERLAUNCH26"}]
    assert asked(agent)[-1] == "signed"


def test_two_agents_with_one_file_hold_each_other_to_what_was_seen(tmp_path, address, provider, clock):
    """What one has seen signed, the other cannot be led behind."""
    with_keys = trust({address: [KEY.key]})
    first, second = (SqliteStore(tmp_path / "memory.db") for _ in range(2))
    with (
        Agent(address, store=first, clock=clock, trust=with_keys) as one,
        Agent(address, store=second, clock=clock, trust=with_keys) as other,
    ):
        other.call(GOVERNED)
        wire = Wire(other)
        wire.answers.append(other.ask(Question(f"{address}/contract/signed")))
        rotate(provider)
        one.call(GOVERNED)
        tamper(wire, "answer replayed")
        wire.call(GOVERNED)
        assert "replayed" in other.of(Distrusted)[0].why
        assert held(other) == [{"promo_code": "WINTERLAUNCH26"}]
    first.close()
    second.close()


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


def test_a_doubt_is_settled_by_a_key_and_not_by_a_response_that_looks_right(agent, wire):
    agent.call(GOVERNED)
    tamper(wire, "no answer")
    wire.tamper_response = with_other_stamps
    wire.call(GOVERNED)
    wire.tamper_response = lambda exchange: exchange
    wire.call(GOVERNED)
    assert agent.recall(GOVERNED) == []
    tamper(wire, "nothing")
    wire.call(GOVERNED)
    assert agent.recall(GOVERNED)


@pytest.mark.parametrize("agent", [{"most_evictions": 0}], indirect=True)
def test_an_answer_of_another_state_than_the_signed_one_unconfirms_nothing(agent, provider):
    agent.call(GOVERNED)
    rotate(provider)
    agent.call(FREE)
    forged = b'{"recovery_feedback": {"suggestions": []}, "table_versions": {"t": "1"}}'
    agent.memory.revalidate(
        agent.origin, agent.operation, GOVERNED, posting(agent, lambda question: Reply(200, forged))
    )
    assert held(agent) == [{"promo_code": "SUMMERSALE25"}]


def test_where_the_store_cannot_tell_nothing_is_vouched_for(address, clock):
    class Failing(InProcessStore):
        is_failing = False

        def known(self, origin):
            if self.is_failing:
                raise StoreError("the store is gone")
            return super().known(origin)

    store = Failing()
    with Agent(address, store=store, clock=clock, trust=trust({address: [KEY.key]})) as agent:
        agent.call(GOVERNED)
        assert agent.recall(GOVERNED)
        store.is_failing = True
        assert agent.recall(GOVERNED) == []


def test_what_was_vouched_for_by_a_key_that_is_no_longer_pinned_is_suspect(tmp_path, address, clock):
    path = tmp_path / "memory.db"
    pinned = trust({address: [KEY.key]})
    with closing(SqliteStore(path)) as store, Agent(address, store=store, clock=clock, trust=pinned) as agent:
        agent.call(GOVERNED)
        assert agent.recall(GOVERNED)
    other = trust({address: [SigningKey.new().key]})
    with closing(SqliteStore(path)) as store, Agent(address, store=store, clock=clock, trust=other) as agent:
        assert agent.recall(GOVERNED) == []
        agent.memory.refresh(address)
        assert "not pinned" in agent.of(Distrusted)[0].why
        assert (held(agent), agent.recall(GOVERNED)) == ([{"promo_code": "SUMMERSALE25"}], [])


def test_a_later_process_does_not_use_what_an_earlier_one_found_suspect(tmp_path, address, clock):
    path = tmp_path / "memory.db"
    with_key = {"clock": clock, "trust": trust({address: [KEY.key]})}
    with closing(SqliteStore(path)) as store, Agent(address, store=store, **with_key) as agent:
        agent.call(GOVERNED)
        wire = Wire(agent)
        tamper(wire, "answer forged")
        wire.call(GOVERNED)
        assert agent.of(Distrusted)
    with closing(SqliteStore(path)) as store, Agent(address, store=store, **with_key) as agent:
        assert agent.recall(GOVERNED) == []
        agent.memory.refresh(address)
        assert agent.recall(GOVERNED)
