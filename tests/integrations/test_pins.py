"""A request has a pin of its own, whoever begins it, and apps keep what they had."""

import contextlib
import functools
import json
import socket
from urllib.parse import urlsplit

import httpx2
import pytest
from fastapi import BackgroundTasks, Depends, FastAPI
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRouter
from litestar import Litestar, Request, get, post
from litestar.plugins import InitPlugin
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route, Router

from shelflife.integrations.fastapi import install
from shelflife.integrations.litestar import ContractPlugin
from shelflife.integrations.starlette import install as install_in_starlette
from shelflife.server import Provider, Rejected
from shelflife.testing import serving
from tests.calling import calling
from tests.integrations.checked import WANTED, checking, fastapi_with, provider_for
from tests.integrations.doors import KEY, LoginForOrders, PlainLogin, api_key, is_told, unknown_grounds

ONCE = {"Connection": "close"}


def session():
    yield


@pytest.mark.parametrize("operation", [None, "POST /orders"])
@pytest.mark.parametrize("way", ["background", "yield"])
@pytest.mark.parametrize("http", ["h11", "httptools"])
def test_a_pipelined_request_is_not_the_one_before_it(operation, way, http):
    """A server may begin its task in that of the one before, which is not over yet."""
    provider = provider_for(operation)
    app = FastAPI()
    install(app, provider)
    done = []

    @app.get("/ping", dependencies=[Depends(session)] if way == "yield" else [])
    async def ping(tasks: BackgroundTasks):
        if way == "background":
            tasks.add_task(lambda: None)
        return {}

    @app.post("/orders")
    async def order(wanted: dict):
        provider.check(wanted)
        done.append(wanted)
        return {"ordered": True}

    def pipelined(address, body, headers=""):
        parts = urlsplit(address)
        content = json.dumps(body)
        first = "GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
        second = (
            f"POST /orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{headers}"
            f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n{content}"
        )
        with socket.create_connection((parts.hostname, parts.port), timeout=60) as connection:
            connection.sendall((first + second).encode())
            received = b""
            while part := connection.recv(65536):
                received += part
        return received.rpartition(b"HTTP/1.1 ")[2].split(b" ")[0]

    with serving(app, http=http) as address:
        assert {pipelined(address, WANTED) for _ in range(5)} == {b"422"}
        grounds = f"Contract-Precondition: {unknown_grounds()['Contract-Precondition']}\r\n"
        assert {pipelined(address, WANTED | {"promo": "A"}, grounds) for _ in range(5)} == {b"412"}
    assert done == []


def test_an_app_that_calls_itself_is_asked_anew():
    provider = provider_for("POST /orders")
    app = fastapi_with(provider, "/orders")

    @app.post("/batch")
    async def batch() -> dict:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://x") as client:
            return {"status": (await client.post("/orders", json=WANTED)).status_code}

    with calling(app) as client:
        assert client.post("/batch").json()["status"] == 422


def test_a_policy_in_a_part_that_cannot_be_seen_is_not_that_of_a_route_that_takes_every_path():
    provider = provider_for("POST /m/o")
    done = []

    async def opaque(scope, receive, send):
        provider.check(WANTED)
        done.append(scope["path"])

    async def page(request):
        return JSONResponse({})

    app = Starlette(routes=[Mount("/m", app=opaque), Route("/{path:path}", page, methods=["GET", "POST"])])
    install_in_starlette(app, provider)
    with calling(app) as client:
        assert client.post("/m/o", headers=ONCE).status_code == 422
        for target in ("/m/O", "/m/other"):
            assert client.post(target, headers=ONCE).status_code == 500
    assert done == []


def test_a_middleware_that_rewrites_gets_around_no_policy():
    class Rewriting:
        def __init__(self, app):
            self.app = app

        async def __call__(self, scope, receive, send):
            await self.app({**scope, "path": scope["path"].lower()}, receive, send)

    provider = provider_for("POST /m/b")

    async def order(request):
        provider.check(WANTED)
        return JSONResponse({})

    inner = [Route("/b", order, methods=["POST"]), Route("/{other}", order, methods=["POST"])]
    app = Starlette(routes=[Mount("/m", app=Rewriting(Router(inner)))])
    install_in_starlette(app, provider)
    with calling(app) as client:
        assert client.post("/m/b", headers=ONCE).status_code == 422
        assert client.post("/m/B", headers=ONCE).status_code == 500


def test_what_is_hidden_keeps_policies_for_every_operation_from_being_told():
    provider = provider_for()

    async def opaque(scope, receive, send):
        provider.check(WANTED)

    app = FastAPI()
    install(app, provider)
    app.get("/health")(lambda: {"ok": True})
    app.mount("/m", PlainLogin(opaque))
    with calling(app) as client:
        asked = {"operation": "GET /health", "request": WANTED}
        assert client.post("/contract/fixes", json=asked).status_code == 404


class LoginPlugin(InitPlugin):
    def on_app_init(self, app_config):
        app_config.middleware.append(LoginForOrders)
        return app_config


@pytest.mark.parametrize("is_before", [True, False])
def test_a_login_that_another_plugin_brings_is_seen(is_before):
    provider = provider_for()

    @post("/orders/{id:int}", status_code=200)
    async def order(request: Request) -> dict:
        provider.check(await request.json())
        return {}

    @get("/orders/{id:int}")
    async def look() -> dict:
        return {"a": 1}

    plugins = [LoginPlugin(), ContractPlugin(provider)]
    app = Litestar([order, look], plugins=plugins if is_before else plugins[::-1], logging_config=None)
    with calling(app) as client:
        asked = {"operation": "POST /orders/7", "request": WANTED}
        assert client.post("/contract/fixes", json=asked).status_code == 404
        assert "table_versions" not in client.get("/orders/7").text
        assert ("table_versions" in client.get("/orders/7", headers=KEY).text) == is_before


class LoginRouter(APIRouter):
    async def handle(self, scope, receive, send):
        await PlainLogin(super().handle)(scope, receive, send)


def included(provider, app):
    router = LoginRouter()
    router.post("/orders/{id}")(lambda wanted: provider.check(wanted))
    app.include_router(router)


def mounted_router(provider, app):
    inner = FastAPI()
    inner.router = LoginRouter()
    inner.router.post("/{id}")(lambda wanted: provider.check(wanted))
    app.mount("/orders", inner)


def overridden(provider, app):
    def shared():
        pass

    inner = FastAPI()
    inner.post("/{id}", dependencies=[Depends(shared)])(lambda wanted: provider.check(wanted))
    inner.dependency_overrides[shared] = api_key
    app.mount("/orders", inner)


def built_otherwise(provider, app):
    app.post("/orders/{id}")(lambda wanted: provider.check(wanted))
    build = app.build_middleware_stack
    app.build_middleware_stack = lambda: LoginForOrders(build())


@pytest.mark.parametrize("way", [included, mounted_router, overridden, built_otherwise])
def test_logins_in_odd_places_are_seen(way):
    provider = provider_for("POST /orders/{id}")
    app = FastAPI()
    install(app, provider)
    way(provider, app)
    assert not is_told(app)


def test_endpoints_of_every_kind_answer_as_without_the_contract():
    def traced(function):
        @functools.wraps(function)
        def traced_function(*arguments, **named):
            return function(*arguments, **named)

        return traced_function

    class Views:
        def method(self) -> dict:
            return {"a": 1}

        async def coroutine(self) -> dict:
            return {"a": 1}

        def __call__(self) -> dict:
            return {"a": 1}

    async def lines():
        yield {"a": 1}

    async def chunks():
        yield b"ab"

    def app_with(is_installed):
        app = FastAPI()
        if is_installed:
            install(app, Provider({"t": {}}))
        views = Views()
        app.get("/method")(views.method)
        app.get("/coroutine")(views.coroutine)
        app.get("/instance", name="instance")(views)
        app.get("/partial", name="partial")(functools.partial(views.method))
        app.get("/lines")(traced(lines))
        app.get("/plain-lines")(lines)
        app.get("/stream")(lambda: StreamingResponse(chunks()))
        return app

    paths = ("/method", "/coroutine", "/instance", "/partial", "/lines", "/plain-lines", "/stream")
    with calling(app_with(False)) as plain, calling(app_with(True)) as installed:
        for path in paths:
            expected, found = plain.get(path), installed.get(path)
            assert found.status_code == expected.status_code == 200
            if "stream" in path or "lines" in path:
                assert found.content == expected.content
            else:
                assert found.json().items() >= expected.json().items()
                assert "table_versions" in found.json()


@pytest.mark.parametrize("way", ["function", "class", "mount"])
def test_an_app_that_has_a_handler_for_refusals_is_asked(way):
    provider = provider_for()

    async def opaque(scope, receive, send):
        provider.check(WANTED)

    class Endpoint(HTTPEndpoint):
        async def post(self, request):
            provider.check(WANTED)

    route = {
        "function": Route("/x", checking(provider), methods=["POST"]),
        "class": Route("/x", Endpoint),
        "mount": Mount("/x", app=opaque),
    }[way]
    handlers = {Rejected: lambda request, error: JSONResponse({"mine": len(error.suggestions)}, 409)}
    app = Starlette(routes=[route], exception_handlers=handlers)
    install_in_starlette(app, provider)
    with calling(app, follow_redirects=True) as client:
        response = client.post("/x/" if way == "mount" else "/x", json=WANTED)
    assert (response.status_code, response.json()["mine"]) == (409, 1)


def test_the_contract_is_found_before_a_host_that_takes_everything():
    provider = Provider({"t": {}})
    app = Starlette()
    install_in_starlette(app, provider)

    async def anything(request):
        return JSONResponse({})

    app.host("127.0.0.1", Router([Route("/{path:path}", anything)]))
    with calling(app) as client:
        assert client.get("/contract/state").status_code == 200


def test_a_route_that_is_added_at_the_start_may_have_a_policy():
    provider = provider_for("POST /late")

    @contextlib.asynccontextmanager
    async def lifespan(app):
        app.post("/late")(lambda wanted: provider.check(wanted))
        yield

    app = FastAPI(lifespan=lifespan)
    install(app, provider)
    with calling(app) as client:
        assert client.get("/contract/state").status_code == 200


def test_routes_that_come_late_have_their_own_policies_and_are_shown():
    provider = provider_for("POST /v2")
    app = FastAPI()
    install(app, provider)

    def order(wanted: dict) -> dict:
        provider.check(wanted)
        return {}

    app.post("/v1")(order)
    app.mount("/m", lambda scope, receive, send: None)
    app.post("/v2")(order)
    with calling(app) as client:
        assert client.post("/v1", json=WANTED).status_code == 200
        assert client.post("/v2", json=WANTED).status_code == 422
        assert "/v3" not in client.get("/openapi.json").json()["paths"]
        app.post("/v3")(order)
        assert client.post("/v3", json=WANTED).status_code == 200
        assert client.post("/v2", json=WANTED).status_code == 422
        assert client.post("/v1", json=WANTED).json()["table_versions"]


def test_a_precondition_does_not_have_the_routes_listed_each_time():
    listed = []

    class Counting(FastAPI):
        @property
        def routes(self):
            listed.append(1)
            return super().routes

    app = Counting()
    install(app, provider_for())

    @app.post("/x")
    def answer() -> dict:
        return {"a": 1}

    with calling(app) as client:
        client.post("/x", headers=unknown_grounds())
        before = len(listed)
        for _ in range(5):
            client.post("/x", headers=unknown_grounds())
    assert len(listed) == before


def test_a_start_that_fails_is_no_life(tmp_path):
    provider = Provider({"t": {"a": {}}}, log=tmp_path / "state.db")
    starts = iter([RuntimeError("the database\nis not there"), None])

    @contextlib.asynccontextmanager
    async def lifespan(app):
        error = next(starts)
        if error:
            raise error
        yield

    app = FastAPI(lifespan=lifespan)
    install(app, provider)
    with pytest.raises(RuntimeError, match="the app did not start: the database\nis not there"), serving(app):
        pass
    with serving(app):
        pass
    Provider({"t": {"a": {}}}, log=tmp_path / "state.db").close()


def test_an_app_of_litestar_that_does_not_start_says_why():
    provider = provider_for("POST /nowhere")
    app = Litestar([], plugins=[ContractPlugin(provider)], logging_config=None)
    with (
        pytest.raises(RuntimeError, match="did not start: there is a policy for POST /nowhere"),
        serving(app),
    ):
        pass
