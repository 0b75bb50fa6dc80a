"""Acme billing: the paper's listings, its policies and its gateway."""

import json
import re
from pathlib import Path

import pytest

from shelflife.apis.acme import ROTATED_CODES, acme_app, acme_provider
from shelflife.apis.acme.app import TABLES
from shelflife.apis.acme.gateway import Declined, GatewayDown
from shelflife.server import WireFormat
from tests.calling import ADMIN, TOKEN, calling

LISTINGS = Path(__file__).with_name("listings")
WANTED = {
    "customer": "cus_ada",
    "plan": "plan_basic_monthly",
    "amount": 12000,
    "currency": "usd",
    "payment_method_token": "acme_pm_visa_credit",
}
BY_DEBIT = WANTED | {"plan": "plan_enterprise_annual", "payment_method_token": "acme_pm_visa_debit"}
GOVERNED = WANTED | {"plan": "plan_partner_growth"}


def listing(level):
    """A listing of the paper, as printed."""
    return json.loads((LISTINGS / f"level_{level}.json").read_text())


def acme(**options):
    return calling(acme_app(acme_provider(admin_token=TOKEN, **options)))


def subscribe(client, **changes):
    return client.post("/subscriptions", json=changes)


def shows(excerpt, versions):
    """The listings show an excerpt of `table_versions`; the server sends all six."""
    return excerpt.items() <= versions.items() and set(versions) == set(TABLES)


def in_excerpt(answer, printed):
    """The answer with `table_versions` cut to what the listing shows."""
    assert shows(printed["table_versions"], answer["table_versions"])
    return answer | {"table_versions": printed["table_versions"]}


@pytest.mark.spec("2.2", "3.1", "3.2")
def test_the_listing_of_level_1_comes_out_as_printed():
    with acme(wire=WireFormat(level=1)) as client:
        response = subscribe(client, **BY_DEBIT)
    assert response.status_code == 422
    assert in_excerpt(response.json(), listing(1)) == listing(1)
    assert list(response.json()) == list(listing(1))


@pytest.mark.spec("2.3", "3.5", "4.8")
def test_the_listing_of_level_4_comes_out_as_printed():
    with acme(wire=WireFormat(level=4, paper_only=True)) as client:
        [suggestion] = subscribe(client, **BY_DEBIT).json()["recovery_feedback"]["suggestions"]
    assert suggestion == listing(4)
    assert list(suggestion) == list(listing(4))


@pytest.mark.spec("2.3", "2.6", "4.1", "4.3", "4.4")
def test_what_goes_beyond_the_listing_of_level_4_is_added_to_it():
    with acme(wire=WireFormat(level=4)) as client:
        [suggestion] = subscribe(client, **BY_DEBIT).json()["recovery_feedback"]["suggestions"]
    assert suggestion == listing(4) | {
        "rows": ["recommended_credit_token:plan_enterprise_annual", "token_funding_map:acme_pm_visa_debit"],
        "cells": {
            "recommended_credit_token": {"plan_enterprise_annual": ["token"]},
            "token_funding_map": {"acme_pm_visa_debit": ["funding"]},
        },
        "rules": ["recommended_credit_token:governed_by", "token_funding_map:funds"],
        "when": {"plan": "plan_enterprise_annual", "payment_method_token": "acme_pm_visa_debit"},
    }


@pytest.mark.spec("4.9")
def test_the_promo_fix_holds_for_any_other_code_or_none():
    with acme() as client:
        for changes in ({}, {"promo_code": "WELCOME5"}):
            [suggestion] = subscribe(client, **GOVERNED | changes).json()["recovery_feedback"]["suggestions"]
            assert suggestion["when"] == {"plan": "plan_partner_growth"}
            assert suggestion["unless"] == {"promo_code": ["SUMMERSALE25"]}


@pytest.mark.spec("2.4", "8.1")
def test_the_listing_of_level_5_is_in_a_graph_of_23_nodes_and_20_edges():
    with acme(wire=WireFormat(level=5)) as client:
        graph = client.get("/admin/graph", headers=ADMIN).json()
    assert (len(graph["nodes"]), len(graph["edges"])) == (23, 20)
    assert listing(5)["nodes"].items() <= graph["nodes"].items()
    assert listing(5)["edges"][0] in graph["edges"]


@pytest.mark.spec("2.5", "5.1")
def test_the_listing_of_level_6_comes_out_as_printed_but_for_our_fingerprint():
    with acme(wire=WireFormat(level=6)) as client:
        response = subscribe(client, **WANTED)
    answer = response.json()
    assert response.status_code == 201
    created = answer.pop("subscription")
    assert created.items() >= WANTED.items()
    assert re.fullmatch("[0-9a-f]{12}", answer["rules_version"])
    assert in_excerpt(answer, listing(6)) | {"rules_version": "ec524f499ebe"} == listing(6)


@pytest.mark.spec("2.6")
def test_each_level_adds_only_its_own_members_to_the_one_below():
    answers = {}
    for level in (1, 4, 5, 6):
        with acme(wire=WireFormat(level=level, paper_only=True)) as client:
            answers[level] = subscribe(client, **BY_DEBIT).json()
    four = dict(answers[4])
    [suggestion] = four["recovery_feedback"]["suggestions"]
    without_vector = {name: value for name, value in suggestion.items() if name != "tables"}
    assert four | {"recovery_feedback": {"suggestions": [without_vector]}} == answers[1]
    assert answers[5] == answers[4]
    assert {name: value for name, value in answers[6].items() if name != "rules_version"} == answers[5]


@pytest.mark.spec("2.1")
def test_at_level_0_a_rejection_is_a_sentence():
    with acme(wire=WireFormat(level=0)) as client:
        response = subscribe(client, **BY_DEBIT)
    assert (response.status_code, response.headers["content-type"]) == (422, "text/plain; charset=utf-8")
    assert response.text == "This plan must be paid by credit.\n"


@pytest.mark.spec("7.6")
def test_the_rotation_reports_the_old_code_downstream():
    with acme() as client:
        body = {"table": "active_csm_codes", "set": ROTATED_CODES}
        report = client.post("/admin/reload-table", json=body, headers=ADMIN).json()
        assert report["changed"] == ["plan_partner_growth"]
        assert report["affected_downstream"] == ["promo_eligibility:SUMMERSALE25"]
        [suggestion] = subscribe(client, **GOVERNED).json()["recovery_feedback"]["suggestions"]
        assert suggestion["parameters"] == {"promo_code": "WINTERLAUNCH26"}
        assert subscribe(client, **GOVERNED, promo_code="WINTERLAUNCH26").status_code == 201
        assert subscribe(client, **GOVERNED, promo_code="SUMMERSALE25").status_code == 422


@pytest.mark.parametrize(
    ("request_fields", "type", "parameters", "cache_hint", "tables"),
    [
        (
            GOVERNED,
            "USE_REQUIRED_PROMO",
            {"promo_code": "SUMMERSALE25"},
            "cacheable",
            ["required_promo_policy", "promo_eligibility", "active_csm_codes"],
        ),
        (
            WANTED | {"promo_code": "SCALEUP15"},
            "DROP_INELIGIBLE_PROMO",
            {"promo_code": None},
            "cacheable",
            ["required_promo_policy", "promo_eligibility"],
        ),
        (
            BY_DEBIT,
            "USE_REQUIRED_FUNDING_TYPE",
            {"payment_method_token": "acme_pm_visa_credit"},
            "cacheable",
            ["token_funding_map", "recommended_credit_token"],
        ),
        (
            WANTED | {"payment_method_token": "acme_pm_sepa_debit"},
            "USE_SETTLEMENT_CURRENCY",
            {"currency": "eur"},
            "cacheable",
            ["token_funding_map"],
        ),
        (WANTED | {"amount": 1203}, "ROUND_AMOUNT", {"amount": 1200}, "recompute", []),
    ],
)
def test_each_policy_gives_its_fix_and_the_fixed_request_passes(
    request_fields, type, parameters, cache_hint, tables
):
    with acme() as client:
        [suggestion] = subscribe(client, **request_fields).json()["recovery_feedback"]["suggestions"]
        assert (suggestion["type"], suggestion["parameters"]) == (type, parameters)
        assert suggestion["cache_hint"] == cache_hint
        assert [dependency["table"] for dependency in suggestion.get("tables", [])] == tables
        assert subscribe(client, **request_fields | parameters).status_code == 201


@pytest.mark.spec("3.7")
def test_a_request_that_violates_several_policies_gets_several_fixes():
    with acme() as client:
        fixes = subscribe(client, **BY_DEBIT | {"amount": 3, "currency": "eur"}).json()["recovery_feedback"]
        assert [fix["type"] for fix in fixes["suggestions"]] == [
            "USE_REQUIRED_FUNDING_TYPE",
            "USE_SETTLEMENT_CURRENCY",
            "ROUND_AMOUNT",
        ]


def test_removing_a_rule_takes_its_table_out_of_the_vector_and_adding_one_puts_a_table_in():
    funds = {
        "from": "token_funding_map",
        "to": "recommended_credit_token",
        "relation": "funds",
        "via": "pays_for",
    }
    governed_by = {
        "from": "recommended_credit_token",
        "to": "funding_type_policy",
        "relation": "governed_by",
        "via": "policy",
    }
    with acme() as client:

        def funding_fix():
            [suggestion] = subscribe(client, **BY_DEBIT).json()["recovery_feedback"]["suggestions"]
            assert suggestion["parameters"] == {"payment_method_token": "acme_pm_visa_credit"}
            return [dependency["table"] for dependency in suggestion["tables"]]

        assert funding_fix() == ["token_funding_map", "recommended_credit_token"]
        client.post("/admin/reload-rules", json={"remove": [funds]}, headers=ADMIN)
        assert funding_fix() == ["recommended_credit_token"]
        client.post("/admin/reload-rules", json={"add": [governed_by]}, headers=ADMIN)
        assert funding_fix() == ["funding_type_policy", "recommended_credit_token"]


@pytest.mark.spec("6.1", "6.2")
@pytest.mark.parametrize(
    ("errors", "accept", "form"),
    [
        ("json", "*/*", "application/json"),
        ("json", "application/problem+json", "application/problem+json"),
        ("json", "application/problem+json;q=0.5, application/json", "application/json"),
        ("problem", "*/*", "application/problem+json"),
        ("problem", "application/json", "application/json"),
        ("problem", "text/html;q=x, application/json;q=x", "application/problem+json"),
    ],
)
def test_the_provider_chooses_the_form_and_accept_may_override_it(errors, accept, form):
    with acme(wire=WireFormat(errors=errors)) as client:
        response = client.post("/subscriptions", json=GOVERNED, headers={"Accept": accept})
    assert response.headers["content-type"] == form
    answer = response.json()
    if form == "application/problem+json":
        assert answer.pop("title") == "Unprocessable Content"
        assert answer.pop("status") == 422
        assert (
            answer.pop("detail") == "This plan needs the promotional code that is currently assigned to it."
        )
    assert list(answer) == ["success", "recovery_feedback", "table_versions", "rules_version"]


def test_a_decline_of_the_gateway_is_an_error_with_no_suggestion():
    with acme() as client:
        response = subscribe(client, **WANTED | {"payment_method_token": "acme_pm_declined"})
    answer = response.json()
    assert (response.status_code, answer["success"], answer["error"]) == (402, False, "card_declined")
    assert "recovery_feedback" not in answer
    assert shows({}, answer["table_versions"])


@pytest.mark.parametrize(
    ("error", "status"), [(Declined("x", "No."), 402), (GatewayDown("It is down."), 502)]
)
def test_nothing_is_carried_out_before_the_request_has_passed(error, status):
    asked = []

    class Gateway:
        def subscribe(self, order):
            asked.append(order)
            raise error

    with calling(acme_app(gateway=Gateway())) as client:
        assert subscribe(client, **GOVERNED).status_code == 422
        assert asked == []
        assert subscribe(client, **WANTED).status_code == status
        assert [order.plan for order in asked] == ["plan_basic_monthly"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"nonsense",
        b'{"amount": NaN}',
        b'{"amount": 1e999}',
        b'{"plan": "\\ud800"}',
        b'{"\\ud800": 1}',
        b"[" * 5000,
        b'{"amount": 99999999999999999999999999}',
        b"\xff",
    ],
)
def test_what_is_no_request_at_all_is_refused_and_told_nothing(body):
    with acme() as client:
        response = client.post("/subscriptions", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 422)
    assert response.json().keys() == {"detail"}
    assert not any(name.startswith("contract-") for name in response.headers)
