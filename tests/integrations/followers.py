"""Followers of both kinds, what they follow, and servers whose feeds are odd."""

import contextlib
import json
import threading
import time
from contextlib import contextmanager

import httpx2
from fastapi import Depends, FastAPI

from shelflife.apis.acme import acme_app
from shelflife.client import Memory
from shelflife.integrations.fastapi import install
from shelflife.integrations.following import AsyncFollower, Follower
from shelflife.integrations.httpx2 import MemoryTransport
from shelflife.server import Provider, fix
from shelflife.testing import serving
from tests.acme_world import CONTROL, GOVERNED
from tests.integrations.event_streams import Counting, answer, running_loop, until_gone

FEED = {"content_type": "text/event-stream"}
SOON_S = 60
"""So long at most until what must happen has happened; it takes a fraction of that."""


class InATask:
    """An `AsyncFollower` in the running loop of another thread, to be used like a `Follower`."""

    def __init__(self, *arguments, **options):
        self._follower = AsyncFollower(*arguments, **options)
        self._client = options.get("client")
        self.has_left_client_open = True

    def __enter__(self):
        self._stack = contextlib.ExitStack()
        self._run = self._stack.enter_context(running_loop())
        self._run(self._follower.__aenter__())
        return self

    def __exit__(self, *exception):
        with self._stack:
            self._run(self._follower.__aexit__(*exception))
            if self._client is not None:
                self.has_left_client_open = not self._client.is_closed
                self._run(self._client.aclose())

    @property
    def state(self):
        return self._follower.state

    def wait_for(self, position, timeout_s):
        return self._run(self._follower.wait_for(position, timeout_s))


def shop(codes=None, **options):
    """A provider whose fixes rest on one row each."""
    provider = Provider(
        {"codes": codes or {"a": {"code": "A0"}, "b": {"code": "B0"}}, "other": {"x": {"v": 0}}}, **options
    )

    @provider.policy(operation="POST /s")
    def promo(request, tables):
        row = tables.codes.get(request.get("plan"))
        return fix("USE", promo=row["code"]) if row and not request.equals("promo", row["code"]) else None

    return provider


def shop_app(provider, dependencies=()):
    app = FastAPI(dependencies=[Depends(one) for one in dependencies])
    install(app, provider, fixes=["POST /s"])

    @app.post("/s")
    def s(wanted: dict) -> dict:
        provider.check(wanted)
        return {"success": True}

    return app


def set_code(provider, plan, code):
    provider.registry.reload_table("codes", set={plan: {"code": code}})


def position_of(provider):
    return str(provider.face(provider.state, {}).position)


@contextmanager
def remembering(address, *requests, path="/s", headers=None, **options):
    """A memory that has learned what a server says to some requests, and the client that it learns by."""
    memory = Memory(**{"most_evictions": None, **options})
    transport = MemoryTransport(memory, httpx2.HTTPTransport(), guard=None)
    with httpx2.Client(transport=transport, base_url=address, headers=headers, timeout=60) as client:
        for request in requests:
            client.post(path, json=request)
        yield memory, client


def recalled(memory, address, request, operation="POST /s"):
    """What would be put into a request."""
    return [entry.parameters for entry in memory.recall(memory.root_of(address + "/s"), operation, request)]


def eventually(is_so):
    """Whether something comes to be so soon."""
    until = time.monotonic() + SOON_S
    tick = threading.Event()
    while not is_so() and time.monotonic() < until:
        tick.wait(0.005)
    return is_so()


@contextmanager
def acme_learned(provider):
    """Acme, and a memory that has learned two things of it, one of which will change."""
    counting = Counting(acme_app(provider))
    with (
        serving(counting) as address,
        remembering(address, GOVERNED, CONTROL, path="/subscriptions") as (memory, _),
    ):
        yield counting, address, memory


def knows(memory, address, request):
    return recalled(memory, address, request, "POST /subscriptions")


@contextmanager
def client_for(following, library=httpx2, **options):
    """A client of the kind that a follower takes. An async one is closed on its own loop."""
    if following is Follower:
        with library.Client(**options) as client:
            yield client
            assert not client.is_closed
    else:
        yield library.AsyncClient(**options)


class Odd:
    """A server whose feeds are what a test makes of them. It notes when each began."""

    def __init__(self, feed, asked=None):
        self._feed = feed
        self._asked = asked
        self.begun_at = []
        self._begun = threading.Condition()

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        if b"event-stream" in dict(scope["headers"]).get(b"accept", b""):
            with self._begun:
                self.begun_at.append(time.monotonic())
                self._begun.notify_all()
            await self._feed(scope, receive, send)
        elif self._asked is not None:
            await self._asked(scope, receive, send)
        else:
            await answer(send, b"", 404)

    def wait_for(self, count):
        """Wait until so many feeds were begun."""
        with self._begun:
            return self._begun.wait_for(lambda: len(self.begun_at) >= count, SOON_S)


async def nothing_more(scope, receive, send):
    """A feed that says it is there and ends."""
    await answer(send, b": still here\n\n", **FEED)


async def nothing_at_all(scope, receive, send):
    await answer(send, b"", **FEED)


async def silence(scope, receive, send):
    """No answer, not even the head of one."""
    await until_gone(receive)


async def silent_feed(scope, receive, send):
    await answer(send, None, **FEED)
    await send({"type": "http.response.body", "body": b"", "more_body": True})
    await until_gone(receive)


def at_of(scope):
    """The nonce that a request has in `Contract-At`."""
    return dict(scope["headers"])[b"contract-at"].decode().partition(";n=")[2]


async def one_event(scope, receive, send, to="AAAAAA1"):
    """A feed that answers where the log is, and is silent from then on."""
    told = json.dumps({"to": to, "nonce": at_of(scope)})
    await answer(send, None, **FEED)
    await send({"type": "http.response.body", "body": f"data: {told}\n\n".encode(), "more_body": True})
    await until_gone(receive)
