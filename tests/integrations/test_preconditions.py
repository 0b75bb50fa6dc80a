"""Requests that carry remembered values are carried out only while these are right."""

import threading

import pytest

from shelflife.apis.acme import ROTATED_CODES, acme_app, acme_provider
from shelflife.contract import Rule
from shelflife.contract.preconditions import PRECONDITION_HEADER, Precondition
from shelflife.contract.versions import Versions
from tests.acme_world import BASE, FUNDS, GOVERNED
from tests.calling import calling
from tests.integrations.epochs import known_epoch

REMEMBERED = GOVERNED | {"promo_code": "SUMMERSALE25"}
ROWS = ("required_promo_policy:plan_partner_growth", "active_csm_codes:plan_partner_growth")
FUNDING = BASE | {"plan": "plan_enterprise_annual"}


class Counting:
    """A gateway that counts what it was asked to carry out."""

    def __init__(self):
        from shelflife.apis.acme.gateway import InProcessGateway

        self.orders = []
        self.inner = InProcessGateway()

    def subscribe(self, order):
        self.orders.append(order)
        return self.inner.subscribe(order)


@pytest.fixture
def provider():
    return acme_provider()


@pytest.fixture
def gateway():
    return Counting()


@pytest.fixture
def client(provider, gateway):
    with calling(acme_app(provider, gateway)) as client:
        yield client


def resting_on(client, rows=ROWS, rules=(), was=None, epoch=None):
    was = {"promo_code": None} if was is None else was
    return Precondition(epoch=epoch or known_epoch(client), rows=tuple(rows), rules=tuple(rules), was=was)


def post(client, request, precondition):
    return client.post("/subscriptions", json=request, headers={PRECONDITION_HEADER: precondition.header})


@pytest.mark.spec("12.2", "12.3")
def test_while_nothing_has_moved_the_request_is_carried_out(client, provider):
    precondition = resting_on(client)
    assert post(client, REMEMBERED, precondition).status_code == 201
    provider.registry.reload_table("recommended_credit_token", set={}, version="7")
    provider.registry.reload_table("active_csm_codes", set={"plan_partner_scale": {"code": "WELCOME5"}})
    assert post(client, REMEMBERED, precondition).status_code == 201


@pytest.mark.spec("12.2", "12.4")
def test_where_no_rules_are_named_any_rule_that_moves_counts_and_no_other_row(client, provider, gateway):
    of_any_rule = Precondition(epoch=known_epoch(client), rows=ROWS, was={"promo_code": None})
    of_none = resting_on(client)
    provider.registry.reload_table("token_funding_map", set={"another": {"funding": "debit"}})
    assert post(client, REMEMBERED, of_any_rule).status_code == 201
    provider.registry.reload_rules(remove=[FUNDS])
    refused = post(client, REMEMBERED, of_any_rule)
    assert (refused.status_code, len(gateway.orders)) == (412, 1)
    assert post(client, REMEMBERED, of_none).status_code == 201


@pytest.mark.spec("12.2", "12.4")
def test_in_brief_anything_that_moves_counts(client, provider, gateway):
    brief = Precondition(epoch=known_epoch(client), was={"promo_code": None})
    assert len(brief.header) < len(resting_on(client).header) / 2
    assert post(client, REMEMBERED, brief).status_code == 201
    provider.registry.reload_table("token_funding_map", set={"another": {"funding": "debit"}})
    refused = post(client, REMEMBERED, brief)
    assert (refused.status_code, len(gateway.orders)) == (412, 1)
    [suggestion] = refused.json()["recovery_feedback"]["suggestions"]
    assert suggestion["parameters"] == {"promo_code": "SUMMERSALE25"}
    assert post(client, REMEMBERED, resting_on(client, epoch=brief.epoch)).status_code == 201
    rows_alone = Precondition(epoch=brief.epoch, rows=ROWS, was={"promo_code": None})
    assert post(client, REMEMBERED, rows_alone).status_code == 201
    nothing = Precondition(epoch=brief.epoch, rows=(), rules=(), was={})
    assert post(client, REMEMBERED, nothing).status_code == 201


@pytest.mark.spec("12.4", "12.5")
def test_when_a_row_has_moved_nothing_is_carried_out_and_the_fresh_fix_is_inside(client, provider, gateway):
    precondition = resting_on(client)
    provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES)
    refused = post(client, REMEMBERED, precondition)
    assert refused.status_code == 412
    assert gateway.orders == []
    [suggestion] = refused.json()["recovery_feedback"]["suggestions"]
    assert suggestion["parameters"] == {"promo_code": "WINTERLAUNCH26"}
    assert refused.json()["table_versions"]["active_csm_codes"] != "1.0.0"
    mended = GOVERNED | suggestion["parameters"]
    assert post(client, mended, resting_on(client)).status_code == 201


@pytest.mark.spec("12.4")
def test_a_stale_value_that_would_pass_is_not_carried_out_either(client, provider, gateway):
    remembered = FUNDING | {"payment_method_token": "acme_pm_visa_credit"}
    rows = ("recommended_credit_token:plan_enterprise_annual",)
    precondition = resting_on(client, rows, was={"payment_method_token": "acme_pm_visa_debit"})
    provider.registry.reload_table(
        "recommended_credit_token",
        set={"plan_enterprise_annual": {"token": "acme_pm_amex_credit", "policy": "enterprise_annual"}},
    )
    refused = post(client, remembered, precondition)
    assert refused.status_code == 412
    [suggestion] = refused.json()["recovery_feedback"]["suggestions"]
    assert suggestion["parameters"] == {"payment_method_token": "acme_pm_amex_credit"}
    assert gateway.orders == []
    assert client.post("/subscriptions", json=remembered).status_code == 201


@pytest.mark.spec("12.4")
def test_a_rule_that_has_moved_an_unknown_epoch_and_a_table_that_is_gone_count_as_moved(client, provider):
    rule = Rule(
        from_table="token_funding_map", to_table="recommended_credit_token", relation="funds", via="pays_for"
    )
    precondition = resting_on(client, rules=("token_funding_map:funds",))
    other = resting_on(client, rules=("active_csm_codes:requires_recognition",))
    provider.registry.reload_rules(remove=[rule])
    assert post(client, REMEMBERED, precondition).status_code == 412
    assert post(client, REMEMBERED, other).status_code == 201
    assert post(client, REMEMBERED, resting_on(client, epoch="AAAAAAAA")).status_code == 412
    provider.registry.reload_table("active_csm_codes", set={}, version="9")
    assert post(client, REMEMBERED, resting_on(client, ("gone:x",))).status_code == 201
    stale = resting_on(client, ("gone:x",))
    provider.registry.reload_table("active_csm_codes", set={}, version="10")
    assert post(client, REMEMBERED, stale).status_code == 412


@pytest.mark.spec("12.6")
@pytest.mark.parametrize(
    "value",
    ["nonsense", "AAAAAAAA", "AAAAAAAA;on=:!!:", "AAAAAAAA;on=:W10=:", "AAAAAAAA;on=:" + "A" * 20_000 + ":"],
)
def test_a_precondition_that_cannot_be_read_is_refused(client, gateway, value):
    refused = client.post("/subscriptions", json=REMEMBERED, headers={PRECONDITION_HEADER: value})
    assert refused.status_code == 400
    assert refused.json() == {
        "success": False,
        "error": "Contract-Precondition cannot be read:"
        " it is an epoch, and after ;on=: its grounds as JSON in Base64",
    }
    assert gateway.orders == []


@pytest.mark.parametrize("body", [b"", b"[1]", b"{", b"\xff"])
def test_a_body_that_is_no_request_is_refused_by_the_app_and_not_judged(client, provider, gateway, body):
    precondition = resting_on(client)
    provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES)
    refused = client.post("/subscriptions", content=body, headers={PRECONDITION_HEADER: precondition.header})
    assert refused.status_code == 422
    assert PRECONDITION_HEADER not in refused.headers
    assert gateway.orders == []


@pytest.mark.spec("12.1")
def test_a_client_that_knows_the_state_is_told_so_without_a_body(client, provider):
    epoch = known_epoch(client)
    known = client.get("/contract/state", params={"known": epoch})
    assert (known.status_code, known.content) == (304, b"")
    provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES)
    moved = client.get("/contract/state", params={"known": epoch})
    assert moved.status_code == 200
    assert moved.json()["table_versions"]["active_csm_codes"] != "1.0.0"


def test_in_a_race_of_drift_and_requests_a_remembered_value_is_right_or_refused(client, provider, gateway):
    codes = ["SUMMERSALE25", "WINTERLAUNCH26"]
    is_over = threading.Event()

    def drift():
        turn = 0
        while not is_over.is_set():
            turn += 1
            row = {"code": codes[turn % 2]}
            provider.registry.reload_table("active_csm_codes", set={"plan_partner_growth": row})

    drifting = threading.Thread(target=drift)
    drifting.start()
    statuses = []
    try:
        while len(statuses) < 40 or not {201, 412} <= set(statuses):
            told = client.post("/subscriptions", json=GOVERNED).json()
            [suggestion] = told["recovery_feedback"]["suggestions"]
            epoch = Versions(told["table_versions"], told["rules_version"]).epoch
            precondition = resting_on(client, suggestion["rows"], epoch=epoch)
            statuses.append(post(client, GOVERNED | suggestion["parameters"], precondition).status_code)
            assert len(statuses) < 5000
    finally:
        is_over.set()
        drifting.join()
    assert set(statuses) == {201, 412}
    assert len(gateway.orders) == statuses.count(201)
