"""What JSON can carry."""

import decimal
import enum
import json
import math
from types import MappingProxyType

import msgspec
import pytest
from hypothesis import assume, example, given

from shelflife.contract.names import shown
from shelflife.contract.values import DEEPEST_VALUE, Fault, fault_in, same_json
from shelflife.contract.when import as_read, holds
from shelflife.server.policies import fault_of_request
from tests.contract.odd_values import odd


def nested(levels, inner=1):
    for _ in range(levels):
        inner = [inner]
    return inner


class Colour(enum.StrEnum):
    RED = "red"


class Plain(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        1,
        -1.5,
        "é🙂",
        [],
        {},
        {"a": [{"b": None}]},
        (1, 2),
        2**64,
        -(2**63) - 1,
        10**4299,
        Colour.RED,
    ],
)
def test_what_json_can_carry_has_no_fault(value):
    assert fault_in(value, 4) is None
    assert fault_in(value, 4, is_strict=True) is None


@pytest.mark.parametrize(
    ("value", "path", "what"),
    [
        ({"a": math.nan}, ("a",), "holds a number that JSON cannot carry: NaN"),
        ({"a": [1, -math.inf]}, ("a", "1"), "holds a number that JSON cannot carry: infinity"),
        ({"a": 10**4300}, ("a",), "holds a number that JSON cannot carry: one of more than 4300 digits"),
        ({"a": -(10**4300)}, ("a",), "holds a number that JSON cannot carry: one of more than 4300 digits"),
        ({"a": {"b": "\ud800"}}, ("a", "b"), "holds text that is not valid Unicode"),
        ({"a": {"\udfff": 1}}, ("a", "\udfff"), "has a name that is not valid Unicode"),
        ({"a": {math.nan}}, ("a", "0"), "holds a number that JSON cannot carry: NaN"),
        (MappingProxyType({"a": math.nan}), ("a",), "holds a number that JSON cannot carry: NaN"),
        (nested(6), ("0",) * 5, "is nested deeper than 4 levels"),
    ],
)
def test_what_it_cannot_carry_is_told_with_its_place(value, path, what):
    assert fault_in(value, 4) == Fault(path, what)


@pytest.mark.parametrize("value", [decimal.Decimal(12), b"12", {1}, Plain.RED, object(), {1: 2}, {None: 1}])
def test_types_that_json_does_not_know_are_faults_only_to_the_strict(value):
    assert fault_in({"a": value}, 4) is None
    assert fault_in({"a": value}, 4, is_strict=True) is not None


def test_a_value_that_holds_itself_is_nested_too_deeply():
    ring = []
    ring.append(ring)
    assert fault_in(ring, 4).what == "is nested deeper than 4 levels"


def test_the_sentence_about_a_request_names_the_field():
    assert (
        fault_of_request({"m": 1, "n": math.nan}) == "the field n holds a number that JSON cannot carry: NaN"
    )
    assert fault_of_request({"n": nested(DEEPEST_VALUE)}) is None
    assert fault_of_request({"n": nested(DEEPEST_VALUE + 1)}) == "the field n is nested deeper than 32 levels"
    assert fault_of_request({"two words": "\ud800"}).startswith("the field 'two words' holds text")
    sentence = fault_of_request({"\ud800" * 100: 1})
    assert sentence.isascii() or "…" in sentence
    assert len(sentence) < 200


@given(odd)
def test_what_has_no_fault_is_the_same_at_both_ends_of_the_wire(value):
    """Python's own JSON is the judge."""
    fault = fault_in(value, DEEPEST_VALUE, is_strict=True)
    try:
        carried = json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        assert fault is not None
        return
    assert fault is None
    assert msgspec.json.decode(carried) == json.loads(carried) == value
    assert msgspec.json.decode(msgspec.json.encode(value)) == value


@given(odd, odd)
@example(1, 1.0)
@example(True, 1)
@example([0], [False])
@example({"a": -0.0}, {"a": 0.0})
def test_a_condition_holds_for_the_same_json_and_no_other(one, other):
    assume(fault_in([one, other], DEEPEST_VALUE) is None)
    is_same = same_json(as_read(one), as_read(other))
    assert holds({"f": one}, {"f": other}) is is_same
    assert holds({}, {"f": other}, {"f": [one]}) is not is_same


def test_whatever_cannot_be_printed_is_shown_by_its_type():
    assert shown(10**5000) == "a value of type int"
    assert shown(nested(100_000)) == "a value of type list"
