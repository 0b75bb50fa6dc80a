"""Whoever may not ask the app may not ask the contract."""

import contextlib
import itertools
import json
from http.client import HTTPConnection

import pytest
from fastapi import Depends, FastAPI, HTTPException, Security
from fastapi.security import SecurityScopes
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.routing import Mount

from shelflife.integrations.asgi import ContractMiddleware, contract_app
from shelflife.integrations.fastapi import install
from shelflife.integrations.litestar import ContractPlugin
from shelflife.server import Provider, UsageError, fix
from tests.calling import calling
from tests.integrations.doors import (
    APPS,
    GOOD,
    KEY,
    OPERATION,
    SECRETS,
    WANTED,
    api_key,
    fastapi_app,
    litestar_with_an_open_route,
    mounted,
    shop,
    starlette_with_an_open_route,
    unknown_grounds,
)
from tests.integrations.positions import known_position

OPERATOR = {"Authorization": "Bearer operator"}
ASKED = {"operation": "POST /orders/7", "request": WANTED}
PATHS = (
    *(
        "/orders/3",
        "/orders/x",
        "/orders",
        "/nowhere",
        "/open",
        "/openapi.json",
        "/docs",
        "/schema/openapi.json",
    ),
    *("/contract/state", "/contract/changes", "/contract/fixes", "/contract/signed", "/contract/nothing"),
    *(
        "/contract/state/",
        "//contract/state",
        "/contract/../contract/state",
        "/contract%2fstate",
        "/CONTRACT/state",
    ),
    *("/admin/graph", "/admin/reload-table", "/admin/reload-rules"),
)
HEADERS = (
    {},
    {"Contract-At": "*;n=e3"},
    {"Contract-At": "Abcdef99:m1"},
    {"Contract-Precondition": "nonsense"},
    unknown_grounds(),
    {"Accept": "application/problem+json"},
    {"X-Api-Key": "wrong"},
    {"Authorization": "Bearer wrong"},
)


def answered(plain, method, path, headers):
    """The headers of an answer by their names, and all its bytes. The standard library is quick, and sends a path as it stands."""
    sends = method in ("POST", "PUT")
    body = json.dumps(ASKED if path == "/contract/fixes" else WANTED) if sends else None
    typed = {"Content-Type": "application/json"} if sends else {}
    plain.request(method, path, body, {"Accept": "*/*", **typed, **headers})
    response = plain.getresponse()
    head = "\n".join(f"{name}: {value}" for name, value in response.getheaders())
    names = [name.lower() for name, _ in response.getheaders()]
    return names, (head.encode("latin-1") + b"\n\n" + response.read()).lower()


@pytest.fixture(params=APPS)
def door(request):
    provider = shop()
    with calling(APPS[request.param](provider), follow_redirects=False) as client:
        yield client, provider, request.param


@pytest.mark.spec("10.3", "10.4", "5.10", "5.11", "11.16")
def test_without_the_key_nobody_is_told_anything(door):
    client, _, _ = door
    with contextlib.closing(HTTPConnection(client.base_url.host, client.base_url.port)) as plain:
        for asked in itertools.product(("GET", "HEAD", "POST", "PUT", "OPTIONS"), PATHS, HEADERS):
            names, told = answered(plain, *asked)
            assert not [secret for secret in SECRETS if secret.lower() in told], (asked, told)
            assert not [name for name in names if name.startswith("contract-")], asked
    listening = {"Accept": "text/event-stream"}
    with client.stream("GET", "/contract/changes", headers=listening) as response:
        assert response.headers["content-type"] != "text/event-stream"


@pytest.mark.spec("10.3")
def test_with_the_key_everything_is_answered(door):
    client, provider, _ = door
    refused = client.post("/orders/3", json=WANTED, headers=KEY)
    assert refused.status_code == 422
    assert refused.json()["recovery_feedback"]["suggestions"][0]["parameters"] == {
        "promo_code": "HiddenValue"
    }
    done = client.post("/orders/3", json=GOOD, headers=KEY)
    assert (done.status_code, done.json()["done"]) == (200, 3)
    assert done.json()["table_versions"] == {"HiddenTable": "hidden-version"}
    assert (
        client.get("/contract/state", headers=KEY).json()["table_versions"] == done.json()["table_versions"]
    )
    changes = client.get("/contract/changes", params={"since": "HiddenTable:0"}, headers=KEY)
    assert changes.json()["tables"]["HiddenTable"]["known"] is False
    asked = client.post("/orders/3", json=WANTED, headers=KEY | {"Contract-At": "*;n=e3"}).json()
    assert asked["at"] == {"to": known_position(client, headers=KEY), "nonce": "e3"}
    assert asked["recovery_feedback"]["suggestions"][0]["on"]["HiddenTable"] == {"=plan": "code"}
    unmet = client.post("/orders/3", json=GOOD, headers=KEY | unknown_grounds())
    assert (unmet.status_code, unmet.headers["contract-precondition"]) == (412, "failed")
    with client.stream("GET", "/contract/changes", headers=KEY | {"Accept": "text/event-stream"}) as response:
        assert next(response.iter_lines()).startswith("id: ")
    assert provider.feed.listener_count in (0, 1)  # whether the server has noticed


@pytest.mark.spec("10.1")
def test_the_operators_endpoints_need_their_own_token_and_no_login(door):
    client, provider, _ = door
    change = {"table": "HiddenTable", "set": {"growth": {"code": "Other"}}}
    assert client.post("/admin/reload-table", json=change, headers=KEY).status_code == 401
    assert client.post("/admin/reload-table", json=change, headers=OPERATOR).status_code == 200
    assert provider.registry.rows("HiddenTable") == {"growth": {"code": "Other"}}
    assert client.get("/admin/graph", headers=OPERATOR).status_code == 200


@pytest.mark.spec("12.7")
def test_fixes_are_told_to_who_has_passed_what_the_operation_asks_for(door):
    """Where that can be compared: a middleware may let the contract through and keep others out."""
    client, _, name = door
    told = client.post("/contract/fixes", json=ASKED, headers=KEY)
    if "middleware" in name:
        assert (told.status_code, "HiddenValue" in told.text) == (404, False)
        return
    [suggestion] = told.json()["recovery_feedback"]["suggestions"]
    assert suggestion["parameters"] == {"promo_code": "HiddenValue"}


def test_under_a_path_the_login_of_the_outer_app_holds():
    with calling(mounted(shop())) as client:
        assert client.get("/api/contract/state").status_code == 401
        assert client.get("/api/contract/state", headers=KEY).status_code == 200
        assert client.post("/api/orders/3", json=WANTED).status_code == 401
        assert client.post("/api/orders/3", json=WANTED, headers=KEY).status_code == 422
        assert client.post("/api/admin/reload-table", json={}, headers=OPERATOR | KEY).status_code == 422


def guarded_shop(*, route_dependencies, operation=OPERATION, **options):
    """An app whose one route has dependencies of its own."""
    provider = shop()
    app = FastAPI()
    install(app, provider, **options)

    @app.post("/orders/{id}", dependencies=route_dependencies)
    def order(id: int, wanted: dict) -> dict:
        provider.check(wanted)
        return {"done": id}

    return app


def session():
    yield "a database session"


def scoped(scopes: SecurityScopes):
    if scopes.scopes:
        raise HTTPException(403, "no")


@pytest.mark.spec("12.10")
@pytest.mark.parametrize(
    ("route_dependencies", "options", "is_told"),
    [
        ([], {}, True),
        ([Depends(api_key)], {}, False),
        ([Depends(session)], {}, False),
        ([Depends(api_key)], {"dependencies": [Depends(api_key)]}, True),
        ([Security(scoped, scopes=["write"])], {"dependencies": [Security(scoped, scopes=[])]}, False),
        ([Depends(session)], {"fixes": [OPERATION]}, True),
        ([], {"fixes": []}, False),
    ],
)
def test_what_only_a_route_asks_for_keeps_its_fixes_from_being_told(route_dependencies, options, is_told):
    with calling(guarded_shop(route_dependencies=route_dependencies, **options)) as client:
        told = client.post("/contract/fixes", json=ASKED, headers=KEY)
    assert ("HiddenValue" in told.text) == is_told
    assert told.status_code == (200 if is_told else 404)


@pytest.mark.parametrize("names", [["POST /orders"], ["POST /orders/{id}", "POST /order/{id}"]])
def test_fixes_of_an_operation_that_there_is_not_cannot_be_named(names):
    message = r"fixes are to be told of \S+ \S+, and the app has no such route; is it POST /orders/\{id\}\?"
    with pytest.raises(RuntimeError, match=message), calling(fastapi_app(shop(), fixes=names)):
        pass
    mounted_by_hand = Starlette(
        routes=[Mount("/contract", app=contract_app(provider := shop(), fixes=names))]
    )
    by_hand = ContractMiddleware(mounted_by_hand, provider, operations=[OPERATION])
    with pytest.raises(RuntimeError, match=message), calling(by_hand):
        pass


@pytest.mark.spec("5.10")
def test_an_operation_that_asks_for_less_than_the_contract_tells_no_version():
    provider = shop()
    app = FastAPI()
    install(app, provider, dependencies=[Depends(api_key)])

    @app.get("/open")
    def ask() -> dict:
        return {"open": True}

    @app.get("/closed", dependencies=[Depends(api_key)])
    def ask_with_a_key() -> dict:
        return {"open": False}

    @app.post("/orders/{id}")
    def order(id: int, wanted: dict) -> dict:
        return {"done": id}

    with calling(app, headers=KEY) as client:
        assert client.get("/open").json() == {"open": True}
        assert client.get("/closed").json()["table_versions"] == {"HiddenTable": "hidden-version"}


def test_an_app_that_leaves_the_contract_open_is_told_so(caplog):
    app = guarded_shop(route_dependencies=[Depends(api_key), Depends(session)])
    with calling(app) as client:
        assert client.get("/contract/state").status_code == 200
    [warning] = [record.getMessage() for record in caplog.records if record.name == "shelflife"]
    assert warning.startswith(
        "POST /orders/{id} asks for api_key, and the contract's endpoints do not: whoever can reach them"
    )
    caplog.clear()
    with calling(guarded_shop(route_dependencies=[Depends(api_key)], dependencies=[])) as client:
        assert client.get("/contract/state").status_code == 200
    assert not [record for record in caplog.records if record.name == "shelflife"]


@pytest.mark.spec("13.7")
def test_a_feed_holds_nothing_that_a_dependency_has_opened():
    opened, closed = [], []

    def database():
        opened.append(1)
        yield
        closed.append(1)

    provider = Provider({"t": {"a": {}}})
    app = FastAPI(dependencies=[Depends(database)])

    class Passing(BaseHTTPMiddleware):
        async def dispatch(self, request, call_next):
            return await call_next(request)

    app.add_middleware(Passing)
    install(app, provider)
    listening = {"Accept": "text/event-stream"}
    with calling(app) as client, client.stream("GET", "/contract/changes", headers=listening) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("id: ")
        assert (opened, closed) == ([1], [1])
        provider.registry.reload_table("t", set={"a": {"n": 1}})
        assert "event: moved" in lines


def test_a_route_that_takes_every_path_does_not_hide_the_contract():
    provider = Provider({"t": {}})
    app = FastAPI()

    @app.get("/{path:path}")
    def anything(path: str) -> dict:
        return {"path": path}

    install(app, provider)
    with calling(app) as client:
        assert client.get("/contract/state").json()["table_versions"].keys() == {"t"}


def test_a_contract_cannot_be_installed_in_an_app_that_serves():
    app = FastAPI()
    with calling(app) as client:
        client.get("/")
    with pytest.raises(UsageError, match="an app that serves already"):
        install(app, Provider({}))


def test_policies_of_two_apps_that_share_a_provider_are_held_to_both():
    provider = Provider({"t": {"a": {}}})
    provider.policy(operation="POST /one")(lambda request, tables: fix("ONE", one=tables.t["a"].key))
    provider.policy(operation="POST /two")(lambda request, tables: fix("TWO", two=tables.t["a"].key))

    def app_with(path):
        app = FastAPI()
        install(app, provider)

        @app.post(path)
        def operation(wanted: dict) -> dict:
            provider.check(wanted)
            return {}

        return app

    apps = [app_with("/one"), app_with("/two")]
    with contextlib.ExitStack() as stack:
        one, two = [stack.enter_context(calling(app)) for app in apps]
        assert one.post("/one", json={}).json()["recovery_feedback"]["suggestions"][0]["type"] == "ONE"
        assert two.post("/two", json={}).json()["recovery_feedback"]["suggestions"][0]["type"] == "TWO"


def test_a_second_contract_in_one_app_is_refused():
    app = FastAPI()
    install(app, Provider({}))
    with pytest.raises(UsageError, match="a contract is installed in this app already"):
        install(app, Provider({}))


@pytest.mark.parametrize("dependencies", [[api_key], Depends(api_key), "login"])
def test_what_are_no_dependencies_is_told(dependencies):
    with pytest.raises(UsageError, match=r"are a list of Depends\(\.\.\.\)"):
        install(FastAPI(), Provider({}), dependencies=dependencies)


def test_one_text_is_no_list_of_operations():
    for use in (
        lambda: install(FastAPI(), Provider({}), fixes="POST /x"),
        lambda: contract_app(Provider({}), fixes="POST /x"),
        lambda: ContractMiddleware(None, Provider({}), operations="POST /x"),
        lambda: ContractPlugin(Provider({}), fixes="POST /x"),
    ):
        with pytest.raises(UsageError, match="'POST /x' is one text; give a list of operations"):
            use()


@pytest.mark.spec("5.10")
@pytest.mark.parametrize("framework", ["starlette", "litestar"])
def test_where_the_contract_has_a_guard_what_has_none_tells_no_version(framework, caplog):
    """And where it has none, though some operation has, its provider is told."""
    for is_guarded in (True, False):
        caplog.clear()
        app = (starlette_with_an_open_route if framework == "starlette" else litestar_with_an_open_route)(
            shop(), is_guarded=is_guarded
        )
        with calling(app) as client:
            assert ("HiddenTable" in client.get("/open").text) == (not is_guarded)
            is_stamped = "HiddenTable" in client.get("/closed", headers=KEY).text
            assert is_stamped == (framework == "litestar")
            assert client.get("/contract/state").status_code == (401 if is_guarded else 200)
        warnings = [record.getMessage() for record in caplog.records if record.name == "shelflife"]
        assert len(warnings) == (not is_guarded)
        assert all(
            "GET /closed asks for" in warning or "(and 1 more) asks for" in warning for warning in warnings
        )
