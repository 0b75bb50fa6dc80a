"""A policy that is declared is enforced, and what the app answers is what the client gets."""

import asyncio
import concurrent.futures
import contextlib
import json
import logging
import os
import re
import threading
from pathlib import Path

import httpx2
import pytest
from fastapi import BackgroundTasks, FastAPI, WebSocket
from litestar import Litestar, post
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from shelflife.integrations.asgi import ContractMiddleware
from shelflife.integrations.fastapi import install
from shelflife.integrations.litestar import ContractPlugin
from shelflife.server import PreconditionFailed, Provider, Rejected, UsageError, WireFormat, fix
from shelflife.testing import serving
from tests.calling import calling
from tests.integrations.checked import (
    FRAMEWORKS,
    WANTED,
    checking,
    fastapi_with,
    included_in_fastapi,
    plain_with,
    provider_for,
)
from tests.integrations.doors import grounds_at, unknown_grounds
from tests.integrations.positions import position_of


@pytest.mark.spec("3.9", "3.10")
@pytest.mark.parametrize("framework", [*FRAMEWORKS, "included"])
@pytest.mark.parametrize("at", ["", "/api"])
def test_a_check_knows_the_operation_of_its_request(framework, at):
    provider = provider_for("POST /v1/orders/{id}")
    make = FRAMEWORKS.get(framework, included_in_fastapi)
    app = make(provider, "/v1/orders/{id}")
    with calling(Starlette(routes=[Mount(at, app=app)]) if at else app) as client:
        refused = client.post(f"{at}/v1/orders/7", json=WANTED)
        assert (refused.status_code, refused.json().get("success")) == (422, False)
        assert client.post(f"{at}/v1/orders/7", json=WANTED | {"promo": "A"}).status_code == 200


@pytest.mark.parametrize("framework", ["fastapi", "starlette", "mounted", "litestar"])
def test_a_policy_for_an_operation_that_there_is_not_keeps_the_app_from_starting(framework):
    app = FRAMEWORKS[framework](provider_for("POST /v1/ordres/{id}"), "/v1/orders/{id}")
    with pytest.raises(
        Exception, match=r"there is a policy for POST /v1/ordres/\{id\}, and the app has no such route"
    ):
        run_lifespan(app)


def run_lifespan(app):
    """What a server does with an app when it starts."""

    async def live():
        sent = []

        async def receive():
            return {"type": "lifespan.startup"}

        async def send(message):
            sent.append(message)
            if message["type"] == "lifespan.startup.failed":
                raise RuntimeError(message["message"])
            raise asyncio.CancelledError

        with contextlib.suppress(asyncio.CancelledError):
            await app({"type": "lifespan", "state": {}, "asgi": {}}, receive, send)

    asyncio.run(live())


def test_without_a_start_the_first_request_finds_it_out_and_nothing_is_carried_out():
    app = Starlette(routes=[Mount("/sub", app=fastapi_with(provider_for("POST /plian"), "/plain"))])
    with calling(app) as client:  # whose lifespan is not that of the mounted app
        assert client.post("/sub/plain", json=WANTED).status_code == 500


def test_a_server_does_not_start_with_it():
    app = fastapi_with(provider_for("POST /plian"), "/plain")
    message = "there is a policy for POST /plian, and the app has no such route; is it POST /plain?"
    with pytest.raises(UsageError, match=re.escape(message)), TestClient(app):
        pass
    with pytest.raises(RuntimeError, match=re.escape(f"the app did not start: {message}")), serving(app):
        pass


def test_a_policy_that_is_added_later_is_held_to_the_operations_too():
    provider = provider_for("POST /plain")
    with calling(fastapi_with(provider, "/plain")) as client:
        assert client.post("/plain", json=WANTED).status_code == 422
        provider.policy(operation="POST /plian")(lambda request, tables: None)
        assert client.post("/plain", json=WANTED).status_code == 500


def test_under_a_part_of_the_app_that_cannot_be_seen_an_operation_may_be():
    provider = provider_for("POST /legacy/orders")

    async def legacy(scope, receive, send):
        await checking_app(provider)(scope, receive, send)

    app = FastAPI()
    install(app, provider)
    app.mount("/legacy", legacy)
    with calling(app) as client:
        assert client.post("/legacy/orders", json=WANTED).status_code == 422


def checking_app(provider):
    async def app(scope, receive, send):
        provider.check(json.loads((await receive())["body"]))
        await JSONResponse({"done": True})(scope, receive, send)

    return app


def test_where_routes_cannot_be_listed_the_first_check_tells(caplog):
    provider = provider_for("POST /plian")
    with caplog.at_level(logging.WARNING, "shelflife"), calling(plain_with(provider, "/plain")) as client:
        for _ in range(3):
            assert client.post("/plain", json=WANTED).status_code == 200
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning.startswith(
        "there are policies for POST /plian, and nobody has looked whether the app has such"
    )


def test_operations_that_are_given_are_held_to():
    provider = provider_for("POST /plian")
    plain = Starlette(routes=[Route("/plain", checking(provider), methods=["POST"])])
    with pytest.raises(Exception, match="there is a policy for POST /plian"):
        run_lifespan(ContractMiddleware(plain, provider, operations=["POST /plain"]))
    app = ContractMiddleware(checking_app(provider), provider, operations=["POST /plain"])
    with calling(app, lifespan="off") as client:
        assert client.post("/plain", json=WANTED).status_code == 500


def test_a_check_may_be_for_another_operation_that_there_is_and_for_no_other():
    provider = provider_for("POST /orders")
    app = fastapi_with(provider, "/orders")

    @app.post("/batch")
    def batch(operation: str) -> dict:
        provider.check(WANTED, operation)
        return {"done": True}

    with calling(app) as client:
        assert client.post("/batch", params={"operation": "POST /orders"}).status_code == 422
        assert client.post("/batch", params={"operation": "POST /batch"}).status_code == 200
        for operation in ("POST /ordres", "nonsense"):
            refused = client.post("/batch", params={"operation": operation}, headers={"Connection": "close"})
            assert refused.status_code == 500


def app_in_threads(provider):
    """An app that checks in every place where a request can get lost."""
    app = FastAPI()
    install(app, provider)
    done = []

    def checked():
        provider.check(WANTED)

    @app.post("/executor")
    async def executor():
        await asyncio.get_running_loop().run_in_executor(None, checked)
        done.append("executor")

    @app.post("/pool")
    def pool():
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            threads.submit(checked).result()
        done.append("pool")

    @app.post("/thread")
    async def thread():
        await asyncio.to_thread(checked)
        done.append("thread")

    @app.post("/task")
    async def task():
        await asyncio.create_task(asyncio.to_thread(checked))
        done.append("task")

    @app.post("/group")
    async def group():
        async def one():
            checked()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(one())
            tasks.create_task(one())
        done.append("group")

    @app.post("/mixed")
    async def mixed():
        async def one():
            checked()

        async def other():
            raise RuntimeError("something else")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(one())
            tasks.create_task(other())
        done.append("mixed")

    @app.post("/background")
    async def background(tasks: BackgroundTasks):
        tasks.add_task(checked)
        return {"done": True}

    return app, done


@pytest.mark.parametrize("operation", [None, "POST /{way}"])
@pytest.mark.parametrize(
    ("way", "status"),
    [("executor", 500), ("pool", 500), ("thread", 422), ("task", 422), ("group", 422), ("mixed", 500)],
)
def test_a_check_knows_its_request_or_raises(way, status, operation):
    provider = provider_for(operation and operation.format(way=way))
    app, done = app_in_threads(provider)
    with calling(app) as client:
        response = client.post(f"/{way}")
    assert (response.status_code, done) == (status, [])
    assert ("recovery_feedback" in response.text) == (status == 422)


def test_a_lost_request_is_told_in_a_sentence():
    provider = provider_for()
    app, _ = app_in_threads(provider)
    with pytest.raises(
        UsageError, match=r"run it by asyncio\.to_thread, and outside of a request ask for violations"
    ):
        provider.check(WANTED)
    assert app is not None
    assert len(provider.violations(WANTED)) == 1


def test_a_websocket_asks_for_violations():
    provider = provider_for("POST /x")
    app = fastapi_with(provider, "/x")

    @app.websocket("/ws")
    async def told(socket: WebSocket):
        await socket.accept()
        await socket.send_json([one.suggestion.type for one in provider.violations(WANTED, "POST /x")])
        await socket.close()

    with TestClient(app) as client, client.websocket_connect("/ws") as socket:
        assert socket.receive_json() == ["USE"]


def test_a_refusal_in_a_background_task_is_no_second_response():
    app, _ = app_in_threads(provider_for())
    with calling(app) as client:
        assert client.post("/background").json()["done"] is True


@pytest.mark.parametrize("level", [0, 6])
@pytest.mark.parametrize("status", [200, 409, 500, 503])
@pytest.mark.parametrize("framework", ["fastapi", "mounted", "litestar"])
def test_what_an_app_makes_of_a_refusal_that_it_handles_is_what_the_client_gets(
    status, framework, level, caplog
):
    provider = provider_for(wire=WireFormat(level=level))

    def paid():
        with contextlib.suppress(Rejected):
            provider.check(WANTED)
        return {"error": "paid, but the mail could not be sent", "charge": "ch_1"}

    if framework == "litestar":

        @post("/pay", status_code=status)
        async def pay() -> dict:
            return paid()

        app = Litestar([pay], plugins=[ContractPlugin(provider)], logging_config=None)
    else:
        inner = FastAPI()
        inner.add_api_route("/pay", lambda: JSONResponse(paid(), status), methods=["POST"])
        app = FastAPI()
        install(app, provider)
        app.mount("/", inner)
    with caplog.at_level(logging.WARNING, "shelflife"), calling(app) as client:
        response = client.post("/pay")
    assert response.status_code == status
    assert response.json()["charge"] == "ch_1"
    assert ("table_versions" in response.json()) == (status < 500 and level > 0)
    assert ("answered a refusal of check with 500" in caplog.text) == (status == 500)


def test_another_error_after_a_refusal_that_was_handled_is_the_apps_own():
    provider = provider_for()
    inner = FastAPI()

    @inner.post("/pay")
    def pay():
        with contextlib.suppress(Rejected):
            provider.check(WANTED)
        raise RuntimeError("boom")

    app = FastAPI()
    install(app, provider)
    app.mount("/", inner)
    with calling(app) as client:
        response = client.post("/pay")
    assert (response.status_code, response.text) == (500, "Internal Server Error")


def test_a_long_500_is_not_held_back_for_ever():
    provider = provider_for()

    async def app(scope, receive, send):
        with contextlib.suppress(Rejected):
            provider.check(WANTED)
        await send({"type": "http.response.start", "status": 500, "headers": []})
        for _ in range(3):
            await send({"type": "http.response.body", "body": b"x" * 700_000, "more_body": True})
        await send({"type": "http.response.body", "body": b"end"})

    with calling(ContractMiddleware(app, provider)) as client:
        assert len(client.post("/").content) == 2_100_003


@pytest.mark.spec("12.4")
def test_a_handler_of_refusals_does_not_swallow_a_failed_precondition():
    provider = provider_for()
    app = FastAPI()
    install(app, provider)
    done = []

    @app.post("/pay")
    def pay(wanted: dict):
        with contextlib.suppress(Rejected):
            provider.check(wanted)
        done.append(wanted)
        return {"done": True}

    with calling(app) as client:
        refused = client.post("/pay", json=WANTED | {"promo": "A"}, headers=unknown_grounds())
        assert (refused.status_code, done) == (412, [])
        assert refused.headers["contract-precondition"] == "failed"
        assert client.post("/pay", json=WANTED).status_code == 200


@pytest.mark.spec("12.8")
def test_the_reply_says_what_became_of_a_precondition(caplog):
    provider = provider_for()
    app = FastAPI()
    install(app, provider)

    @app.post("/judged")
    def judged(wanted: dict):
        provider.check(wanted)
        provider.check(wanted)
        return {"done": True}

    @app.post("/swallowed")
    def swallowed(wanted: dict):
        with contextlib.suppress(PreconditionFailed):
            provider.check(wanted)
        return {"done": True}

    @app.post("/unjudged")
    def unjudged(wanted: dict):
        return {"done": True}

    good = WANTED | {"promo": "A"}
    with caplog.at_level(logging.WARNING, "shelflife"), calling(app) as client:
        holds = grounds_at(position_of(provider))
        assert client.post("/judged", json=good, headers=holds).headers["contract-precondition"] == "met"
        assert client.post("/judged", json=WANTED, headers=holds).headers["contract-precondition"] == "met"
        failed = client.post("/swallowed", json=good, headers=unknown_grounds())
        assert (failed.status_code, failed.headers["contract-precondition"]) == (200, "failed")
        assert caplog.records == []
        for _ in range(3):
            assert "contract-precondition" not in client.post("/unjudged", json=good, headers=holds).headers
        assert client.post("/unjudged", content=b"{", headers=holds).status_code == 422
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning == (
        "POST /unjudged carries requests out without judging their preconditions; call check in it first"
    )


@pytest.mark.spec("12.6")
def test_a_precondition_that_cannot_be_read_never_reaches_the_app():
    provider = provider_for()
    reached = []

    async def app(scope, receive, send):
        reached.append(scope["path"])
        await JSONResponse({})(scope, receive, send)

    with calling(ContractMiddleware(app, provider)) as client:
        refused = client.post("/", headers={"Contract-Precondition": "nonsense"})
    assert (refused.status_code, reached) == (400, [])


@pytest.mark.parametrize("lifespan", ["off", "auto", "on"])
def test_the_log_stays_open_for_as_long_as_the_app_lives(tmp_path, lifespan):
    """Also for an app that does not speak of its life, which a server asks about all the same."""
    provider = Provider({"t": {"a": {}}}, admin_token="t", log=tmp_path / "state.db")

    async def plain(scope, receive, send):
        assert scope["type"] == "http"
        await JSONResponse({"ok": True})(scope, receive, send)

    app = ContractMiddleware(plain, provider) if lifespan != "on" else fastapi_with(provider, "/x")
    with serving(app, lifespan=lifespan) as address:
        change = {"table": "t", "set": {"a": {"n": 1}}}
        reloaded = httpx2.post(
            f"{address}/admin/reload-table", json=change, headers={"Authorization": "Bearer t"}
        )
        assert reloaded.status_code == 200
    provider.close()
    assert Provider({"t": {"a": {}}}, log=tmp_path / "state.db").registry.rows("t") == {"a": {"n": 1}}


def is_open(path):
    """Whether this process has a file open."""
    return str(path) in [os.path.realpath(one) for one in Path("/proc/self/fd").iterdir()]


def test_an_app_that_ends_lets_go_of_the_log(tmp_path):
    path = tmp_path / "state.db"
    provider = Provider({"t": {"a": {}}}, log=path)
    with TestClient(fastapi_with(provider, "/x")):
        assert is_open(path)
    assert not is_open(path)


def test_requests_at_the_same_time_do_not_see_each_others_failures():
    provider = provider_for()
    app = FastAPI()
    install(app, provider)
    both = threading.Barrier(2)

    @app.post("/x")
    def operation(wanted: dict):
        both.wait(60)
        provider.check(wanted)
        both.wait(60)
        return {"done": True}

    @app.post("/y")
    def other(wanted: dict):
        both.wait(60)
        with contextlib.suppress(Rejected):
            provider.check(wanted)
        both.wait(60)
        return JSONResponse({"mine": True}, 500)

    with calling(app) as client, concurrent.futures.ThreadPoolExecutor(2) as threads:
        good = threads.submit(client.post, "/x", json=WANTED | {"promo": "A"})
        bad = threads.submit(client.post, "/y", json=WANTED)
        assert good.result().json()["done"] is True
        assert (bad.result().status_code, bad.result().json()) == (500, {"mine": True})


@pytest.mark.spec("3.11")
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("level", [0, 6])
@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("NaN", "a number that JSON cannot carry"),
        ("-Infinity", "a number that JSON cannot carry"),
        ("1e400", "a number that JSON cannot carry"),
        ('"\\ud800"', "Unicode"),
        ("[" * 200 + "]" * 200, "nested"),
    ],
)
def test_what_json_cannot_carry_is_the_clients_mistake(framework, level, value, fault):
    provider = Provider({"codes": {"growth": {"code": "A"}}}, wire=WireFormat(level=level))

    @provider.policy
    def whatever_it_is(request, tables):
        return fix("USE", n=len(tables.codes)) if request.get("n") is not None else None

    with calling(FRAMEWORKS[framework](provider, "/v1/orders")) as client:
        sent = {"content": f'{{"n": {value}}}', "headers": {"Content-Type": "application/json"}}
        refused = client.post("/v1/orders", **sent)
    assert (refused.status_code, refused.text.count("\n") <= 1) == (400, True)
    assert fault in refused.text
    assert "codes" not in refused.text
    assert not any(name.startswith("contract-") for name in refused.headers)


def test_a_log_is_open_as_long_as_the_last_app_and_again_when_one_begins(tmp_path):
    path = tmp_path / "state.db"
    provider = Provider({"t": {"a": {}}}, log=path)
    one, two = fastapi_with(provider, "/one"), fastapi_with(provider, "/two")
    with TestClient(one) as client:
        with TestClient(two):
            pass
        assert is_open(path)
        provider.registry.reload_table("t", set={"a": {"n": 1}})
        assert client.get("/contract/state").json()["table_versions"] == provider.state.table_versions
    assert not is_open(path)
    with TestClient(one):
        assert is_open(path)
        provider.registry.reload_table("t", set={"a": {"n": 2}})
    assert not is_open(path)
    again = Provider({"t": {"a": {}}}, log=path)
    assert again.registry.rows("t") == {"a": {"n": 2}}
    again.close()
