"""Requests that JSON cannot carry: nothing is found for them, and nothing is learned from them."""

import datetime
import decimal
import enum
import json
import math
from collections import ChainMap, UserDict
from types import MappingProxyType

import msgspec
import pytest

from shelflife.client import Exchange, Guard, Memory, Reply, SqliteStore
from shelflife.client.events import Evicted, Ignored

ORIGIN, OPERATION = "http://h", "POST /x"
STAMPS = {"table_versions": {"t": "1"}}
FIX = {
    "type": "F",
    "parameters": {"code": "A"},
    "cache_hint": "cacheable",
    "table": "t",
    "tables": [{"table": "t", "version": "1"}],
    "rows": ["t:k"],
}


def said(request, fix=None, versions=STAMPS):
    body = {"success": False, "recovery_feedback": {"suggestions": [fix] if fix else []}} | versions
    headers = {"content-type": "application/json"}
    return Exchange(ORIGIN, OPERATION, request, Reply(422, json.dumps(body).encode(), headers))


def remembering(when, **more):
    memory = Memory(**more)
    memory.observe(said({}, FIX | {"when": when}))
    return memory


def told(events):
    """Whether that is all: somebody who wonders why nothing is remembered can see it."""
    [event] = events
    return isinstance(event, Ignored) and "which JSON cannot carry" in event.why


def recalled(memory, request):
    return memory.recall(ORIGIN, OPERATION, request)


class Plain(enum.Enum):
    A = "a"


class Text(enum.StrEnum):
    A = "a"


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


UNCARRIED = {
    "NaN": lambda: math.nan,
    "infinity": lambda: math.inf,
    "within": lambda: [{"a": -math.inf}],
    "digits": lambda: 10**4300,
    "surrogate": lambda: "\ud800",
    "surrogate in a name": lambda: {"\ud800": 1},
    "depth": lambda: nested(33),
    "great depth": lambda: nested(100_000),
    "decimal": lambda: decimal.Decimal(12),
    "bytes": lambda: b"12",
    "set": lambda: {12},
    "date": lambda: datetime.date(2026, 1, 1),
    "enum": lambda: Plain.A,
    "number for a name": lambda: {1: 2},
    "mapping": lambda: MappingProxyType({"a": 1}),
    "object": object,
    "struct": lambda: msgspec.UNSET,
}


@pytest.mark.parametrize("name", UNCARRIED)
def test_nothing_is_found_for_a_request_that_json_cannot_carry(name):
    request = {"amount": UNCARRIED[name](), "other": 1}
    for when in ({"amount": None}, {"amount": "12"}, {"amount": [12]}, {"other": 1}, {}):
        memory = remembering(when)
        assert recalled(memory, request) == []
        amended = memory.amend(ORIGIN, OPERATION, request, Guard())
        assert amended.request is not request
        assert (next(iter(amended.request.values())), amended.applied) == (request["amount"], [])


@pytest.mark.parametrize("name", UNCARRIED)
def test_nothing_is_learned_from_one_but_what_its_response_says_of_the_server(name):
    request = {"amount": UNCARRIED[name]()}
    memory = Memory()
    for fix in (FIX | {"when": {}}, {name: FIX[name] for name in FIX if name != "rows"}):
        assert told(memory.observe(said(request, fix)))
        assert recalled(memory, {}) == []
    memory.observe(said({}, FIX | {"when": {}}))
    events = memory.observe(said(request, versions={"table_versions": {"t": "2"}}))
    assert [type(event) for event in events] == [Evicted]


@pytest.mark.parametrize("name", UNCARRIED)
def test_no_server_is_asked_about_one(name):
    asked = []
    memory = remembering({"other": 1}, most_evictions=0)
    memory.observe(said({}, versions={"table_versions": {"t": "2"}}))
    assert [entry.is_suspect for entry in memory.store.entries()] == [True]

    def ask(question):
        asked.append(question.url)
        return Reply(200, b"{}")

    request = {"amount": UNCARRIED[name](), "other": 1}
    assert memory.revalidate(ORIGIN, OPERATION, request, ask) == []
    assert asked == []


@pytest.mark.parametrize(
    ("value", "as_json"),
    [
        (12, 12),
        (2**64, 2**64),
        (10**30, 10**30),
        ((1, 2), [1, 2]),
        (Text.A, "a"),
        (nested(32), nested(32)),
        (True, True),
    ],
)
def test_what_json_can_carry_is_found_by_what_it_is_written_as(value, as_json):
    assert json.loads(json.dumps(value)) == as_json
    assert recalled(remembering({"amount": as_json}), {"amount": value})
    assert not recalled(remembering({"amount": "12"}), {"amount": value})
    assert not recalled(remembering({"amount": None}), {"amount": value})


def test_the_request_itself_may_be_any_mapping():
    assert recalled(remembering({"amount": 12}), MappingProxyType({"amount": 12}))


@pytest.mark.parametrize("kind", [MappingProxyType, UserDict, ChainMap])
@pytest.mark.parametrize("has_file", [False, True])
def test_it_may_be_so_where_a_fix_is_for_one_whole_request(tmp_path, has_file, kind):
    memory = remembering({"plan": "basic"}, store=SqliteStore(tmp_path / "memory.db") if has_file else None)
    memory.observe(said({"plan": "basic"}, FIX | {"parameters": {"other": "B"}}))
    request = {"plan": "basic", "unset": None}
    assert len(recalled(memory, request)) == 2
    assert recalled(memory, kind(request)) == recalled(memory, request)
    assert len(recalled(memory, kind({"plan": "basic", "more": {}}))) == 1


def test_an_operation_that_is_no_text_finds_and_teaches_nothing():
    memory = Memory()
    assert told(memory.observe(said({}, FIX | {"when": {}})._replace(operation="\ud800")))
    assert memory.recall(ORIGIN, "\ud800", {}) == []
