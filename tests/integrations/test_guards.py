"""Fixes are told without the request only where nothing can stand before the operation that does not stand before the contract."""

import functools

import pytest
from fastapi import Depends, FastAPI, HTTPException
from fastapi.routing import APIRoute, APIRouter
from litestar import Controller, Litestar, Request, get, post
from litestar.di import Provide
from litestar.exceptions import NotAuthorizedException
from litestar.handlers import HTTPRouteHandler
from litestar.router import Router as LitestarRouter
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Host, Mount, Route, Router

from shelflife.integrations.fastapi import install
from shelflife.integrations.litestar import ContractPlugin
from shelflife.integrations.starlette import install as install_in_starlette
from tests.calling import calling
from tests.integrations.doors import (
    KEY,
    LoginForOrders,
    PlainLogin,
    api_key,
    is_told,
    key_guard,
    ordering,
    shop,
)


def login(endpoint):
    @functools.wraps(endpoint)
    async def guarded(request):
        if request.headers.get("x-api-key") != "k3y":
            return JSONResponse({"error": "no"}, 401)
        return await endpoint(request)

    return guarded


class Guarded(HTTPEndpoint):
    provider = None

    @login
    async def post(self, request):
        return await ordering(self.provider)(request)


class GuardedRoute(Route):
    async def handle(self, scope, receive, send):
        await PlainLogin(super().handle)(scope, receive, send)


class GuardedMount(Mount):
    async def handle(self, scope, receive, send):
        await PlainLogin(super().handle)(scope, receive, send)


class GuardedRouter(Router):
    async def __call__(self, scope, receive, send):
        await PlainLogin(super().__call__)(scope, receive, send)


class GuardedStarlette(Starlette):
    async def __call__(self, scope, receive, send):
        await PlainLogin(super().__call__)(scope, receive, send)


def methods(order, **options):
    return Route("/orders/{id:int}", order, methods=["POST"], **options)


STARLETTE = {
    "nothing": (lambda order: [methods(order)], True),
    "an open mount": (
        lambda order: [Mount("/orders", routes=[Route("/{id}", order, methods=["POST"])])],
        True,
    ),
    "an open app that is mounted": (lambda order: [Mount("/", app=Starlette(routes=[methods(order)]))], True),
    "a decorator": (lambda order: [methods(login(order))], False),
    "a part of a decorated one": (lambda order: [methods(functools.partial(login(order)))], False),
    "a middleware of the route": (lambda order: [methods(order, middleware=[Middleware(PlainLogin)])], False),
    "an endpoint that is an app": (
        lambda order: [Route("/orders/{id:int}", PlainLogin(Router([methods(order)])), methods=["POST"])],
        False,
    ),
    "a route of its own kind": (
        lambda order: [GuardedRoute("/orders/{id}", order, methods=["POST"])],
        False,
    ),
    "a mount of its own kind": (lambda order: [GuardedMount("/", routes=[methods(order)])], False),
    "a middleware of the mount": (
        lambda order: [Mount("/", routes=[methods(order)], middleware=[Middleware(PlainLogin)])],
        False,
    ),
    "a middleware of the mounted app": (
        lambda order: [
            Mount("/", app=Starlette(routes=[methods(order)], middleware=[Middleware(PlainLogin)]))
        ],
        False,
    ),
    "a middleware of the mounted router": (
        lambda order: [Mount("/", app=Router([methods(order)], middleware=[Middleware(PlainLogin)]))],
        False,
    ),
    "a router of its own kind": (lambda order: [Mount("/", app=GuardedRouter([methods(order)]))], False),
    "an app of its own kind": (
        lambda order: [Mount("/", app=GuardedStarlette(routes=[methods(order)]))],
        False,
    ),
    "a guarded one of the same name": (
        lambda order: [methods(order), Route("/orders/{id}", login(order), methods=["POST"])],
        False,
    ),
    "a guarded one of another host": (
        lambda order: [
            Host("127.0.0.1", app=Router([methods(order)])),
            Host("other.example", app=Router([methods(login(order))])),
        ],
        False,
    ),
}


@pytest.mark.spec("12.10")
@pytest.mark.parametrize("name", STARLETTE)
def test_what_stands_before_an_operation_in_starlette(name):
    make, expected = STARLETTE[name]
    provider = shop()
    app = Starlette(routes=make(ordering(provider)))
    install_in_starlette(app, provider)
    assert is_told(app) == expected


@pytest.mark.spec("12.10")
def test_methods_of_an_endpoint_class_may_have_guards():
    provider = shop()
    endpoint = type("Orders", (Guarded,), {"provider": provider})
    app = Starlette(routes=[Route("/orders/{id}", endpoint)])
    install_in_starlette(app, provider)
    assert not is_told(app)


def fastapi_order(provider):
    def order(id: int, wanted: dict) -> dict:
        provider.check(wanted)
        return {"done": id}

    return order


class LoginRoute(APIRoute):
    def get_route_handler(self):
        handler = super().get_route_handler()

        async def guarded(request):
            if request.headers.get("x-api-key") != "k3y":
                raise HTTPException(401)
            return await handler(request)

        return guarded


def in_fastapi(provider, *, router=None, late_class=False, middleware=(), **options):
    app = FastAPI()
    install(app, provider)
    if late_class:
        app.router.route_class = LoginRoute
    for one in middleware:
        app.add_middleware(one, **({"allow_origins": ["*"]} if one is CORSMiddleware else {}))
    (router or app).post("/orders/{id}", **options)(fastapi_order(provider))
    if router is not None:
        app.include_router(router)
    return app


def wrapped(provider):
    app = FastAPI()
    install(app, provider)
    order = fastapi_order(provider)

    @app.post("/orders/{id}")
    @functools.wraps(order)
    def guarded(*arguments, **named):
        return order(*arguments, **named)

    return app


FASTAPI = {
    "nothing": (in_fastapi, True),
    "a harmless middleware": (functools.partial(in_fastapi, middleware=[CORSMiddleware]), True),
    "a dependency": (functools.partial(in_fastapi, dependencies=[Depends(api_key)]), False),
    "a dependency of its router": (
        lambda provider: in_fastapi(provider, router=APIRouter(dependencies=[Depends(api_key)])),
        False,
    ),
    "an open router": (lambda provider: in_fastapi(provider, router=APIRouter()), True),
    "a route of its own kind": (
        lambda provider: in_fastapi(provider, router=APIRouter(route_class=LoginRoute)),
        False,
    ),
    "a kind of route that came later": (functools.partial(in_fastapi, late_class=True), False),
    "a decorator": (wrapped, False),
}


FASTAPI["a middleware of the app"] = (functools.partial(in_fastapi, middleware=[LoginForOrders]), False)


@pytest.mark.spec("12.10")
@pytest.mark.parametrize("name", FASTAPI)
def test_what_stands_before_an_operation_in_fastapi(name):
    make, expected = FASTAPI[name]
    assert is_told(make(shop())) == expected


async def current_user(request: Request) -> str:
    if request.headers.get("x-api-key") != "k3y":
        raise NotAuthorizedException("no")
    return "ada"


def hook(request: Request) -> None:
    if request.headers.get("x-api-key") != "k3y":
        raise NotAuthorizedException("no")


def guard_by_opt(connection, handler):
    if handler.opt.get("secret") and connection.headers.get("x-api-key") != "k3y":
        raise NotAuthorizedException("no")


class OwnHandler(HTTPRouteHandler):
    def resolve_guards(self):
        return [key_guard]


def litestar_order(provider, decorator=None, **options):
    make = decorator or functools.partial(post, status_code=200)

    @make("/orders/{id:int}", **options)
    async def order(request: Request) -> dict:
        provider.check(await request.json())
        return {"done": 1}

    return order


def with_dependency(provider, **options):
    @post("/orders/{id:int}", status_code=200, **options)
    async def order(request: Request, user: str) -> dict:
        provider.check(await request.json())
        return {"done": 1}

    return order


def in_controller(provider, **options):
    async def order(self, request: Request) -> dict:
        provider.check(await request.json())
        return {"done": 1}

    return type(
        "Orders",
        (Controller,),
        {"path": "/orders", "order": post("/{id:int}", status_code=200)(order), **options},
    )


def decorated(provider):
    async def order(request: Request) -> dict:
        return {"done": 1}

    @functools.wraps(order)
    async def guarded(request: Request) -> dict:
        return await order(request)

    return post("/orders/{id:int}", status_code=200)(guarded)


provide_user = {"user": Provide(current_user)}
LITESTAR = {
    "nothing": (lambda provider: [litestar_order(provider)], {}, True),
    "a guard of the app": (lambda provider: [litestar_order(provider)], {"guards": [lambda *_: None]}, True),
    "a guard": (lambda provider: [litestar_order(provider, guards=[key_guard])], {}, False),
    "a middleware": (lambda provider: [litestar_order(provider, middleware=[PlainLogin])], {}, False),
    "a middleware of the app": (
        lambda provider: [litestar_order(provider)],
        {"middleware": [LoginForOrders]},
        False,
    ),
    "a hook": (lambda provider: [litestar_order(provider, before_request=hook)], {}, False),
    "a dependency": (lambda provider: [with_dependency(provider, dependencies=provide_user)], {}, False),
    "a dependency of the app": (
        lambda provider: [with_dependency(provider)],
        {"dependencies": provide_user},
        False,
    ),
    "a guard that goes by what the handler says": (
        lambda provider: [litestar_order(provider, opt={"secret": True})],
        {"guards": [guard_by_opt]},
        False,
    ),
    "a handler of its own kind": (
        lambda provider: [
            litestar_order(provider, functools.partial(OwnHandler, http_method="POST", status_code=200))
        ],
        {},
        False,
    ),
    "a decorator": (lambda provider: [decorated(provider)], {}, False),
    "a guard of its controller": (lambda provider: [in_controller(provider, guards=[key_guard])], {}, False),
    "a guard of its router": (
        lambda provider: [LitestarRouter("/", route_handlers=[litestar_order(provider)], guards=[key_guard])],
        {},
        False,
    ),
}


@pytest.mark.spec("12.10")
@pytest.mark.filterwarnings("ignore::litestar.exceptions.base_exceptions.LitestarDeprecationWarning")
@pytest.mark.parametrize("name", LITESTAR)
def test_what_stands_before_an_operation_in_litestar(name):
    make, options, expected = LITESTAR[name]
    provider = shop()
    app = Litestar(make(provider), plugins=[ContractPlugin(provider)], logging_config=None, **options)
    assert is_told(app) == expected


def open_and_guarded(framework, provider):
    """An app with a guarded operation that checks and an open one that does not; its policy is for every operation."""
    if framework == "fastapi":
        app = FastAPI()
        install(app, provider)
        app.post("/orders/{id}", dependencies=[Depends(api_key)])(fastapi_order(provider))
        app.get("/health")(lambda: {"ok": True})
        return app
    if framework == "starlette":
        routes = [methods(login(ordering(provider))), Route("/health", lambda request: JSONResponse({}))]
        app = Starlette(routes=routes)
        install_in_starlette(app, provider)
        return app

    @get("/health")
    async def health() -> dict:
        return {"ok": True}

    handlers = [litestar_order(provider, guards=[key_guard]), health]
    return Litestar(handlers, plugins=[ContractPlugin(provider)], logging_config=None)


@pytest.mark.spec("12.10")
@pytest.mark.parametrize("framework", ["fastapi", "starlette", "litestar"])
@pytest.mark.parametrize(
    "operation",
    [
        *("GET /health", "HEAD /health", "OPTIONS /health", "GET /docs", "GET /openapi.json", "GET /schema"),
        *("GET /contract/state", "POST /contract/fixes", "POST /orders/7", "OPTIONS /orders/7", "GET /", ""),
    ],
)
def test_a_policy_for_every_operation_is_not_as_open_as_the_most_open_one(framework, operation):
    provider = shop(operation=None)
    app = open_and_guarded(framework, provider)
    assert not is_told(app, operation=operation)
    with calling(app) as client:
        assert client.post("/orders/3", json={"plan": "growth"}, headers=KEY).status_code == 422
        assert client.get("/health").status_code == 200
    assert not is_told(app, operation=operation)
