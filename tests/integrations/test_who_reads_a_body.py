"""A framework reads a body in its own way, and what a memory puts into a request fits that way."""

import asyncio
import dataclasses
from itertools import compress
from typing import Annotated, Any, Literal

import httpx2
import msgspec
import pytest
from fastapi import Depends, FastAPI, Header, Request
from fastapi.routing import APIRoute
from litestar import Litestar, post
from litestar.params import JSONBody
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    PrivateAttr,
    StringConstraints,
    computed_field,
    model_validator,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass

from shelflife.client import Guard, Memory
from shelflife.integrations.fastapi import install
from shelflife.integrations.httpx2 import AsyncMemoryTransport
from shelflife.integrations.litestar import ContractPlugin
from shelflife.server import Provider, fix

Lower = Annotated[str, StringConstraints(to_lower=True)]


def shop():
    provider = Provider({"codes": {"x": {"code": "A"}}})

    @provider.policy
    def no_code_at_normal_speed(request, tables):
        inner = request.get("part", request)
        if inner.equals("speed", "normal") or inner.equals("pace", "normal"):
            return None
        code = tables.codes["x"]["code"]
        return None if request.equals("code", code) else fix("CODE", code=code)

    return provider


def by_fastapi(kind: Any, **made: Any):
    provider, app = shop(), FastAPI()
    app.router.route_class = made.get("route_class", APIRoute)
    install(app, provider)

    def send(wanted):
        provider.check(wanted)
        return {"done": True}

    send.__annotations__ = {"wanted": kind}
    app.post("/r")(send)
    return app


def by_litestar(kind: Any):
    provider = shop()

    async def send(data):
        provider.check(data)
        return {"done": True}

    send.__annotations__ = {"data": JSONBody[kind], "return": dict[str, bool]}
    return Litestar([post("/r", status_code=200)(send)], plugins=[ContractPlugin(provider)])


@dataclasses.dataclass
class Lowered:
    speed: Lower = "slow"
    code: str | None = None


@dataclasses.dataclass
class Paced:
    speed: Annotated[str | None, Field(alias="pace")] = None
    code: str | None = None


@pydantic_dataclass
class PacedOfPydantic:
    speed: str | None = Field(None, alias="pace")
    code: str | None = None


class Holding(BaseModel):
    part: Paced = Field(default_factory=Paced)
    code: str | None = None


class Rooted(BaseModel):
    root: dict[str, Any] = {}
    speed: str | None = None
    code: str | None = None


class Touched(BaseModel):
    lane: str | None = None
    code: str | None = None

    @computed_field
    def speed(self) -> str:
        return "normal" if "lane" in self.model_fields_set else "fast"


class Chosen(msgspec.Struct):
    speed: Literal["normal", "fast", None] = None
    code: str | None = None


class Renaming(BaseModel):
    speed: str | None = None
    code: str | None = None

    @classmethod
    def model_validate(cls, obj: Any, **settings: Any) -> "Renaming":
        return super().model_validate({"speed": obj.get("tempo"), **obj}, **settings)


@dataclasses.dataclass
class Watched:
    vip: bool = False
    speed: str | None = None
    code: str | None = None

    def __getattribute__(self, name: str) -> Any:
        is_shown = name == "speed" and object.__getattribute__(self, "vip")
        return "normal" if is_shown else object.__getattribute__(self, name)


class Unwrapping(APIRoute):
    """Hands a handler what is under `data`."""

    def get_route_handler(self):
        handle = super().get_route_handler()

        class Inner(Request):
            async def json(self):
                return (await super().json())["data"]

        async def unwrapped(request: Request):
            return await handle(Inner(request.scope, request.receive))

        return unwrapped


class Plain(BaseModel):
    speed: str | None = None
    code: str | None = None


APPS = [
    *((by_fastapi, kind) for kind in (Lowered, Paced, PacedOfPydantic, Holding, Rooted, Touched, Watched)),
    *((by_litestar, kind) for kind in (Lowered, Paced, PacedOfPydantic, Holding, Chosen, Renaming, Watched)),
    (lambda kind: by_fastapi(kind, route_class=Unwrapping), Plain),
]
SPEEDS = ("normal", "NORMAL", "fast", "null", None)
BODIES: list[dict[str, Any]] = [{}, {"vip": True}, {"lane": None}, {"lane": "x"}]
BODIES += [{name: speed} for name in ("speed", "pace", "tempo") for speed in SPEEDS]
BODIES += [{name: {at: speed}} for name in ("part", "root") for at in ("speed", "pace") for speed in SPEEDS]


SAYING_NOTHING = httpx2.MockTransport(lambda request: httpx2.Response(200, json={}))
"""In place of an app, where it only matters what is put into the request for it: so nothing more is learned either."""


def remembering(transport, memory):
    return AsyncMemoryTransport(memory, transport, guard=Guard())


def applied_to(request):
    return [dict(one.fields) for one in request.extensions["shelflife"].applied]


async def asked(app, body, memory=None, headers=None):
    """What an app suggests, or what a memory has put in; and the status."""
    transport = httpx2.ASGITransport(app)
    transport = transport if memory is None else remembering(transport, memory)
    async with httpx2.AsyncClient(base_url="http://t", transport=transport) as client:
        answer = await client.post("/r", json=body, headers=headers)
        if memory is not None:
            return applied_to(answer.request), answer
        feedback = answer.json().get("recovery_feedback", {}) if answer.status_code == 422 else {}
        return [one["parameters"] for one in feedback.get("suggestions", [])], answer


@pytest.mark.spec("4.14", "4.15")
@pytest.mark.parametrize(("make", "kind"), APPS, ids=lambda one: getattr(one, "__name__", None))
def test_nothing_is_put_into_a_body_that_the_framework_reads_otherwise(make, kind):
    async def play():
        app = make(kind)
        bodies = [{"data": body} for body in BODIES] if kind is Plain else BODIES
        wanted = [await asked(app, body) for body in bodies]
        assert any(suggested for suggested, _ in wanted)
        is_carried_out = [bool(suggested) or answer.status_code == 200 for suggested, answer in wanted]
        for taught in compress(bodies, (suggested for suggested, _ in wanted)):
            memory = Memory()
            await asked(app, taught, memory)
            transport = remembering(SAYING_NOTHING, memory)
            for body, (right, _) in compress(zip(bodies, wanted, strict=True), is_carried_out):
                # no client is around it: most of the time went into one, thousands of times
                request = httpx2.Request("POST", "http://t/r", json=body)
                await (await transport.handle_async_request(request)).aread()
                assert all(one in right for one in applied_to(request)), (taught, body)

    asyncio.run(play())


class Private(BaseModel):
    speed: str | None = None
    code: str | None = None
    _seen: int = PrivateAttr(0)


KEPT = [
    (by_fastapi, Lowered, {"speed": "fast"}),
    (by_fastapi, Private, {"speed": "fast"}),
    (by_fastapi, Annotated[Plain, "a note"], {"speed": "fast"}),
    (by_fastapi, dict[str, str], {"speed": "fast"}),
    (by_fastapi, dict[str, Any] | None, {"speed": "fast"}),
    (by_litestar, Lowered, {"speed": "fast"}),
    (by_litestar, dict[str, Any], {"speed": "fast"}),
    (by_litestar, Plain, {"speed": "fast"}),
]


@pytest.mark.parametrize(("make", "kind", "body"), KEPT)
def test_what_the_framework_reads_plainly_is_refused_once(make, kind, body):
    async def play():
        app, memory = make(kind), Memory()
        return [(await asked(app, body, memory))[1].status_code for _ in range(2)]

    assert asyncio.run(play()) == [422, 200]


def test_what_a_handler_adds_counts_as_added_also_when_it_is_nothing():
    provider, app = shop(), FastAPI()
    install(app, provider)

    @app.post("/r")
    def send(wanted: dict[str, Any], x_speed: Annotated[str | None, Header()] = None) -> dict[str, bool]:
        provider.check({**wanted, "speed": x_speed})
        return {"done": True}

    async def play():
        memory = Memory()
        await asked(app, {}, memory)
        return await asked(app, {}, memory, {"x-speed": "normal"})

    applied, answer = asyncio.run(play())
    assert (applied, answer.status_code) == ([], 200)


@pytest.mark.spec("12.10")
def test_a_fix_is_not_told_in_advance_once_a_check_was_given_something_else():
    provider, app = shop(), FastAPI()
    install(app, provider)

    @app.post("/r")
    def send(wanted: dict[str, Any]) -> dict[str, bool]:
        provider.check({"speed": "normal", **wanted})
        return {"done": True}

    async def play():
        async with httpx2.AsyncClient(base_url="http://t", transport=httpx2.ASGITransport(app)) as client:
            statuses = [(await client.post("/r", json={})).status_code]
            question = {"operation": "POST /r", "request": {}}
            return [*statuses, (await client.post("/contract/fixes", json=question)).status_code]

    assert asyncio.run(play()) == [200, 404]


class Asking(BaseModel):
    lane: str
    speed: str = "fast"
    code: str | None = None

    @model_validator(mode="after")
    def slow_on_x(self) -> "Asking":
        self.speed = "normal" if self.lane == "x" else self.speed
        return self


@pytest.mark.spec("12.7")
def test_a_model_whose_code_needs_an_unknown_field_is_not_asked_about_in_part():
    async def play():
        transport = httpx2.ASGITransport(by_fastapi(Asking))
        async with httpx2.AsyncClient(base_url="http://t", transport=transport) as client:
            answers = [
                await client.post("/contract/fixes", json={"operation": "POST /r", "request": request})
                for request in ({"speed": "fast"}, {"lane": "y"})
            ]
            return [answer.json()["recovery_feedback"]["suggestions"] for answer in answers]

    unknown, known = asyncio.run(play())
    assert unknown == []
    assert [one["parameters"] for one in known] == [{"code": "A"}]


class Empty(msgspec.Struct):
    pass


class AnyModel(BaseModel):
    speed: str = "normal"
    meta: BaseModel | None = None
    old: str = Field("x", deprecated=True)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("make", "kind", "body"),
    [(by_litestar, Empty, {}), (by_fastapi, AnyModel, {"meta": {}}), (by_fastapi, AnyModel, {"old": "y"})],
)
def test_a_body_that_no_policy_refuses_is_carried_out_whatever_it_is_read_as(make, kind, body):
    _, answer = asyncio.run(asked(make(kind), body))
    assert answer.status_code == (422 if kind is Empty else 200)


class Token(BaseModel):
    text: str = Field(repr=False)


class TokenDict(dict[str, str]):
    pass


@pytest.mark.spec("4.15")
@pytest.mark.parametrize("wrap", [lambda text: Token(text=text), lambda text: TokenDict(text=text)])
def test_what_an_app_has_wrapped_is_not_told(wrap):
    class Card(BaseModel):
        pin: Annotated[str, AfterValidator(wrap)]
        pins: list[Annotated[str, AfterValidator(wrap)]] = []
        code: str | None = None

    provider, app = Provider({"codes": {"x": {"code": "A"}}}), FastAPI()
    install(app, provider)

    @provider.policy
    def reads_all(request, tables):
        return fix("F", code=tables.codes["x"]["code"], n=len([request.get("pin"), request.get("pins")]))

    @app.post("/r")
    def send(wanted: Card) -> dict[str, bool]:
        provider.check(wanted)
        return {"done": True}

    _, answer = asyncio.run(asked(app, {"pin": "hunter2", "pins": ["hunter2"]}))
    assert answer.status_code == 422
    assert "hunter2" not in answer.text


def test_a_body_that_a_dependency_asks_for_too_is_still_one_body():
    provider, app = shop(), FastAPI()
    install(app, provider)

    def first(wanted: Plain) -> str | None:
        return wanted.speed

    @app.post("/r")
    def send(wanted: Plain, speed: Annotated[str | None, Depends(first)]) -> dict[str, bool]:
        provider.check(wanted)
        return {"done": True}

    async def play():
        memory = Memory()
        return [(await asked(app, {"speed": "fast"}, memory))[1].status_code for _ in range(2)]

    assert asyncio.run(play()) == [422, 200]


class Cargo(BaseModel):
    kind: str
    tonnes: int


class Call(BaseModel):
    cargo: Cargo
    name: str
    code: str | None = None


@pytest.mark.spec("12.7")
def test_a_model_is_asked_about_by_parts_of_the_models_in_it_too():
    provider, app = Provider({"cargoes": {"grain": {"code": "G"}}}), FastAPI()
    install(app, provider)

    @provider.policy
    def code_of_the_cargo(request, tables):
        row = tables.cargoes.get(request["cargo"]["kind"])
        return fix("CODE", code=row["code"]) if row and not request.equals("code", row["code"]) else None

    @app.post("/r")
    def send(wanted: Call) -> dict[str, bool]:
        provider.check(wanted)
        return {"done": True}

    async def play():
        async with httpx2.AsyncClient(base_url="http://t", transport=httpx2.ASGITransport(app)) as client:
            question = {"operation": "POST /r", "request": {"cargo": {"kind": "grain"}}}
            return (await client.post("/contract/fixes", json=question)).json()["recovery_feedback"]

    [told] = asyncio.run(play())["suggestions"]
    assert (told["parameters"], told["cache_hint"]) == ({"code": "G"}, "cacheable")
    assert told["when"] == {"cargo/kind": "grain"}
