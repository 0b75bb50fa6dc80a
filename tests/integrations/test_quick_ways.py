"""Most requests say nothing to the contract, and get by a shorter way just what they would get by the long one."""

import asyncio
import json
from copy import deepcopy

import pytest
from fastapi import APIRouter, Depends, FastAPI
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Match

from shelflife.integrations.asgi import ContractMiddleware
from shelflife.integrations.fastapi import install
from shelflife.integrations.starlette import install as install_in_starlette
from shelflife.server import Provider, WireFormat, fix

TABLES = {"codes": {"x": {"code": "A"}}, "plans": {}}
OPERATION = "POST /orders"
OWN = ("table_versions", "rules_version", "at")
BODILESS = (204, 205, 206, 304)
USUAL = [(b"content-length", b"2"), (b"content-type", b"application/json")]
"""The headers of most responses."""

headers = st.lists(
    st.sampled_from([
        (b"content-type", b"application/json"),
        (b"Content-Type", b'application/problem+json; charset="UTF-8"'),
        (b"content-type", b"application/json; charset=latin-1"),
        (b"content-type", b"text/plain"),
        (b"content-length", None),
        (b"Content-Length", b"3"),
        (b"etag", b'"strong"'),
        (b"etag", b'W/"weak"'),
        (b"content-encoding", b"gzip"),
        (b"content-encoding", b"identity"),
        (b"x-request-id", b"7"),
    ]),
    max_size=4,
)  # fmt: skip
bodies = st.sampled_from([
    b"{}", b" {}\n", b' {"a":2}', b'{"a": 1}', b'\r\n{"a":{"at":1}} ', '{"ä":"ö"}'.encode(), b'{"at":1}', b'{"\\u0061t":1}',
    b'{"rules_version":null}', b"[1]", b"", b"null", b'{"a":}', b'{"a":"\xff"}', b"{", b'{"a":1}{"b":2}',
])  # fmt: skip
statuses = st.sampled_from([200, 201, 204, 206, 301, 304, 401, 404, 409, 422, 429, 500])
methods = st.sampled_from(["POST", "GET", "HEAD"])


@st.composite
def responses(draw):
    """A status, the headers and the parts of a body."""
    body = draw(bodies)
    at = draw(st.integers(0, len(body)))
    parts = draw(st.sampled_from([[body], [body[:at], body[at:]], [body, b""]]))
    own = [(name, b"%d" % len(body) if value is None else value) for name, value in draw(headers)]
    return draw(statuses), own, parts


@st.composite
def usual_responses(draw):
    """What most responses are, or nearly that: a success of JSON in one part, with its length and no more headers."""
    body = draw(bodies)
    length = draw(st.sampled_from([b"%d" % len(body)] * 3 + [b"3"]))
    more = draw(st.sampled_from([[], [], [], [(b"set-cookie", b"a=b")], [(b"etag", b'"strong"')]]))
    own = [(b"content-length", length), USUAL[1], *more]
    parts = draw(st.sampled_from([[body], [body], [body, b""], [body[:1], body[1:]]]))
    return draw(st.sampled_from([200, 200, 201, 202, 203, 204, 500])), own, parts


def messages_of(status, headers, parts):
    yield {"type": "http.response.start", "status": status, "headers": headers}
    for number, part in enumerate(parts, 1):
        yield {"type": "http.response.body", "body": part, "more_body": number < len(parts)}


def shortened(messages):
    """The same, where nothing is said of what would be taken for granted."""
    return [{name: value for name, value in one.items() if value is not False} for one in messages]


def answered(app, method="POST", asked=b"{}", **more):
    """The messages that a server gets for a request."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": asked, "more_body": False}

    async def send(message):
        sent.append({**message, "headers": [*message["headers"]]} if "headers" in message else message)

    scope = {"type": "http", "method": method, "path": "/orders", "headers": [(b"host", b"shop")], **more}
    asyncio.run(app(scope, receive, send))
    return sent


def stamped_by_hand(method, status, headers, parts, stamp):
    """What goes out for a response that may be stamped, written down as plainly as can be."""
    known = {name.lower(): value for name, value in headers}
    kind = known.get(b"content-type", b"").lower().replace(b" ", b"").replace(b'"', b"")
    vouched_for = any(
        (name.lower() == b"etag" and not value.startswith(b"W/"))
        or (name.lower() == b"content-encoding" and value != b"identity")
        for name, value in headers
    )
    is_json = kind in (b"application/json", b"application/problem+json;charset=utf-8")
    may_change = is_json and not vouched_for and status not in BODILESS
    length_at = max(
        (n for n, (name, _) in enumerate(headers) if name.lower() == b"content-length"), default=-1
    )
    beside = [(name.lower().encode(), value.encode()) for name, value in stamp.headers]
    told, first = list(headers), parts[0]
    if may_change and method == "HEAD":
        told = [one for n, one in enumerate(told) if n != length_at]
    elif may_change and (len(parts) == 1 or (length_at >= 0 and told[length_at][1] == b"%d" % len(first))):
        whole = with_members(first, stamp.members)
        if whole is not None:
            if length_at >= 0:
                told[length_at] = told[length_at][0], b"%d" % len(whole)
            return list(messages_of(status, told, [whole, *parts[1:]]))
    return list(messages_of(status, told + beside, parts))


def with_members(body, members):
    try:
        read = json.loads(body.decode())
    except ValueError:
        return None
    if not isinstance(read, dict) or any(name in read for name in OWN):
        return None
    return body.strip()[:-1] + (b"," if read else b"") + members + b"}"


def ways_of(provider):
    """Keeps which way the response to the request at hand goes, as far as its start."""
    ways = []

    async def sent(send, messages):
        for message in messages:
            await send(message)
        ways.append("long" if provider.pin._stamping else "short")

    return ways, sent


@pytest.mark.spec("5.3")
def test_a_response_is_stamped_just_as_it_is_by_hand():
    taken = set()

    @given(usual_responses() | responses(), methods, st.booleans(), st.booleans())
    @example((200, USUAL, [b"{}"]), "POST", True, True)
    @example((200, USUAL, [b"{}"]), "HEAD", True, False)
    @example((200, USUAL, [b"{}", b""]), "POST", True, False)
    @example((200, [*USUAL, (b"set-cookie", b"a=b")], [b"{}"]), "POST", True, False)
    @example((401, USUAL, [b"{}"]), "POST", True, False)
    def same(response, method, is_checked, is_short_of_words):
        provider = Provider(TABLES)
        messages = [*messages_of(*response)]
        ways, sent = ways_of(provider)

        async def app(scope, receive, send):
            if is_checked:
                provider.check({})
            await sent(send, shortened(messages) if is_short_of_words else messages)

        contract = ContractMiddleware(app, provider, operations=["GET /orders", OPERATION])
        status, stamp = response[0], provider.face(provider.state, {}).stamp
        is_success = 200 <= status < 300 or status == 304
        is_told = (is_checked or is_success) and status not in (401, 429) and status < 500
        expected = stamped_by_hand(method, *response, stamp) if is_told else messages
        for _ in range(2):  # the first request finds out what the next ones need not
            assert shortened(answered(contract, method)) == shortened(expected)
        assert provider.counts.stamped == 2 * is_told
        taken.update(ways[1:])

    same()
    assert taken == {"long", "short"}


def test_the_short_way_gives_what_the_long_one_gives():
    taken = set()

    def serve(response, method, level, checks, *, is_short):
        provider = Provider(TABLES, wire=WireFormat(level=level))
        provider.registry.state = state
        ways, sent = ways_of(provider)
        if not is_short:
            provider.usual = lambda: None

        @provider.policy
        def needs_a_code(request, tables):
            code = tables.codes["x"]["code"]
            return None if request["code"] == code else fix("F", code=code)

        async def app(scope, receive, send):
            await receive()
            given = {"check": {"code": "A"}, "refused": {"code": "B"}, "malformed": []}.get(checks)
            if given is not None:
                provider.check(given)
            await sent(send, messages_of(*response))

        contract = ContractMiddleware(app, provider, operations=["GET /orders", OPERATION])
        answered(contract)  # the first request finds out what the next ones need not
        told = shortened(answered(contract, method, asked=b'{"code":"B"}'))
        taken.update((is_short, way) for way in ways[1:])
        return told, provider.counts.stamped

    @given(
        usual_responses() | responses(),
        methods,
        st.sampled_from([0, 1, 6]),
        st.sampled_from(["none", "check", "refused", "malformed"]),
    )
    @example((200, USUAL, [b"{}"]), "POST", 6, "check")
    @example((200, USUAL, [b"{}"]), "HEAD", 6, "check")
    @example((200, USUAL, [b"{}", b""]), "POST", 6, "check")
    @example((200, [*USUAL, (b"set-cookie", b"a=b")], [b"{}"]), "POST", 6, "check")
    def same(response, method, level, checks):
        asked = response, method, level, checks
        assert serve(*asked, is_short=True) == serve(*asked, is_short=False)

    state = Provider(TABLES).state
    same()
    assert taken == {(True, "short"), (True, "long"), (False, "long")}


def test_a_success_that_waits_for_its_body_gives_way_to_a_refusal():
    provider = Provider(TABLES)

    @provider.policy
    def needs_a_code(request, tables):
        return None if request.get("code") else fix("F", code=tables.codes["x"]["code"])

    async def app(scope, receive, send):
        provider.check({"code": "A"})
        kind = (b"content-type", b"application/json")
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2"), kind]}
        )
        provider.check({})

    contract = ContractMiddleware(app, provider, operations=[OPERATION])
    for _ in range(2):  # the first request finds out what the next ones need not
        start, body = answered(contract)
        assert start["status"] == 422
        assert json.loads(body["body"])["table_versions"]


def test_headers_that_can_be_read_only_once_are_stamped():
    provider = Provider(TABLES)

    async def app(scope, receive, send):
        once = iter([(b"content-type", b"application/json")])
        await send({"type": "http.response.start", "status": 200, "headers": once})
        await send({"type": "http.response.body", "body": b"{}"})

    start, body = answered(ContractMiddleware(app, provider, operations=[OPERATION]))
    assert start["headers"] == [(b"content-type", b"application/json")]
    assert b'"table_versions"' in body["body"]


@pytest.mark.parametrize("way", ["short", "long"])
def test_what_an_app_sends_is_left_as_it_was(way):
    provider = Provider(TABLES)
    headers = [*USUAL, (b"x-request-id", b"7")] if way == "long" else [*USUAL]
    messages = list(messages_of(200, headers, [b"{}"]))
    before = deepcopy(messages)
    ways, sent = ways_of(provider)

    async def app(scope, receive, send):
        provider.check({})
        await sent(send, messages)

    contract = ContractMiddleware(app, provider, operations=[OPERATION])
    first, second, third = (shortened(answered(contract)) for _ in range(3))
    assert first == second == third != shortened(messages)
    assert messages == before
    assert ways == ["long", way, way]  # the first request finds out what the next ones need not


async def by_one_message(send, headers):
    message = {"type": "http.response.start", "status": 201, "headers": headers}
    await send(message)
    for name in ("status", "headers"):
        del message[name]
    message |= {"type": "http.response.body", "body": b"{}"}
    await send(message)


async def by_one_that_is_changed_then(send, headers):
    message = {"type": "http.response.start", "status": 201, "headers": headers}
    await send(message)
    message["status"] = 500
    headers.clear()
    await send({"type": "http.response.body", "body": b"{}"})


@pytest.mark.parametrize("responding", [by_one_message, by_one_that_is_changed_then])
def test_what_an_app_does_with_a_message_that_it_has_sent_changes_nothing(responding):
    provider = Provider(TABLES)
    ways, sent_so_far = ways_of(provider)

    async def app(scope, receive, send):
        provider.check({})
        await responding(send, [*USUAL])
        await sent_so_far(send, [])

    contract = ContractMiddleware(app, provider, operations=[OPERATION])
    sent = [answered(contract) for _ in range(3)]
    assert sent[0] == sent[1] == sent[2]
    assert ways == ["long", "short", "short"]
    assert [message["type"] for message in sent[2]] == ["http.response.start", "http.response.body"]
    assert sent[2][0]["status"] == 201
    assert b'"table_versions"' in sent[2][1]["body"]


async def elsewhere(request: Request):
    return PlainTextResponse("", 299)


@pytest.mark.parametrize("framework", ["fastapi", "starlette"])
def test_the_contract_takes_just_the_paths_that_its_routes_take_before_a_route_that_takes_every_path(
    framework,
):
    app = FastAPI() if framework == "fastapi" else Starlette()
    app.router.add_route("/{rest:path}", elsewhere, ["GET", "POST", "HEAD"])
    (install if framework == "fastapi" else install_in_starlette)(app, Provider(TABLES))
    own = [route for route in app.router.routes if "/contract/" in route.path]
    assert own

    @given(
        st.sampled_from(["", "/v1", "/contract"]),
        st.sampled_from(["", "/v1", "/contract", "/contract/state"]),
        st.sampled_from(
            ["/contract/state", "/contract/changes", "/contract/fixes", "/Contract/state", "/", ""]
        ),
        st.sampled_from(["", "/", "\n", "x", "/contract/state"]),
        st.sampled_from(["GET", "POST", "HEAD"]),
    )
    def same(root_path, prefix, path, suffix, method):
        asked = {"method": method, "root_path": root_path, "path": f"{prefix}{path}{suffix}" or "/"}
        is_own = any(route.matches({"type": "http", **asked})[0] is Match.FULL for route in own)
        start, *_ = answered(app, query_string=b"", **asked)
        is_elsewhere = start["status"] in (299, 307, 404)  # a path without a slash is led to one with it
        assert is_elsewhere is not is_own

    same()


def test_an_app_that_shares_a_route_tells_no_more_than_it_may():
    """The contract of one app is for those who have logged in, and that of the other for everybody."""
    provider, router = Provider(TABLES), APIRouter()

    @router.post("/orders")
    async def order() -> dict[str, bool]:
        return {"ordered": True}

    def login() -> None:
        """Lets everybody in."""

    is_open, is_closed = FastAPI(), FastAPI()
    for app, dependencies in ((is_open, None), (is_closed, [Depends(login)])):
        app.router.routes.extend(router.routes)
        install(app, provider, dependencies=dependencies)
    for _ in range(2):  # the first request finds out what the next ones need not
        assert b"table_versions" in answered(is_open, query_string=b"")[1]["body"]
        assert b"table_versions" not in answered(is_closed, query_string=b"")[1]["body"]


def test_a_policy_that_is_declared_while_an_app_serves_holds_for_the_next_request_and_its_fix_can_be_kept():
    provider, app = Provider(TABLES), FastAPI()

    @app.post("/orders")
    async def order(wanted: dict[str, str]) -> dict[str, bool]:
        provider.check(wanted)
        return {"ordered": True}

    def code_is_right(request, tables):
        code = tables.codes["x"]["code"]
        return None if request.equals("code", code) else fix("USE", code=code)

    def asks():
        said = {"headers": [(b"content-type", b"application/json")], "query_string": b""}
        start, body = answered(app, asked=b'{"code":"B"}', **said)
        return start["status"], json.loads(body["body"])

    install(app, provider)
    assert [asks()[0] for _ in range(2)] == [200, 200]
    provider.policy(code_is_right)
    status, told = asks()
    assert status == 422
    assert told["recovery_feedback"]["suggestions"][0]["unless"] == {"code": ["A"]}


def test_a_request_that_an_app_makes_to_itself_leaves_the_app_its_own_and_nobody_has_one_after_both():
    provider, pins = Provider(TABLES), []

    async def app(scope, receive, send):
        pins.append(provider.pin)
        if scope["path"] == "/orders":
            await contract({**asked, "path": "/inner"}, receive, send)
            pins.append(provider.pin)

    async def silent(*message):
        return {"type": "http.request", "body": b"", "more_body": False}

    async def twice():  # in one context
        for _ in range(2):
            await contract({**asked, "path": "/orders"}, silent, silent)
            pins.append(provider.pin)

    asked = {"type": "http", "method": "POST", "headers": []}
    contract = ContractMiddleware(app, provider, operations=[OPERATION])
    asyncio.run(twice())
    for outer, inner, again, after in (pins[:4], pins[4:]):
        assert outer is again is not None
        assert inner is not None
        assert inner is not outer
        assert after is None
    assert pins[0] is not pins[4]


@pytest.mark.parametrize("is_quick", [True, False])
def test_a_refusal_that_comes_after_the_start_of_another_response_counts_as_one(is_quick):
    provider = Provider(TABLES)
    provider.policy(lambda request, tables: fix("USE", promo="A") if request.get("plan") == "x" else None)

    async def app(scope, receive, send):
        provider.check({})
        start, _ = messages_of(200, USUAL, [b"{}"])
        await send(start)
        provider.check({"plan": "x"})

    said = [] if is_quick else [(b"contract-at", b"")]
    start, _ = answered(ContractMiddleware(app, provider), headers=said)
    assert (start["status"], provider.counts.stamped) == (422, 1)
