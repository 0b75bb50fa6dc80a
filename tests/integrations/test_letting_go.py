"""A request that is over is not kept by its context, which a server may keep for a long time after it, and a task may."""

import asyncio
import contextvars
import gc
import json
from contextlib import suppress
from io import BytesIO
from typing import Any
from weakref import ref

import pytest
from fastapi import FastAPI
from fastapi import Request as Asked
from pydantic import BaseModel

from shelflife.integrations.asgi import ContractMiddleware
from shelflife.integrations.fastapi import install
from shelflife.integrations.wsgi import ContractMiddleware as WsgiMiddleware
from shelflife.server import Fix, Provider, Request, Tables, fix


class Order(BaseModel):
    """What is asked for."""

    code: str


class _Scope(dict[str, Any]):
    """One of which it can be seen when it goes."""


def _provider() -> Provider:
    provider = Provider({"codes": {"growth": {"code": "SUMMER"}}})

    @provider.policy
    def code_must_be_the_assigned_one(request: Request, tables: Tables) -> Fix | None:
        code = tables.codes["growth"]["code"]
        return None if request["code"] == code else fix("USE_CODE", code=code)

    return provider


class _Server:
    """Asks an app, and keeps the contexts of what was asked, and no more than that."""

    def __init__(self, app: Any, headers: list[tuple[bytes, bytes]], *, is_gone: bool = False) -> None:
        """`is_gone`: its client is, when it is answered."""
        self._is_gone = is_gone
        self._app, self._headers = app, [(b"content-type", b"application/json"), *headers]
        self.contexts: list[contextvars.Context] = []
        self.statuses: list[int] = []
        self.left: list[ref[Any]] = []
        """What is to be let go of."""

    async def ask(self, code: str = "SUMMER") -> None:
        has_sent = False

        async def receive() -> dict[str, Any]:
            nonlocal has_sent
            if has_sent:
                return {"type": "http.disconnect"}
            has_sent = True
            return {"type": "http.request", "body": json.dumps({"code": code}).encode()}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.statuses.append(message["status"])
            self.contexts.append(contextvars.copy_context())  # as a timer does that is set in here
            if self._is_gone:
                raise OSError("nobody is there")

        scope = _Scope(type="http", method="POST", path="/orders", query_string=b"", headers=[*self._headers])
        self.left += [ref(scope), ref(receive), ref(send)]
        await self._app(scope, receive, send)


def _app(provider: Provider) -> FastAPI:
    app = FastAPI()

    @app.post("/orders")
    async def order(wanted: Order) -> dict[str, bool]:
        provider.check(wanted)
        return {"success": True}

    install(app, provider)
    return app


SAID = pytest.mark.parametrize("headers", [[], [(b"contract-at", b"?")]], ids=["usual", "says something"])


@pytest.mark.parametrize(("code", "status"), [("SUMMER", 200), ("WINTER", 422)])
@SAID
def test_a_request_that_is_over_is_not_kept_by_its_context(
    code: str, status: int, headers: list[tuple[bytes, bytes]]
) -> None:
    provider = _provider()
    server = _Server(_app(provider), headers)
    for _ in range(2):  # the first request finds out what the next ones need not
        asyncio.run(server.ask(code))
    gc.collect()

    assert server.statuses == [status, status]
    assert {context[provider.pinned].body for context in server.contexts} == {b""}
    assert [one() for one in server.left] == [None] * 6


@SAID
def test_nor_is_one_that_was_cancelled(headers: list[tuple[bytes, bytes]]) -> None:
    provider, contexts = _provider(), []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        provider.check({"code": "SUMMER"})
        contexts.append(contextvars.copy_context())
        has_checked.set()
        await asyncio.Event().wait()

    async def cancelled() -> None:
        nonlocal has_checked
        has_checked = asyncio.Event()
        asked = asyncio.create_task(server.ask())
        await has_checked.wait()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    has_checked = asyncio.Event()
    server = _Server(ContractMiddleware(app, provider, operations=["POST /orders"]), headers)
    for _ in range(2):
        asyncio.run(cancelled())
    gc.collect()

    assert {context[provider.pinned].body for context in contexts} == {b""}
    assert [one() for one in server.left] == [None] * 6


@SAID
def test_nor_is_one_whose_refusal_reaches_nobody(headers: list[tuple[bytes, bytes]]) -> None:
    provider = _provider()
    server = _Server(_app(provider), headers, is_gone=True)
    for _ in range(2):
        with pytest.raises(OSError, match="nobody is there"):
            asyncio.run(server.ask("WINTER"))
    gc.collect()

    assert {context[provider.pinned].body for context in server.contexts} == {b""}
    assert [one() for one in server.left] == [None] * 6


class _Abandoned(BaseException):
    """What a server raises in an app to have it end at once."""


@pytest.mark.parametrize("ends", ["answered", "refused", "failed", "abandoned", "closed"])
def test_nor_is_one_of_wsgi(ends: str) -> None:
    provider, contexts = _provider(), []

    def app(environ: Any, start_response: Any) -> Any:
        contexts.append(contextvars.copy_context())
        provider.check(json.loads(environ["wsgi.input"].read()))
        if ends in ("failed", "abandoned"):
            raise (ValueError if ends == "failed" else _Abandoned)
        start_response("200 OK", [("Content-Type", "application/json")])
        return iter([b"{}", b""]) if ends == "closed" else [b"{}"]

    def ask() -> ref[Any]:
        body = BytesIO(json.dumps({"code": "WINTER" if ends == "refused" else "SUMMER"}).encode())
        environ = _Scope({"REQUEST_METHOD": "POST", "PATH_INFO": "/orders", "wsgi.input": body})
        with suppress(ValueError, _Abandoned):
            response: Any = contract(environ, lambda *start: None)
            next(iter(response))
            if hasattr(response, "close"):
                response.close()
        return ref(environ)

    contract = WsgiMiddleware(app, provider)
    left = [ask() for _ in range(2)]
    gc.collect()

    pins = [context[provider.pinned] for context in contexts]
    assert [(pin.is_over, pin.body) for pin in pins if pin is not None] == [(True, b"")] * 2
    assert [one() for one in left] == [None, None]


@SAID
def test_a_task_that_outlives_its_request_is_told_that_nobody_is_there(
    headers: list[tuple[bytes, bytes]],
) -> None:
    provider, app = _provider(), FastAPI()
    tasks: list[asyncio.Task[bool]] = []

    async def asked_later(is_over: asyncio.Event, asked: Asked) -> bool:
        await is_over.wait()
        return await asked.is_disconnected()

    async def ask() -> bool:
        nonlocal is_over
        is_over = asyncio.Event()
        await server.ask()
        is_over.set()
        return await tasks.pop()

    @app.post("/orders")
    async def order(wanted: Order, asked: Asked) -> dict[str, bool]:
        provider.check(wanted)
        tasks.append(asyncio.create_task(asked_later(is_over, asked)))
        return {"success": True}

    is_over = asyncio.Event()
    install(app, provider)
    server = _Server(app, headers)
    assert [asyncio.run(ask()) for _ in range(2)] == [True, True]


@SAID
def test_and_cannot_send_anything_more(headers: list[tuple[bytes, bytes]]) -> None:
    provider, sends = _provider(), []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        provider.check({"code": "SUMMER"})
        usual = [(b"content-length", b"2"), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": usual})
        await send({"type": "http.response.body", "body": b"{}"})
        sends.append(send)

    async def ask() -> None:
        await server.ask()
        with pytest.raises(
            RuntimeError, match=r"the request is over, and http\.response\.body can no longer"
        ):
            await sends.pop()({"type": "http.response.body", "body": b"more"})

    server = _Server(ContractMiddleware(app, provider, operations=["POST /orders"]), headers)
    for _ in range(2):
        asyncio.run(ask())
    assert server.statuses == [200, 200]
