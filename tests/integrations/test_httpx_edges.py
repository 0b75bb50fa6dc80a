"""What a memory behind an HTTP client must not do: miss a stamp, spoil a message, fail or hang its caller."""

import asyncio
import gzip
import json
import threading
import tracemalloc
import zlib

import httpx
import httpx2
import pytest

from shelflife.client import Exchange, Guard, Memory, Reply, origin_of
from shelflife.client.events import Ignored, Refused
from shelflife.contract.positions import Named
from shelflife.testing import serving
from tests.integrations.transports import async_memory_transport, memory_transport

STAMPED = {"table_versions": {"t": "1"}}
FIX = {"type": "USE_PROMO", "parameters": {"promo": "P1"}, "cache_hint": "cacheable", "table": "t"}
COARSE = STAMPED | {"recovery_feedback": {"suggestions": [FIX]}}
JSON = {"content-type": "application/json"}


@pytest.fixture(params=[httpx2, httpx], ids=["httpx2", "httpx"])
def library(request):
    return request.param


@pytest.fixture(params=["blocking", "async"])
def talk(request, library):
    """Sends requests, one after the other, through a memory to a function that answers them."""

    def blocking(memory, answer, *requests, **options):
        transport = memory_transport(memory, library.MockTransport(answer), **options)
        with library.Client(base_url="http://h", transport=transport) as client:
            return [client.request("POST", **one) for one in requests]

    async def waiting(memory, answer, *requests, **options):
        transport = async_memory_transport(memory, library.MockTransport(answer), **options)
        async with library.AsyncClient(base_url="http://h", transport=transport) as client:
            return [await client.request("POST", **one) for one in requests]

    if request.param == "blocking":
        return blocking
    return lambda *arguments, **options: asyncio.run(waiting(*arguments, **options))


def answering(library, raw, **headers):
    """Answers with these very bytes, and with no header about their length."""
    named = JSON | {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda request: library.Response(200, headers=named, stream=library.ByteStream(raw))


def known(memory):
    return memory.store.known("http://h:80").knowledge.versions.tables


def deflated(raw):
    deflating = zlib.compressobj(wbits=-15)
    return deflating.compress(raw) + deflating.flush()


@pytest.mark.parametrize(
    ("encoding", "encode"),
    [("identity", bytes), ("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", deflated)],
)
def test_a_json_body_is_watched_whatever_the_headers_say_of_it(talk, library, encoding, encode):
    memory = Memory()
    raw = encode(json.dumps(STAMPED).encode())
    [response] = talk(memory, answering(library, raw, content_encoding=encoding), {"url": "/x", "json": {}})
    assert known(memory) == {"t": "1"}
    assert response.json() == STAMPED
    assert response.elapsed.total_seconds() >= 0


LARGE = b'{"a":"' + b"x" * 3_000_000 + b'"}'


@pytest.mark.parametrize(
    ("encoding", "raw"),
    [("identity", LARGE), ("gzip", gzip.compress(LARGE)), ("rot13", b"{}"), ("gzip", b"{}")],
)
def test_a_json_body_that_cannot_be_watched_is_told(library, encoding, raw):
    events = []
    transport = library.MockTransport(answering(library, raw, content_encoding=encoding))
    with (
        library.Client(transport=memory_transport(Memory(on_event=events.append), transport)) as client,
        client.stream("POST", "http://h/x") as response,
    ):
        assert b"".join(response.iter_raw()) == raw
    assert [type(event) for event in events] == [Ignored]


@pytest.mark.parametrize("media_type", ["application/x-ndjson", "text/event-stream", "text/html"])
def test_what_is_not_one_json_value_is_not_read(library, media_type):
    class Unread(library.SyncByteStream):
        def __iter__(self):
            raise AssertionError("somebody has read it")
            yield b""

    def answer(request):
        return library.Response(200, headers={"content-type": media_type}, stream=Unread())

    with (
        library.Client(transport=memory_transport(Memory(), library.MockTransport(answer))) as client,
        client.stream("POST", "http://h/x") as response,
    ):
        assert response.status_code == 200


def test_a_bomb_is_not_unpacked(library):
    bomb = gzip.compress(b"{" + b" " * 50_000_000)
    transport = library.MockTransport(answering(library, bomb, content_encoding="gzip"))
    with library.Client(transport=memory_transport(Memory(), transport)) as client:
        tracemalloc.start()
        with client.stream("POST", "http://h/x"):
            peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 5_000_000


class Chunked:
    """An ASGI app that answers in two chunks; what comes first is as large as is wished."""

    def __init__(self, first=b'{"table_versions": ', media_type=b"application/json", headers=()):
        self.chunks = [first, b'{"t": "1"}}']
        self.headers = [(b"content-type", media_type), *headers]
        self.asked_of = []

    async def __call__(self, scope, receive, send):
        if scope["path"].startswith("/contract/"):
            self.asked_of.append(dict(scope["headers"])[b"host"].decode())
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        for chunk in self.chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body"})


@pytest.mark.parametrize("size", [0, 3_000_000])
def test_a_streamed_response_arrives_as_though_nobody_had_read_it(library, size):
    app = Chunked(b" " * size + b'{"table_versions": ')
    raw = b"".join(app.chunks)

    async def waiting():
        transport = async_memory_transport(Memory(), library.AsyncHTTPTransport())
        async with library.AsyncClient(base_url=address, transport=transport) as client:
            async with client.stream("POST", "/x") as response:
                assert b"".join([chunk async for chunk in response.aiter_raw()]) == raw
            async with client.stream("POST", "/x") as response:
                assert (await response.aread()) == raw
            assert response.elapsed.total_seconds() > 0
            async with client.stream("POST", "/x") as response:
                pass
            return (await client.post("/x")).json()

    with serving(app) as address:
        transport = memory_transport(Memory(), library.HTTPTransport())
        with library.Client(base_url=address, transport=transport) as client:
            with client.stream("POST", "/x") as response:
                assert b"".join(response.iter_raw()) == raw
                assert response.num_bytes_downloaded == len(raw)
            with client.stream("POST", "/x") as response:
                pass
            assert client.post("/x").json() == STAMPED
        assert asyncio.run(waiting()) == STAMPED


def test_a_response_that_breaks_off_does_so_for_the_caller_where_it_did(library):
    class Broken(library.SyncByteStream, library.AsyncByteStream):
        def __iter__(self):
            yield b'{"table_versions":'
            raise library.ReadError("gone")

        async def __aiter__(self):
            yield b'{"table_versions":'
            raise library.ReadError("gone")

    events = []

    def answer(request):
        return library.Response(200, headers=JSON, stream=Broken())

    async def waiting():
        transport = async_memory_transport(memory, library.MockTransport(answer))
        async with (
            library.AsyncClient(transport=transport) as client,
            client.stream("POST", "http://h/x") as response,
        ):
            chunks = response.aiter_raw()
            assert await anext(chunks) == b'{"table_versions":'
            with pytest.raises(library.ReadError, match="gone"):
                await anext(chunks)

    memory = Memory(on_event=events.append)
    with (
        library.Client(transport=memory_transport(memory, library.MockTransport(answer))) as client,
        client.stream("POST", "http://h/x") as response,
    ):
        chunks = response.iter_raw()
        assert next(chunks) == b'{"table_versions":'
        with pytest.raises(library.ReadError, match="gone"):
            next(chunks)
    asyncio.run(waiting())
    assert [type(event) for event in events] == [Ignored, Ignored]


def test_an_upload_is_not_read(library):
    class WireFormat(library.BaseTransport):
        def handle_request(self, request):
            assert read == []
            assert b"".join(request.stream) == b"{}"
            return library.Response(200, json=STAMPED)

    def upload():
        read.append(True)
        yield b"{}"

    for headers in (JSON, {"content-type": "video/mp4"}):
        read = []
        memory = Memory()
        with library.Client(transport=memory_transport(memory, WireFormat(), guard=Guard())) as client:
            client.post("http://h/x", content=upload(), headers=headers)
        assert known(memory) == {"t": "1"}


def promos(memory, talk, answer, learned_from, asked):
    """What a request is amended with, after another has been answered with a coarse fix."""
    _, response = talk(memory, answer, learned_from, asked, guard=Guard())
    amended = response.request.extensions.get("shelflife")
    return [event.fields["promo"] for event in amended.applied] if amended else []


@pytest.mark.parametrize(
    ("learned_from", "asked", "expected"),
    [
        ({"url": "/x", "json": {"a": 1}}, {"url": "/x", "json": {"a": 1}}, ["P1"]),
        ({"url": "/x?tenant=a", "json": {}}, {"url": "/x?tenant=a", "json": {}}, ["P1"]),
        ({"url": "/x?tenant=a", "json": {}}, {"url": "/x?tenant=b", "json": {}}, []),
        ({"url": "/x?tenant=a", "json": {}}, {"url": "/x", "json": {}}, []),
        ({"url": "/x", "data": {"a": "1"}}, {"url": "/x", "json": {}}, []),
        ({"url": "/x", "json": [1]}, {"url": "/x", "json": {}}, []),
        ({"url": "/x", "content": b'{"a":"\xff"}', "headers": JSON}, {"url": "/x", "json": {}}, []),
    ],
)
def test_a_fix_for_the_whole_request_is_for_its_query_and_body(talk, library, learned_from, asked, expected):
    answer = answering(library, json.dumps(COARSE).encode())
    memory = Memory()
    assert promos(memory, talk, answer, learned_from, asked) == expected
    assert known(memory) == {"t": "1"}


def test_of_a_query_only_a_digest_is_kept(talk, library):
    memory = Memory()
    answer = answering(library, json.dumps(COARSE).encode())
    talk(memory, answer, {"url": "/x?key=sesame", "json": {}})
    [entry] = memory.store.entries()
    assert entry.operation.startswith("POST /x?")
    assert "sesame" not in repr(entry)


@pytest.mark.parametrize(
    ("content", "headers", "why"),
    [
        (b'{"a": 12345678901234567.25}', {}, "would not survive"),
        (b'{"a": 1, "a": 2}', {}, "would not survive"),
        (b'{"a": {"b": 1, "b": 2}}', {}, "would not survive"),
        (b'{"a": 1}', {"Content-Digest": "sha-256=:x:"}, "vouches"),
        (b'{"a": 1}', {"X-Hub-Signature-256": "x"}, "vouches"),
        (b'{"a": 1}', {"Authorization": "AWS4-HMAC-SHA256 Credential=x, Signature=y"}, "vouches"),
        *(
            (b'{"a": 1}', {name: "x"}, "vouches")
            for name in ("X-HMAC", "X-Body-Hash", "X-Amz-Checksum-Crc32")
        ),
        *((b'{"a": 1}', {name: "x"}, "vouches") for name in ("X-JWS", "X-Payload-Sha256", "X-Mac", "Sign")),
        (b'{"a": 1}', {"Authorization": "HMAC ada:x"}, "vouches"),
        (b'{"a": 1}', {"Authorization": "EG1-HMAC-SHA256 x"}, "vouches"),
        (b'{"a": 1}', {"Authorization": 'Hawk id="ada", hash="x", mac="y"'}, "vouches"),
        (b'{"a": 1}', {"Authorization": 'Digest username="ada", qop=auth-int, response="x"'}, "vouches"),
        (b'{"a": 1}', {"Authorization": "Bearer eyJhbGciOiJIUzI1NiJ9.e30.mac-x", "X-Design": "hash"}, None),
        (b'{"a": 0.1, "b": 1e2, "c": 123456789012345678901234567890}', {"Authorization": "Digest x"}, None),
    ],
)
def test_a_body_that_must_go_out_as_it_is_does_and_it_is_said_why(talk, library, content, headers, why):
    sent = []
    fix = FIX | {"rows": ["t:1"], "when": {}, "tables": [{"table": "t", "version": "1"}]}
    body = json.dumps(STAMPED | {"recovery_feedback": {"suggestions": [fix]}}).encode()

    def answer(request):
        sent.append(request.content)
        return answering(library, body)(request)

    request = {"url": "/x", "content": content, "headers": JSON | headers}
    events = []
    _, response = talk(
        Memory(on_event=events.append), answer, {"url": "/x", "json": {}}, request, guard=Guard()
    )
    amended = response.request.extensions["shelflife"]
    if why is None:
        assert json.loads(sent[1]) == json.loads(content) | {"promo": "P1"}
    else:
        assert sent[1] == content
        assert [why in refused.why for refused in amended.refused] == [True]
        assert amended.refused[0] in [event for event in events if isinstance(event, Refused)]


class Unusable(Memory):
    def amend(self, *arguments):
        raise RuntimeError("no memory")

    def __init__(self):
        super().__init__()
        self.observing = self.fail

    def fail(self, *arguments):
        raise RuntimeError("no memory")
        yield


def test_what_goes_wrong_in_the_memory_stays_there(talk, library, caplog):
    answer = answering(library, json.dumps(STAMPED).encode())
    [response] = talk(Unusable(), answer, {"url": "/x", "json": {}}, guard=Guard())
    assert response.json() == STAMPED
    logged = [record for record in caplog.records if record.name == "shelflife.memory"]
    assert [record.exc_info[0] for record in logged] == [RuntimeError, RuntimeError]


def test_a_question_does_not_wait_for_the_connection_that_the_response_holds(library):
    versions = iter("12")
    app = Chunked(media_type=b"text/event-stream")

    async def moving(scope, receive, send):
        if not scope["path"].startswith("/contract/"):
            app.headers[1:] = [(b"contract-tables", f'"t";v="{next(versions)}"'.encode())]
        await app(scope, receive, send)

    memory = Memory()
    with serving(moving) as address:
        transport = library.HTTPTransport(limits=library.Limits(max_connections=1))
        with library.Client(
            base_url=address, transport=memory_transport(memory, transport), timeout=None
        ) as client:
            client.post("/x")
            caller = threading.Thread(target=client.post, args=("/x",), daemon=True)
            caller.start()
            caller.join(60)
            assert not caller.is_alive()
    assert memory.store.known(address).knowledge.versions.tables == {"t": "2"}


def test_the_host_header_says_which_server_it_is(library):
    app = Chunked()
    with serving(app) as address:
        port = address.rpartition(":")[2]
        memory = Memory()
        transport = memory_transport(memory, library.HTTPTransport())
        with library.Client(base_url=address, transport=transport) as client:
            app.chunks = [json.dumps(COARSE).encode()]
            client.post("/x", headers={"Host": "A.example"})
            app.chunks = [b'{"table_versions": {"t": "2"}}']
            client.post("/x", headers={"Host": f"b.example:{port}"})
            assert app.asked_of == []
            client.post("/x", headers={"Host": "A.example"})
        assert app.asked_of == ["A.example"]
        assert memory.store.known("http://a.example:80").knowledge.versions.tables == {"t": "2"}
        assert memory.store.known(f"http://b.example:{port}").knowledge.versions.tables == {"t": "2"}
        assert memory.store.known(address).revision == 0


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://API.example/v1?x=1", "https://api.example:443"),
        ("http://api.example", "http://api.example:80"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("http://[::1]:8000/", "http://[::1]:8000"),
        ("https://me:secret@api.example:444", "https://api.example:444"),
        ("mcp://Billing/", "mcp://billing"),
        ("tool://billing.acme", "tool://billing.acme"),
    ],
)
def test_an_origin_is_always_spelled_the_same(url, origin):
    assert origin_of(url) == origin


def raising(request):
    raise LookupError("no such operation")


@pytest.mark.parametrize(
    ("request_", "options"),
    [
        ({"content": b'{"x": 1e1000000000000000000000}', "headers": JSON}, {}),
        ({"json": {}, "headers": {"Host": "a:99999"}}, {}),
        ({"json": {}, "headers": {"Host": "api:${PORT}"}}, {}),
        ({"json": {}}, {"operation": raising}),
    ],
)
def test_a_request_that_the_memory_does_not_understand_is_sent_all_the_same(talk, library, request_, options):
    answer = answering(library, json.dumps(STAMPED).encode())
    [response] = talk(Memory(), answer, {"url": "/x", **request_}, guard=Guard(), **options)
    assert response.json() == STAMPED


def test_a_response_that_was_read_underneath_is_learned_from_and_handed_on(talk, library):
    def answer(request):
        response = library.Response(
            200, headers=JSON, stream=library.ByteStream(json.dumps(STAMPED).encode())
        )
        response.read()
        return response

    memory = Memory()
    [response] = talk(memory, answer, {"url": "/x", "json": {}})
    assert response.json() == STAMPED
    assert known(memory) == {"t": "1"}


def test_a_question_asks_for_json_whatever_its_request_asks_for(talk, library):
    asked = []
    versions = iter("12")

    def answer(request):
        if request.url.path == "/x":
            return library.Response(200, json=STAMPED | {"table_versions": {"t": next(versions)}})
        asked.append(request.headers.get_list("accept"))
        return library.Response(404)

    memory = Memory()
    streaming = {"url": "/x", "json": {}, "headers": {"Accept": "application/json, text/event-stream"}}
    learn(memory)
    talk(memory, answer, streaming, streaming)
    assert asked == [["application/json"]]


def learn(memory):
    """A fix, so that a movement of its table is worth a question."""
    fix = {
        "type": "F",
        "parameters": {"x": 1},
        "cache_hint": "cacheable",
        "tables": [{"table": "t", "version": "1"}],
    }
    body = json.dumps({"recovery_feedback": {"suggestions": [fix]}, "table_versions": {"t": "1"}}).encode()
    memory.observe(Exchange("http://h:80", "POST /x", {}, Reply(422, body, JSON)))


def test_a_header_of_the_callers_own_is_not_sent_twice(talk, library):
    sent = []

    def answer(request):
        sent.append(request.headers.get_list("contract-at"))
        return library.Response(200, json=STAMPED)

    memory = Memory()
    learn(memory)
    own = {"url": "/x", "json": {}, "headers": {"Contract-At": "AbCdEf7"}}
    talk(memory, answer, own, compact=True)
    [[named]] = sent
    assert Named.from_header(named).position is None


def test_a_task_that_is_cancelled_while_the_server_is_asked_leaves_nothing_open(library):
    closed, is_asked = [], asyncio.Event()
    versions = iter("12")

    class Stream(library.AsyncByteStream):
        async def __aiter__(self):
            yield b"pdf"

        async def aclose(self):
            closed.append(True)

    class Wire(library.AsyncBaseTransport):
        async def handle_async_request(self, request):
            if request.url.path == "/x":
                stamp = {"contract-tables": f'"t";v="{next(versions)}"'}
                return library.Response(200, headers=stamp, stream=Stream())
            is_asked.set()
            return await asyncio.Event().wait()

    async def story():
        memory = Memory()
        learn(memory)
        async with library.AsyncClient(transport=async_memory_transport(memory, Wire())) as client:
            await client.get("http://h/x")
            asking = asyncio.create_task(client.get("http://h/x"))
            await is_asked.wait()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    asyncio.run(story())
    assert len(closed) == 2


class Choosy(Guard, frozen=True):
    """A user's own, which looks at what a fix makes of a request."""

    def objection(self, entry, outcome):
        return "not for gold" if outcome.get("tier") == "gold" else None


def test_a_users_own_guard_is_asked_about_the_outcome_too(talk, library):
    def answer(request):
        return library.Response(422, json=COARSE | {"sent": json.loads(request.content)})

    requests = [{"url": "/x", "json": {"tier": tier}} for tier in ("silver", "silver", "gold")]
    responses = talk(Memory(), answer, *requests, guard=Choosy())
    assert [response.json()["sent"].get("promo") for response in responses] == [None, "P1", None]
