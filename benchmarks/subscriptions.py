"""One operation, written with the contract and by hand: the two sides of the throughput benchmark.

All handlers are `async def`. A `def` handler would run in a thread pool, whose hand-over costs more than all the contract does and
would hide it.
"""

import itertools
import tempfile
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Annotated, Any, Literal

import msgspec
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shelflife.contract.positions import AT_HEADER
from shelflife.contract.preconditions import PRECONDITION_HEADER
from shelflife.integrations.fastapi import install
from shelflife.server import Fix, Provider, Request, Rule, Scoring, Tables, fix
from shelflife.server.given import at_first_sight
from shelflife.server.metrics import exposition
from shelflife.server.state import State

__all__ = [
    "BAD_REQUEST",
    "GOOD_REQUEST",
    "PATH",
    "bare_app",
    "contract_app",
    "hand_written_app",
    "measured_app",
    "promised_app",
    "scored_app",
    "stamped_app",
    "stamped_barely_app",
    "unasked_app",
    "unmeasured_app",
    "viewed_app",
]

PATH = "/subscriptions"
_SCRAPED_EVERY_S = 1.0

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


def _provider(table_count: int, log: str | None = None, **options: Any) -> Provider:
    others = (f"reference_table_{number:03d}" for number in range(len(TABLES), table_count))
    return Provider(
        {**TABLES, **{name: {"only": {"value": 1}} for name in others}}, [ASSIGNED_BY], log=log, **options
    )


def contract_app(table_count: int, log: str | None = None) -> FastAPI:
    """With the contract at Level 6, and the two policies."""
    return _under_contract(_provider(table_count, log))


def _under_contract(provider: Provider) -> FastAPI:
    provider.policy(promo_must_be_the_assigned_one)
    provider.policy(currency_must_be_what_the_token_settles_in)
    app = _app(provider.check)
    install(app, provider)
    return app


def scored_app(table_count: int) -> FastAPI:
    """With the contract and a log in a file, as it is by default: clients are scored, and metrics are kept and asked for every second."""
    return _with_log(table_count, admin_token="benchmark", scoring=Scoring())


def measured_app(table_count: int) -> FastAPI:
    """The same without scoring."""
    return _with_log(table_count, admin_token="benchmark", scoring=None)


def unmeasured_app(table_count: int) -> FastAPI:
    """The same without metrics: nothing is kept, and nobody can ask."""
    return _with_log(table_count, admin_token=None, scoring=None)


def _with_log(table_count: int, admin_token: str | None, scoring: Scoring | None) -> FastAPI:
    folder = tempfile.TemporaryDirectory()
    provider = _provider(table_count, f"{folder.name}/log.db", admin_token=admin_token, scoring=scoring)
    app = _under_contract(provider)
    app.state.folder = folder  # it goes when the app does
    if admin_token is not None:
        threading.Thread(target=_scrape, args=(provider,), daemon=True).start()
    return app


def _scrape(provider: Provider) -> None:
    """What a Prometheus beside the server costs it, without its connection."""
    while True:
        time.sleep(_SCRAPED_EVERY_S)
        exposition(provider)


def hand_written_app() -> FastAPI:
    """The same checks by hand, no middleware."""
    return _app(_check_by_hand)


class _Adds:
    """An ASGI middleware that adds the same to every body, which must be a JSON object in one piece, with its length as the first header.
    What it is given it changes in place."""

    def __init__(self, app: ASGIApp, ending: bytes) -> None:
        self.app = app
        self._ending = ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: Message | None = None
        ending = self._ending

        async def pass_on(message: Message) -> None:
            nonlocal start
            if start is None:
                start = message
                return
            message["body"] = body = message["body"][:-1] + ending
            start["headers"][0] = b"content-length", b"%d" % len(body)
            await send(start)
            await send(message)

        await self.app(scope, receive, pass_on)


def unasked_app(table_count: int) -> FastAPI:
    """With the least that puts a stamp into a body: it does not ask what the body is, which state holds, or whether it may be told."""
    provider = _provider(table_count)
    app = _app(None)
    app.add_middleware(_Adds, ending=provider.face(provider.state, {}).stamp.ending)
    return app


_JSON = (b"content-type", b"application/json")


class _KeepsItsWord:
    """An ASGI middleware with the least that keeps what the contract promises: a request sees one state from start to end, and a success
    that is a JSON object says which, unless it says something by these names itself."""

    def __init__(self, app: ASGIApp, provider: Provider) -> None:
        self.app = app
        self._registry = provider.registry
        self._ending = provider.face(provider.state, {}).stamp.ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _pinned.set(self._registry.state)
        start: Message | None = None
        ending = self._ending

        async def pass_on(message: Message) -> None:
            nonlocal start
            if start is None:
                start = message
                return
            body, headers = message["body"], start["headers"]
            if 200 <= start["status"] < 300 and headers[1] == _JSON and _taken(body) == _NONE_TAKEN:
                body = body[:-1] + ending
                headers = [(b"content-length", b"%d" % len(body)), _JSON]
            await send({"type": "http.response.start", "status": start["status"], "headers": headers})
            await send({"type": "http.response.body", "body": body})

        await self.app(scope, receive, pass_on)


class _Taken(msgspec.Struct, gc=False):
    """The members of an object that are called as those of a stamp."""

    table_versions: msgspec.Raw | None = None
    rules_version: msgspec.Raw | None = None
    at: msgspec.Raw | None = None


_NONE_TAKEN = _Taken()
_taken = msgspec.json.Decoder(_Taken).decode
_pinned: ContextVar[State] = ContextVar("pinned")


def stamped_barely_app(table_count: int) -> FastAPI:
    """With what the stamping promises and nothing else: no login is minded, no client is told less, no response is of another kind."""
    app = _app(None)
    app.add_middleware(_KeepsItsWord, provider=_provider(table_count))
    return app


class _Asked:
    """One request, for those who keep every word by hand."""

    __slots__ = ("body", "is_let_in", "state")

    def __init__(self, state: State) -> None:
        self.state, self.body, self.is_let_in = state, b"", False


class _Refused(Exception):
    """A fix that a check by hand has found."""


_asked: ContextVar[Any] = ContextVar("asked")
_SAID_TO_THE_CONTRACT = frozenset(name.lower().encode() for name in (AT_HEADER, PRECONDITION_HEADER))


class _KeepsEveryWord:
    """An ASGI middleware that keeps by hand all that the contract promises to a usual request, and serves no other: it also looks whether
    the client says something to the contract, keeps what was sent, tells nothing before the app has let the client in, and answers
    refusals with their fixes."""

    def __init__(self, app: ASGIApp, provider: Provider) -> None:
        self.app = app
        self._registry = provider.registry
        self._ending = provider.face(provider.state, {}).stamp.ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for name, _ in scope["headers"]:
            if name in _SAID_TO_THE_CONTRACT:
                raise NotImplementedError
        asked = _Asked(self._registry.state)
        _asked.set(asked)
        start: Message | None = None
        ending = self._ending

        async def heard() -> Message:
            message = await receive()
            asked.body = asked.body + message["body"] if asked.body else message["body"]
            return message

        async def pass_on(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and asked.is_let_in:
                start = message
            elif start is None:
                await send(message)
            else:
                body, headers = message["body"], start["headers"]
                if 200 <= start["status"] < 300 and headers[1] == _JSON and _taken(body) == _NONE_TAKEN:
                    body = body[:-1] + ending
                    headers = [(b"content-length", b"%d" % len(body)), _JSON]
                await send({"type": "http.response.start", "status": start["status"], "headers": headers})
                await send({"type": "http.response.body", "body": body})

        try:
            await self.app(scope, heard, pass_on)
        except _Refused as refused:
            body = msgspec.json.encode({"fix": refused.args, "for": msgspec.Raw(asked.body)})
            await send({"type": "http.response.start", "status": 422, "headers": []})
            await send({"type": "http.response.body", "body": body})


def _promo_by_hand(fields: dict[str, Any], tables: Any) -> tuple[str, str] | None:
    required = tables["required_promo_policy"].rows.get(fields["plan"])
    assigned = tables["active_csm_codes"].rows.get(required["code_of"]) if required else None
    if assigned is None or fields.get("promo_code") == assigned["code"]:
        return None
    return "promo_code", assigned["code"]


def _currency_by_hand(fields: dict[str, Any], tables: Any) -> tuple[str, str] | None:
    on_file = tables["token_funding_map"].rows.get(fields["payment_method_token"])
    if on_file is None or fields["currency"] == on_file["currency"]:
        return None
    return "currency", on_file["currency"]


def _check_every_word(wanted: Subscription) -> None:
    """The two policies as functions of what was read and of the state that the request sees."""
    asked = _asked.get()
    asked.is_let_in = True
    fields = wanted.__dict__
    for policy in (_promo_by_hand, _currency_by_hand):
        found = policy(fields, asked.state.tables)
        if found is not None:
            raise _Refused(found)


class _ChecksByViews:
    """The two policies as they are written with the contract, which look at views: under a record these note what is read."""

    def __init__(self, state: State) -> None:
        self._views = state, Tables(state)

    def __call__(self, wanted: Subscription) -> None:
        asked = _asked.get()
        asked.is_let_in = True
        state, tables = self._views
        if state is not asked.state:
            state, tables = self._views = asked.state, Tables(asked.state)
        seen: Any = at_first_sight(wanted, asked)  # a model that has its values ready, as this one does
        for policy in (promo_must_be_the_assigned_one, currency_must_be_what_the_token_settles_in):
            found = policy(seen, tables)
            if found is not None:
                raise _Refused(found)


def promised_app(table_count: int) -> FastAPI:
    """With all that is promised to a usual request, by hand. Nothing can be recorded, changed while it runs, or asked in another way."""
    return _keeping_every_word(_provider(table_count), _check_every_word)


def viewed_app(table_count: int) -> FastAPI:
    """The same with policies that look at views."""
    provider = _provider(table_count)
    return _keeping_every_word(provider, _ChecksByViews(provider.state))


def _keeping_every_word(provider: Provider, check: Callable[[Subscription], None]) -> FastAPI:
    app = _app(check)
    app.add_middleware(_KeepsEveryWord, provider=provider)
    return app


def stamped_app(table_count: int) -> FastAPI:
    """With the contract at Level 6 and no policy: only the stamping."""
    app = _app(None)
    install(app, _provider(table_count))
    return app


def bare_app() -> FastAPI:
    """No contract and no checks."""
    return _app(None)
