"""A memory that follows a feed: up to date without a request, whatever happens to the path or the server."""

import asyncio
import contextlib
import itertools
import json
import logging
import sys
import threading
import time
from contextlib import contextmanager

import httpx
import httpx2
import pytest
from fastapi import FastAPI, Header, HTTPException

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.client import Memory
from shelflife.client.events import Distrusted, Evicted, LogLost, Stored
from shelflife.integrations.ed25519 import SigningKey, trust
from shelflife.integrations.following import AsyncFollower, CatchingUp, Follower, Following, Offline
from shelflife.server.signing import Signing
from shelflife.testing import serving
from tests.acme_world import CONTROL, GOVERNED, rotate
from tests.integrations.event_streams import Counting, Path, answer, until_gone
from tests.integrations.followers import (
    FEED,
    SOON_S,
    acme_learned,
    client_for,
    eventually,
    knows,
    position_of,
    recalled,
    remembering,
    set_code,
    shop,
    shop_app,
)


@pytest.fixture
def provider():
    return acme_provider()


def test_what_moves_is_heard_and_renewed_without_a_request(provider, following):
    with acme_learned(provider) as (counting, address, memory):
        heard = []
        with following(memory, address, on_heard=heard.append) as follower:
            assert follower.wait_for(position_of(provider), SOON_S)
            assert follower.state == Following()
            rotate(provider)
            assert follower.wait_for(position_of(provider), SOON_S)
        assert knows(memory, address, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]
        assert knows(memory, address, CONTROL) == [{"currency": "eur"}]
        assert [type(event) for events in heard for event in events] == [Evicted, Stored]
        assert counting.asked == ["/contract/fixes?"]


def test_a_follower_that_comes_late_catches_up(provider, following):
    with acme_learned(provider) as (_, address, memory):
        rotate(provider)
        provider.registry.reload_table("recommended_credit_token", set={}, version="2")
        with following(memory, address) as follower:
            assert follower.wait_for(position_of(provider), SOON_S)
        assert knows(memory, address, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]
        assert knows(memory, address, CONTROL) == [{"currency": "eur"}]


def test_a_memory_that_knows_nothing_yet_is_told_where_the_server_is(provider, following):
    counting = Counting(acme_app(provider))
    with serving(counting) as address, following(memory := Memory(), address) as follower:
        counting.wait_until(lambda: counting.feeds and counting.feeds[0])
        assert follower.wait_for(position_of(provider), SOON_S)
        assert memory.position(memory.root_of(address)) == position_of(provider)
    assert counting.asked == []


def test_connecting_settles_what_is_in_doubt(provider, following):
    """The request for the feed is a question, so nothing else needs to be asked."""
    with acme_learned(provider) as (counting, address, memory):
        memory.hear(address, json.dumps({"to": "AAAAAA99"}).encode())
        assert memory.position(address) is None
        with following(memory, address) as follower:
            assert follower.wait_for(position_of(provider), SOON_S)
        assert memory.position(address) == position_of(provider)
        assert counting.asked == []


def test_what_cannot_be_read_is_settled_by_connecting_anew(provider, following):
    app, told = acme_app(provider), []

    async def garbled(scope, receive, send):
        async def garbling(message):
            if message.get("body", b"").startswith(b"id: ") and not told:
                told.append(message["body"])
                message = {**message, "body": b"data: {\n\n"}
            await send(message)

        await app(scope, receive, garbling)

    with (
        serving(garbled) as address,
        remembering(address, GOVERNED, path="/subscriptions") as (memory, _),
        following(memory, address) as follower,
    ):
        assert follower.wait_for(position_of(provider), SOON_S)
        assert told
        assert knows(memory, address, GOVERNED) == [{"promo_code": "SUMMERSALE25"}]


def test_many_changes_are_followed_to_the_end(provider, following):
    with acme_learned(provider) as (_, address, memory), following(memory, address) as follower:
        for turn in range(60):
            rotate(provider)
            row = {"code": ["SUMMERSALE25", "SCALEUP15"][turn % 2]}
            provider.registry.reload_table("active_csm_codes", set={"plan_partner_growth": row})
        assert follower.wait_for(position_of(provider), SOON_S)
        assert knows(memory, address, GOVERNED) == [{"promo_code": "SCALEUP15"}]
        assert knows(memory, address, CONTROL) == [{"currency": "eur"}]


def test_after_a_burst_it_still_hears(following):
    """Trial follow_deaf_min: it said that it had heard of the newest state, and the memory was not there."""
    provider = shop()
    app = Counting(shop_app(provider))
    with (
        serving(app) as address,
        remembering(address, {"plan": "a"}, {"plan": "b"}) as (memory, _),
        following(memory, address) as follower,
    ):
        for number in range(30):
            for turn in range(6):
                set_code(provider, "a", f"A{number}.{turn}")
                provider.registry.reload_table("other", set={"x": {"v": f"{number}.{turn}"}})
            set_code(provider, "b", f"B{number}")
            assert follower.wait_for(position_of(provider), SOON_S)
            assert memory.position(memory.root_of(address)) == position_of(provider)
            assert recalled(memory, address, {"plan": "b"}) == [{"promo": f"B{number}"}]
            assert recalled(memory, address, {"plan": "a"}) == [{"promo": f"A{number}.5"}]
    assert len(app.feeds) == 1


def test_it_hears_beside_requests_that_move_the_same_memory(following):
    provider = shop()
    with (
        serving(shop_app(provider)) as address,
        remembering(address, {"plan": "a"}) as (memory, client),
        following(memory, address) as follower,
    ):
        for number in range(30):
            set_code(provider, "a", f"A{number}")
            client.post("/s", json={"plan": "b"})
            assert follower.wait_for(position_of(provider), SOON_S)
            # what a request has found to be stale is gone, and nothing is left for the follower to renew
            assert recalled(memory, address, {"plan": "a"}) in ([], [{"promo": f"A{number}"}])


@pytest.mark.spec("13.12")
def test_a_path_that_goes_dead_is_noticed(following):
    """Trial follow_halfopen: 50 s after the path had gone dead it had not noticed."""
    provider = shop()
    provider.feed.heartbeat_s = 0.05
    with (
        serving(shop_app(provider)) as direct,
        Path(int(direct.rpartition(":")[2])) as path,
        remembering(path.address, {"plan": "a"}) as (memory, _),
        following(memory, path.address, quiet_s=0.4) as follower,
    ):
        assert follower.wait_for(position_of(provider), SOON_S)
        before = path.connection_count
        path.go_dead()
        dead_at = time.monotonic()
        set_code(provider, "a", "A1")
        assert follower.wait_for(position_of(provider), SOON_S)
        assert time.monotonic() - dead_at < 20  # and not after 40 s, as without a bound of its own
        assert recalled(memory, path.address, {"plan": "a"}) == [{"promo": "A1"}]
        assert path.connection_count > before


SERVER = """
import sys
from shelflife.testing import serving
from tests.integrations.followers import position_of, shop, shop_app

port, code, log = sys.argv[1:]
provider = shop({"a": {"code": code}, "same": {"code": "S"}}, log=log or None)
with serving(shop_app(provider), port=int(port)) as address:
    print(address, position_of(provider), flush=True)
    sys.stdin.read()
"""


@contextmanager
def server_of(nursery, port, code, log):
    """It is killed where the block ends."""
    with nursery.forked(SERVER, port, code, log) as process:
        yield process.stdout.readline().split()


@pytest.mark.spec("13.12")
@pytest.mark.parametrize("has_log", [False, True], ids=["without a log", "with a log"])
def test_a_server_that_is_killed_and_back_is_heard_at_once(tmp_path, nursery, following, has_log, pauses_s):
    """Trial follow_restart: after seven restarts it came 24 to 29 s late."""
    log = tmp_path / "log.db" if has_log else ""
    with contextlib.ExitStack() as stack:
        with server_of(nursery, 0, "C0", log) as (address, position):
            port = int(address.rpartition(":")[2])
            learning = remembering(address, {"plan": "a"}, {"plan": "same"})
            memory, client = stack.enter_context(learning)
            follower = stack.enter_context(following(memory, address))
            assert follower.wait_for(position, SOON_S)
        for number in range(1, 5):
            assert eventually(lambda: pauses_s)  # it has noticed
            with server_of(nursery, port, f"C{number}", log) as (_, position):
                assert follower.wait_for(position, 3 * SOON_S)
                # the first is short, however often the server has been away before, and each at most twice as long as the last
                assert pauses_s[0] <= 0.2
                assert all(later <= 2 * sooner for sooner, later in itertools.pairwise(pauses_s)), pauses_s
                pauses_s.clear()
                if has_log:
                    assert recalled(memory, address, {"plan": "a"}) == [{"promo": f"C{number}"}]
                    assert recalled(memory, address, {"plan": "same"}) == [{"promo": "S"}]
                else:  # another log: nothing is used before the server was asked about it
                    assert recalled(memory, address, {"plan": "a"}) == []
                    client.post("/s", json={"plan": "a"})
                    assert recalled(memory, address, {"plan": "a"}) == [{"promo": f"C{number}"}]


@pytest.mark.parametrize("is_given", [False, True])
def test_the_timeout_of_a_client_does_not_end_a_feed_between_heartbeats(following, is_given):
    """Trial follow_default: with a client as it comes, 8 connections in 75 s, and 40 of these offline."""
    provider = shop()
    provider.feed.heartbeat_s = 0.5
    app = Counting(shop_app(provider))
    given = client_for(following, timeout=0.1) if is_given else contextlib.nullcontext()
    with (
        serving(app) as address,
        given as client,
        following(Memory(), address, client=client) as follower,
    ):
        assert app.wait_until(lambda: app.feeds and app.feeds[0].count(b": still here") >= 3)
        assert eventually(lambda: follower.state == Following())
    assert len(app.feeds) == 1


@pytest.mark.spec("13.13")
@pytest.mark.parametrize("key", ["a\u2028b", "a\u2029b", "a\x85b", "a\x0bb\x0cc\x1cd\x1de\x1ef"])
def test_a_key_with_any_character_in_it_is_heard(following, key):
    """Trial follow_2028: such a key ended every connection, and nothing was heard any more."""
    provider = shop({"a": {"code": "A0"}, key: {"code": "0"}})
    app = Counting(shop_app(provider))
    with (
        serving(app) as address,
        remembering(address, {"plan": "a"}, {"plan": key}) as (memory, _),
        following(memory, address) as follower,
    ):
        set_code(provider, key, "1")
        assert follower.wait_for(position_of(provider), SOON_S)
        set_code(provider, "a", "A1")
        assert follower.wait_for(position_of(provider), SOON_S)
        assert recalled(memory, address, {"plan": key}) == [{"promo": "1"}]
        assert recalled(memory, address, {"plan": "a"}) == [{"promo": "A1"}]
    assert len(app.feeds) == 1


def test_its_state_can_be_asked(following):
    provider = shop()
    with serving(shop_app(provider)) as address:
        port = int(address.rpartition(":")[2])
        with remembering(address, {"plan": "a"}) as (memory, _):
            follower = following(memory, address)
            assert follower.state == CatchingUp()
            with follower:
                assert follower.wait_for(position_of(provider), SOON_S)
                assert follower.state == Following()
    assert follower.state.why == "it is not followed any more"
    with following(memory, f"http://127.0.0.1:{port}") as follower:
        begun_at = time.time()
        assert eventually(lambda: isinstance(follower.state, Offline))
        since = follower.state.since
        assert begun_at - 1 <= since <= time.time()
        assert "refused" in follower.state.why.lower() or "connection" in follower.state.why.lower()
        with serving(shop_app(provider), port=port):
            assert eventually(lambda: follower.state == Following())


def test_it_waits_until_what_has_gone_is_renewed(provider, following):
    """The server answers what has taken the place of a fix only when somebody has begun to wait."""
    may_answer = threading.Event()
    app = acme_app(provider)

    async def slow(scope, receive, send):
        if scope.get("path") == "/contract/fixes":
            await asyncio.to_thread(may_answer.wait, SOON_S)
        await app(scope, receive, send)

    with (
        serving(slow) as address,
        remembering(address, GOVERNED, path="/subscriptions") as (memory, _),
        following(memory, address) as follower,
    ):
        assert follower.wait_for(position_of(provider), SOON_S)
        rotate(provider)
        position = position_of(provider)
        assert eventually(lambda: memory.position(memory.root_of(address)) == position)
        assert not follower.wait_for(position, 0.1)
        may_answer.set()
        assert follower.wait_for(position, SOON_S)
        assert knows(memory, address, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]


def test_a_position_that_the_memory_has_passed_need_not_be_waited_for(following):
    provider = shop()
    with serving(shop_app(provider)) as address, following(Memory(), address) as follower:
        assert eventually(lambda: follower.state == Following())
        passed = position_of(provider)
        assert follower.wait_for(passed, SOON_S)
        set_code(provider, "a", "A1")
        assert follower.wait_for(position_of(provider), SOON_S)
        assert follower.wait_for(passed, 0)


def test_a_memory_that_begins_anew_is_told_from_there(following):
    """Another log takes the place of the first. It connects again, and nothing needs to be asked from then on."""
    one = shop()
    with serving(shop_app(one)) as address:
        port = int(address.rpartition(":")[2])
        with remembering(address, {"plan": "a"}) as (memory, _):
            pass
    two = shop()
    app = Counting(shop_app(two))
    events = []
    with serving(app, port=port), following(memory, address, on_heard=events.extend) as follower:
        assert app.wait_until(lambda: len(app.feeds) == 2)
        assert LogLost(memory.root_of(address), several=False) in events
        assert eventually(lambda: follower.state == Following())
        for number in range(5):
            set_code(two, "a", f"A{number}")
            assert follower.wait_for(position_of(two), SOON_S)
        assert len(app.feeds) == 2
        assert [asked for asked in app.asked if "from=" in asked] == []


def test_it_passes_a_login(following):
    def api_key(x_api_key: str = Header(default="")):
        if x_api_key != "k3y":
            raise HTTPException(401)

    provider, key = shop(), {"X-Api-Key": "k3y"}
    app = Counting(shop_app(provider, [api_key]))
    with serving(app) as address, remembering(address, {"plan": "a"}, headers=key) as (memory, _):
        with following(memory, address) as follower:
            assert eventually(lambda: isinstance(follower.state, Offline))
            assert follower.state.why == "the server answers with status 401 and no feed"
        with following(memory, address, headers=key | {"Accept-Encoding": "gzip"}) as follower:
            set_code(provider, "a", "A1")
            assert follower.wait_for(position_of(provider), SOON_S)
        assert recalled(memory, address, {"plan": "a"}) == [{"promo": "A1"}]
        assert app.asked == ["/contract/fixes?"]


def test_what_a_listener_of_its_own_raises_goes_no_further(provider, following, caplog):
    def failing(events):
        raise RuntimeError("nobody wants to know")

    with (
        caplog.at_level(logging.ERROR, "shelflife.memory"),
        acme_learned(provider) as (counting, address, memory),
        following(memory, address, on_heard=failing) as follower,
    ):
        assert follower.wait_for(position_of(provider), SOON_S)
        rotate(provider)
        assert follower.wait_for(position_of(provider), SOON_S)
        assert knows(memory, address, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]
        assert len(counting.feeds) == 1
    assert "whoever is told what a follower has heard has failed" in caplog.text
    assert "nobody wants to know" in caplog.text


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_contract_below_a_path_is_followed_there(following, slash):
    provider, app = shop(), FastAPI()
    app.mount("/shop", shop_app(provider))
    counting = Counting(app)
    with (
        serving(counting) as address,
        remembering(address, {"plan": "a"}, path="/shop/s") as (memory, _),
        following(memory, f"{address}/shop{slash}") as follower,
    ):
        set_code(provider, "a", "A1")
        assert follower.wait_for(position_of(provider), SOON_S)
        root = memory.root_of(f"{address}/shop/s")
        assert root == f"{address}/shop"
        [entry] = memory.recall(root, "POST /shop/s", {"plan": "a"})
        assert entry.parameters == {"promo": "A1"}


@pytest.fixture
def signed_shop(tmp_path):
    key = SigningKey.new()
    provider = shop(log=tmp_path / "log.db", signing=Signing(signer=key))
    yield provider, key.key
    provider.close()


def test_with_pinned_keys_events_only_make_it_ask(signed_shop, following):
    provider, key = signed_shop
    app = Counting(shop_app(provider))
    with serving(app) as address:
        pinned = trust({address: [key]})
        with remembering(address, {"plan": "a"}, trust=pinned) as (memory, _):
            asked_count = len(app.asked)
            with following(memory, address) as follower:
                assert follower.wait_for(position_of(provider), SOON_S)
                set_code(provider, "a", "A1")
                assert follower.wait_for(position_of(provider), SOON_S)
                assert follower.state == Following()
            assert recalled(memory, address, {"plan": "a"}) == [{"promo": "A1"}]
            assert any(asked.startswith("/contract/signed?") for asked in app.asked[asked_count:])


def test_with_pinned_keys_a_feed_that_lies_moves_nothing(signed_shop, following):
    provider, key = signed_shop
    app, is_lying = shop_app(provider), threading.Event()

    async def lying(scope, receive, send):
        if b"event-stream" in dict(scope.get("headers", [])).get(b"accept", b""):
            at, _, nonce = dict(scope["headers"])[b"contract-at"].decode().partition(";n=")
            moved = {"tables": {"codes": {"changed": ["a"]}}}
            told = json.dumps({"to": "AAAAAA9", "from": at, "moved": moved, "nonce": nonce})
            await answer(send, None, **FEED)
            await send(
                {"type": "http.response.body", "body": f"data: {told}\n\n".encode(), "more_body": True}
            )
            is_lying.set()
            await until_gone(receive)
        else:
            await app(scope, receive, send)

    events = []
    with serving(lying) as address:
        pinned = trust({address: [key]})
        with remembering(address, {"plan": "a"}, trust=pinned, on_event=events.append) as (memory, _):
            with following(memory, address) as follower:
                assert is_lying.wait(SOON_S)
                assert not follower.wait_for("AAAAAA9", 0.3)
            assert not [event for event in events if isinstance(event, Evicted | Distrusted)]


@pytest.mark.parametrize("library", [httpx2, httpx])
def test_a_client_of_either_library_can_be_handed_in_and_is_left_open(provider, following, library):
    with (
        acme_learned(provider) as (_, address, memory),
        client_for(following, library, trust_env=False) as client,
    ):
        with following(memory, address, client=client) as follower:
            assert follower.wait_for(position_of(provider), SOON_S)
            rotate(provider)
            assert follower.wait_for(position_of(provider), SOON_S)
        assert knows(memory, address, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]
        assert following is Follower or follower.has_left_client_open


@pytest.mark.parametrize(
    ("kind", "client"),
    [(Follower, httpx2.AsyncClient), (AsyncFollower, httpx2.Client), (Follower, httpx.AsyncClient)],
)
def test_a_client_of_the_wrong_kind_is_refused_at_once(kind, client):
    with pytest.raises(
        TypeError, match="a Follower takes a blocking client, and an AsyncFollower an async one"
    ):
        kind(Memory(), "http://127.0.0.1:1", client=client())


def test_without_the_library_whoever_begins_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'shelflife\[httpx2\]'"):
        Follower(Memory(), "http://127.0.0.1:1").__enter__()


def test_what_is_no_address_is_refused_at_once():
    with pytest.raises(ValueError, match="is not the URL of a server"):
        Follower(Memory(), "api.example")


def test_it_can_follow_again_after_it_was_ended(following):
    provider = shop()
    with serving(shop_app(provider)) as address, remembering(address, {"plan": "a"}) as (memory, _):
        follower = following(memory, address)
        for number in range(2):
            with follower:
                set_code(provider, "a", f"A{number}")
                assert follower.wait_for(position_of(provider), SOON_S)
            assert recalled(memory, address, {"plan": "a"}) == [{"promo": f"A{number}"}]
