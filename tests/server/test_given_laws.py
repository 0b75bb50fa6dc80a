"""No fix is recalled for a request that would get another, however a model reads it."""

from enum import StrEnum
from functools import cached_property

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationError

from shelflife.contract.when import holds
from shelflife.server import Provider, fix
from shelflife.server.given import Given, at_first_sight
from shelflife.server.models import Reader, plain_fields, pydantic_model_of, seen_of
from shelflife.server.operations import Operation
from shelflife.server.pins import Pin
from shelflife.server.reads import Request
from tests.server.request_models import KINDS, suggested

PROVIDER = Provider({"codes": {}})
NAMES = ("plan", "promoCode", "express", "weight", "seats", "ship", "ships", "code", "total", "nobody")
SHIPS = st.fixed_dictionaries(
    {},
    optional={
        "zip": st.sampled_from(["1", "2", None]),
        "code": st.sampled_from(["1", "A", None]),
        "seats": st.sampled_from([1, 2, None]),
        "plan": st.sampled_from(["PRO", "A"]),
        "ship": st.sampled_from([{}, {"zip": None}, {"weight": 5}, None]),
    },
)
VALUES = {
    "plan": st.sampled_from(["pro", "PRO", "basic", "", None]),
    "tariff": st.sampled_from(["pro", None]),
    "promoCode": st.sampled_from(["A", "B", None]),
    "promo_code": st.sampled_from(["A", "B", None]),
    "code": st.sampled_from(["A", "1", "", None]),
    "express": st.sampled_from([True, False, "true", "no", 1]),
    "weight": st.sampled_from([12, 12.0, "12", 5, None]),
    "seats": st.sampled_from([1, 1.0, "1", 2, 9, None]),
    "total": st.sampled_from([2, 4, None]),
    "ship": st.none() | SHIPS,
    "ships": st.lists(SHIPS, max_size=2),
    "nobody": st.sampled_from([1, None]),
}


def looking(steps):
    """A policy that takes these looks at a request, and whose fix tells what it has seen."""

    def policy(request, tables):
        seen = []
        for how, name, value in steps:
            at = request.get("ship", {}) if how.startswith("ship") else request
            if how == "all":
                seen.append(repr(request))
            elif how.endswith("get"):
                seen.append(repr(at.get(name)))
            elif how.endswith("in"):
                seen.append(name in at)
            else:
                seen.append(at.equals(name, value) if at else "no ship")
        return fix("F", seen=str(seen), code=tables.codes["x"]["code"])

    return policy


requests = st.fixed_dictionaries({}, optional=VALUES)
looks = st.lists(
    st.tuples(
        st.sampled_from(["get", "in", "equals", "ship get", "ship in", "ship equals", "all"]),
        st.sampled_from((*NAMES, "zip")),
        st.sampled_from(["PRO", "A", True, 12, 12.0, 1, "1"]),
    ),
    min_size=1,
    max_size=3,
)


def with_nulls(sent):
    """What counts as the same, with one null more or less."""
    for name in VALUES:
        if sent.get(name) is None:
            yield {**sent, name: None}
            yield {other: value for other, value in sent.items() if other != name}


@pytest.mark.spec("4.6")
@given(kind=st.sampled_from(KINDS), sent=requests, others=st.lists(requests, max_size=12), steps=looks)
def test_a_fix_holds_for_the_request_that_was_sent_and_for_no_request_that_would_get_another(
    kind, sent, others, steps
):
    policy = looking(steps)
    try:
        suggestion = suggested(policy, kind, sent)
    except (ValidationError, msgspec.ValidationError):
        return
    if suggestion.cache_hint == "recompute":
        return
    assert holds(suggestion.when, sent, suggestion.unless or {})
    changed = ({**sent, name: other[name]} for other in others for name in other)
    for other in (*others, *changed, *with_nulls(sent)):
        if holds(suggestion.when, other, suggestion.unless or {}):
            try:
                again = suggested(policy, kind, other)
            except (ValidationError, msgspec.ValidationError):
                continue  # no policy sees it
            assert again.parameters == suggestion.parameters


class Plain(BaseModel):
    plan: str | None = Field(None, alias="tariff")
    seats: int | float = 1
    express: bool = False


@given(st.sampled_from([*KINDS, Plain]), requests)
def test_what_is_seen_without_a_look_at_the_body_is_what_is_seen_with_one(kind, sent):
    is_of_pydantic = hasattr(kind, "__pydantic_validator__")
    reader = Reader.of_pydantic(kind) if is_of_pydantic else Reader.of_msgspec(kind)
    read = reader.read(sent)
    assume(read is not None)
    plain = plain_fields(read, reader.model)
    assert pydantic_model_of(kind) is None or plain_fields(read, pydantic_model_of(kind)) == plain
    assert plain is None or list(plain.items()) == list(seen_of(read, sent, reader.model).items())


def test_a_model_of_texts_and_whole_numbers_is_seen_without_a_look_at_the_body():
    model = Reader.of_pydantic(Plain).model
    assert plain_fields(Plain(tariff="pro", seats=2), model) == {
        "tariff": "pro",
        "seats": 2,
        "express": False,
    }
    assert plain_fields(Plain(tariff="pro", seats=2.0), model) is None


class Named(BaseModel):
    plan: str | None = None
    seats: int | float = 1

    @cached_property
    def price(self):
        return self.seats * 3


class Spelled(StrEnum):
    PLAN = "plan"


class Unhashable(str):
    """Python takes the hash from a class that has an equality of its own."""

    def __eq__(self, other):
        return str(self) == other


def at_first(request, reader, sent):
    PROVIDER.be_ready()
    pin = Pin()
    pin.shown, pin.find = PROVIDER.usual(), lambda: Operation.from_name("POST /orders", body=reader)
    pin.body = msgspec.json.encode(sent)
    return at_first_sight(request, pin)


def told_by(seen, name):
    """What each way of reading a field tells."""
    try:
        there = seen[name]
    except KeyError as error:
        there = repr(error)
    return repr((there, seen.get(name), seen.get(name, "none"), name in seen, seen.equals(name, "pro")))


@given(
    st.sampled_from([*KINDS, Plain, Named, dict]),
    requests,
    st.permutations([*NAMES, "tariff", "price", "", 1, None, Spelled.PLAN, Unhashable("plan"), []]),
    st.booleans(),
)
def test_what_policies_see_of_a_request_at_first_is_what_they_see_when_it_was_looked_into(
    kind, sent, names, is_odd
):
    is_of_msgspec = issubclass(kind, msgspec.Struct)
    reader = Reader.of_msgspec(kind) if is_of_msgspec else Reader.of_pydantic(kind)
    read = reader.read(sent)
    assume(read is not None)
    if is_odd and kind is Named:
        _ = read.price  # which is kept beside the fields
    elif is_odd and issubclass(kind, BaseModel):
        read = kind.model_construct(**{name: value for name, value in sent.items() if name != "plan"})
    seen = at_first(read, reader, sent)
    assume(seen is not None)
    fields = Given(read, msgspec.json.encode(sent), lambda: reader).fields
    assert [told_by(seen, name) for name in names] == [told_by(Request(fields), name) for name in names]
    assert repr(seen) == repr(Request(fields))
    assert dict(seen) == dict(Request(fields))
    assert type(seen).__name__ == "Request"


def test_a_model_of_plain_values_by_their_names_on_the_wire_is_seen_as_it_is_kept():
    reader = Reader.of_pydantic(Named)
    named = reader.read({"plan": "pro", "seats": 2.5})
    assert at_first(named, reader, {})["plan"] == "pro"
    assert at_first(Plain(tariff="pro"), Reader.of_pydantic(Plain), {}) is None
    assert at_first([], reader, {}) is None
