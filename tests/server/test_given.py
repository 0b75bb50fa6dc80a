"""What `when` and `unless` say is true of the request as the client has sent it, however a model reads it."""

import dataclasses
import datetime
import decimal
import enum
import json
import uuid
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    computed_field,
    model_validator,
)

from shelflife.contract.when import holds
from shelflife.server import Registry, fix
from shelflife.server.given import Given
from shelflife.server.policies import Policy, evaluate

STATE = Registry({"codes": {"x": {"code": "A"}}}).state


def suggested(policy, model, sent, *, altered=None):
    """What a policy suggests for what a client has sent and a model has read; None when it is content."""
    request = (
        model.model_validate(sent)
        if hasattr(model, "model_validate")
        else msgspec.convert(sent, model, strict=False)
    )
    if altered is not None:
        altered(request)
    asked = Given(request, json.dumps(sent).encode())
    found = evaluate([Policy.from_function(policy, None)], asked.fields, STATE, said=asked.said)
    return found[0].suggestion if found else None


def conditions(policy, model, sent, **more):
    suggestion = suggested(policy, model, sent, **more)
    return suggestion.when, suggestion.unless or {}


def reading(*names):
    """A policy that reads these fields, and always has something to say."""

    def policy(request, tables):
        seen = [request.get(name) for name in names]
        return fix("F", seen=str(seen), code=tables.codes["x"]["code"])

    return policy


class Colour(enum.Enum):
    RED = "red"


def with_field(kind: Any, **settings: Any) -> Any:
    """A model with one field, that may be left out."""
    return type("Model", (BaseModel,), {"__annotations__": {"v": kind}, "v": Field(None, **settings)})


@pytest.mark.spec("4.4", "4.14")
@pytest.mark.parametrize(
    ("kind", "sent", "seen"),
    [
        (float, 12, 12),
        (float, 12.0, 12.0),
        (float, "12", 12.0),
        (int, 12.0, 12),
        (int, "12", 12),
        (decimal.Decimal, 12.5, 12.5),
        (decimal.Decimal, 0.1, 0.1),
        (decimal.Decimal, "12.50", "12.50"),
        (bool, "true", True),
        (bool, 1, True),
        (datetime.datetime, "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00Z"),
        (datetime.timedelta, 90, "PT1M30S"),
        (uuid.UUID, "6BA7B810-9DAD-11D1-80B4-00C04FD430C8", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
        (Colour, "red", "red"),
        (Annotated[str, StringConstraints(strip_whitespace=True, to_upper=True)], " a ", "A"),
        (Annotated[list[str], BeforeValidator(lambda text: text.split(","))], "a,b", ["a", "b"]),
        (list[float], [1, 2], [1, 2]),
        (dict[str, float], {"a": 1}, "Request({'a': 1})"),
    ],
)
def test_a_policy_sees_what_was_read_and_a_client_is_told_what_was_sent(kind, sent, seen):
    suggestion = suggested(reading("v"), with_field(kind), {"v": sent})
    assert suggestion.parameters["seen"] in (str([seen]), f"[{seen}]")
    assert holds(suggestion.when, {"v": sent})
    assert list(suggestion.when) == ["v"]


class Order(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    plan: str
    promo_code: str | None = Field(None, alias="promoCode")
    express: bool = True
    tags: list[str] = Field(default_factory=list)


@pytest.mark.spec("4.14")
def test_a_field_has_all_its_names_when_it_is_absent():
    when, _ = conditions(reading("promoCode"), Order, {"plan": "a"})
    assert when == {"promoCode": None, "promo_code": None}


def test_a_field_is_told_by_the_name_that_the_client_has_used():
    when, _ = conditions(reading("promoCode"), Order, {"plan": "a", "promo_code": "M"})
    assert when == {"promoCode": None, "promo_code": "M"}


def test_a_field_that_must_not_have_a_value_must_not_have_it_by_any_name():
    def policy(request, tables):
        return None if request.equals("promoCode", tables.codes["x"]["code"]) else fix("F", other=1)

    assert conditions(policy, Order, {"plan": "a"}) == ({}, {"promoCode": ("A",), "promo_code": ("A",)})


@pytest.mark.spec("4.12")
def test_a_field_that_is_there_is_there_by_the_name_that_the_client_has_used():
    def policy(request, tables):
        return fix("F", a=tables.codes["x"]["code"]) if "promoCode" in request else None

    when, unless = conditions(policy, Order, {"plan": "a", "promo_code": "M"})
    assert (when, unless) == ({}, {"promo_code": (None,)})


@pytest.mark.spec("4.14")
def test_policies_see_defaults_and_clients_are_told_that_nothing_was_sent():
    suggestion = suggested(reading("express", "tags"), Order, {"plan": "a"})
    assert suggestion.parameters["seen"] == "[True, []]"
    assert suggestion.when == {"express": None, "tags": None}


def test_a_default_is_not_taken_for_something_that_was_sent():
    def policy(request, tables):
        return fix("F", a=tables.codes["x"]["code"]) if "express" in request else None

    assert conditions(policy, Order, {"plan": "a"}) == ({"express": None}, {})


def test_a_default_that_may_be_another_next_time_is_never_recalled():
    class Stamped(BaseModel):
        on: str = Field(default_factory=lambda: str(datetime.date.today()))

    when, _ = conditions(reading("on"), Stamped, {})
    assert when == {"": {}}


def test_a_field_is_found_by_each_of_its_choices_and_inside_of_others():
    class Chosen(BaseModel):
        code: str | None = Field(None, validation_alias=AliasChoices("code", AliasPath("promo", "code")))
        first: str | None = Field(None, validation_alias=AliasPath("names", 0))

    sent = {"promo": {"code": "B", "x": 1}, "names": ["a", "b"]}
    when, _ = conditions(reading("code", "first"), Chosen, sent)
    assert when == {"code": None, "promo/code": "B", "names": ["a", "b"]}


def test_a_name_that_is_only_for_reading_is_the_name_on_the_wire():
    class Read(BaseModel):
        code: str | None = Field(None, validation_alias="promoCode", serialization_alias="out")

    suggestion = suggested(reading("promoCode"), Read, {"promoCode": "M"})
    assert (suggestion.parameters["seen"], suggestion.when) == ("['M']", {"promoCode": "M"})


class Address(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    post_code: str = Field("0", alias="zip")


class Parcel(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    ship_to: Address = Field(alias="shipTo", default=Address())
    lines: list[Address] = []


def of_address(request, tables):
    return fix("F", seen=request["shipTo"]["zip"], code=tables.codes["x"]["code"])


@pytest.mark.spec("4.5")
@pytest.mark.parametrize(
    ("sent", "when"),
    [
        ({"shipTo": {"zip": "1"}}, {"ship_to": None, "shipTo/zip": "1", "shipTo/post_code": None}),
        ({"ship_to": {"post_code": "1"}}, {"shipTo": None, "ship_to/zip": None, "ship_to/post_code": "1"}),
        ({"ship_to": {}}, {"shipTo": None, "ship_to": {}, "ship_to/zip": None, "ship_to/post_code": None}),
        ({}, {"shipTo": None, "ship_to": None}),
    ],
)
def test_models_inside_of_models_have_names_of_their_own(sent, when):
    found, _ = conditions(of_address, Parcel, sent)
    assert found == when
    assert holds(found, sent)


def test_lists_of_models_are_seen_by_the_names_on_the_wire():
    sent = {"lines": [{"post_code": "1"}]}
    suggestion = suggested(reading("lines"), Parcel, sent)
    assert suggestion.parameters["seen"] == "[[{'zip': '1'}]]"
    assert suggestion.when == {"lines": [{"post_code": "1"}]}


class Upper(BaseModel):
    plan: Annotated[str, StringConstraints(to_upper=True)] = ""
    region: str = ""
    kind: Literal["a", "b"] = "a"
    seats: int = 1
    other: int = 0


def unlike(name, value, **parameters):
    def policy(request, tables):
        return (
            fix("F", **parameters, code=tables.codes["x"]["code"])
            if not request.equals(name, value)
            else None
        )

    return policy


@pytest.mark.spec("4.9", "4.14")
@pytest.mark.parametrize(
    ("name", "value", "sent", "expected"),
    [
        ("plan", "PRO", {"plan": "basic"}, ({"plan": "basic"}, {})),  # "pro" is read as "PRO" too
        ("seats", 2, {"seats": 1}, ({"seats": 1}, {})),  # and "2" as 2
        ("region", "EU", {"region": "US"}, ({}, {"region": ("EU",)})),
        ("kind", "b", {"kind": "a"}, ({}, {"kind": ("b",)})),
        ("region", "EU", {}, ({}, {"region": ("EU",)})),
    ],
)
def test_a_fix_holds_for_all_values_but_one_only_where_nothing_else_is_read_as_that(
    name, value, sent, expected
):
    assert conditions(unlike(name, value, other=1), Upper, sent) == expected


@pytest.mark.spec("4.14")
def test_a_fix_that_only_sets_the_field_holds_for_all_values_but_one_however_they_are_read():
    def policy(request, tables):
        return fix("F", seats=2) if "x" in tables.codes and not request.equals("seats", 2) else None

    assert conditions(policy, Upper, {"seats": 1}) == ({}, {"seats": (2,)})
    assert conditions(policy, Upper, {}) == ({}, {"seats": (2,)})


def test_a_model_that_is_reshaped_as_a_whole_counts_as_a_whole():
    class Legacy(BaseModel):
        plan: str = ""

        @model_validator(mode="before")
        @classmethod
        def reshaped(cls, sent: Any) -> Any:
            return {"plan": sent.get("tariff", sent.get("plan", ""))}

    for sent in ({"tariff": "a", "n": 1}, {"plan": "a", "n": 1}):
        assert conditions(reading("plan"), Legacy, sent) == ({"": sent}, {})


def test_a_validator_that_only_checks_the_whole_does_not_count():
    class Span(BaseModel):
        first: int = 0
        last: int = 0

        @model_validator(mode="after")
        def in_order(self) -> "Span":
            if self.first > self.last:
                self.first = self.last
            return self

    assert conditions(reading("first"), Span, {"first": 1, "last": 2}) == ({"first": 1}, {})
    assert conditions(reading("first"), Span, {"first": 3, "last": 2}) == ({"": {"first": 3, "last": 2}}, {})


def test_what_is_worked_out_from_fields_rests_on_the_whole_request():
    class Priced(BaseModel):
        count: int

        @computed_field
        def total(self) -> int:
            return self.count * 2

    assert conditions(reading("total"), Priced, {"count": 2}) == ({"": {"count": 2}}, {})


def test_what_the_handler_has_put_there_is_not_taken_for_what_was_sent():
    def own_account(request):
        request.plan = "of the account"

    when, _ = conditions(reading("plan"), Order, {"plan": "a"}, altered=own_account)
    assert when == {"plan": "of the account"}


def test_no_secret_is_told():
    class Login(BaseModel):
        password: SecretStr

    assert conditions(reading("password"), Login, {"password": "hunter2"}) == ({"password": "**********"}, {})


@dataclasses.dataclass
class OrderData:
    v: float
    on: datetime.datetime | None = None
    express: bool = True


class OrderStruct(msgspec.Struct, rename="camel"):
    v: decimal.Decimal
    is_express: bool = True


def test_dataclasses_and_structs_are_told_as_they_were_sent_too():
    sent = {"v": 12, "on": "2026-01-01T00:00:00+00:00"}
    suggestion = suggested(reading("v", "on", "express"), OrderData, sent)
    assert suggestion.parameters["seen"] == "[12, '2026-01-01T00:00:00Z', True]"
    assert suggestion.when == {**sent, "express": None}
    suggestion = suggested(reading("v", "isExpress"), OrderStruct, {"v": 12.5})
    assert suggestion.parameters["seen"] == "[12.5, True]"
    assert suggestion.when == {"v": 12.5, "isExpress": None}


def test_a_dictionary_that_a_framework_has_read_is_told_as_it_was_sent():
    read = {"v": 12.0, "id": uuid.UUID(int=5), "price": decimal.Decimal("1.5"), "n": 3}
    asked = Given(read, b'{"v": 12, "id": "00000000000000000000000000000005", "price": 1.5, "n": 3}')
    when, _ = asked.said(dict(read), {}, {})
    assert when == {"v": 12, "id": "00000000000000000000000000000005", "price": 1.5, "n": 3}


def test_a_body_that_is_not_what_was_checked_says_nothing():
    for body in (b"", b"[1]", b"{", b'{"plan": 5}', b'{"wanted": {"plan": "a"}}', b"\xff"):
        when, _ = Given(Order(plan="a"), body).said({"plan": "a"}, {}, {})
        assert when == {"plan": "a"}


def test_what_a_memory_has_put_in_is_taken_out_of_what_was_sent():
    asked = Given(Order(plan="a", promoCode="A"), b'{"plan": "a", "promo_code": "A"}')
    before = asked.without({"promo_code": None})
    assert before.fields == {"plan": "a", "promoCode": None, "express": True, "tags": []}
    of_the_handler = Given(Order(plan="b", promoCode="A"), b'{"plan": "a", "promoCode": "A"}')
    assert of_the_handler.without({"promoCode": None}).fields["plan"] == "b"


NAMES = ("plan", "promoCode", "express", "weight", "seats", "ship", "nobody")
VALUES = {
    "plan": st.sampled_from(["pro", "PRO", "basic"]),
    "promoCode": st.sampled_from(["A", "B"]),
    "promo_code": st.sampled_from(["A", "B"]),
    "express": st.sampled_from([True, False, "true", "no", 1]),
    "weight": st.sampled_from([12, 12.0, "12", 5]),
    "seats": st.sampled_from([1, 1.0, "1", 2]),
    "ship": st.fixed_dictionaries({}, optional={"zip": st.sampled_from(["1", "2"]), "code": st.just("1")}),
    "nobody": st.just(1),
}


class Ship(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    code: str | None = Field("1", alias="zip")


class Everything(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    plan: Annotated[str, StringConstraints(to_upper=True)] = "BASIC"
    promo_code: str | None = Field(None, alias="promoCode")
    express: bool = True
    weight: float = 12
    seats: int = 1
    ship: Ship = Ship()


def looking(steps):
    """A policy that takes these looks at a request, and whose fix tells what it has seen."""

    def policy(request, tables):
        seen = []
        for how, name, value in steps:
            if how == "get":
                found = request.get(name)
                seen.append(found.get("zip") if name == "ship" and found else repr(found))
            elif how == "in":
                seen.append(name in request)
            else:
                seen.append(request.equals(name, value))
        return fix("F", seen=str(seen), code=tables.codes["x"]["code"])

    return policy


requests = st.fixed_dictionaries({}, optional=VALUES)
looks = st.lists(
    st.tuples(
        st.sampled_from(["get", "in", "equals"]),
        st.sampled_from(NAMES),
        st.sampled_from(["PRO", "A", True, 12, 12.0, 1, "1"]),
    ),
    min_size=1,
    max_size=3,
)


@pytest.mark.spec("4.6")
@settings(max_examples=200, deadline=None)
@given(sent=requests, others=st.lists(requests, max_size=12), steps=looks)
def test_a_fix_holds_for_the_request_that_was_sent_and_for_no_request_that_would_get_another(
    sent, others, steps
):
    policy = looking(steps)
    suggestion = suggested(policy, Everything, sent)
    assert holds(suggestion.when, sent, suggestion.unless or {})
    for other in others:
        if holds(suggestion.when, other, suggestion.unless or {}):
            assert suggested(policy, Everything, other).parameters == suggestion.parameters
