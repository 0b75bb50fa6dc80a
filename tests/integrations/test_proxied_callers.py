"""Callers of an API behind a proxy: whom it lets pass, what they ask to be sure of, and when they leave."""

import asyncio
import contextlib

import pytest

from shelflife.integrations.proxying import proxy_app
from shelflife.integrations.upstreams import let_go
from tests.integrations.doors import grounds_at, unknown_grounds
from tests.integrations.positions import position_of
from tests.integrations.proxied import JSON, Api
from tests.integrations.test_proxying import (
    EXPLAINED,
    WANTED,
    contract,
    fixes_in,
    in_front_of,
    shut_down,
    unheard,
)

USED = ("fixes", "contract.<locals>.promo POST /orders", "USE", "refusal")


@pytest.mark.parametrize("code", ["A", None])
def test_a_fix_counts_as_told_once_it_was_with_a_precondition_as_without(code):
    """Code A is what the policy wants, too; with None the API takes what the policy would refuse."""
    api, provider = Api(), contract()
    api.code = code
    with in_front_of(api, provider, as_caller="GET /me") as client:
        answer = client.post("/orders", json=WANTED, headers=grounds_at(position_of(provider)))
    counted = provider.counts.own()
    is_told = code is not None
    assert answer.headers["contract-precondition"] == "met"
    assert (answer.status_code, fixes_in(answer)) == ((422, EXPLAINED) if is_told else (200, {}))
    assert (counted.get(USED, 0), counted.get(("checks", "refused"), 0)) == (is_told, is_told)


class Unsure(Api):
    """An API that answers one status to whoever asks who they are."""

    def __init__(self, status):
        super().__init__()
        self.status = status

    async def __call__(self, scope, receive, send):
        if scope["path"] == "/me":
            self.seen.append(("GET", "/me"))
            headers = [JSON, (b"content-length", b"2"), (b"retry-after", b"7"), (b"location", b"/orders")]
            await send({"type": "http.response.start", "status": self.status, "headers": headers})
            await send({"type": "http.response.body", "body": b"{}"})
        else:
            await super().__call__(scope, receive, send)


ENFORCED = {"as_caller": "GET /me", "enforce": True}


@pytest.mark.parametrize("status", [302, 400, 404, 405, 429, 500, 503])
@pytest.mark.parametrize("options", [ENFORCED, {"as_caller": "GET /me"}])
def test_nothing_goes_on_unjudged_while_the_api_does_not_say_whom_it_lets_pass(options, status):
    api = Unsure(status)
    with in_front_of(api, **options) as client:
        answers = [
            client.post("/orders", json=WANTED, headers=unknown_grounds(), follow_redirects=False),
            client.get("/contract/state", follow_redirects=False),
        ]
    assert [path for _, path, *_ in api.seen] == ["/me", "/me"]
    for answer in answers:
        if status == 429 or status >= 500:
            assert (answer.status_code, answer.content, answer.headers["retry-after"]) == (status, b"{}", "7")
        else:
            assert answer.status_code == 502
            assert f"answers {status} where it is to say whom it lets pass" in answer.json()["error"]


@pytest.mark.parametrize("status", [401, 403])
def test_whom_the_api_does_not_let_pass_gets_its_own_answer_unjudged(status):
    with in_front_of(Unsure(status), **ENFORCED) as client:
        answer = client.post("/orders", json=WANTED, headers=unknown_grounds())
        assert client.get("/contract/state").status_code == status
    assert (answer.status_code, answer.json()) == (422, {"error": "wrong promo"})


class Calling:
    """One call of a proxy before an API, by a client that goes when it is told to."""

    def __init__(self, parts, turns=0):
        """It takes so many turns of the loop to send the end."""
        self.turns = turns
        self.unsent, self.told, self.goes = [*parts], [], asyncio.Event()

    async def receive(self):
        if self.unsent:
            return {"type": "http.request", "body": self.unsent.pop(0), "more_body": bool(self.unsent)}
        await self.goes.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.told.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self.goes.set()  # as servers have it once all is sent
            for _ in range(self.turns):
                await asyncio.sleep(0)

    async def through(self, app):
        scope = {"type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "headers": []}
        scope |= {"path": "/x", "raw_path": b"/x", "query_string": b"", "client": ("127.0.0.1", 1)}
        await app(scope, self.receive, self.send)


@contextlib.asynccontextmanager
async def before(api):
    async with await asyncio.start_server(api, "127.0.0.1", 0) as server, asyncio.timeout(60):
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        app = proxy_app(contract(), address, timeout_s=3600)
        yield app
        await app({"type": "lifespan"}, shut_down, unheard)


@pytest.mark.parametrize("parts", [[b""], [b"x" * 70_000, b"y"]])
def test_an_api_that_has_not_begun_to_answer_is_left_when_the_client_has_gone(parts):
    async def play():
        calling, is_left = Calling(parts), asyncio.Event()

        async def silent(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            calling.goes.set()
            await reader.read()
            is_left.set()
            writer.close()

        async with before(silent) as app:
            await calling.through(app)
            await is_left.wait()
        return calling.told

    assert asyncio.run(play()) == []


def test_a_connection_to_the_api_is_used_again_though_each_client_goes_at_the_end_of_its_answer():
    accepted, all_has_ended = [], asyncio.Event()

    async def quick(reader, writer):
        accepted.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()
        all_has_ended.set()

    async def play():
        async with before(quick) as app:
            for turns in range(8):
                await Calling([b""], turns).through(app)
        await all_has_ended.wait()

    asyncio.run(play())
    assert len(accepted) == 1


def test_a_response_is_closed_though_whoever_closes_it_is_cancelled_meanwhile():
    async def play():
        may_end, has_ended = asyncio.Event(), asyncio.Event()

        class Slow:
            async def aclose(self):
                await may_end.wait()
                has_ended.set()

        closing = asyncio.ensure_future(let_go(Slow()))
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        may_end.set()
        async with asyncio.timeout(60):
            await has_ended.wait()

    asyncio.run(play())
