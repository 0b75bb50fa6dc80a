"""What a handler gives to a check, and what a memory makes of it: nothing is sent that the route itself would not ask for."""

from typing import Annotated, Any, ClassVar, Literal

import httpx2
import msgspec
import pytest
from fastapi import Body, FastAPI
from litestar import Litestar, post
from litestar.params import JSONBody
from pydantic import BaseModel, ConfigDict, Field, RootModel, field_serializer, field_validator
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from shelflife.client import Guard, Memory, Reply
from shelflife.integrations.fastapi import install
from shelflife.integrations.httpx2 import MemoryTransport
from shelflife.integrations.litestar import ContractPlugin
from shelflife.integrations.starlette import install as install_in_starlette
from shelflife.server import Provider, fix
from shelflife.testing import serving

LANES = {
    "NL-US": {"service": "express", "surcharge": "RUSH9"},
    "NL-DE": {"service": "road", "surcharge": "NONE"},
}


class Quote(BaseModel):
    lane: str
    speed: str = "normal"
    tier: str = "plain"
    service: str | None = None
    surcharge_code: str | None = None


class Card(BaseModel):
    kind: Literal["card"]
    lane: str
    speed: str = "normal"


class Bank(BaseModel):
    kind: Literal["bank"]
    lane: str
    speed: str = "fast"


def carrier():
    """Each lane has a service; whoever is in a hurry, and no friend of the house, pays for that."""
    provider = Provider({"lanes": LANES})

    @provider.policy
    def service_of_the_lane(request, tables):
        row = tables.lanes.get(request.get("lane"))
        if row and not request.equals("service", row["service"]):
            return fix("SERVE", service=row["service"])
        return None

    @provider.policy
    def surcharge_of_the_lane(request, tables):
        row = tables.lanes.get(request.get("lane"))
        is_due = row and not request.equals("speed", "normal") and not request.equals("tier", "gold")
        if is_due and not request.equals("surcharge_code", row["surcharge"]):
            return fix("CHARGE", surcharge_code=row["surcharge"])
        return None

    return provider


def by_model(provider, wanted: Quote, customer: str):
    provider.check(wanted)


def by_dump(provider, wanted: Quote, customer: str):
    provider.check({**wanted.model_dump(), "customer": customer})


def with_a_path(provider, wanted: dict[str, Any], customer: str):
    provider.check({**wanted, "tier": "gold" if customer == "ada" else "plain"})


def with_a_model_of_the_path(provider, wanted: Quote, customer: str):
    wanted.tier = "gold" if customer == "ada" else "plain"
    provider.check(wanted)


def by_part(provider, wanted: Annotated[Quote, Body(embed=True)], customer: str):
    provider.check(wanted)


def by_kind(provider, wanted: Annotated[Card | Bank, Body(discriminator="kind")], customer: str):
    provider.check(wanted)


def served(check):
    """An app whose handler checks its requests in one of these ways, and answers with what it was asked for."""
    provider, app = carrier(), FastAPI()
    install(app, provider)

    def quote(wanted, customer: str):
        check(provider, wanted, customer)
        return {"done": True}

    quote.__annotations__["wanted"] = check.__annotations__["wanted"]
    app.post("/quotes/{customer}")(quote)
    return provider, app


def asked(question):
    answer = httpx2.request(question.method, question.url, content=question.body, headers=question.headers)
    return Reply(answer.status_code, answer.content)


def bodies(check):
    """Requests of one lane, which differ in what is sent of the rest."""
    some = [{}, {"speed": "fast"}, {"speed": "normal"}, {"tier": "gold"}, {"speed": "fast", "tier": "gold"}]
    if check is by_kind:
        return [{"kind": kind, "lane": "NL-US", **one} for kind in ("card", "bank") for one in some[:3]]
    whole = [{"lane": "NL-US", **one} for one in some]
    return [{"wanted": one} for one in whole] if check is by_part else whole


@pytest.mark.spec("4.14", "4.15", "4.16", "12.7")
@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize(
    "check", [by_model, by_dump, with_a_path, with_a_model_of_the_path, by_part, by_kind]
)
def test_no_request_carries_what_its_own_route_would_not_ask_for(check, compact):
    provider, app = served(check)
    with serving(app) as address, httpx2.Client(base_url=address) as plain:

        def wanted_of(customer, body):
            fixes = plain.post(f"/quotes/{customer}", json=body).json()
            return [one["parameters"] for one in fixes.get("recovery_feedback", {}).get("suggestions", [])]

        requests = [(customer, body) for customer in ("ada", "bob") for body in bodies(check)]
        asked_for = [
            (*one, wanted_of(*one)) for one in requests
        ]  # of the rows that there are at each of them
        for taught in bodies(check):
            memory = Memory()
            transport = MemoryTransport(memory, guard=Guard(), compact=compact)
            with httpx2.Client(base_url=address, transport=transport) as client:
                client.post("/quotes/bob", json=taught)
                for number in range(2):  # once as it was learned, and once as it is asked about anew
                    for customer, body, wanted in asked_for:
                        answer = client.post(f"/quotes/{customer}", json=body)
                        applied = answer.request.extensions["shelflife"].applied
                        assert all(one.fields in wanted for one in applied), (taught, body, customer)
                    provider.registry.reload_table("lanes", set={"NL-US": {**LANES["NL-US"], "n": number}})
                    provider.registry.reload_table(
                        "lanes", set={"NL-US": {"service": "air", "surcharge": "S"}}
                    )
                    memory.refresh(address, asked)
                    provider.registry.reload_table("lanes", LANES)
                    memory.refresh(address, asked)


@pytest.mark.spec("4.16")
@pytest.mark.parametrize("compact", [True, False])
def test_a_fix_that_rests_on_a_value_of_the_path_is_found_where_that_is_in_the_body(compact):
    _, app = served(with_a_path)
    transport = MemoryTransport(
        Memory(), guard=Guard(), compact=compact, operation=lambda request: "POST /quotes"
    )
    with serving(app) as address, httpx2.Client(base_url=address, transport=transport) as client:
        wanted = {"lane": "NL-US", "speed": "fast", "service": "express"}
        statuses = [client.post("/quotes/bob", json=wanted).status_code for _ in range(2)]
        said = [client.post("/quotes/bob", json={**wanted, "tier": "plain"}).status_code for _ in range(2)]
    assert (statuses, said) == ([422, 422], [422, 200])


@pytest.mark.spec("12.10")
def test_fixes_are_told_in_advance_only_where_the_body_is_all_that_is_checked():
    for check, expected in (
        (by_model, 200),
        (by_dump, 404),
        (with_a_path, 404),
        (by_part, 404),
        (by_kind, 404),
    ):
        _, app = served(check)
        with serving(app) as address, httpx2.Client(base_url=address) as client:
            body = bodies(check)[0]
            assert client.post("/quotes/bob", json=body).status_code == 422
            question = {"operation": "POST /quotes/{customer}", "request": body}
            assert client.post("/contract/fixes", json=question).status_code == expected, check


def test_a_model_of_which_some_fields_are_unknown_is_asked_about_by_those_that_are_known():
    _, app = served(by_model)
    with serving(app) as address:
        question = {"operation": "POST /quotes/{customer}", "request": {"speed": "fast"}}
        assert httpx2.post(f"{address}/contract/fixes", json=question).json()["recovery_feedback"] == {
            "suggestions": []
        }
        question = {"operation": "POST /quotes/{customer}", "request": {"lane": "NL-DE"}}
        told = httpx2.post(f"{address}/contract/fixes", json=question).json()["recovery_feedback"]
        assert [one["parameters"] for one in told["suggestions"]] == [{"service": "road"}]


class WithExtras(BaseModel):
    model_config = ConfigDict(extra="allow")
    lane: str = Field(alias="laneId")


class Excluded(BaseModel):
    lane: str = Field(alias="laneId", exclude=True)


class Masked(BaseModel):
    lane: str = Field(alias="laneId")

    @field_serializer("lane")
    def masked(self, lane: str) -> str:
        return "***"


class Brief(msgspec.Struct, omit_defaults=True):
    laneId: str = "NL-US"  # noqa: N815 - as it is on the wire


def served_as(kind):
    provider = Provider({"lanes": LANES})

    @provider.policy
    def no_flights(request, tables):
        return (
            fix("STOP", lane="NL-DE")
            if tables.lanes.get(request.get("laneId"))["service"] == "express"
            else None
        )

    if kind is Brief:

        @post("/quotes", status_code=200)
        async def ask(data: JSONBody[Brief]) -> dict[str, bool]:
            provider.check(data)
            return {"done": True}

        return Litestar([ask], plugins=[ContractPlugin(provider)])
    app = FastAPI()
    install(app, provider)

    @app.post("/quotes")
    def quote(wanted: kind) -> dict[str, bool]:
        provider.check(wanted)
        return {"done": True}

    return app


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (WithExtras, {"laneId": "NL-US", "lane": "NL-DE"}),
        (WithExtras, {"laneId": "NL-US", "lane": None}),
        (Excluded, {"laneId": "NL-US"}),
        (Masked, {"laneId": "NL-US"}),
        (Brief, {}),
        (Brief, {"laneId": "NL-US"}),
    ],
)
def test_policies_see_what_the_handler_goes_on_with_whatever_the_model_would_write(kind, body):
    with serving(served_as(kind)) as address:
        assert httpx2.post(f"{address}/quotes", json=body).status_code == 422


def refusing(kind, given=lambda wanted: wanted):
    """An app that refuses every request of which a policy has read the lane."""
    provider, app = Provider({"lanes": LANES}), FastAPI()
    install(app, provider)

    @provider.policy
    def never(request, tables):
        return fix("STOP", lane=tables.lanes["NL-DE"]["service"]) if request.get("lane") else None

    @app.post("/quotes")
    def quote(wanted: kind) -> dict[str, bool]:
        provider.check(given(wanted))
        return {"done": True}

    return app


def test_policies_see_what_is_inside_of_a_root_model():
    with serving(refusing(RootModel[Quote])) as address:
        assert httpx2.post(f"{address}/quotes", json={"lane": "NL-US"}).status_code == 422


def test_a_refusal_stays_one_whatever_a_handler_has_added():
    with serving(
        refusing(dict, lambda wanted: {**wanted, "user": Quote(lane="x"), "any": object()})
    ) as address:
        assert httpx2.post(f"{address}/quotes", json={"lane": "NL-US"}).status_code == 422


class Stop(BaseModel):
    lane: str | None = None
    note: str | None = None


class Tour(BaseModel):
    lane: list[Stop]
    reads: ClassVar[list[int]] = []

    @field_validator("lane")
    @classmethod
    def counted(cls, lane: list[Stop]) -> list[Stop]:
        cls.reads.append(len(lane))
        return lane


def test_a_long_body_is_not_read_again_for_each_of_its_fields():
    with serving(refusing(Tour)) as address:
        refused = httpx2.post(f"{address}/quotes", json={"lane": [{"lane": "a"}] * 300})
    assert refused.status_code == 422
    assert len(Tour.reads) < 10


async def form_or_object(request):
    if request.headers["content-type"] == "application/json":
        return await request.json()
    return dict(pair.split("=") for pair in (await request.body()).decode().split("&"))


@pytest.mark.parametrize("body", [b"lane=NL-US", b"lane=NL-US&speed=fast"])
def test_a_form_that_somebody_sends_does_not_keep_others_from_asking_about_objects(body):
    provider = carrier()

    async def quote(request):
        provider.check(await form_or_object(request))
        return JSONResponse({"done": True})

    app = Starlette(routes=[Route("/quotes", quote, methods=["POST"])])
    install_in_starlette(app, provider)
    question = {"operation": "POST /quotes", "request": {"lane": "NL-US"}}
    with serving(app) as address, httpx2.Client(base_url=address) as client:
        form = {"content-type": "application/x-www-form-urlencoded"}
        assert client.post("/quotes", json={"lane": "NL-US"}).status_code == 422
        assert client.post("/quotes", content=body, headers=form).status_code == 422
        assert client.post("/contract/fixes", json=question).status_code == 200
