"""Acme's gateway at Stripe, through the official SDK, against a Stripe-compatible server that we did not write."""

import socket
import subprocess
import sys
import time

import httpx2
import pytest
import stripe

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.apis.acme.gateway import Declined, GatewayDown, Order, StripeGateway
from tests.calling import calling
from tests.cli.commands import Serving
from tests.document_programs import write_programs
from tests.processes import started

KEY = "sk_test_12345"
WANTED = {
    "plan": "plan_enterprise_annual",
    "amount": 12000,
    "currency": "usd",
    "payment_method_token": "acme_pm_visa_credit",
}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def address():
    port = free_port()
    command = [sys.executable, "-m", "localstripe", "--port", port, "--from-scratch"]
    with started(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        address = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 60
        while True:
            assert process.poll() is None
            assert time.monotonic() < deadline
            try:
                httpx2.get(address, trust_env=False)
                break
            except httpx2.TransportError:
                time.sleep(0.05)
        yield address


@pytest.fixture(scope="module")
def stripe_api(address):
    return stripe.StripeClient(KEY, base_addresses={"api": address}).v1


def payment_method(stripe_api, number):
    card = {"number": number, "exp_month": 12, "exp_year": 2040, "cvc": "123"}
    return stripe_api.payment_methods.create({"type": "card", "card": card}).id


@pytest.fixture
def customer(stripe_api):
    return stripe_api.customers.create({"name": "Ada"}).id


def gateway(address, stripe_api, number="4242424242424242"):
    methods = {"acme_pm_visa_credit": payment_method(stripe_api, number)}
    return StripeGateway(KEY, address, methods)


def test_a_subscription_is_really_made_at_stripe(address, stripe_api, customer):
    app = acme_app(acme_provider(), gateway(address, stripe_api))
    with calling(app) as client:
        answer = client.post("/subscriptions", json=WANTED | {"customer": customer})
    assert answer.status_code == 201
    made = stripe_api.subscriptions.retrieve(answer.json()["subscription"]["id"])
    assert made.customer == customer
    assert made.status == "active"
    assert made["items"].data[0].plan.amount == 12000


def test_a_rejected_request_never_reaches_stripe(address, stripe_api, customer):
    app = acme_app(acme_provider(), gateway(address, stripe_api))
    with calling(app) as client:
        wanted = WANTED | {"customer": customer, "payment_method_token": "acme_pm_visa_debit"}
        assert client.post("/subscriptions", json=wanted).status_code == 422
    assert stripe_api.subscriptions.list({"customer": customer}).data == []


def test_a_declined_card_is_an_error_with_no_suggestion(address, stripe_api, customer):
    app = acme_app(acme_provider(), gateway(address, stripe_api, "4000000000000002"))
    with calling(app) as client:
        answer = client.post("/subscriptions", json=WANTED | {"customer": customer})
    assert (answer.status_code, answer.json()["error"]) == (402, "card_declined")
    assert "recovery_feedback" not in answer.json()


def test_an_unknown_customer_is_declined(address, stripe_api):
    order = Order("cus_nobody", "plan_x", 500, "usd", "acme_pm_visa_credit", None)
    with pytest.raises(Declined):
        gateway(address, stripe_api).subscribe(order)


def test_a_gateway_that_does_not_answer_is_down():
    order = Order("cus_1", "plan_x", 500, "usd", "acme_pm_visa_credit", None)
    with pytest.raises(GatewayDown, match="does not answer"):
        StripeGateway(KEY, f"http://127.0.0.1:{free_port()}").subscribe(order)


@pytest.mark.runs("stripe_contract.py", "stripe_agent.py")
def test_a_proxy_explains_what_a_server_that_we_did_not_write_refuses(
    address, stripe_api, tmp_path, customer
):
    write_programs(tmp_path)
    stripe_api.plans.create(
        {"id": "pro-2026", "amount": 1000, "currency": "usd", "interval": "month", "product": {"name": "Pro"}}
    )
    with Serving("proxy", tmp_path / "stripe_contract.py", "--upstream", address) as proxy:
        through = str(proxy.client.base_url).rstrip("/")
        agent = (tmp_path / "stripe_agent.py").read_text().replace("http://127.0.0.1:8080", through)
        said = subprocess.run([sys.executable, "-c", agent], capture_output=True, text=True, check=False)
        assert said.stdout.splitlines() == ["404 Not Found", "USE_PLAN pro-2026"], said.stderr
        api = stripe.StripeClient(KEY, base_addresses={"api": through}).v1
        method = payment_method(api, "4242424242424242")
        api.payment_methods.attach(method, {"customer": customer})
        api.customers.update(customer, {"invoice_settings": {"default_payment_method": method}})
        made = api.subscriptions.create({"customer": customer, "items": [{"plan": "pro-2026"}]})
        assert made.status == "active"
        assert stripe_api.subscriptions.retrieve(made.id).customer == customer
        assert (
            "table_versions"
            in proxy.client.post(
                "/v1/subscriptions",
                data={"customer": customer, "items[0][plan]": "pro"},
                headers={"Authorization": f"Bearer {KEY}"},
            ).json()
        )
        assert proxy.client.post("/v1/subscriptions", data={"items[0][plan]": "pro"}).status_code == 401
