"""Where a contract lives: replies tell, anybody can write a header, and gateways are set right again."""

import json

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.client import Exchange, Guard, Memory, Reply
from shelflife.client.events import Distrusted, Ignored, Stored
from shelflife.contract.positions import ROOT_HEADER
from shelflife.integrations.ed25519 import SigningKey, trust
from shelflife.integrations.httpx2 import MemoryTransport
from shelflife.server import Signing
from shelflife.testing import serving
from tests.acme_world import GOVERNED, rotate
from tests.client.by_hand import FIX

ORIGIN, PATH = "https://api.example:443", "/v1/x"
URL = ORIGIN + PATH
A_CONTRACT = Reply(200, b'{"to": "Abcdef1"}')


class Side:
    """A memory, and whoever answers its questions."""

    def __init__(self, answer=None):
        self.answer = answer
        self.asked = []
        self.memory = Memory(ask=self.ask, clock=lambda: self.now)
        self.now = 0.0

    def ask(self, question):
        self.asked.append(question.url)
        return self.answer

    def see(self, told_root=None, path=PATH):
        """A reply that answers what its request has asked, and tells where its contract lives."""
        root = self.memory.root_of(ORIGIN + path)
        named = self.memory.contract_at(root)
        at = {"to": "Abcdef1", "nonce": named.partition("n=")[2]}
        headers = {"content-type": "application/json"} | ({ROOT_HEADER: told_root} if told_root else {})
        body = json.dumps({"at": at, "recovery_feedback": {"suggestions": [FIX]}}).encode()
        return self.memory.observe(Exchange(root, "POST /x", {}, Reply(422, body, headers), named, path=path))

    def root(self, path=PATH):
        return self.memory.root_of(ORIGIN + path).removeprefix(ORIGIN)


def test_a_root_is_what_a_reply_has_told():
    side = Side()
    assert side.root() == ""
    side.see("/v1")
    assert (side.root(), side.root("/v1"), side.root("/v12/x"), side.asked) == ("/v1", "/v1", "", [])
    assert len(side.memory.recall(f"{ORIGIN}/v1", "POST /x", {})) == 1


@pytest.mark.spec("11.33")
@pytest.mark.parametrize(
    "answer",
    [Reply(404, b"{}"), Reply(400, b""), Reply(405, b""), Reply(200, b"<html>"), Reply(200, b'{"to": "me"}')],
)
def test_a_root_at_which_no_contract_answers_is_forgotten_once_a_reply_speaks_for_another_and_that_is_told(
    answer,
):
    side = Side(answer)
    side.see("/v1")
    told = side.see()
    assert side.asked[-1] == f"{ORIGIN}/v1/contract/changes?from=*"
    assert [(event.root, "none answers" in event.why) for event in told if isinstance(event, Ignored)] == [
        (f"{ORIGIN}/v1", True)
    ]
    assert side.root() == ""
    side.asked.clear()
    assert not any(isinstance(event, Ignored) for event in side.see())
    assert side.asked == []
    assert len(side.memory.recall(ORIGIN, "POST /x", {})) == 1


@pytest.mark.spec("11.33")
@pytest.mark.parametrize("answer", [A_CONTRACT, Reply(401, b""), Reply(503, b""), None])
def test_a_root_stays_at_which_a_contract_answers_or_nobody_can_say(answer):
    side = Side(answer)
    side.see("/v1")
    told = side.see()
    assert side.asked[-1].startswith(f"{ORIGIN}/v1/contract/changes")
    assert not any(isinstance(event, Ignored) for event in told)
    assert side.root() == "/v1"


def test_a_server_that_is_silent_is_not_asked_about_a_root_with_every_reply():
    side = Side()
    side.see("/v1")
    for _ in range(3):
        side.see()
    assert side.asked.count(f"{ORIGIN}/v1/contract/changes?from=*") == 1
    side.now += 2
    side.see()
    assert side.asked.count(f"{ORIGIN}/v1/contract/changes?from=*") == 2


@pytest.mark.spec("11.33")
def test_a_root_that_comes_back_is_known_again():
    side = Side(Reply(404, b""))
    side.see("/v1")
    side.see()
    side.see("/v1")
    assert side.root() == "/v1"


@pytest.mark.spec("11.33")
def test_a_reply_that_names_another_host_leads_nowhere_else():
    side = Side(A_CONTRACT)
    side.see("https://elsewhere.example/v1")
    assert side.root() == "/v1"
    side.see()
    side.memory.refresh(f"{ORIGIN}/v1")
    assert side.asked
    assert all(url.startswith(f"{ORIGIN}/") for url in side.asked)


@pytest.mark.spec("11.33")
@pytest.mark.parametrize("told_root", ["/v2", "/v1/x/y", "v1", "http://[", "/v1/../.."])
def test_a_reply_that_speaks_for_what_its_request_was_not_below_is_ignored(told_root):
    side = Side()
    told = side.see(told_root)
    assert [type(event) for event in told] == [Ignored]
    assert (side.root(), side.memory.store.known(ORIGIN).knowledge.roots) == ("", ())


def test_there_are_never_too_many_roots_and_those_that_were_told_last_stay():
    side = Side()
    for number in range(300):
        side.see(f"/{number}", f"/{number}/x")
    assert len(side.memory.store.known(ORIGIN).knowledge.roots) == 256
    assert [side.root(f"/{number}/x") for number in (0, 299)] == ["", "/299"]


def test_with_all_of_an_origin_goes_where_its_contracts_live():
    side = Side()
    side.see("/v1")
    side.memory.forget(ORIGIN)
    assert side.root() == ""


class Gateway:
    """In front of an app: writes into a response where the contract lives, as long as it is mistaken."""

    def __init__(self, app):
        self.app = app
        self.told = b"/subscriptions"

    async def __call__(self, scope, receive, send):
        async def telling(message):
            if message["type"] == "http.response.start" and self.told:
                message["headers"] = [*message["headers"], (ROOT_HEADER.lower().encode(), self.told)]
            await send(message)

        await self.app(scope, receive, telling)


@pytest.mark.spec("11.33")
def test_what_a_gateway_got_wrong_costs_a_request_once_it_is_set_right():
    provider, told = acme_provider(), []
    gateway = Gateway(acme_app(provider))
    with serving(gateway) as address:
        memory = Memory(on_event=told.append)
        transport = MemoryTransport(memory, guard=Guard())
        with httpx2.Client(base_url=address, transport=transport) as client:
            assert client.post("/subscriptions", json=GOVERNED).status_code == 422
            gateway.told = None
            rotate(provider)
            assert client.post("/subscriptions", json=GOVERNED).status_code == 422
            assert [event.root for event in told if isinstance(event, Ignored)] == [
                f"{address}/subscriptions"
            ]
            assert memory.root_of(f"{address}/subscriptions") == address
            assert [event.entry.root for event in told if isinstance(event, Stored)][-1] == address
            assert client.post("/subscriptions", json=GOVERNED).is_success


@pytest.mark.spec("15.16")
def test_a_key_that_is_pinned_for_an_address_holds_from_the_first_request_to_a_contract_below_it(tmp_path):
    key, events = SigningKey.new(), []
    inner = acme_app(acme_provider(log=tmp_path / "log.db", signing=Signing(signer=key)))
    app = Starlette(routes=[Mount("/shop/v1", app=inner)])
    with serving(app) as address:
        memory = Memory(trust=trust({address: [key.key]}), on_event=events.append)
        transport = MemoryTransport(memory, guard=Guard())
        with httpx2.Client(base_url=address, transport=transport) as client:
            statuses = [client.post("/shop/v1/subscriptions", json=GOVERNED).status_code for _ in range(3)]
    assert [one for one in events if isinstance(one, Distrusted)] == []
    assert statuses == [422, 201, 201]


@pytest.mark.parametrize("root", ["mcp://shop?tenant=a", "mcp://shop#a", "https://api.example/v1?tenant=a"])
def test_a_root_has_no_query_and_no_fragment(root):
    """Two that differ in nothing else would be one."""
    with pytest.raises(ValueError, match="has a query or a fragment, which a root has not"):
        Memory().recall(root, "POST /x", {})
