"""Requests that carry remembered values are carried out only while these are right."""

import base64
import json
import threading

import pytest

from shelflife.apis.acme import ROTATED_CODES, acme_app, acme_provider
from shelflife.contract.positions import Position
from shelflife.contract.preconditions import PRECONDITION_HEADER, Precondition
from shelflife.server.log import MOST_ENTRIES
from tests.acme_world import BASE, FUNDS, GOVERNED
from tests.calling import calling
from tests.integrations.checked import WANTED, fastapi_with, provider_for
from tests.integrations.doors import grounds_at
from tests.integrations.positions import known_position, position_of

REMEMBERED = GOVERNED | {"promo_code": "SUMMERSALE25"}
CELLS = {
    "required_promo_policy": {"plan_partner_growth": ("code_of",)},
    "active_csm_codes": {"plan_partner_growth": ("code",)},
}
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


def resting_on(client, cells=CELLS, rules=(), was=None, at=None, policies=()):
    was = {"promo_code": None} if was is None else was
    at = at or known_position(client)
    return Precondition(at=at, cells=cells, rules=tuple(rules), policies=policies, was=was)


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
    of_any_rule = Precondition(at=known_position(client), cells=CELLS, policies=(), was={"promo_code": None})
    of_none = resting_on(client)
    provider.registry.reload_table("token_funding_map", set={"another": {"funding": "debit"}})
    assert post(client, REMEMBERED, of_any_rule).status_code == 201
    provider.registry.reload_rules(remove=[FUNDS])
    refused = post(client, REMEMBERED, of_any_rule)
    assert (refused.status_code, len(gateway.orders)) == (412, 1)
    assert post(client, REMEMBERED, of_none).status_code == 201


@pytest.mark.spec("12.2", "12.4")
def test_in_brief_anything_that_moves_counts(client, provider, gateway):
    brief = Precondition(at=known_position(client), was={"promo_code": None})
    assert len(brief.header) < len(resting_on(client).header) / 2
    assert post(client, REMEMBERED, brief).status_code == 201
    provider.registry.reload_table("token_funding_map", set={"another": {"funding": "debit"}})
    refused = post(client, REMEMBERED, brief)
    assert (refused.status_code, len(gateway.orders)) == (412, 1)
    [suggestion] = refused.json()["recovery_feedback"]["suggestions"]
    assert suggestion["parameters"] == {"promo_code": "SUMMERSALE25"}
    assert post(client, REMEMBERED, resting_on(client, at=brief.at)).status_code == 201
    cells_alone = Precondition(at=brief.at, cells=CELLS, was={"promo_code": None})
    assert post(client, REMEMBERED, cells_alone).status_code == 201
    nothing = Precondition(at=brief.at, cells={}, rules=(), was={})
    assert post(client, REMEMBERED, nothing).status_code == 201
    for without_cells in ({"rules": ()}, {"policies": ()}, {"rules": (), "policies": ()}):
        precondition = Precondition(at=brief.at, was={"promo_code": None}, **without_cells)
        assert post(client, REMEMBERED, precondition).status_code == 412


@pytest.mark.spec("12.2")
def test_what_the_header_holds_is_json_that_others_can_write(client, provider):
    at = known_position(client)
    cells = {"active_csm_codes": {"": [], "plan_partner_growth": None}, "promo_eligibility": None}
    raw = json.dumps({"cells": cells, "rules": [], "policies": [], "was": {"promo_code": None}}).encode()
    header = f"{at};on=:{base64.b64encode(raw).decode()}:"
    assert Precondition.from_header(header).cells == cells | {
        "active_csm_codes": {"": (), "plan_partner_growth": None}
    }
    provider.registry.reload_table("token_funding_map", set={"another": {"funding": "debit"}})
    for drift, status in (
        (lambda: None, 201),
        (lambda: provider.registry.reload_table("active_csm_codes", set={"another": {}}), 412),
    ):
        drift()
        sent = client.post("/subscriptions", json=REMEMBERED, headers={PRECONDITION_HEADER: header})
        assert sent.status_code == status


TOKEN = "recommended_credit_token"
ANNUAL = {"token": "acme_pm_visa_credit", "policy": "enterprise_annual"}


@pytest.mark.spec("12.3", "12.4")
@pytest.mark.parametrize(
    ("cells", "change", "is_met"),
    [
        (
            {"plan_enterprise_annual": ("token",)},
            {"plan_enterprise_annual": ANNUAL | {"policy": "other"}},
            True,
        ),
        (
            {"plan_enterprise_annual": ("policy",)},
            {"plan_enterprise_annual": ANNUAL | {"policy": "x"}},
            False,
        ),
        (
            {"plan_enterprise_annual": ("no_such",)},
            {"plan_enterprise_annual": ANNUAL | {"policy": "x"}},
            True,
        ),
        ({"plan_enterprise_annual": ("note",)}, {"plan_enterprise_annual": ANNUAL | {"note": 1}}, False),
        ({"plan_enterprise_annual": ()}, {"plan_enterprise_annual": {}}, True),
        ({"plan_enterprise_annual": None}, {"plan_enterprise_annual": ANNUAL | {"note": 1}}, False),
        (
            {"": (), "plan_enterprise_annual": ("token",)},
            {"plan_enterprise_annual": ANNUAL | {"note": 1}},
            True,
        ),
        ({"": ()}, {"plan_new": ANNUAL}, False),
        ({"plan_new": ()}, {"plan_new": ANNUAL}, False),
        ({"plan_other": ()}, {"plan_new": ANNUAL}, True),
        (None, {"plan_new": ANNUAL}, False),
    ],
)
def test_a_precondition_is_judged_by_cells(client, provider, cells, change, is_met):
    precondition = resting_on(client, {TOKEN: cells})
    provider.registry.reload_table(TOKEN, set=change)
    assert post(client, REMEMBERED, precondition).status_code == (201 if is_met else 412)


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


@pytest.mark.spec("12.2", "12.5")
@pytest.mark.parametrize("was", [{}, {"promo_code": None}])
def test_the_fixes_of_a_refusal_are_for_the_request_as_it_is_where_nothing_takes_the_values_out(
    client, provider, was
):
    brief = Precondition(at=known_position(client), was=was)
    provider.registry.reload_table("token_funding_map", set={"another": {"funding": "debit"}})
    refused = post(client, REMEMBERED, brief)
    assert refused.status_code == 412
    assert len(refused.json()["recovery_feedback"]["suggestions"]) == len(was)


@pytest.mark.spec("12.4")
def test_a_stale_value_that_would_pass_is_not_carried_out_either(client, provider, gateway):
    remembered = FUNDING | {"payment_method_token": "acme_pm_visa_credit"}
    cells = {"recommended_credit_token": {"plan_enterprise_annual": ("token",)}}
    precondition = resting_on(client, cells, was={"payment_method_token": "acme_pm_visa_debit"})
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
def test_a_rule_that_has_moved_and_a_table_that_is_gone_count_as_moved(client, provider):
    precondition = resting_on(client, rules=("token_funding_map:funds",))
    other = resting_on(client, rules=("active_csm_codes:requires_recognition",))
    provider.registry.reload_rules(remove=[FUNDS])
    assert post(client, REMEMBERED, precondition).status_code == 412
    assert post(client, REMEMBERED, other).status_code == 201
    provider.registry.reload_table("active_csm_codes", set={}, version="9")
    assert post(client, REMEMBERED, resting_on(client, {"gone": {"x": ()}})).status_code == 201
    stale = resting_on(client, {"gone": {"x": ()}})
    provider.registry.reload_table("active_csm_codes", set={}, version="10")
    assert post(client, REMEMBERED, stale).status_code == 412


@pytest.mark.spec("12.2", "12.3", "12.4")
def test_a_precondition_is_judged_by_policies(client, provider, gateway):
    """A deploy of other code for a policy makes what it gave stale, and nothing else."""
    told = client.post("/subscriptions", json=GOVERNED, headers={"Contract-At": "*"}).json()
    [suggestion] = told["recovery_feedback"]["suggestions"]
    gave_it, at = suggestion["by"][:3], told["at"]
    fingerprints = provider.policies.look()
    [name] = [one for one in fingerprints if provider.face(provider.state, {}).words.policy(one) == gave_it]
    other = next(one for one in fingerprints if one != name)
    by_it = resting_on(client, at=at, policies=(gave_it,))
    by_another = resting_on(client, at=at, policies=(provider.face(provider.state, {}).words.policy(other),))
    by_any = resting_on(client, at=at, policies=None)
    for changed, met in (
        ({"a new one": "1"}, [by_it, by_another, by_any]),
        ({other: "1"}, [by_it]),
        ({name: "1"}, [by_another]),
        ({name: "1", other: "1"}, []),
    ):
        provider.registry.declare_policies(fingerprints | changed)
        for precondition in (by_it, by_another, by_any):
            status = post(client, REMEMBERED, precondition).status_code
            assert status == (201 if precondition in met else 412)
    assert len(gateway.orders) == 5


@pytest.mark.spec("12.4")
def test_a_precondition_at_a_position_that_the_log_does_not_have_fails(client, provider, gateway):
    at = Position.from_text(known_position(client))
    nothing = {"cells": {}, "rules": (), "policies": ()}

    def status_at(position, **grounds):
        return post(client, REMEMBERED, Precondition(at=str(position), was={}, **grounds)).status_code

    ahead, foreign = at._replace(number=at.number + 1), at._replace(check="Zzzzz9")
    for position in (ahead, at._replace(number=10**15 - 1), foreign, foreign._replace(number=0)):
        for grounds in (nothing, {}):
            assert status_at(position, **grounds) == 412
    assert gateway.orders == []
    assert (status_at(at, **nothing), status_at(at)) == (201, 201)
    for number in range(MOST_ENTRIES):
        provider.registry.reload_table("token_funding_map", set={"another": {"funding": str(number)}})
    assert (status_at(at, **nothing), status_at(at)) == (201, 412)
    provider.registry.reload_table("token_funding_map", remove=["another"])
    assert status_at(at, **nothing) == 412
    assert len(gateway.orders) == 3


@pytest.mark.spec("12.3", "11.4")
def test_a_worker_that_lags_looks_at_the_log_before_it_judges(tmp_path, monkeypatch):
    one, two = (provider_for(log=tmp_path / "log.db") for _ in range(2))
    monkeypatch.setattr(two.registry, "follow", lambda: None)
    with calling(fastapi_with(one, "/x")), calling(fastapi_with(two, "/x")) as client:
        client.post("/x", json=WANTED)
        one.registry.reload_table("codes", set={"growth": {"code": "B"}})
        good, now = WANTED | {"promo": "B"}, position_of(one)
        assert position_of(two) != now
        judged = client.post("/x", json=good, headers=grounds_at(now))
        assert (judged.status_code, judged.headers["contract-precondition"]) == (200, "met")
    for provider in (one, two):
        provider.close()


@pytest.mark.spec("12.5")
def test_a_failed_precondition_is_answered_at_the_position_that_is_named(client, provider):
    precondition = resting_on(client)
    at = precondition.at
    provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES)
    headers = {PRECONDITION_HEADER: precondition.header, "Contract-At": f"{at}:m1"}
    refused = client.post("/subscriptions", json=REMEMBERED, headers=headers)
    assert (refused.status_code, refused.headers["contract-precondition"]) == (412, "failed")
    told = refused.json()
    assert (told["at"]["to"], told["at"]["from"]) == (known_position(client), f"{at}:m1")
    assert told["at"]["moved"]["tables"].keys() == {"active_csm_codes"}
    [suggestion] = told["recovery_feedback"]["suggestions"]
    assert suggestion["parameters"] == {"promo_code": "WINTERLAUNCH26"}
    assert suggestion["on"]["active_csm_codes"] == {"=plan": "code", ">": "requires_recognition"}


def header_of(grounds, at="Abcdef7"):
    return f"{at};on=:{base64.b64encode(json.dumps(grounds).encode()).decode()}:"


@pytest.mark.spec("12.6")
@pytest.mark.parametrize(
    "value",
    [
        "nonsense",
        "Abcdef7",
        "Abcdef7;on=:!!:",
        "Abcdef7;on=:W10=:",
        "Abcdef7;on=:" + "A" * 20_000 + ":",
        header_of({}, "AAAAAAAA"),
        header_of({}, "*"),
        header_of({}, "Abcdef7:m1"),
        header_of({}, "Abcdef07"),
        header_of({"cells": {"t": 5}}),
        header_of({"rules": "all"}),
        header_of({"policies": "all"}),
        header_of({"was": []}),
    ],
)
def test_a_precondition_that_cannot_be_read_is_refused(client, gateway, value):
    readable = {PRECONDITION_HEADER: header_of({})}
    assert client.post("/subscriptions", json=REMEMBERED, headers=readable).status_code == 412
    refused = client.post("/subscriptions", json=REMEMBERED, headers={PRECONDITION_HEADER: value})
    assert refused.status_code == 400
    assert refused.json() == {
        "success": False,
        "error": "Contract-Precondition cannot be read:"
        " it is a position, and after ;on=: its grounds as JSON in Base64",
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
            told = client.post("/subscriptions", json=GOVERNED, headers={"Contract-At": "*"}).json()
            [suggestion] = told["recovery_feedback"]["suggestions"]
            precondition = resting_on(client, at=told["at"], policies=(suggestion["by"][:3],))
            statuses.append(post(client, GOVERNED | suggestion["parameters"], precondition).status_code)
            assert len(statuses) < 5000
    finally:
        is_over.set()
        drifting.join()
    assert set(statuses) == {201, 412}
    assert len(gateway.orders) == statuses.count(201)
