"""A memory behind a real HTTP client, blocking and async, of every library."""

import asyncio
import json
from itertools import count

import httpx
import httpx2
import pytest

from shelflife.apis.acme import ROTATED_CODES, acme_app, acme_provider
from shelflife.client import Memory
from shelflife.client.events import Applied, Unjudged
from shelflife.client.guard import Guard
from shelflife.contract.positions import Named
from shelflife.testing import serving
from tests.acme_world import GOVERNED
from tests.integrations.other_clients import OTHERS
from tests.integrations.transports import async_memory_transport, memory_transport


@pytest.fixture
def provider():
    return acme_provider()


@pytest.fixture
def address(provider):
    with serving(acme_app(provider)) as address:
        yield address


@pytest.fixture(params=[httpx2, httpx, *OTHERS], ids=lambda library: library.__name__)
def library(request):
    return request.param


def test_a_fix_is_learned_applied_and_replaced_with_nothing_else_changed(address, provider, library):
    memory = Memory()
    transport = memory_transport(memory, library.HTTPTransport(), guard=Guard())
    with library.Client(base_url=address, transport=transport) as client:
        assert client.post("/subscriptions", json=GOVERNED).status_code == 422
        made = client.post("/subscriptions", json=GOVERNED)
        assert made.status_code == 201
        assert made.json()["subscription"]["promo_code"] == "SUMMERSALE25"
        [applied] = made.request.extensions["shelflife"].applied
        assert isinstance(applied, Applied)
        provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES)
        assert client.post("/subscriptions", json=GOVERNED).status_code == 422
        made = client.post("/subscriptions", json=GOVERNED)
        assert made.json()["subscription"]["promo_code"] == "WINTERLAUNCH26"
    assert memory.statistics.evictions == {"row_changed": 1}


@pytest.mark.parametrize(
    "options", [{"guard": Guard(), "conditional": True}, {"guard": Guard()}, {"guard": None}]
)
def test_what_was_applied_is_told_of_every_request_even_where_nothing_was(address, library, options):
    transport = memory_transport(Memory(), library.HTTPTransport(), **options)
    with library.Client(base_url=address, transport=transport) as client:
        asked = [client.post("/subscriptions", json=GOVERNED), client.get("/docs")]
    told = [response.request.extensions["shelflife"] for response in asked]
    assert [(one.applied, one.refused) for one in told] == [([], [])] * 2
    assert told[0].request == GOVERNED


def test_without_a_guard_requests_are_only_watched(address, library):
    memory = Memory()
    with library.Client(
        base_url=address, transport=memory_transport(memory, library.HTTPTransport())
    ) as client:
        for _ in range(2):
            assert client.post("/subscriptions", json=GOVERNED).status_code == 422
        assert len(memory.recall(address, "POST /subscriptions", GOVERNED)) == 1


def test_async_clients_have_the_same(address, provider, library):
    async def story():
        memory = Memory()
        transport = async_memory_transport(memory, library.AsyncHTTPTransport(), guard=Guard())
        async with library.AsyncClient(base_url=address, transport=transport) as client:
            statuses = [(await client.post("/subscriptions", json=GOVERNED)).status_code for _ in range(2)]
            provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES)
            statuses += [(await client.post("/subscriptions", json=GOVERNED)).status_code for _ in range(2)]
        return statuses, memory.statistics

    statuses, statistics = asyncio.run(story())
    assert statuses == [422, 201, 422, 201]
    assert statistics.evictions == {"row_changed": 1}


def test_what_is_no_json_goes_through_untouched(address, library):
    with library.Client(
        base_url=address, transport=memory_transport(Memory(), library.HTTPTransport(), guard=Guard())
    ) as client:
        assert client.get("/docs").status_code == 200
        assert (
            client.post(
                "/subscriptions", content=b"\xff", headers={"content-type": "application/json"}
            ).status_code
            == 400
        )
        with client.stream("GET", "/openapi.json") as response:
            assert b"".join(response.iter_bytes()).startswith(b"{")


def test_an_operation_can_be_named_by_its_template(address, library):
    memory = Memory()
    transport = memory_transport(memory, library.HTTPTransport(), operation=lambda request: "subscribe")
    with library.Client(base_url=address, transport=transport) as client:
        client.post("/subscriptions", json=GOVERNED)
    assert len(memory.recall(address, "subscribe", GOVERNED)) == 1


class Enormous:
    """An ASGI app that has a movement to tell of with every response, and when asked about it never comes to an end."""

    def __init__(self):
        self.count = 0
        self.asked_with = []

    async def __call__(self, scope, receive, send):
        headers = dict(scope["headers"])
        is_question = scope["path"].startswith("/contract/")
        content_type = (b"content-type", b"application/json")
        if is_question:
            self.asked_with.append(headers)
            await send({"type": "http.response.start", "status": 200, "headers": [content_type]})
            for _ in range(64):
                await send({"type": "http.response.body", "body": b" " * 1024 * 1024, "more_body": True})
            await send({"type": "http.response.body", "body": b"{}"})
            return
        self.count += 1
        fix = b'{"type": "F", "parameters": {}, "cache_hint": "cacheable", "table": "t"}'
        body = b'{"table_versions": {"t": "%d"}, "recovery_feedback": {"suggestions": [%b]}}' % (
            self.count,
            fix,
        )
        length = (b"content-length", str(len(body)).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [content_type, length]})
        await send({"type": "http.response.body", "body": body})


def test_the_server_is_asked_with_the_callers_credentials_and_not_listened_to_for_ever(library):
    app = Enormous()
    headers = {"Authorization": "Bearer me", "Idempotency-Key": "1"}
    with serving(app) as address:
        transport = memory_transport(Memory(), library.HTTPTransport())
        with library.Client(base_url=address, transport=transport, headers=headers) as client:
            for _ in range(2):
                assert client.post("/x", json={}).status_code == 200

        async def story():
            transport = async_memory_transport(Memory(), library.AsyncHTTPTransport())
            async with library.AsyncClient(base_url=address, transport=transport, headers=headers) as client:
                for _ in range(2):
                    assert (await client.post("/x", json={})).status_code == 200

        asyncio.run(story())
    assert len(app.asked_with) == 2
    for asked in app.asked_with:
        assert asked[b"authorization"] == b"Bearer me"
        assert asked[b"host"].decode() in address
        assert b"idempotency-key" not in asked
        assert b"content-length" not in asked


def test_a_stale_fix_is_replaced_before_the_caller_sees_anything(address, provider, library):
    transport = memory_transport(Memory(), library.HTTPTransport(), guard=Guard(), conditional=True)
    with library.Client(base_url=address, transport=transport) as client:
        assert client.post("/subscriptions", json=GOVERNED).status_code == 422
        assert client.post("/subscriptions", json=GOVERNED).status_code == 201
        provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES)
        made = client.post("/subscriptions", json=GOVERNED)
        assert made.status_code == 201
        assert made.json()["subscription"]["promo_code"] == "WINTERLAUNCH26"

    async def story():
        transport = async_memory_transport(
            Memory(), library.AsyncHTTPTransport(), guard=Guard(), compact=True, conditional=True
        )
        async with library.AsyncClient(base_url=address, transport=transport) as client:
            statuses = [(await client.post("/subscriptions", json=GOVERNED)).status_code for _ in range(2)]
            row = {"plan_partner_growth": {"code": "SUMMERSALE25"}}
            provider.registry.reload_table("active_csm_codes", set=row)
            statuses.append((await client.post("/subscriptions", json=GOVERNED)).status_code)
            provider.registry.reload_table("token_funding_map", set={"unrelated": {"funding": "debit"}})
            statuses.append((await client.post("/subscriptions", json=GOVERNED)).status_code)
            return statuses

    assert asyncio.run(story()) == [422, 201, 201, 201]


@pytest.mark.parametrize("compact", [False, True])
def test_a_server_that_moves_elsewhere_all_the_time_costs_a_round_trip_at_most(library, compact):
    provider = acme_provider()
    app = acme_app(provider)
    numbers = count()
    seen = []

    async def moving(scope, receive, send):
        if scope.get("path") == "/subscriptions":
            seen.append(dict(scope["headers"]).get(b"contract-precondition"))
            row = {"unrelated": {"funding": f"debit-{next(numbers)}"}}
            provider.registry.reload_table("token_funding_map", set=row)
        await app(scope, receive, send)

    with serving(moving) as address:
        transport = memory_transport(
            Memory(), library.HTTPTransport(), guard=Guard(), compact=compact, conditional=True
        )
        with library.Client(base_url=address, transport=transport) as client:
            statuses = [client.post("/subscriptions", json=GOVERNED).status_code for _ in range(4)]
    assert statuses == [422, 201, 201, 201]
    assert len(seen) == (7 if compact else 4)


REFUSAL = (
    b'{"table_versions": {"t": "1"}, "recovery_feedback": {"suggestions": [{"type": "T", "parameters": {"x": 1},'
    b'"cache_hint": "cacheable", "table": "t", "tables": [{"table": "t", "version": "1"}], "rows": ["t:k"],'
    b'"when": {}, "unless": {"x": [1]}}]}}'
)


class AlwaysMoved:
    """An ASGI app that refuses every precondition, and counts."""

    def __init__(self):
        self.count = 0
        self.bodies = []

    async def __call__(self, scope, receive, send):
        assert scope["type"] == "http"
        self.count += 1
        self.bodies.append(json.loads((await receive())["body"]))
        said = dict(scope["headers"])
        named = Named.from_header(said[b"contract-at"].decode())
        position = {"to": "AbCdEf1", "nonce": named.nonce}
        body = json.dumps({**json.loads(REFUSAL), "at": position}).encode()
        conditional = b"contract-precondition" in said
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if conditional:
            headers.append((b"contract-precondition", b"failed"))
        await send({"type": "http.response.start", "status": 412 if conditional else 422, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def test_a_server_that_always_says_that_it_moved_gets_the_request_as_it_came_in_the_end(library):
    app = AlwaysMoved()
    with serving(app) as address:
        transport = memory_transport(Memory(), library.HTTPTransport(), guard=Guard(), conditional=True)
        with library.Client(base_url=address, transport=transport) as client:
            assert client.post("/x", json={"a": 1}).status_code == 422
            assert client.post("/x", json={"a": 1}).status_code == 422
    assert app.count == 1 + 3
    assert app.bodies == [{"a": 1}, {"a": 1, "x": 1}, {"a": 1, "x": 1}, {"a": 1}]


@pytest.mark.spec("12.9")
@pytest.mark.parametrize(
    ("status", "verdict", "is_told"),
    [
        (200, None, True),
        (200, "met", False),
        (200, "failed", True),
        (500, None, True),
        (503, "met", False),
        (412, None, False),
        (401, None, False),
        (200, "nonsense", True),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_precondition_that_nobody_has_found_to_be_met_is_told(library, status, verdict, is_told, is_async):
    """A server that knows nothing of them, or goes on regardless; and a 412 of the app's own is for the caller."""
    seen = []

    async def app(scope, receive, send):
        seen.append(json.loads((await receive())["body"]))
        conditional = len(seen) > 1
        headers = [(b"content-type", b"application/json")]
        if conditional and verdict:
            headers.append((b"contract-precondition", verdict.encode()))
        body = b'{"table_versions":{"t":"1"}}' if conditional else REFUSAL
        await send(
            {"type": "http.response.start", "status": status if conditional else 422, "headers": headers}
        )
        await send({"type": "http.response.body", "body": body})

    happened = []
    memory = Memory(on_event=happened.append)

    async def story(address):
        transport = async_memory_transport(
            memory, library.AsyncHTTPTransport(), guard=Guard(), conditional=True
        )
        async with library.AsyncClient(base_url=address, transport=transport) as client:
            return [(await client.post("/x", json={"a": 1})).status_code for _ in range(2)]

    with serving(app) as address:
        if is_async:
            statuses = asyncio.run(story(address))
        else:
            transport = memory_transport(memory, library.HTTPTransport(), guard=Guard(), conditional=True)
            with library.Client(base_url=address, transport=transport) as client:
                statuses = [client.post("/x", json={"a": 1}).status_code for _ in range(2)]
    assert statuses == [422, status]
    assert seen == [{"a": 1}, {"a": 1, "x": 1}]
    told = [event for event in happened if isinstance(event, Unjudged)]
    assert told == ([Unjudged(address, "POST /x")] if is_told else [])


def test_a_412_to_a_request_without_a_precondition_is_for_the_caller(library):
    """Whatever the server says of a precondition that there was not."""

    async def app(scope, receive, send):
        headers = [(b"content-type", b"application/json"), (b"contract-precondition", b"failed")]
        await send({"type": "http.response.start", "status": 412, "headers": headers})
        await send({"type": "http.response.body", "body": REFUSAL})

    with serving(app) as address:
        transport = memory_transport(Memory(), library.HTTPTransport(), guard=Guard(), conditional=True)
        with library.Client(base_url=address, transport=transport) as client:
            assert client.post("/x", json={"a": 1}).status_code == 412


@pytest.mark.parametrize("wrong", [{"memory": "memory.db"}, {"memory": Memory(), "guard": True}])
def test_what_a_transport_cannot_be_made_of_is_told_at_once(library, wrong):
    with pytest.raises(TypeError, match="a transport takes a Memory, and a Guard"):
        memory_transport(transport=library.HTTPTransport(), **wrong)
