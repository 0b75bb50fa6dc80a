"""Positions from a real server: what it tells a client that names one, and that others are told what they always were."""

import tracemalloc

import msgspec
import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.applications import Starlette
from starlette.routing import Mount

from shelflife.apis.acme import ROTATED_CODES, acme_app, acme_provider
from shelflife.contract.positions import Account, Named, Position
from shelflife.integrations.fastapi import install
from shelflife.server import Provider, Rule, WireFormat, fix
from shelflife.server.errors import LogError
from shelflife.server.faces import face_of
from shelflife.server.log import MOST_ENTRIES
from tests.acme_world import FREE, GOVERNED
from tests.calling import calling
from tests.integrations.checked import WANTED, fastapi_with, provider_for
from tests.integrations.positions import known_position, position_of

STAMPS = {"table_versions", "rules_version"}
TABLE_VERSIONS = (
    b'"table_versions":{"active_csm_codes":"1.0.0","promo_eligibility":"1.0.0","token_funding_map":"1.0.0",'
    b'"recommended_credit_token":"1.0.0","funding_type_policy":"1.0.0","required_promo_policy":"1.0.0"},'
    b'"rules_version":"193ae4fde352"}'
)
CELLS = (
    b'"cells":{"required_promo_policy":{"plan_partner_growth":["code_of"]},'
    b'"active_csm_codes":{"plan_partner_growth":["code"]},"promo_eligibility":{"SUMMERSALE25":[]}},'
)
REFUSED = (
    b'{"success":false,"recovery_feedback":{"suggestions":[{"type":"USE_REQUIRED_PROMO",'
    b'"parameters":{"promo_code":"SUMMERSALE25"},"cache_hint":"cacheable","table":"active_csm_codes",'
    b'"tables":[{"table":"required_promo_policy","version":"1.0.0"},{"table":"promo_eligibility",'
    b'"version":"1.0.0"},{"table":"active_csm_codes","version":"1.0.0"}],'
    b'"rows":["required_promo_policy:plan_partner_growth","active_csm_codes:plan_partner_growth",'
    b'"promo_eligibility:SUMMERSALE25"],"rules":["active_csm_codes:requires_recognition"],'
    b'"when":{"plan":"plan_partner_growth"},"unless":{"promo_code":["SUMMERSALE25"]}}]},' + TABLE_VERSIONS
)
"""What version 1 of the protocol has answered to GOVERNED. `cells` has come in addition since."""

ABSURD = [
    "",
    "1",
    "nonsense",
    '"quoted"',
    "**",
    "AAAAAAAA",
    "Abcdef7, Abcdef8",
    "Abcdef7;n=",
    "Abcdef7;m=1",
    "Abcdef7:" + "m" * 17,
    "Abcdef7;n=" + "n" * 33,
    "Abcdef" + "9" * 16,
    "Abcdef" + "9" * 10_000,
    "x" * 10_000,
]


@pytest.fixture
def provider():
    return acme_provider()


@pytest.fixture
def client(provider):
    with calling(acme_app(provider)) as client:
        yield client


def sent(client, request, at=None):
    return client.post("/subscriptions", json=request, headers={} if at is None else {"Contract-At": at})


def post(client, request, at=None):
    return sent(client, request, at).json()


@pytest.mark.spec("11.3")
def test_without_the_header_every_byte_is_as_it_was(client):
    refused = sent(client, GOVERNED)
    assert refused.content.replace(CELLS, b"") == REFUSED
    made = sent(client, FREE)
    assert made.content.endswith(b"}," + TABLE_VERSIONS)
    assert made.content.startswith(b'{"success":true,"subscription":{"object":"subscription",')
    for response in (refused, made):
        assert response.headers.keys() == {"date", "server", "content-type", "content-length"}


def without(body, *members):
    """A body without the members that begin so, and reach to the next one here."""
    for begin, end in members:
        head, _, tail = body.partition(begin)
        body = head + end + tail.partition(end)[2]
    return body


BEYOND = [(b',"rows":', b"}]},")]
"""From `rows` to the end of the suggestion."""

VERSION_1 = {
    "6": (WireFormat(), REFUSED),
    "5": (WireFormat(level=5), without(REFUSED, (b',"rules_version"', b"}"))),
    "4": (WireFormat(level=4), without(REFUSED, (b',"rules_version"', b"}"))),
    "1": (
        WireFormat(level=1),
        without(REFUSED, (b',"rules_version"', b"}"), *BEYOND, (b',"tables":', b"}]},")),
    ),
    "paper only": (WireFormat(paper_only=True), without(REFUSED, *BEYOND)),
    "problem": (
        WireFormat(errors="problem"),
        REFUSED.replace(
            b"{",
            b'{"title":"Unprocessable Content","status":422,"detail":"This plan needs the promotional code that'
            b' is currently assigned to it.",',
            1,
        ),
    ),
}


@pytest.mark.spec("11.3", "2.6")
@pytest.mark.parametrize("name", VERSION_1)
def test_without_the_header_every_byte_is_as_it_was_at_every_level(name):
    wire, expected = VERSION_1[name]
    with calling(acme_app(acme_provider(wire=wire))) as client:
        refused = sent(client, GOVERNED)
    assert refused.content.replace(CELLS, b"") == expected


@pytest.mark.spec("11.3")
@pytest.mark.parametrize("at", ABSURD)
def test_what_cannot_be_understood_is_as_though_it_were_not_there(client, at):
    assert sent(client, GOVERNED, at).content.replace(CELLS, b"") == REFUSED
    assert sent(client, FREE, at).content.endswith(b"}," + TABLE_VERSIONS)


@pytest.mark.spec("11.6", "11.10")
def test_a_response_where_the_client_is_carries_nothing(client):
    at = known_position(client)
    for named in (at, f"{at}:m1"):
        made = sent(client, FREE, named)
        assert made.json().keys() == {"success", "subscription"}
        assert not [name for name in made.headers if name.startswith("contract-")]
    asked = post(client, FREE, f"{at}:m1;n=e3")
    assert asked["at"] == {"to": at, "nonce": "e3"}
    assert not STAMPS & asked.keys()
    refused = post(client, GOVERNED, at)
    assert refused["at"] == at


@pytest.mark.spec("11.6")
def test_a_client_that_knows_no_position_is_told_it(client):
    at = known_position(client)
    assert post(client, FREE, "*")["at"] == at
    assert post(client, FREE, "*:m1")["at"] == at
    assert post(client, FREE, "*;n=0.e3")["at"] == {"to": at, "nonce": "0.e3"}
    assert Position.from_text(at).number == 1  # its policies


@pytest.mark.spec("11.17", "11.18", "11.19")
def test_beside_a_position_a_suggestion_is_compact(client):
    refused = sent(client, GOVERNED, known_position(client))
    told = refused.json()
    assert not STAMPS & told.keys()
    assert told["recovery_feedback"]["suggestions"] == [
        {
            "type": "USE_REQUIRED_PROMO",
            "parameters": {"promo_code": "SUMMERSALE25"},
            "on": {
                "required_promo_policy": {"=plan": "code_of"},
                "active_csm_codes": {"=plan": "code", ">": "requires_recognition"},
                "promo_eligibility": {"~promo_code": []},
            },
            "by": told["recovery_feedback"]["suggestions"][0]["by"],
        }
    ]
    assert len(told["recovery_feedback"]["suggestions"][0]["by"]) == 7
    assert len(refused.content) < len(REFUSED) / 2


@pytest.mark.spec("11.7", "11.8")
def test_a_client_that_is_behind_is_told_what_has_moved(client, provider):
    at = known_position(client)
    provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES, version="2.0.0")
    told = post(client, FREE, f"{at}:m1")["at"]
    assert told == {
        "to": position_of(provider),
        "from": f"{at}:m1",
        "moved": {
            "tables": {
                "active_csm_codes": {
                    "changed": ["plan_partner_growth"],
                    "columns": {"plan_partner_growth": ["code"]},
                    "downstream": ["promo_eligibility:SUMMERSALE25"],
                }
            }
        },
    }
    rule = Rule(
        from_table="recommended_credit_token", to_table="funding_type_policy", relation="g", via="policy"
    )
    provider.registry.reload_rules(add=[rule])
    told = post(client, GOVERNED, f"{at};n=e3")
    assert told["at"]["moved"]["rules"] == {
        "added": [{"from": rule.from_table, "to": rule.to_table, "relation": "g", "via": "policy"}]
    }
    assert (told["at"]["from"], told["at"]["nonce"]) == (at, "e3")
    assert told["recovery_feedback"]["suggestions"][0]["parameters"] == {"promo_code": "WINTERLAUNCH26"}


@pytest.mark.spec("11.8")
def test_a_client_is_told_which_policies_say_something_else_now():
    provider = provider_for()

    @provider.policy(version="2")
    def another(request, tables):
        return None

    with calling(fastapi_with(provider, "/x")) as client:
        at, now = known_position(client), provider.policies.look()
        [changed] = [name for name in now if "another" in name]
        provider.registry.declare_policies(now | {changed: "1"})
        provider.registry.declare_policies(now)
        back = client.post("/x", json=WANTED, headers={"Contract-At": at}).json()["at"]
        assert back == {"to": position_of(provider), "from": at, "moved": {}}
        provider.registry.declare_policies({changed: now[changed]})
        account = face_of(provider.registry.state, provider.level).account(Named(Position.from_text(at)))
        [gone] = [name for name in now if name != changed]
        assert account.moved.policies == (face_of(provider.state, provider.level).words.policy(gone),)


@pytest.mark.spec("11.9")
def test_a_server_says_why_it_cannot_go_on(client, provider):
    at = Position.from_text(known_position(client))
    first = str(at)

    def unknown(position, named="m1;n=e3"):
        told = post(client, FREE, f"{position}:{named}")["at"]
        mark, _, nonce = named.partition(";n=")
        assert told == {
            "to": position_of(provider),
            "from": f"{position}:{mark}",
            "unknown": told["unknown"],
        } | ({"nonce": nonce} if nonce else {})
        return told["unknown"]

    for number in (2, 3, 10**15 - 1):
        assert unknown(at._replace(number=number)) == "ahead"
    assert unknown(at._replace(check="Zzzzz9")) == "foreign"
    assert unknown(at._replace(number=0)) == "foreign"
    for number in range(MOST_ENTRIES + 1):
        provider.registry.reload_table("token_funding_map", set={"another": {"funding": str(number)}})
    assert unknown(first, "m1") == "old"
    assert unknown("Zzzzz90", "m1") == "old"


@pytest.mark.spec("11.11")
def test_an_account_that_is_too_long_must_be_asked_for(client, provider):
    at = known_position(client)
    codes = {f"CODE{number}": {"plans": [], "percent_off": 1} for number in range(500)}
    provider.registry.reload_table("promo_eligibility", set=codes)
    assert post(client, FREE, f"{at}:m1;n=e3")["at"] == {
        "to": position_of(provider),
        "from": f"{at}:m1",
        "nonce": "e3",
    }
    answer = client.get("/contract/changes", params={"from": f"{at}:m1", "nonce": "e4"}).json()
    assert set(answer["moved"]["tables"]["promo_eligibility"]["added"]) == codes.keys()
    assert (answer["from"], answer["nonce"]) == (f"{at}:m1", "e4")


def app_with(provider):
    app = FastAPI()
    install(app, provider)

    @app.api_route("/text", methods=["GET", "POST"], response_class=PlainTextResponse)
    def text():
        return "hello"

    @app.api_route("/own", methods=["GET", "POST"])
    def own():
        return {"at": "home"}

    @app.api_route("/json", methods=["GET", "HEAD", "POST"])
    def json():
        return {"a": 1}

    @app.api_route("/whole", methods=["GET", "POST"])
    def whole():
        return Response(b'{"a":1}', media_type="application/json", headers={"ETag": '"1"'})

    return app


@pytest.mark.spec("11.14")
def test_what_a_cache_may_give_to_others_does_not_depend_on_what_is_named():
    provider = Provider({"t": {"a": {}}})
    with calling(app_with(provider)) as client:
        at = known_position(client)
        provider.registry.reload_table("t", set={"a": {"n": 1}})
        now = position_of(provider)
        for path in ("/text", "/own", "/json", "/whole"):
            full = client.get(path)
            for named, told in (
                (now, now),
                (at, now),
                ("*;n=e3", f"{now};n=e3"),
                (f"{at}:m1;n=e3", f"{now};n=e3"),
            ):
                response = client.get(path, headers={"Contract-At": named})
                assert response.content == full.content
                expected = dict(full.headers) | {"contract-at": told, "date": response.headers["date"]}
                assert dict(response.headers) == expected
                assert "vary" not in response.headers
        head = client.head("/json", headers={"Contract-At": at})
        assert (head.headers["contract-at"], "contract-state" in head.headers) == (now, True)


@pytest.mark.spec("11.5", "5.3")
def test_bodies_that_are_left_alone_have_it_in_a_header():
    provider = Provider({"t": {"a": {}}})
    with calling(app_with(provider)) as client:
        at = known_position(client)
        for path in ("/text", "/own", "/whole"):
            quiet = client.post(path, headers={"Contract-At": at})
            assert not [name for name in quiet.headers if name.startswith("contract-")]
            for named, told in (("*", at), (f"{at};n=e3", f"{at};n=e3"), ("Abcdef9:m1;n=e3", f"{at};n=e3")):
                response = client.post(path, headers={"Contract-At": named})
                assert response.content == quiet.content
                ours = {
                    name: value for name, value in response.headers.items() if name.startswith("contract-")
                }
                assert ours == {"contract-at": told}
        assert client.post("/json", headers={"Contract-At": "*"}).json() == {"a": 1, "at": at}


@pytest.mark.spec("11.12")
@pytest.mark.parametrize("wire", [WireFormat(level=1), WireFormat(paper_only=True)])
def test_where_fixes_do_not_say_what_they_rest_on_versions_are_told_too(wire):
    provider = provider_for(wire=wire)
    with calling(fastapi_with(provider, "/x")) as client:
        full = client.post("/x", json=WANTED).json()
        at = known_position(client)
        for named, told in ((at, at), ("*", at), (f"{at};n=e3", {"to": at, "nonce": "e3"})):
            assert client.post("/x", json=WANTED, headers={"Contract-At": named}).json() == full | {
                "at": told
            }
        done = client.post("/x", json=WANTED | {"promo": "A"}, headers={"Contract-At": at}).json()
        assert done == {"done": True, "table_versions": full["table_versions"], "at": at} | (
            {"rules_version": full["rules_version"]} if "rules_version" in full else {}
        )
        provider.registry.reload_table("codes", set={"growth": {"code": "B"}})
        moved = client.post("/x", json=WANTED, headers={"Contract-At": at}).json()
        assert moved["at"]["from"] == at
        assert moved["at"]["moved"]["tables"]["codes"]["changed"] == ["growth"]
        assert moved["table_versions"] == provider.state.table_versions


@pytest.mark.spec("2.1")
def test_at_level_0_no_position_is_told():
    with calling(fastapi_with(provider_for(wire=WireFormat(level=0)), "/x")) as client:
        for request in (WANTED, WANTED | {"promo": "A"}):
            response = client.post("/x", json=request, headers={"Contract-At": "*;n=e3"})
            assert "at" not in (response.json() if response.is_success else {})
            assert not [name for name in response.headers if name.startswith("contract-")]


@pytest.mark.spec("11.4")
@pytest.mark.parametrize("is_ahead", [True, False])
def test_a_question_is_answered_from_the_end_of_the_log(tmp_path, is_ahead, monkeypatch):
    one, two = (provider_for(log=tmp_path / "log.db") for _ in range(2))
    monkeypatch.setattr(two.registry, "follow", lambda: None)  # a worker that lags
    with calling(fastapi_with(one, "/x")) as first, calling(fastapi_with(two, "/x")) as second:
        at = known_position(first)
        assert second.post("/x", json=WANTED, headers={"Contract-At": at}).json()["at"] == at
        one.registry.reload_table("codes", set={"growth": {"code": "B"}})
        now = position_of(one)
        behind = second.post("/x", json=WANTED, headers={"Contract-At": at}).json()
        assert (behind["at"], behind["recovery_feedback"]["suggestions"][0]["parameters"]) == (
            at,
            {"promo": "A"},
        )
        named = now if is_ahead else f"{at}:m1;n=e3"
        told = second.post("/x", json=WANTED, headers={"Contract-At": named}).json()
        assert told["recovery_feedback"]["suggestions"][0]["parameters"] == {"promo": "B"}
        assert (told["at"] if is_ahead else told["at"]["to"]) == now
    for provider in (one, two):
        provider.close()


def silent(response):
    """Whether a response says nothing of any state."""
    members = response.json().keys() & (STAMPS | {"at"})
    return not members and not [name for name in response.headers if name.startswith("contract-")]


@pytest.mark.spec("11.13", "9.10")
def test_a_server_that_cannot_reach_its_log_names_no_position(tmp_path, monkeypatch):
    provider = provider_for(log=tmp_path / "log.db")
    with calling(fastapi_with(provider, "/x")) as client:
        at = known_position(client)

        def fail():
            raise LogError("gone")

        monkeypatch.setattr(provider.registry, "catch_up", fail)
        ahead = str(Position.from_text(at)._replace(number=9))
        for named in (f"{at};n=e3", "*;n=e3", ahead):
            response = client.post("/x", json=WANTED, headers={"Contract-At": named})
            assert response.status_code == 422
            assert silent(response)
        assert client.post("/x", json=WANTED, headers={"Contract-At": at}).json()["at"] == at
        asked = client.get("/contract/changes", params={"from": at, "nonce": "e3"})
        assert asked.status_code == 503
        fixes = {"operation": "POST /x", "request": WANTED}
        assert client.post("/contract/fixes", json=fixes, headers={"Contract-At": at}).status_code == 503
        assert client.post("/contract/fixes", json=fixes).status_code == 200
    provider.close()


@pytest.mark.spec("11.13", "9.10")
def test_a_server_whose_policies_are_not_those_of_the_log_names_no_position():
    provider = provider_for()
    with calling(fastapi_with(provider, "/x")) as client:
        at = known_position(client)
        provider.registry.declare_policies({"of another deploy": "1"})
        for named in (at, "*", f"{at};n=e3"):
            assert silent(client.post("/x", json=WANTED, headers={"Contract-At": named}))
        assert client.post("/x", json=WANTED).json().keys() >= STAMPS
        asked = client.get("/contract/changes", params={"from": at, "nonce": "e3"})
        assert (asked.status_code, asked.headers["retry-after"]) == (503, "5")


@pytest.mark.spec("11.15")
def test_a_response_says_where_the_contract_lives_when_that_is_not_the_root():
    def refusal(provider, prefix, at="*"):
        app = fastapi_with(provider, "/x")
        with calling(Starlette(routes=[Mount(prefix, app=app)]) if prefix else app) as client:
            headers = {} if at is None else {"Contract-At": at}
            return client.post(f"{prefix}/x", json=WANTED, headers=headers).headers.get("contract-root")

    assert refusal(provider_for(), "") is None
    assert refusal(provider_for(), "/api") == "/api"
    assert refusal(provider_for(), "/api", at=None) is None
    assert refusal(provider_for(root="/v1"), "") == "/v1"
    assert refusal(provider_for(root="/v1/"), "/api") == "/v1"
    assert refusal(provider_for(root="https://api.example/v1"), "") == "https://api.example/v1"
    assert refusal(provider_for(root=""), "/api") is None


@pytest.mark.spec("12.7", "11.17")
def test_whoever_asks_for_fixes_and_names_a_position_is_told_them_in_short(client, provider):
    asked = {"operation": "POST /subscriptions", "request": {"plan": "plan_partner_growth"}}
    full = client.post("/contract/fixes", json=asked).json()
    assert full.keys() >= STAMPS
    at = known_position(client)
    for named, told in ((at, at), ("*", at), (f"{at};n=e3", {"to": at, "nonce": "e3"})):
        short = client.post("/contract/fixes", json=asked, headers={"Contract-At": named}).json()
        assert (short["at"], short.keys() & STAMPS) == (told, set())
        [suggestion] = short["recovery_feedback"]["suggestions"]
        assert suggestion["on"]["promo_eligibility"] == {"~promo_code": []}
    provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES)
    moved = client.post("/contract/fixes", json=asked, headers={"Contract-At": at}).json()
    assert moved["at"]["moved"]["tables"].keys() == {"active_csm_codes"}


def test_whatever_clients_name_a_server_keeps_little_of_it():
    registry = provider_for().registry
    face = face_of(registry.state, 6)
    tracemalloc.start()
    try:
        for number in range(5_000):
            face.stamp_at(Named(Position(number, "Abcdef"), f"m{number}"), with_versions=False)
            face.stamp_at(Named(None, "", f"n{number}"), with_versions=False)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000


UNTOLD = (401, 403, 405, 407, 429, 500, 503)


@pytest.mark.spec("11.16", "5.10", "5.11")
@pytest.mark.parametrize("status", [200, 201, 303, 404, 409, 422, *UNTOLD])
@pytest.mark.parametrize("has_checked", [True, False])
def test_positions_are_told_where_stamps_would_be(status, has_checked):
    provider = Provider({"t": {"a": {}}})
    app = FastAPI()
    install(app, provider)

    @app.post("/x")
    def operation():
        if has_checked:
            provider.check({})
        return JSONResponse({"a": 1}, status)

    with calling(app, follow_redirects=False) as client:
        response = client.post("/x", headers={"Contract-At": "*;n=e3"})
    is_told = status not in UNTOLD and (has_checked or status in (200, 201))
    expected = {"a": 1} | ({"at": {"to": position_of(provider), "nonce": "e3"}} if is_told else {})
    assert (response.status_code, response.json()) == (status, expected)
    assert not [name for name in response.headers if name.startswith("contract-")]


@pytest.mark.spec("5.2", "11.16")
def test_a_position_and_the_suggestions_beside_it_belong_to_one_state():
    provider = provider_for()

    @provider.policy
    def moves_on(request, tables):
        provider.registry.reload_table("codes", set={"growth": {"code": "A", "n": provider.state.number}})
        return fix("NEVER", x=1) if tables.codes["growth"].get("n") == -1 else None

    with calling(fastapi_with(provider, "/x")) as client:
        at = known_position(client)
        told = client.post("/x", json=WANTED, headers={"Contract-At": at}).json()
        assert told["at"] == at
        later = client.post("/x", json=WANTED, headers={"Contract-At": at}).json()["at"]
        account = msgspec.convert(later, Account)
        assert account.moved.tables["codes"].columns == {"growth": ("n",)}
