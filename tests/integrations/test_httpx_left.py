"""A step that is left in the middle gives its connection back, wherever that is: a pool of one has one afterwards."""

import asyncio
import json
import threading
from contextlib import AsyncExitStack, ExitStack

import anyio
import httpx
import httpx2
import pytest

from shelflife.client import Guard, Memory
from shelflife.testing import serving
from tests.integrations.transports import async_memory_transport, memory_transport

JSON = (b"content-type", b"application/json")
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


class Stuck:
    """An ASGI app that moves with every reply, and gets stuck at one point of what a memory makes of that, until it is told to go on."""

    def __init__(self, at=""):
        self.at = at
        self.is_there = threading.Event()
        self.goes_on = threading.Event()
        self.version = 0

    async def __call__(self, scope, receive, send):
        path, asked = scope["path"], dict(scope["headers"])
        await receive()
        if path == "/plain":
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body"})
        elif path.startswith("/contract/"):
            await self._stuck("asked")
            await send({"type": "http.response.start", "status": 200, "headers": [JSON]})
            await self._body(send, b'{"tables":', b"{}}", at="answering")
        elif path == "/stream":
            self.version += 1
            stamps = [
                (b"contract-tables", b'"t";v="%d"' % self.version),
                (b"contract-state", b'"s%d"' % self.version),
            ]
            headers = [(b"content-type", b"text/plain"), *stamps]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._body(send, b"x" * 100_000, b"x", at="streaming")
        elif b"contract-precondition" in asked:
            headers = [JSON, (b"contract-precondition", b"failed")]
            await send({"type": "http.response.start", "status": 412, "headers": headers})
            await self._body(send, b'{"at":', b'"AbCdEf2"}', at="refusing")
        else:
            self.version += 1
            await send({"type": "http.response.start", "status": 422, "headers": [JSON]})
            whole = json.dumps(self._said(asked.get(b"contract-at", b"").decode(), path)).encode()
            await self._body(send, whole[:20], whole[20:], at="replying")

    def _said(self, named, path):
        said = {"recovery_feedback": {"suggestions": [FIX]}}
        if path == "/positions":
            nonce = named.partition(";n=")[2]
            return said | {"at": {"to": "AbCdEf1", "nonce": nonce} if nonce else "AbCdEf1"}
        fix = FIX | {"tables": [{"table": "t", "version": str(self.version)}]}
        return {"table_versions": {"t": str(self.version)}, "recovery_feedback": {"suggestions": [fix]}}

    async def _body(self, send, first, rest, at):
        await send({"type": "http.response.body", "body": first, "more_body": True})
        await self._stuck(at)
        await send({"type": "http.response.body", "body": rest})

    async def _stuck(self, at):
        if at == self.at:
            self.is_there.set()
            await asyncio.to_thread(self.goes_on.wait, 120)


WHERE = [
    ("asked", "/stream"),
    ("answering", "/stream"),
    ("streaming", "/stream"),
    ("asked", "/versions"),
    ("answering", "/versions"),
    ("replying", "/versions"),
    ("refusing", "/positions"),
]


@pytest.mark.parametrize(("at", "path"), WHERE)
def test_a_task_that_is_cancelled_gives_its_connection_back(library, at, path):
    app = Stuck()

    async def story(address):
        # of text that is streamed the connection is the caller's, while the memory asks: it takes two
        most = 2 if path == "/stream" else 1
        pool = library.AsyncHTTPTransport(limits=library.Limits(max_connections=most))
        transport = async_memory_transport(Memory(), pool, guard=Guard(), conditional=True)
        timeout = library.Timeout(60)
        async with library.AsyncClient(base_url=address, transport=transport, timeout=timeout) as client:
            await client.post("/versions" if path == "/stream" else path, json={"a": 1})
            app.at = at
            step = asyncio.create_task(client.post(path, json={"a": 1}))
            assert await asyncio.to_thread(app.is_there.wait, 60)
            step.cancel()
            assert isinstance((await asyncio.gather(step, return_exceptions=True))[0], asyncio.CancelledError)
            app.at = ""
            async with AsyncExitStack() as all_at_once:
                for _ in range(most):
                    plain = await all_at_once.enter_async_context(client.stream("GET", "/plain"))
                    assert plain.status_code == 204

    with serving(app) as address:
        asyncio.run(story(address))
        app.goes_on.set()


@pytest.mark.parametrize(("at", "path"), WHERE)
def test_a_step_that_runs_out_of_time_gives_its_connection_back(library, at, path):
    """As a caller bounds it whose cancelling goes on until the end: every further wait is cancelled too."""
    app = Stuck()

    async def story(address):
        most = 2 if path == "/stream" else 1
        pool = library.AsyncHTTPTransport(limits=library.Limits(max_connections=most))
        transport = async_memory_transport(Memory(), pool, guard=Guard(), conditional=True)
        timeout = library.Timeout(60)
        async with library.AsyncClient(base_url=address, transport=transport, timeout=timeout) as client:
            await client.post("/versions" if path == "/stream" else path, json={"a": 1})
            app.at = at
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: client.post(path, json={"a": 1}))
                assert await asyncio.to_thread(app.is_there.wait, 60)
                group.cancel_scope.cancel()
            app.at = ""
            async with AsyncExitStack() as all_at_once:
                for _ in range(most):
                    plain = await all_at_once.enter_async_context(client.stream("GET", "/plain"))
                    assert plain.status_code == 204

    with serving(app) as address:
        asyncio.run(story(address))
        app.goes_on.set()


class Interrupted:
    """Between a memory and a blocking transport: whoever waits is interrupted there, as with Ctrl-C."""

    def __new__(cls, library, transport, what, kind):
        class Stream(library.SyncByteStream):
            def __init__(self, stream):
                self._stream = stream

            def __iter__(self):
                for chunk in self._stream:
                    yield chunk
                    raise kind

            def close(self):
                self._stream.close()

        class Transport(library.BaseTransport):
            is_armed = False

            def handle_request(self, request):
                response = transport.handle_request(request)
                is_question = request.url.path.startswith("/contract/")
                is_refusal = response.status_code == 412
                if (
                    self.is_armed
                    and {"answer": is_question, "refusal": is_refusal, "reply": not is_question}[what]
                ):
                    response.stream = Stream(response.stream)
                return response

            def close(self):
                transport.close()

        return Transport()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, RuntimeError])
@pytest.mark.parametrize(
    ("what", "path"),
    [("answer", "/stream"), ("answer", "/versions"), ("refusal", "/positions"), ("reply", "/versions")],
)
def test_a_blocking_call_that_is_interrupted_gives_its_connection_back(library, what, path, kind):
    app = Stuck()
    with serving(app) as address:
        most = 2 if path == "/stream" else 1
        pool = library.HTTPTransport(limits=library.Limits(max_connections=most))
        between = Interrupted(library, pool, what, kind)
        transport = memory_transport(Memory(), between, guard=Guard(), conditional=True)
        timeout = library.Timeout(60)
        with library.Client(base_url=address, transport=transport, timeout=timeout) as client:
            client.post("/versions" if path == "/stream" else path, json={"a": 1})
            between.is_armed = True
            if what == "reply" or not issubclass(kind, Exception):
                with pytest.raises(kind):
                    client.post(path, json={"a": 1})
            else:
                client.post(path, json={"a": 1})
            between.is_armed = False
            with ExitStack() as all_at_once:
                for _ in range(most):
                    plain = all_at_once.enter_context(client.stream("GET", "/plain"))
                    assert plain.status_code == 204


def test_a_task_can_be_cancelled_at_any_moment(library):
    """As many turns of the event loop as it takes, and one further each time; in steps where nearly all of them are waiting."""
    app = Stuck()

    async def story(address):
        turns, is_done = 0, False
        pool = library.AsyncHTTPTransport(limits=library.Limits(max_connections=1))
        transport = async_memory_transport(Memory(), pool)
        timeout = library.Timeout(60)
        async with library.AsyncClient(base_url=address, transport=transport, timeout=timeout) as client:
            await client.post("/versions", json={})
            while not is_done:
                step = asyncio.create_task(client.post("/versions", json={}))
                for _ in range(turns):
                    await asyncio.sleep(0)
                is_done = step.done()
                step.cancel()
                await asyncio.gather(step, return_exceptions=True)
                assert (await client.get("/plain")).status_code == 204, turns
                turns += 1 + turns // 100
        return turns

    with serving(app) as address:
        assert asyncio.run(story(address)) > 5
