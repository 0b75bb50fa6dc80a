"""Acme's API: one operation, checked by the policies and carried out by the gateway."""

from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from shelflife.apis.acme.gateway import Declined, Gateway, GatewayDown, InProcessGateway, Order
from shelflife.apis.acme.policies import POLICIES
from shelflife.apis.malformed import Malformed, refuse_malformed_requests
from shelflife.integrations.fastapi import install
from shelflife.server import Provider, Rule, toml_file

__all__ = ["ROTATED_CODES", "RULES", "TABLES", "acme_app", "acme_provider"]

_FILE = Path(__file__).with_name("tables.toml")

TABLES = (
    "active_csm_codes",
    "promo_eligibility",
    "token_funding_map",
    "recommended_credit_token",
    "funding_type_policy",
    "required_promo_policy",
)

RULES = (
    Rule(
        from_table="active_csm_codes",
        to_table="promo_eligibility",
        relation="requires_recognition",
        via="code",
    ),
    Rule(
        from_table="required_promo_policy", to_table="active_csm_codes", relation="assigned_by", via="code_of"
    ),
    Rule(
        from_table="token_funding_map", to_table="recommended_credit_token", relation="funds", via="pays_for"
    ),
    Rule(
        from_table="recommended_credit_token", to_table="token_funding_map", relation="pays_with", via="token"
    ),
    Rule(
        from_table="funding_type_policy",
        to_table="token_funding_map",
        relation="settles_on",
        via="settles_on",
    ),
)

ROTATED_CODES = {"plan_partner_growth": {"code": "WINTERLAUNCH26"}}
"""The rows that the paper's rotation sets in `active_csm_codes`."""

EXAMPLE: dict[str, Any] = {
    "customer": "cus_ada",
    "plan": "plan_partner_growth",
    "amount": 12000,
    "currency": "usd",
    "payment_method_token": "acme_pm_visa_credit",
}
"""A request that lacks the code its plan needs."""

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9_.:-]+$")]


class Subscription(BaseModel):
    """A subscription that somebody wants."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [EXAMPLE]})

    customer: Name
    plan: Name
    amount: Annotated[int, Field(ge=1, le=99_999_999, description="In minor units")]
    currency: Annotated[str, Field(pattern=r"^[a-z]{3}$")]
    payment_method_token: Name
    promo_code: Name | None = None


class Created(BaseModel):
    """A subscription that was made."""

    success: Literal[True] = True
    subscription: dict[str, Any]


class Declination(BaseModel):
    """The gateway has refused; there is nothing to suggest."""

    success: Literal[False] = False
    error: str
    message: str


def acme_provider(**options: Any) -> Provider:
    """Acme's tables, rules and policies; the options are those of `Provider`."""
    sources = {name: toml_file(_FILE, section=name) for name in TABLES}
    provider = Provider(sources, RULES, versions=dict.fromkeys(TABLES, "1.0.0"), **options)
    for policy in POLICIES:
        provider.policy(policy)
    return provider


def acme_app(provider: Provider | None = None, gateway: Gateway | None = None) -> FastAPI:
    """Acme billing as a FastAPI app."""
    contract = provider or acme_provider()
    payments = gateway or InProcessGateway()
    app = FastAPI(title="Acme billing", version="1.0.0")
    refuse_malformed_requests(app)
    install(app, contract)

    @app.post(
        "/subscriptions",
        status_code=201,
        response_model=Created,
        responses={400: {"model": Malformed}, 402: {"model": Declination}, 502: {"model": Declination}},
    )
    def create_subscription(wanted: Subscription) -> Any:
        """Make a subscription."""
        contract.check(wanted)
        order = wanted.model_dump(exclude_none=True)
        try:
            receipt = payments.subscribe(Order(**{"promo_code": None, **order}))
        except Declined as declined:
            refusal = Declination(error=declined.code, message=str(declined))
            return JSONResponse(refusal.model_dump(), status_code=402)
        except GatewayDown as down:
            refusal = Declination(error="gateway_down", message=str(down))
            return JSONResponse(refusal.model_dump(), status_code=502)
        return Created(subscription={**receipt.details, "id": receipt.id, "status": receipt.status, **order})

    return app
