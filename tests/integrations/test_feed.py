"""The change feed, over real connections."""

import asyncio
import itertools
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack

import httpx2
import msgspec
import pytest

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.contract.compact import Moved, changes_of
from shelflife.contract.versions import Versions
from shelflife.integrations.asgi import ContractMiddleware
from shelflife.server import Provider
from shelflife.server.feed import Feed
from shelflife.testing import serving
from tests.integrations.event_streams import LISTENING, events


@pytest.fixture
def provider():
    return acme_provider()


@pytest.fixture
def client(provider):
    with (
        serving(acme_app(provider)) as address,
        httpx2.Client(base_url=address, trust_env=False, timeout=30) as client,
    ):
        yield client


def epoch_now(provider):
    return provider.state.face(provider.level).epoch


def rotate(provider, code="WINTERLAUNCH26"):
    provider.registry.reload_table("active_csm_codes", set={"plan_partner_growth": {"code": code}})


@pytest.mark.spec("13.1", "13.4")
def test_a_listener_that_knows_nothing_is_given_the_state_and_then_what_moves(client, provider):
    with client.stream("GET", "/contract/changes", headers=LISTENING) as response:
        assert response.headers["content-type"] == "text/event-stream"
        told = events(response)
        first = next(told)
        assert (first["event"], first["id"]) == ("resync", epoch_now(provider))
        assert first["data"]["table_versions"] == provider.state.table_versions
        rotate(provider)
        moved = next(told)
        assert (moved["event"], moved["id"]) == ("moved", epoch_now(provider))
        assert moved["data"]["since"] == first["id"]
        [table] = moved["data"]["epoch"]["tables"]
        assert table == "active_csm_codes"


@pytest.mark.spec("13.2", "13.3", "13.6")
@pytest.mark.parametrize("way", ["last-event-id", "contract-epoch", "known"])
def test_a_listener_that_comes_back_goes_on_from_what_it_knows(client, provider, way):
    known = epoch_now(provider)
    headers, params = (LISTENING, {"known": known}) if way == "known" else (LISTENING | {way: known}, {})
    with client.stream("GET", "/contract/changes", headers=headers, params=params) as response:
        assert next(events(response)) is None
    rotate(provider)
    with client.stream("GET", "/contract/changes", headers=headers, params=params) as response:
        moved = next(events(response))
    assert (moved["event"], moved["data"]["since"]) == ("moved", known)
    assert list(moved["data"]["epoch"]["tables"]) == ["active_csm_codes"]


@pytest.mark.spec("13.4")
@pytest.mark.parametrize("known", ["AAAAAAAA", "not an epoch", "x\x7f"])
def test_an_epoch_that_is_not_known_is_answered_with_a_resync(client, known):
    with client.stream("GET", "/contract/changes", headers=LISTENING, params={"known": known}) as response:
        assert next(events(response))["event"] == "resync"


@pytest.mark.spec("13.5")
def test_a_listener_that_follows_ends_where_the_server_is(client, provider):
    """Many fast changes: whatever was put together on the way, following it leads to the current versions."""
    is_over = threading.Event()

    def drift():
        for turn in range(300):
            rotate(provider, f"CODE{turn}")
            if turn % 7 == 0:
                provider.registry.reload_table("recommended_credit_token", set={}, version=f"v{turn}")
        is_over.set()

    with client.stream("GET", "/contract/changes", headers=LISTENING) as response:
        told = events(response)
        first = next(told)
        versions, rules = first["data"]["table_versions"], first["data"]["rules_version"]
        drifting = threading.Thread(target=drift)
        drifting.start()
        seen = [first["id"]]
        while not (is_over.is_set() and seen[-1] == epoch_now(provider)):
            event = next(told)
            if event is None:
                continue
            if event["event"] == "resync":
                versions, rules = event["data"]["table_versions"], event["data"]["rules_version"]
            else:
                assert event["data"]["since"] == seen[-1]
                moved = msgspec.convert(event["data"]["epoch"], Moved)
                changes = changes_of(Versions(versions, rules), moved)
                versions, rules = changes.table_versions, changes.rules_version
            assert Versions(versions, rules).epoch == event["id"]
            seen.append(event["id"])
        drifting.join()
    assert versions == provider.state.table_versions
    assert len(set(seen)) == len(seen)


def test_a_listener_that_leaves_is_forgotten_and_does_not_keep_the_server():
    provider = Provider({"t": {"a": {}}})

    async def nothing(scope, receive, send):
        raise AssertionError("the feed is the middleware's own")

    app = ContractMiddleware(nothing, provider, public=True)
    with serving(app) as address, httpx2.Client(base_url=address, trust_env=False) as client:
        with client.stream("GET", "/contract/changes", headers=LISTENING) as response:
            told = events(response)
            next(told)
            assert provider.feed.listener_count == 1
        for turn in range(1000):
            provider.registry.reload_table("t", set={"a": {"n": turn}})
            if not provider.feed.listener_count:
                break
            client.get("/contract/state")
        assert provider.feed.listener_count == 0


@pytest.mark.spec("13.6")
def test_while_nothing_moves_it_says_that_it_is_there():
    provider = Provider({"t": {"a": {}}})
    feed = Feed(provider.registry, provider.face, heartbeat_s=0.01)

    async def story():
        sent = asyncio.Queue()

        async def receive():
            await asyncio.Event().wait()

        listening = asyncio.create_task(feed.stream({}, "", receive, sent.put))
        messages = [await sent.get() for _ in range(4)]
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        return messages

    start, first, *beats = asyncio.run(story())
    assert start["status"] == 200
    assert b"event: resync" in first["body"]
    assert [beat["body"] for beat in beats] == [b": still here\n\n"] * 2


def test_without_asking_for_events_the_endpoint_is_as_ever(client, provider):
    rotate(provider)
    asked = client.get("/contract/changes", params={"since": "active_csm_codes:1.0.0"})
    assert asked.json()["tables"]["active_csm_codes"]["changed"] == ["plan_partner_growth"]


SHOP = """
from fastapi import FastAPI
from shelflife.integrations.fastapi import install
from shelflife.server import Provider

app, other = FastAPI(), FastAPI()
install(app, Provider({"t": {"a": {}}}))
install(other, Provider({"u": {"a": {}}}))
app.mount("/other", other)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("listener_count", [0, 4])
def test_a_server_ends_when_it_is_told_to_also_with_listeners(tmp_path, listener_count, number):
    (tmp_path / "shop.py").write_text(SHOP)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-m", "uvicorn", "shop:app", "--fd", str(listener.fileno())]
        server = subprocess.Popen(
            [*command, "--log-level", "critical"], cwd=tmp_path, pass_fds=[listener.fileno()]
        )
        base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        with ExitStack() as stack:
            client = stack.enter_context(httpx2.Client(base_url=base_url, trust_env=False, timeout=30))
            assert client.get("/contract/state").status_code == 200
            paths = itertools.cycle(["/contract/changes", "/other/contract/changes"])
            responses = [
                stack.enter_context(client.stream("GET", path, headers=LISTENING))
                for path in itertools.islice(paths, listener_count)
            ]
            told = [response.iter_lines() for response in responses]
            assert all(next(lines).startswith("id: ") for lines in told)
            server.send_signal(number)
            server.wait(10)
            assert all(list(lines)[-1] == "" for lines in told)  # each feed came to its end
    finally:
        server.kill()
        server.wait()
