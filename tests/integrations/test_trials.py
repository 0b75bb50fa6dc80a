"""What once broke the memory, through a real server and the transports that people use."""

from contextlib import contextmanager

import httpx2
import pytest
from fastapi import FastAPI

from shelflife.client import Exchange, Guard, Memory, Reply
from shelflife.client.events import LogLost
from shelflife.contract.positions import AT_HEADER
from shelflife.integrations.fastapi import install
from shelflife.integrations.httpx2 import MemoryTransport
from shelflife.server import Provider, fix
from shelflife.testing import serving


def shop(**codes):
    """An API that wants the code of a plan, and its provider."""
    provider = Provider({"codes": {plan: {"code": code} for plan, code in codes.items()}, "other": {"a": {}}})

    @provider.policy
    def code_of_the_plan(request, tables):
        row = tables.codes.get(request.get("plan"))
        if row and not request.equals("promo", row["code"]):
            return fix("USE", promo=row["code"])
        return None

    app = FastAPI()
    install(app, provider)

    @app.post("/s")
    def subscribe(wanted: dict) -> dict:
        provider.check(wanted)
        return {"success": True}

    return app, provider


def rotate(provider, **codes):
    provider.registry.reload_table("codes", set={plan: {"code": code} for plan, code in codes.items()})


@contextmanager
def agent(memory, address, transport=None):
    watching = MemoryTransport(memory, transport or httpx2.HTTPTransport(), guard=Guard())
    with httpx2.Client(base_url=address, transport=watching) as client:
        yield lambda **wanted: client.post("/s", json=wanted)


def recalled(memory, address, **wanted):
    root = memory.root_of(f"{address}/s")
    return [entry.parameters["promo"] for entry in memory.recall(root, "POST /s", wanted)]


def test_a_quiet_server_is_not_forgotten_over_a_busy_one():
    """Trial `named`: what moved was read as nothing, and the agent was locked into the old value."""
    (quiet_app, quiet), (busy_app, busy) = shop(growth="SUMMER"), shop(x="0")
    memory = Memory()
    with (
        serving(quiet_app) as quiet_at,
        serving(busy_app) as busy_at,
        agent(memory, quiet_at) as ask_quiet,
        agent(memory, busy_at) as ask_busy,
    ):
        assert [ask_quiet(plan="growth").status_code for _ in range(2)] == [422, 200]
        for number in range(300):
            rotate(busy, x=str(number))
            ask_busy(plan="none")
        rotate(quiet, growth="WINTER")
        ask_quiet(plan="none")
        assert recalled(memory, quiet_at, plan="growth") == []
        assert ask_quiet(plan="growth", promo="WINTER").status_code == 200


class Gateway(httpx2.BaseTransport):
    """Keeps the reply of each `Idempotency-Key`, as payment gateways do."""

    def __init__(self):
        self._inner, self._kept = httpx2.HTTPTransport(), {}

    def handle_request(self, request):
        key = request.headers.get("idempotency-key")
        if key is None or key not in self._kept:
            response = self._inner.handle_request(request)
            response.read()
            self._kept[key] = response.status_code, response.headers.multi_items(), response.content
        status, headers, body = self._kept[key]
        return httpx2.Response(status, headers=headers, content=body)

    def close(self):
        self._inner.close()


def test_a_reply_that_is_replayed_is_not_taken_for_the_present():
    """Trial `replay_compact`: the gateway gives a refusal of the state before once more."""
    app, provider = shop(growth="OLD")
    memory = Memory()
    with serving(app) as address:
        watching = MemoryTransport(memory, Gateway(), guard=None)
        with httpx2.Client(base_url=address, transport=watching) as client:
            client.post("/s", json={"plan": "none"})
            keyed = {"json": {"plan": "growth"}, "headers": {"idempotency-key": "k1"}}
            assert client.post("/s", **keyed).status_code == 422
            assert recalled(memory, address, plan="growth") == ["OLD"]
            rotate(provider, growth="NEW")
            client.post("/s", json={"plan": "none"})
            assert recalled(memory, address, plan="growth") == []
            client.post("/s", **keyed)
            assert recalled(memory, address, plan="growth") == []


@pytest.mark.parametrize("are_questions_lost", [False, True])
def test_a_late_reply_sets_nothing_back_and_teaches_nothing(are_questions_lost):
    """Trials `late` and `late_dropped`: a late refusal of a version that was never seen was learned."""
    app, provider = shop(growth="C1")
    with serving(app) as address, httpx2.Client(base_url=address) as http:

        def ask(question):
            if are_questions_lost:
                return None
            answer = http.request(
                question.method, question.url, content=question.body, headers=dict(question.headers)
            )
            return Reply(answer.status_code, answer.content)

        memory = Memory(ask=ask)

        def call(**wanted):
            at = memory.contract_at(address)
            answer = http.post("/s", json=wanted, headers={AT_HEADER: at})
            reply = Reply(answer.status_code, answer.content, answer.headers)
            return Exchange(address, "POST /s", wanted, reply, at)

        memory.observe(call(plan="none"))
        rotate(provider, growth="C2")
        late_success, late_refusal = call(plan="none"), call(plan="growth")
        rotate(provider, growth="C3")
        memory.observe(call(plan="none"))
        memory.observe(late_success)
        memory.observe(late_refusal)
        assert recalled(memory, address, plan="growth") == []
        memory.observe(call(plan="growth"))
        assert recalled(memory, address, plan="growth") == ["C3"]


def test_two_contracts_behind_one_host_are_two():
    """Trial `two_apis`: they remembered nothing, and one was asked at the wrong place."""
    main, providers = FastAPI(), {}
    for name in "ab":
        app, providers[name] = shop(**{f"p{number}": f"{name}{number}" for number in range(5)})
        main.mount(f"/{name}", app)
    seen = []
    memory = Memory(on_event=seen.append)
    with serving(main) as address:
        transport = MemoryTransport(memory, httpx2.HTTPTransport(), guard=Guard())
        with httpx2.Client(base_url=address, transport=transport) as client:

            def passed_at_once(name):
                return sum(
                    client.post(f"/{name}/s", json={"plan": f"p{number}"}).status_code == 200
                    for number in range(5)
                )

            assert [passed_at_once(name) for name in "abab"] == [0, 0, 5, 5]
            rotate(providers["a"], p0="new")
            assert [passed_at_once(name) for name in "abab"] == [4, 5, 5, 5]
    assert not any(isinstance(event, LogLost) for event in seen)
    assert {f"{address}/a", f"{address}/b"} == {entry.root for entry in memory.store.entries()}
