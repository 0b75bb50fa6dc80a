"""Whose time it is: a caller waits for the server on the caller's own terms, and for the memory's questions for a moment at most."""

import asyncio
import json
import logging
import socket
import threading
import time
from contextlib import contextmanager

import httpx
import httpx2
import pytest

from shelflife.client import Guard, Memory, asking
from shelflife.client.events import Ignored, Stored
from shelflife.testing import serving
from tests.integrations.transports import async_memory_transport, memory_transport

BOUND_S = 1.0
"""In place of 5 seconds."""

LATEST_S = 10.0
"""Whoever is held up for as long as the servers here would like to takes more than twice as long."""

FIX = {
    "type": "F",
    "parameters": {"x": 1},
    "cache_hint": "cacheable",
    "tables": [{"table": "t", "version": "1"}],
    "rows": ["t:k"],
    "when": {},
}


@pytest.fixture(params=[httpx2, httpx], ids=["httpx2", "httpx"])
def library(request):
    return request.param


@pytest.fixture
def bound(monkeypatch):
    monkeypatch.setattr(asking, "_LONGEST_ASKING_S", BOUND_S)


@pytest.fixture(params=["blocking", "async"])
def took(request, library):
    """Sends requests one after another, and tells how long the last has taken, with its response."""

    def blocking(memory, address, *requests, **options):
        transport = memory_transport(memory, library.HTTPTransport(), **options)
        with library.Client(base_url=address, transport=transport, timeout=60) as client:
            for one in requests:
                begun_at = time.monotonic()
                response = client.post("/x", json=one)
            return time.monotonic() - begun_at, response

    async def waiting(memory, address, *requests, **options):
        transport = async_memory_transport(memory, library.AsyncHTTPTransport(), **options)
        async with library.AsyncClient(base_url=address, transport=transport, timeout=60) as client:
            for one in requests:
                begun_at = time.monotonic()
                response = await client.post("/x", json=one)
            return time.monotonic() - begun_at, response

    if request.param == "blocking":
        return blocking
    return lambda *arguments, **options: asyncio.run(waiting(*arguments, **options))


class Slow:
    """A server on bare sockets that refuses each request with a fix of its next version, and answers questions one byte at a time."""

    def __init__(self, how):
        self.how = how
        self.version = 0
        self.asked_count = 0
        self.over = threading.Event()

    @contextmanager
    def serving(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=self._accept, args=[listener], daemon=True).start()
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                self.over.set()

    def _accept(self, listener):
        while not self.over.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection):
        with connection:
            try:
                while (head := self._head(connection)) and not self.over.is_set():
                    self._answer(connection, head)
            except OSError:
                return

    def _head(self, connection):
        read = b""
        while b"\r\n\r\n" not in read:
            more = connection.recv(65536)
            if not more:
                return b""
            read += more
        head, _, body = read.partition(b"\r\n\r\n")
        length = next(
            (int(h.split(b":")[1]) for h in head.lower().split(b"\r\n") if b"content-length" in h), 0
        )
        while len(body) < length:
            body += connection.recv(65536)
        return head.lower()

    def _answer(self, connection, head):
        if b"/contract/" not in head.split(b"\r\n")[0]:
            self.version += 1
            fix = FIX | {"tables": [{"table": "t", "version": str(self.version)}]}
            members = {
                "table_versions": {"t": str(self.version)},
                "recovery_feedback": {"suggestions": [fix]},
            }
            connection.sendall(answered(json.dumps(members).encode(), b"422 No"))
            return
        self.asked_count += 1
        whole = answered(b" " * 200 + b"{}")
        at_once = {"headers": 20, "body": whole.index(b"\r\n\r\n") + 4, "nothing": 0}[self.how]
        connection.sendall(whole[:at_once])
        for byte in whole[at_once:]:
            if self.over.wait(0.1):
                return
            if self.how != "nothing":
                connection.sendall(bytes([byte]))


def answered(body, status=b"200 OK", *headers):
    length = b"content-length: %d" % len(body)
    return b"\r\n".join(
        [b"HTTP/1.1 " + status, b"content-type: application/json", length, *headers, b"", body]
    )


@pytest.mark.parametrize("how", ["headers", "body", "nothing"])
def test_a_server_that_answers_a_byte_at_a_time_holds_nobody_up_for_longer_than_one_that_is_silent(
    took, bound, how, caplog
):
    server = Slow(how)
    with server.serving() as address:
        took_s, response = took(Memory(), address, {}, {})
    assert response.status_code == 422
    assert server.asked_count == 1
    assert took_s < LATEST_S
    assert "has not answered within" in caplog.text


def test_a_transport_of_the_users_own_is_given_what_is_left_as_timeouts(library, bound):
    """So that it need not know of any other, and the clock is looked at whenever something comes in."""
    given = []

    class Wrapping(library.BaseTransport):
        def __init__(self):
            self._transport = library.HTTPTransport()

        def handle_request(self, request):
            if request.url.path.startswith("/contract/"):
                given.append(request.extensions["timeout"])
            return self._transport.handle_request(request)

        def close(self):
            self._transport.close()

    with Slow("body").serving() as address:
        transport = memory_transport(Memory(), Wrapping())
        timeout = library.Timeout(60, pool=0.1)
        with library.Client(base_url=address, transport=transport, timeout=timeout) as client:
            client.post("/x", json={})
            begun_at = time.monotonic()
            client.post("/x", json={})
            assert time.monotonic() - begun_at < LATEST_S
    [left] = given
    assert left.pop("pool") == 0.1  # the caller's own, which is less
    assert {*left} == {"connect", "read", "write"}
    assert all(0 < one <= BOUND_S for one in left.values())


class Asked:
    """An ASGI app of whose state every reply says that it has moved, and which takes its time for each answer."""

    def __init__(self, takes_s):
        self.takes_s = takes_s
        self.version = 0
        self.asked_count = 0

    async def __call__(self, scope, receive, send):
        headers = [(b"content-type", b"application/json")]
        tables = [f"{'t' * 120}{number}" for number in range(64)]
        if scope["path"].startswith("/contract/"):
            self.asked_count += 1
            await asyncio.sleep(self.takes_s)
            body = b"{}"
        else:
            self.version += 1
            version = str(self.version)
            fixes = [
                FIX
                | {
                    "type": f"F{table}",
                    "tables": [{"table": table, "version": version}],
                    "rows": [f"{table}:k"],
                }
                for table in tables
            ]
            versions = dict.fromkeys(tables, version)
            body = json.dumps(
                {"table_versions": versions, "recovery_feedback": {"suggestions": fixes}}
            ).encode()
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def test_the_questions_of_one_step_have_one_bound_for_all_of_them(took, monkeypatch):
    monkeypatch.setattr(asking, "_LONGEST_ASKING_S", 2.0)
    app = Asked(takes_s=1.2)
    with serving(app) as address:
        took_s, response = took(Memory(), address, {}, {})
    assert response.status_code == 200
    assert app.asked_count == 2
    assert took_s < LATEST_S


def test_the_callers_own_request_has_the_callers_time(took, bound):
    """However slowly its reply comes in, it is learned from."""

    async def app(scope, receive, send):
        await asyncio.sleep(BOUND_S)
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for byte in b'{"table_versions":{"t":"1"}}':
            await asyncio.sleep(BOUND_S / 20)
            await send({"type": "http.response.body", "body": bytes([byte]), "more_body": True})
        await send({"type": "http.response.body"})

    memory = Memory()
    with serving(app) as address:
        took_s, response = took(memory, address, {})
    assert response.json() == {"table_versions": {"t": "1"}}
    assert took_s > 2 * BOUND_S
    assert memory.store.known(address).knowledge.versions.tables == {"t": "1"}


def test_a_refusal_that_comes_in_too_slowly_is_given_up_and_the_request_goes_out_without_the_fix(took, bound):
    """The caller would never have seen it."""
    bodies = []

    async def app(scope, receive, send):
        bodies.append(json.loads((await receive())["body"]))
        asked = dict(scope["headers"])
        headers = [(b"content-type", b"application/json")]
        if b"contract-precondition" in asked:
            headers.append((b"contract-precondition", b"failed"))
            await send({"type": "http.response.start", "status": 412, "headers": headers})
            for _ in range(200):
                await send({"type": "http.response.body", "body": b" ", "more_body": True})
                await asyncio.sleep(BOUND_S / 10)
            return
        nonce = asked[b"contract-at"].decode().partition(";n=")[2]
        said = {"at": {"to": "AbCdEf1", "nonce": nonce}} if nonce else {"at": "AbCdEf1"}
        body = json.dumps({**said, "recovery_feedback": {"suggestions": [FIX]}}).encode()
        await send({"type": "http.response.start", "status": 422, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    memory = Memory()
    with serving(app) as address:
        took_s, response = took(memory, address, {"a": 1}, {"a": 1}, guard=Guard(), conditional=True)
    assert response.status_code == 422
    assert bodies == [{"a": 1}, {"a": 1, "x": 1}, {"a": 1}]
    assert took_s < LATEST_S


class Streaming:
    """An ASGI app that sends the rest of a body once somebody has got the first chunk of it."""

    def __init__(self, media_type=b"application/json", headers=()):
        self.got = threading.Event()
        self.headers = [(b"content-type", media_type), *headers]
        self.chunks = [b'{"table_versions": {"t": "1"},', b' "name": "a"}']

    async def __call__(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.chunks[0], "more_body": True})
        await asyncio.to_thread(self.got.wait, 60)
        await send({"type": "http.response.body", "body": self.chunks[1]})


def streamed(library, is_async, memory, address, on_chunk):
    """Read a body chunk by chunk, until whoever is told of one says that it is enough. Returns what there was."""
    chunks = []

    def blocking():
        transport = memory_transport(memory, library.HTTPTransport())
        with (
            library.Client(base_url=address, transport=transport) as client,
            client.stream("GET", "/x") as one,
        ):
            for chunk in one.iter_raw():
                chunks.append(chunk)
                if on_chunk(chunk):
                    break

    async def waiting():
        transport = async_memory_transport(memory, library.AsyncHTTPTransport())
        async with (
            library.AsyncClient(base_url=address, transport=transport) as client,
            client.stream("GET", "/x") as one,
        ):
            async for chunk in one.aiter_raw():
                chunks.append(chunk)
                if on_chunk(chunk):
                    break

    asyncio.run(waiting()) if is_async else blocking()
    return chunks


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "media_type",
    [b"application/json", b"application/problem+json", b"application/x-ndjson", b"application/json-seq"],
)
@pytest.mark.parametrize("headers", [(), ((b"content-length", b"43"),)], ids=["chunked", "with its length"])
def test_a_stream_of_json_reaches_the_caller_as_it_comes(library, is_async, media_type, headers):
    app, memory = Streaming(media_type, headers), Memory()
    with serving(app) as address:
        got = streamed(library, is_async, memory, address, lambda chunk: app.got.set())
    assert got == app.chunks
    is_one_value = media_type in (b"application/json", b"application/problem+json")
    known = memory.store.known(address).knowledge.versions.tables
    assert known == ({"t": "1"} if is_one_value else {})


@pytest.mark.parametrize("is_async", [False, True])
def test_a_caller_who_leaves_early_is_not_held_up_and_nothing_is_learned_from_the_rest(library, is_async):
    app, events = Streaming(), []
    memory = Memory(on_event=events.append)
    with serving(app) as address:
        assert streamed(library, is_async, memory, address, lambda chunk: True) == app.chunks[:1]
        app.got.set()
    assert [type(event) for event in events] == [Ignored]
    assert memory.store.known(address).knowledge.versions.tables == {}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_caller_who_leaves_at_the_end_of_the_value_has_read_it(library, is_async):
    """Such as a parser that stops at the last brace, while the connection stays open."""
    app, memory = Streaming(), Memory()
    app.chunks = [b'{"table_versions": {"t": "1"}}', b"\n"]
    with serving(app) as address:
        assert streamed(library, is_async, memory, address, lambda chunk: True) == app.chunks[:1]
        app.got.set()
    assert memory.store.known(address).knowledge.versions.tables == {"t": "1"}


@pytest.mark.parametrize("is_async", [False, True])
def test_nothing_is_used_of_a_server_that_may_have_said_something_else_in_the_rest(library, is_async):
    app, memory = Streaming(), Memory()
    app.chunks = [
        json.dumps({"table_versions": {"t": "1"}, "recovery_feedback": {"suggestions": [FIX]}}).encode(),
        b"",
    ]
    with serving(app) as address:
        app.got.set()
        streamed(library, is_async, memory, address, lambda chunk: False)
        assert len(memory.recall(address, "GET /x", {})) == 1
        app.got.clear()
        app.chunks = [b'{"table_versions":', b'{"t": "2"}}']
        streamed(library, is_async, memory, address, lambda chunk: True)
        app.got.set()
        assert memory.recall(address, "GET /x", {}) == []
        app.chunks = [b'{"table_versions":', b'{"t": "1"}}']
        streamed(library, is_async, memory, address, lambda chunk: False)


@pytest.mark.parametrize("is_async", [False, True])
def test_what_the_headers_say_of_a_stream_counts_from_its_beginning(library, is_async):
    app, memory = (
        Streaming(headers=[(b"contract-tables", b'"t";v="3"'), (b"contract-state", b'"s"')]),
        Memory(),
    )
    known = []
    with serving(app) as address:

        def on_chunk(chunk):
            known.append(dict(memory.store.known(address).knowledge.versions.tables))
            app.got.set()

        streamed(library, is_async, memory, address, on_chunk)
    assert known == [{"t": "3"}, {"t": "3"}]


def test_a_body_that_was_read_is_taken_in_before_the_call_returns(took):
    """With many small chunks, and whatever the memory does with it."""
    stored = []
    memory = Memory(on_event=lambda event: stored.append(isinstance(event, Stored)))
    body = json.dumps({"table_versions": {"t": "1"}, "recovery_feedback": {"suggestions": [FIX]}}).encode()

    async def app(scope, receive, send):
        await send(
            {
                "type": "http.response.start",
                "status": 422,
                "headers": [(b"content-type", b"application/json")],
            }
        )
        for byte in body:
            await send({"type": "http.response.body", "body": bytes([byte]), "more_body": True})
        await send({"type": "http.response.body"})

    with serving(app) as address:
        took(memory, address, {})
    assert stored == [True]


def test_a_debugging_user_sees_what_was_sent(library, caplog):
    caplog.set_level(logging.DEBUG, "shelflife.memory")
    body = {"table_versions": {"t": "1"}, "recovery_feedback": {"suggestions": [FIX]}}
    transport = memory_transport(
        Memory(), library.MockTransport(lambda request: library.Response(422, json=body)), guard=Guard()
    )
    with library.Client(base_url="http://h", transport=transport) as client:
        client.post("/x", json={"a": 1})
        response = client.post("/x", json={"a": 1})
    sent = response.extensions["shelflife_sent"]
    assert json.loads(sent.content) == {"a": 1, "x": 1}
    assert "contract-at" in sent.headers
    assert json.loads(response.request.content) == {"a": 1}
    assert "contract-at" not in response.request.headers
    assert "POST /x goes out with [{'x': 1}]" in caplog.text
