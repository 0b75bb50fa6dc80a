"""Payouts to bank accounts: what the API demands, and what it cannot check."""

import pytest

from shelflife.apis.payouts import payouts_app, payouts_provider
from tests.calling import ADMIN, TOKEN, calling

WANTED = {"country": "DE", "bank_code": "99900001", "amount": 12500, "currency": "EUR"}
OF_THE_BANK = {"bic": "EXMPDE00XXX", "check_method": "09"}


@pytest.fixture
def client():
    with calling(payouts_app(payouts_provider(admin_token=TOKEN))) as client:
        yield client


def fixes(client, **changes):
    response = client.post("/payouts", json=WANTED | changes)
    assert response.status_code == 422
    return {one["type"]: one for one in response.json()["recovery_feedback"]["suggestions"]}


def parameters(client, **changes):
    return {name: one["parameters"] for name, one in fixes(client, **changes).items()}


def test_a_payout_names_the_bic_and_the_check_method_of_its_bank(client):
    expected = {"USE_BIC": {"bic": "EXMPDE00XXX"}, "USE_CHECK_METHOD": {"check_method": "09"}}
    assert parameters(client) == expected
    assert parameters(client, bic="OTHRDE00XXX", check_method="00") == expected
    assert client.post("/payouts", json=WANTED | OF_THE_BANK).status_code == 201


def test_each_fix_rests_on_one_cell_of_a_row_that_has_more(client):
    cells = {name: one["cells"]["banks"]["DE:99900001"] for name, one in fixes(client).items()}
    assert cells == {"USE_BIC": ["bic"], "USE_CHECK_METHOD": ["check_method"]}


def test_a_payout_to_a_bank_that_is_gone_is_put_on_hold(client):
    reload = {"table": "banks", "remove": ["DE:99900001"]}
    assert client.post("/admin/reload-table", json=reload, headers=ADMIN).is_success
    assert parameters(client) == {"PUT_ON_HOLD": {"on_hold": True}}
    assert parameters(client, **OF_THE_BANK) == {"PUT_ON_HOLD": {"on_hold": True}}
    assert client.post("/payouts", json=WANTED | {"on_hold": True}).status_code == 201


@pytest.mark.parametrize("bic", [{}, {"bic": "EXMPGB00XXX"}])
def test_a_bic_that_the_register_does_not_have_cannot_be_checked(client, bic):
    wanted = WANTED | {"country": "GB", "bank_code": "EXMP", **bic}
    assert client.post("/payouts", json=wanted).status_code == 201
