"""A memory that names positions decides as one that is told everything each time, for a fraction of the bytes."""

import asyncio
import json

import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelflife.apis.acme import ROTATED_CODES, acme_app, acme_provider
from shelflife.client import EXACT, Exchange, Guard, Memory, Reply
from shelflife.client.events import Ignored, LogLost
from shelflife.client.reading import read_contract
from shelflife.contract import Rule
from shelflife.contract.positions import AT_HEADER, Named, Position
from shelflife.integrations.httpx2 import AsyncMemoryTransport, MemoryTransport
from shelflife.lab.arms import ARMS
from shelflife.server import Provider, WireFormat, fix
from shelflife.testing import serving
from tests.acme_world import FREE, GOVERNED
from tests.open_contract import openly

PLANS = ["a", "b", "c"]
TIES = Rule(from_table="codes", to_table="promos", relation="needs", via="code")
ORIGIN = "http://shop:80"
OPERATION = "POST /x"
JSON = {"content-type": "application/json"}


def shop(codes, **options):
    """A server: its tables, its rules and its policy."""
    tables = {"codes": codes, "promos": {code: {} for code in "PQR"}, "others": {"x": {"n": 0}}}
    provider = Provider(tables, [TIES], **options)

    @provider.policy
    def code_is_the_assigned_one(request, tables):
        assigned = tables.codes.get(request.get("plan"))
        if assigned is None or request.equals("code", assigned["code"]):
            return None
        is_tied = assigned.follow("needs") is not None
        return fix("USE_CODE" if is_tied else "USE_LOOSE_CODE", code=assigned["code"])

    async def app(scope, receive, send):
        message = await receive()
        provider.check(json.loads(message["body"]))
        body = b'{"success": true}'
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return provider, openly(app, provider, fixes=[OPERATION])


def call(app, method, target, body=b"", at=None):
    """A request to an ASGI app: the status, the headers and the body of its response."""
    path, _, query = target.partition("?")
    headers = [] if at is None else [(AT_HEADER.lower().encode(), at.encode())]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": headers,
    }
    sent = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    response_headers = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], response_headers, b"".join(part.get("body", b"") for part in sent[1:])


class Agent:
    def __init__(self, strategy=EXACT, *, names_positions=True):
        self.app = None
        self.names_positions = names_positions
        self.memory = Memory(strategy=strategy, ask=self.ask)
        self.asked = []
        self.bytes = 0

    def ask(self, question):
        self.asked.append(question.url)
        target, at = question.url.removeprefix(ORIGIN), question.headers.get(AT_HEADER)
        status, _, body = call(self.app, question.method, target, question.body or b"", at)
        return Reply(status, body)

    def request(self, app, fields, *, is_lost=False):
        self.app = app
        at = self.memory.contract_at(ORIGIN) if self.names_positions else None
        status, headers, body = call(app, "POST", "/x", json.dumps(fields).encode(), at)
        self.bytes += len(body)
        if not is_lost:
            self.memory.observe(Exchange(ORIGIN, OPERATION, fields, Reply(status, body, headers), at))

    @property
    def recalled(self):
        return {
            (plan, entry.type, entry.parameters["code"])
            for plan in PLANS
            for entry in self.memory.recall(ORIGIN, OPERATION, {"plan": plan})
        }

    @property
    def held(self):
        return {
            (entry.type, plan_of(entry), entry.parameters["code"]) for entry in self.memory.store.entries()
        }


def plan_of(entry):
    when = entry.condition.when
    return when.get("", when)["plan"]


def right_of(provider):
    """What a server would suggest now."""
    return {
        (plan, violation.suggestion.type, violation.suggestion.parameters["code"])
        for plan in PLANS
        for violation in provider.violations({"plan": plan})
    }


codes = st.fixed_dictionaries(
    {plan: st.sampled_from("PQR").map(lambda code: {"code": code}) for plan in PLANS}
)
plans, is_lost = st.sampled_from(PLANS), st.sampled_from([False, False, False, True])
drifts = (
    st.tuples(st.just("request"), plans, is_lost),
    st.tuples(st.just("request"), plans, is_lost),
    st.tuples(st.just("request"), plans, is_lost),
    st.tuples(st.just("rotate"), plans, st.sampled_from("PQR")),
    st.tuples(st.just("bump"), st.sampled_from(["codes", "others"])),
    st.tuples(st.just("rules"), st.booleans()),
)
restarts = st.tuples(st.just("restart"), codes)
wires = st.sampled_from([WireFormat(level=level) for level in (1, 4, 5, 6)] + [WireFormat(paper_only=True)])
strategies = st.sampled_from([EXACT, *(arm for name, arm in ARMS.items() if name != "A0")])


def drift(provider, step):
    match step:
        case ("rotate", plan, code):
            provider.registry.reload_table("codes", set={plan: {"code": code}})
        case ("bump", table):
            provider.registry.reload_table(table, set={}, version=f"9.{provider.state.number}")
        case ("rules", is_tied):
            provider.registry.reload_rules([TIES] if is_tied else [])


@pytest.mark.spec("11.12", "11.20")
@given(codes, st.lists(st.one_of(drifts), min_size=4, max_size=24), strategies, wires)
def test_both_forms_lead_to_the_same_decisions(first, history, strategy, wire):
    """Over drift and lost responses, as long as the server has one log."""
    provider, app = shop(first, wire=wire)
    full, compact = Agent(strategy, names_positions=False), Agent(strategy)
    for step in history:
        if step[0] == "request":
            for agent in (full, compact):
                agent.request(app, {"plan": step[1]}, is_lost=step[2])
            assert compact.held == full.held
            assert compact.recalled == full.recalled
        else:
            drift(provider, step)


@pytest.mark.spec("11.26")
@given(codes, st.lists(st.one_of(*drifts, restarts), min_size=4, max_size=24))
def test_a_server_that_loses_its_log_makes_nothing_stale_usable(first, history):
    provider, app = shop(first)
    agent = Agent()
    for step in history:
        if step[0] == "restart":
            provider, app = shop(step[1])
        elif step[0] == "request":
            agent.request(app, {"plan": step[1]}, is_lost=step[2])
            if not step[2]:
                assert step[1] in {plan for plan, _, _ in agent.recalled}
                assert agent.recalled <= right_of(provider)
        else:
            drift(provider, step)


@pytest.mark.spec("11.26")
def test_after_another_log_what_is_remembered_is_revalidated_before_it_is_used():
    told = []
    agent = Agent()
    agent.memory = Memory(ask=agent.ask, on_event=told.append)
    _, app = shop({plan: {"code": "P"} for plan in PLANS})
    for plan in PLANS:
        agent.request(app, {"plan": plan})
    mark = agent.memory.contract_at(ORIGIN).partition(":")[2]
    _, app = shop({plan: {"code": "P"} for plan in PLANS})
    agent.request(app, {"plan": "a"})
    assert [event for event in told if isinstance(event, LogLost)] == [LogLost(ORIGIN, several=False)]
    assert agent.recalled == {("a", "USE_CODE", "P")}
    assert len(agent.held) == len(PLANS)
    assert agent.memory.contract_at(ORIGIN).partition(":")[2] not in ("", mark)
    agent.asked.clear()
    agent.memory.revalidate(ORIGIN, OPERATION, {"plan": "b"})
    assert agent.asked == [f"{ORIGIN}/contract/fixes"]
    assert agent.recalled == {("a", "USE_CODE", "P"), ("b", "USE_CODE", "P")}


def test_the_compact_form_is_much_shorter():
    _, app = shop({plan: {"code": "P"} for plan in PLANS})
    full, compact = Agent(names_positions=False), Agent()
    for _ in range(10):
        for plan in PLANS:
            for agent in (full, compact):
                agent.request(app, {"plan": plan})
    assert compact.held == full.held
    assert compact.bytes < full.bytes * 0.4


SUGGESTED = {"type": "T", "parameters": {"x": 1}, "on": {"t": {"k": []}}, "by": "000RBNv"}


def replied(status=422, headers=JSON, **members):
    return Reply(status, json.dumps(members).encode(), headers)


@pytest.mark.spec("11.22")
@pytest.mark.parametrize("at", [None, "*", "*;n=0.e3", "Abcdef7", "nonsense"])
def test_of_a_server_of_which_nothing_is_known_only_an_answer_counts(at):
    suggestions = {"recovery_feedback": {"suggestions": [SUGGESTED]}}
    for told in ("WO5gZa12", {"to": "WO5gZa12"}, {"to": "WO5gZa12", "nonce": "0.e4"}):
        memory = Memory()
        memory.observe(Exchange(ORIGIN, OPERATION, {}, replied(at=told, **suggestions), at))
        assert list(memory.store.entries()) == []
        assert memory.position(ORIGIN) is None
    memory = Memory()
    asked = memory.contract_at(ORIGIN)
    nonce = asked.partition("n=")[2]
    answer = replied(at={"to": "WO5gZa12", "nonce": nonce}, **suggestions)
    memory.observe(Exchange(ORIGIN, OPERATION, {}, answer, asked))
    assert len(memory.recall(ORIGIN, OPERATION, {})) == 1
    assert memory.position(ORIGIN) == "WO5gZa12"


def placed():
    """A memory that knows a position of a server, and a fix."""
    agent = Agent()
    _, app = shop({"a": {"code": "P"}})
    agent.request(app, {"plan": "a"})
    assert len(agent.recalled) == 1
    return agent, app


@pytest.mark.parametrize(
    "wrong",
    [
        {"from": 5},
        {"from": "bad name!"},
        {"from": "WO5gZa12;n=1;n=2"},
        {"moved": 5},
        {"moved": {"tables": 5}},
        {"moved": {"tables": {"codes": {"changed": "a"}}}},
        {"moved": {"tables": {"bad name!": {}}}},
        {"moved": {"tables": {f"t{number}": {} for number in range(10_001)}}},
        {"moved": {"policies": ["p"] * 1_001}},
        {"unknown": "lost"},
        {"nonce": 5},
    ],
)
def test_a_malformed_account_is_ignored_told_and_doubted(wrong):
    agent, app = placed()
    at = agent.memory.contract_at(ORIGIN)
    reply = replied(200, at={"to": agent.memory.position(ORIGIN)} | wrong)
    told = agent.memory.observe(Exchange(ORIGIN, OPERATION, {}, reply, at))
    assert [type(event) for event in told] == [Ignored]
    assert agent.memory.recall(ORIGIN, OPERATION, {"plan": "a"}) == []
    agent.request(app, {"plan": "b"})
    assert len(agent.memory.recall(ORIGIN, OPERATION, {"plan": "a"})) == 1


@pytest.mark.spec("11.5")
@pytest.mark.parametrize(
    "own",
    [2, "1", "2026-05-01", [], None, True, {}, {"lat": 1.5}, {"to": 5}, {"to": "Berlin"}, {"to": None}],
)
def test_a_member_of_the_apis_own_is_no_position(own):
    agent, _ = placed()
    at, asked_count = agent.memory.contract_at(ORIGIN), len(agent.asked)
    body = json.dumps({"at": own}).encode()
    assert agent.memory.observe(Exchange(ORIGIN, OPERATION, {}, Reply(200, body, JSON), at)) == []
    beside = JSON | {"contract-at": agent.memory.position(ORIGIN)}
    assert agent.memory.observe(Exchange(ORIGIN, OPERATION, {}, Reply(200, body, beside), at)) == []
    assert len(agent.recalled) == 1
    assert len(agent.asked) == asked_count


@pytest.mark.spec("11.5")
def test_a_body_that_was_left_alone_speaks_for_nobody():
    """A gateway hands on what another server has said, and says where it is itself."""
    body = {"recovery_feedback": {"suggestions": [SUGGESTED]}, "at": "Xyzxyz99"}
    versions = {"table_versions": {"t": "1"}}
    stranger = {"type": "T", "parameters": {"x": 1}, "cache_hint": "cacheable", "table": "t"}
    for members in (body, body | versions, versions | {"recovery_feedback": {"suggestions": [stranger]}}):
        reply = replied(headers=JSON | {"contract-at": "WO5gZa12"}, **members)
        left_alone = read_contract(reply, {}, "POST /x")
        assert (left_alone.account.to, left_alone.versions) == ("WO5gZa12", None)
        assert left_alone.suggestions == ()
        for method in ("GET", "HEAD"):
            contract = read_contract(reply, {}, f"{method} /x")
            assert contract.account.to == "WO5gZa12"
            assert (contract.versions is not None) is ("table_versions" in members)


@pytest.mark.spec("11.17")
def test_a_suggestion_that_an_app_has_written_itself_is_in_the_full_form():
    suggestion = {
        "type": "T",
        "parameters": {"x": 1},
        "cache_hint": "cacheable",
        "tables": [{"table": "t", "version": "1"}],
        "rows": ["t:k"],
        "cells": {"t": {"k": ["c"]}},
        "when": {"a": 1},
    }
    memory = Memory()
    at = memory.contract_at(ORIGIN)
    answer = {"to": "WO5gZa12", "nonce": at.partition("n=")[2]}
    reply = replied(at=answer, recovery_feedback={"suggestions": [suggestion, suggestion | {"tables": []}]})
    memory.observe(Exchange(ORIGIN, OPERATION, {"a": 1}, reply, at))
    [entry] = memory.recall(ORIGIN, OPERATION, {"a": 1})
    assert entry.grounds.cells == {"t": {"k": ("c",)}}


@pytest.mark.spec("11.17")
@pytest.mark.parametrize("grounds", [{"on": {}}, {"on": {"t": {">": "r"}}}, {"cache_hint": "cacheable"}])
def test_what_rests_on_no_table_is_not_learned_at_a_position_either(grounds):
    memory = Memory()
    at = memory.contract_at(ORIGIN)
    answer = {"to": "WO5gZa12", "nonce": at.partition("n=")[2]}
    suggestion = {"type": "T", "parameters": {"x": 1}, "by": SUGGESTED["by"]} | grounds
    memory.observe(
        Exchange(
            ORIGIN, OPERATION, {}, replied(at=answer, recovery_feedback={"suggestions": [suggestion]}), at
        )
    )
    assert memory.position(ORIGIN) == "WO5gZa12"
    assert list(memory.store.entries()) == []


@pytest.mark.spec("11.19")
def test_a_suggestion_for_another_request_is_told_and_not_learned():
    agent, app = placed()
    _, headers, body = call(app, "POST", "/x", b'{"plan": "a"}', agent.memory.contract_at(ORIGIN))
    agent.memory.forget(ORIGIN, OPERATION)
    for request in (
        {"plan": "b"},
        {},
        {"plan": {"a": 1}},
        {"plan": 1},
        {"plan": float("nan")},
        {"plan": "\ud800"},
    ):
        at = agent.memory.contract_at(ORIGIN)
        [told] = agent.memory.observe(Exchange(ORIGIN, OPERATION, request, Reply(422, body, headers), at))
        assert isinstance(told, Ignored)
        assert "the suggestion USE_CODE is for" in told.why
        assert list(agent.memory.store.entries()) == []
    at = agent.memory.contract_at(ORIGIN)
    agent.memory.observe(Exchange(ORIGIN, OPERATION, {"plan": "a", "n": 1}, Reply(422, body, headers), at))
    assert agent.recalled == {("a", "USE_CODE", "P")}


@pytest.mark.spec("11.32")
def test_a_fix_is_revalidated_when_the_policy_that_gave_it_has_changed():
    provider, app = shop({"a": {"code": "P"}})

    @provider.policy(version="1")
    def plans_are_known(request, tables):
        if request.get("plan") in tables.codes or request.equals("plan", "a"):
            return None
        return fix("USE_PLAN", plan="a")

    agent = Agent()
    agent.request(app, {"plan": "a"})
    agent.request(app, {"plan": "z"})
    kinds = {entry.type: entry.grounds.policy for entry in agent.memory.store.entries()}
    assert kinds.keys() == {"USE_CODE", "USE_PLAN"}
    assert all(kinds.values())
    policies = provider.policies.look()
    [changed] = [name for name in policies if "plans_are_known" in name]
    provider.registry.declare_policies(policies | {changed: "2"})
    account = provider.face(provider.state, {}).account(Named.from_header(agent.memory.contract_at(ORIGIN)))
    agent.memory.hear(ORIGIN, msgspec.json.encode(account))
    suspects = {entry.type: entry.is_suspect for entry in agent.memory.store.entries()}
    assert suspects == {"USE_CODE": False, "USE_PLAN": True}
    assert agent.memory.recall(ORIGIN, OPERATION, {"plan": "z"}) == []


def test_the_transports_say_what_the_memory_knows():
    provider = acme_provider()
    with serving(acme_app(provider)) as address:
        transport = MemoryTransport(Memory(), guard=Guard())
        with httpx2.Client(base_url=address, transport=transport) as client:
            first = client.post("/subscriptions", json=GOVERNED)
            assert first.json()["at"].keys() == {"to", "nonce"}
            assert "table_versions" not in first.json()
            second = client.post("/subscriptions", json=GOVERNED)
            assert second.status_code == 201
            assert "at" not in second.json()
            provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES)
            moved = client.post("/subscriptions", json=GOVERNED)
            assert "active_csm_codes" in moved.json()["at"]["moved"]["tables"]
            assert client.post("/subscriptions", json=GOVERNED).status_code == 201

        with httpx2.Client(base_url=address, transport=MemoryTransport(Memory(), compact=False)) as client:
            full = client.post("/subscriptions", json=GOVERNED).json()
            assert "at" not in full
            assert "table_versions" in full

        async def story():
            transport = AsyncMemoryTransport(Memory())
            async with httpx2.AsyncClient(base_url=address, transport=transport) as client:
                return [(await client.post("/subscriptions", json=FREE)).json().get("at") for _ in range(2)]

        asked, current = asyncio.run(story())
        assert Position.from_text(asked["to"]).number == provider.state.number
        assert current is None
