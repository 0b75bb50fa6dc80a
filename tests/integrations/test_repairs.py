"""Repair on the spot, for who prefers it."""

import pytest
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.integrations.fastapi import install
from shelflife.server import Provider, fix
from tests.calling import calling
from tests.integrations.test_compact import BASE, GOVERNED
from tests.integrations.test_preconditions import Counting

LENIENT = {"Prefer": "respond-async, handling=lenient"}
OPERATION = "POST /subscriptions"


@pytest.fixture
def gateway():
    return Counting()


@pytest.fixture
def client(gateway):
    with calling(acme_app(acme_provider(repairs=[OPERATION]), gateway)) as client:
        yield client


def subscribe(client, request, **headers):
    return client.post("/subscriptions", json=request, headers=headers or LENIENT)


@pytest.mark.spec("12.8")
def test_a_fix_is_merged_and_told(client, gateway):
    made = subscribe(client, GOVERNED)
    assert made.status_code == 201
    assert made.headers["preference-applied"] == "handling=lenient"
    assert made.json()["repaired"] == [
        {"type": "USE_REQUIRED_PROMO", "parameters": {"promo_code": "SUMMERSALE25"}}
    ]
    assert made.json()["subscription"]["promo_code"] == "SUMMERSALE25"
    assert "table_versions" in made.json()
    assert len(gateway.orders) == 1


@pytest.mark.spec("12.8")
def test_one_fix_may_lead_to_another(client):
    wanted = BASE | {"plan": "plan_partner_growth", "payment_method_token": "acme_pm_sepa_debit"}
    made = subscribe(client, wanted)
    assert made.status_code == 201
    assert {one["type"] for one in made.json()["repaired"]} == {
        "USE_REQUIRED_PROMO",
        "USE_SETTLEMENT_CURRENCY",
    }


@pytest.mark.spec("12.8")
def test_what_needs_no_repair_is_as_ever(client):
    made = subscribe(client, BASE | {"plan": "plan_basic_monthly"})
    assert made.status_code == 201
    assert "repaired" not in made.json()
    assert "preference-applied" not in made.headers


@pytest.mark.spec("12.9")
def test_a_fix_that_must_be_worked_out_anew_is_left_to_the_client(client, gateway):
    refused = subscribe(client, GOVERNED | {"amount": 101})
    assert refused.status_code == 422
    assert len(refused.json()["recovery_feedback"]["suggestions"]) == 2
    assert gateway.orders == []


def test_it_is_off_unless_the_provider_and_the_client_want_it(client):
    assert subscribe(client, GOVERNED, Prefer="handling=strict").status_code == 422
    assert subscribe(client, GOVERNED, Prefer="nothandling=lenient").status_code == 422
    assert subscribe(client, GOVERNED, Accept="application/json").status_code == 422
    with calling(acme_app(acme_provider())) as other:
        assert subscribe(other, GOVERNED).status_code == 422


def test_what_is_malformed_is_refused_as_ever(client):
    for body in (b"", b"{", b"[1]", b"\xff"):
        refused = client.post(
            "/subscriptions", content=body, headers={**LENIENT, "content-type": "application/json"}
        )
        assert refused.status_code in (400, 422)


def going_in_circles():
    provider = Provider({"t": {"a": {"n": 1}, "b": {"n": 2}}}, repairs=["POST /x"])
    app = FastAPI()
    install(app, provider)

    @provider.policy
    def never_content(request, tables):
        return fix("OTHER", n=tables.t["b" if request.get("n") == 1 else "a"]["n"])

    @app.post("/x")
    def x(wanted: dict):
        provider.check(wanted)
        return {}

    return app


@pytest.mark.spec("12.9")
def test_repairs_that_go_in_circles_end_in_the_first_refusal():
    with calling(going_in_circles()) as client:
        refused = client.post("/x", json={"n": 7}, headers=LENIENT)
        assert refused.status_code == 422
        [suggestion] = refused.json()["recovery_feedback"]["suggestions"]
        assert suggestion["parameters"] == {"n": 1}


@pytest.mark.spec("12.8")
def test_a_body_that_is_left_alone_has_it_in_a_header():
    provider = Provider({"t": {"a": {"n": 1}}}, repairs=["POST /text"])
    app = FastAPI()
    install(app, provider)

    @provider.policy
    def n_is_the_tables(request, tables):
        n = tables.t["a"]["n"]
        return None if request.equals("n", n) else fix("USE_N", n=n)

    @app.post("/text", response_class=PlainTextResponse)
    def text(wanted: dict):
        provider.check(wanted)
        return f"n is {wanted['n']}"

    with calling(app) as client:
        told = client.post("/text", json={"n": 5}, headers=LENIENT)
        assert (told.text, told.headers["contract-repaired"]) == ("n is 1", '"USE_N"')
        assert told.headers["preference-applied"] == "handling=lenient"
