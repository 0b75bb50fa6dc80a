"""What a process does that cannot read its log any more, and what it tells of where it is."""

import asyncio
import json
import logging
import sqlite3
import time
from contextlib import closing

import httpx2
import msgspec
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from shelflife.clocks import unsleeping_s
from shelflife.integrations.fastapi import install
from shelflife.server import BadSetting, LogError, Provider, SqliteLog
from shelflife.server.postgres_log import PostgresLog
from shelflife.testing import serving
from tests.calling import ADMIN, TOKEN, calling
from tests.integrations.checked import WANTED, fastapi_with, provider_for
from tests.integrations.event_streams import heard
from tests.integrations.positions import known_position, position_of
from tests.processes import wait_until
from tests.proxies import Proxy


class FragileLog(SqliteLog):
    """A log that can be out of reach."""

    is_lost = False

    def read(self, number, digest):
        if self.is_lost:
            raise LogError("the disk is gone")
        return super().read(number, digest)


class LateLog(SqliteLog):
    """A log of which a worker can be late to hear."""

    is_late = False

    def read(self, number, digest):
        return () if self.is_late else super().read(number, digest)


def is_silent(response):
    told = [name for name in response.headers if name.startswith("contract-")]
    return not told and not {"at", "table_versions", "rules_version"} & response.json().keys()


@pytest.mark.spec("11.13")
def test_a_process_that_begins_without_its_log_answers_and_tells_nothing_of_it(tmp_path, caplog):
    log = FragileLog(tmp_path / "log.db")
    provider = provider_for(log=log)
    app = Starlette(routes=[Mount("/api", app=fastapi_with(provider, "/x"))])  # which gets no start event
    good = WANTED | {"promo": "A"}
    with caplog.at_level(logging.WARNING, "shelflife"), calling(app) as client:
        log.is_lost = True
        for headers in ({}, {"Contract-At": "*;n=e3"}, {"Contract-At": "Abcdef9"}):
            carried_out = client.post("/api/x", json=good, headers=headers)
            assert (carried_out.status_code, carried_out.json()) == (200, {"done": True})
            refused = client.post("/api/x", json=WANTED, headers=headers)
            assert refused.status_code == 422
            assert is_silent(carried_out)
            assert is_silent(refused)
            [suggestion] = refused.json()["recovery_feedback"]["suggestions"]
            assert ("on" in suggestion) == bool(headers)
        assert [record.message for record in caplog.records if "the disk is gone" in record.message] == [
            "a client could not be answered from the end of the log: the disk is gone"
        ]
        log.is_lost = False
        assert "table_versions" in client.post("/api/x", json=good).json()
        at = client.post("/api/x", json=good, headers={"Contract-At": "*;n=e3"}).json()["at"]
        assert at == {"to": position_of(provider), "nonce": "e3"}
    provider.close()


@pytest.mark.spec("13.10")
def test_a_process_that_loses_its_log_ends_its_feeds(tmp_path):
    """A sign of life would say that nothing has moved."""
    log = FragileLog(tmp_path / "log.db")
    provider = Provider({"t": {"a": {}}}, log=log)
    provider.be_ready()

    async def listened():
        sent = asyncio.Queue()
        streaming = asyncio.create_task(provider.feed.stream({}, "", asyncio.Event().wait, sent.put))
        messages = [await sent.get(), await sent.get()]
        log.is_lost = True
        await asyncio.wait_for(streaming, 60)
        return [*messages, *(sent.get_nowait() for _ in range(sent.qsize()))]

    start, first, *rest = asyncio.run(listened())
    assert (start["status"], b"resync" in first["body"]) == (200, True)
    assert [message["body"] for message in rest] == [b""]
    start, _ = heard(provider.feed, 10)
    assert start["status"] == 503
    log.is_lost = False
    provider.registry.close()
    provider.registry.follow()
    while provider.registry.is_cut_off:
        provider.registry._log.wait(0.01)
    start, _ = heard(provider.feed, 2)
    assert start["status"] == 200
    provider.close()


def assert_vouches(client, at):
    """All of it is told as what is so."""
    assert "table_versions" in client.post("/x", json=WANTED).json()
    assert client.post("/x", json=WANTED, headers={"Contract-At": at}).json()["at"] == at
    assert client.get("/contract/state").status_code == 200


def assert_only_answers(client, at, code):
    """Requests are judged by what the process knows, and nothing is told that could be kept."""
    for headers in ({}, {"Contract-At": at}, {"Contract-At": f"{at};n=e3"}):
        refused = client.post("/x", json=WANTED, headers=headers)
        assert refused.status_code == 422
        assert is_silent(refused)
        assert refused.json()["recovery_feedback"]["suggestions"] == [
            {"type": "USE", "parameters": {"promo": code}, "cache_hint": "recompute"}
        ]
        assert is_silent(client.post("/x", json=WANTED | {"promo": code}, headers=headers))
    rows = {"rows": ["codes:growth"]}
    precondition = {"Contract-At": at, "Contract-Precondition": json.dumps(rows)}
    assert client.post("/x", json=WANTED | {"promo": code}, headers=precondition).status_code in (400, 412)
    for path in ("state", f"changes?from={at}", "changes?since=codes:1"):
        assert client.get(f"/contract/{path}").status_code == 503
    asked = {"operation": "POST /x", "request": WANTED}
    assert client.post("/contract/fixes", json=asked).status_code in (404, 503)
    assert client.get("/contract/changes", headers={"Accept": "text/event-stream"}).status_code == 503


@pytest.mark.spec("7.18")
def test_a_process_vouches_for_what_it_knows_for_as_long_as_its_provider_says(tmp_path, monkeypatch):
    log = FragileLog(tmp_path / "log.db")
    provider = provider_for(log=log, admin_token=TOKEN, stale_for_s=300)
    with calling(fastapi_with(provider, "/x")) as client:
        at = position_of(provider)
        log.is_lost = True
        wait_until(lambda: provider.registry.is_cut_off)
        assert_vouches(client, at)
        reload = {"table": "codes", "set": {"growth": {"code": "B"}}}
        refused = client.post("/admin/reload-table", json=reload, headers=ADMIN)
        assert (refused.status_code, refused.json()["error"]) == (503, "the disk is gone")
        monkeypatch.setattr("shelflife.server.keeping_up.unsleeping_s", lambda: unsleeping_s() + 301)
        assert provider.registry.is_out_of_date
        assert_only_answers(client, at, "A")
        [violation] = provider.violations(WANTED, "POST /x")
        assert violation.suggestion.cache_hint == "recompute"
        log.is_lost = False
        wait_until(lambda: not provider.registry.is_out_of_date)
        assert_vouches(client, at)


@pytest.mark.spec("7.18", "12.4")
def test_a_database_that_falls_silent_holds_up_nobody_for_long_and_is_caught_up_with(postgres, postgres_url):
    """A partition, as a worker sees it: nothing is refused, and nothing is heard."""
    elsewhere = provider_for(log=postgres_url)
    with Proxy(postgres.url) as proxy:
        log = PostgresLog(proxy.postgres_url_of(postgres_url), longest_silence_s=1.0)
        provider = provider_for(log=log, admin_token=TOKEN, stale_for_s=2.0)
        with calling(fastapi_with(provider, "/x")) as client:
            at = position_of(provider)
            proxy.is_silent = True
            elsewhere.registry.reload_table("codes", set={"growth": {"code": "B"}})
            longest_s = 0.0
            while not provider.registry.is_out_of_date:
                for headers in ({}, {"Contract-At": at}, {"Contract-At": f"{at};n=e3"}):
                    begun_at = time.monotonic()
                    assert client.post("/x", json=WANTED, headers=headers).status_code == 422
                    longest_s = max(longest_s, time.monotonic() - begun_at)
            assert longest_s < 20  # 2 s are allowed; the machine may be busy
            assert_only_answers(client, at, "A")
            reload = {"table": "codes", "set": {"growth": {"code": "C"}}, "wait_s": 1}
            refused = client.post("/admin/reload-table", json=reload, headers=ADMIN)
            assert (refused.status_code, "hidden" in refused.text) == (503, False)
            proxy.is_silent = False
            wait_until(lambda: not provider.registry.is_cut_off)
            assert_vouches(client, position_of(elsewhere))
            report = client.post("/admin/reload-table", json=reload, headers=ADMIN).json()
            assert (report["changed"], report["workers"]) == (["growth"], {"live": 1, "behind": 0})
            elsewhere.registry.catch_up()
            assert elsewhere.registry.rows("codes") == {"growth": {"code": "C"}}
    elsewhere.close()


@pytest.mark.spec("7.16")
def test_a_reload_may_wait_until_all_workers_have_it(tmp_path):
    path = tmp_path / "log.db"
    lagging = LateLog(path)
    one, other = provider_for(log=path, admin_token=TOKEN), provider_for(log=lagging)
    rule = {"from": "codes", "to": "codes", "relation": "next", "via": "code"}
    with calling(fastapi_with(one, "/x"), headers=ADMIN) as client, calling(fastapi_with(other, "/x")):
        for number, (path, body) in enumerate(
            [
                ("reload-table", {"table": "codes", "set": {"growth": {"code": "B"}}}),
                ("reload-table", {"table": "codes", "set": {"growth": {"code": "B"}}}),  # nothing new
                ("reload-rules", {"add": [rule]}),
            ]
        ):
            report = client.post(f"/admin/{path}", json={**body, "wait_s": 20}).json()
            assert report["workers"] == {"live": 2, "behind": 0}
            assert other.registry.state.number == one.registry.state.number, number
        lagging.is_late = True
        body = {"table": "codes", "set": {"growth": {"code": "C"}}, "wait_s": 0.2}
        assert client.post("/admin/reload-table", json=body).json()["workers"] == {"live": 2, "behind": 1}
        lagging.is_late = False
        for wrong in (-1, 31, "5", None):
            refused = client.post("/admin/reload-table", json={**body, "wait_s": wrong})
            assert (refused.status_code, "wait_s" in refused.text) == (422, True)
        assert "workers" not in client.post("/admin/reload-rules", json={"remove": [rule]}).json()
    alone = provider_for(admin_token=TOKEN)
    with calling(fastapi_with(alone, "/x"), headers=ADMIN) as client:
        body = {"table": "codes", "rows": {}, "wait_s": 5}
        assert client.post("/admin/reload-table", json=body).json()["workers"] == {"live": 1, "behind": 0}


@pytest.mark.spec("7.16")
def test_reloads_that_wait_leave_threads_for_others(tmp_path):
    """Each holds one. A worker that has just been killed is waited for, for it may only be cut off."""
    provider = provider_for(log=tmp_path / "log.db", admin_token=TOKEN)
    provider.registry._log.note("killed", -1, 60)
    body = {"table": "codes", "set": {"growth": {"code": "B"}}}

    async def story(client):
        waiting = [
            asyncio.create_task(client.post("/admin/reload-table", json={**body, "wait_s": 2}))
            for _ in range(5)
        ]
        statuses = [(await answer).status_code for answer in asyncio.as_completed(waiting)]
        assert statuses == [503, 503, 503, 200, 200]

    async def told(address):
        async with httpx2.AsyncClient(base_url=address, headers=ADMIN, trust_env=False, timeout=60) as client:
            await story(client)

    with serving(fastapi_with(provider, "/x")) as address:
        asyncio.run(told(address))


@pytest.mark.spec("7.16")
def test_a_reload_whose_log_is_lost_while_it_waits_has_been_made(tmp_path):
    class Forgetful(SqliteLog):
        def workers(self):
            raise LogError("the disk is gone")

    provider = provider_for(log=Forgetful(tmp_path / "log.db"), admin_token=TOKEN)
    with calling(fastapi_with(provider, "/x"), headers=ADMIN) as client:
        body = {"table": "codes", "set": {"growth": {"code": "B"}}, "wait_s": 5}
        report = client.post("/admin/reload-table", json=body).json()
        assert (report["changed"], "workers" in report) == (["growth"], False)


@pytest.mark.spec("11.10", "11.16", "5.10")
def test_an_app_that_answers_violations_itself_names_the_position_beside_them():
    provider = provider_for()
    app = FastAPI()
    install(app, provider)

    @app.post("/x")
    def operation(wanted: dict):
        suggestions = [msgspec.to_builtins(one.suggestion) for one in provider.violations(wanted)]
        if not suggestions:
            return {"done": True}
        return JSONResponse({"recovery_feedback": {"suggestions": suggestions}}, 422)

    with calling(app) as client:
        here = {"Contract-At": known_position(client)}
        refused = client.post("/x", json=WANTED, headers=here)
        assert (refused.status_code, refused.json().get("at")) == (422, here["Contract-At"])
        assert "table_versions" in client.post("/x", json=WANTED).json()
        assert client.post("/x", json=WANTED | {"promo": "A"}, headers=here).json() == {"done": True}


def test_a_log_that_is_not_free_holds_nobody_up_but_those_who_need_it(tmp_path):
    path = tmp_path / "log.db"
    provider = provider_for(log=path)
    app = Starlette(
        routes=[
            Route("/health", lambda request: JSONResponse({"up": True})),
            Mount("/api", app=fastapi_with(provider, "/x")),  # which gets no start event
        ]
    )

    async def story():
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://shop") as client:
            begun_at = time.monotonic()
            first = asyncio.create_task(client.post("/api/x", json=WANTED | {"promo": "A"}))
            await asyncio.sleep(0.1)
            assert (await client.get("/health")).json() == {"up": True}
            waited_s = time.monotonic() - begun_at
            assert not first.done()
            answer = await first
            assert waited_s < (time.monotonic() - begun_at) / 2
            return answer

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        answer = asyncio.run(story())
        other.execute("rollback")
    assert (answer.status_code, answer.json()) == (200, {"done": True})
    provider.close()


@pytest.mark.parametrize("wrong", [0, -1, float("inf"), float("nan")])
def test_a_process_vouches_for_what_it_knows_for_some_time(wrong):
    with pytest.raises(BadSetting, match="stale_for_s is a number of seconds above 0"):
        Provider({}, stale_for_s=wrong)
