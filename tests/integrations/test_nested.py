"""An app with a contract that is mounted in an app with a contract of another provider: what it answers is of its own alone."""

import asyncio

import pytest
from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import Mount

from shelflife.contract.positions import AT_HEADER, NOWHERE
from shelflife.contract.preconditions import PRECONDITION_HEADER, Precondition
from shelflife.integrations import wsgi
from shelflife.integrations.asgi import ContractMiddleware
from shelflife.integrations.fastapi import install
from shelflife.integrations.starlette import install as install_in_starlette
from shelflife.server import Rejected
from tests.calling import calling
from tests.integrations.checked import (
    WANTED,
    fastapi_with,
    litestar_with,
    plain_with,
    provider_for,
    starlette_with,
)
from tests.integrations.wsgi_apps import flask_with, over_asgi

INNER = {
    "fastapi": fastapi_with,
    "starlette": starlette_with,
    "litestar": litestar_with,
    "plain": plain_with,
}
OUTER = {
    "fastapi": lambda provider, inner: in_fastapi(provider, inner),
    "starlette": lambda provider, inner: in_starlette(provider, Mount("/in", app=inner)),
    "beside a middleware": lambda provider, inner: in_starlette(
        provider, Mount("/in", app=inner, middleware=[Middleware(Passing)])
    ),
    "plain": lambda provider, inner: ContractMiddleware(
        Starlette(routes=[Mount("/in", app=inner)]), provider, operations=["POST /in/o"]
    ),
}


class Passing:
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        await self.app(scope, receive, send)


def in_fastapi(provider, inner):
    app = FastAPI()

    @app.post("/o")
    def operation(wanted: dict) -> dict:
        provider.check(wanted)
        return {"done": True}

    app.mount("/in", inner)
    install(app, provider)
    return app


def in_starlette(provider, mount):
    app = Starlette(routes=[mount])
    install_in_starlette(app, provider)
    return app


def two_providers():
    return provider_for(versions={"codes": "outer"}), provider_for(versions={"codes": "inner"})


def position_of(provider):
    return str(provider.face(provider.state, {}).position)


def told_in(app, path, headers):
    """What is told of a contract with a refusal, a success, and a request that nothing is known of."""
    with calling(app) as client:
        for wanted in (WANTED, WANTED | {"promo": "A"}, {}):
            response = client.post(path, json=wanted, headers=headers)
            told = sorted(name for name in response.headers if name.startswith("contract-"))
            members = response.json()
            assert response.headers.get("contract-root") in (None, path.removesuffix("/o"))
            yield response.status_code, told, sorted(members), members.get("table_versions")


@pytest.mark.parametrize("headers", [{}, {AT_HEADER: f"{NOWHERE};n=abc"}])
@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("inner", INNER)
def test_what_a_mounted_app_answers_is_of_its_own_contract_alone(outer, inner, headers):
    alone = INNER[inner](provider_for(versions={"codes": "inner"}), "/o")
    expected = list(told_in(Starlette(routes=[Mount("/in", app=alone)]), "/in/o", headers))
    ours, theirs = two_providers()
    assert list(told_in(OUTER[outer](ours, INNER[inner](theirs, "/o")), "/in/o", headers)) == expected


def test_a_wsgi_app_around_another_leaves_it_what_it_answers():
    ours, theirs = two_providers()
    app = wsgi.ContractMiddleware(flask_with(theirs, "/o"), ours, operations=["POST /o"])
    with calling(over_asgi(app)) as client:
        told = client.post("/o", json=WANTED | {"promo": "A"}, headers={AT_HEADER: f"{NOWHERE};n=abc"})
    assert told.json()["at"]["to"] == position_of(theirs) != position_of(ours)


def test_a_precondition_is_judged_by_the_contract_of_the_app_that_answers():
    ours, theirs = two_providers()
    app = in_fastapi(ours, fastapi_with(theirs, "/o"))
    grounds = {"cells": {"codes": {"growth": ("code",)}}, "policies": ("promo",)}
    with calling(app) as client:
        for one, status in ((theirs, 200), (ours, 412)):
            header = Precondition(at=position_of(one), **grounds).header
            told = client.post("/in/o", json=WANTED | {"promo": "A"}, headers={PRECONDITION_HEADER: header})
            assert told.status_code == status
            assert len(told.headers.get_list(PRECONDITION_HEADER)) == 1


def test_the_routes_of_an_app_with_a_contract_of_its_own_are_not_those_of_the_one_around_it():
    ours, theirs = two_providers()
    asked = {"operation": "POST /in/o", "request": WANTED}
    with calling(in_fastapi(ours, fastapi_with(theirs, "/o"))) as client:
        assert client.post("/contract/fixes", json=asked).status_code == 404
        assert client.post("/in/contract/fixes", json=asked | {"operation": "POST /o"}).status_code == 200
        assert client.get("/contract/state").json()["table_versions"] == {"codes": "outer"}
        assert client.get("/in/contract/state").json()["table_versions"] == {"codes": "inner"}


def test_a_check_of_the_contract_around_it_holds_in_a_mounted_app_too():
    ours, theirs = two_providers()
    inner = FastAPI()

    @inner.post("/o")
    def operation(wanted: dict) -> dict:
        ours.check(wanted)
        return {"done": True}

    install(inner, theirs)
    with calling(in_fastapi(ours, inner)) as client:
        refused = client.post("/in/o", json=WANTED)
        passed = client.post("/in/o", json=WANTED | {"promo": "A"})
    assert (refused.status_code, refused.json()["table_versions"]) == (422, {"codes": "outer"})
    assert (passed.status_code, passed.json()["table_versions"]) == (200, {"codes": "inner"})


def test_one_provider_in_both_apps_tells_of_itself_once():
    provider = provider_for(versions={"codes": "both"})
    with calling(in_fastapi(provider, fastapi_with(provider, "/o"))) as client:
        for path in ("/o", "/in/o"):
            told = client.post(path, json=WANTED | {"promo": "A"})
            assert told.text.count("table_versions") == 1
            assert told.json()["table_versions"] == {"codes": "both"}
            assert client.post(path, json=WANTED).status_code == 422


def nothing_else() -> dict:
    return {}


@pytest.mark.spec("12.3")
def test_a_precondition_is_judged_though_the_handler_asks_the_app_of_another_contract_first():
    """With a copy of its own scope, as an app further inside would get it."""
    provider, other, done = provider_for(), FastAPI(), []
    install(other, provider_for())
    other.get("/other")(nothing_else)
    app = FastAPI()
    install(app, provider)

    @app.post("/o")
    async def operation(wanted: dict, request: Request) -> dict:
        async def nothing(*message):
            return {"type": "http.request"}

        scope = {**request.scope, "method": "GET", "path": "/other", "raw_path": b"/other", "headers": []}
        await other(scope, nothing, nothing)
        provider.check(wanted)
        done.append(wanted)
        return {"done": True}

    with calling(app) as client:
        good = WANTED | {"promo": "A"}
        told = client.post("/o", json=good, headers={AT_HEADER: NOWHERE})
        precondition = Precondition(at=told.json()["at"], cells={"codes": {"growth": ["code"]}})
        headers = {PRECONDITION_HEADER: precondition.header}
        assert client.post("/o", json=good, headers=headers).headers[PRECONDITION_HEADER] == "met"
        provider.registry.reload_table("codes", set={"growth": {"code": "B"}})
        done.clear()
        assert client.post("/o", json=good, headers=headers).status_code == 412
        assert done == []


def test_the_contracts_paths_come_first_under_another_contract_of_the_same_provider_too():
    provider, app = provider_for(), FastAPI()
    app.api_route("/{rest:path}")(nothing_else)
    install(app, provider)
    with calling(ContractMiddleware(app, provider)) as client:
        assert "table_versions" in client.get("/contract/state").json()


@pytest.mark.parametrize("has_handler", [False, True])
def test_a_refusal_in_a_group_of_tasks_is_answered_whatever_handlers_there_are(has_handler):
    """Starlette looks for a handler by the group alone."""
    provider, app = provider_for(), FastAPI()
    install(app, provider)
    if has_handler:
        app.exception_handler(Rejected)(lambda request, refusal: JSONResponse({}, 409))

    @app.post("/o")
    async def operation(wanted: dict) -> dict:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(provider.check, wanted))
        return {"done": True}

    with calling(app) as client:
        assert client.post("/o", json=WANTED).status_code == 422
