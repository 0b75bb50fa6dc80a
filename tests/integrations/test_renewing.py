"""Asking before use: what has taken the place of a fix is there before its request, whatever the fix looked at."""

import json

import httpx2
import pytest
from fastapi import FastAPI

from shelflife.client import Guard, Memory, Reply
from shelflife.integrations.fastapi import install
from shelflife.integrations.httpx2 import MemoryTransport
from shelflife.server import Provider, fix
from shelflife.testing import serving

PACKING = {"lithium": {"box": "UN3480"}, "a/b~c": {"box": "plain"}}


def shipping():
    """An API whose fix depends on a field of an object in the request."""
    provider = Provider({"packing": PACKING})

    @provider.policy
    def packed_as_it_must_be(request, tables):
        parcel = request["parcel"]
        row = tables.packing.get(parcel.get("good/s"))
        if row and not parcel.equals("box", row["box"]):
            return fix("PACK", parcel={"box": row["box"]})
        return None

    app = FastAPI()
    install(app, provider)

    @app.post("/parcels")
    def ship(wanted: dict) -> dict:
        provider.check(wanted)
        return {"sent": wanted}

    return provider, app


@pytest.mark.parametrize("goods", PACKING)
def test_what_has_taken_the_place_of_a_nested_fix_is_asked_for(goods):
    provider, app = shipping()
    memory, wanted = Memory(), {"parcel": {"good/s": goods, "weight": 2}, "to": "NL"}

    def ask(question):
        answer = httpx2.request(
            question.method, question.url, content=question.body, headers=question.headers
        )
        return Reply(answer.status_code, answer.content)

    with (
        serving(app) as address,
        httpx2.Client(base_url=address, transport=MemoryTransport(memory, guard=Guard())) as client,
    ):
        assert client.post("/parcels", json=wanted).status_code == 422
        provider.registry.reload_table("packing", set={goods: {"box": "UN3481"}})
        memory.refresh(address, ask)
        answer = client.post("/parcels", json=wanted)
    assert answer.json() == {"sent": {"parcel": {**wanted["parcel"], "box": "UN3481"}, "to": "NL"}}


def test_what_was_sent_can_be_looked_at_whether_something_was_applied_or_not():
    _, app = shipping()
    with (
        serving(app) as address,
        httpx2.Client(base_url=address, transport=MemoryTransport(Memory(), guard=Guard())) as client,
    ):
        for goods in ("paper", "lithium", "lithium"):
            answer = client.post("/parcels", json={"parcel": {"good/s": goods}})
            box = {"box": "UN3480"} if answer.request.extensions["shelflife"].applied else {}
            sent = json.loads(answer.extensions["shelflife_sent"].content)
            assert sent == {"parcel": {"good/s": goods, **box}}
        assert answer.status_code == 200
