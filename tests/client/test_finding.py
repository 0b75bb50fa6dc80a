"""What a request finds by what it says: the same as by its place, and nothing that does not hold for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelflife.client import Condition, InProcessStore, Knowledge, Memory, SqliteStore, Write
from shelflife.client.entries import place_at
from shelflife.client.finding import ByShape, Found, holding, place_in, watched_by
from shelflife.contract.when import holds
from tests.client.entries import ORIGIN, entry, put

SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([1.0, -0.0, "", "1", "{", "é"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
)
REQUESTS = st.dictionaries(st.sampled_from(["a", "b", "a/b", "~"]), VALUES, max_size=3)
SHAPES = st.lists(st.sampled_from(["", "a", "b", "a/b", "a~1b", "~0"]), unique=True, max_size=3).map(
    lambda paths: tuple(sorted(paths))
)


@given(one=REQUESTS, other=REQUESTS, shape=SHAPES)
def test_two_requests_have_the_same_key_exactly_when_they_have_the_same_place(one, other, shape):
    by_shape = ByShape(shape)
    places = [place_in(request, ORIGIN, "POST /x", shape) for request in (one, other)]
    assert (by_shape.key_in(one) == by_shape.key_in(other)) == (places[0] == places[1])
    keys = [by_shape.key_in(request) for request in (one, other)]
    assert [place_at(ORIGIN, "POST /x", shape, key).hex() for key in keys] == places


@given(request=REQUESTS, when=st.dictionaries(st.sampled_from(["a", "b", "a/b"]), VALUES, max_size=2))
def test_an_entry_has_the_key_of_the_requests_that_it_is_for(request, when):
    one = entry(when=when)
    by_shape = ByShape(one.condition.shape)
    assert (by_shape.key_of(one) == by_shape.key_in(request)) == holds(when, request)
    assert (one.place == place_in(request, ORIGIN, "POST /x", by_shape.shape)) == holds(when, request)


@given(
    request=REQUESTS,
    unless=st.dictionaries(
        st.sampled_from(["", "a", "b", "a/b"]), st.lists(VALUES, max_size=2).map(tuple), max_size=2
    ),
)
def test_what_bars_an_entry_is_seen_wherever_it_stands_in_the_request(request, unless):
    one = entry(condition=Condition({}, unless))
    assert bool(holding([Found(one, watched_by(one))], request)) == holds({}, request, unless)


@pytest.mark.parametrize("kind", ["in process", "SQLite"])
def test_the_entry_that_was_not_recalled_for_the_longest_time_leaves_first(kind, tmp_path):
    store = InProcessStore() if kind == "in process" else SqliteStore(tmp_path / "memory.db")
    memory = Memory(store)
    store.write(ORIGIN, 0, Write(Knowledge(strategy="exact")))
    put(store, *(entry(plan) for plan in "abc"))
    for plan in "ac":
        assert memory.recall(ORIGIN, "POST /x", {"plan": plan})
    left = [put(store, entry(plan), capacity=3).trimmed for plan in "def"]
    assert [one.condition.when["plan"] for (one,) in left] == ["b", "a", "c"]


def test_a_use_is_on_record_once_the_file_is_closed(tmp_path):
    store = SqliteStore(tmp_path / "memory.db")
    put(store, entry("a"), entry("b"))
    store.used(ORIGIN, [entry("a").id])
    store.close()
    (left,) = put(SqliteStore(tmp_path / "memory.db"), entry("c"), capacity=2).trimmed
    assert left == entry("b")


def test_what_was_found_is_not_kept_once_another_has_written(tmp_path):
    path = tmp_path / "memory.db"
    ours, theirs = SqliteStore(path), SqliteStore(path)
    put(ours, entry(value="P1"))
    assert [one.entry for one in ours.find(ORIGIN, "POST /x", {"plan": "basic"})[1]] == [entry(value="P1")]
    put(theirs, entry(value="P2"))
    assert [one.entry for one in ours.find(ORIGIN, "POST /x", {"plan": "basic"})[1]] == [entry(value="P2")]
    put(theirs, entry("other", operation="POST /y"))
    put(ours, entry(value="P3"))
    assert [one.entry for one in ours.find(ORIGIN, "POST /x", {"plan": "basic"})[1]] == [entry(value="P3")]


def test_what_another_has_confirmed_is_found_at_once_also_where_nothing_was_kept_for_one_of_two_shapes(
    tmp_path,
):
    path = tmp_path / "memory.db"
    ours, theirs = SqliteStore(path), SqliteStore(path)
    shapes = {("one",): "one", ("other",): "other"}
    put(ours, *[entry(when={name: "elsewhere"}) for name in shapes.values()])
    first, second = [shapes[shape] for shape in ours.shapes(ORIGIN, "POST /x")]
    assert ours.find(ORIGIN, "POST /x", {first: "here", second: 1})[1] == []
    confirmed = entry(when={first: "here"})
    put(theirs, confirmed)
    assert [one.entry for one in ours.find(ORIGIN, "POST /x", {first: "here", second: 2})[1]] == [confirmed]
    ours.close()
    theirs.close()
