"""Requests that a framework has read into models: what a memory learns from them fits what its agent sends."""

import dataclasses
import datetime
import decimal
import uuid
from typing import Any

import httpx2
import msgspec
import pytest
from fastapi import Body, FastAPI
from litestar import Litestar, post
from litestar.params import JSONBody
from pydantic import BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from shelflife.client import Guard, Memory
from shelflife.integrations.fastapi import install
from shelflife.integrations.httpx2 import MemoryTransport
from shelflife.integrations.litestar import ContractPlugin
from shelflife.server import Provider, fix
from shelflife.testing import serving


class Parcel(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    weight: float = 1
    price: decimal.Decimal | None = None
    due: datetime.datetime | None = None
    id: uuid.UUID | None = None
    express: bool = True
    promo_code: str | None = Field(None, alias="promoCode")


class ParcelStruct(msgspec.Struct):
    weight: float = 1
    price: decimal.Decimal | None = None
    due: datetime.datetime | None = None
    id: uuid.UUID | None = None
    express: bool = True
    promoCode: str | None = None  # noqa: N815 - as it is on the wire


@dataclasses.dataclass
class ParcelData:
    weight: float = 1
    price: decimal.Decimal | None = None
    due: datetime.datetime | None = None
    id: uuid.UUID | None = None
    express: bool = True
    promoCode: str | None = None  # noqa: N815


@pydantic_dataclass
class ParcelOfPydantic:
    weight: float = 1
    price: decimal.Decimal | None = None
    due: datetime.datetime | None = None
    id: uuid.UUID | None = None
    express: bool = True
    promo_code: str | None = Field(None, alias="promoCode")


def shop():
    """A provider whose policy reads everything, and the parcels that got through."""
    provider = Provider({"codes": {"x": {"code": "A"}}})

    @provider.policy
    def promo_is_that_of_the_table(request, tables):
        read = [request.get(name) for name in ("weight", "price", "due", "id", "express")]
        if request.equals("promoCode", tables.codes["x"]["code"]) or read[0] == 7:
            return None
        return fix("USE", promoCode=tables.codes["x"]["code"])

    return provider, []


def fastapi_app(kind: Any):
    provider, carried_out = shop()
    app = FastAPI()
    install(app, provider)

    def send(wanted):
        provider.check(wanted)
        carried_out.append(wanted)
        return {"success": True}

    send.__annotations__ = {"wanted": kind}
    app.post("/parcels")(send)
    return app, carried_out


def litestar_app(kind: Any):
    provider, carried_out = shop()

    async def send(data):
        provider.check(data)
        carried_out.append(data)
        return {"success": True}

    send.__annotations__ = {"data": JSONBody[kind], "return": dict[str, bool]}
    return Litestar([post("/parcels")(send)], plugins=[ContractPlugin(provider)]), carried_out


APPS = [
    pytest.param(make, kind, id=f"{make.__name__}-{kind.__name__}")
    for make, kinds in (
        (fastapi_app, (Parcel, ParcelData, ParcelOfPydantic)),
        (litestar_app, (Parcel, ParcelStruct, ParcelData)),
    )
    for kind in kinds
]
SENT = [
    {},
    {"weight": 12},
    {"weight": 12.0},
    {"price": 12.5},
    {"price": "12.50"},
    {"due": "2026-01-01T00:00:00+00:00"},
    {"id": "6BA7B810-9DAD-11D1-80B4-00C04FD430C8"},
    {"express": False},
    {"weight": 12, "promoCode": "B", "unknown": [1.0]},
]


@pytest.fixture
def agent():
    def agent(address):
        return httpx2.Client(base_url=address, transport=MemoryTransport(Memory(), guard=Guard()))

    return agent


@pytest.mark.spec("4.4", "4.6")
@pytest.mark.parametrize(("make", "kind"), APPS)
def test_the_same_request_is_refused_once(make, kind, agent):
    app, carried_out = make(kind)
    with serving(app) as address:
        for sent in SENT:
            with agent(address) as client:
                statuses = [client.post("/parcels", json=sent).status_code // 100 for _ in range(2)]
                assert (sent, statuses) == (sent, [4, 2])
    assert len(carried_out) == len(SENT)


def test_a_text_that_is_read_as_true_is_refused_once(agent):
    app, carried_out = fastapi_app(Parcel)
    with serving(app) as address, agent(address) as client:
        assert [client.post("/parcels", json={"express": "true"}).status_code for _ in range(2)] == [422, 200]
        assert client.post("/parcels", json={"express": "off"}).status_code == 422
    assert [parcel.express for parcel in carried_out] == [True]


def test_a_fix_for_an_absent_field_is_not_put_over_the_same_field_by_its_other_name(agent):
    provider, orders = Provider({"codes": {"x": {"code": "A"}}}), []

    @provider.policy
    def promo_is_given(request, tables):
        if tables.codes["x"]["code"] and request.get("promoCode") is None:
            return fix("PROMO", promoCode="DEFAULT")
        return None

    app = FastAPI()
    install(app, provider)

    @app.post("/parcels")
    def send(wanted: Parcel) -> dict[str, bool]:
        provider.check(wanted)
        orders.append(wanted.promo_code)
        return {"success": True}

    with serving(app) as address, agent(address) as client:
        assert client.post("/parcels", json={}).status_code == 422
        assert client.post("/parcels", json={"promo_code": "MINE"}).status_code == 200
        assert client.post("/parcels", json={}).status_code == 200
    assert orders == ["MINE", "DEFAULT"]


def test_a_policy_is_not_passed_by_leaving_a_field_at_its_default(agent):
    provider = Provider({"countries": {"it": {"has_express": False}}})

    @provider.policy
    def no_express_where_there_is_none(request, tables):
        if request.get("express") and not tables.countries["it"]["has_express"]:
            return fix("NO_EXPRESS", express=False)
        return None

    app = FastAPI()
    install(app, provider)

    @app.post("/parcels")
    def send(wanted: Parcel) -> dict[str, bool]:
        provider.check(wanted)
        return {"express": wanted.express}

    with serving(app) as address, agent(address) as client:
        assert client.post("/parcels", json={}).status_code == 422
        assert client.post("/parcels", json={}).json()["express"] is False


def test_a_model_that_is_only_a_part_of_the_body_is_not_taken_for_all_of_it():
    provider, _ = shop()
    app = FastAPI()
    install(app, provider)

    @app.post("/parcels")
    def send(wanted: Parcel = Body(embed=True)) -> dict[str, bool]:  # noqa: B008 - FastAPI's own way
        provider.check(wanted)
        return {"success": True}

    with serving(app) as address:
        refused = httpx2.post(f"{address}/parcels", json={"wanted": {"weight": 12}, "weight": 3})
    [suggestion] = refused.json()["recovery_feedback"]["suggestions"]
    assert suggestion["cache_hint"] == "recompute"


def test_a_body_that_comes_in_pieces_is_one_request(agent):
    app, _ = fastapi_app(Parcel)
    with serving(app) as address:
        pieces = iter([b'{"wei', b'ght": 1', b"2}"])
        headers = {"content-type": "application/json"}
        refused = httpx2.post(f"{address}/parcels", content=pieces, headers=headers)
    assert refused.json()["recovery_feedback"]["suggestions"][0]["when"]["weight"] == 12


def test_a_stale_precondition_is_answered_for_the_request_as_it_was_sent(agent):
    provider, _ = shop()
    app = FastAPI()
    install(app, provider)

    @app.post("/parcels")
    def send(wanted: Parcel) -> dict[str, bool]:
        provider.check(wanted)
        return {"success": True}

    with serving(app) as address:
        transport = MemoryTransport(Memory(), guard=Guard(), conditional=True)
        with httpx2.Client(base_url=address, transport=transport) as client:
            assert [client.post("/parcels", json={"weight": 12}).status_code for _ in range(2)] == [422, 200]
            provider.registry.reload_table("codes", {"x": {"code": "B"}})
            assert client.post("/parcels", json={"weight": 12}).status_code == 200
