"""Which operation a request is for: what the app has chosen, however the request is written; what cannot be told is an error."""

import asyncio
import logging

import httpx2
import pytest
from fastapi import FastAPI
from litestar import Litestar, Request, asgi, post
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from shelflife.integrations.asgi import ContractMiddleware, contract_app
from shelflife.integrations.fastapi import install
from shelflife.integrations.litestar import ContractPlugin
from shelflife.integrations.starlette import install as install_in_starlette
from shelflife.server.operations import Operation, Operations, operation_name
from shelflife.testing import serving
from tests.calling import calling
from tests.integrations.checked import FRAMEWORKS, WANTED, fastapi_with, provider_for
from tests.integrations.doors import ordering, unknown_grounds

ONCE = {"Connection": "close"}


def refuses(app, target, method="POST"):
    with calling(app) as client:
        response = client.request(method, target, json=WANTED, headers=ONCE)
    return response.status_code == 422 and "recovery_feedback" in response.text


@pytest.mark.spec("3.10")
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    "target", ["/v1/orders/7%0A", "/v1/orders/7/", "//v1/orders/7", "/v1/orders/7%20", "/v1/orders/7"]
)
def test_a_path_that_is_written_in_another_way_gets_around_no_policy(framework, target):
    """Refused by the policy, or by the app, which has no such route; never carried out."""
    provider = provider_for("POST /v1/orders/{id}")
    with calling(FRAMEWORKS[framework](provider, "/v1/orders/{id}"), follow_redirects=True) as client:
        response = client.post(target, json=WANTED, headers=ONCE)
        assert response.status_code in (404, 405, 422)
        listed = FRAMEWORKS[framework](provider_for("POST /v1/orders"), "/v1/orders")
    with calling(listed, follow_redirects=True) as client:
        response = client.post(target.replace("/7", ""), json=WANTED, headers=ONCE)
        assert response.status_code in (404, 405, 422)


@pytest.mark.parametrize("root", ["/api", "/api/"])
def test_a_root_path_gets_around_no_policy(root):
    app = fastapi_with(provider_for("POST /x", admin_token="t"), "/x")
    with serving(app, root_path=root) as address:
        for path in ("/x", f"{root.rstrip('/')}/x"):
            assert httpx2.post(address + path, json=WANTED).status_code in (404, 422)
        assert httpx2.post(address + "/x", json=WANTED).status_code == 422
        graph = httpx2.get(address + "/admin/graph", headers={"Authorization": "Bearer t"})
        assert graph.status_code == 200


class Rest(Convertor[str]):
    regex = ".+"

    def convert(self, value):
        return value

    def to_string(self, value):
        return value


register_url_convertor("rest", Rest())


def in_starlette(provider, *routes):
    app = Starlette(routes=list(routes))
    install_in_starlette(app, provider)
    return app


class Copying:
    """Hands a copy of the scope on: what is found in it later is not seen outside."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        await self.app(dict(scope), receive, send)


@pytest.mark.spec("3.10")
def test_one_function_may_answer_for_several_operations():
    provider = provider_for("POST /o/{slug}")
    order = ordering(provider)

    async def one(request):
        provider.check(await request.json())
        return JSONResponse({})

    app = in_starlette(
        provider,
        Route("/o/{id:int}", one, methods=["POST"]),
        Route("/o/{slug}", one, methods=["POST", "PUT"]),
    )
    assert order is not None
    assert refuses(app, "/o/abc")
    assert not refuses(app, "/o/7")
    assert not refuses(app, "/o/abc", "PUT")


@pytest.mark.parametrize(
    ("operation", "route", "target"),
    [
        ("POST /o/{r}", lambda order: Route("/o/{r:rest}", order, methods=["POST"]), "/o/a/b"),
        ("POST /o/{r}", lambda order: Route("/o/{r:path}", order, methods=["POST"]), "/o/a/b"),
        (
            "POST /m/o/{id}",
            lambda order: Mount(
                "/m", routes=[Route("/o/{id}", order, methods=["POST"])], middleware=[Middleware(Copying)]
            ),
            "/m/o/1",
        ),
        (
            "POST /m/o/{id}",
            lambda order: Mount(
                "/m", app=Copying(Starlette(routes=[Route("/o/{id}", order, methods=["POST"])]))
            ),
            "/m/o/1",
        ),
        ("GET /q", lambda order: Route("/q", order), "/q"),
    ],
)
def test_odd_routes_get_around_no_policy(operation, route, target):
    provider = provider_for(operation)

    async def order(request):
        provider.check(WANTED)
        return JSONResponse({"done": True})

    for method in ("GET", "HEAD") if operation.startswith("GET") else ("POST",):
        with calling(in_starlette(provider, route(order))) as client:
            assert client.request(method, target, headers=ONCE).status_code == 422


def test_a_check_in_the_middleware_of_a_mount_knows_its_operation():
    provider = provider_for("POST /m/o/{id}")

    class Checking(Copying):
        async def __call__(self, scope, receive, send):
            provider.check(WANTED)
            await self.app(scope, receive, send)

    async def order(request):
        return JSONResponse({"done": True})

    inner = [Route("/o/{id}", order, methods=["POST"])]
    assert refuses(
        in_starlette(provider, Mount("/m", routes=inner, middleware=[Middleware(Checking)])), "/m/o/1"
    )


def test_a_provider_in_an_app_and_in_one_that_is_mounted_in_it_is_the_outer_ones():
    provider = provider_for("POST /sub/o")
    inner = fastapi_with(provider, "/o")
    outer = FastAPI()
    install(outer, provider)
    outer.mount("/sub", inner)
    assert refuses(outer, "/sub/o")


def test_a_mounted_app_of_litestar_gets_around_no_policy():
    provider = provider_for("POST /m/o")

    @asgi("/m", is_mount=True, copy_scope=True)
    async def mounted(scope: dict, receive: object, send: object) -> None:
        provider.check(WANTED)
        await JSONResponse({"done": True})(scope, receive, send)

    app = Litestar([mounted], plugins=[ContractPlugin(provider)], logging_config=None)
    assert refuses(app, "/m/o")
    assert refuses(app, "/m/o/")


def test_where_it_cannot_be_seen_which_operation_a_request_is_for_nothing_is_carried_out():
    provider = provider_for("POST /m/orders")
    done = []

    async def opaque(scope, receive, send):
        provider.check(WANTED)
        done.append(scope["path"])

    app = FastAPI()
    install(app, provider)
    app.mount("/m", opaque)
    with calling(app) as client:
        assert client.post("/m/orders", headers=ONCE).status_code == 422
        assert client.post("/m/Orders", headers=ONCE).status_code == 500
    listed = ContractMiddleware(opaque, provider_for("POST /x"), operations=["POST /x"])
    with calling(listed) as client:
        assert client.post("/y", headers=ONCE).status_code == 500
    assert done == []


def test_a_misspelt_operation_is_told_also_with_files_at_the_root(tmp_path):
    app = fastapi_with(provider_for("POST /subscriptionz"), "/subscriptions")
    app.mount("/", StaticFiles(directory=tmp_path, html=True))
    with pytest.raises(RuntimeError, match="there is a policy for POST /subscriptionz"), serving(app):
        pass


def test_an_operation_of_a_part_that_cannot_be_seen_is_told(caplog):
    app = fastapi_with(provider_for("POST /legacy/x"), "/x")
    app.mount("/legacy", lambda scope, receive, send: None)
    with caplog.at_level(logging.WARNING, "shelflife"), calling(app):
        pass
    [warning] = [record.getMessage() for record in caplog.records if record.name == "shelflife"]
    assert (
        warning == "there is a policy for POST /legacy/x, and nobody can see whether the app has such a route"
    )


def test_odd_routes_keep_no_app_from_starting():
    async def anything(request):
        return JSONResponse({})

    provider = provider_for()
    app = in_starlette(
        provider,
        Route("/a b", anything),
        Route("/x", anything, methods=["M-SEARCH"]),
        Route("/{a}.{b}", anything),
    )
    with calling(app) as client:
        assert client.get("/a%20b").status_code == 200
        assert client.get("/c.d").json()["table_versions"]


def test_a_task_that_outlives_its_request_has_none():
    """It knows neither the operation of the next request nor the state that it sees."""
    provider = provider_for("POST /b")
    app = FastAPI()
    install(app, provider)
    asked, workers = asyncio.Queue(), []

    async def work():
        while True:
            future = await asked.get()
            try:
                provider.check(WANTED)
                future.set_result("checked")
            except Exception as error:  # noqa: BLE001 - whatever it is, the handler is told
                future.set_exception(error)

    async def handed_over():
        if not workers:
            workers.append(asyncio.create_task(work()))
        future = asyncio.get_running_loop().create_future()
        await asked.put(future)
        return await future

    @app.post("/a")
    async def first() -> dict:
        return {"said": await handed_over()}

    @app.post("/b")
    async def second() -> dict:
        return {"said": await handed_over()}

    with calling(app) as client:
        assert (
            client.post("/a").status_code == 200
        )  # the worker is begun in it, and its policy is for another
        for _ in range(3):
            refused = client.post("/b", headers=ONCE)
            assert (refused.status_code, "recovery_feedback" in refused.text) == (500, False)


def test_an_operation_that_a_policy_is_for_is_named_in_the_log(caplog):
    """As with a proxy, whose routes nobody can list."""
    provider = provider_for("POST /orders")

    async def app(scope, receive, send):
        await JSONResponse({})(scope, receive, send)

    with caplog.at_level(logging.WARNING, "shelflife"), calling(ContractMiddleware(app, provider)) as client:
        client.post("/orders", headers=unknown_grounds())
    [warning] = [record.getMessage() for record in caplog.records if "carries requests out" in record.message]
    assert warning.startswith("POST /orders carries requests out without judging")


def test_a_path_that_a_client_makes_up_is_not_in_the_log(caplog):
    provider = provider_for()

    async def app(scope, receive, send):
        await JSONResponse({})(scope, receive, send)

    with caplog.at_level(logging.WARNING, "shelflife"), calling(ContractMiddleware(app, provider)) as client:
        for number in range(5):
            client.get(f"/x{number}%0ACRITICAL forged", headers=unknown_grounds())
    [warning] = [record.getMessage() for record in caplog.records if record.name == "shelflife"]
    assert warning.startswith("an operation carries requests out without judging")


def test_an_app_that_gets_the_provider_later_is_held_to_its_policies_too():
    provider = provider_for()
    with calling(fastapi_with(provider, "/one")) as client:
        assert client.post("/one", json=WANTED).status_code == 422
    second = fastapi_with(provider, "/two")
    with calling(second) as client:
        asked = {"operation": "POST /two", "request": WANTED}
        assert client.post("/contract/fixes", json=asked).status_code == 200
    third = FastAPI()
    install(third, provider, fixes=["POST /nowhere"])
    with pytest.raises(RuntimeError, match="fixes are to be told of POST /nowhere"), serving(third):
        pass


def test_endpoints_by_hand_are_where_they_are_mounted_and_nowhere_else():
    provider = provider_for()
    for app in (
        contract_app(provider),
        Starlette(routes=[Mount("/contract", app=contract_app(provider))]),
        Starlette(routes=[Mount("/api", app=contract_app(provider))]),
    ):
        prefix = "/api" if isinstance(app, Starlette) and app.routes[0].path == "/api" else ""
        with calling(app) as client:
            assert client.get(f"{prefix}/contract/state").status_code == 200
            for path in ("/contract/a/b/state", "/contract/x/state", "/contract/nothing"):
                assert client.get(prefix + path).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("POST", "/o/7", "POST /o/{id}"),
        ("POST", "/o/7/", "POST /o/{id}"),
        ("POST", "//o//7\n", "POST /o/{id}"),
        ("HEAD", "/o/7", "GET /o/{id}"),
        ("GET", "/files/a/b", "GET /files/{path}"),
        ("GET", "/", "GET /"),
        ("POST", "/o/7/x", None),
        ("PUT", "/o/7", None),
    ],
)
def test_operations_are_found_by_requests(method, path, name):
    operations = Operations.named(["POST /o/{id:int}", "GET /o/{id}", "GET /files/{path:path}", "GET /"])
    found = operations.find(method, path)
    assert (found and found.name) == name


def test_two_routes_of_one_name_are_as_closed_as_the_more_closed_one():
    both = Operations(
        [
            Operation.of_route("POST", "/o/{id}", guards=(), is_shown=True),
            Operation.of_route("POST", "/o/{id:int}", guards=("a login",), is_shown=False),
        ]
    )
    [operation] = both
    assert (operation.is_guarded, operation.is_shown) == (True, False)
    assert operation.name == operation_name("POST /o/{id:int}")


def test_litestar_answers_an_operator_below_a_path():
    provider = provider_for(admin_token="t")

    @post("/x", status_code=200)
    async def operation(request: Request) -> dict:
        return {}

    app = Litestar([operation], path="/api", plugins=[ContractPlugin(provider)], logging_config=None)
    with calling(app) as client:
        assert client.get("/api/contract/state").status_code == 200
        assert client.get("/api/admin/graph").status_code == 401
        assert client.get("/api/admin/graph", headers={"Authorization": "Bearer t"}).status_code == 200


def test_a_policy_may_be_for_all_paths_below_one():
    provider = provider_for("POST /files/{path:path}")

    async def app(scope, receive, send):
        provider.check(WANTED)

    for middleware in (
        ContractMiddleware(app, provider),
        ContractMiddleware(app, provider, operations=["POST /files/{path:path}"]),
    ):
        assert refuses(middleware, "/files/a/b")


class CountedStarlette(Starlette):
    """Counts how often its routes are listed."""

    listing_count = 0

    @property
    def routes(self):
        self.listing_count += 1
        return super().routes


def test_endpoints_that_cannot_be_seen_are_looked_for_once():
    async def told(request):
        return JSONResponse({})

    async def also_told(request):
        return JSONResponse({})

    inner = Starlette(routes=[Route("/one", told), Route("/other", also_told)])

    async def around(scope, receive, send):
        await inner(scope, receive, send)

    app = CountedStarlette(routes=[Mount("/hidden", app=around)])
    install_in_starlette(app, provider_for())
    with calling(app) as client:
        counts = []
        for _ in range(3):
            assert [client.get(f"/hidden/{path}").status_code for path in ("one", "other")] == [200, 200]
            counts.append(app.listing_count)
    assert counts[0] == counts[1] == counts[2]
