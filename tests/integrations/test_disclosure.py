"""What clients are shown by a provider that shows no more than is needed, over real connections."""

import json
import re
import sqlite3
from contextlib import contextmanager

import httpx2
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shelflife.contract.positions import AT_HEADER, Account, Position
from shelflife.contract.preconditions import PRECONDITION_HEADER, Precondition
from shelflife.contract.signed import Statement
from shelflife.server import Disclosure, Signing, WireFormat
from shelflife.server.faces import face_of
from shelflife.server.log import check_over
from shelflife.testing import serving
from tests.calling import ADMIN, calling
from tests.integrations.event_streams import LISTENING, events
from tests.integrations.hidden_shop import (
    ANONYMOUS,
    GOVERNED,
    KEY_OF,
    SECRET,
    SECRETS,
    SIGNER,
    TIE,
    by_token,
    drift,
    drifts,
    position_of,
    shop,
    signed_shop,
)


class Seen:
    """A client that keeps the bytes of every response, and what it was last told of the state."""

    def __init__(self, address, token):
        self.http = httpx2.Client(
            base_url=address, trust_env=False, timeout=60, headers={"Authorization": token} if token else {}
        )
        self.seen = []
        self.state = {}
        self.suggestion = {}

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
            self.suggestion = suggestion

    def position(self):
        return self.send("GET", "/contract/changes", params={"from": "*"}).json()["to"]

    def preconditions(self, at):
        """What a client may ask: that these cells, rules and policies have not moved, or nothing at all."""
        cells, rules = self.suggestion.get("cells", {}), tuple(self.suggestion.get("rules", ()))
        was = {"code": None}
        yield Precondition(at=at, cells=cells, rules=rules, policies=(), was=was)
        yield Precondition(at=at, cells=cells, was=was)
        yield Precondition(at=at, was=was)

    def listen(self, params=None, **headers):
        listening = LISTENING | {name.replace("_", "-"): value for name, value in headers.items()}
        with self.http.stream("GET", "/contract/changes", headers=listening, params=params) as response:
            event = next(events(response))
            self.note(response, json.dumps(event).encode())

    def all_there_is(self, plan):
        """Every kind of request, each of which may show something."""
        wanted = {"plan": plan}
        self.learn(self.send("GET", "/contract/state"))
        known = self.position()
        yield
        self.learn(self.send("POST", "/orders", json=wanted))
        for name in (known, f"{known}:mark;n=n1", "*;n=n2", "Nobody7"):
            self.send("POST", "/orders", json=wanted, headers={AT_HEADER: name})
            self.send("POST", "/orders", json={}, headers={AT_HEADER: name})
            self.send("GET", "/things", headers={AT_HEADER: name})
            self.send("GET", "/text", headers={AT_HEADER: name})
            asked = {"operation": "POST /orders", "request": wanted}
            self.send("POST", "/contract/fixes", json=asked, headers={AT_HEADER: name})
            at, _, nonce = name.partition(";n=")
            for path in ("/contract/changes", "/contract/signed"):
                self.send("GET", path, params={"from": at, "nonce": nonce or "n3"})
        for headers in (
            {"Accept": "application/problem+json"},
            {"Accept": "application/problem+json", AT_HEADER: known},
            *({PRECONDITION_HEADER: one.header} for one in self.preconditions(known)),
            *({PRECONDITION_HEADER: one.header, AT_HEADER: known} for one in self.preconditions("Nobody7")),
            {PRECONDITION_HEADER: "nonsense", AT_HEADER: "nonsense"},
            {AT_HEADER: "nonsense"},
        ):
            self.send("POST", "/orders", json=wanted, headers=headers)
        self.send("POST", "/orders", json={"plan": "broken"})
        self.send("POST", "/orders", content=b"{")
        for method in ("GET", "HEAD"):
            for path in ("/text", "/things", "/contract/state", "/nowhere", "/openapi.json", "/admin/graph"):
                self.send(method, path)
        since = [f"{table}:{version}" for table, version in self.state["table_versions"].items()]
        rules = {"rules": self.state["rules_version"]} if "rules_version" in self.state else {}
        self.send("GET", "/contract/changes", params={"since": since, **rules})
        self.send("GET", "/contract/changes", params={"since": ["nonsense:1"], "rules": "nonsense"})
        self.send("GET", "/contract/changes", params={"x": "1"})
        self.send("POST", "/contract/fixes", json={"operation": "POST /orders", "request": wanted})
        self.send("POST", "/contract/fixes", json={"operation": 1})
        self.send("POST", "/admin/reload-table", json={"table": "x"})
        self.listen()
        self.listen(last_event_id=f"{known}:mark")
        self.listen(contract_at=known)
        self.listen(params={"known": "Nobody7"})


@contextmanager
def both(address):
    clients = [Seen(address, "Bearer ada"), Seen(address, ANONYMOUS)]
    try:
        yield clients
    finally:
        for client in clients:
            client.http.close()


def secrets_of(provider):
    """What could be guessed from, or compared: minted versions, fingerprints, the log, its digests and positions."""
    state = provider.state
    tables = [change for entry in state.tail for change in entry.change.tables.values()]
    versions = {*state.table_versions.values(), *(one.version for one in tables)}
    versions |= {one.old_version for one in tables if one.old_version is not None}
    yield from (version for version in versions if not version.startswith("given"))
    rules = state.rules
    yield rules.version
    for change in [one.change.rules for one in reversed(state.tail) if one.change.rules]:
        rules = rules.changed(change.removed, change.added)
        yield rules.version
    yield state.log_id
    yield from state.policies.values()
    for number, digest in [
        *((one.number - 1, one.previous) for one in state.tail),
        (state.number, state.digest),
    ]:
        yield digest
        yield str(Position(number, check_over(state.log_id, digest)))


COMPARABLE = re.compile(
    rb"\b[A-Za-z][A-Za-z0-9]{5}[0-9]{1,2}\b"  # positions
    rb"|\b[0-9a-f]{12,}\b"  # fingerprints, tags, digests
    rb"|~[a-z2-7]{12}"  # minted versions
    rb"|\b[tkcr][0-9a-f]{15}\b"  # aliases
)


def comparable_in(client):
    """All by which a client could tell that it is shown the same as another, but for the API's document."""
    told = [response for response in client.seen if b'"openapi"' not in response]
    return {found for response in told for found in COMPARABLE.findall(response)}


PUBLIC = {b"Nobody7", b"ed25519", *COMPARABLE.findall(SIGNER.key.encode())}
"""What looks like that, and tells nothing: the key that all are shown may do so by chance."""


@pytest.mark.spec("14.1", "14.3", "14.4", "14.5")
@settings(max_examples=8 if settings().max_examples < 1000 else 300)
@given(
    rounds=st.lists(st.tuples(drifts, st.sampled_from(sorted(KEY_OF))), min_size=1, max_size=3),
    level=st.sampled_from([1, 4, 5, 6, 6]),
    sees_diffs=st.booleans(),
    is_signed=st.booleans(),
    errors=st.sampled_from(["json", "problem"]),
)
def test_no_byte_of_any_response_tells_a_name_or_a_key(rounds, level, sees_diffs, is_signed, errors):
    disclosure = Disclosure(
        secret=SECRET, sees_diffs=lambda client: sees_diffs, client=by_token if is_signed else None
    )
    make = signed_shop if is_signed else shop
    provider, app = make(disclosure, wire=WireFormat(level=level, errors=errors))
    with serving(app) as address, both(address) as clients:
        for history, plan in rounds:
            asking = [client.all_there_is(plan) for client in clients]
            for one in asking:
                next(one)
            for event in history:
                drift(provider, event)
            for one in asking:
                next(one, None)
        told = [secret.encode() for secret in secrets_of(provider)]
        for client in clients:
            for response in client.seen:
                assert not [secret for secret in told if secret in response], response
                assert not [secret for secret in SECRETS if secret.encode() in response.lower()], response
        ada, anonymous = map(comparable_in, clients)
        assert ada & anonymous <= PUBLIC
        assert len(ada - PUBLIC) > 5
        ada, anonymous = (set(client.state["table_versions"]) for client in clients)
        assert len(ada) == len(anonymous) == 2
        assert ada.isdisjoint(anonymous)


def test_without_a_disclosure_the_same_requests_tell_them():
    """So that the property above can fail."""
    provider, app = signed_shop(None)
    with serving(app) as address, both(address) as clients:
        for client in clients:
            asking = client.all_there_is("gold")
            next(asking)
            drift(provider, ("code", "gold", client is clients[0]))
            next(asking, None)
        ada, anonymous = map(comparable_in, clients)
    seen = [response for client in clients for response in client.seen]
    telling = [response for response in clients[0].seen if b"Hidden" in response]
    assert len(telling) >= 30
    untold = {secret for secret in secrets_of(provider) if not any(secret.encode() in one for one in seen)}
    fingerprints, digests = {*provider.state.policies.values()}, {one for one in untold if len(one) == 64}
    at_first = {one for one in untold if re.fullmatch("[A-Za-z0-9]{6}0", one)}  # before anything was served
    assert untold == fingerprints | digests | at_first
    assert len(ada & anonymous - PUBLIC) > 5


@pytest.mark.spec("14.9")
def test_an_operator_reads_the_providers_own_names():
    _, app = shop(Disclosure(secret=SECRET))
    with calling(app, headers=ADMIN) as client:
        graph = client.get("/admin/graph").json()
        assert "HiddenCodes:HiddenKeyOne" in graph["nodes"]
        report = client.post("/admin/reload-table", json={"table": "HiddenCodes", "remove": ["HiddenKeyOne"]})
        assert report.json()["removed"] == ["HiddenKeyOne"]


def ordered(client, wanted, at, **headers):
    return client.post("/orders", json=wanted, headers={AT_HEADER: at, **headers})


@pytest.mark.spec("14.4")
def test_a_client_that_knows_the_state_is_told_so():
    provider, app = shop(Disclosure(secret=SECRET))
    with calling(app, headers={"X-API-Key": "ada"}) as client:
        tag = {"If-None-Match": client.get("/contract/state").headers["etag"]}
        assert client.get("/contract/state", headers=tag).status_code == 304
        assert client.get("/contract/state", headers=tag | {"X-API-Key": "bob"}).status_code == 200
        known = position_of(client)
        assert client.get("/things", headers={AT_HEADER: "*"}).headers[AT_HEADER] == known
        assert client.get("/text", headers={AT_HEADER: known}).headers[AT_HEADER] == known
        assert ordered(client, {}, known).json() == {"success": True}
        assert ordered(client, GOVERNED, known).json()["at"] == known
        own = str(face_of(provider.state, provider.level).position)
        assert ordered(client, {}, own).json()["at"] == {"to": known, "from": own, "unknown": "foreign"}


@pytest.mark.spec("14.4", "14.5")
@pytest.mark.parametrize("sees_diffs", [True, False])
def test_a_position_of_another_client_is_foreign_wherever_it_is_named(sees_diffs):
    provider, app = signed_shop(
        Disclosure(secret=SECRET, client=by_token, sees_diffs=lambda client: sees_diffs)
    )
    with calling(app, headers={"Authorization": "ada"}) as client:
        for event in (None, ("code", "gold", 7), ("rules", [])):
            if event:
                drift(provider, event)
            shown, stranger = position_of(client), position_of(client, Authorization="bob")
            numbers = [Position.from_text(one).number for one in (shown, stranger)]
            assert numbers == [provider.state.number] * 2
            assert shown != stranger
            foreign = Account(to=shown, since=f"{stranger}:m", unknown="foreign", nonce="n")
            asked = {"from": f"{stranger}:m", "nonce": "n"}
            answers = [
                ordered(client, {}, f"{stranger}:m;n=n").json()["at"],
                ordered(client, GOVERNED, f"{stranger}:m;n=n").json()["at"],
                client.post(
                    "/contract/fixes",
                    json={"operation": "POST /orders", "request": GOVERNED},
                    headers={AT_HEADER: f"{stranger}:m;n=n"},
                ).json()["at"],
                client.get("/contract/changes", params=asked).json(),
            ]
            assert [msgspec.convert(one, Account) for one in answers] == [foreign] * 4
            signed = client.get("/contract/signed", params=asked).json()
            statement = msgspec.json.decode(signed["statement"], type=Statement)
            assert [getattr(statement, name) for name in Account.__struct_fields__] == [
                getattr(foreign, name) for name in Account.__struct_fields__
            ]
            headers = LISTENING | {"Last-Event-ID": f"{stranger}:m"}
            with client.stream("GET", "/contract/changes", headers=headers) as listening:
                event = next(events(listening))
            assert (event["event"], event["id"]) == ("resync", shown)
            assert msgspec.convert(event["data"], Account) == msgspec.structs.replace(foreign, nonce="")
            for grounds in (
                Precondition(at=stranger),
                Precondition(at=stranger, cells={}, rules=(), policies=()),
            ):
                refused = client.post("/orders", json={}, headers={PRECONDITION_HEADER: grounds.header})
                assert (refused.status_code, refused.headers[PRECONDITION_HEADER]) == (412, "failed")


@pytest.mark.spec("14.1", "14.3")
def test_a_suggestion_beside_a_position_is_in_aliases():
    provider, app = shop(Disclosure(secret=SECRET, client=by_token))
    [code, _] = provider.policies.look()
    with calling(app) as client:
        by = []
        for token in ("ada", "bob"):
            aliases = provider.disclosure.aliases(token)
            told = ordered(client, GOVERNED, "*", Authorization=token).json()
            [suggestion] = told["recovery_feedback"]["suggestions"]
            promos = aliases.key("HiddenPromos", "HiddenTarget")
            assert suggestion["on"] == {
                aliases.table("HiddenCodes"): {
                    aliases.key("HiddenCodes", "HiddenKeyOne"): sorted(
                        aliases.column("HiddenCodes", column) for column in ("HiddenColumn", "code")
                    ),
                    ">": aliases.rule_id("HiddenCodes:HiddenNeeds").partition(":")[2],
                },
                aliases.table("HiddenPromos"): {promos: []},
            }
            assert (suggestion["type"], suggestion["parameters"]) == ("USE_CODE", {"code": "c0"})
            assert suggestion["by"][:3] == aliases.policy(code)
            by.append(suggestion["by"][:3])
        assert len({*by, face_of(provider.state, provider.level).words.policy(code)}) == 3


@pytest.mark.spec("14.10")
def test_caches_are_told_what_the_names_depend_on():
    _, app = shop(Disclosure(secret=SECRET))
    with calling(app) as client:
        for path in (
            "/things",
            "/text",
            "/contract/state",
            "/contract/changes?rules=x",
            "/contract/changes?from=*",
            "/checked?plan=gold",
        ):
            assert client.get(path).headers["vary"] == "authorization, x-api-key"
        for known in ("*", position_of(client), "Nobody7;n=n"):
            for path in ("/things", "/text", "/checked?plan=gold"):
                at_position = client.get(path, headers={AT_HEADER: known})
                assert at_position.headers["vary"] == "authorization, x-api-key"
                assert AT_HEADER in at_position.headers
            assert "vary" not in ordered(client, GOVERNED, known).headers
        assert "vary" not in client.post("/orders", json={}).headers
    _, app = shop(Disclosure(secret=SECRET, client=lambda headers: headers.get("x-account", "")))
    with calling(app) as client:
        assert client.get("/things").headers["vary"] == "*"
        assert client.get("/things", headers={AT_HEADER: "*"}).headers["vary"] == "*"
        state = client.get("/contract/state", headers={"X-Account": "ada"})
        assert state.json() != client.get("/contract/state").json()


@pytest.mark.spec("14.1", "14.5", "14.8")
def test_the_header_with_the_grounds_is_understood_in_aliases_only():
    provider, app = shop(Disclosure(secret=SECRET))
    with calling(app, headers={"Authorization": "Bearer ada"}) as client:
        [suggestion] = client.post("/orders", json=GOVERNED).json()["recovery_feedback"]["suggestions"]
        at = position_of(client)
        [compact] = ordered(client, GOVERNED, at).json()["recovery_feedback"]["suggestions"]
        grounds = {
            "cells": suggestion["cells"],
            "rules": suggestion["rules"],
            "policies": [compact["by"][:3]],
        }
        drift(provider, ("code", "iron", 7))

        def status(**grounds):
            header = Precondition(
                at=at, **{"rules": (), "policies": (), "was": {"code": None}} | grounds
            ).header
            wanted = GOVERNED | {"code": "c0"}
            return client.post("/orders", json=wanted, headers={PRECONDITION_HEADER: header}).status_code

        assert status(**grounds) == 200
        assert status() == 412
        assert (
            status(cells={"HiddenCodes": {"HiddenKeyOne": None}})
            == status(cells={"nonsense": {"x": []}})
            == 412
        )
        drift(provider, ("rules", []))
        assert status(**grounds) == 412
        assert status(**grounds | {"rules": ["HiddenCodes:HiddenNeeds"]}) == 200
        drift(provider, ("rules", [TIE]))
        assert status(**grounds) == 200
        drift(provider, ("code", "gold", 7))
        assert status(**grounds) == 412


def test_a_log_that_cannot_be_reached_is_not_named(tmp_path, caplog):
    path = tmp_path / "HiddenLog.db"
    _, app = shop(Disclosure(secret=SECRET, client=by_token), log=path, signing=Signing(signer=SIGNER))
    with calling(app) as client:
        known = position_of(client)
        with sqlite3.connect(path) as other:
            for (table,) in other.execute("select name from sqlite_master where type = 'table'").fetchall():
                other.execute(f"drop table {table}")
        other.close()
        asked = {"from": known, "nonce": "n"}
        fixes = {"operation": "POST /orders", "request": GOVERNED}
        for answer in (
            client.get("/contract/changes", params=asked),
            client.get("/contract/signed", params=asked),
            client.post("/contract/fixes", json=fixes, headers={AT_HEADER: known}),
        ):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
            assert answer.json() == {"success": False, "error": "the log cannot be reached; try again later"}
        asked = ordered(client, GOVERNED, f"{known};n=n")
        assert (asked.status_code, "at" in asked.json()) == (422, False)
        assert "Hidden" not in asked.text
    assert "HiddenLog.db" in caplog.text


def test_the_document_for_anybody_does_not_list_the_tables():
    _, app = shop(Disclosure(secret=SECRET))
    with calling(app) as client:
        document = client.get("/openapi.json").text
    assert "/admin/reload-table" in document
    assert "Hidden" not in document
