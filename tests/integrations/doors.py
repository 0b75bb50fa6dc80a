"""One small shop behind a login, in every framework and with every kind of login."""

import base64
import functools
import json

import msgspec
from fastapi import Depends, FastAPI, Header, HTTPException
from litestar import Litestar, Request, get, post
from litestar.exceptions import NotAuthorizedException
from litestar.middleware import DefineMiddleware
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser, requires
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route

from shelflife.integrations.asgi import ContractMiddleware, contract_app
from shelflife.integrations.fastapi import install
from shelflife.integrations.litestar import ContractPlugin
from shelflife.integrations.starlette import install as install_in_starlette
from shelflife.server import Provider, fix
from tests.calling import calling

KEY = {"X-Api-Key": "k3y"}
SECRETS = (b"HiddenTable", b"HiddenValue", b"hidden-version")
"""What nobody without the key may read: a table's name, its version, a value of a fix."""

WANTED = {"plan": "growth"}
GOOD = {"plan": "growth", "promo_code": "HiddenValue"}
OPERATION = "POST /orders/{id}"


def shop(operation=OPERATION, **options):
    """A provider with one policy, for one operation or for all."""
    provider = Provider(
        {"HiddenTable": {"growth": {"code": "HiddenValue"}}},
        versions={"HiddenTable": "hidden-version"},
        admin_token="operator",
        **options,
    )

    @provider.policy(operation=operation)
    def promo_is_the_assigned_one(request, tables):
        row = tables.HiddenTable.get(request.get("plan"))
        if row and not request.equals("promo_code", row["code"]):
            return fix("USE_PROMO", promo_code=row["code"])
        return None

    return provider


def api_key(x_api_key: str = Header(default="")):
    if x_api_key != "k3y":
        raise HTTPException(401, "no")


def required_api_key(x_api_key: str = Header()):
    """A missing key is 422, of FastAPI's own making."""
    if x_api_key != "k3y":
        raise HTTPException(404, "nothing here")


def to_the_login(x_api_key: str = Header(default="")):
    if x_api_key != "k3y":
        raise HTTPException(303, headers={"Location": "/login"})


class Login(BaseHTTPMiddleware):
    """Answers whoever has no key with a page that is no error at all."""

    async def dispatch(self, request, call_next):
        if request.headers.get("x-api-key") != "k3y":
            return JSONResponse({"please": "log in"})
        return await call_next(request)


class PlainLogin:
    """The same in plain ASGI; it hands a copy of the scope on."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http" and (b"x-api-key", b"k3y") not in scope["headers"]:
            await PlainTextResponse("no", 401)(scope, receive, send)
        else:
            await self.app(dict(scope), receive, send)


class LoginForOrders(PlainLogin):
    """Guards some paths, and lets the contract through."""

    async def __call__(self, scope, receive, send):
        is_guarded = scope["type"] == "http" and scope["path"].startswith("/orders")
        await (super().__call__ if is_guarded else self.app)(scope, receive, send)


def fastapi_app(provider, *, dependencies=(), before=(), after=(), **options):
    app = FastAPI(dependencies=[Depends(one) for one in dependencies])
    for middleware in before:
        app.add_middleware(middleware)
    install(app, provider, **options)
    for middleware in after:
        app.add_middleware(middleware)

    @app.post("/orders/{id}")
    def order(id: int, wanted: dict) -> dict:
        provider.check(wanted)
        return {"done": id}

    return app


def fastapi_with_a_login_on_the_route(provider):
    app = FastAPI()
    install(app, provider, dependencies=[Depends(api_key)])

    @app.post("/orders/{id}", dependencies=[Depends(api_key)])
    async def order(id: int, wanted: dict) -> dict:
        provider.check(wanted)
        return {"done": id}

    @app.get("/open")
    async def ask() -> dict:
        return {"open": True}

    return app


def ordering(provider):
    async def order(request):
        provider.check(await request.json())
        return JSONResponse({"done": request.path_params["id"]})

    return order


def starlette_app(provider, *, before=(), after=()):
    app = Starlette(routes=[Route("/orders/{id:int}", ordering(provider), methods=["POST"])])
    for middleware in before:
        app.add_middleware(middleware)
    install_in_starlette(app, provider)
    for middleware in after:
        app.add_middleware(middleware)
    return app


class Keys(AuthenticationBackend):
    async def authenticate(self, conn):
        if conn.headers.get("x-api-key") == "k3y":
            return AuthCredentials(["authenticated"]), SimpleUser("ada")
        return None


def starlette_with_decorators(provider):
    guard = requires("authenticated", status_code=401)
    app = Starlette(
        routes=[Route("/orders/{id:int}", guard(ordering(provider)), methods=["POST"])],
        middleware=[Middleware(AuthenticationMiddleware, backend=Keys())],
    )
    install_in_starlette(app, provider, login=guard, fixes=[OPERATION])
    return app


def mounted(provider):
    """The whole app, contract and all, under a path of another app that has the login."""
    return Starlette(routes=[Mount("/api", app=fastapi_app(provider))], middleware=[Middleware(PlainLogin)])


def of_a_mounted_app(provider):
    """The contract in the outer app, the operation in an inner one."""
    inner = FastAPI(dependencies=[Depends(api_key)])

    @inner.post("/{id}")
    def order(id: int, wanted: dict) -> dict:
        provider.check(wanted)
        return {"done": id}

    app = FastAPI(dependencies=[Depends(api_key)])
    install(app, provider)
    app.mount("/orders", inner)
    return app


def litestar_app(provider, *, guards=(), middleware=()):
    @post("/orders/{id:int}", status_code=200)
    async def order(request: Request) -> dict:
        provider.check(await request.json())
        return {"done": request.path_params["id"]}

    plugin = ContractPlugin(provider)
    return Litestar(
        [order], guards=list(guards), middleware=list(middleware), plugins=[plugin], logging_config=None
    )


def key_guard(connection, handler):
    if connection.headers.get("x-api-key") != "k3y":
        raise NotAuthorizedException("no")


def starlette_with_an_open_route(provider, *, is_guarded):
    guard = requires("authenticated", status_code=401)

    async def told(request):
        return JSONResponse({"told": True})

    routes = [
        Route("/orders/{id:int}", ordering(provider), methods=["POST"]),
        Route("/closed", guard(told)),
        Route("/open", told),
    ]
    app = Starlette(routes=routes, middleware=[Middleware(AuthenticationMiddleware, backend=Keys())])
    install_in_starlette(app, provider, login=guard if is_guarded else None)
    return app


def litestar_with_an_open_route(provider, *, is_guarded):
    @post("/orders/{id:int}", status_code=200)
    async def order(request: Request) -> dict:
        return {}

    @get("/closed", guards=[key_guard])
    async def closed() -> dict:
        return {"told": True}

    @get("/open")
    async def ask() -> dict:
        return {"told": True}

    plugin = ContractPlugin(provider, guards=[key_guard] if is_guarded else None)
    return Litestar([order, closed, ask], plugins=[plugin], logging_config=None)


def plain_app(provider):
    """An app written by hand, with the login in it, which mounts the contract's endpoints behind that."""
    endpoints = contract_app(provider, fixes=[OPERATION])

    async def app(scope, receive, send):
        if scope["type"] != "http":
            return
        if (b"x-api-key", b"k3y") not in scope["headers"]:
            await JSONResponse({"error": "no"}, 400)(scope, receive, send)
        elif scope["path"].startswith("/contract/"):
            await endpoints(scope, receive, send)
        elif scope["path"].startswith("/orders/") and scope["method"] == "POST":
            provider.check(json.loads((await receive())["body"]))
            await JSONResponse({"done": int(scope["path"].rpartition("/")[2])})(scope, receive, send)
        else:
            await JSONResponse({"error": "nothing here"}, 404)(scope, receive, send)

    return ContractMiddleware(app, provider)


APPS = {
    "fastapi, dependency": functools.partial(fastapi_app, dependencies=[api_key]),
    "fastapi, dependency with 422": functools.partial(fastapi_app, dependencies=[required_api_key]),
    "fastapi, dependency with 303": functools.partial(fastapi_app, dependencies=[to_the_login]),
    "fastapi, middleware before": functools.partial(fastapi_app, before=[Login]),
    "fastapi, middleware after": functools.partial(fastapi_app, after=[Login]),
    "fastapi, plain middleware before": functools.partial(fastapi_app, before=[PlainLogin]),
    "fastapi, plain middleware after": functools.partial(fastapi_app, after=[PlainLogin]),
    "fastapi, dependency of the route": fastapi_with_a_login_on_the_route,
    "fastapi, mounted app": of_a_mounted_app,
    "starlette, middleware before": functools.partial(starlette_app, before=[Login]),
    "starlette, middleware after": functools.partial(starlette_app, after=[PlainLogin]),
    "starlette, decorators": starlette_with_decorators,
    "litestar, guard": functools.partial(litestar_app, guards=[key_guard]),
    "litestar, middleware": functools.partial(litestar_app, middleware=[DefineMiddleware(PlainLogin)]),
    "plain asgi": plain_app,
}
"""Apps that need the key for everything but `/open` and the operator's endpoints."""


def grounds_at(position):
    """A precondition that is met at exactly this position."""
    grounds = base64.b64encode(msgspec.json.encode({"was": {}})).decode()
    return {"Contract-Precondition": f"{position};on=:{grounds}:"}


def unknown_grounds():
    """A precondition that cannot be met, and asks for the fixes of the request."""
    return grounds_at("Abcdef99")


ASKED = {"operation": "POST /orders/7", "request": {"plan": "growth"}}


def is_told(app, **asked):
    """Whether somebody without a key is told the fix of an operation."""
    with calling(app) as client:
        response = client.post("/contract/fixes", json=ASKED | asked)
    assert response.status_code in (200, 404)
    return "HiddenValue" in response.text
