"""Cells on the agent's side: what a change concerns, and what a memory makes of servers that tell more or less."""

from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelflife.client import EXACT, Entry, Memory, Reply
from shelflife.client.entries import Condition, Grounds
from shelflife.client.events import Evicted
from shelflife.client.strategies import POLICIES, cell_tag
from shelflife.contract import Suggestion
from shelflife.contract.cells import cells_of_rows, rows_of_cells, united
from shelflife.contract.compact import compacted
from shelflife.contract.positions import MovedTable, Named
from shelflife.lab.arms import ARMS
from shelflife.server.delta import Delta
from tests.acme_world import CONTROL, FREE, FUNDING_1
from tests.cells import have_changed
from tests.client.agents import Agent, knows, learn
from tests.client.responses import FIX, STAMPS, said

EVERYTHING_READ = {
    "nothing": {},
    "the table": None,
    "the keys": {"": ()},
    "that k is there": {"k": ()},
    "that gone is not": {"gone": ()},
    "x": {"k": ("x",)},
    "y": {"k": ("y",)},
    "x and y": {"k": ("x", "y")},
    "no column that k has": {"k": ("none",)},
    "all of k": {"k": None},
    "another row": {"l": ("x",)},
    "the keys and x": {"": (), "k": ("x",)},
}


def entry_on(read, policy=None):
    cells = {"t": read}
    return Entry(
        root="http://h",
        operation="POST /x",
        type="F",
        parameters={"x": 1},
        condition=Condition({}),
        grounds=Grounds(("t",), cells, (), policy),
        learned_at=0.0,
    )


def concerned(strategy, change):
    """What of all that can be read a change makes a strategy drop."""
    tags = strategy.forgets("t", change).tags
    return {
        name
        for name, read in EVERYTHING_READ.items()
        if not tags.keys().isdisjoint(strategy.files(entry_on(read)).tags)
    }


WALKS = {"the table", "the keys", "the keys and x"}
OF_K = {"x", "y", "x and y", "no column that k has", "all of k", "the keys and x"}


@pytest.mark.spec("9.8")
@pytest.mark.parametrize(
    ("told", "dropped"),
    [
        (MovedTable(), set()),
        (
            MovedTable(changed=("k",), columns={"k": ("x",)}),
            {"the table", "x", "x and y", "all of k", "the keys and x"},
        ),
        (MovedTable(changed=("k",), columns={"k": ("y", "z")}), {"the table", "y", "x and y", "all of k"}),
        (
            MovedTable(changed=("k",), columns={"k": ("none",)}),
            {"the table", "no column that k has", "all of k"},
        ),
        (MovedTable(changed=("l",), columns={"l": ("y",)}), {"the table"}),
        (MovedTable(changed=("l",), columns={"l": ("x",)}), {"the table", "another row"}),
        (MovedTable(removed=("k",)), {"that k is there"} | OF_K | WALKS),
        (MovedTable(added=("gone",)), {"that gone is not"} | WALKS),
        (MovedTable(added=("new",)), WALKS),
    ],
)
def test_a_change_concerns_what_has_read_it(told, dropped):
    assert concerned(EXACT, told) == dropped


@pytest.mark.spec("9.7", "9.8")
@pytest.mark.parametrize("columns", [{}, {"l": ("x",)}])
def test_where_columns_are_not_told_any_may_have_changed_and_the_row_is_there_still(columns):
    assert concerned(EXACT, MovedTable(changed=("k",), columns=columns)) == {"the table"} | OF_K


@pytest.mark.spec("9.5")
@pytest.mark.parametrize("told", [None, MovedTable(known=False), MovedTable(known=False, changed=("l",))])
def test_where_rows_are_not_told_any_may_have_changed(told):
    assert concerned(EXACT, told) == {*EVERYTHING_READ}


@pytest.mark.parametrize("name", ["A2D", "A2DC", "A2DG", "A2DR", "A2DRC", "A2DO"])
def test_the_papers_arms_go_by_row(name):
    by_row = {"that k is there"} | OF_K | WALKS
    for lists in ({"removed": ("k",)}, {"changed": ("k",)}, {"changed": ("k",), "columns": {"k": ("z",)}}):
        assert concerned(ARMS[name], MovedTable(**lists)) == by_row
    assert concerned(ARMS[name], MovedTable(changed=("l",), columns={"l": ("z",)})) == WALKS | {"another row"}


def test_what_lies_downstream_goes_whatever_was_read_of_it():
    told = MovedTable(affected_downstream=("t:k", "u:other"))
    assert concerned(ARMS["A2DG"], told) == {"that k is there"} | OF_K
    assert concerned(ARMS["A2D"], told) == set()


values = st.dictionaries(st.sampled_from(["x", "y", "none"]), st.sampled_from([1, 2, None]))
contents = st.dictionaries(st.sampled_from(["k", "l", "gone"]), values)


@given(contents, contents)
def test_what_is_dropped_is_what_has_changed(before, after):
    told = Delta.between(before, after).diff
    changed = {
        name
        for name, read in EVERYTHING_READ.items()
        if have_changed({"t": read}, {"t": before}, {"t": after})
    }
    assert concerned(EXACT, told) == changed
    assert {name for name, read in EVERYTHING_READ.items() if told.touches(read)} == changed


@pytest.mark.parametrize("strategy", [EXACT, ARMS["A2D"]])
def test_another_policy_concerns_what_it_gave_and_what_anybody_may_have_given(strategy):
    forgetting = strategy.forgets(POLICIES, ("abc", "def"))
    assert forgetting.tags == {}
    concerned = {
        policy
        for policy in ("abc", "def", "ghi", None)
        if not set(forgetting.suspect).isdisjoint(strategy.files(entry_on({"k": ("x",)}, policy)).tags)
    }
    assert concerned == {"abc", "def", None}


texts = st.text(st.sampled_from([" ", ":", "1", "k"]), max_size=4)


@given(texts, texts, texts, texts)
def test_no_two_cells_share_a_tag(key, column, other_key, other_column):
    same = (key, column) == (other_key, other_column)
    assert (cell_tag("t", key, column) == cell_tag("t", other_key, other_column)) is same


def remembered(**changes):
    memory = Memory()
    memory.observe(said({"recovery_feedback": {"suggestions": [FIX | changes]}, **STAMPS}))
    return list(memory.store.entries())


@pytest.mark.spec("4.13")
def test_rows_without_cells_were_read_whole():
    [entry] = remembered(rows=["t:k", "t:a:b"])
    assert entry.grounds.cells == {"t": {"k": None, "a:b": None}}
    [entry] = remembered(rows=["t:k", "t"])
    assert entry.grounds.cells == {"t": None}
    assert entry.grounds.rows == ("t",)


def test_cells_without_rows_are_enough():
    suggestion = {name: value for name, value in FIX.items() if name != "rows"} | {
        "cells": {"t": {"k": ["x"]}}
    }
    memory = Memory()
    memory.observe(said({"recovery_feedback": {"suggestions": [suggestion]}, **STAMPS}))
    [entry] = memory.store.entries()
    assert entry.grounds.cells == {"t": {"k": ("x",)}}
    assert entry.grounds.rows == ("t:k",)


def test_where_neither_is_told_it_may_be_any_cell():
    suggestion = Suggestion(type="F", parameters={}, cache_hint="cacheable", table="t")
    entry = Entry.from_suggestion(suggestion, {}, root="http://h", operation="POST /x", learned_at=0.0)
    assert (entry.grounds.cells, entry.grounds.rows, entry.grounds.rests_on) == (None, None, {"t": None})


KEYS = [f"k{number}" for number in range(200)]
MANY_COLUMNS = {key: [str(number) for number in range(60)] for key in KEYS}
FIXES = [
    FIX | {"type": f"F_{key}", "rows": [f"t:{key}"], "cells": {"t": {key: ["other"]}}}
    for key in ("k7", "another")
]


def dropped_by_versions(**more):
    told = {"since": "1", "version": "2", "known": True, "added": [], "removed": [], "changed": KEYS}
    body = {"tables": {"t": told | more}, "table_versions": {"t": "2"}, "rules_version": "abc"}
    events = []
    memory = Memory(ask=lambda question: Reply(200, msgspec.json.encode(body)), on_event=events.append)
    memory.observe(said({"recovery_feedback": {"suggestions": FIXES}, **STAMPS}))
    memory.observe(said(STAMPS | {"table_versions": {"t": "2"}}))
    return [event.entry.type for event in events if isinstance(event, Evicted)]


def dropped_by_positions(**more):
    events = []
    memory = Memory(on_event=events.append)
    first = memory.contract_at("http://h")
    fixes = [compacted(msgspec.convert(fix, Suggestion), "abc") for fix in FIXES]
    body = {
        "recovery_feedback": {"suggestions": msgspec.to_builtins(fixes)},
        "at": {"to": "Aaaaaa1", "nonce": Named.from_header(first).nonce},
    }
    memory.observe(said(body)._replace(at=first))
    at = memory.contract_at("http://h")
    moved = {"tables": {"t": {"changed": KEYS, **more}}}
    memory.observe(said({"at": {"to": "Bbbbbb2", "from": at, "moved": moved}})._replace(at=at))
    assert memory.position("http://h") == "Bbbbbb2"
    return [event.entry.type for event in events if isinstance(event, Evicted)]


@pytest.mark.parametrize("dropped", [dropped_by_versions, dropped_by_positions])
def test_more_columns_than_can_be_gone_through_count_as_not_told(dropped):
    assert dropped() == ["F_k7"]
    assert dropped(columns={"k7": ["x"]}) == []
    assert dropped(columns=MANY_COLUMNS) == ["F_k7"]


def test_a_memory_keeps_what_read_another_column(address, provider, http):
    agent = Agent(address, http=http)
    learn(agent, FUNDING_1, CONTROL)
    token = provider.registry.rows("token_funding_map")["acme_pm_sepa_debit"]
    provider.registry.reload_table(
        "token_funding_map", set={"acme_pm_sepa_debit": token | {"funding": "credit"}}
    )
    agent.call(FREE)
    assert agent.of(Evicted) == []
    provider.registry.reload_table(
        "token_funding_map", set={"acme_pm_sepa_debit": token | {"currency": "chf"}}
    )
    agent.call(FREE)
    [evicted] = agent.of(Evicted)
    assert evicted.entry.grounds.cells == {"token_funding_map": {"acme_pm_sepa_debit": ("currency",)}}
    assert len(knows(agent, FUNDING_1)) == 1


columns = st.one_of(st.none(), st.lists(st.sampled_from(["x", "y"]), unique=True).map(sorted).map(tuple))
read = st.one_of(st.none(), st.dictionaries(st.sampled_from(["", "k", "l"]), columns))
cells = st.dictionaries(st.sampled_from(["t", "u"]), read)


@given(st.lists(cells, max_size=3), contents, contents)
def test_united_cells_change_when_one_of_them_does(every, before, after):
    worlds = ({"t": one, "u": {}} for one in (before, after))
    old, new = worlds
    assert have_changed(united(every), old, new) is any(have_changed(one, old, new) for one in every)


def test_rows_and_whole_cells_say_the_same():
    for rows in product(["t:k", "u"], ["t:l", "v:a:b"]):
        assert rows_of_cells(cells_of_rows(rows)) == rows
