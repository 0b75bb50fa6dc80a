"""A contract in front of an API that knows nothing of it, over real connections."""

import asyncio
import contextlib
import logging
import socket
import threading

import httpx2
import pytest

from shelflife.client import Guard, Memory
from shelflife.integrations.httpx2 import MemoryTransport
from shelflife.integrations.proxying import proxy_app
from shelflife.integrations.upstreams import Upstream
from shelflife.server import Provider, UsageError, WireFormat, fix
from shelflife.testing import serving
from tests.calling import ADMIN, TOKEN
from tests.integrations.doors import grounds_at, unknown_grounds
from tests.integrations.event_streams import LISTENING
from tests.integrations.positions import position_of
from tests.integrations.proxied import Api

KEY = {"Authorization": "Bearer ada"}
WANTED = {"plan": "growth"}
GOOD = WANTED | {"promo": "A"}
EXPLAINED = {"USE": {"promo": "A"}}


def contract(**options):
    provider = Provider({"codes": {"growth": {"code": "A"}}}, versions={"codes": "1"}, **options)

    @provider.policy(operation="POST /orders")
    def promo(request, tables):
        row = tables.codes.get(request.get("plan"))
        return fix("USE", promo=row["code"]) if row and not request.equals("promo", row["code"]) else None

    return provider


@contextlib.contextmanager
def in_front_of(api, provider=None, prefix="", **options):
    """A client of a proxy before an API."""
    with serving(api, lifespan="off") as upstream:
        app = proxy_app(provider or contract(), upstream + prefix, **options)
        settings = {"server_header": False, "date_header": False, "ws": "none", "proxy_headers": False}
        with (
            serving(app, **settings) as address,
            httpx2.Client(base_url=address, trust_env=False, headers=KEY, timeout=30) as client,
        ):
            yield client


@pytest.fixture(scope="module")
def api():
    return Api()


@pytest.fixture(scope="module")
def explaining(api):
    with in_front_of(api, contract(admin_token=TOKEN), timeout_s=2) as client:
        yield client


@pytest.fixture(scope="module")
def enforcing(api):
    provider = contract(admin_token=TOKEN)
    with in_front_of(api, provider, as_caller="GET /me", enforce=True) as client:
        client.provider = provider
        yield client


def fixes_in(response):
    feedback = response.json().get("recovery_feedback", {"suggestions": []})
    return {one["type"]: one["parameters"] for one in feedback["suggestions"]}


def test_an_error_of_the_api_gets_the_fixes_and_is_else_as_it_was(explaining):
    refused = explaining.post("/orders", json=WANTED)
    assert (refused.status_code, refused.json()["error"]) == (422, "wrong promo")
    assert fixes_in(refused) == EXPLAINED
    assert refused.json()["table_versions"] == {"codes": "1"}
    [told] = refused.json()["recovery_feedback"]["suggestions"]
    assert (told["cache_hint"], told["when"]) == ("cacheable", WANTED)
    assert int(refused.headers["content-length"]) == len(refused.content)


def test_a_success_is_stamped(explaining):
    made = explaining.post("/orders", json=GOOD)
    assert (made.status_code, made.json()["ok"]) == (200, True)
    assert made.json()["table_versions"] == {"codes": "1"}


@pytest.mark.parametrize("status", [401, 403, 405, 407, 429, 500, 503])
def test_who_may_not_ask_is_told_nothing(explaining, status):
    refused = explaining.post("/orders", json=WANTED, headers={"X-Answer": str(status)})
    assert (refused.status_code, refused.json()) == (status, {"error": "no"})
    assert not any(name.startswith("contract-") for name in refused.headers)


@pytest.mark.parametrize("status", [400, 402, 404, 409, 422])
def test_every_other_error_gets_the_fixes(explaining, status):
    refused = explaining.post("/orders", json=WANTED, headers={"X-Answer": str(status)})
    assert (refused.status_code, fixes_in(refused)) == (status, EXPLAINED)


def test_an_error_that_no_policy_explains_is_left_alone(explaining):
    refused = explaining.post("/orders", json=GOOD, headers={"X-Answer": "409"})
    assert refused.json() == {"error": "no"}
    assert not any(name.startswith("contract-") for name in refused.headers)


@pytest.mark.parametrize("kind", ["gzip", "text", "large"])
def test_an_error_that_cannot_be_added_to_goes_through_as_it_is(explaining, kind):
    refused = explaining.post("/orders", json=WANTED, headers={"X-Answer": kind})
    assert refused.status_code == 400
    assert b"recovery_feedback" not in refused.content
    if kind == "large":
        assert len(refused.content) == 3_000_013


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"plan=growth", "text/plain"),
        (b"[1]", "application/json"),
        (b"{", "application/json"),
        (b'{"a":"%b"}' % (b"x" * 2_000_000), "application/json"),
        (b'{"plan":"growth","a":"%b"}' % (b"x" * 1_048_560), "application/json"),
    ],
)
def test_a_request_that_is_no_short_object_or_form_goes_on_as_it_is(explaining, api, content, kind):
    refused = explaining.post("/orders", content=content, headers={"Content-Type": kind, "X-Answer": "400"})
    assert refused.json() == {"error": "no"}
    assert api.seen[-1][4] == len(content)


async def over_http_2(app, path, *parts):
    """The status and the body of an answer to a request as a server of HTTP/2 hands it on: no header tells that it has a body."""
    headers = [(b"authorization", b"Bearer ada"), (b"content-type", b"application/json")]
    scope = {"type": "http", "http_version": "2", "method": "POST", "scheme": "https", "headers": headers}
    scope |= {"path": path, "raw_path": path.encode(), "query_string": b"", "root_path": ""}
    left, told = [*parts], []

    async def receive():
        if not left:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(message):
        told.append(message)

    await app(scope | {"client": ("127.0.0.1", 1)}, receive, send)
    return told[0]["status"], b"".join(message.get("body", b"") for message in told[1:])


async def shut_down():
    return {"type": "lifespan.shutdown"}


async def unheard(message):
    pass


def test_a_body_over_http_2_is_judged_and_goes_on(api):
    async def play(upstream):
        app = proxy_app(contract(), upstream)
        told = await over_http_2(app, "/orders", b'{"plan":', b' "growth"}')
        await over_http_2(app, "/elsewhere", b"x" * 70_000, b"y" * 70_000)
        await over_http_2(app, "/elsewhere", b"")
        await app({"type": "lifespan"}, shut_down, unheard)
        return told

    with serving(api, lifespan="off") as upstream:
        status, told = asyncio.run(play(upstream))
    assert (status, b"recovery_feedback" in told) == (422, True)
    assert [length for *_, length in api.seen[-3:]] == [18, 140_000, 0]


def test_a_form_is_explained_and_its_fix_is_for_this_once(explaining):
    refused = explaining.post("/orders", data=WANTED)
    [told] = refused.json()["recovery_feedback"]["suggestions"]
    assert (told["parameters"], told["cache_hint"]) == ({"promo": "A"}, "recompute")


def test_a_memory_learns_from_an_api_that_knows_nothing_of_it(api):
    provider = contract()
    with in_front_of(api, provider) as plain:
        memory = Memory()
        transport = MemoryTransport(memory, guard=Guard())
        with httpx2.Client(base_url=plain.base_url, transport=transport, headers=KEY) as client:

            def statuses():
                return [client.post("/orders", json=WANTED).status_code for _ in range(2)]

            assert statuses() == [422, 200]
            api.code = "B"
            provider.registry.reload_table("codes", set={"growth": {"code": "B"}})
            assert statuses() == [422, 200]
            api.code = "A"
    assert memory.statistics.evictions == {"row_changed": 1}


def test_what_goes_on_says_whom_it_is_for_and_nothing_of_the_hop_before(explaining, api):
    hop = {"Connection": "keep-alive, X-Mine", "X-Mine": "1", "TE": "trailers", "X-Forwarded-For": "10.0.0.1"}
    explaining.get("/me", headers={**hop, "Contract-At": "*", "Forwarded": "for=10.0.0.1"})
    method, path, headers, *_ = api.seen[-1]
    assert (method, path) == ("GET", "/me")
    assert headers[b"host"] != explaining.base_url.netloc
    assert headers[b"authorization"] == b"Bearer ada"
    assert headers[b"x-forwarded-host"] == explaining.base_url.netloc
    assert headers[b"x-forwarded-for"] == b"10.0.0.1, 127.0.0.1"
    assert headers[b"x-forwarded-proto"] == b"http"
    assert (
        headers[b"forwarded"]
        == b'for=10.0.0.1, for=127.0.0.1;host="%b";proto=http' % explaining.base_url.netloc
    )
    assert not {b"x-mine", b"te", b"contract-at"} & headers.keys()


def test_a_path_and_a_query_go_on_as_they_were_written(explaining, api):
    explaining.get("/a%2Fb//c?x=%20y&x=1&z")
    assert api.seen[-1][1] == "/a%2Fb//c"
    assert explaining.get("/nothing").json() == {"error": "nothing here"}


def test_headers_come_back_each_as_often_as_it_was_sent_and_none_of_the_hop(explaining):
    answer = explaining.get("/cookies")
    assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert not {"x-hop", "contract-at"} & answer.headers.keys()
    assert len(answer.headers.get_list("server")) <= 1


def test_a_redirect_is_not_followed_and_leads_to_the_proxy(explaining):
    answer = explaining.get("/moved", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (302, "/orders")


def test_an_api_below_a_path_is_found_there(api):
    with in_front_of(api, prefix="/base") as client:
        assert client.get("/x").status_code == 404
        assert api.seen[-1][1] == "/base/x"


def test_a_head_has_the_length_and_no_body(explaining):
    answer = explaining.head("/me")
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", "15")


def test_a_stream_comes_through_as_it_comes(explaining, api):
    api.is_heard.clear()
    with explaining.stream("GET", "/stream") as answer:
        parts = answer.iter_raw()
        assert next(parts) == b"data: 1\n\n"
        api.is_heard.set()
        assert b"".join(parts) == b"data: 2\n\n"


def test_an_api_is_left_when_its_client_has_gone(api):
    api.is_heard.clear()
    api.has_ended.clear()
    with in_front_of(api) as client:
        with client.stream("GET", "/stream") as answer:
            assert next(answer.iter_raw()) == b"data: 1\n\n"
        assert api.has_ended.wait(10)


def test_an_upload_of_any_length_goes_on_as_it_comes(explaining, api):
    def parts():
        for _ in range(64):
            yield b"x" * 65_536

    explaining.post("/upload", content=parts())
    _, _, headers, _, length = api.seen[-1]
    assert (length, headers.get(b"transfer-encoding")) == (64 * 65_536, b"chunked")


def raw(client, text):
    """What comes back for these very bytes."""
    host, port = client.base_url.host, client.base_url.port
    with socket.create_connection((host, port), timeout=10) as connection:
        connection.sendall(text.replace("\n", "\r\n").encode())
        said = b""
        while b"\r\n\r\n" not in said or b"100 Continue" in said.split(b"\r\n\r\n")[-2]:
            part = connection.recv(65_536)
            if not part:
                break
            said += part
            if b"100 Continue" in said and b"sent" not in text.encode():
                connection.sendall(b'{"plan": "growth"}')
                text += "sent"
        return said.decode()


def test_a_client_that_waits_to_be_told_to_go_on_is_told(explaining, api):
    head = "POST /orders HTTP/1.1\nHost: x\nAuthorization: Bearer ada\nContent-Type: application/json\n"
    said = raw(explaining, head + "Content-Length: 18\nExpect: 100-continue\nConnection: close\n\n")
    assert said.startswith("HTTP/1.1 100 Continue")
    assert "HTTP/1.1 422" in said
    assert b"expect" not in api.seen[-1][2]


@pytest.mark.parametrize(
    ("line", "status", "sentence"),
    [
        ("GET /a/../me", 400, "segments . or .."),
        ("GET /a/%2e%2E/me", 400, "segments . or .."),
        ("GET /a/..%2fme", 400, "segments . or .."),
        ("GET /a/..;x=1/me", 400, "segments . or .."),
        ("GET /a/..%3b/me", 400, "segments . or .."),
        ("CONNECT evil.example:443", 400, None),
    ],
)
def test_what_is_not_for_the_api_is_not_handed_on(explaining, api, line, status, sentence):
    before = len(api.seen)
    said = raw(explaining, f"{line} HTTP/1.1\nHost: evil.example\nConnection: close\n\n")
    assert said.startswith(f"HTTP/1.1 {status}")
    assert sentence is None or sentence in said
    assert len(api.seen) == before


def test_a_request_for_another_server_goes_to_the_api_all_the_same(explaining, api):
    """A request with a whole address is one for its path, or none at all: nobody else is asked."""
    said = raw(explaining, "GET http://evil.example/me HTTP/1.1\nHost: evil.example\nConnection: close\n\n")
    assert said.startswith(("HTTP/1.1 400", "HTTP/1.1 401"))
    assert b"evil" not in api.seen[-1][2][b"host"]


def test_a_websocket_is_refused_with_a_sentence(explaining):
    ask = "GET /ws HTTP/1.1\nHost: x\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZQ==\n\n"
    said = raw(explaining, ask)
    assert said.startswith("HTTP/1.1 501")
    assert "does not hand websockets on" in said


def test_an_api_that_is_gone_is_a_502_in_one_sentence(caplog):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with serving(proxy_app(contract(), f"http://127.0.0.1:{port}")) as address:
        answer = httpx2.post(f"{address}/orders", json=WANTED)
    assert answer.status_code == 502
    assert answer.json() == {"success": False, "error": "the API behind this proxy cannot be reached"}


def test_an_api_that_is_silent_is_a_504_in_one_sentence(api):
    with in_front_of(api, timeout_s=0.1) as client:
        answer = client.get("/silent")
    assert answer.status_code == 504
    assert answer.json()["error"] == "the API behind this proxy has not answered in time"


def test_an_answer_that_breaks_off_is_not_taken_for_whole(explaining, caplog):
    with caplog.at_level(logging.WARNING, "shelflife"), pytest.raises(httpx2.RemoteProtocolError):
        explaining.get("/broken")
    assert "has broken off in the middle of an answer" in caplog.text


def test_so_is_an_error_that_would_have_got_fixes(explaining, caplog):
    with caplog.at_level(logging.WARNING, "shelflife"), pytest.raises(httpx2.RemoteProtocolError):
        explaining.post("/orders", json=WANTED, headers={"X-Answer": "broken"})
    assert "has broken off in the middle of an answer" in caplog.text
    assert "Traceback" not in caplog.text


def test_an_error_that_stalls_breaks_off_too_and_the_api_is_left(api, caplog):
    api.has_ended.clear()
    with in_front_of(api, timeout_s=0.1) as client:
        with caplog.at_level(logging.WARNING, "shelflife"), pytest.raises(httpx2.RemoteProtocolError):
            client.post("/orders", json=WANTED, headers={"X-Answer": "stalled"})
        assert api.has_ended.wait(10)
    assert "has broken off in the middle of an answer" in caplog.text
    assert "Traceback" not in caplog.text


@contextlib.contextmanager
def answering(said):
    """A client of a proxy before something that says these bytes to every request."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(65_536)
                        connection.sendall(said)

        threading.Thread(target=answer, daemon=True).start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with serving(proxy_app(contract(), address)) as proxy, httpx2.Client(base_url=proxy) as client:
            yield client
        listener.shutdown(socket.SHUT_RDWR)


def test_a_status_that_is_none_is_a_502_in_one_sentence():
    with answering(b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n") as client:
        answer = client.get("/x")
    assert (answer.status_code, answer.json()["error"]) == (
        502,
        "the API behind this proxy has answered with a status that is none of HTTP",
    )


def test_a_304_that_tells_the_length_of_what_is_cached_keeps_the_connection(caplog):
    not_modified = b'HTTP/1.1 304 Not Modified\r\nContent-Length: 50\r\nETag: "a"\r\n\r\n'
    with (
        answering(not_modified) as client,
        socket.create_connection((client.base_url.host, client.base_url.port), timeout=10) as connection,
    ):
        for _ in range(2):
            connection.sendall(b"GET /cached HTTP/1.1\r\nHost: x\r\n\r\n")
            said = b""
            while not said.endswith(b"\r\n\r\n"):
                part = connection.recv(65_536)
                assert part, "the connection is closed"
                said += part
            assert said.startswith(b"HTTP/1.1 304")
            assert b'etag: "a"' in said.lower()
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("prefix", "place", "told"),
    [
        ("", b"http://api:1//evil.example/a", b"/.//evil.example/a"),
        ("", b"http://api:1/\\evil.example/a", b"/./\\evil.example/a"),
        ("", b"http://api:1/\t/evil.example/a", b"/./\t/evil.example/a"),
        ("/base", b"http://api:1/base//evil.example/a", b"/.//evil.example/a"),
        ("/base", b"/base//evil.example/a", b"/.//evil.example/a"),
        ("/base", b"/base/a//b", b"/a//b"),
        ("", b"http://api:1", b"/"),
        ("", b"http://api:1?a", b"/?a"),
        ("", b"http://api:10/a", b"http://api:10/a"),
    ],
)
def test_a_redirect_of_the_api_to_itself_never_leads_to_another_server(prefix, place, told):
    assert Upstream(f"http://api:1{prefix}", 1).own_path(place) == told
    if told.startswith(b"/"):
        assert (
            httpx2.URL("https://proxy.example/x").join(told.decode().replace("\t", "")).host
            == "proxy.example"
        )


def test_without_a_caller_the_endpoints_for_clients_are_the_apis(explaining, api):
    assert explaining.get("/contract/state").json() == {"error": "nothing here"}
    assert explaining.get("/admin/graph", headers=ADMIN).status_code == 200


def test_when_enforced_the_policies_come_first(enforcing, api):
    before = len(api.seen)
    refused = enforcing.post("/orders", json=WANTED)
    assert (refused.status_code, fixes_in(refused)) == (422, EXPLAINED)
    assert [path for _, path, *_ in api.seen[before:]] == ["/me"]
    made = enforcing.post("/orders", json=GOOD)
    assert (made.status_code, made.json()["ok"]) == (200, True)


def test_when_enforced_nobody_is_judged_whom_the_api_does_not_let_pass(enforcing, api):
    refused = enforcing.post("/orders", json=WANTED, headers={"Authorization": "Bearer eve"})
    assert (refused.status_code, refused.json()) == (401, {"error": "who are you?"})
    assert [path for _, path, *_ in api.seen[-2:]] == ["/me", "/orders"]


def test_the_api_is_asked_about_a_caller_without_what_is_of_the_request_alone(enforcing, api):
    enforcing.post("/orders", json=WANTED, headers={"Idempotency-Key": "1", "If-Match": "x"})
    method, path, headers, body, _ = api.seen[-1]
    assert (method, path, body, headers[b"authorization"]) == ("GET", "/me", b"", b"Bearer ada")
    assert not {b"content-type", b"content-length", b"idempotency-key", b"if-match"} & headers.keys()


@pytest.mark.parametrize(("path", "status"), [("/orders/", 422), ("//orders", 422), ("/Orders", 400)])
def test_when_enforced_a_path_that_is_written_in_another_way_gets_around_no_policy(enforcing, path, status):
    address = str(enforcing.base_url).rstrip("/") + path  # alone, two slashes would name a server
    assert enforcing.post(address, json=WANTED).status_code == status


def test_when_enforced_preconditions_are_judged(enforcing):
    position = position_of(enforcing.provider)
    met = enforcing.post("/orders", json=GOOD, headers=grounds_at(position))
    assert (met.status_code, met.headers["contract-precondition"]) == (200, "met")
    failed = enforcing.post("/orders", json=GOOD, headers=unknown_grounds())
    assert (failed.status_code, failed.headers["contract-precondition"]) == (412, "failed")


def test_callers_whom_the_api_lets_pass_may_ask_the_contract(enforcing):
    assert enforcing.get("/contract/state").json()["table_versions"] == {"codes": "1"}
    asked = enforcing.post("/contract/fixes", json={"operation": "POST /orders", "request": WANTED})
    assert fixes_in(asked) == EXPLAINED
    with enforcing.stream("GET", "/contract/changes", headers=LISTENING) as feed:
        assert feed.headers["content-type"].startswith("text/event-stream")
    refused = enforcing.get("/contract/state", headers={"Authorization": "no"})
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize("grounds", ["met", "failed"])
def test_a_precondition_is_judged_before_the_api_is_asked_and_policies_after_it(api, grounds):
    provider = contract()
    with in_front_of(api, provider, as_caller="GET /me") as client:
        headers = grounds_at(position_of(provider)) if grounds == "met" else unknown_grounds()
        before = len(api.seen)
        answer = client.post("/orders", json=WANTED, headers=headers)
    paths = [path for _, path, *_ in api.seen[before:]]
    assert (answer.status_code, paths) == {
        "met": (422, ["/me", "/orders"]),
        "failed": (412, ["/me"]),
    }[grounds]
    assert answer.headers["contract-precondition"] == grounds
    if grounds == "met":
        assert answer.json()["error"] == "wrong promo"


@pytest.mark.parametrize(
    ("options", "path", "remedy"),
    [
        ({}, "/orders", "give --as-caller (as_caller= in Python)"),
        ({"as_caller": "GET /me"}, "/me", "those of requests that policies are about"),
    ],
)
def test_of_preconditions_that_are_not_judged_it_says_what_one_can_do_about_a_proxy(
    api, caplog, options, path, remedy
):
    provider = contract()
    with in_front_of(api, provider, **options) as client:
        method = "POST" if path == "/orders" else "GET"
        body = {"json": GOOD} if method == "POST" else {}
        made = client.request(method, path, headers=grounds_at(position_of(provider)), **body)
        assert made.status_code == 200
    [warning] = [record.message for record in caplog.records if "preconditions" in record.message]
    assert remedy in warning


def test_a_policy_that_fails_leaves_the_answer_of_the_api_as_it_is(api, caplog):
    provider = Provider({"t": {}})
    provider.policy(lambda request, tables: 1 / 0)
    with in_front_of(api, provider) as client:
        assert client.post("/orders", json=WANTED).json() == {"error": "wrong promo"}
    assert "the API's own answer is left as it is" in caplog.text


def test_at_level_0_nothing_is_added(api):
    with in_front_of(api, contract(wire=WireFormat(level=0))) as client:
        assert client.post("/orders", json=WANTED).json() == {"error": "wrong promo"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"upstream": "127.0.0.1:9000"}, "an upstream is an address such as"),
        ({"upstream": "http://user@host/"}, "an upstream is an address such as"),
        ({"upstream": "http://127.0.0.1:abc"}, "an upstream is an address such as"),
        ({"upstream": "http://127.0.0.1:99999"}, "an upstream is an address such as"),
        ({"upstream": "http://[::1"}, "an upstream is an address such as"),
        ({"as_caller": "/me"}, "a caller is known by a request such as 'GET /me'"),
        ({"enforce": True}, "to enforce policies, say by which request"),
    ],
)
def test_what_a_proxy_cannot_be_made_of_is_told(options, why):
    with pytest.raises(UsageError, match=why):
        proxy_app(contract(), **({"upstream": "http://127.0.0.1:1"} | options))
