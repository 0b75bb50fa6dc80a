"""The change feed, over real connections."""

import asyncio
import gc
import itertools
import signal
import socket
import subprocess
import sys
import threading
import weakref
from contextlib import ExitStack
from functools import partial

import httpx2
import msgspec
import pytest

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.contract.positions import Named, Position
from shelflife.server import Provider, fix
from shelflife.server import log as server_log
from shelflife.server.errors import LogError
from shelflife.server.sqlite_log import SqliteLog
from shelflife.testing import serving
from tests.client.forking import in_child
from tests.integrations.event_streams import LISTENING, events, heard
from tests.open_contract import openly

MARK = "a1b2c3"
TABLES = {"t": {"a": {"n": 0}}}


@pytest.fixture
def provider():
    return acme_provider()


@pytest.fixture
def client(provider):
    with (
        serving(acme_app(provider)) as address,
        httpx2.Client(base_url=address, trust_env=False, timeout=60) as client,
    ):
        yield client


def position_of(provider):
    return str(provider.face(provider.state, {}).position)


def rotate(provider, code="WINTERLAUNCH26"):
    provider.registry.reload_table("active_csm_codes", set={"plan_partner_growth": {"code": code}})


def listening_to(client, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.stream("GET", "/contract/changes", headers=LISTENING | named)


@pytest.mark.spec("13.1", "13.3", "13.4")
def test_a_listener_that_knows_nothing_is_given_the_position_and_then_what_moves(client, provider):
    with listening_to(client) as response:
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["cache-control"] == "no-store"
        told = events(response)
        first = position_of(provider)
        assert next(told) == {"event": "resync", "id": first, "data": {"to": first}}
        rotate(provider)
        second = position_of(provider)
        moved = next(told)
        assert (moved["event"], moved["id"]) == ("moved", second)
        assert (moved["data"]["from"], moved["data"]["to"]) == (first, second)
        [(table, changes)] = moved["data"]["moved"]["tables"].items()
        assert (table, changes["changed"]) == ("active_csm_codes", ["plan_partner_growth"])
        assert changes["columns"] == {"plan_partner_growth": ["code"]}


@pytest.mark.spec("13.2", "13.3", "13.6")
@pytest.mark.parametrize("way", ["last-event-id", "contract-at", "known"])
def test_a_listener_that_comes_back_goes_on_from_what_it_knows(client, provider, way):
    client.get("/contract/state")
    first = position_of(provider)
    known = f"{first}:{MARK}"
    headers, params = (LISTENING, {"known": known}) if way == "known" else (LISTENING | {way: known}, {})
    with client.stream("GET", "/contract/changes", headers=headers, params=params) as response:
        assert next(events(response)) is None
    rotate(provider)
    second = position_of(provider)
    with client.stream("GET", "/contract/changes", headers=headers, params=params) as response:
        told = events(response)
        moved = next(told)
        assert (moved["event"], moved["id"]) == ("moved", second)
        assert (moved["data"]["from"], moved["data"]["to"]) == (known, second)
        assert list(moved["data"]["moved"]["tables"]) == ["active_csm_codes"]
        rotate(provider, "AGAIN")
        assert next(told)["data"]["from"] == f"{second}:{MARK}"


@pytest.mark.spec("13.2")
def test_of_several_names_the_first_counts(client, provider):
    client.get("/contract/state")
    first = position_of(provider)
    rotate(provider)
    second = position_of(provider)
    with listening_to(client, last_event_id=first, contract_at=second) as response:
        assert next(events(response))["data"]["from"] == first
    with client.stream(
        "GET", "/contract/changes", headers=LISTENING | {"contract-at": first}, params={"known": second}
    ) as response:
        assert next(events(response))["data"]["from"] == first


@pytest.mark.spec("13.4")
@pytest.mark.parametrize(
    ("known", "unknown"), [("AAAAAA1", "foreign"), ("AAAAAA0", "foreign"), ("AAAAAA99", "ahead")]
)
def test_a_position_that_the_server_cannot_go_on_from_is_answered_with_a_resync(
    client, provider, known, unknown
):
    with listening_to(client, last_event_id=f"{known}:{MARK}") as response:
        resync = next(events(response))
    position = position_of(provider)
    assert (resync["event"], resync["id"]) == ("resync", position)
    assert resync["data"] == {"to": position, "from": f"{known}:{MARK}", "unknown": unknown}


@pytest.mark.spec("13.4")
def test_a_position_that_is_too_far_back_is_answered_with_a_resync(monkeypatch):
    monkeypatch.setattr(server_log, "MOST_ENTRIES", 3)
    provider = Provider(TABLES)
    first = position_of(provider)
    for turn in range(1, 6):
        provider.registry.reload_table("t", set={"a": {"n": turn}})
    _, event = heard(provider.feed, 2, {"last-event-id": first})
    assert b"event: resync" in event["body"]
    assert b'"unknown":"old"' in event["body"]


@pytest.mark.spec("13.4")
@pytest.mark.parametrize("known", ["*", "not a position", "AAAAAAAA", "x\x7f", "é"])
def test_what_names_no_position_is_answered_as_nothing(client, provider, known):
    with client.stream("GET", "/contract/changes", headers=LISTENING, params={"known": known}) as response:
        resync = next(events(response))
    assert (resync["event"], resync["data"]) == ("resync", {"to": position_of(provider)})


@pytest.mark.spec("13.9")
@pytest.mark.parametrize("known", ["*", "here", "before", "AAAAAA99"])
def test_a_listener_that_asks_is_answered_with_its_nonce_once(client, provider, known):
    client.get("/contract/state")
    before = position_of(provider)
    rotate(provider)
    here = position_of(provider)
    named = {"here": here, "before": before}.get(known, known)
    with listening_to(client, contract_at=f"{named}:{MARK};n=0.abc") as response:
        told = events(response)
        answer = next(told)
        assert (answer["id"], answer["data"]["nonce"]) == (here, "0.abc")
        assert answer["event"] == ("moved" if known == "before" else "resync")
        rotate(provider, "AGAIN")
        moved = next(told)
        assert moved["data"]["from"] == f"{here}:{MARK}"
        assert "nonce" not in moved["data"]


@pytest.mark.spec("13.5")
def test_a_listener_that_follows_ends_where_the_server_is(client, provider):
    """Many fast changes: whatever was put together on the way, following it leads to the rows of each position that is told."""
    rows_at, noting = {}, threading.Condition()
    names = ("active_csm_codes", "recommended_credit_token")

    def note():
        with noting:
            rows_at[position_of(provider)] = {name: provider.registry.rows(name) for name in names}
            noting.notify_all()

    def drift():
        for turn in range(300):
            rotate(provider, f"CODE{turn % 40}")
            if turn % 7 == 0:
                provider.registry.reload_table(
                    "recommended_credit_token", set={f"token_{turn % 11}": {"turn": turn}}
                )
            if turn % 13 == 0:
                provider.registry.reload_table("recommended_credit_token", remove=[f"token_{turn % 11}"])
        is_over.set()

    is_over = threading.Event()
    client.get("/contract/state")
    note()
    provider.registry.on_change(note)
    with listening_to(client) as response:
        told = events(response)
        first = next(told)
        rows, seen = rows_at[first["id"]], [first["id"]]
        rows = {name: dict(rows[name]) for name in names}
        drifting = threading.Thread(target=drift)
        drifting.start()
        while not (is_over.is_set() and seen[-1] == position_of(provider)):
            event = next(told)
            if event is None:
                continue
            assert (event["event"], event["data"]["from"]) == ("moved", seen[-1])
            with noting:
                assert noting.wait_for(lambda to=event["id"]: to in rows_at, 60)
            now = rows_at[event["id"]]
            for name, moved in event["data"]["moved"]["tables"].items():
                for key in (*moved.get("added", ()), *moved.get("changed", ())):
                    rows[name][key] = now[name][key]
                for key in moved.get("removed", ()):
                    del rows[name][key]
            assert rows == now
            seen.append(event["id"])
        drifting.join()
    assert len(set(seen)) == len(seen)


def test_a_listener_that_leaves_is_forgotten_and_does_not_keep_the_server():
    provider = Provider({"t": {"a": {}}})

    async def nothing(scope, receive, send):
        raise AssertionError("the feed is the middleware's own")

    app = openly(nothing, provider)
    with serving(app) as address, httpx2.Client(base_url=address, trust_env=False) as client:
        with listening_to(client) as response:
            told = events(response)  # held: it closes the response when it goes
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
    provider.feed.heartbeat_s = 0.01
    start, first, *beats = heard(provider.feed, 4)
    assert start["status"] == 200
    assert b"event: resync" in first["body"]
    assert [beat["body"] for beat in beats] == [b": still here\n\n"] * 2


@pytest.mark.parametrize("heartbeat_s", [0.001, 15])
def test_all_of_many_listeners_are_told_while_others_leave_and_more_moves(heartbeat_s):
    """More of them than are woken at once."""
    provider = Provider({"t": {"a": {"n": 0}}})
    provider.feed.heartbeat_s = heartbeat_s
    told, leaving = {}, {}

    async def listen(number):
        leaving[number] = asyncio.Event()

        async def receive():
            await leaving[number].wait()
            return {"type": "http.disconnect"}

        async def send(message):
            if message.get("body", b"").startswith(b"id: "):
                told[number] = message["body"].partition(b"\n")[0].removeprefix(b"id: ").decode()
            await asyncio.sleep(0)

        await provider.feed.stream({}, "", receive, send)

    async def played():
        listening = {number: asyncio.create_task(listen(number)) for number in range(300)}
        for turn in range(1, 20):
            provider.registry.reload_table("t", set={"a": {"n": turn}})
            for _ in range(turn % 4):
                await asyncio.sleep(0)
            for number in range(10 * turn, 10 * turn + 10):
                leaving.get(number, asyncio.Event()).set()
        left = set(range(10, 200)) & {number for number, event in leaving.items() if event.is_set()}
        async with asyncio.timeout(60):
            await asyncio.gather(*(listening[number] for number in left))
        stay, now = listening.keys() - left, {position_of(provider)}
        for _ in range(1000):
            if {told.get(number) for number in stay} == now:
                break
            await asyncio.sleep(0.01)
        assert {told.get(number) for number in stay} == now
        assert provider.feed.listener_count == len(stay)
        for task in listening.values():
            task.cancel()
        await asyncio.gather(*listening.values(), return_exceptions=True)
        assert provider.feed.listener_count == 0

    asyncio.run(played())


@pytest.mark.spec("13.6")
def test_something_is_sent_every_fifteen_seconds():
    assert Provider({}).feed.heartbeat_s == 15


def test_what_has_moved_is_not_kept_longer_than_the_state():
    provider = Provider(TABLES)
    first = position_of(provider)
    provider.registry.reload_table("t", set={"a": {"n": 1}})
    face = weakref.ref(provider.face(provider.state, {}))
    heard(provider.feed, 2, {"last-event-id": first})
    provider.registry.reload_table("t", set={"a": {"n": 2}})
    heard(provider.feed, 2)
    gc.collect()
    assert face() is None


@pytest.mark.spec("13.11")
@pytest.mark.parametrize("nonce", ["", ";n=0.abc"])
def test_more_than_an_event_can_hold_is_left_to_be_asked_for(nonce):
    provider = Provider(TABLES)
    first = position_of(provider)
    provider.registry.reload_table("t", set={f"{'key' * 20}{number}": {} for number in range(1000)})
    _, event = heard(provider.feed, 2, {"contract-at": f"{first}:{MARK}{nonce}"})
    position = position_of(provider)
    repeated = ',"nonce":"0.abc"' if nonce else ""
    assert event["body"].decode() == (
        f'id: {position}\nevent: resync\ndata: {{"to":"{position}","from":"{first}:{MARK}"{repeated}}}\n\n'
    )


@pytest.mark.spec("13.11")
def test_an_event_holds_at_most_65536_bytes_of_data():
    provider = Provider(TABLES)
    first = position_of(provider)
    provider.registry.reload_table("t", set={f"{'key' * 20}{number}": {} for number in range(900)})
    _, event = heard(provider.feed, 2, {"contract-at": first})
    assert b"event: moved" in event["body"]
    assert 50_000 < len(event["body"]) <= 65_536 + 100


@pytest.mark.spec("13.4", "13.11")
@pytest.mark.parametrize("spare", [60_000, 8, 0, -1])
def test_each_listener_is_told_with_its_own_mark_what_is_written_once_for_all(spare):
    """Some of so much that a mark more is too long for an event."""

    def moved_by(length):
        provider = Provider(TABLES)
        known = Position.from_text(position_of(provider))
        keys = [f"{number:04}{'k' * 56}" for number in range((length or 0) // 63)]
        keys.append("k" * ((length or 0) % 63 + 1))
        provider.registry.reload_table("t", set={key: {} for key in keys})
        face = provider.face(provider.state, {})
        return provider, face, known, len(face.account_within(10**6, Named(known))[1])

    length = 65_536 - spare
    *_, shortest = moved_by(None)
    provider, face, known, told_length = moved_by(length - shortest)
    assert told_length == length
    for at in (known, Position.from_text("AAAAAA0")):
        for one in (Named(at, "m" * size) for size in range(17)):
            account, told = face.account_within(65_536, one)
            name = "resync" if account.moved is msgspec.UNSET else "moved"
            event = heard(provider.feed, 2, {"contract-at": one.header})[1]["body"]
            assert event.decode() == f"id: {face.position}\nevent: {name}\ndata: {told.decode()}\n\n"


class SharedLog(SqliteLog):
    """A log that can be out of reach."""

    is_lost = False

    def read(self, number, digest):
        if self.is_lost:
            raise LogError("the disk is gone")
        return super().read(number, digest)


@pytest.fixture
def workers(tmp_path):
    """Two processes' worth of providers over one log. Neither looks at the log of its own accord."""
    both = [Provider(TABLES, log=SharedLog(tmp_path / "log.db")) for _ in range(2)]
    yield both
    for one in both:
        one.close()


@pytest.mark.spec("13.10")
def test_a_process_that_lags_behind_does_not_deny_what_a_listener_knows(workers):
    ahead, behind = workers
    ahead.registry.reload_table("t", set={"a": {"n": 1}})
    known = position_of(ahead)
    assert position_of(behind) != known
    _, first = heard(behind.feed, 2, {"last-event-id": f"{known}:{MARK}"})
    assert first["body"] == b": still here\n\n"
    assert position_of(behind) == known


@pytest.mark.spec("13.9")
def test_whoever_asks_is_answered_from_the_end_of_the_log(workers):
    ahead, behind = workers
    known = position_of(behind)
    ahead.registry.reload_table("t", set={"a": {"n": 1}})
    _, first = heard(behind.feed, 2, {"contract-at": f"{known};n=0.abc"})
    assert f"id: {position_of(ahead)}\nevent: moved\n".encode() in first["body"]


@pytest.mark.spec("13.10")
@pytest.mark.parametrize("known", ["ahead", "asking"])
def test_without_its_log_a_process_does_not_guess(workers, known):
    ahead, behind = workers
    ahead.registry.reload_table("t", set={"a": {"n": 1}})
    named = {"ahead": position_of(ahead), "asking": f"{position_of(behind)};n=0.abc"}[known]
    behind.registry._log.is_lost = True
    start, end = heard(behind.feed, 10, {"contract-at": named})
    assert (start["status"], dict(start["headers"])) == (503, {b"retry-after": b"5"})
    assert end == {"type": "http.response.body", "body": b""}


@pytest.mark.spec("13.10")
def test_a_process_whose_policies_are_not_those_of_the_log_ends_its_feeds(tmp_path):
    """Of a rolling deploy: a sign of life from the old code would say that nothing has moved."""

    def serving_code(version):
        one = Provider(TABLES, log=tmp_path / "log.db")
        one.policy(version=version)(lambda request, tables: fix("N", n=tables.t["a"]["n"]))
        one.be_ready()
        return one

    async def listened(feed):
        sent = asyncio.Queue()
        streaming = asyncio.create_task(feed.stream({}, "", asyncio.Event().wait, sent.put))
        messages = [await sent.get(), await sent.get()]
        new = serving_code("2")
        old.registry.catch_up()
        await asyncio.wait_for(streaming, 60)
        new.close()
        return [*messages, *(sent.get_nowait() for _ in range(sent.qsize()))]

    old = serving_code("1")
    start, first, *rest = asyncio.run(listened(old.feed))
    assert (start["status"], b"resync" in first["body"]) == (200, True)
    assert [message["body"] for message in rest] == [b""]
    start, _ = heard(old.feed, 10)
    assert start["status"] == 503
    old.close()


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
            client = stack.enter_context(httpx2.Client(base_url=base_url, trust_env=False, timeout=60))
            assert client.get("/contract/state").status_code == 200
            paths = itertools.cycle(["/contract/changes", "/other/contract/changes"])
            responses = [
                stack.enter_context(client.stream("GET", path, headers=LISTENING))
                for path in itertools.islice(paths, listener_count)
            ]
            told = [response.iter_lines() for response in responses]
            assert all(next(lines).startswith("id: ") for lines in told)
            server.send_signal(number)
            server.wait(60)
            assert all(list(lines)[-1] == "" for lines in told)  # each feed came to its end
    finally:
        server.kill()
        server.wait()


async def never():
    await asyncio.Event().wait()


async def unheard(message):
    """Take it, and do nothing with it."""


async def listeners(feed, count, send=unheard):
    """So many that stay, as tasks that have been told where the server is."""
    tasks = [asyncio.create_task(feed.stream({}, "", never, send)) for _ in range(count)]
    await asyncio.sleep(0.05)
    return tasks


def test_who_listened_on_a_loop_that_is_closed_is_counted_and_kept_no_longer():
    provider = Provider(TABLES)
    for _ in range(3):
        loop = asyncio.new_event_loop()
        tasks = loop.run_until_complete(listeners(provider.feed, 5))
        assert provider.feed.listener_count == 5
        loop.close()
        assert provider.feed.listener_count == 0
    gone = weakref.ref(tasks.pop())
    provider.registry.reload_table("t", set={"a": {"n": 1}})
    heard(provider.feed, 2)
    del tasks
    gc.collect()
    assert gone() is None


def test_a_child_process_begins_without_the_listeners_of_its_parent():
    provider = Provider(TABLES)

    async def forked():
        tasks = await listeners(provider.feed, 3)
        try:
            return in_child(
                lambda: (
                    provider.feed.listener_count == 0
                    and heard(provider.feed, 2)[0]["status"] == 200
                    and provider.feed.listener_count == 0
                )
            ), provider.feed.listener_count
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    assert asyncio.run(forked()) == (True, 3)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_listener_that_does_not_read_keeps_no_process_that_is_told_to_end(monkeypatch, is_late):
    monkeypatch.setattr("shelflife.server.feed._LAST_WORD_S", 0.05)
    provider = Provider(TABLES)

    async def jammed(message):
        if message["type"] == "http.response.body":
            await never()

    async def ended():
        end = partial(provider.feed.end_listeners, asyncio.get_running_loop())
        if is_late:
            end()
        tasks = await listeners(provider.feed, 3, jammed)
        end()
        async with asyncio.timeout(60):
            await asyncio.gather(*tasks)

    asyncio.run(ended())
    assert provider.feed.listener_count == 0
