"""The compact form from a real server."""

import pytest
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

from shelflife.apis.acme import ROTATED_CODES, acme_app, acme_provider
from shelflife.contract.compact import EPOCH_HEADER
from shelflife.integrations.fastapi import install
from shelflife.server import Provider, Rule
from tests.acme_world import FREE, GOVERNED
from tests.calling import calling
from tests.integrations.epochs import known_epoch

STAMPS = {"table_versions", "rules_version"}


@pytest.fixture
def provider():
    return acme_provider()


@pytest.fixture
def client(provider):
    with calling(acme_app(provider)) as client:
        yield client


def post(client, request, epoch=None):
    headers = {} if epoch is None else {EPOCH_HEADER: epoch}
    return client.post("/subscriptions", json=request, headers=headers).json()


@pytest.mark.spec("11.3", "11.7")
def test_a_client_that_knows_the_state_is_told_so_in_ten_bytes(client):
    epoch = known_epoch(client)
    made = post(client, FREE, epoch)
    assert made["epoch"] == 1
    assert not STAMPS & made.keys()
    refused = post(client, GOVERNED, epoch)
    assert refused["epoch"] == 1
    [suggestion] = refused["recovery_feedback"]["suggestions"]
    assert suggestion == {
        "type": "USE_REQUIRED_PROMO",
        "parameters": {"promo_code": "SUMMERSALE25"},
        "on": ["4=plan", "0=plan", "2=promo_code", "0>requires_recognition"],
        "when": {"plan": "plan_partner_growth"},
    }


@pytest.mark.spec("11.2")
def test_without_the_header_nothing_is_different(client):
    made = post(client, FREE)
    assert made.keys() >= STAMPS
    assert "epoch" not in made
    [suggestion] = post(client, GOVERNED)["recovery_feedback"]["suggestions"]
    assert suggestion["cache_hint"] == "cacheable"


@pytest.mark.spec("11.4")
def test_a_client_that_is_behind_is_told_what_has_moved(client, provider):
    epoch = known_epoch(client)
    provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES, version="2.0.0")
    rule = Rule(
        from_table="recommended_credit_token", to_table="funding_type_policy", relation="g", via="policy"
    )
    told = post(client, FREE, epoch)["epoch"]
    assert told == {
        "tables": {
            "active_csm_codes": {
                "version": "2.0.0",
                "changed": ["plan_partner_growth"],
                "affected_downstream": ["promo_eligibility:SUMMERSALE25"],
            }
        }
    }
    report = provider.registry.reload_rules(add=[rule])
    told = post(client, FREE, epoch)["epoch"]
    assert told["rules"]["version"] == report.new_version
    assert told["rules"]["added"] == [
        {"from": rule.from_table, "to": rule.to_table, "relation": "g", "via": "policy"}
    ]


@pytest.mark.spec("11.6")
@pytest.mark.parametrize("epoch", ["AAAAAAAA", "", '"quoted"', "1", "x" * 5000])
def test_a_server_that_does_not_know_the_epoch_answers_in_full(client, epoch):
    made = post(client, FREE, epoch)
    assert made.keys() >= STAMPS
    assert "epoch" not in made


@pytest.mark.spec("11.6")
def test_an_account_that_would_be_longer_than_the_stamps_is_not_given(client, provider):
    epoch = known_epoch(client)
    provider.registry.reload_table(
        "promo_eligibility", set={f"CODE{n}": {"plans": [], "percent_off": 1} for n in range(200)}
    )
    assert post(client, FREE, epoch).keys() >= STAMPS


@pytest.mark.spec("11.3", "11.9")
def test_bodies_that_are_left_alone_have_it_in_a_header_and_caches_are_warned():
    provider = Provider({"t": {"a": {}}})
    app = FastAPI()
    install(app, provider)

    @app.get("/text", response_class=PlainTextResponse)
    def text():
        return "hello"

    @app.get("/own")
    def own():
        return {"epoch": "Jurassic"}

    @app.get("/json")
    def json():
        return {"a": 1}

    with calling(app) as client:
        epoch = known_epoch(client)
        headers = {EPOCH_HEADER: epoch}
        plain = client.get("/text", headers=headers)
        assert (plain.text, plain.headers["contract-epoch"]) == ("hello", "1")
        assert "contract-tables" not in plain.headers
        kept = client.get("/own", headers=headers)
        assert (kept.json(), kept.headers["contract-epoch"]) == ({"epoch": "Jurassic"}, "1")
        for response in (plain, kept, client.get("/json", headers=headers)):
            assert "contract-epoch" in response.headers["vary"].lower()
        assert "vary" not in client.get("/json").headers
        provider.registry.reload_table("t", set={"a": {"n": 1}})
        behind = client.get("/text", headers=headers)
        assert "contract-tables" in behind.headers
        assert "contract-epoch" not in behind.headers
