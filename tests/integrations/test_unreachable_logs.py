"""What a process does that cannot read its log any more, and what it tells of where it is."""

import asyncio
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

from shelflife.integrations.fastapi import install
from shelflife.server import LogError, Provider, SqliteLog
from tests.calling import calling
from tests.integrations.checked import WANTED, fastapi_with, provider_for
from tests.integrations.event_streams import heard
from tests.integrations.positions import known_position, position_of


class FragileLog(SqliteLog):
    """A log that can be out of reach."""

    is_lost = False

    def read(self, number, digest):
        if self.is_lost:
            raise LogError("the disk is gone")
        return super().read(number, digest)


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
        await asyncio.wait_for(streaming, 10)
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
            first = asyncio.create_task(client.post("/api/x", json=WANTED | {"promo": "A"}))
            await asyncio.sleep(0.1)
            begun_at = time.monotonic()
            assert (await client.get("/health")).json() == {"up": True}
            waited_s = time.monotonic() - begun_at
            assert not first.done()
            return waited_s, await first

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        waited_s, answer = asyncio.run(story())
        other.execute("rollback")
    assert waited_s < 1
    assert (answer.status_code, answer.json()) == (200, {"done": True})
    provider.close()
