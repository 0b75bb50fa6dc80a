"""The meetings API: one operation, checked by the policies."""

from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

from shelflife.apis.malformed import Malformed, refuse_malformed_requests
from shelflife.apis.meetings.policies import POLICIES
from shelflife.integrations.fastapi import install
from shelflife.server import Provider, toml_file

__all__ = ["TABLES", "meetings_app", "meetings_provider"]

_FILE = Path(__file__).with_name("tables.toml")

TABLES = ("zones", "zone_aliases")

EXAMPLE: dict[str, Any] = {"zone": "America/Sao_Paulo", "start": "09:30", "minutes": 45}
"""A request that says nothing of what its zone comes to."""


class Meeting(BaseModel):
    """A weekly meeting that somebody wants."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [EXAMPLE]})

    zone: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_+/-]+$")]
    start: Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    minutes: Annotated[int, Field(ge=1, le=1440)]
    utc_offset: Annotated[str, Field(pattern=r"^[+-][0-9]{2}:[0-9]{2}$")] | None = None
    dst_rule: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    tentative: bool = False


class Planned(BaseModel):
    """A meeting that was planned."""

    success: Literal[True] = True
    meeting: dict[str, Any]


def meetings_provider(**options: Any) -> Provider:
    """The time zones and the policies; the options are those of `Provider`."""
    sources = {name: toml_file(_FILE, section=name) for name in TABLES}
    provider = Provider(sources, **options)
    for policy in POLICIES:
        provider.policy(policy)
    return provider


def meetings_app(provider: Provider | None = None) -> FastAPI:
    """Meetings as a FastAPI app."""
    contract = provider or meetings_provider()
    app = FastAPI(title="Meetings", version="1.0.0")
    refuse_malformed_requests(app)
    install(app, contract)

    @app.post("/meetings", status_code=201, responses={400: {"model": Malformed}})
    def plan_meeting(wanted: Meeting) -> Planned:
        """Plan a weekly meeting."""
        contract.check(wanted)
        return Planned(meeting=wanted.model_dump(exclude_none=True))

    return app
