"""What clients are shown by a provider that shows no more than is needed, over real connections."""

import json
from contextlib import contextmanager

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from hypothesis import given, settings
from hypothesis import strategies as st

from shelflife.client import Exchange, Memory, Reply
from shelflife.contract import Rule
from shelflife.contract.compact import EPOCH_HEADER
from shelflife.contract.preconditions import PRECONDITION_HEADER, Precondition
from shelflife.contract.versions import Versions
from shelflife.integrations.fastapi import install
from shelflife.server import Disclosure, Provider, WireFormat, fix
from shelflife.testing import serving
from tests.calling import ADMIN, TOKEN, calling
from tests.integrations.event_streams import LISTENING, events

SECRET = "a secret of the provider"
KEY_OF = {"gold": "HiddenKeyOne", "iron": "HiddenKeyTwo", "tin": "HiddenKeyThree"}
GOVERNED = {"plan": "gold"}
TIE = Rule(from_table="HiddenCodes", to_table="HiddenPromos", relation="HiddenNeeds", via="HiddenColumn")
LOOSE = Rule(from_table="HiddenPromos", to_table="HiddenCodes", relation="HiddenBack")
SECRETS = ["hidden"]
"""What every name and key has in it, and nothing else."""


def shop(disclosure, **options):
    """An API whose tables, keys, relations and columns are called as nothing else is; its fixes hold values alone."""
    codes = {key: {"HiddenColumn": "HiddenTarget", "code": f"c{n}"} for n, key in enumerate(KEY_OF.values())}
    content = {"HiddenCodes": codes, "HiddenPromos": {"HiddenTarget": {}, "HiddenSpare": {}}}
    provider = Provider(content, [TIE], admin_token=TOKEN, disclosure=disclosure, **options)

    @provider.policy
    def code_is_assigned(request, tables):
        """The plan has a code of its own."""
        row = tables.HiddenCodes.get(KEY_OF.get(request.get("plan"), "HiddenNobody"))
        if row is None or request.equals("code", row["code"]):
            return None
        is_tied = row.follow("HiddenNeeds") is not None
        return fix("USE_CODE" if is_tied else "USE_LOOSE_CODE", code=row["code"])

    @provider.policy
    def nothing_breaks(request, tables):
        """A check with a bug."""
        if request.get("plan") == "broken":
            raise RuntimeError(str(dict(tables.HiddenCodes)))

    app = FastAPI()
    install(app, provider)

    @app.post("/orders")
    def order(wanted: dict):
        provider.check(wanted)
        return {"success": True}

    @app.get("/text", response_class=PlainTextResponse)
    def text():
        return "hello"

    @app.get("/checked")
    def checked(plan: str):
        provider.check({"plan": plan})
        return {"success": True}

    @app.get("/things")
    def things():
        return {"success": True}

    return provider, app


class Seen:
    """A client that keeps the bytes of every response, and what it was last told of the state."""

    def __init__(self, address, token):
        self.http = httpx2.Client(
            base_url=address, trust_env=False, timeout=30, headers={"Authorization": token} if token else {}
        )
        self.seen = []
        self.state = {}
        self.rows, self.rules = [], []

    def send(self, method, path, **options):
        response = self.http.request(method, path, **options)
        self.note(response, response.content)
        return response

    def note(self, response, content):
        headers = b"\n".join(name + b": " + value for name, value in response.headers.raw)
        self.seen.append(headers + b"\n\n" + content)

    def learn(self, response):
        told = response.json()
        if "table_versions" in told:
            self.state = told
        for suggestion in told.get("recovery_feedback", {}).get("suggestions", []):
            self.rows = suggestion.get("rows", [])
            self.rules = suggestion.get("rules", [])

    @property
    def epoch(self):
        return Versions(self.state["table_versions"], self.state.get("rules_version")).epoch

    def listen(self, **headers):
        with self.http.stream("GET", "/contract/changes", headers=LISTENING | headers) as response:
            event = next(events(response))
            self.note(response, json.dumps(event).encode())

    def all_there_is(self, plan):
        """Every kind of request, each of which may show something."""
        wanted = {"plan": plan}
        self.learn(self.send("GET", "/contract/state"))
        known = self.epoch
        yield
        self.learn(self.send("POST", "/orders", json=wanted))
        grounds = Precondition(
            epoch=known, rows=tuple(self.rows), rules=tuple(self.rules), was={"code": None}
        )
        for headers in (
            {EPOCH_HEADER: known},
            {"Accept": "application/problem+json"},
            {PRECONDITION_HEADER: grounds.header},
            {PRECONDITION_HEADER: "nonsense"},
        ):
            self.send("POST", "/orders", json=wanted, headers=headers)
        self.send("POST", "/orders", json={"plan": "broken"})
        self.send("POST", "/orders", content=b"{")
        for method in ("GET", "HEAD"):
            for path in ("/text", "/things", "/contract/state", "/nowhere", "/openapi.json", "/admin/graph"):
                self.send(method, path)
        self.send("GET", "/text", headers={EPOCH_HEADER: known})
        since = [f"{table}:{version}" for table, version in self.state["table_versions"].items()]
        rules = {"rules": self.state["rules_version"]} if "rules_version" in self.state else {}
        self.send("GET", "/contract/changes", params={"since": since, **rules})
        self.send("GET", "/contract/changes", params={"since": ["nonsense:1"], "rules": "nonsense"})
        self.send("GET", "/contract/changes", params={"x": "1"})
        self.send("GET", "/contract/state", params={"known": known})
        self.send("POST", "/contract/fixes", json={"operation": "POST /orders", "request": wanted})
        self.send("POST", "/contract/fixes", json={"operation": 1})
        self.send("POST", "/admin/reload-table", json={"table": "x"})
        self.listen()
        self.listen(**{"last-event-id": known})


@contextmanager
def both(address):
    clients = [Seen(address, "Bearer ada"), Seen(address, None)]
    try:
        yield clients
    finally:
        for client in clients:
            client.http.close()


drifts = st.lists(
    st.one_of(
        st.tuples(st.just("code"), st.sampled_from(sorted(KEY_OF)), st.integers(0, 9)),
        st.tuples(st.just("gone"), st.sampled_from(sorted(KEY_OF))),
        st.tuples(st.just("spare"), st.integers(0, 9)),
        st.tuples(st.just("bump"), st.sampled_from(["HiddenCodes", "HiddenPromos"])),
        st.tuples(st.just("rules"), st.sampled_from([[], [TIE], [LOOSE], [TIE, LOOSE]])),
    ),
    max_size=4,
)


def drift(provider, event):
    registry = provider.registry
    match event:
        case ("code", plan, number):
            row = {"HiddenColumn": "HiddenTarget", "code": f"c{number}"}
            registry.reload_table("HiddenCodes", set={KEY_OF[plan]: row})
        case ("gone", plan):
            registry.reload_table("HiddenCodes", remove=[KEY_OF[plan]])
        case ("spare", number):
            registry.reload_table("HiddenPromos", set={"HiddenSpare": {"HiddenColumn": number}})
        case ("bump", table):
            version = f"given-{len(registry.state.tables[table].used_versions)}"
            registry.reload_table(table, set={}, version=version)
        case ("rules", rules):
            registry.reload_rules(rules)


def digests(provider):
    """What could be guessed from: the digests of minted versions and the fingerprints of rules."""
    state = provider.state
    versions = [version for table in state.tables.values() for version in table.used_versions]
    minted = [version.rpartition("-")[2] for version in versions if not version.startswith("given")]
    return [*minted, state.rules.version, *(rules.version for rules in state.older_rules)]


@pytest.mark.spec("14.1", "14.3", "14.5")
@settings(max_examples=15 if settings().max_examples < 1000 else 300)
@given(
    rounds=st.lists(st.tuples(drifts, st.sampled_from(sorted(KEY_OF))), min_size=1, max_size=3),
    level=st.sampled_from([1, 4, 5, 6, 6]),
    sees_diffs=st.booleans(),
    errors=st.sampled_from(["json", "problem"]),
)
def test_no_byte_of_any_response_tells_a_name_or_a_key(rounds, level, sees_diffs, errors):
    disclosure = Disclosure(secret=SECRET, sees_diffs=lambda client: sees_diffs)
    provider, app = shop(disclosure, wire=WireFormat(level=level, errors=errors))
    with serving(app) as address, both(address) as clients:
        for history, plan in rounds:
            asking = [client.all_there_is(plan) for client in clients]
            for one in asking:
                next(one)
            for event in history:
                drift(provider, event)
            for one in asking:
                next(one, None)
        told = [secret.encode() for secret in (*SECRETS, *digests(provider))]
        for client in clients:
            for response in client.seen:
                assert not [secret for secret in told if secret in response.lower()], response
        ada, anonymous = (set(client.state["table_versions"]) for client in clients)
        assert len(ada) == len(anonymous) == 2
        assert ada.isdisjoint(anonymous)


def test_without_a_disclosure_the_same_requests_tell_them():
    """So that the property above can fail."""
    provider, app = shop(None)
    with serving(app) as address, both(address) as [client, _]:
        asking = client.all_there_is("gold")
        next(asking)
        drift(provider, ("code", "gold", 7))
        next(asking, None)
    telling = [response for response in client.seen if b"Hidden" in response]
    assert len(telling) >= 15


@pytest.mark.spec("14.9")
def test_an_operator_reads_the_providers_own_names():
    _, app = shop(Disclosure(secret=SECRET))
    with calling(app, headers=ADMIN) as client:
        graph = client.get("/admin/graph").json()
        assert "HiddenCodes:HiddenKeyOne" in graph["nodes"]
        report = client.post("/admin/reload-table", json={"table": "HiddenCodes", "remove": ["HiddenKeyOne"]})
        assert report.json()["removed"] == ["HiddenKeyOne"]


@pytest.mark.spec("14.4")
def test_a_client_that_knows_the_state_is_told_so():
    provider, app = shop(Disclosure(secret=SECRET))
    with calling(app, headers={"X-API-Key": "ada"}) as client:
        first = client.get("/contract/state")
        told = first.json()
        epoch = Versions(told["table_versions"], told["rules_version"]).epoch
        assert client.get("/contract/state", params={"known": epoch}).status_code == 304
        tag = {"If-None-Match": first.headers["etag"]}
        assert client.get("/contract/state", headers=tag).status_code == 304
        assert client.get("/contract/state", headers=tag | {"X-API-Key": "bob"}).status_code == 200
        assert client.post("/orders", json={}, headers={EPOCH_HEADER: epoch}).json()["epoch"] == 1
        own = provider.state.face(provider.level).epoch
        assert "epoch" not in client.post("/orders", json={}, headers={EPOCH_HEADER: own}).json()


@pytest.mark.spec("14.10")
def test_caches_are_told_what_the_names_depend_on():
    _, app = shop(Disclosure(secret=SECRET))
    with calling(app) as client:
        for path in (
            "/things",
            "/text",
            "/contract/state",
            "/contract/changes?rules=x",
            "/checked?plan=gold",
        ):
            assert client.get(path).headers["vary"] == "authorization, x-api-key"
        told = client.get("/contract/state").json()
        epoch = Versions(told["table_versions"], told["rules_version"]).epoch
        compact = client.get("/things", headers={EPOCH_HEADER: epoch})
        assert compact.headers["vary"] == "contract-epoch, authorization, x-api-key"
        assert "vary" not in client.post("/orders", json={}).headers
    _, app = shop(Disclosure(secret=SECRET, client=lambda headers: headers.get("x-account", "")))
    with calling(app) as client:
        assert client.get("/things").headers["vary"] == "*"
        state = client.get("/contract/state", headers={"X-Account": "ada"})
        assert state.json() != client.get("/contract/state").json()


def test_the_header_with_the_grounds_is_understood_in_aliases_only():
    provider, app = shop(Disclosure(secret=SECRET))
    with calling(app, headers={"Authorization": "Bearer ada"}) as client:
        told = client.post("/orders", json=GOVERNED).json()
        [suggestion] = told["recovery_feedback"]["suggestions"]
        epoch = Versions(told["table_versions"], told["rules_version"]).epoch
        drift(provider, ("code", "iron", 7))

        def status(rows, rules=()):
            grounds = Precondition(epoch=epoch, rows=tuple(rows), rules=tuple(rules), was={"code": None})
            headers = {PRECONDITION_HEADER: grounds.header}
            return client.post("/orders", json=GOVERNED | {"code": "c0"}, headers=headers).status_code

        assert status(suggestion["rows"], suggestion["rules"]) == 200
        assert status(["HiddenCodes:HiddenKeyOne"]) == status(["nonsense:x"]) == 412
        drift(provider, ("code", "gold", 7))
        assert status(suggestion["rows"]) == 412


class Remembering:
    """An agent with a real memory, asking with its own credentials."""

    def __init__(self, http):
        self.http = http
        self.origin = str(http.base_url).rstrip("/")
        self.memory = Memory(ask=self.ask)

    def ask(self, question):
        response = self.http.get(question.url)
        return Reply(response.status_code, response.content)

    def order(self, request):
        response = self.http.post("/orders", json=request)
        headers = {name.lower(): value for name, value in response.headers.items()}
        reply = Reply(response.status_code, response.content, headers)
        self.memory.observe(Exchange(self.origin, "POST /orders", request, reply))

    @property
    def plans(self):
        return {entry.condition.when["plan"] for entry in self.memory.store.entries()}


@pytest.mark.spec("14.6", "14.7")
@pytest.mark.parametrize(("sees_diffs", "kept"), [(False, set()), (True, {"gold", "tin"})])
def test_a_memory_that_is_told_counts_drops_the_table_and_keeps_it_over_a_benign_bump(sees_diffs, kept):
    provider, app = shop(Disclosure(secret=SECRET, sees_diffs=lambda client: sees_diffs))
    with calling(app, headers={"Authorization": "Bearer ada"}) as client:
        agent = Remembering(client)
        for plan in KEY_OF:
            agent.order({"plan": plan})
        assert agent.plans == {*KEY_OF}
        for table in ("HiddenCodes", "HiddenPromos"):
            drift(provider, ("bump", table))
        agent.order({"plan": "none"})
        assert agent.plans == {*KEY_OF}
        drift(provider, ("code", "iron", 7))
        agent.order({"plan": "none"})
        assert agent.plans == kept


@pytest.mark.spec("14.2")
def test_a_memory_outlives_a_restart_of_the_server():
    memory = Memory()
    held = []
    for _ in range(2):
        _, app = shop(Disclosure(secret=SECRET, sees_diffs=lambda client: True))
        with calling(app, headers={"Authorization": "Bearer ada"}) as client:
            agent = Remembering(client)
            agent.memory, agent.origin = memory, "http://shop:80"
            agent.order({"plan": "none" if held else "gold"})
            held.append([entry.grounds.rows for entry in memory.store.entries()])
    assert held[0] == held[1] != []


def test_the_document_for_anybody_does_not_list_the_tables():
    _, app = shop(Disclosure(secret=SECRET))
    with calling(app) as client:
        document = client.get("/openapi.json").text
    assert "/admin/reload-table" in document
    assert "Hidden" not in document
