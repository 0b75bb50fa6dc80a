"""The payouts API: one operation, checked by the policies."""

from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

from shelflife.apis.malformed import Malformed, refuse_malformed_requests
from shelflife.apis.payouts.policies import POLICIES
from shelflife.integrations.fastapi import install
from shelflife.server import Provider, toml_file

__all__ = ["TABLES", "payouts_app", "payouts_provider"]

_FILE = Path(__file__).with_name("tables.toml")

TABLES = ("banks",)

EXAMPLE: dict[str, Any] = {"country": "DE", "bank_code": "99900001", "amount": 12500, "currency": "EUR"}
"""A request that says nothing of the bank but its code."""


class Payout(BaseModel):
    """A payout that somebody wants."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [EXAMPLE]})

    country: Annotated[str, Field(pattern=r"^[A-Z]{2}$")]
    bank_code: Annotated[str, Field(min_length=1, max_length=20, pattern=r"^[A-Z0-9]+$")]
    amount: Annotated[int, Field(ge=1, le=100_000_000)]
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
    bic: Annotated[str, Field(pattern=r"^[A-Z0-9]{8}([A-Z0-9]{3})?$")] | None = None
    check_method: Annotated[str, Field(pattern=r"^[A-Z0-9]{2}$")] | None = None
    on_hold: bool = False


class PaidOut(BaseModel):
    """A payout that was made, or put on hold."""

    success: Literal[True] = True
    payout: dict[str, Any]


def payouts_provider(**options: Any) -> Provider:
    """The register of banks and the policies; the options are those of `Provider`."""
    sources = {name: toml_file(_FILE, section=name) for name in TABLES}
    provider = Provider(sources, **options)
    for policy in POLICIES:
        provider.policy(policy)
    return provider


def payouts_app(provider: Provider | None = None) -> FastAPI:
    """Payouts as a FastAPI app."""
    contract = provider or payouts_provider()
    app = FastAPI(title="Payouts", version="1.0.0")
    refuse_malformed_requests(app)
    install(app, contract)

    @app.post("/payouts", status_code=201, responses={400: {"model": Malformed}})
    def pay_out(wanted: Payout) -> PaidOut:
        """Pay out to a bank account."""
        contract.check(wanted)
        return PaidOut(payout=wanted.model_dump(exclude_none=True))

    return app
