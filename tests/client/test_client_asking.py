"""Questions of a memory by the client that a program has: of each library, with its login, and to nobody else."""

import asyncio
import inspect
from contextlib import asynccontextmanager

import aiohttp
import httpx
import httpx2
import pytest
import requests

from shelflife.client import Memory, Question, Tools
from shelflife.client.client_asking import ask_of
from tests.client.test_http_asking import OK, answering

LOGIN = {"Authorization": "Bearer secret"}
CLIENTS = [
    httpx2.Client,
    httpx2.AsyncClient,
    httpx.Client,
    httpx.AsyncClient,
    requests.Session,
    aiohttp.ClientSession,
]
FOUND = OK + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}"


@asynccontextmanager
async def made(kind, **options):
    client = kind(**options)
    client.headers.update(LOGIN)
    yield client
    closed = client.aclose() if hasattr(client, "aclose") else client.close()
    if inspect.isawaitable(closed):
        await closed


def asked(kind, question, **options):
    async def story():
        async with made(kind, **options) as client:
            reply = ask_of(client)(question)
            return await reply if inspect.isawaitable(reply) else reply

    return asyncio.run(story())


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_client_of_any_library_asks_with_its_login_and_posts_json(kind):
    with answering(FOUND) as (address, told):
        reply = asked(kind, Question(f"{address}/contract/fixes", b'{"a": 1}', {"Contract-At": "nonce"}))
    head = told[0].decode().lower()
    assert (reply.status, reply.body) == (200, b"{}")
    assert head.startswith("post /contract/fixes http/1.1\r\n")
    for line in ("authorization: bearer secret", "content-type: application/json", "contract-at: nonce"):
        assert f"\r\n{line}\r\n" in head


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_client_that_follows_redirects_does_not_follow_one_with_a_question(kind):
    options = {"follow_redirects": True} if kind.__module__.startswith("httpx") else {}
    with answering(FOUND) as (elsewhere, told):
        moved = (
            f"HTTP/1.1 302 Found\r\nLocation: {elsewhere}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        )
        with answering(moved.encode()) as (address, _):
            assert asked(kind, Question(f"{address}/contract"), **options).status == 302
    assert told == []


@pytest.mark.parametrize("kind", [one for one in CLIENTS if one is not requests.Session])
def test_a_client_of_one_server_takes_its_login_to_no_other(kind):
    with answering(FOUND) as (address, told):
        question = Question(f"{address}/contract")
        assert asked(kind, question, base_url="http://billing.example/v1/") is None
        assert told == []
        assert asked(kind, question, base_url=f"{address}/v1/").status == 200


@pytest.mark.parametrize(
    ("given", "told"),
    [(httpx2.Client, "the class Client"), ("http://h", "str"), (3, "int"), (Memory(), "Memory")],
)
def test_what_cannot_answer_is_told_when_it_is_handed_over(given, told):
    sentence = (
        "ask takes a function that answers a question, or a client of httpx2, httpx, requests or aiohttp"
    )
    for make in (lambda: Memory(ask=given), lambda: Tools(Memory(), "http://h", ask=given)):
        with pytest.raises(TypeError) as raised:
            make()
        assert str(raised.value) == f"{sentence}, and not {told}"


def test_a_function_that_answers_stays_what_it_is():
    def ask(question):
        return None

    assert Memory(ask=ask).ask is ask
