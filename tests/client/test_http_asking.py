"""How an API's address is asked without anybody's client: straight, within a time, and nowhere else. The servers are real."""

import asyncio
import json
import socket
import threading
import time
from contextlib import contextmanager

import httpx2
import pytest

from shelflife.client import Memory, Question
from shelflife.client.http_asking import ask_http, ask_http_async
from tests.acme_world import GOVERNED
from tests.agents.billing import OPERATION, billing


@contextmanager
def answering(*said):
    """The address of a server that says these bytes to whoever comes, and is silent then. Also what it was told."""
    told = []

    def serve():
        while True:
            try:
                line, _ = listening.accept()
            except OSError:
                return
            with line:
                told.append(line.recv(65536))
                for part in said:
                    line.sendall(part)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", told
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            serving.join()


OK = b"HTTP/1.1 200 OK\r\n"


def test_a_question_is_put_to_the_server_and_posted_as_json_when_it_has_a_body():
    question = json.dumps({"operation": OPERATION, "request": GOVERNED}).encode()
    with billing() as server:
        got = ask_http(Question(f"{server.address}/contract/state"))
        posted = ask_http(Question(f"{server.address}/contract/fixes", question))
        assert server.asked == ["/contract/state", "/contract/fixes"]
    assert (got.status, posted.status) == (200, 200)


def test_the_headers_of_a_question_are_sent_and_no_others_that_tell_who_asks():
    with answering(OK + b"Content-Length: 0\r\n\r\n") as (address, told):
        ask_http(Question(f"{address}/contract/changes?from=1", headers={"Contract-At": "nonce"}))
    lines = told[0].decode().split("\r\n")
    assert lines[0] == "GET /contract/changes?from=1 HTTP/1.1"
    names = {line.partition(":")[0].lower() for line in lines[1:] if line}
    assert names == {"host", "accept", "accept-encoding", "contract-at"}


def test_a_redirect_is_an_answer_like_any_other_and_is_not_followed():
    with answering(OK + b"Content-Length: 0\r\n\r\n") as (elsewhere, told):
        moved = f"HTTP/1.1 302 Found\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\n\r\n"
        with answering(moved.encode()) as (address, _):
            assert ask_http(Question(f"{address}/contract")).status == 302
        assert told == []


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch):
    with answering(OK + b"Content-Length: 5\r\n\r\nproxy") as (proxy, told):
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        with answering(OK + b"Content-Length: 6\r\n\r\nserver") as (address, _):
            assert ask_http(Question(address)).body == b"server"
        assert told == []


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"no HTTP at all\r\n\r\n",
        OK + b"Content-Length: 9\r\n\r\n{}",
        OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\n{}",
        OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        OK + b"\r\n" + b" " * (8 * 1024 * 1024 + 1),
    ],
    ids=["nothing", "no HTTP", "cut off", "a chunk cut off", "compressed", "too much"],
)
def test_what_is_no_whole_answer_is_none(said):
    with answering(said) as (address, _):
        assert ask_http(Question(address)) is None


def test_a_server_that_cannot_be_reached_does_not_answer():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert ask_http(Question(f"http://127.0.0.1:{port}/contract")) is None


def test_a_server_that_sends_byte_by_byte_is_given_up_in_time():
    is_over = threading.Event()

    def slowly():
        yield OK
        while not is_over.wait(0.02):
            yield b"X: y\r\n"

    with answering_slowly(slowly) as address:
        begun_at = time.monotonic()
        assert ask_http(Question(address, within_s=0.2)) is None
        is_over.set()
        assert time.monotonic() - begun_at < 5


@contextmanager
def answering_slowly(parts):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            line, _ = listening.accept()
            with line:
                try:
                    for part in parts():
                        line.sendall(part)
                except OSError:
                    pass  # whoever asked has hung up

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        serving.join()


def test_an_event_loop_goes_on_while_a_server_is_asked():
    has_gone_on = threading.Event()

    def once_it_has():
        yield OK + b"Content-Length: 2\r\n\r\n"
        assert has_gone_on.wait(60)
        yield b"{}"

    async def asked(address):
        asking = asyncio.create_task(ask_http_async(Question(address)))
        await asyncio.sleep(0)
        has_gone_on.set()
        return await asking

    with answering_slowly(once_it_has) as address:
        assert asyncio.run(asked(address)).body == b"{}"


def test_without_asyncio_it_is_asked_all_the_same():
    with answering(OK + b"Content-Length: 2\r\n\r\n{}") as (address, _):
        with pytest.raises(StopIteration) as end:
            ask_http_async(Question(address)).send(None)
        assert end.value.value.body == b"{}"


def learned(server, subscribe):
    """Learn the codes of two plans, and of a change to that of one."""
    other = {**GOVERNED, "plan": "plan_other"}
    registry = server.provider.registry
    rows = registry.rows("active_csm_codes")["plan_partner_growth"]
    registry.reload_table("active_csm_codes", set={"plan_other": dict(rows)})
    registry.reload_table("required_promo_policy", set={"plan_other": {"code_of": "plan_other"}})
    for wanted in (GOVERNED, other):
        with pytest.raises(httpx2.HTTPStatusError):
            subscribe(**wanted)
    server.rotate()
    subscribe(**other)


def test_tools_at_an_address_lose_only_what_a_change_touches():
    memory = Memory()
    with billing() as server:
        learned(server, memory.tool(server.address)(server.subscribe))
    assert memory.statistics.evictions == {"row_changed": 1}


def test_tools_behind_a_name_lose_all_that_rests_on_the_table():
    memory = Memory()
    with billing() as server:
        learned(server, memory.tool("tool://billing")(server.subscribe))
        assert server.asked == []
    assert memory.statistics.evictions == {"table_moved": 2}


def test_somebody_who_answers_is_asked_instead_of_the_address():
    asked = []
    memory = Memory(ask=asked.append)
    with billing() as server:
        learned(server, memory.tool(server.address)(server.subscribe))
        assert server.asked == []
    assert asked
