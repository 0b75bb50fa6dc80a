"""The transports ask about what is suspect before they amend, of a real server that will not keep still."""

import asyncio

import httpx
import httpx2
import pytest

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.client import Memory
from shelflife.client.events import Suspected
from shelflife.client.guard import Guard
from shelflife.testing import serving
from tests.acme_world import GOVERNED, Restless, stir
from tests.integrations.transports import async_memory_transport, memory_transport


@pytest.fixture(params=[httpx2, httpx], ids=["httpx2", "httpx"])
def library(request):
    return request.param


CHOICES = [{}, {"compact": True}]


@pytest.mark.parametrize("choices", CHOICES)
def test_every_request_but_the_first_succeeds_at_a_server_that_moves_with_everything_it_says(
    library, choices
):
    with serving(Restless()) as address:
        transport = memory_transport(
            Memory(most_evictions=0), library.HTTPTransport(), guard=Guard(), **choices
        )
        with library.Client(base_url=address, transport=transport) as client:
            statuses = [client.post("/subscriptions", json=GOVERNED).status_code for _ in range(5)]
    assert statuses == [422, 201, 201, 201, 201]


@pytest.mark.parametrize("choices", CHOICES)
def test_async_clients_have_the_same(library, choices):
    async def story(address):
        transport = async_memory_transport(
            Memory(most_evictions=0), library.AsyncHTTPTransport(), guard=Guard(), **choices
        )
        async with library.AsyncClient(base_url=address, transport=transport) as client:
            return [(await client.post("/subscriptions", json=GOVERNED)).status_code for _ in range(5)]

    with serving(Restless()) as address:
        assert asyncio.run(story(address)) == [422, 201, 201, 201, 201]


class Recording:
    """An app that notes what it is asked, and may be told not to answer questions."""

    def __init__(self, app):
        self.app = app
        self.questions = []
        self.is_silent = False

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http" and scope["path"] == "/contract/fixes":
            self.questions.append((scope["method"], dict(scope["headers"])))
            if self.is_silent:
                await send({"type": "http.response.start", "status": 500, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
        await self.app(scope, receive, send)


@pytest.fixture
def provider():
    return acme_provider()


@pytest.fixture
def recording(provider):
    return Recording(acme_app(provider))


@pytest.fixture
def address(recording):
    with serving(recording) as address:
        yield address


def test_the_question_has_the_callers_credentials_and_nothing_of_the_body(
    library, address, provider, recording
):
    events = []
    memory = Memory(most_evictions=0, on_event=events.append)
    transport = memory_transport(memory, library.HTTPTransport(), guard=Guard(), compact=True)
    headers = {"Authorization": "Bearer me", "Idempotency-Key": "1", "Prefer": "x"}
    with library.Client(base_url=address, transport=transport, headers=headers) as client:
        for _ in range(2):
            client.post("/subscriptions", json=GOVERNED)
        stir(provider, 1)
        assert client.post("/subscriptions", json=GOVERNED).status_code == 201
        assert [type(event) for event in events].count(Suspected) == 1
        assert recording.questions == []
        assert client.post("/subscriptions", json=GOVERNED).status_code == 201
        assert client.post("/subscriptions", json=GOVERNED).status_code == 201
    [(method, asked)] = recording.questions
    assert method == "POST"
    assert asked[b"authorization"] == b"Bearer me"
    assert asked[b"content-type"] == b"application/json"
    assert not asked.keys() & {b"idempotency-key", b"prefer", b"contract-epoch"}


def test_without_an_answer_the_request_goes_out_as_it_is(library, address, provider, recording):
    recording.is_silent = True
    transport = memory_transport(Memory(most_evictions=0), library.HTTPTransport(), guard=Guard())
    with library.Client(base_url=address, transport=transport) as client:
        client.post("/subscriptions", json=GOVERNED)
        stir(provider, 1)
        assert client.post("/subscriptions", json=GOVERNED).status_code == 201
        assert client.post("/subscriptions", json=GOVERNED).status_code == 422
        assert client.post("/subscriptions", json=GOVERNED).status_code == 201
    assert len(recording.questions) == 1


@pytest.mark.parametrize("guard", [None, Guard(operations=frozenset())])
def test_what_will_not_be_amended_is_not_asked_about(library, address, provider, recording, guard):
    transport = memory_transport(Memory(most_evictions=0), library.HTTPTransport(), guard=guard)
    with library.Client(base_url=address, transport=transport) as client:
        client.post("/subscriptions", json=GOVERNED)
        stir(provider, 1)
        client.get("/openapi.json")
        client.post("/subscriptions", json=GOVERNED | {"plan": "plan_basic_monthly"})
        assert [entry.is_suspect for entry in transport.memory.store.entries()] == [True]
        client.post("/subscriptions", json=GOVERNED)
    assert recording.questions == []


def test_a_body_that_must_go_out_as_it_is_is_not_asked_about(library, address, provider, recording):
    transport = memory_transport(Memory(most_evictions=0), library.HTTPTransport(), guard=Guard())
    with library.Client(base_url=address, transport=transport) as client:
        client.post("/subscriptions", json=GOVERNED)
        stir(provider, 1)
        client.post("/subscriptions", json=GOVERNED | {"plan": "plan_basic_monthly"})
        client.post("/subscriptions", json=GOVERNED, headers={"Content-Digest": "sha-256=:x:"})
    assert recording.questions == []


class Broken(Memory):
    """A memory that cannot revalidate anything."""

    def __init__(self):
        super().__init__()
        self.revalidating = self.fail

    def fail(self, *arguments):
        raise RuntimeError("no such luck")
        yield


def test_a_check_that_fails_fails_no_request(library, address):
    transport = memory_transport(Broken(), library.HTTPTransport(), guard=Guard())
    with library.Client(base_url=address, transport=transport) as client:
        assert [client.post("/subscriptions", json=GOVERNED).status_code for _ in range(2)] == [422, 201]

    async def story():
        transport = async_memory_transport(Broken(), library.AsyncHTTPTransport(), guard=Guard())
        async with library.AsyncClient(base_url=address, transport=transport) as client:
            return [(await client.post("/subscriptions", json=GOVERNED)).status_code for _ in range(2)]

    assert asyncio.run(story()) == [422, 201]
