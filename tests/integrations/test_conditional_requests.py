"""Requests with remembered values on condition that these are right, through a real server and the transports that people use."""

from contextlib import contextmanager

import httpx2
import pytest
from fastapi import FastAPI

from shelflife.client import Guard, Memory
from shelflife.client.events import Evicted, Reason, Stored, Suspected
from shelflife.contract.preconditions import PRECONDITION_HEADER, Precondition
from shelflife.integrations.fastapi import install
from shelflife.integrations.httpx2 import MemoryTransport
from shelflife.server import Provider, Rule, fix
from shelflife.server.wire import WireFormat
from shelflife.testing import serving

OPERATION = "POST /orders"


class Shop:
    """An API for orders: what it was asked to carry out, and the preconditions of that."""

    def __init__(self, provider):
        self.provider, self.done, self.preconditions = provider, [], []
        self.app = FastAPI()
        install(self.app, provider)
        self.app.post("/orders")(self.order)
        self.app.post("/of/{who}/orders")(self.order)

    def order(self, wanted: dict) -> dict:
        self.provider.check(wanted)
        self.done.append(wanted)
        return {"success": True}


@contextmanager
def agent(shop, memory=None, path="/orders", **options):
    """What sends orders, with what is remembered for them; it notes each precondition that goes out."""
    inner = httpx2.HTTPTransport()

    class Noting(httpx2.BaseTransport):
        def handle_request(self, request):
            if PRECONDITION_HEADER in request.headers:
                shop.preconditions.append(Precondition.from_header(request.headers[PRECONDITION_HEADER]))
            return inner.handle_request(request)

    guard = Guard(decides_for_caller=True)
    transport = MemoryTransport(memory or Memory(), Noting(), guard=guard, **options)
    with serving(shop.app) as address, httpx2.Client(base_url=address, transport=transport) as client:
        yield lambda **wanted: client.post(path, json=wanted).status_code
    inner.close()


NEEDS = Rule(from_table="codes", to_table="promos", relation="needs", via="code")
NEEDS_OTHERS = Rule(from_table="codes", to_table="promos", relation="needs", via="other")


def hinting(paper_only):
    """A policy that wants a value, and takes any: only the precondition can show that a remembered one is stale."""
    tables = {
        "codes": {"growth": {"code": "A", "other": "B"}},
        "promos": {"A": {"off": 10}, "B": {"off": 20}},
    }
    provider = Provider(tables, [NEEDS], wire=WireFormat(paper_only=paper_only))

    @provider.policy
    def discount(request, tables):
        row = tables.codes.get(request.get("plan"))
        if row is None or request.get("hint") is not None:
            return None
        return fix("USE", hint=row.follow("needs")["off"])

    return Shop(provider)


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("paper_only", [True, False])
def test_when_a_rule_changes_no_value_that_may_rest_on_it_is_carried_out(paper_only, compact):
    shop = hinting(paper_only)
    memory = Memory()
    with agent(shop, memory, conditional=True, compact=compact) as send:
        assert [send(plan="growth") for _ in range(2)] == [422, 200]
        [entry] = memory.store.entries()
        assert (entry.grounds.rules is None) is paper_only
        shop.provider.registry.reload_rules([NEEDS_OTHERS])
        shop.done.clear()
        assert send(plan="growth") == 200
    assert shop.done == [{"plan": "growth", "hint": 20}]


def delivering():
    """A policy whose fix is inside of an object."""
    provider = Provider({"ship": {"DE": {"method": "express"}}})

    @provider.policy
    def method(request, tables):
        row = tables.ship.get(request.get("country"))
        if row and request.get("shipping", {}).get("method") != row["method"]:
            return fix("USE", shipping={"method": row["method"]})
        return None

    return Shop(provider)


@pytest.mark.parametrize("shipping", [None, {}, {"by": "noon"}, {"method": "mine", "by": "noon"}])
@pytest.mark.parametrize("compact", [True, False])
def test_a_stale_value_inside_of_an_object_is_taken_out_and_the_fresh_one_put_in(compact, shipping):
    shop = delivering()
    wanted = {"country": "DE"} if shipping is None else {"country": "DE", "shipping": shipping}
    memory = Memory()
    with agent(shop, memory, conditional=True, compact=compact) as send:
        assert [send(**wanted) for _ in range(2)] == [422, 200]
        shop.provider.registry.reload_table("ship", set={"DE": {"method": "dhl"}})
        assert send(**wanted) == 200
        fresh = {"method": "dhl"}
        assert shop.done[-1] == wanted | {"shipping": (shipping or {}) | fresh}
        # what was learned is for the request as the caller wrote it, so it is found for that again
        assert send(**wanted) == 200
    assert len(shop.done) == 3
    assert memory.statistics.stored == 2


def totalling():
    """A policy whose fix rests on hundreds of rows, and one whose fix takes the place of a text of any length."""
    rows = {f"stock-keeping-unit-number-{number:04d}": {"price": number} for number in range(500)}
    provider = Provider({"items": rows, "other": {"a": {"b": 1}}})

    @provider.policy
    def total(request, tables):
        if request.get("all") is None:
            return None
        found = [tables.items.get(f"stock-keeping-unit-number-{number:04d}") for number in range(350)]
        expected = sum(row["price"] for row in found if row)
        return None if request.equals("expected", expected) else fix("USE", expected=expected)

    @provider.policy
    def short(request, tables):
        if request.get("kind") != "memo" or request.equals("body", tables.other["a"]["b"]):
            return None
        return fix("SHORT", body=tables.other["a"]["b"])

    return Shop(provider)


@pytest.mark.parametrize("compact", [True, False])
def test_a_fix_that_rests_on_more_rows_than_can_be_named_is_vouched_for_by_its_tables(compact):
    shop = totalling()
    with agent(shop, conditional=True, compact=compact) as send:
        assert [send(all=1) for _ in range(3)] == [422, 200, 200]
        shop.provider.registry.reload_table("other", set={"a": {"b": 2}})
        assert send(all=1) == 200
        shop.provider.registry.reload_table("items", set={"stock-keeping-unit-number-0001": {"price": 2}})
        assert send(all=1) == 200
    assert [one["expected"] for one in shop.done[-2:]] == [61075, 61076]
    assert all(len(one.header) <= 4096 for one in shop.preconditions)
    assert any(one.cells == {"items": None} for one in shop.preconditions)


@pytest.mark.parametrize("compact", [True, False])
def test_a_fix_in_the_place_of_a_long_text_is_vouched_for_without_the_text(compact):
    shop = totalling()
    wanted = {"kind": "memo", "body": "y" * 14_000}
    with agent(shop, conditional=True, compact=compact) as send:
        assert [send(**wanted) for _ in range(2)] == [422, 200]
        shop.provider.registry.reload_table("other", set={"a": {"b": 2}})
        assert send(**wanted) == 200
    assert [one["body"] for one in shop.done] == [1, 2]
    assert {bool(one.was) for one in shop.preconditions} == {False}


NAMES = {
    "by default": {},
    "by the user": {"operation": lambda request: "subscribe"},
    "by its template": {"operation": lambda request: "POST /of/{who}/orders"},
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("path", ["/orders", "/orders?tenant=1", "/of/me/orders"])
def test_suspects_are_asked_about_under_the_operation_that_the_server_knows(name, path):
    provider = Provider({"codes": {f"p{number}": {"code": f"C{number}"} for number in range(4)}})
    operation = "POST /of/{who}/orders" if "/of/" in path else OPERATION

    @provider.policy(operation=operation)
    def promo(request, tables):
        row = tables.codes.get(request.get("plan"))
        return (row and not request.equals("promo", row["code"]) and fix("USE", promo=row["code"])) or None

    shop, events = Shop(provider), []
    memory = Memory(most_evictions=0, on_event=events.append)
    with agent(shop, memory, path=path, **NAMES[name]) as send:
        plans = [f"p{number}" for number in range(4)]
        assert [send(plan=plan) for plan in plans] == [422] * 4
        for codes in (
            {plan: {"code": "X"} for plan in plans},
            {plan: {"code": f"C{plan[1]}"} for plan in plans},
        ):
            provider.registry.reload_table("codes", set=codes)
            send(plan="none")
        assert [event.count for event in events if isinstance(event, Suspected)] == [4]
        events.clear()
        assert [send(plan=plan) for plan in plans] == [200] * 4
        assert [type(event) for event in events if isinstance(event, Stored | Evicted)] == [Stored] * 4
        provider.registry.reload_table("codes", set={"p0": {"code": "Y"}})
        send(plan="none")
        events.clear()
        assert send(plan="p0") == 200
    [gone] = [event for event in events if isinstance(event, Evicted)]
    assert gone.reason is Reason.UNCONFIRMED
    assert shop.done[-1] == {"plan": "p0", "promo": "Y"}
