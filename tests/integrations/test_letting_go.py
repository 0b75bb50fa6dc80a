"""A request that is over is not kept by its context, which a server may keep for a long time after it."""

import asyncio
import contextvars
import gc
import json
from typing import Any
from weakref import ref

import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from shelflife.integrations.fastapi import install
from shelflife.server import Fix, Provider, Request, Tables, fix


class Order(BaseModel):
    """What is asked for."""

    code: str


class _Scope(dict[str, Any]):
    """One of which it can be seen when it goes."""


def _app() -> FastAPI:
    provider = Provider({"codes": {"growth": {"code": "SUMMER"}}})

    @provider.policy
    def code_must_be_the_assigned_one(request: Request, tables: Tables) -> Fix | None:
        code = tables.codes["growth"]["code"]
        return None if request["code"] == code else fix("USE_CODE", code=code)

    app = FastAPI()

    @app.post("/orders")
    async def order(wanted: Order) -> dict[str, bool]:
        provider.check(wanted)
        return {"success": True}

    install(app, provider)
    return app


@pytest.mark.parametrize(("code", "status"), [("SUMMER", 200), ("WINTER", 422)])
@pytest.mark.parametrize("headers", [[], [(b"contract-at", b"?")]])
def test_a_request_that_is_over_is_not_kept_by_its_context(
    code: str, status: int, headers: list[tuple[bytes, bytes]]
) -> None:
    kept: list[contextvars.Context] = []
    answered: list[int] = []
    scopes: list[ref[_Scope]] = []

    async def asked() -> None:
        scope = _Scope(
            type="http",
            method="POST",
            path="/orders",
            query_string=b"",
            headers=[(b"content-type", b"application/json"), *headers],
        )
        scopes.append(ref(scope))

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": json.dumps({"code": code}).encode()}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answered.append(message["status"])
            kept.append(contextvars.copy_context())  # as a timer does that is set in here

        await app(scope, receive, send)

    app = _app()
    asyncio.run(asked())
    gc.collect()

    assert answered == [status]
    assert kept
    assert scopes[0]() is None
