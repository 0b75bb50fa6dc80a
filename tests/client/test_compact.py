"""A memory that says what it knows decides as one that is told everything each time."""

import asyncio
import json

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shelflife.apis.acme import ROTATED_CODES, acme_app, acme_provider
from shelflife.client import EXACT, Exchange, Guard, Memory, Reply
from shelflife.contract import Rule
from shelflife.contract.compact import EPOCH_HEADER
from shelflife.integrations.asgi import ContractMiddleware
from shelflife.integrations.httpx2 import AsyncMemoryTransport, MemoryTransport
from shelflife.lab.arms import ARMS
from shelflife.server import Provider, fix
from shelflife.testing import serving
from tests.acme_world import FREE, GOVERNED

PLANS = ["a", "b", "c"]
TIES = Rule(from_table="codes", to_table="promos", relation="needs", via="code")
ORIGIN = "http://replicas:80"


def replica(codes, rules):
    """One server of several: its tables, its rules and its policy."""
    provider = Provider(
        {"codes": codes, "promos": {code: {} for code in "PQR"}, "others": {"x": {"n": 0}}}, rules
    )

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

    return provider, ContractMiddleware(app, provider, public=True)


def call(app, method, target, body=b"", epoch=None):
    """A request to an ASGI app: the status, the headers and the body of its response."""
    path, _, query = target.partition("?")
    headers = [] if epoch is None else [(EPOCH_HEADER.lower().encode(), epoch.encode())]
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
    def __init__(self, strategy, says_epoch):
        self.app = None
        self.says_epoch = says_epoch
        self.memory = Memory(strategy=strategy, ask=self.ask)
        self.bytes = 0

    def ask(self, question):
        status, _, body = call(self.app, "GET", question.url.removeprefix(ORIGIN))
        return Reply(status, body)

    def request(self, app, fields, *, is_lost):
        self.app = app
        epoch = self.memory.epoch(ORIGIN) if self.says_epoch else None
        status, headers, body = call(app, "POST", "/x", json.dumps(fields).encode(), epoch)
        self.bytes += len(body)
        if not is_lost:
            self.memory.observe(Exchange(ORIGIN, "POST /x", fields, Reply(status, body, headers), epoch))

    @property
    def held(self):
        return {
            (entry.type, entry.condition.when["plan"], entry.parameters["code"])
            for entry in self.memory.store.entries()
        }


codes = st.fixed_dictionaries(
    {plan: st.sampled_from("PQR").map(lambda code: {"code": code}) for plan in PLANS}
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("request"), st.sampled_from([0, 1]), st.sampled_from(PLANS), st.booleans()),
        st.tuples(st.just("request"), st.sampled_from([0, 1]), st.sampled_from(PLANS), st.just(False)),
        st.tuples(st.just("rotate"), st.sampled_from([0, 1]), st.sampled_from(PLANS), st.sampled_from("PQR")),
        st.tuples(
            st.just("bump"), st.sampled_from([0, 1]), st.sampled_from(["codes", "others"]), st.integers(2, 5)
        ),
        st.tuples(st.just("rules"), st.sampled_from([0, 1]), st.booleans()),
        st.tuples(st.just("restart"), st.sampled_from([0, 1]), codes),
    ),
    min_size=4,
    max_size=24,
)


@pytest.mark.spec("11.8")
@settings(max_examples=250, deadline=None)
@given(
    codes,
    steps,
    st.sampled_from([EXACT, *(ARMS[arm] for arm in ("A1", "A2", "A2D", "A2DC", "A2DRC", "A2DO"))]),
)
def test_both_forms_lead_to_the_same_decisions(first, history, strategy):
    """Over drift, lost responses, restarts and rollbacks, with two replicas that may be at different states."""
    replicas = [replica(first, [TIES]), replica(first, [TIES])]
    full, compact = Agent(strategy, says_epoch=False), Agent(strategy, says_epoch=True)
    for step in history:
        which = step[1]
        provider, app = replicas[which]
        match step:
            case ("request", _, plan, is_lost):
                for agent in (full, compact):
                    agent.request(app, {"plan": plan}, is_lost=is_lost)
                assert compact.held == full.held
            case ("rotate", _, plan, code):
                provider.registry.reload_table("codes", set={plan: {"code": code}})
            case ("bump", _, table, number):
                version = f"9.{number}"
                if version not in provider.state.tables[table].used_versions:
                    provider.registry.reload_table(table, set={}, version=version)
            case ("rules", _, is_tied):
                provider.registry.reload_rules([TIES] if is_tied else [])
            case ("restart", _, content):
                replicas[which] = replica(content, [TIES])
    known = [agent.memory.store.known(ORIGIN).knowledge for agent in (full, compact)]
    assert known[0].versions == known[1].versions


def test_the_compact_form_is_much_shorter():
    _, app = replica({plan: {"code": "P"} for plan in PLANS}, [TIES])
    full, compact = Agent(EXACT, says_epoch=False), Agent(EXACT, says_epoch=True)
    for _ in range(10):
        for plan in PLANS:
            for agent in (full, compact):
                agent.request(app, {"plan": plan}, is_lost=False)
    assert compact.held == full.held
    assert compact.bytes < full.bytes / 2


def test_a_client_that_named_no_epoch_takes_none_for_an_answer():
    memory = Memory()
    body = b'{"epoch": 1, "recovery_feedback": {"suggestions": [{"type": "T", "parameters": {"x": 1}, "rows": ["t:k"], "when": {}}]}}'
    headers = {"content-type": "application/json"}
    memory.observe(Exchange("http://h", "POST /x", {}, Reply(422, body, headers)))
    memory.observe(Exchange("http://h", "POST /x", {}, Reply(422, body, headers), "AAAAAAAA"))
    assert list(memory.store.entries()) == []


@pytest.mark.parametrize(
    "epoch",
    [2, "1", [], {"tables": 5}, {"tables": {"codes": {}}}, {"tables": {"bad name!": {"version": "2"}}}],
)
def test_a_malformed_account_is_ignored_told_and_doubted(epoch):
    _, app = replica({"a": {"code": "P"}}, [TIES])
    agent = Agent(EXACT, says_epoch=True)
    agent.request(app, {"plan": "a"}, is_lost=False)
    assert len(agent.held) == 1
    told = agent.memory.observe(
        Exchange(
            ORIGIN,
            "POST /x",
            {},
            Reply(200, json.dumps({"epoch": epoch}).encode(), {"content-type": "application/json"}),
            agent.memory.epoch(ORIGIN),
        )
    )
    assert [type(event).__name__ for event in told] == ["Ignored"]
    assert agent.memory.recall(ORIGIN, "POST /x", {"plan": "a"}) == []
    agent.request(app, {"plan": "b"}, is_lost=False)
    assert len(agent.memory.recall(ORIGIN, "POST /x", {"plan": "a"})) == 1


def test_the_transports_say_what_the_memory_knows():
    provider = acme_provider()
    with serving(acme_app(provider)) as address:
        transport = MemoryTransport(Memory(), guard=Guard(), compact=True)
        with httpx2.Client(base_url=address, transport=transport) as client:
            first = client.post("/subscriptions", json=GOVERNED)
            assert "table_versions" in first.json()
            second = client.post("/subscriptions", json=GOVERNED)
            assert (second.status_code, second.json()["epoch"]) == (201, 1)
            provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES)
            moved = client.post("/subscriptions", json=GOVERNED)
            assert "active_csm_codes" in moved.json()["epoch"]["tables"]
            assert client.post("/subscriptions", json=GOVERNED).status_code == 201

        async def story():
            transport = AsyncMemoryTransport(Memory(), compact=True)
            async with httpx2.AsyncClient(base_url=address, transport=transport) as client:
                return [
                    (await client.post("/subscriptions", json=FREE)).json().get("epoch") for _ in range(2)
                ]

        assert asyncio.run(story()) == [None, 1]
