"""What a run of a tool is taken for: done once, the word of one server, and in doubt where it fails and does not say why."""

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
import pytest
import requests

from shelflife.client import Memory, Reply, Tools, contract_headers
from shelflife.client.asking import Question, driven_async
from shelflife.client.events import Applied, Ignored
from shelflife.contract.envelopes import META_KEY, Envelope
from tests.acme_world import GOVERNED
from tests.agents.billing import ENDPOINT, NEW_CODE, OPERATION, billing
from tests.client.tool_results import ROOT, Result, refusal

STALE = {"Contract-Precondition": "failed"}


@pytest.fixture
def server():
    with billing() as server:
        yield server


@contextmanager
def answering(answer):
    """A server on loopback that answers every request with what `answer` makes of its path: a status, headers and a body."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_POST(self):
            self.rfile.read(int(self.headers.get("content-length") or 0))
            status, headers, body = answer(self.path)
            self.send_response(status)
            for name, value in {"content-type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def learned(server, run):
    """A conditional tool that has a value of the server's, which has gone stale since."""
    tool = Memory().tool(server.address, operation=OPERATION, conditional=True)(run)
    with pytest.raises((httpx2.HTTPStatusError, requests.HTTPError)):
        tool(**GOVERNED)
    return tool


def test_a_tool_that_another_server_refuses_is_not_run_again(server):
    with answering(lambda path: (412, STALE, b"{}")) as elsewhere:

        def subscribe(**wanted):
            made = server.subscribe(**wanted)
            httpx2.post(f"{elsewhere}/notify", json=wanted).raise_for_status()
            return made

        tool = learned(server, subscribe)
        with pytest.raises(httpx2.HTTPStatusError) as caught:
            tool(**GOVERNED)
    assert str(caught.value.response.url) == f"{elsewhere}/notify"
    assert server.statuses == [422, 201]


def both_at_once():
    headers = contract_headers()
    return lambda: headers


@pytest.mark.parametrize("headers_of", [lambda: contract_headers, both_at_once], ids=["anew", "kept"])
def test_a_tool_that_has_made_another_request_with_the_precondition_is_not_run_again(server, headers_of):
    is_moving = False

    def subscribe(**wanted):
        headers = headers_of()
        made = server.http.post(ENDPOINT, json=wanted, headers=headers())
        made.raise_for_status()
        if is_moving:
            server.rotate()
        server.http.post(ENDPOINT, json=wanted, headers=headers()).raise_for_status()

    tool = learned(server, subscribe)
    is_moving = True
    with pytest.raises(httpx2.HTTPStatusError):
        tool(**GOVERNED)
    assert server.statuses == [422, 201, 412]
    server.seen.clear()
    is_moving = False
    tool(**GOVERNED)  # what the refusal has taught is used the next time
    assert [body["promo_code"] for body, _, _ in server.seen] == [NEW_CODE, NEW_CODE]


def test_a_tool_on_requests_is_run_again_too(server):
    def subscribe(**wanted):
        made = requests.post(server.address + ENDPOINT, json=wanted, headers=contract_headers(), timeout=60)
        made.raise_for_status()
        return made.json()

    tool = learned(server, subscribe)
    server.rotate()
    assert tool(**GOVERNED)["subscription"]["promo_code"] == NEW_CODE
    assert server.statuses == [422, 412, 201]


def later(subscribe):
    def generator(**wanted):
        yield subscribe(**wanted)

    return lambda **wanted: generator(**wanted)


def in_another_thread(subscribe):
    def submitted(**wanted):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(subscribe, **wanted).result()

    return submitted


@pytest.mark.parametrize(
    ("how", "is_told"), [(later, True), (in_another_thread, True), (lambda subscribe: subscribe, False)]
)
def test_a_conditional_tool_that_sends_no_precondition_is_told_of_once(server, how, is_told, caplog):
    memory = Memory()
    conditional = memory.tool(server.address, operation=OPERATION, conditional=True)
    with pytest.raises(httpx2.HTTPStatusError):
        conditional(server.subscribe)(**GOVERNED)
    tool = conditional(how(server.subscribe))
    for _ in range(2):
        made = tool(**GOVERNED)
        assert (next(made) if how is later else made)["subscription"]["promo_code"]
    assert caplog.text.count("was not seen to send contract_headers()") == is_told


@pytest.mark.parametrize(("sends", "is_told"), [(dict, True), (contract_headers, False)])
def test_a_conditional_tool_that_never_sends_the_headers_is_told_of_once(server, sends, is_told, caplog):
    """It never learns a position, and so has no precondition that it could have forgotten."""

    @Memory().tool(server.address, operation=OPERATION, conditional=True)
    def subscribe(**wanted):
        return server.http.post(ENDPOINT, json=wanted, headers=sends()).text

    for _ in range(3):
        subscribe(**GOVERNED)
    assert server.statuses == [422, 201, 201]
    assert caplog.text.count("was not seen to send contract_headers()") == is_told
    assert caplog.text.count("nobody has said that they still hold") == is_told


@pytest.mark.parametrize("is_text", [True, False])
def test_a_tool_that_hands_a_stale_refusal_on_without_its_verdict_learns_the_fresh_fix_from_it(
    server, is_text
):
    @Memory().tool(server.address, operation=OPERATION, conditional=True)
    def subscribe(**wanted):
        response = server.http.post(ENDPOINT, json=wanted, headers=contract_headers())
        return response.text if is_text else response.json()

    for _ in range(2):
        subscribe(**GOVERNED)
    server.rotate()
    for _ in range(2):
        subscribe(**GOVERNED)
    assert server.statuses == [422, 201, 412, 201]
    assert server.seen[-1][0]["promo_code"] == NEW_CODE


def test_a_tool_that_returns_a_generator_is_told_of_once(server, caplog):
    tool = Memory().tool(server.address, operation=OPERATION)(later(server.subscribe_in_words))
    for _ in range(2):
        with pytest.raises(RuntimeError):
            next(tool(**GOVERNED))
    assert caplog.text.count("returns a generator, which makes its request when the memory has already") == 1


def test_a_verdict_that_came_without_its_request_does_not_run_a_tool_again(server):
    """Anybody can put it into metadata that a tool hands on."""
    told = Result([], True, {META_KEY: {"status": 412, "body": {}, "headers": STALE}})
    ran = []

    def subscribe(**wanted):
        if not ran:
            ran.append(1)
            return server.subscribe(**wanted)
        server.subscribe(**wanted)
        return told

    tool = learned(server, subscribe)
    assert tool(**GOVERNED) is told
    assert server.statuses == [422, 201]


@pytest.mark.parametrize("is_name", [False, True])
def test_what_another_origin_answers_after_a_redirect_teaches_nothing(is_name, caplog):
    evil = json.dumps(refusal("EVIL")).encode()
    with (
        answering(lambda path: (422, {}, evil)) as other,
        answering(lambda path: (307, {"location": f"{other}/x"}, b"")) as own,
    ):
        memory = Memory()
        root = ROOT if is_name else own

        @memory.tool(root)
        def subscribe(plan, promo_code=None):
            return httpx2.post(f"{own}/subscriptions", json={"plan": plan}, follow_redirects=True)

        assert subscribe("growth").status_code == 422
    assert list(memory.store.entries()) == []
    if not is_name:
        assert f"what {other} says is not heeded: {own} is another server" in caplog.text


def test_a_name_stands_for_the_origin_that_first_speaks_the_contract_under_it(caplog):
    first, second = (json.dumps(refusal(code)).encode() for code in ("A", "B"))
    with answering(lambda path: (422, {}, first)) as one, answering(lambda path: (422, {}, second)) as other:
        memory = Memory()

        @memory.tool(ROOT)
        def subscribe(plan, address, promo_code=None):
            return httpx2.post(address, json={"plan": plan})

        for address in (one, other):
            subscribe("growth", address)
    assert [entry.parameters for entry in memory.store.entries()] == [{"promo_code": "A"}]
    assert f"what {other} says is not heeded: {ROOT} is {one}" in caplog.text


class Shop:
    """A tool whose outcomes are what the test says, with a right code that changes."""

    def __init__(self, **settings):
        self.code, self.version = "S1", "v1"
        self.asked, self.events = [], []
        self.outcome = lambda: json.dumps(refusal(self.code, self.version))
        self.memory = Memory(on_event=self.events.append, ask=self.ask)
        self.tool = self.memory.tool(ROOT)(self.subscribe)

    def ask(self, question):
        self.asked.append(question.url.removeprefix(ROOT))

    def subscribe(self, plan, promo_code=None):
        return f"made with {promo_code}" if promo_code == self.code else self.outcome()

    def rotated(self, outcome):
        """The code has changed, and refusals look so from now on."""
        self.tool("growth")
        assert self.tool("growth") == "made with S1"
        self.code, self.version, self.outcome = "S2", "v2", outcome
        self.events.clear()


def raising(text):
    def outcome():
        raise RuntimeError(text)

    return outcome


CUT = json.dumps(refusal("S2", "v2"))[:300]
TRAILED = Envelope(422, refusal("S2", "v2")).trailing("No.")


@pytest.mark.parametrize(
    "outcome",
    [
        lambda: CUT,
        raising("no"),
        raising(TRAILED[:200]),
        lambda: Result([], True),
        lambda: Result([], True, {META_KEY: "x"}),
        lambda: Result([], True, {META_KEY: {"status": "422"}}),
        lambda: Result([], True, {META_KEY: {"status": 422, "body": {"note": "\ud800"}}}),
        lambda: Result([], True, {META_KEY: {"status": 422, "headers": []}}),
        lambda: httpx2.Response(422, text="no"),
    ],
    ids=["cut", "raised", "trailer", "error", "text", "status", "surrogate", "headers", "response"],
)
def test_a_failure_that_does_not_say_why_puts_what_was_used_in_doubt_and_the_server_is_asked(outcome):
    shop = Shop()
    shop.rotated(outcome)
    with suppress(RuntimeError):
        assert shop.tool("growth", promo_code="S2") != "made with S2"
    assert [type(event) for event in shop.events] == [Applied, Ignored]
    assert shop.asked == ["/contract/state"]
    assert [shop.tool("growth", promo_code="S2") for _ in range(3)] == ["made with S2"] * 3


def test_a_failure_of_a_call_without_remembered_values_puts_nothing_in_doubt():
    shop = Shop()
    shop.rotated(raising("no"))
    with pytest.raises(RuntimeError):
        shop.tool("basic")
    assert (shop.events, shop.asked) == ([], [])


MET = {"Contract-Precondition": "met"}


@pytest.mark.parametrize(("status", "headers"), [(401, {}), (429, {}), (503, {}), (409, MET)])
def test_a_response_that_says_itself_what_it_is_about_puts_nothing_in_doubt(status, headers):
    shop = Shop()
    shop.rotated(lambda: httpx2.Response(status, headers=headers))
    shop.tool("growth")
    assert [type(event) for event in shop.events] == [Applied]
    assert shop.asked == []


def test_between_two_halves_a_failure_that_does_not_say_why_is_one_too():
    shop = Shop()
    shop.rotated(raising("no"))
    tools = Tools(shop.memory, ROOT)

    async def used():
        use = await tools.begin("subscribe", {"plan": "growth"})
        await tools.end(use, "no", is_error=True)
        return use.arguments, (await tools.begin("subscribe", {"plan": "growth"})).arguments

    assert asyncio.run(used()) == ({"plan": "growth", "promo_code": "S1"}, {"plan": "growth"})


def test_an_end_that_is_cancelled_while_the_server_is_asked_withholds_nothing_for_long():
    memory, asking = Memory(), asyncio.Event()

    async def ask(question):
        asking.set()
        await asyncio.Event().wait()

    async def used():
        tools = Tools(memory, ROOT, ask=ask)
        use = await tools.begin("subscribe", {"plan": "growth"})
        await tools.end(use, refusal())
        held = await tools.begin("subscribe", {"plan": "growth"})
        ending = asyncio.create_task(tools.end(held, refusal("S2", "v2")))
        await asking.wait()
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        nobody = Tools(memory, ROOT)
        for _ in range(2):  # the first settles the doubt
            use = await nobody.begin("subscribe", {"plan": "growth"})
            await nobody.end(use, refusal("S3", "v3"))
        assert await nobody.end(held, "once more") == "once more"
        return (await nobody.begin("subscribe", {"plan": "growth"})).arguments

    assert asyncio.run(used()) == {"plan": "growth", "promo_code": "S3"}


def test_an_answer_that_would_have_to_be_awaited_does_not_take_the_place_of_a_result(caplog):
    async def ask(question):
        return None

    memory, version = Memory(), ["v1"]
    tool = memory.tool(ROOT, ask=lambda question: ask(question))(lambda plan: refusal("S", version[0]))
    tool("growth")
    version[0] = "v2"
    assert tool("growth") == refusal("S", "v2")
    assert "what answers is async" in caplog.text


def test_each_question_of_a_step_has_what_is_left_of_its_time(monkeypatch):
    monkeypatch.setattr("shelflife.client.asking._LONGEST_ASKING_S", 2.0)
    left = []

    def steps():
        for _ in range(4):
            yield Question("http://x")

    async def ask(question):
        left.append(question.within_s)
        await asyncio.sleep(0 if len(left) == 1 else 60)
        return Reply(200, b"")

    begun_at = time.monotonic()
    asyncio.run(driven_async(steps(), ask))
    assert time.monotonic() - begun_at < 50
    assert len(left) == 2
    assert 2.0 >= left[0] > left[1] > 0
