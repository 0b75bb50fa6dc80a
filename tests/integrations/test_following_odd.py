"""Following servers that are odd or hostile; and ending that, at any moment."""

import asyncio
import contextlib
import functools
import itertools
import json
import random
import socket
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.client import Memory
from shelflife.client.events import LogLost
from shelflife.integrations.following import AsyncFollower, CatchingUp, Follower, Offline
from shelflife.testing import serving
from tests.acme_world import GOVERNED, rotate
from tests.integrations.event_streams import Counting, answer, until_gone
from tests.integrations.followers import (
    FEED,
    SOON_S,
    Odd,
    acme_learned,
    at_of,
    eventually,
    nothing_at_all,
    nothing_more,
    one_event,
    position_of,
    remembering,
    silence,
    silent_feed,
)


@pytest.fixture
def provider():
    return acme_provider()


@functools.cache
def bomb(of_mb):
    """What inflates to so much."""
    deflating = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([*(deflating.compress(b"a" * 1024 * 1024) for _ in range(of_mb)), deflating.flush()])


class Hostile:
    """A server that sends far more than anybody has asked for."""

    def __init__(self, way, of_mb=200):
        self.way = way
        self.of_mb = of_mb
        self.bomb = bomb(of_mb) if "gzip" in way else b""
        self.sent = 0

    async def __call__(self, scope, receive, send):
        is_feed = b"event-stream" in dict(scope.get("headers", [])).get(b"accept", b"")
        if scope["type"] != "http":
            return
        if is_feed and self.way.startswith("answer"):
            await answer(send, None, **FEED)
            told = b'data: {"to":"AAAAAA9","from":"AAAAAA1"}\n\n'
            await send({"type": "http.response.body", "body": told, "more_body": True})
            await until_gone(receive)
        elif self.way.endswith("gzip"):
            media_type = "text/event-stream" if is_feed else "application/json"
            await answer(send, None, content_type=media_type, content_encoding="gzip")
            self.sent += len(self.bomb)
            await send({"type": "http.response.body", "body": self.bomb})
        else:
            part = {"a line": b"a", "an event": b"data: a\n", "answer": b" "}[self.way]
            media_type = "text/event-stream" if is_feed else "application/json"
            await answer(send, None, content_type=media_type)
            leaving = asyncio.create_task(until_gone(receive))
            while not leaving.done() and self.sent < self.of_mb * 1024 * 1024:
                chunk = part * (65536 // len(part))
                self.sent += len(chunk)
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await asyncio.sleep(0)
            leaving.cancel()


MEASURED = """
import sys
from pathlib import Path
import httpx2
from shelflife.client import Exchange, Memory, Reply
from shelflife.integrations.following import Follower, Offline
from tests.integrations.followers import InATask, eventually

kind, address = sys.argv[1:]
memory = Memory()
told = Reply(200, b'{"at":{"to":"AAAAAA1","nonce":"0.a"}}', {"content-type": "application/json"})
memory.observe(Exchange(address, "POST /s", {}, told, "*;n=0.a"))
assert memory.position(address) == "AAAAAA1"
httpx2.Client().close()
def peak_mb():  # of this program alone: what getrusage says is handed down by the one that has started it
    [peak] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(peak.split()[1]) / 1024
before = peak_mb()
with {"Follower": Follower, "InATask": InATask}[kind](memory, address) as follower:
    assert eventually(lambda: isinstance(follower.state, Offline)), follower.state
    print(f"{peak_mb() - before:.1f} {follower.state.why}")
"""


@pytest.mark.spec("13.11")
@pytest.mark.parametrize("way", ["a line", "an event", "feed in gzip", "answer", "answer in gzip"])
def test_a_server_cannot_make_it_use_much_memory(nursery, following, way):
    """Trial follow_bomb: 199 KB sent, 442 MB used."""
    hostile = Hostile(way)
    with serving(hostile) as address, nursery.forked(MEASURED, following.__name__, address) as process:
        told = process.stdout.read()
    used_mb, _, why = told.strip().partition(" ")
    assert float(used_mb) < 16, (why, hostile.sent)
    assert hostile.sent > 100_000
    assert why in (
        "an event of the feed is longer than 1048576 bytes",
        "the server answers with status 200 and no feed",
        "the memory could not go on from what it heard",
    )


@pytest.mark.spec("13.12")
@pytest.mark.parametrize("feed", [nothing_at_all, nothing_more])
def test_a_feed_that_ends_at_once_again_and_again_is_left_in_peace(following, feed):
    odd = Odd(feed)
    with serving(odd) as address, following(Memory(), address):
        assert odd.wait_for(4)
    gaps = [two - one for one, two in itertools.pairwise(odd.begun_at)]
    assert all(gap >= least for gap, least in zip(gaps, [0.1, 0.2, 0.4], strict=False)), gaps


@pytest.mark.spec("13.12")
def test_what_is_heard_makes_the_pauses_short_again(following, pauses_s):
    """A feed that has something new each time and ends: progress, so it is taken up again soon."""

    async def feed(scope, receive, send):
        told = json.dumps({"to": f"AAAAAA{len(odd.begun_at)}", "nonce": at_of(scope)})
        if len(odd.begun_at) < 2:
            await answer(send, f"data: {told}\n\n".encode(), **FEED)
            return
        since = f"AAAAAA{len(odd.begun_at) - 1}"
        told = json.dumps({"to": f"AAAAAA{len(odd.begun_at)}", "from": since, "moved": {}})
        await answer(send, f"data: {told}\n\n".encode(), **FEED)

    odd = Odd(feed)
    with serving(odd) as address, following(Memory(), address):
        assert odd.wait_for(8)
    assert pauses_s[:7] == [0.1] * 7


def test_not_all_come_back_at_the_same_time(following, monkeypatch):
    monkeypatch.setattr(random, "uniform", lambda least, most: most)
    odd = Odd(nothing_at_all)
    with serving(odd) as address, following(Memory(), address):
        assert odd.wait_for(3)
    gaps = [two - one for one, two in itertools.pairwise(odd.begun_at)]
    assert all(gap >= least for gap, least in zip(gaps, [0.2, 0.4], strict=False)), gaps


def test_a_server_that_asks_for_a_pause_is_given_one(following):
    async def later(scope, receive, send):
        await answer(send, b"", 503, retry_after="1")

    odd = Odd(later)
    with serving(odd) as address, following(Memory(), address) as follower:
        assert odd.wait_for(2)
        assert follower.state.why == "the server answers with status 503 and no feed"
    assert odd.begun_at[1] - odd.begun_at[0] >= 1


def test_two_logs_behind_one_address_are_not_gone_back_and_forth_between_for_ever(following):
    async def feed(scope, receive, send):
        at, _, nonce = dict(scope["headers"])[b"contract-at"].decode().partition(";n=")
        told = {"to": ["AAAAAA5", "BBBBBB5"][len(odd.begun_at) % 2], "nonce": nonce}
        if not at.startswith("*"):
            told |= {"from": at, "unknown": "foreign"}
        await answer(send, f"data: {json.dumps(told)}\n\n".encode(), **FEED)

    odd = Odd(feed)
    events = []
    with serving(odd) as address, following(Memory(on_event=events.append), address):
        assert odd.wait_for(6)
    assert LogLost(address, several=True) in events
    gaps = [two - one for one, two in itertools.pairwise(odd.begun_at)]
    assert all(gap >= least for gap, least in zip(gaps[2:], [0.2, 0.4, 0.8], strict=False)), gaps


AT_ONCE_S = 20
"""Not when the server would have been taken for gone, which is after 40 seconds."""


@pytest.fixture
def waited_for(monkeypatch):
    """Whoever ends a follower waits for its thread until it has ended, and the test tells how long that took."""
    monkeypatch.setattr("shelflife.integrations.following._LONGEST_END_S", SOON_S)


@pytest.fixture
def left_behind(monkeypatch):
    """Who ends a follower waits for its thread for a moment. It waits for its connection for far longer."""
    monkeypatch.setattr("shelflife.integrations.following._LONGEST_END_S", 0.1)
    monkeypatch.setattr("shelflife.integrations.following._LONGEST_WAIT_S", SOON_S)


@pytest.mark.usefixtures("waited_for")
@pytest.mark.parametrize("feed", [silence, silent_feed, one_event])
def test_it_ends_at_once_in_the_middle_of_silence(following, feed):
    odd = Odd(feed)
    with serving(odd) as address:
        with following(Memory(), address) as follower:
            assert odd.wait_for(1)
            if feed is one_event:
                assert follower.wait_for("AAAAAA1", SOON_S)
            if feed is silent_feed:
                assert eventually(lambda: follower.state == CatchingUp())
            ending_at = time.monotonic()
        assert time.monotonic() - ending_at < AT_ONCE_S
        assert follower.state.why == "it is not followed any more"
        assert following is not Follower or not follower._thread.is_alive()


@pytest.mark.usefixtures("waited_for")
def test_it_ends_at_once_in_the_middle_of_a_question(following):
    is_asked = threading.Event()

    async def asked(scope, receive, send):
        is_asked.set()
        await until_gone(receive)

    async def feed(scope, receive, send):
        await one_event(scope, receive, send, "AAAAAA9")

    with serving(Odd(feed, asked)) as address:
        memory = Memory()
        memory.hear(address, b'{"to":"AAAAAA1","nonce":"0.a"}', at="*;n=0.a")
        with following(memory, address):
            assert is_asked.wait(SOON_S)
            ending_at = time.monotonic()
        assert time.monotonic() - ending_at < AT_ONCE_S


@pytest.mark.usefixtures("waited_for")
def test_it_ends_at_once_also_after_questions_were_answered(provider, following):
    with acme_learned(provider) as (counting, address, memory):
        with following(memory, address) as follower:
            rotate(provider)
            assert follower.wait_for(position_of(provider), SOON_S)
            assert counting.asked
            ending_at = time.monotonic()
        assert time.monotonic() - ending_at < AT_ONCE_S


@pytest.mark.usefixtures("left_behind")
def test_it_ends_soon_while_nobody_takes_the_connection(following):
    """The queue of the listener is full, so that nothing answers: neither yes nor no."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with contextlib.ExitStack() as stack:
            for _ in range(4):
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(listener.getsockname())
            with following(Memory(), address):
                ending_at = time.monotonic()
            assert time.monotonic() - ending_at < AT_ONCE_S


async def trickle_body(scope, receive, send):
    await answer(send, None, content_type="application/json")
    leaving = asyncio.create_task(until_gone(receive))
    while not leaving.done():
        await send({"type": "http.response.body", "body": b" ", "more_body": True})
        await asyncio.sleep(0.05)


class TricklingHeaders:
    """A real socket that answers every question with headers that have no end, and feeds with one event."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.feed_count = 0
        self._is_over = threading.Event()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                connection = self._listener.accept()[0]
                threading.Thread(target=self._answer, args=[connection], daemon=True).start()

    def _answer(self, connection):
        with connection, contextlib.suppress(OSError):
            request = connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            if b"event-stream" in request:
                self.feed_count += 1
                told = b'data: {"to":"AAAAAA9","from":"AAAAAA1"}\n\n'
                connection.sendall(b"content-type: text/event-stream\r\n\r\n" + told)
                self._is_over.wait()
            while not self._is_over.wait(0.05):
                connection.sendall(b"x-more: of it\r\n")

    def __enter__(self):
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *exception):
        self._is_over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def is_given_up(following, memory, address, quiet_s):
    """Whether a follower has given up an answer after so long, and not after as long as it would wait at most."""
    begun_at = time.monotonic()
    with following(memory, address, quiet_s=quiet_s) as follower:
        assert eventually(lambda: isinstance(follower.state, Offline) and memory.position(address) is None)
        return quiet_s <= time.monotonic() - begun_at < AT_ONCE_S


@pytest.fixture
def patient(monkeypatch):
    monkeypatch.setattr("shelflife.integrations.following._LONGEST_WAIT_S", SOON_S)


@pytest.mark.usefixtures("patient")
def test_an_answer_whose_headers_do_not_end_is_given_up(following):
    with TricklingHeaders() as server:
        memory = Memory()
        memory.hear(server.address, b'{"to":"AAAAAA1","nonce":"0.a"}', at="*;n=0.a")
        assert is_given_up(following, memory, server.address, quiet_s=0.3)


@pytest.mark.usefixtures("patient")
def test_an_answer_that_trickles_is_given_up(following):
    async def feed(scope, receive, send):
        told = b'data: {"to":"AAAAAA9","from":"AAAAAA1"}\n\n'
        await answer(send, None, **FEED)
        await send({"type": "http.response.body", "body": told, "more_body": True})
        await until_gone(receive)

    with serving(Odd(feed, trickle_body)) as address:
        memory = Memory()
        memory.hear(address, b'{"to":"AAAAAA1","nonce":"0.a"}', at="*;n=0.a")
        assert is_given_up(following, memory, address, quiet_s=0.4)


@pytest.mark.parametrize("status", [302, 307])
def test_a_redirect_is_not_followed(provider, following, status):
    """Whoever it leads to would be given the credentials, and speak for the server."""
    other = Counting(acme_app(provider))

    async def elsewhere(scope, receive, send):
        await answer(send, b"", status, location=f"{address_of_other}/contract/changes")

    with (
        serving(other) as address_of_other,
        serving(Odd(elsewhere)) as address,
        following(Memory(), address, headers={"x-api-key": "k3y"}) as follower,
    ):
        assert eventually(lambda: isinstance(follower.state, Offline))
        assert follower.state.why == f"the server answers with status {status} and no feed"
    assert (other.feeds, other.asked) == ([], [])


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"content_type": "text/html"}, "the server answers with status 200 and no feed"),
        (FEED | {"content_encoding": "gzip"}, "the server answers with status 200 and no feed"),
        (FEED | {"content_encoding": "br"}, "the server answers with status 200 and no feed"),
        (FEED | {"content_encoding": "identity"}, "the server has ended the feed"),
        ({"content_type": "Text/Event-Stream; charset=utf-8"}, "the server has ended the feed"),
    ],
)
def test_what_is_no_feed_is_not_heard(following, headers, why):
    async def odd(scope, receive, send):
        await answer(send, b": still here\n\n", **headers)

    memory = Memory()
    with serving(Odd(odd)) as address:
        memory.hear(address, b'{"to":"AAAAAA1","nonce":"0.a"}', at="*;n=0.a")
        with following(memory, address) as follower:
            assert eventually(lambda: isinstance(follower.state, Offline))
            assert follower.state.why == why


def test_offline_is_since_it_was_last_heard_and_not_since_the_last_try(following):
    odd = Odd(nothing_at_all)
    with serving(odd) as address, following(Memory(), address) as follower:
        assert eventually(lambda: isinstance(follower.state, Offline))
        since = follower.state.since
        assert odd.wait_for(3)
        assert eventually(lambda: isinstance(follower.state, Offline))
        assert follower.state.since == since


def test_connected_without_a_word_it_is_catching_up(following):
    odd = Odd(silent_feed)
    with serving(odd) as address:
        with following(Memory(), address) as follower:
            assert odd.wait_for(1)
            assert follower.state == CatchingUp()
        with following(Memory(), address, quiet_s=0.2) as follower:
            assert eventually(lambda: isinstance(follower.state, Offline))
            assert odd.wait_for(3)


def test_it_is_not_there_before_the_memory_is(following):
    """What it is told of cannot be asked about: the memory stands in doubt, and so it has not heard."""

    async def feed(scope, receive, send):
        told = b'data: {"to":"AAAAAA9","from":"AAAAAA5:other"}\n\n: still here\n\n'
        await answer(send, None, **FEED)
        await send({"type": "http.response.body", "body": told, "more_body": True})
        await until_gone(receive)

    odd = Odd(feed)
    with serving(odd) as address:
        memory = Memory()
        memory.hear(address, b'{"to":"AAAAAA1","nonce":"0.a"}', at="*;n=0.a")
        with following(memory, address) as follower:
            assert not follower.wait_for("AAAAAA9", 0.5)
            assert odd.wait_for(2)
            assert isinstance(follower.state, Offline | CatchingUp)


@pytest.mark.usefixtures("waited_for")
def test_it_ends_at_once_on_a_connection_that_was_there_before():
    odd = Odd(one_event)
    with serving(odd) as address, httpx2.Client(base_url=address) as client:
        assert client.get("/").status_code == 404
        with Follower(Memory(), address, client=client) as follower:
            assert follower.wait_for("AAAAAA1", SOON_S)
            ending_at = time.monotonic()
        assert time.monotonic() - ending_at < AT_ONCE_S
        assert not follower._thread.is_alive()


@pytest.mark.usefixtures("left_behind")
def test_a_connection_that_comes_after_the_end_is_not_waited_for():
    may_connect = threading.Event()

    class Slow(httpx2.HTTPTransport):
        def handle_request(self, request):
            may_connect.wait(SOON_S)
            return super().handle_request(request)

    memory = Memory()
    with serving(Odd(silence)) as address, httpx2.Client(transport=Slow()) as client:
        with Follower(memory, address, client=client) as follower:
            ending_at = time.monotonic()
        assert time.monotonic() - ending_at < AT_ONCE_S
        assert follower._thread.is_alive()  # left behind
        may_connect.set()
        follower._thread.join(SOON_S)
        assert not follower._thread.is_alive()


def test_ending_it_does_not_end_what_others_do_with_the_same_client(provider):
    """They may be using a connection that it has opened, and has let go of."""
    is_asked, may_answer = threading.Event(), threading.Event()
    app, ports = acme_app(provider), []

    async def slow(scope, receive, send):
        if scope["type"] == "http":
            ports.append((scope["path"], scope["client"][1]))
        if scope.get("path") == "/slow":
            is_asked.set()
            await asyncio.to_thread(may_answer.wait, SOON_S)
            await answer(send, b"done")
        else:
            await app(scope, receive, send)

    with (
        serving(slow) as address,
        remembering(address, GOVERNED, path="/subscriptions") as (memory, _),
        httpx2.Client(base_url=address) as client,
        ThreadPoolExecutor(1) as others,
    ):
        with Follower(memory, address, client=client) as follower:
            rotate(provider)
            assert follower.wait_for(position_of(provider), SOON_S)
            asked = others.submit(client.get, "/slow", timeout=SOON_S)
            assert is_asked.wait(SOON_S)
            assert dict(ports)["/slow"] == dict(ports)["/contract/fixes"]  # the same connection
        may_answer.set()
        assert asked.result(SOON_S).text == "done"


def test_a_task_that_is_cancelled_ends_its_follower():
    odd = Odd(one_event)

    async def story(address):
        async with AsyncFollower(Memory(), address) as follower:
            assert await follower.wait_for("AAAAAA1", SOON_S)
            asyncio.current_task().cancel()
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                begun.append(time.monotonic())
                raise

    begun = []
    with serving(odd) as address:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(story(address))
        assert time.monotonic() - begun[0] < AT_ONCE_S


def test_an_event_loop_does_not_wait_for_the_engine_of_a_memory(valkey_url):
    provider = acme_provider()
    looked_in = set()

    async def story(address):
        async with AsyncFollower(memory, address) as follower:
            rotate(provider)
            assert await follower.wait_for(position_of(provider), SOON_S)
        return threading.current_thread()

    with serving(acme_app(provider)) as address, contextlib.closing(Memory.at(valkey_url)) as memory:
        look = memory.store._look
        memory.store._look = lambda given: (looked_in.add(threading.current_thread()), look(given))[1]
        loop_thread = asyncio.run(story(address))
    assert looked_in
    assert loop_thread not in looked_in
