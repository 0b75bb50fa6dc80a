"""What a server answers when it is asked: believed as far as it answers the question, and within limits."""

import asyncio
import json

import pytest

from shelflife.client import Memory, Reply
from shelflife.client.events import Evicted, Restamped
from tests.client.responses import FIX, said

ORIGIN = "http://h:80"
NOTHING = {"since": "1", "version": "2", "known": True, "added": [], "removed": [], "changed": []}


def fixed(*tables, version="1"):
    """A response with a fix for each table."""
    fixes = [
        FIX
        | {"type": f"F_{table}", "table": table, "rows": [f"{table}:k"]}
        | {"tables": [{"table": table, "version": version}]}
        for table in tables
    ]
    versions = dict.fromkeys(tables, version)
    return said({"table_versions": versions, "recovery_feedback": {"suggestions": fixes[:64]}})


def moved(*tables):
    return said({"table_versions": dict.fromkeys(tables, "2")})


def answering(tables, **more):
    body = json.dumps({"tables": tables, "table_versions": {}, **more}).encode()
    return lambda question: Reply(200, body)


def held(memory):
    return [entry.type for entry in memory.recall(ORIGIN, "POST /x", {"a": 1})]


def test_a_table_that_moved_without_a_row_of_it_changing_keeps_its_entries():
    memory = Memory(ask=answering({"t": NOTHING}))
    memory.observe(fixed("t"))
    assert memory.observe(moved("t")) == [Restamped(ORIGIN, "t", 1)]


@pytest.mark.parametrize(
    "told",
    [
        NOTHING | {"since": "0"},
        NOTHING | {"version": None},
        NOTHING | {"version": ""},
        NOTHING | {"version": "é"},
        NOTHING | {"known": False},
        {name: value for name, value in NOTHING.items() if name != "removed"},
        NOTHING | {"added": [str(number) for number in range(10_001)]},
        NOTHING | {"affected_downstream": [f"u:{number}" for number in range(10_001)]},
    ],
)
def test_an_answer_that_is_not_whole_is_none(told):
    memory = Memory(ask=answering({"t": told}))
    memory.observe(fixed("t"))
    assert [type(event) for event in memory.observe(moved("t"))] == [Evicted]


def test_an_answer_about_what_was_not_asked_is_not_listened_to():
    memory = Memory(ask=answering({"t": NOTHING, "u": NOTHING | {"version": "9", "changed": ["k"]}}))
    memory.observe(fixed("t", "u"))
    memory.observe(said({"table_versions": {"t": "2", "u": "1"}}))
    assert held(memory) == ["F_t", "F_u"]
    assert memory.store.known(ORIGIN).knowledge.versions.tables == {"t": "2", "u": "1"}


@pytest.mark.parametrize(
    "state",
    [
        {"table_versions": {"bad name": "1"}},
        {"table_versions": {"t": ""}},
        {"table_versions": {f"t{number}": "1" for number in range(10_001)}},
        {"table_versions": {"t": "1"}, "rules_version": "é"},
    ],
)
def test_a_state_that_no_honest_server_has_is_no_answer(state):
    memory = Memory(ask=lambda question: Reply(200, json.dumps(state).encode()))
    memory.observe(fixed("t"))
    memory.observe(said(b"", {"contract-state": '"s"'}))
    assert held(memory) == []


def test_tables_that_nothing_hangs_on_are_not_asked_about():
    asked = []
    memory = Memory(ask=asked.append)
    memory.observe(fixed("t"))
    memory.observe(said({"table_versions": {"t": "1", "u": "1"}}))
    memory.observe(said({"table_versions": {"t": "1", "u": "2"}}))
    assert asked == []


def test_many_tables_are_asked_about_in_several_questions():
    tables = [f"{'t' * 120}{number}" for number in range(64)]
    asked = []

    def ask(question):
        asked.append(question.url)
        return answering({table: NOTHING for table in tables if table + "%3A" in question.url})(question)

    memory = Memory(ask=ask)
    memory.observe(fixed(*tables))
    assert not any(isinstance(event, Evicted) for event in memory.observe(moved(*tables)))
    assert len(asked) == 2
    assert max(map(len, asked)) < 6100
    assert len(held(memory)) == 64


def test_the_fetcher_of_the_constructor_may_be_async():
    async def ask(question):
        return answering({"t": NOTHING})(question)

    memory = Memory(ask=ask)
    memory.observe(fixed("t"))
    asyncio.run(memory.observe_async(moved("t")))
    assert held(memory) == ["F_t"]
    with pytest.raises(TypeError, match="await the verb whose name ends in _async"):
        memory.observe(said({"table_versions": {"t": "3"}}))


def test_observing_asynchronously_asks_through_a_plain_fetcher_too():
    memory = Memory(ask=answering({"t": NOTHING}))
    memory.observe(fixed("t"))
    asyncio.run(memory.observe_async(moved("t")))
    assert held(memory) == ["F_t"]
