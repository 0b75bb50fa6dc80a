"""Workers that say different things at one address: an agent with a memory is never worse off than one without."""

import json
import logging

import httpx2
import pytest
from fastapi import FastAPI

from shelflife.client import Guard, Memory
from shelflife.client.events import Ignored, LogLost
from shelflife.integrations.httpx2 import MemoryTransport
from shelflife.server import Provider, fix
from shelflife.testing import serving
from tests.integrations.ordering import ordering

SHOP = {"host": "shop"}


def shop(version, **options):
    """An API that wants a code, and wants it otherwise with every version of its policy."""
    provider = Provider({"codes": {"a": {"code": "summer"}}}, **options)

    @provider.policy(version=version)
    def code_of_the_plan(request, tables):
        row = tables.codes.get(request.get("plan"))
        code = row and f"{row['code']} {version}"
        return fix("USE", code=code) if row and not request.equals("code", code) else None

    return ordering(provider)


class Agent:
    """An agent that follows what it is told."""

    def __init__(self, memory, **options):
        transport = MemoryTransport(memory, httpx2.HTTPTransport(), guard=Guard(), **options)
        self._http = httpx2.Client(transport=transport)

    def attempts(self, address):
        """How many requests a task takes it."""
        wanted = {"plan": "a"}
        for attempt in range(1, 10):
            answer = self._http.post(f"{address}/s", json=wanted, headers=SHOP)
            if answer.status_code == 200:
                return attempt
            wanted |= answer.json()["recovery_feedback"]["suggestions"][0]["parameters"]
        return None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._http.close()


def below(prefix, app):
    """The app, mounted below a path."""
    if not prefix:
        return app
    whole = FastAPI()
    whole.mount(prefix, app)
    return whole


@pytest.mark.spec("11.34")
@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize("conditional", [False, True])
def test_a_worker_with_older_code_is_given_what_it_asks_for(tmp_path, conditional, prefix, caplog):
    caplog.set_level(logging.WARNING, "shelflife")
    log = tmp_path / "state.db"
    with (
        serving(below(prefix, shop("1", log=log))) as old,
        serving(below(prefix, shop("2", log=log))) as new,
        Agent(Memory(), conditional=conditional) as agent,
    ):
        httpx2.post(
            f"{old}{prefix}/s", json={"plan": "a"}, headers=SHOP
        )  # a mounted app starts with a request
        assert agent.attempts(new + prefix) == 2
        assert [agent.attempts(old + prefix) for _ in range(3)] == [2, 2, 2]
        assert [agent.attempts(new + prefix) for _ in range(2)] == [2, 1]  # one that settles the doubt
    [warning] = [one.message for one in caplog.records if "other policies" in one.message]
    assert warning.startswith("this process runs other policies than the log has, and tells no positions")


def test_from_a_refusal_that_names_no_state_nothing_is_learned_and_that_is_told():
    def silent(request):
        wanted = json.loads(request.content)
        suggestion = {"type": "USE", "parameters": {"code": "x"}, "cache_hint": "cacheable", "table": "codes"}
        body = {"success": False, "recovery_feedback": {"suggestions": [suggestion]}}
        return httpx2.Response(200, json={}) if "code" in wanted else httpx2.Response(422, json=body)

    events = []
    transport = MemoryTransport(Memory(on_event=events.append), httpx2.MockTransport(silent), guard=Guard())
    with httpx2.Client(transport=transport) as client:
        assert client.post("http://shop/s", json={"plan": "a"}).status_code == 422
        assert client.post("http://shop/s", json={"plan": "a"}).status_code == 422
    why = "the reply suggests something, and does not say of which state of the server that is"
    assert events == [Ignored("http://shop:80", why)] * 2


@pytest.mark.spec("11.30")
def test_where_several_logs_answer_what_was_just_confirmed_is_used_at_once():
    events = []
    with Agent(Memory(on_event=events.append)) as agent:
        for number in range(5):
            with serving(shop("1")) as address:
                attempts = [agent.attempts(address) for _ in range(6 if number == 4 else 1)]
        assert [one.several for one in events if isinstance(one, LogLost)][-1]
        assert attempts == [1] * 6


def chained(length):
    """An API that asks for one more field with every field that it is given."""
    provider = Provider({"codes": {str(number): {"code": f"c{number}"} for number in range(length)}})
    for number in range(length):

        def next_field(request, tables, number=number):
            code = tables.codes[str(number)]["code"]
            is_next = number == 0 or f"f{number - 1}" in request
            return fix("SET", {f"f{number}": code}) if is_next and f"f{number}" not in request else None

        provider.policy(version="1")(next_field)
    return ordering(provider)


@pytest.mark.spec("11.26")
def test_after_another_log_a_chain_of_fixes_costs_questions_and_no_failed_request():
    with Agent(Memory()) as agent:
        with serving(chained(4)) as address:
            assert [agent.attempts(address) for _ in range(2)] == [5, 1]
        with serving(chained(4)) as address:
            assert [agent.attempts(address) for _ in range(2)] == [1, 1]
