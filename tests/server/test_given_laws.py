"""No fix is recalled for a request that would get another, however a model reads it."""

from functools import cached_property

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationError

from shelflife.contract.when import holds
from shelflife.server import fix
from shelflife.server.models import Reader, own_fields, plain_fields, pydantic_model_of, seen_of
from tests.server.request_models import KINDS, suggested

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
@settings(max_examples=200, deadline=None)
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


@given(st.sampled_from([*KINDS, Plain, Named]), requests)
def test_what_a_model_keeps_is_shown_only_where_it_is_what_is_seen(kind, sent):
    is_of_pydantic = hasattr(kind, "__pydantic_validator__")
    reader = Reader.of_pydantic(kind) if is_of_pydantic else Reader.of_msgspec(kind)
    read = reader.read(sent)
    assume(read is not None)
    own = own_fields(read)
    assert own is None or list(own.items()) == list(seen_of(read, sent, reader.model).items())


def test_a_model_that_keeps_just_its_fields_by_their_names_on_the_wire_is_not_copied():
    named = Named(plan="pro", seats=2)
    assert own_fields(named) is named.__dict__
    assert named.price == 6  # which is kept beside the fields
    assert own_fields(named) is None
    assert own_fields(Named(seats=2.5)) is None
    assert own_fields(Named.model_construct(plan="pro")) == {"plan": "pro", "seats": 1}
    assert own_fields(Plain(tariff="pro")) is None
