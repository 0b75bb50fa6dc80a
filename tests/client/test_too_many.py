"""What one server may make its clients hold and look through, and that it takes nothing from another."""

import httpx2
import msgspec
import pytest
from fastapi import FastAPI

from shelflife.client import EXACT, Guard, Knowledge, Memory, Write
from shelflife.client.events import Evicted, Ignored, Reason, Refused, Stored
from shelflife.client.foresight import Forecast, Lookout
from shelflife.client.guard import amend
from shelflife.client.shelf import Shelf
from shelflife.client.telling import Telling
from shelflife.client.writing import MOST_AT_A_PLACE, MOST_SHAPES
from shelflife.contract import when
from shelflife.integrations.fastapi import install
from shelflife.integrations.httpx2 import MemoryTransport
from shelflife.server import Provider, fix
from shelflife.testing import serving
from tests.client.entries import ORIGIN, OTHER, entry, filed
from tests.client.responses import FIX, STAMPS, rejection, said

ROOT, OPERATION = "http://h:80", "POST /x"


def flood(count, first=0, **changes):
    """A response with so many fixes for one request, each of another type."""
    fixes = [FIX | {"type": f"T{number}"} | changes for number in range(first, first + count)]
    return said(STAMPS | {"recovery_feedback": {"suggestions": fixes}})


def told(events):
    return [event.why for event in events if isinstance(event, Ignored)]


def test_no_server_makes_a_recall_look_in_more_places_than_there_may_be(store):
    memory = Memory(store)
    for number in range(MOST_SHAPES):
        assert told(memory.observe(said(rejection(when={f"field_{number}": None})))) == []
    [event] = memory.observe(said(rejection(when={"one_more": None})))
    assert event == Ignored(
        ROOT,
        "there are too many fixes for POST /x, and 1 left out:"
        " what is remembered depends on 64 other choices of request fields already",
    )
    assert len(list(store.shapes(ROOT, OPERATION))) == memory.statistics.stored == MOST_SHAPES
    [stored] = memory.observe(said(rejection(when={"field_0": 2})))
    assert isinstance(stored, Stored)
    elsewhere = said(rejection(when={"one_more": None}))._replace(operation="POST /y")
    assert [type(event) for event in memory.observe(elsewhere)] == [Stored]


def test_no_server_makes_a_request_find_more_fixes_than_there_may_be(store):
    memory = Memory(store)
    assert told(memory.observe(flood(MOST_AT_A_PLACE))) == []
    [why] = told(memory.observe(flood(6, MOST_AT_A_PLACE - 3)))
    assert (
        why
        == "there are too many fixes for POST /x, and 3 left out: 64 are remembered for the same request already"
    )
    assert len(memory.recall(ROOT, OPERATION, {})) == memory.statistics.stored == MOST_AT_A_PLACE


def test_where_there_are_as_many_as_there_may_be_another_value_still_takes_the_place_of_the_first(store):
    memory = Memory(store)
    memory.observe(flood(MOST_AT_A_PLACE))
    events = memory.observe(flood(1, parameters={"x": 2}))
    assert [type(event) for event in events] == [Evicted, Stored]
    values = [one.parameters["x"] for one in memory.recall(ROOT, OPERATION, {})]
    assert sorted(values) == [1] * (MOST_AT_A_PLACE - 1) + [2]


class Counted(dict):
    """The parameters of a fix, which count how often somebody goes through them."""

    reads = 0

    def items(self):
        Counted.reads += 1
        return super().items()


@pytest.mark.parametrize("value_of", [lambda number: "same", str], ids=["same value", "other values"])
def test_many_fixes_cost_an_amendment_what_they_are_and_not_what_each_is_to_each_other(value_of):
    reads = []
    for count in (100, 400):
        entries = [
            entry(type=f"T{number}", parameters=Counted(code=value_of(number))) for number in range(count)
        ]
        Counted.reads = 0
        amended = amend({"plan": "basic"}, lambda _, found=entries: found, Guard())
        assert len(amended.applied) + len(amended.refused) == count
        reads.append(Counted.reads)
    assert reads[1] == 4 * reads[0] <= 4 * 400


def chain(length):
    """Fixes of which each sets the field that the next one asks for."""
    return [
        entry(type=f"T{number}", when={f"f{number}": 1}, parameters={f"f{number + 1}": 1})
        for number in range(length)
    ]


def test_a_long_chain_of_fixes_is_followed_so_far_and_what_is_left_out_is_told(store):
    events = []
    memory = Memory(store, on_event=events.append)
    store.write(ORIGIN, 0, Write(Knowledge(strategy="exact"), put=[filed(one) for one in chain(40)]))
    amended = memory.amend(ORIGIN, OPERATION, {"f0": 1}, Guard())
    assert len(amended.applied) == 8
    assert amended.request == {f"f{number}": 1 for number in range(9)}
    [refused] = [event for event in events if isinstance(event, Refused)]
    assert (refused.entry.type, refused.why) == (
        "T8",
        "it is found only after 8 others, each of which calls for the next",
    )


class Headers(httpx2.Headers):
    """Those of a request, which count how often somebody goes through them."""

    count = 0

    def items(self):
        self.count += 1
        return super().items()


def test_a_long_request_is_looked_through_once_however_many_fixes_there_are_for_it():
    counts = []
    for fix_count in (1, MOST_AT_A_PLACE):
        memory = Memory()
        memory.observe(flood(fix_count)._replace(root="http://h:80"))
        answering = httpx2.MockTransport(lambda request: httpx2.Response(200))
        with httpx2.Client(transport=MemoryTransport(memory, answering, guard=Guard())) as client:
            request = client.build_request("POST", "http://h/x", json={"plan": "basic"})
            request.headers = Headers(request.headers)
            client.send(request)
        assert memory.statistics.applied == fix_count
        counts.append(request.headers.count)
    assert counts[0] == counts[1] > 0


def by_item():
    """An API whose policy looks at a field of another name for each thing that is ordered."""
    provider = Provider({"stock": {f"sku{number}": {"max": 1, "at": f"W{number}"} for number in range(70)}})

    @provider.policy
    def warehouse(request, tables):
        for sku in request["items"]:
            row = tables.stock[sku]
            if request["items"][sku] > row["max"] and not request.equals("warehouse", row["at"]):
                return fix("USE", warehouse=row["at"])
        return None

    app = FastAPI()
    install(app, provider)

    @app.post("/orders")
    def order(wanted: dict) -> dict:
        provider.check(wanted)
        return {"success": True}

    return app


def test_fixes_that_look_at_ever_other_fields_are_left_out_at_last_and_each_time_that_is_told():
    events = []
    memory = Memory(on_event=events.append)
    with (
        serving(by_item()) as address,
        httpx2.Client(base_url=address, transport=MemoryTransport(memory, guard=Guard())) as client,
    ):
        tasks = [{"items": {f"sku{number}": 2}} for number in range(70)]
        statuses = [[client.post("/orders", json=task).status_code for task in tasks] for _ in range(2)]
    assert statuses == [[422] * 70, [200] * MOST_SHAPES + [422] * 6]
    assert memory.statistics.stored == MOST_SHAPES
    assert len(told(events)) == 2 * 6


def test_a_server_that_teaches_without_end_takes_no_room_from_another(store):
    memory = Memory(store, capacity=3)
    memory.observe(said(rejection())._replace(root="http://quiet:80"))
    for number in range(10):
        events = memory.observe(said(rejection(when={"a": number})))
        assert all(event.entry.root == ROOT for event in events)
    assert len(memory.recall("http://quiet:80", OPERATION, {})) == 1
    assert [len(memory.recall(ROOT, OPERATION, {"a": number})) for number in (6, 7, 9)] == [0, 1, 1]
    assert memory.statistics.evictions == {Reason.CAPACITY.name.lower(): 7}


def test_what_was_confirmed_at_a_server_of_several_logs_stays_so_whatever_is_asked_of_another(store):
    now = 1000.0
    shelf = Shelf(store, EXACT, None, Telling(None, lambda: now), lambda: now)
    for root in (ORIGIN, OTHER):
        split = Knowledge(strategy="exact", split_at=now)
        store.write(root, 0, Write(split, put=[filed(entry(root=root))]))
        shelf.confirm(root, [entry(root=root)])
    shelf.unconfirm(OTHER)
    assert shelf.usable(OTHER, OPERATION, {"plan": "basic"}) == []
    assert len(shelf.suspects(OTHER, OPERATION, {"plan": "basic"})) == 1
    assert shelf.usable(ORIGIN, OPERATION, {"plan": "basic"}) == [entry()]


def test_what_is_kept_of_servers_is_bounded_however_many_there_are():
    telling, lookout = Telling(None, lambda: 0.0), Lookout(Forecast(), lambda: 7.0)
    roots = [f"https://{number}.example" for number in range(1_100)]
    for root in roots:
        telling.tell([Evicted(entry(root=root), Reason.ROW_CHANGED)])
        lookout.note_look(root)
        lookout.note_look(roots[0])
    telling.tell(Stored(entry(value="P2", root=root)) for root in roots)
    assert telling.statistics.confirmed <= 1_000
    heard = [root for root in roots if lookout.was_heard(root, 7.0)]
    assert heard == [roots[0], *roots[-999:]]


def test_how_many_evictions_were_right_is_counted_for_a_server_whatever_another_evicts():
    telling = Telling(None, lambda: 0.0)
    telling.tell([Evicted(entry(), Reason.ROW_CHANGED)])
    noisy = entry(root=OTHER)
    telling.tell(
        Evicted(msgspec.structs.replace(noisy, type=f"T{number}"), Reason.ROW_CHANGED)
        for number in range(11_000)
    )
    telling.tell([Stored(entry(value="P2"))])
    assert telling.statistics.confirmed == 1


@pytest.mark.parametrize(
    "conditions",
    [
        {"unless": {"a": list(range(257))}},
        {"when": {f"f{number}": number for number in range(257)}},
        {"when": {"b": 1}, "unless": {f"f{number}": [number] for number in range(256)}},
    ],
)
def test_a_fix_that_would_take_long_to_hold_to_a_request_is_left_out(conditions):
    memory = Memory()
    assert told(memory.observe(said(rejection(**conditions)))) == [
        "a suggestion was left out: the suggestion F is too large"
    ]
    assert memory.statistics.stored == 0


def test_a_large_field_of_a_request_is_read_once_for_all_fixes_that_look_at_it(monkeypatch):
    memory, read = Memory(), []
    memory.observe(flood(MOST_AT_A_PLACE, unless={"items": ["x"]}))
    plain = when.as_read
    monkeypatch.setattr(when, "as_read", lambda value: read.append(value is items) or plain(value))
    items = [{"sku": f"s{number}"} for number in range(1000)]
    assert len(memory.recall(ROOT, OPERATION, {"items": items})) == MOST_AT_A_PLACE
    assert sum(read) == 1
