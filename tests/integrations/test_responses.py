"""What an app answers is what the client gets, and what the contract answers has one form."""

import asyncio
import contextlib
import logging

import pytest
from fastapi import Depends, FastAPI, Request
from litestar import Litestar, get, post
from litestar.response import Response as LitestarResponse
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from shelflife.contract.preconditions import Precondition
from shelflife.integrations.asgi import ContractMiddleware, contract_app
from shelflife.integrations.fastapi import install
from shelflife.integrations.litestar import ContractPlugin
from shelflife.integrations.starlette import install as install_in_starlette
from shelflife.server import Provider, Rejected, WireFormat
from shelflife.server.endpoints import CHANGES_PATH, ContractEndpoints, EndpointCall
from shelflife.server.feed import Feed
from tests.calling import calling
from tests.integrations.checked import FRAMEWORKS, WANTED, checking, fastapi_with, provider_for
from tests.integrations.doors import grounds_at
from tests.integrations.event_streams import LISTENING
from tests.integrations.positions import position_of
from tests.open_contract import openly


@pytest.mark.spec("10.4", "5.10")
@pytest.mark.parametrize("way", ["fastapi", "litestar hook", "litestar middleware", "starlette", "contract"])
def test_a_login_that_answers_with_a_success_tells_no_version(way):
    class NotLoggedIn(Exception):
        pass

    def login():
        raise NotLoggedIn

    class LoginPage:
        def __init__(self, app):
            self.app = app

        async def __call__(self, scope, receive, send):
            await JSONResponse({"please": "log in"})(scope, receive, send)

    provider = provider_for()
    path = "/x"
    if way in ("fastapi", "contract"):
        app = FastAPI(dependencies=[Depends(login)])
        install(app, provider)
        app.get("/x")(lambda: {"a": 1})
        app.exception_handler(NotLoggedIn)(lambda request, error: JSONResponse({"please": "log in"}))
        path = "/contract/state" if way == "contract" else path
    elif way == "starlette":

        async def told(request):
            return JSONResponse({"a": 1})

        app = Starlette(routes=[Route("/x", told, middleware=[Middleware(LoginPage)])])
        install_in_starlette(app, provider)
    else:
        options = {"before_request": lambda request: LitestarResponse({"please": "log in"})}
        if way == "litestar middleware":
            options = {"middleware": [LoginPage]}

        @get("/x", **options)
        async def answer() -> dict:
            return {"a": 1}

        app = Litestar([answer], plugins=[ContractPlugin(provider)], logging_config=None)
    with calling(app) as client:
        response = client.get(path)
    assert (response.status_code, response.json()) == (200, {"please": "log in"})
    assert not [name for name in response.headers if name.startswith("contract-")]


@pytest.mark.spec("12.8")
@pytest.mark.parametrize("status", [200, 409, 500, 503])
@pytest.mark.parametrize("framework", ["fastapi", "litestar"])
def test_every_response_to_a_judged_request_says_so(framework, status):
    provider = provider_for()

    def handled():
        with contextlib.suppress(Rejected):
            provider.check(WANTED)

    if framework == "fastapi":
        app = FastAPI()
        install(app, provider)

        @app.post("/x")
        def operation():
            handled()
            return JSONResponse({"mine": 1}, status)
    else:

        @post("/x", status_code=status)
        async def answer() -> dict:
            handled()
            return {"mine": 1}

        app = Litestar([answer], plugins=[ContractPlugin(provider)], logging_config=None)
    with calling(app) as client:
        response = client.post("/x", headers=grounds_at(position_of(provider)))
    assert (response.status_code, response.json()["mine"]) == (status, 1)
    assert response.headers["contract-precondition"] == "met"


@pytest.mark.spec("3.8", "12.8")
def test_a_policy_that_fails_in_litestar_is_not_said_to_be_the_apps(caplog):
    provider = Provider({"t": {}})
    provider.policy(lambda request, tables: 1 / 0)
    app = FRAMEWORKS["litestar"](provider, "/x")
    with caplog.at_level(logging.WARNING, "shelflife"), calling(app) as client:
        response = client.post("/x", json={}, headers=grounds_at(position_of(provider)))
    assert (response.status_code, response.headers["contract-precondition"]) == (500, "met")
    assert "answered a refusal" not in caplog.text


@pytest.mark.spec("11.14")
@pytest.mark.parametrize("framework", ["fastapi", "starlette", "litestar", "plain"])
def test_a_refusal_of_a_get_is_the_same_for_all_whatever_they_name(framework):
    provider = provider_for()

    if framework == "litestar":

        @get("/x")
        async def answer() -> dict:
            provider.check(WANTED)
            return {}

        app = Litestar([answer], plugins=[ContractPlugin(provider)], logging_config=None)
    else:

        async def operation(request):
            provider.check(WANTED)

        app = Starlette(routes=[Route("/x", operation)])
        if framework == "plain":
            app = ContractMiddleware(app, provider)
        elif framework == "fastapi":
            app = FastAPI()
            install(app, provider)
            app.get("/x")(lambda: provider.check(WANTED))
        else:
            install_in_starlette(app, provider)
    with calling(app) as client:
        full = client.get("/x")
        position = position_of(provider)
        for named, told in ((position, position), ("*;n=e3", f"{position};n=e3"), ("Abcdef99", position)):
            refused = client.get("/x", headers={"Contract-At": named})
            assert (refused.status_code, refused.content) == (422, full.content)
            assert refused.headers["contract-at"] == told
            assert "vary" not in refused.headers
    assert full.json().keys() >= {"recovery_feedback", "table_versions"}
    assert "contract-at" not in full.headers


@pytest.mark.parametrize("body", [b"[1]", b"null", b'"text"', b"5", b"true"])
def test_json_that_is_no_object_is_the_clients_mistake(body):
    provider = provider_for()
    app = Starlette(routes=[Route("/x", checking(provider), methods=["POST"])])
    install_in_starlette(app, provider)
    with calling(app) as client:
        refused = client.post("/x", content=body)
    assert refused.status_code == 400
    assert "and not an object of fields" in refused.json()["error"]


@pytest.mark.parametrize("depth", [40, 500, 900])
def test_what_a_precondition_takes_out_may_not_be_too_deep(depth):
    nested = {}
    for _ in range(depth):
        nested = {"a": nested}
    header = Precondition(at="Abcdef99", cells={}, rules=(), was=nested).header
    with calling(fastapi_with(provider_for(), "/x")) as client:
        refused = client.post("/x", json=WANTED, headers={"Contract-Precondition": header})
    assert refused.status_code == 400


@pytest.mark.spec("6.1", "6.2")
def test_every_error_has_the_form_that_was_chosen():
    provider = provider_for(wire=WireFormat(errors="problem"), admin_token="t")
    app = ContractMiddleware(contract_app(provider), provider)
    with calling(app) as client:
        answers = [
            client.get("/contract/state", headers={"Contract-Precondition": "nonsense"}),
            client.get("/contract/nothing"),
            client.get("/contract/changes"),
            client.get("/admin/graph"),
        ]
        for answer in answers:
            assert answer.headers["content-type"] == "application/problem+json"
            assert {"title", "status", "detail"} == answer.json().keys()
        plain = client.get("/admin/graph", headers=[("Accept", "application/json"), ("Accept", "text/html")])
        assert plain.headers["content-type"] == "application/json"


def test_two_tokens_are_none():
    provider = provider_for(admin_token="t")
    both = [("Authorization", "Bearer x"), ("Authorization", "Bearer t")]
    with calling(fastapi_with(provider, "/x")) as client:
        assert client.get("/admin/graph", headers=both).status_code == 401


@pytest.mark.spec("12.10")
def test_fixes_are_told_of_operations_alone():
    provider = provider_for()

    async def app(scope, receive, send):
        await JSONResponse({})(scope, receive, send)

    with calling(openly(app, provider, fixes=["POST /x"])) as client:
        for operation, status in (("POST /x", 200), ("nonsense", 404), ("", 404)):
            asked = {"operation": operation, "request": WANTED}
            assert client.post("/contract/fixes", json=asked).status_code == status


def test_a_login_may_read_the_body_of_a_question():
    """As one that goes by a signature over it does."""
    provider = provider_for()

    async def signed(request: Request):
        assert await request.body()

    app = FastAPI(dependencies=[Depends(signed)])
    install(app, provider)

    @app.post("/x")
    async def operation(wanted: dict):
        provider.check(wanted)

    asked = {"operation": "POST /x", "request": WANTED}
    with calling(app) as client:
        assert client.post("/contract/fixes", json=asked, timeout=60).status_code == 200


def test_a_feed_of_endpoints_by_hand_holds_nothing_either():
    provider = Provider({"t": {"a": {}}})
    held = []

    class Session:
        def __init__(self, app):
            self.app = app

        async def __call__(self, scope, receive, send):
            held.append(1)
            try:
                await self.app(scope, receive, send)
            finally:
                held.pop()

    app = ContractMiddleware(
        Starlette(routes=[Mount("/contract", app=Session(contract_app(provider)))]), provider
    )
    with calling(app) as client, client.stream("GET", CHANGES_PATH, headers=LISTENING) as response:
        assert next(response.iter_lines()).startswith("id: ")
        assert held == []


@pytest.mark.spec("13.8")
def test_a_feed_that_is_full_says_so(monkeypatch):
    provider = Provider({"t": {"a": {}}})
    monkeypatch.setattr(Feed, "is_full", True)
    answer = ContractEndpoints(provider, lambda asked: None).answer(
        EndpointCall("GET", CHANGES_PATH, "", {"accept": "text/event-stream"})
    )
    assert (answer.status, dict(answer.headers)["Retry-After"]) == (503, "30")


def test_whoever_comes_to_a_feed_after_the_signal_is_not_kept():
    provider = Provider({"t": {"a": {}}})
    sent = []

    async def story():
        async def receive():
            await asyncio.Event().wait()

        async def send(message):
            sent.append(message)

        provider.feed.end_listeners(asyncio.get_running_loop())
        await asyncio.wait_for(provider.feed.stream({}, "", receive, send), 60)

    asyncio.run(story())
    assert sent[-1] == {"type": "http.response.body", "body": b""}


def test_a_feed_that_fails_is_in_the_log(caplog):
    provider = Provider({"t": {"a": {}}})

    def broken(state, headers):
        raise RuntimeError("who is this?")

    feed = Feed(provider.registry, broken)

    async def story():
        async def receive():
            await asyncio.Event().wait()

        async def send(message):
            pass

        await asyncio.wait_for(feed.stream({}, "", receive, send), 60)

    with caplog.at_level(logging.ERROR, "shelflife"):
        asyncio.run(story())
    assert "the change feed has failed for a listener" in caplog.text
    assert "who is this?" in caplog.text
