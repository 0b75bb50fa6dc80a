"""Stamps on every kind of response, over real HTTP."""

import asyncio
import gzip
import logging
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles

from shelflife.contract.stamps import table_versions_from_header
from shelflife.integrations.asgi import ContractMiddleware
from shelflife.integrations.fastapi import install
from shelflife.integrations.starlette import install as install_in_starlette
from shelflife.server import Provider, Rejected, WireFormat, fix
from tests.calling import calling

VERSIONS = {"plans": "1.0.0", "codes": "2"}
TABLES = {"plans": {"basic": {"promo": "P1"}}, "codes": {}}


def provider(**options):
    return Provider(TABLES, versions=VERSIONS, **options)


def answering(*responses, **options):
    """An app that answers GET / with what the function gives, under the contract."""
    contract = options.pop("provider", None) or provider(**options)
    routes = [
        Route(f"/{number}", lambda request, make=make: make(), methods=["GET", "POST"])
        for number, make in enumerate(responses)
    ]
    app = Starlette(routes=routes)
    install_in_starlette(app, contract)
    return app


def header_stamps(response):
    return table_versions_from_header(response.headers["contract-tables"])


def is_in_body(response):
    body = response.json()
    assert "contract-tables" not in response.headers
    assert int(response.headers["content-length"]) == len(response.content)
    return body["table_versions"] == VERSIONS and len(body["rules_version"]) == 12


@pytest.mark.spec("5.1", "5.3", "2.2", "2.5")
@pytest.mark.parametrize(
    "body", [{"a": 1}, {}, {"nested": {"table_versions": {}}}, {"text": '"table_versions"'}]
)
def test_a_json_object_is_stamped_in_its_body(body):
    with calling(answering(lambda: JSONResponse(body))) as client:
        response = client.get("/0")
    assert is_in_body(response)
    assert {name: response.json()[name] for name in body} == body


@pytest.mark.spec("5.3")
@pytest.mark.parametrize("raw", [b" { } ", b'{"a":1}\n', b'\n{\n "a": [1]\n}\n '])
def test_white_space_around_an_object_does_no_harm(raw):
    with calling(answering(lambda: Response(raw, media_type="application/json; charset=utf-8"))) as client:
        assert is_in_body(client.get("/0"))


UNTOLD = (401, 403, 405, 407, 429, 500, 502, 503)


@pytest.mark.spec("5.10", "5.11")
@pytest.mark.parametrize("status", [200, 201, 302, 303, 304, 400, 402, 404, 409, 418, 422, *UNTOLD])
@pytest.mark.parametrize("has_checked", [True, False])
def test_errors_and_redirections_tell_versions_only_after_a_check(status, has_checked):
    contract = provider()
    app = FastAPI()
    install(app, contract)

    @app.get("/thing")
    def thing():
        if has_checked:
            contract.check({})
        return Response(b'{"a":1}' if status != 304 else b"", status, media_type="application/json")

    with calling(app, follow_redirects=False) as client:
        response = client.get("/thing")
    is_told = "table_versions" in response.text or "contract-tables" in response.headers
    assert response.status_code == status
    assert is_told == (status not in UNTOLD and (has_checked or status in (200, 201, 304)))


@pytest.mark.spec("5.10")
def test_what_is_no_operation_of_the_app_tells_no_version():
    app = FastAPI()
    install(app, provider(admin_token="t"))
    app.mount("/files", StaticFiles(directory=Path(__file__).parents[1]))
    app.add_route("/plain", lambda request: JSONResponse({"a": 1}))

    @app.get("/hidden", include_in_schema=False)
    def hidden() -> dict[str, int]:
        return {"a": 1}

    @app.get("/shown")
    def shown() -> dict[str, int]:
        return {"a": 1}

    with calling(app) as client:
        for path in ("/nowhere", "/docs", "/openapi.json", "/plain", "/hidden", "/files/calling.py"):
            response = client.get(path)
            told = [name for name in response.headers if name.startswith("contract-")]
            assert (told, "table_versions" in response.text.partition("components")[0]) == ([], False), path
        assert client.post("/shown").status_code == 405
        assert "contract-tables" not in client.post("/shown").headers
        assert is_in_body(client.get("/shown"))


async def chunks(*parts):
    for part in parts:
        yield part


UNTOUCHED = {
    "array": lambda: JSONResponse([1, 2]),
    "scalar": lambda: JSONResponse("text"),
    "text": lambda: PlainTextResponse("hello"),
    "empty": lambda: Response(b"", media_type="application/json"),
    "no content": lambda: Response(status_code=204),
    "not modified": lambda: Response(status_code=304, headers={"ETag": '"x"'}),
    "stream": lambda: StreamingResponse(chunks(b'{"a":', b"1}"), media_type="application/json"),
    "events": lambda: StreamingResponse(chunks(b"data: 1\n\n"), media_type="text/event-stream"),
    "file": lambda: FileResponse(__file__),
    "compressed": lambda: Response(
        gzip.compress(b'{"a":1}'), media_type="application/json", headers={"Content-Encoding": "gzip"}
    ),
    "strong etag": lambda: JSONResponse({"a": 1}, headers={"ETag": '"abc"'}),
    "digest": lambda: JSONResponse({"a": 1}, headers={"Content-Digest": "sha-256=:x:"}),
    "part": lambda: Response(b'{"a":1}', 206, {"Content-Range": "bytes 0-6/9"}, "application/json"),
    "has stamps already": lambda: JSONResponse({"table_versions": {"own": "1"}}),
    "other json": lambda: Response(b'{"a":1}', media_type="application/vnd.api+json"),
    "other charset": lambda: Response(
        b'{"a":1}', headers={"content-type": "application/json; charset=utf-16"}
    ),
    "broken": lambda: Response(b'{"table_versions" oops}', media_type="application/json"),
}


@pytest.mark.spec("5.4", "5.5", "5.6", "5.7")
@pytest.mark.parametrize("name", UNTOUCHED)
def test_everything_else_is_stamped_in_headers_and_left_as_it_is(name):
    make = UNTOUCHED[name]
    plain = Starlette(routes=[Route("/0", lambda request: make())])
    with calling(plain) as client:
        expected = client.get("/0")
    with calling(answering(make)) as client:
        response = client.get("/0")
    assert response.status_code == expected.status_code
    assert response.content == expected.content
    assert response.headers.get("content-length") == expected.headers.get("content-length")
    assert header_stamps(response) == VERSIONS
    assert len(response.headers["contract-rules"]) == len('"123456789012"')
    assert len(response.headers["contract-state"]) == len('"1234567890123456"')


def test_a_weak_etag_does_not_vouch_for_the_bytes():
    with calling(answering(lambda: JSONResponse({"a": 1}, headers={"ETag": 'W/"abc"'}))) as client:
        assert is_in_body(client.get("/0"))


@pytest.mark.spec("5.4", "5.9")
def test_head_is_stamped_in_headers_without_the_length_that_get_would_not_have():
    makes = (lambda: JSONResponse({"a": 1}), lambda: PlainTextResponse("hello"))
    with calling(answering(*makes)) as client:
        response = client.head("/0")
        assert header_stamps(response) == VERSIONS
        assert "content-length" not in response.headers
        assert client.head("/1").headers["content-length"] == "5"


def test_a_stream_starts_before_its_first_chunk():
    gate = asyncio.Event()

    async def waiting():
        await gate.wait()
        yield b"data: 1\n\n"

    async def app(scope, receive, send):
        if scope["path"] == "/open":
            gate.set()
            await PlainTextResponse("opened")(scope, receive, send)
        else:
            await StreamingResponse(waiting(), media_type="text/event-stream")(scope, receive, send)

    app = ContractMiddleware(app, provider(), operations=["GET /"])
    with calling(app) as client, client.stream("GET", "/") as response:
        assert header_stamps(response) == VERSIONS
        client.get("/open")
        assert response.read() == b"data: 1\n\n"


@pytest.mark.spec("5.8")
def test_a_list_of_versions_that_is_too_long_for_a_header_is_left_out():
    many = Provider({f"table_{number:03}": {} for number in range(300)})
    with calling(answering(lambda: JSONResponse([]), lambda: JSONResponse({}), provider=many)) as client:
        listed = client.get("/0")
        assert "contract-tables" not in listed.headers
        assert listed.headers["contract-state"] == client.get("/contract/state").headers["etag"]
        assert len(client.get("/1").json()["table_versions"]) == 300


def test_compression_outside_of_the_contract_compresses_the_stamps_too():
    app = answering(lambda: JSONResponse({"a": "x" * 2000}))
    app.add_middleware(GZipMiddleware, minimum_size=500)
    with calling(app) as client:
        response = client.get("/0")
        assert response.headers["content-encoding"] == "gzip"
        assert response.json()["table_versions"] == VERSIONS


def test_compression_inside_of_the_contract_leaves_headers():
    inner = Starlette(routes=[Route("/0", lambda request: JSONResponse({"a": "x" * 2000}))])
    app = ContractMiddleware(GZipMiddleware(inner, minimum_size=500), provider(), operations=["GET /0"])
    with calling(app) as client:
        response = client.get("/0")
        assert response.headers["content-encoding"] == "gzip"
        assert response.json() == {"a": "x" * 2000}
        assert header_stamps(response) == VERSIONS


def test_a_middleware_that_streams_whole_bodies_on_does_not_hide_them():
    class Passing(BaseHTTPMiddleware):
        async def dispatch(self, request, call_next):
            return await call_next(request)

    inner = Starlette(routes=[Route("/0", lambda request: JSONResponse({"a": 1}))])
    with calling(ContractMiddleware(Passing(inner), provider(), operations=["GET /0"])) as client:
        assert is_in_body(client.get("/0"))


def test_messages_that_an_app_sends_again_and_again_are_not_written_to():
    start = {
        "type": "http.response.start",
        "status": 200,
        "headers": [(b"content-type", b"application/json")],
    }
    body = {"type": "http.response.body", "body": memoryview(b'{"a":1}')}
    contract = provider()

    async def app(scope, receive, send):
        await send(start)
        await send(body)

    with calling(ContractMiddleware(app, contract, operations=["GET /"])) as client:
        assert client.get("/").json()["table_versions"]["plans"] == "1.0.0"
        contract.registry.reload_table("plans", {}, version="1.1.0")
        again = client.get("/")
        assert again.json()["table_versions"]["plans"] == "1.1.0"
        assert "contract-tables" not in again.headers


def test_an_app_may_send_no_headers_at_all():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b""})

    with calling(ContractMiddleware(app, provider(), operations=["GET /"])) as client:
        assert header_stamps(client.get("/")) == VERSIONS


@pytest.mark.spec("2.1")
def test_at_level_0_nothing_of_the_contract_is_on_the_wire():
    makes = (lambda: JSONResponse({"a": 1}), lambda: PlainTextResponse("x"))
    with calling(answering(*makes, wire=WireFormat(level=0))) as client:
        for path in ("/0", "/1"):
            response = client.get(path)
            assert not any(name.startswith("contract-") for name in response.headers)
        assert client.get("/0").json() == {"a": 1}
        assert client.get("/contract/state").status_code == 404
        assert client.get("/contract/changes?since=plans:1").status_code == 404


@pytest.mark.spec("2.2", "2.5", "2.6")
@pytest.mark.parametrize("level", [1, 4, 5])
def test_below_level_6_there_is_no_fingerprint(level):
    with calling(
        answering(lambda: JSONResponse({}), lambda: JSONResponse([]), wire=WireFormat(level=level))
    ) as client:
        assert client.get("/0").json() == {"table_versions": VERSIONS}
        assert "contract-rules" not in client.get("/1").headers


def failing_app(policy, **options):
    contract = provider(**options)
    contract.policy(policy)
    app = FastAPI()
    install(app, contract)

    @app.post("/orders")
    def order(wanted: dict) -> dict:
        contract.check(wanted)
        return {"success": True}

    return app


@pytest.mark.spec("3.8")
@pytest.mark.parametrize(("level", "kind"), [(6, "application/json"), (0, "text/plain; charset=utf-8")])
def test_a_policy_that_raises_is_logged_and_answered_with_500_that_leaks_nothing(level, kind, caplog):
    def secretive(request, tables):
        raise RuntimeError("the password is hunter2")

    with (
        caplog.at_level(logging.ERROR, "shelflife"),
        calling(failing_app(secretive, wire=WireFormat(level=level))) as client,
    ):
        response = client.post("/orders", json={})
    assert response.status_code == 500
    assert response.headers["content-type"] == kind
    assert "hunter2" not in response.text
    assert "suggestions" not in response.text
    assert "the policy secretive failed" in caplog.text
    assert "hunter2" in caplog.text


@pytest.mark.spec("3.8", "6.1")
def test_a_policy_that_raises_is_a_problem_for_who_asks_for_one():
    with calling(failing_app(lambda request, tables: 1 / 0)) as client:
        response = client.post("/orders", json={}, headers={"Accept": "application/problem+json"})
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json() == {
        "title": "Internal Server Error",
        "status": 500,
        "detail": "internal server error",
    }


def test_a_rejection_after_the_response_has_started_is_no_second_response():
    contract = provider()
    contract.policy(lambda request, tables: fix("F"))

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        contract.check({})

    sent = []

    async def drive():
        async def send(message):
            sent.append(message["type"])

        scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
        with pytest.raises(Exception, match="<lambda>"):
            await ContractMiddleware(app, contract)(scope, None, send)

    asyncio.run(drive())
    assert sent == ["http.response.start", "http.response.body"]


def test_a_rejection_while_the_start_is_still_held_back_is_the_answer():
    contract = provider()
    contract.policy(lambda request, tables: fix("F"))

    async def app(scope, receive, send):
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"application/json")],
            }
        )
        contract.check({})

    with calling(ContractMiddleware(app, contract, operations=["GET /"])) as client:
        assert client.get("/").status_code == 422


def rejecting(contract):
    def operation(request):
        contract.check({})

    return Starlette(routes=[Route("/x", operation)], debug=True)


@pytest.mark.parametrize("policy", [lambda request, tables: fix("F"), lambda request, tables: 1 / 0])
def test_a_framework_that_makes_a_500_of_the_rejection_is_overruled(policy):
    contract = provider()
    contract.policy(policy)
    passing = type(
        "Passing", (BaseHTTPMiddleware,), {"dispatch": lambda self, request, call_next: call_next(request)}
    )
    around = {
        "/x": ContractMiddleware(rejecting(contract), contract),
        "/sub/x": ContractMiddleware(Starlette(routes=[Mount("/sub", app=rejecting(contract))]), contract),
        "//x": ContractMiddleware(passing(rejecting(contract)), contract),
    }
    for path, app in around.items():
        with calling(app) as client:
            response = client.get(path.replace("//", "/"))
        assert response.json()["success"] is False
        assert response.status_code == (500 if "error" in response.json() else 422)
        assert ("table_versions" in response.json()) == (response.status_code == 422)
        assert "Traceback" not in response.text


def test_an_app_may_answer_a_rejection_in_its_own_way():
    contract = provider()
    contract.policy(lambda request, tables: fix("F"))

    def operation(request):
        try:
            contract.check({})
        except Rejected as rejected:
            return JSONResponse({"mine": len(rejected.suggestions)}, status_code=409)

    app = ContractMiddleware(Starlette(routes=[Route("/x", operation)]), contract)
    with calling(app) as client:
        response = client.get("/x")
    assert (response.status_code, response.json()["mine"]) == (409, 1)
    assert is_in_body(response)


def test_websockets_pass_through():
    async def echo(websocket):
        await websocket.accept()
        await websocket.send_text(await websocket.receive_text())
        await websocket.close()

    app = ContractMiddleware(Starlette(routes=[WebSocketRoute("/ws", echo)]), provider())
    sent = []

    async def drive():
        incoming = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": "hello"}]

        async def receive():
            return incoming.pop(0)

        async def send(message):
            sent.append(message)

        await app({"type": "websocket", "path": "/ws", "headers": [], "subprotocols": []}, receive, send)

    asyncio.run(drive())
    assert {"type": "websocket.send", "text": "hello"} in sent


def test_under_a_root_path_the_endpoints_are_found():
    app = Starlette(routes=[Mount("/api", app=answering(lambda: JSONResponse({"a": 1})))])
    with calling(app) as client:
        assert is_in_body(client.get("/api/0"))
        assert client.get("/api/contract/state").json()["table_versions"] == VERSIONS
        assert client.get("/contract/state").status_code == 404


def test_the_openapi_document_is_shown_and_left_alone():
    app = FastAPI()
    install(app, provider(admin_token="t"))

    @app.post("/orders")
    def order(wanted: dict) -> dict:
        return wanted

    @app.get("/names")
    def names() -> list[str]:
        return []

    with calling(app) as client:
        response = client.get("/openapi.json")
    document = response.json()
    assert "plans" not in response.text
    assert not any(name.startswith("contract-") for name in response.headers)
    answers = document["paths"]["/orders"]["post"]["responses"]
    assert answers["200"]["content"]["application/json"]["schema"]["allOf"][1] == {
        "$ref": "#/components/schemas/shelflife.ContractStamps"
    }
    assert {"$ref": "#/components/schemas/shelflife.Rejection"} in answers["422"]["content"][
        "application/json"
    ]["schema"]["anyOf"]
    assert (
        "allOf"
        not in document["paths"]["/names"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    )
    assert set(document["paths"]) >= {
        "/admin/reload-table",
        "/admin/graph",
        "/contract/state",
        "/contract/changes",
    }
    assert {f"shelflife.{name}" for name in ("Suggestion", "ReloadReport", "Changes")} <= set(
        document["components"]["schemas"]
    )
