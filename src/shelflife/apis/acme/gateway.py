"""Where a subscription is carried out once it has passed: in this process, or at Stripe."""

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from shelflife.errors import ShelflifeError

__all__ = ["Declined", "Gateway", "GatewayDown", "InProcessGateway", "Order", "Receipt", "StripeGateway"]

_NOT_FOUND = 404
_TIMEOUT_S = 20


class Order(NamedTuple):
    """What is asked of the gateway."""

    customer: str
    plan: str
    amount: int
    """In minor units."""
    currency: str
    payment_method_token: str
    promo_code: str | None


class Receipt(NamedTuple):
    """What the gateway has made."""

    id: str
    status: str
    details: dict[str, Any]
    """All details, in the shape of Stripe's subscriptions."""


class Declined(ShelflifeError):
    """The gateway refuses the payment. Nothing in the request would mend it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class GatewayDown(ShelflifeError):
    """The gateway does not answer, or answers nonsense."""


class Gateway(Protocol):
    """Carries a subscription out."""

    def subscribe(self, order: Order) -> Receipt:
        """Make the subscription; `Declined` or `GatewayDown` when there is none."""


class InProcessGateway:
    """Makes subscriptions up. It declines every token with `declined` in its name."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def subscribe(self, order: Order) -> Receipt:
        if "declined" in order.payment_method_token:
            raise Declined("card_declined", "Your card was declined.")
        number = next(self._numbers)
        return Receipt(f"sub_{number:06d}", "active", _subscription(number, order))


_OPENED_AT = 1_767_225_600
_A_MONTH_S = 30 * 24 * 3600


def _subscription(number: int, order: Order) -> dict[str, Any]:
    """A subscription with as many details as a real gateway gives. Its times are made from its number."""
    begins_at = _OPENED_AT + 60 * number
    price = {
        "id": f"price_{order.plan}_{order.amount}",
        "object": "price",
        "active": True,
        "billing_scheme": "per_unit",
        "created": _OPENED_AT,
        "currency": order.currency,
        "livemode": False,
        "lookup_key": order.plan,
        "product": f"prod_{order.plan}",
        "recurring": {"interval": "month", "interval_count": 1, "meter": None, "usage_type": "licensed"},
        "tax_behavior": "exclusive",
        "type": "recurring",
        "unit_amount": order.amount,
    }
    item = {
        "id": f"si_{number:06d}",
        "object": "subscription_item",
        "created": begins_at,
        "current_period_end": begins_at + _A_MONTH_S,
        "current_period_start": begins_at,
        "discounts": [],
        "metadata": {},
        "price": price,
        "quantity": 1,
        "subscription": f"sub_{number:06d}",
        "tax_rates": [],
    }
    return {
        "object": "subscription",
        "automatic_tax": {"enabled": False, "liability": None},
        "billing_cycle_anchor": begins_at,
        "cancel_at": None,
        "cancel_at_period_end": False,
        "canceled_at": None,
        "collection_method": "charge_automatically",
        "created": begins_at,
        "days_until_due": None,
        "default_payment_method": order.payment_method_token,
        "description": None,
        "discounts": [order.promo_code] if order.promo_code else [],
        "ended_at": None,
        "items": {"object": "list", "data": [item], "has_more": False, "total_count": 1},
        "latest_invoice": f"in_{number:06d}",
        "livemode": False,
        "metadata": {},
        "next_pending_invoice_item_invoice": None,
        "pause_collection": None,
        "payment_settings": {"payment_method_options": None, "save_default_payment_method": "off"},
        "pending_setup_intent": None,
        "start_date": begins_at,
        "trial_end": None,
        "trial_start": None,
    }


class StripeGateway:
    """Makes subscriptions at Stripe, or at a server that speaks its API, through the official SDK.

    Customers must exist there. `payment_methods` says which Stripe payment method an Acme token stands for; a token
    that is not among them is taken for one itself.
    """

    def __init__(
        self, api_key: str, address: str | None = None, payment_methods: Mapping[str, str] | None = None
    ) -> None:
        try:
            import stripe
        except ImportError as error:
            raise GatewayDown("the Stripe gateway needs the extra shelflife[stripe]") from error
        self._stripe = stripe
        self._payment_methods = payment_methods or {}
        self._client = stripe.StripeClient(
            api_key,
            base_addresses={"api": address} if address else {},
            http_client=stripe.RequestsClient(timeout=_TIMEOUT_S),
            max_network_retries=1,
        ).v1

    def subscribe(self, order: Order) -> Receipt:
        stripe = self._stripe
        try:
            return self._subscribe(order)
        except (stripe.CardError, stripe.InvalidRequestError) as error:
            raise Declined(error.code or "declined", error.user_message or "The gateway declined.") from error
        except stripe.StripeError as error:
            raise GatewayDown("the payment gateway does not answer") from error

    def _subscribe(self, order: Order) -> Receipt:
        token = order.payment_method_token
        method = self._payment_methods.get(token, token)
        self._client.payment_methods.attach(method, {"customer": order.customer})
        self._client.customers.update(
            order.customer, {"invoice_settings": {"default_payment_method": method}}
        )
        subscription = self._client.subscriptions.create(
            {
                "customer": order.customer,
                "items": [{"plan": self._plan(order)}],
                "metadata": {"promo_code": order.promo_code or ""},
            }
        )
        return Receipt(subscription.id, subscription.status, subscription.to_dict(recursive=True))

    def _plan(self, order: Order) -> str:
        """The Stripe plan of this price, made when it is not there yet."""
        plan = f"{order.plan}-{order.amount}-{order.currency}"
        try:
            return self._client.plans.retrieve(plan).id
        except self._stripe.InvalidRequestError as error:
            if error.http_status != _NOT_FOUND:
                raise
        return self._client.plans.create(
            {
                "id": plan,
                "amount": order.amount,
                "currency": order.currency,
                "interval": "month",
                "product": {"name": order.plan},
            }
        ).id
