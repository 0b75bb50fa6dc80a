"""What only requests, aiohttp, the standard library and SDKs on httpx2 have of their own, each against a real server."""

import asyncio
import gzip
import io
import json
import shutil
import threading

import aiohttp
import httpx2
import pytest
import requests
import urllib3
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from shelflife.client import Guard, Memory
from shelflife.client.events import Ignored
from shelflife.integrations.aiohttp import memory_middleware
from shelflife.integrations.httpx2 import MemoryTransport
from shelflife.integrations.requests import MemoryAdapter
from shelflife.integrations.starlette import install
from shelflife.server import Provider, fix
from shelflife.testing import serving
from tests.lazily import Lazily

openai = Lazily("openai")


def shop():
    """A contract, and an app that answers in many ways, each of which a client may get wrong."""
    provider = Provider({"codes": {"growth": {"code": "A"}}})

    @provider.policy
    def promo(request, tables):
        code = tables.codes["growth"]["code"]
        return None if request.equals("promo", code) else fix("USE", promo=code)

    async def order(request):
        provider.check(json.loads(await request.body()))
        return JSONResponse({"done": True})

    async def packed(request):
        wanted = json.loads(await request.body())
        refused = provider.violations(wanted)
        body = {"suggested": len(refused), "table_versions": provider.state.table_versions}
        packed = gzip.compress(json.dumps(body).encode())
        return Response(packed, 200, {"content-encoding": "gzip"}, "application/json")

    async def slow(request):
        async def parts():
            yield b'{"a":'
            while not is_heard.is_set():  # noqa: ASYNC110 - a thread tells
                await asyncio.sleep(0.005)
            yield b"1}"

        return StreamingResponse(parts(), media_type="application/json")

    async def broken(request):
        return Response(b'{"a":', 200, {"content-length": "10"}, "application/json")

    is_heard = threading.Event()
    routes = [Route("/orders", order, methods=["POST"]), Route("/packed", packed, methods=["POST"])]
    inner = Starlette(routes=routes)
    install(inner, provider)
    return (
        Starlette(routes=[Route("/slow", slow), Route("/broken", broken), Mount("/", app=inner)]),
        provider,
        is_heard,
    )


@pytest.fixture
def served():
    app, provider, is_heard = shop()
    with serving(app) as address:
        yield address, provider, is_heard


def session_of(memory, **options):
    session = requests.Session()
    session.trust_env = False
    session.mount("http://", MemoryAdapter(memory, guard=Guard(), **options))
    return session


def test_a_response_of_requests_says_what_was_sent(served):
    address, *_ = served
    with session_of(Memory()) as session:
        session.post(f"{address}/orders", json={})
        made = session.post(f"{address}/orders", json={})
    assert made.ok
    assert (json.loads(made.request.body), json.loads(made.shelflife_sent.body)) == ({}, {"promo": "A"})
    assert made.shelflife_sent.headers["content-length"] == str(len(made.shelflife_sent.body))
    [applied] = made.shelflife.applied
    assert applied.fields == {"promo": "A"}


RAW_READS = {
    "read": lambda raw: raw.read(),
    "read(-1)": lambda raw: raw.read(-1),
    "read(n)": lambda raw: iter(lambda: raw.read(7), b""),
    "read1": lambda raw: iter(raw.read1, b""),
    "readline": lambda raw: iter(raw.readline, b""),
    "readlines": lambda raw: raw.readlines(),
    "readinto": lambda raw: iter(lambda: raw.readinto(bytearray(7)), 0),
    "stream": lambda raw: raw.stream(7),
    "lines": lambda raw: raw,
    "a reader of text": lambda raw: setattr(raw, "auto_close", False) or io.TextIOWrapper(raw),
}


@pytest.mark.parametrize("way", RAW_READS)
def test_however_a_caller_of_requests_reads_what_is_raw_it_is_learned_from(served, way):
    address, *_ = served
    with session_of(Memory()) as session:
        refused = session.post(f"{address}/orders", json={}, stream=True)
        assert all(RAW_READS[way](refused.raw))
        made = session.post(f"{address}/orders", json={})
    assert (refused.status_code, made.status_code) == (422, 200)


def test_how_a_caller_of_requests_wants_to_read_what_is_raw_is_heeded(served):
    memory = Memory()
    with session_of(memory, compact=False) as session:
        response = session.post(f"{served[0]}/packed", json={}, stream=True)
        response.raw.decode_content = True
        read = io.BytesIO()
        shutil.copyfileobj(response.raw, read)
    assert json.loads(read.getvalue())["suggested"] == 1
    known = memory.store.known(memory.root_of(served[0])).knowledge.versions.tables
    assert known == served[1].state.table_versions


def test_a_form_and_an_upload_of_requests_go_out_as_they_are(served):
    address, *_ = served
    seen = []

    class Noting(requests.adapters.HTTPAdapter):
        def send(self, request, **options):
            seen.append((request.body, request.headers.get("transfer-encoding")))
            return super().send(request, **options)

    with requests.Session() as session:
        session.mount("http://", MemoryAdapter(Memory(), Noting(), guard=Guard()))
        session.post(f"{address}/nothing", data={"a": "1"})
        session.post(f"{address}/nothing", data=iter([b"x"]))
    assert seen[0] == ("a=1", None)
    assert seen[1][1] == "chunked"


def test_a_login_that_requests_sends_again_goes_through_the_memory(served):
    """As `HTTPDigestAuth` does: by the connection of the response."""
    address, *_ = served
    with session_of(Memory()) as session:
        first = session.post(f"{address}/orders", json={})
        with first.connection.send(first.request.copy()) as again:
            assert again.status_code == 200


def test_a_packed_body_is_learned_from_by_requests(served):
    address, provider, _ = served
    memory = Memory()
    with session_of(memory, compact=False) as session:
        assert session.post(f"{address}/packed", json={}).json()["suggested"] == 1
        raw = session.post(f"{address}/packed", json={}, stream=True).raw.read()
    assert (
        memory.store.known(memory.root_of(address)).knowledge.versions.tables == provider.state.table_versions
    )
    assert raw[:2] == b"\x1f\x8b"


def test_a_stream_of_json_reaches_a_caller_of_requests_as_it_comes(served):
    address, _, is_heard = served
    with session_of(Memory()) as session, session.get(f"{address}/slow", stream=True) as response:
        parts = response.iter_content(None)
        assert next(parts) == b'{"a":'
        is_heard.set()
        assert b"".join(parts) == b"1}"


def test_a_caller_of_requests_who_leaves_early_leaves_the_server_in_doubt(served):
    address, _, is_heard = served
    happened = []
    with session_of(Memory(on_event=happened.append)) as session:
        session.post(f"{address}/orders", json={})
        with session.get(f"{address}/slow", stream=True) as response:
            assert next(response.iter_content(None)) == b'{"a":'
    is_heard.set()
    assert [type(event) for event in happened if isinstance(event, Ignored)] == [Ignored]


def test_a_body_that_breaks_off_leaves_a_caller_of_requests_with_nothing_that_may_be_stale(served):
    """Nobody closes such a response: requests raises, and lets it fall."""
    address, *_ = served
    happened = []
    memory = Memory(on_event=happened.append)

    def recalled():
        return [entry.parameters for entry in memory.recall(address, "POST /orders", {})]

    with session_of(memory) as session:
        session.post(f"{address}/orders", json={})
        assert recalled() == [{"promo": "A"}]
        for broken in ({}, {"stream": True}):
            happened.clear()
            with pytest.raises((requests.exceptions.ChunkedEncodingError, urllib3.exceptions.ProtocolError)):
                session.get(f"{address}/broken", **broken).raw.read()
            assert recalled() == []
            assert [type(event) for event in happened if isinstance(event, Ignored)] == [Ignored]
            session.post(f"{address}/orders", json={})


def test_the_lines_of_a_raw_body_of_requests_are_learned_from(served):
    address, provider, _ = served
    memory = Memory()
    with session_of(memory, compact=False) as session:
        refused = session.post(f"{address}/orders", json={}, stream=True)
        assert json.loads(b"".join(refused.raw))["success"] is False
    known = memory.store.known(memory.root_of(address)).knowledge.versions.tables
    assert known == provider.state.table_versions


@pytest.mark.parametrize("wrong", ["memory.db", None])
def test_what_is_no_memory_is_told_at_once(wrong):
    for make in (MemoryAdapter, memory_middleware):
        with pytest.raises(TypeError, match="takes a Memory"):
            make(wrong)


def talking(served, story, **options):
    """Play a story with a session of aiohttp."""
    memory = Memory(**options)

    async def played():
        middleware = memory_middleware(memory, guard=Guard(), compact=False)
        async with aiohttp.ClientSession(served[0], middlewares=[middleware]) as session:
            return await story(session)

    return memory, asyncio.run(played())


READS = {
    "read": lambda response: response.content.read(),
    "iter_any": lambda response: _all(response.content.iter_any()),
    "iter_chunked": lambda response: _all(response.content.iter_chunked(5)),
    "iter_chunks": lambda response: _all(response.content.iter_chunks()),
    "lines": lambda response: _all(response.content),
    "read(n)": lambda response: _until_empty(lambda: response.content.read(5)),
    "readany": lambda response: _until_empty(response.content.readany),
    "read_nowait": lambda response: _without_waiting(response.content),
    "json": lambda response: response.json(),
}


async def _all(parts):
    return [part async for part in parts]


async def _without_waiting(content):
    parts = [await content.read(1)]
    while not content.at_eof():
        if part := content.read_nowait(5):
            parts.append(part)
        else:
            await asyncio.sleep(0)
    return parts


async def _until_empty(read):
    parts = []
    while part := await read():
        parts.append(part)
    return parts


@pytest.mark.parametrize("path", ["/packed", "/orders"])
@pytest.mark.parametrize("way", READS)
def test_however_a_caller_of_aiohttp_reads_a_body_it_is_learned_from(served, way, path):
    async def story(session):
        async with session.post(path, json={}) as response:
            read = await READS[way](response)
            assert response.content.at_eof()
            return read

    memory, read = talking(served, story)
    known = memory.store.known(memory.root_of(served[0])).knowledge.versions.tables
    assert known == served[1].state.table_versions
    assert read


def test_a_stream_of_json_reaches_a_caller_of_aiohttp_as_it_comes(served):
    async def story(session):
        async with session.get("/slow") as response:
            first = await response.content.readany()
            served[2].set()
            return first, await response.content.read()

    assert talking(served, story)[1] == (b'{"a":', b"1}")


def test_a_caller_of_aiohttp_who_leaves_early_leaves_the_server_in_doubt(served):
    happened = []

    async def story(session):
        async with session.post("/orders", json={}) as response:
            await response.read()
        async with session.get("/slow") as response:
            await response.content.readany()
        served[2].set()

    talking(served, story, on_event=happened.append)
    assert [type(event) for event in happened if isinstance(event, Ignored)] == [Ignored]


@pytest.mark.parametrize("how", ["release", "close", "async with"])
def test_a_reply_that_a_caller_of_aiohttp_does_not_read_counts_before_the_next_request(served, how):
    """As the table moves the fix is stale, and the one reply that says so is not read."""

    async def story(session):
        async with session.post("/orders", json={}) as response:
            await response.read()
        served[1].registry.reload_table("codes", set={"growth": {"code": "B"}})
        response = await session.post("/orders", json={})
        if how == "async with":
            async with response:
                pass
        else:
            getattr(response, how)()
        async with session.post("/orders", json={}) as response:
            return response.shelflife.request

    assert talking(served, story)[1] == {}


def test_a_request_of_aiohttp_goes_out_with_what_is_remembered(served):
    async def story(session):
        statuses = []
        for _ in range(2):
            async with session.post("/orders", json={"a": 1}) as response:
                await response.read()
                statuses.append((response.status, response.shelflife.request))
        return statuses

    assert talking(served, story)[1] == [(422, {"a": 1}), (200, {"a": 1, "promo": "A"})]


@pytest.mark.parametrize("body", [None, b"x", "form"])
def test_a_body_of_aiohttp_that_is_no_json_goes_out_as_it_is(served, body):
    async def story(session):
        data = aiohttp.FormData({"a": "1"}) if body == "form" else body
        async with session.post("/nothing", data=data) as response:
            return response.status

    assert talking(served, story)[1] == 404


def test_an_sdk_that_sits_on_httpx2_has_the_memory_by_its_own_client():
    """A vendor whose models are given aliases: the fix is learned once, and is in the first request of the next call."""
    provider = Provider({"models": {"fast": {"now": "fast-2"}}})

    @provider.policy
    def model_is_the_one_behind_its_alias(request, tables):
        row = tables.models.get(request.get("model"))
        return fix("USE_MODEL", model=row["now"]) if row else None

    async def complete(request):
        provider.check(await request.json())
        message = {"role": "assistant", "content": "hello"}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        sent = (await request.json())["model"]
        return JSONResponse(
            {"id": "1", "object": "chat.completion", "created": 1, "model": sent, "choices": [choice]}
        )

    app = Starlette(routes=[Route("/v1/chat/completions", complete, methods=["POST"])])
    install(app, provider)
    with serving(app) as address:
        transport = MemoryTransport(Memory(), guard=Guard())
        with httpx2.Client(transport=transport) as client:
            sdk = openai.OpenAI(api_key="none", base_url=f"{address}/v1", http_client=client, max_retries=0)

            def ask():
                messages = [{"role": "user", "content": "hello"}]
                return sdk.chat.completions.create(model="fast", messages=messages).model

            with pytest.raises(openai.UnprocessableEntityError):
                ask()
            assert ask() == "fast-2"
