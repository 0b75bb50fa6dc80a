"""Positions that never were: they cost nobody anything, neither a server nor a memory."""

import asyncio
import contextlib
import json
import logging
import socket
import time
from urllib.parse import quote, urlsplit

import httpx2
import pytest

from shelflife.client.events import Evicted
from shelflife.contract.positions import AT_HEADER, Position
from shelflife.contract.preconditions import PRECONDITION_HEADER, Precondition
from shelflife.testing import serving
from tests.integrations.event_streams import LISTENING, events
from tests.integrations.lanes import NONE, Lanes, Said, played

LONGEST_S = 20.0
"""So long at most a server may take for anything here; it takes milliseconds."""

NOT_UNDERSTOOD = {
    "a number of 19 digits": b"Abcdef%d" % 10**18,
    "a number of 16 digits": b"Abcdef%d" % 10**15,
    "a number of 401 digits": b"Abcdef" + b"1" + b"0" * 400,
    "a negative number": b"Abcdef-1",
    "a signed number": b"Abcdef+1",
    "a leading zero": b"Abcdef01",
    "a fraction": b"Abcdef1.5",
    "no number": b"Abcdef",
    "a check that is too short": b"Abcde7",
    "a check that is too long": b"Abcdefg7",
    "a check of 21 characters": b"Abcdefghijklmnopqrstu7",
    "a check that begins with a digit": b"1bcdef7",
    "a check that is not ASCII": "Äbcdef7".encode(),
    "digits that are not ASCII": "Abcdef\uff17".encode(),
    "bytes that are no UTF-8": b"Abcdef7\xff\xfe",
    "nothing": b"",
    "a mark that is too long": b"Abcdef7:" + b"m" * 17,
    "an empty mark": b"Abcdef7:",
    "a nonce that is too long": b"Abcdef7;n=" + b"n" * 33,
    "an empty nonce": b"Abcdef7;n=",
    "two nonces": b"Abcdef7;n=a;n=b",
    "two positions": b"Abcdef7, Abcdef7",
    "30,000 characters": b"A" * 30_000,
    "30,000 digits": b"Abcdef" + b"9" * 30_000,
    "30,000 separators": b";n=:" * 7_500,
}
BEYOND = "Zzzzzz999999999999999"
"""The highest number that can be named."""


@pytest.fixture
def lanes(tmp_path):
    with Lanes(tmp_path) as lanes:
        yield lanes


class Raw:
    """A client that sends whatever bytes it is given, each time over a connection of its own."""

    def __init__(self, address):
        where = urlsplit(address)
        self._address = where.hostname, where.port

    def post(self, *headers, body=b'{"plan": "a"}', path="/s"):
        """The status and the body of the answer."""
        sent = b"Content-Type: application/json", b"Content-Length: %d" % len(body)
        return self._answered(f"POST {path} HTTP/1.1".encode(), *sent, *headers, body=body)

    def get(self, path):
        return self._answered(f"GET {path} HTTP/1.1".encode())

    def _answered(self, *head, body=b""):
        lines = [*head, b"Host: shop", b"Connection: close"]
        began_at = time.monotonic()
        answer = bytearray()
        with (
            socket.create_connection(self._address, timeout=60) as connection,
            contextlib.suppress(ConnectionError),  # whoever is refused before all is sent
        ):
            connection.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + body)
            while chunk := connection.recv(65_536):
                answer += chunk
        assert time.monotonic() - began_at < LONGEST_S
        head, _, content = bytes(answer).partition(b"\r\n\r\n")
        return int(head.split()[1]) if head else 0, content


@pytest.fixture(params=["h11", "httptools"])
def shop(request, lanes, caplog):
    """A worker on loopback, and a raw client of it. It must have nothing to say in its log."""
    caplog.set_level(logging.INFO)
    worker = lanes.worker()
    with serving(worker.app, http=request.param, lifespan="off", log_config=None) as address:
        yield worker, Raw(address), address
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


@pytest.mark.spec("11.3")
def test_a_position_that_cannot_be_understood_is_as_though_it_were_not_there(shop, caplog):
    worker, raw, _ = shop
    plain = raw.post()
    assert (plain[0], "table_versions" in json.loads(plain[1])) == (422, True)
    looked_count = worker.log.read_count
    for name, value in NOT_UNDERSTOOD.items():
        assert raw.post(b"Contract-At: " + value) == plain, name
    twice = b"Contract-At: %s" % worker.position.encode()
    assert raw.post(twice, twice) == plain
    assert raw.post(twice, b"contract-at: *") == plain
    assert worker.log.read_count == looked_count
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_headers_without_end_are_refused_or_passed_over(shop):
    worker, raw, _ = shop
    plain, looked_count = raw.post(), worker.log.read_count
    for length in (100_000, 1_000_000):
        status, body = raw.post(b"Contract-At: " + b"A" * length)
        assert status in (0, 400, 431) or (status, body) == plain
    many = [b"Contract-At: Abcdef%d" % number for number in range(50)]
    assert raw.post(*many) == plain
    assert raw.post() == plain
    assert worker.log.read_count == looked_count


@pytest.mark.spec("11.4", "11.9")
def test_the_highest_number_costs_one_look_at_the_log(shop):
    worker, raw, _ = shop
    position, looked_count = worker.position, worker.log.read_count
    for count in range(1, 6):
        status, body = raw.post(f"Contract-At: {BEYOND}:m1".encode())
        at = {"to": position, "from": f"{BEYOND}:m1", "unknown": "ahead"}
        assert (status, json.loads(body)["at"]) == (422, at)
        assert worker.log.read_count == looked_count + count


@pytest.mark.spec("9.10")
def test_questions_about_positions_that_never_were_are_refused_or_answered(shop):
    worker, raw, _ = shop
    fixes = json.dumps({"operation": "POST /s", "request": {"plan": "a"}}).encode()
    plain = raw.post(body=fixes, path="/contract/fixes")
    assert plain[0] == 200
    for name, value in NOT_UNDERSTOOD.items():
        assert raw.get(f"/contract/changes?from={quote(value)}")[0] == 400, name
        given = raw.post(b"Contract-At: " + value, body=fixes, path="/contract/fixes")
        assert given == plain, name
    status, answer = raw.get(f"/contract/changes?from={BEYOND}&nonce=e3")
    told = {"to": worker.position, "from": BEYOND, "unknown": "ahead", "nonce": "e3"}
    assert (status, json.loads(answer)) == (200, told)


def test_a_feed_from_a_position_that_never_was_begins_where_the_log_is(shop):
    worker, _, address = shop
    told = {"to": worker.position}
    with httpx2.Client(base_url=address, trust_env=False, timeout=60) as http:
        for name, value in {**NOT_UNDERSTOOD, "the highest number": BEYOND.encode()}.items():
            asked = {**LISTENING, "Last-Event-ID": value}
            with http.stream("GET", "/contract/changes", headers=asked) as feed:
                event = next(events(feed))
            is_named = value == BEYOND.encode()
            expected = told | ({"from": BEYOND, "unknown": "ahead"} if is_named else {})
            assert (event["event"], event["data"]) == ("resync", expected), name


def test_a_precondition_at_a_position_that_never_was_has_failed_or_is_refused(shop):
    worker, raw, _ = shop
    position = Position.from_text(worker.position)
    never = [BEYOND, str(position._replace(check="Zzzzzz")), str(position._replace(number=0))]
    for at in never:
        header = f"{PRECONDITION_HEADER}: {Precondition(at=at, was={}).header}"
        status, body = raw.post(header.encode(), body=b'{"plan": "a", "promo": "A0"}')
        assert (status, "recovery_feedback" in json.loads(body)) == (412, True)
    for name, value in NOT_UNDERSTOOD.items():
        status, _ = raw.post(f"{PRECONDITION_HEADER}: ".encode() + value, body=b'{"plan": "a"}')
        assert status == 400, name


TOLD = {
    **{name: value.decode("latin-1") for name, value in NOT_UNDERSTOOD.items()},
    "the highest number": BEYOND,
    "another check": "Zzzzzz1",
    "no text": 10**18,
    "a list": ["Abcdef1"],
    "null": None,
}


def reply_with(told, form):
    """A success that tells of a position, at another one than was named."""
    headers, body = [("content-type", "application/json")], {"success": True}
    if form == "header":
        headers.append((AT_HEADER, str(told).encode("latin-1")))
    elif form == "brief":
        body["at"] = told
    else:
        moved = {"tables": {"codes": {"changed": ["a", "b"]}}}
        body["at"] = {"to": told, "from": "Zzzzzz5:m9"}
        body["at"] |= {"moved": moved} if form == "moved" else {"unknown": "foreign"}
    return Said(200, headers, json.dumps(body).encode())


@pytest.mark.spec("11.5", "11.25")
@pytest.mark.parametrize("form", ["brief", "moved", "lost", "header"])
@played
async def test_a_memory_that_is_told_of_a_position_that_never_was_forgets_nothing(lanes, form):
    """In a body it is the API's own. One that might be is asked about, once."""
    buyer = lanes.buyer(lanes.worker())
    await buyer.learns("a", "b")
    known = buyer.position
    for name, told in TOLD.items():
        first = len(buyer.wire.parcels)
        await buyer.gets_again(reply_with(told, form), NONE)
        asked = [parcel.path for parcel in buyer.wire.parcels[first:] if parcel.is_question]
        is_position = isinstance(told, str) and Position.from_text(told) is not None
        assert asked == (["/contract/changes"] if is_position else []), name
        if form == "header" and not is_position:
            await buyer.calls(NONE)  # what cannot be read may be anything, and is settled by what can
        assert (buyer.recalls("a"), buyer.recalls("b"), buyer.position) == (["A0"], ["B0"], known), name
    assert (buyer.of(Evicted), buyer.losses) == ([], [])


async def served(worker, at=None, *, path="/s", body=None, **headers):
    """What a worker answers; without a body that is to a question."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    headers |= {} if at is None else {AT_HEADER: at}
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(worker.app), base_url="http://shop"
    ) as client:
        if body is None:
            return await client.get(path, headers=headers)
        return await client.post(path, json=body, headers=headers)


@pytest.mark.spec("11.4")
@played
async def test_a_worker_looks_at_the_log_once_for_whoever_is_beyond_it_or_asks(lanes):
    worker, wanted = lanes.worker(), {"plan": "a"}
    here = Position.from_text(worker.position)
    waited_count = worker.log.wait_count

    async def look_count(*arguments, **options):
        before = worker.log.read_count
        response = await served(worker, *arguments, **options)
        assert response.status_code in (200, 412, 422)
        return worker.log.read_count - before

    for at in (None, "*", str(here), f"{here}:m1", "Zzzzzz0", f"Zzzzzz{here.number}"):
        assert await look_count(at, body=wanted) == 0, at
    for at in (f"Zzzzzz{here.number + 1}", BEYOND, "*;n=e3", f"{here};n=e3", f"{BEYOND}:m1;n=e3"):
        assert await look_count(at, body=wanted) == 1, at
    beyond = Precondition(at=BEYOND, was={}).header
    assert await look_count(body=wanted, **{PRECONDITION_HEADER: beyond}) == 1
    assert await look_count(BEYOND, body=wanted, **{PRECONDITION_HEADER: beyond}) == 1
    assert await look_count(path=f"/contract/changes?from={here}&nonce=e3") == 1
    assert worker.log.wait_count == waited_count  # whoever follows the log has begun to wait, and nobody else


@pytest.mark.spec("11.4")
@played
async def test_a_worker_that_is_asked_from_where_it_is_not_yet_goes_there_at_once(lanes):
    lagging, current = lanes.worker(), lanes.worker()
    current.sets(a="A1")
    current.sets(a="A2")
    before = lagging.log.read_count
    response = await served(lagging, current.position, body={"plan": "a"})
    [fix] = response.json()["recovery_feedback"]["suggestions"]
    assert (response.json()["at"], fix["parameters"]) == (current.position, {"promo": "A2"})
    assert lagging.log.read_count == before + 1
    assert (await served(lagging, current.position, body={"plan": "a", "promo": "A2"})).status_code == 200
    assert lagging.log.read_count == before + 1


async def all_the_while(worker, wanted, plain):
    """What those are answered who are beyond a worker whose log is silent. Meanwhile nobody else waits."""
    beyond = [asyncio.create_task(served(worker, BEYOND, body=wanted)) for _ in range(12)]
    meanwhile = [await served(worker, at, body=wanted) for at in (None, worker.position, "Zzzzzz1")]
    assert [response.status_code for response in meanwhile] == [422] * 3
    assert meanwhile[0].content == plain.content
    assert not any(task.done() for task in beyond)
    return await asyncio.gather(*beyond)


@pytest.mark.spec("11.13")
@played
async def test_a_log_that_does_not_answer_is_waited_for_in_bounds_and_by_nobody_else(lanes):
    worker, wanted = lanes.worker(), {"plan": "a"}
    plain = await served(worker, body=wanted)
    began_at = time.monotonic()
    with worker.log.not_answering():
        silent = await all_the_while(worker, wanted, plain)
    assert time.monotonic() - began_at < LONGEST_S  # not one after another, for 2 s each
    for response in silent:
        told = response.json()
        assert response.status_code == 422
        assert not {"at", "table_versions"} & told.keys()
        assert not {name for name in response.headers if name.startswith("contract-")}
    again = await served(worker, BEYOND, body=wanted)
    assert again.json()["at"] == {"to": worker.position, "from": BEYOND, "unknown": "ahead"}
