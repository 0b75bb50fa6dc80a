"""One operation that checks its requests, in every framework."""

import json

from fastapi import FastAPI
from fastapi.routing import APIRouter
from litestar import Litestar, Request, post
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from shelflife.integrations.asgi import ContractMiddleware
from shelflife.integrations.fastapi import install
from shelflife.integrations.litestar import ContractPlugin
from shelflife.integrations.starlette import install as install_in_starlette
from shelflife.server import Provider, fix
from tests.integrations.wsgi_apps import django_asgi_with, django_with, flask_with, over_asgi

WANTED = {"plan": "growth"}


def provider_for(operation=None, **options):
    provider = Provider({"codes": {"growth": {"code": "A"}}}, **options)

    @provider.policy(operation=operation)
    def promo(request, tables):
        row = tables.codes.get(request.get("plan"))
        return fix("USE", promo=row["code"]) if row and not request.equals("promo", row["code"]) else None

    return provider


def checking(provider):
    async def operation(request):
        provider.check(await request.json())
        return JSONResponse({"done": True})

    return operation


def fastapi_with(provider, path):
    app = FastAPI()
    install(app, provider)

    @app.post(path)
    def operation(wanted: dict) -> dict:
        provider.check(wanted)
        return {"done": True}

    return app


def included_in_fastapi(provider, path):
    app = FastAPI()
    install(app, provider)
    inner, outer = APIRouter(), APIRouter()

    @inner.post("/{id}")
    def operation(wanted: dict) -> dict:
        provider.check(wanted)
        return {"done": True}

    outer.include_router(inner, prefix="/orders")
    app.include_router(outer, prefix="/v1")
    return app


def starlette_with(provider, path):
    app = Starlette(routes=[Route(path, checking(provider), methods=["POST"])])
    install_in_starlette(app, provider)
    return app


def mounted_in_starlette(provider, path):
    prefix, _, rest = path[1:].partition("/")
    inner = Starlette(routes=[Route(f"/{rest}", checking(provider), methods=["POST"])])
    app = Starlette(routes=[Mount(f"/{prefix}", app=inner)])
    install_in_starlette(app, provider)
    return app


def litestar_with(provider, path):
    @post(path.replace("{id}", "{id:str}"), status_code=200)
    async def operation(request: Request) -> dict:
        provider.check(json.loads(await request.body()))
        return {"done": True}

    return Litestar([operation], plugins=[ContractPlugin(provider)], logging_config=None)


def plain_with(provider, path):
    return ContractMiddleware(Starlette(routes=[Route(path, checking(provider), methods=["POST"])]), provider)


FRAMEWORKS = {
    "fastapi": fastapi_with,
    "starlette": starlette_with,
    "mounted": mounted_in_starlette,
    "litestar": litestar_with,
    "plain": plain_with,
    "flask": lambda provider, path: over_asgi(flask_with(provider, path)),
    "django": lambda provider, path: over_asgi(django_with(provider, path)),
    "django asgi": django_asgi_with,
}
