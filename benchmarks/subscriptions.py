"""One operation, written with the contract and by hand: the two sides of the throughput benchmark.

All handlers are `async def`. A `def` handler would run in a thread pool, whose hand-over costs more than all the contract does and
would hide it.
"""

import itertools
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shelflife.integrations.fastapi import install
from shelflife.server import Fix, Provider, Request, Rule, Tables, fix

__all__ = [
    "BAD_REQUEST",
    "GOOD_REQUEST",
    "PATH",
    "bare_app",
    "contract_app",
    "hand_written_app",
    "least_app",
    "stamped_app",
    "unasked_app",
]

PATH = "/subscriptions"

TABLES: dict[str, dict[str, dict[str, Any]]] = {
    "active_csm_codes": {
        "plan_partner_growth": {"code": "SUMMERSALE25"},
        "plan_partner_scale": {"code": "SCALEUP15"},
    },
    "required_promo_policy": {
        "plan_partner_growth": {"code_of": "plan_partner_growth"},
        "plan_partner_scale": {"code_of": "plan_partner_scale"},
    },
    "token_funding_map": {
        "acme_pm_visa_credit": {"funding": "credit", "currency": "usd"},
        "acme_pm_sepa_debit": {"funding": "debit", "currency": "eur"},
    },
    "promo_eligibility": {"SUMMERSALE25": {"percent_off": 25}, "SCALEUP15": {"percent_off": 15}},
    "recommended_credit_token": {"plan_enterprise_annual": {"token": "acme_pm_visa_credit"}},
    "funding_type_policy": {"enterprise_annual": {"accepts": ["credit"]}},
}

ASSIGNED_BY = Rule(
    from_table="required_promo_policy", to_table="active_csm_codes", relation="assigned_by", via="code_of"
)

_WANTED = {
    "customer": "cus_000123",
    "plan": "plan_partner_growth",
    "amount": 4900,
    "currency": "usd",
    "payment_method_token": "acme_pm_visa_credit",
    "promo_code": "SUMMERSALE25",
}
GOOD_REQUEST = msgspec.json.encode(_WANTED)
"""Passes both checks, each of which has to look into the tables for it."""
BAD_REQUEST = msgspec.json.encode({**_WANTED, "promo_code": "SPRING24"})

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9_.:-]+$")]


class Subscription(BaseModel):
    """A subscription that somebody wants."""

    model_config = ConfigDict(extra="forbid", strict=True)

    customer: Name
    plan: Name
    amount: Annotated[int, Field(ge=1, le=99_999_999)]
    currency: Annotated[str, Field(pattern=r"^[a-z]{3}$")]
    payment_method_token: Name
    promo_code: Name | None = None


class Created(BaseModel):
    """A subscription that was made."""

    success: Literal[True] = True
    subscription: dict[str, Any]


def _app(check: Callable[[Subscription], None] | None) -> FastAPI:
    """The app that all sides share; only the check differs."""
    app = FastAPI(title="Subscriptions")
    numbers = itertools.count(1)

    @app.post(PATH, status_code=201)
    async def create_subscription(wanted: Subscription) -> Created:
        if check is not None:
            check(wanted)
        order = wanted.model_dump(exclude_none=True)
        return Created(subscription={"id": f"sub_{next(numbers):09d}", "status": "active", **order})

    return app


def promo_must_be_the_assigned_one(request: Request, tables: Tables) -> Fix | None:
    """This plan needs the promotional code that is assigned to it."""
    required = tables.required_promo_policy.get(request["plan"])
    assigned = required.follow("assigned_by") if required else None
    if assigned is None or request.get("promo_code") == assigned["code"]:
        return None
    return fix("USE_REQUIRED_PROMO", promo_code=assigned["code"])


def currency_must_be_what_the_token_settles_in(request: Request, tables: Tables) -> Fix | None:
    """This payment token settles in another currency."""
    on_file = tables.token_funding_map.get(request["payment_method_token"])
    if on_file is None or request["currency"] == on_file["currency"]:
        return None
    return fix("USE_SETTLEMENT_CURRENCY", currency=on_file["currency"])


def _check_by_hand(wanted: Subscription) -> None:
    """The two policies as they are written without the contract."""
    required = TABLES["required_promo_policy"].get(wanted.plan)
    assigned = TABLES["active_csm_codes"].get(required["code_of"]) if required else None
    if assigned is not None and wanted.promo_code != assigned["code"]:
        raise HTTPException(422, {"use_promo_code": assigned["code"]})
    on_file = TABLES["token_funding_map"].get(wanted.payment_method_token)
    if on_file is not None and wanted.currency != on_file["currency"]:
        raise HTTPException(422, {"use_currency": on_file["currency"]})


def _provider(table_count: int, log: str | None = None) -> Provider:
    others = (f"reference_table_{number:03d}" for number in range(len(TABLES), table_count))
    return Provider({**TABLES, **{name: {"only": {"value": 1}} for name in others}}, [ASSIGNED_BY], log=log)


def contract_app(table_count: int, log: str | None = None) -> FastAPI:
    """With the contract at Level 6, and the two policies."""
    provider = _provider(table_count, log)
    provider.policy(promo_must_be_the_assigned_one)
    provider.policy(currency_must_be_what_the_token_settles_in)
    app = _app(provider.check)
    install(app, provider)
    return app


def hand_written_app() -> FastAPI:
    """The same checks by hand, no middleware."""
    return _app(_check_by_hand)


class _PassesOn:
    """An ASGI middleware that looks at every message and does nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def pass_on(message: Message) -> None:
            await send(message)

        await self.app(scope, receive, pass_on)


def least_app() -> FastAPI:
    """The checks by hand, with the least that any contract of this kind must add.

    That is a middleware, though it does nothing, and the body as plain fields, though nobody reads them.
    """

    def check(wanted: Subscription) -> None:
        wanted.model_dump(mode="json", by_alias=True, exclude_unset=True)
        _check_by_hand(wanted)

    app = _app(check)
    app.add_middleware(_PassesOn)
    return app


class _Adds:
    """An ASGI middleware that adds members to every body, which must be a JSON object in one piece, with its length among the headers."""

    def __init__(self, app: ASGIApp, members: bytes) -> None:
        self.app = app
        self._members = members

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: Message = {}

        async def pass_on(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            body = b"".join((message["body"][:-1], b",", self._members, b"}"))
            length = b"content-length", b"%d" % len(body)
            headers = [
                length if name == b"content-length" else (name, value) for name, value in start["headers"]
            ]
            await send({**start, "headers": headers})
            await send({**message, "body": body})

        await self.app(scope, receive, pass_on)


def unasked_app(table_count: int) -> FastAPI:
    """With the least that puts a stamp into a body: it does not ask what the body is, which state holds, or whether it may be told."""
    provider = _provider(table_count)
    app = _app(None)
    app.add_middleware(_Adds, members=provider.face(provider.state, {}).stamp.members)
    return app


def stamped_app(table_count: int) -> FastAPI:
    """With the contract at Level 6 and no policy: only the stamping."""
    app = _app(None)
    install(app, _provider(table_count))
    return app


def bare_app() -> FastAPI:
    """No contract and no checks."""
    return _app(None)
