"""Diffs and deltas: applied to the old they give the new, and composing equals comparing directly."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelflife.contract import same_json
from shelflife.contract.positions import MovedTable
from shelflife.server.delta import Delta
from tests.worlds import scalars, tables, values

X_OF_K_CHANGED = MovedTable(changed=("k",), columns={"k": ("x",)})


def moved_by(delta):
    """What a delta moves, as it goes on the wire."""
    return delta.diff


@given(tables, tables)
def test_a_delta_applied_to_the_old_content_gives_the_new(old, new):
    assert same_json(Delta.between(old, new).applied_to(old), new)


@given(tables, tables)
def test_a_diff_names_exactly_the_keys_that_differ(old, new):
    diff = Delta.between(old, new).diff
    assert set(diff.added) == new.keys() - old.keys()
    assert set(diff.removed) == old.keys() - new.keys()
    assert set(diff.changed) == {key for key in old.keys() & new.keys() if not same_json(old[key], new[key])}
    assert all(list(keys) == sorted(keys) for keys in (diff.added, diff.removed, diff.changed))


@given(tables, tables)
def test_a_diff_names_exactly_the_columns_that_differ(old, new):
    diff = Delta.between(old, new).diff
    assert list(diff.columns) == list(diff.changed)
    for key, columns in diff.columns.items():
        kept = {column for column in old[key].keys() & new[key].keys() if column not in columns}
        assert list(columns) == sorted((old[key].keys() | new[key].keys()) - kept)
        assert all(same_json(old[key][column], new[key][column]) for column in kept)
        assert not any(
            same_json(old[key][column], new[key][column])
            for column in columns
            if column in old[key] and column in new[key]
        )


@pytest.mark.parametrize(
    ("read", "is_touched"),
    [
        (None, True),
        ({}, False),
        ({"": ()}, True),
        ({"new": ()}, True),
        ({"old": ("y",)}, True),
        ({"k": ()}, False),
        ({"k": None}, True),
        ({"k": ("x", "y")}, True),
        ({"k": ("y", "z")}, False),
        ({"other": None, "unheard_of": ()}, False),
    ],
)
def test_what_has_moved_touches_the_cells_that_differ_and_no_others(read, is_touched):
    old = {"k": {"x": 1, "y": 1}, "old": {"y": 1}, "other": {"x": 1}}
    new = {"k": {"x": 2, "y": 1}, "new": {}, "other": {"x": 1}}
    assert moved_by(Delta.between(old, new)).touches(read) is is_touched


def test_what_has_moved_without_columns_touches_whatever_was_read_of_a_changed_row():
    moved = MovedTable(changed=("k",))
    assert moved.touches({"k": ("x",)})
    assert moved.touches({"k": None})
    assert not moved.touches({"k": (), "": (), "other": ("x",)})


@pytest.mark.parametrize("read", [None, {"": ()}, {"k": ()}, {"k": ("x",)}, {"k": None}])
def test_where_it_is_not_told_what_has_moved_all_is_touched_and_where_nothing_has_nothing_is(read):
    assert MovedTable(known=False).touches(read)
    assert not moved_by(Delta.between({"k": {}}, {"k": {}})).touches(read)


@given(st.lists(tables, min_size=2, max_size=6))
def test_the_oldest_and_the_newest_of_several_deltas_equal_the_direct_one(contents):
    before, after = {}, {}
    for delta in itertools.starmap(Delta.between, itertools.pairwise(contents)):
        before, after = {**delta.before, **before}, {**after, **delta.after}
    composed, direct = Delta.of(before, after), Delta.between(contents[0], contents[-1])
    assert composed.diff == direct.diff
    assert same_json(composed.after, direct.after)
    assert same_json(composed.before, direct.before)


@given(tables, tables, st.lists(st.sampled_from(["a", "b", "zz"]), unique=True))
def test_setting_and_removing_equals_comparing_with_the_outcome(old, rows, without):
    rows = {key: row for key, row in rows.items() if key not in without}
    outcome = {key: row for key, row in (old | rows).items() if key not in without}
    assert same_json(Delta.setting(old, rows, without).after, Delta.between(old, outcome).after)


@pytest.mark.spec("1.4")
@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), (1, True), (0, False), ("1", 1), (None, 0), ([1], [True]), ({"p": 1}, {"p": 1.0})],
)
def test_values_of_different_json_types_differ(one, other):
    assert not same_json({"x": one}, {"x": other})
    assert Delta.between({"k": {"x": one}}, {"k": {"x": other}}).diff == X_OF_K_CHANGED


@pytest.mark.spec("1.4")
def test_the_order_of_members_does_not_matter():
    one = {"x": 1, "y": {"p": 1, "q": 2}}
    other = {"y": {"q": 2, "p": 1}, "x": 1}
    assert same_json(one, other)
    assert not Delta.between({"k": one}, {"k": other})


@given(values, values)
def test_sameness_is_symmetric_and_agrees_with_equality_of_what_json_says(one, other):
    assert same_json(one, other) == same_json(other, one)
    if same_json(one, other):
        assert one == other


@given(scalars)
def test_a_value_is_the_same_as_itself(value):
    assert same_json({"x": [value]}, {"x": [value]})


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_cannot_carry_is_not_the_null_it_would_be_written_as(number):
    assert not same_json(number, None)
    assert not same_json({"x": [number]}, {"x": [None]})
    assert not same_json({"x": "null", "y": number}, {"x": "null", "y": None})
    assert Delta.between({"k": {"x": None}}, {"k": {"x": number}}).diff == X_OF_K_CHANGED
    assert same_json({"x": [None], "y": "null"}, {"y": "null", "x": [None]})


@pytest.mark.spec("1.4")
def test_whole_numbers_of_any_length_are_compared_to_the_last_digit():
    long = 10**4000
    assert same_json({"x": long}, {"x": 10**4000})
    assert not same_json({"x": long}, {"x": long + 1})
    assert not Delta.between({"k": {"x": long}}, {"k": {"x": 10**4000}})
    assert Delta.between({"k": {"x": 2**64}}, {"k": {"x": 2**64 + 1}}).diff == X_OF_K_CHANGED
