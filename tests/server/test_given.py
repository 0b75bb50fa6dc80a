"""What `when` and `unless` say is true of the request as the client has sent it, however a model reads it."""

import dataclasses
import datetime
import decimal
import enum
import logging
import uuid
from typing import Annotated, Any, Literal

import msgspec
import pytest
from pydantic import (
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    model_validator,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass

from shelflife.contract.when import holds
from shelflife.server import fix
from shelflife.server.given import Given
from shelflife.server.models import Reader
from tests.server.request_models import (
    Capped,
    Chosen,
    Data,
    EmptyIsNothing,
    Legacy,
    Priced,
    Shown,
    Span,
    suggested,
)


def conditions(policy, model, sent, **more):
    suggestion = suggested(policy, model, sent, **more)
    assert suggestion.cache_hint == "cacheable"
    return suggestion.when, suggestion.unless or {}


def is_never_kept(policy, model, sent):
    suggestion = suggested(policy, model, sent)
    return (suggestion.cache_hint, suggestion.when) == ("recompute", msgspec.UNSET)


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


class Named(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    ship_by: str = Field("post", alias="shipBy")


def test_a_field_is_told_by_the_name_that_the_client_has_used():
    when, _ = conditions(reading("shipBy"), Named, {"ship_by": "air"})
    assert when == {"shipBy": None, "ship_by": "air"}


def test_a_field_whose_first_name_may_be_null_is_told_by_that_alone():
    assert conditions(reading("promoCode"), Order, {"plan": "a", "promoCode": "M"})[0] == {"promoCode": "M"}
    # {"promoCode": null, "promo_code": "M"} has no promo, and nobody could tell it from this
    assert is_never_kept(reading("promoCode"), Order, {"plan": "a", "promo_code": "M"})


def test_a_field_that_must_not_have_a_value_must_not_have_it_by_any_name():
    def policy(request, tables):
        return None if request.equals("promoCode", tables.codes["x"]["code"]) else fix("F", other=1)

    assert conditions(policy, Order, {"plan": "a"}) == ({}, {"promoCode": ("A",), "promo_code": ("A",)})


@pytest.mark.spec("4.12")
def test_a_field_that_is_there_is_there_by_the_name_that_the_client_has_used():
    def policy(request, tables):
        return fix("F", a=tables.codes["x"]["code"]) if "shipBy" in request else None

    assert conditions(policy, Named, {"ship_by": "M"}) == ({}, {"ship_by": (None,)})


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

    class Around(BaseModel):
        inner: Stamped = Stamped()

    assert is_never_kept(reading("on"), Stamped, {})
    assert is_never_kept(reading("inner"), Around, {"inner": {}})
    assert conditions(reading("on"), Stamped, {"on": "today"}) == ({"on": "today"}, {})


def test_a_field_that_is_found_inside_of_others_is_never_kept():
    class First(BaseModel):
        first: str | None = Field(None, validation_alias=AliasPath("names", 0))
        plan: str = ""

    sent = {"names": ["a", "b"], "plan": "p"}
    assert is_never_kept(reading("first"), First, sent)
    assert conditions(reading("plan"), First, sent) == ({"plan": "p"}, {})
    assert is_never_kept(reading("code"), Chosen, {"promo": {"code": "B"}})


def test_a_default_that_is_compared_is_not_taken_for_another_value():
    class Shipped(BaseModel):
        region: str = "EU"

    when = {"region": "US"}  # for {} the policy is content
    assert conditions(unlike("region", "EU", other=1), Shipped, when) == (when, {})


@pytest.mark.spec("4.12")
def test_a_field_that_may_be_read_as_nothing_is_not_just_there():
    def policy(request, tables):
        return fix("F", a=tables.codes["x"]["code"]) if "code" in request else None

    assert conditions(policy, EmptyIsNothing, {"code": "M"}) == ({"code": "M"}, {})


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
        ({"shipTo": {"zip": "1"}}, {"shipTo/zip": "1"}),
        ({"ship_to": {"post_code": "1"}}, {"shipTo": None, "ship_to/zip": None, "ship_to/post_code": "1"}),
        ({"ship_to": {}}, {"shipTo": None, "ship_to/zip": None, "ship_to/post_code": None}),
        ({}, {"shipTo": None, "ship_to": None}),
    ],
)
def test_models_inside_of_models_have_names_of_their_own(sent, when):
    found, _ = conditions(of_address, Parcel, sent)
    assert found == when
    assert holds(found, sent)


@pytest.mark.parametrize(
    ("sent", "when", "unless"),
    [
        ({"zip": "1", "name": "Ada"}, {}, {"shipTo": (None,), "shipTo/zip": ("9",)}),
        ({"name": "Ada"}, {}, {"shipTo": (None,), "shipTo/zip": ("9",)}),
        ({}, {}, {"shipTo": (None,), "shipTo/zip": ("9",)}),
    ],
)
def test_to_compare_inside_of_a_model_counts_no_more_than_that(sent, when, unless):
    class Home(BaseModel):
        zip: str = "0"
        name: str = "nobody"

    class Sent(BaseModel):
        ship_to: Home = Field(Home(zip="9"), alias="shipTo")

    def policy(request, tables):
        is_same = request["shipTo"].equals("zip", "9")
        return None if is_same else fix("F", code=tables.codes["x"]["code"])

    found = conditions(policy, Sent, {"shipTo": sent})
    assert found[0] == when
    assert {at: set(values) for at, values in found[1].items()} == {
        at: set(values) for at, values in unless.items()
    }
    assert not holds(found[0], {}, found[1])  # there the zip is 9


def test_a_default_inside_of_a_model_counts_no_more_than_that():
    class Home(BaseModel):
        zip: str = "0"
        name: str = "nobody"

    class Sent(BaseModel):
        home: Home = Home(zip="9")

    def policy(request, tables):
        return fix("F", seen=request["home"]["zip"], code=tables.codes["x"]["code"])

    for sent in ({"name": "Ada"}, {}):
        assert conditions(policy, Sent, {"home": sent}) == ({"home/zip": None}, {"home": (None,)})


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


def test_a_model_with_code_that_sees_what_was_sent_is_never_kept(caplog):
    for sent in ({"tariff": "a", "n": 1}, {"plan": "a", "n": 1}):
        assert is_never_kept(reading("plan"), Legacy, sent)
    assert "it reads Legacy, which is not plain, so such a fix of it is never kept" in caplog.text


@pytest.mark.spec("4.6", "4.14")
@pytest.mark.parametrize(
    ("model", "name", "one", "other"),
    [
        (Capped, "seats", {"plan": "basic", "seats": 9}, {"plan": "pro", "seats": 9}),
        (Capped, "seats", {"plan": "basic"}, {"plan": "pro"}),
        (Priced, "total", {"seats": 2, "total": 5}, {"seats": 7, "total": 5}),
        (Span, "seats", {"seats": 1, "weight": 2}, {"seats": 1, "weight": 0}),
        (Data, "seats", {"seats": 1, "plan": "pro"}, {"seats": 1, "plan": "a"}),
    ],
)
def test_what_rests_on_other_fields_is_told_for_the_very_same_request(model, name, one, other):
    assert conditions(reading(name), model, one) == ({"": one}, {})
    assert conditions(reading(name), model, other) == ({"": other}, {})


def test_how_a_model_would_write_a_field_does_not_count():
    assert conditions(reading("seats"), Shown, {"seats": 1, "plan": "a"}) == ({"seats": 1}, {})


def test_a_computed_field_leaves_the_others_alone():
    assert conditions(reading("seats"), Priced, {"seats": 2, "total": 5}) == ({"seats": 2}, {})


def test_a_model_with_a_validator_inside_of_another_counts_whole():
    class Holder(BaseModel):
        inner: Span
        plan: str = ""

    def policy(request, tables):
        return fix("F", seen=request["inner"]["seats"], code=tables.codes["x"]["code"])

    inner = {"seats": 1, "weight": 2}
    assert conditions(policy, Holder, {"inner": inner, "plan": "a"}) == ({"inner": inner}, {})


@pytest.mark.spec("4.4", "4.15")
def test_a_null_that_is_not_the_same_as_nothing_is_never_told(caplog):
    class Way(BaseModel):
        way: str | None = "post"

    assert conditions(reading("way"), Way, {"way": "air"}) == ({"way": "air"}, {})
    for sent in ({}, {"way": None}):
        assert is_never_kept(reading("way"), Way, sent)
    assert (
        "it reads Way.way, which tells a null from nothing, so such a fix of it is never kept" in caplog.text
    )


def test_what_the_handler_has_put_there_is_not_taken_for_what_was_sent():
    def own_account(request):
        request.plan = "of the account"

    suggestion = suggested(reading("plan"), Order, {"plan": "a"}, altered=own_account)
    assert (suggestion.cache_hint, suggestion.when) == ("recompute", msgspec.UNSET)


class Login(BaseModel):
    password: SecretStr
    plan: str = ""


class Old(Login):
    @model_validator(mode="before")
    @classmethod
    def of_old(cls, sent: Any) -> Any:
        return {**sent, "plan": sent.get("tariff", sent.get("plan", ""))}


class Account(BaseModel):
    login: Login
    plan: str = ""


def counting():
    """A policy that reads all of the request."""
    return lambda request, tables: fix("F", code=tables.codes["x"]["code"], count=len(request))


SECRET = {"password": "hunter2", "plan": "a"}


@pytest.mark.spec("4.15")
@pytest.mark.parametrize(
    ("policy", "model", "sent"),
    [
        (reading("password"), Login, SECRET),
        (counting(), Login, SECRET),
        (reading("plan"), Old, SECRET),
        (reading("login"), Account, {"login": SECRET}),
        (counting(), Account, {"login": SECRET}),
    ],
)
def test_no_secret_is_told(policy, model, sent, caplog):
    with caplog.at_level(logging.WARNING, "shelflife"):
        suggestion = suggested(policy, model, sent)
    assert suggestion.cache_hint == "recompute"
    assert "hunter2" not in msgspec.json.encode(suggestion).decode() + caplog.text
    assert "never kept" in caplog.text


def test_nobody_is_warned_of_a_fix_that_rests_on_no_table(caplog):
    assert is_never_kept(lambda request, tables: fix("F", seen=request["password"]), Login, SECRET)
    assert "never kept" not in caplog.text


def test_what_stands_beside_a_secret_is_told():
    def of_login(request, tables):
        return fix("F", seen=request["login"]["plan"], code=tables.codes["x"]["code"])

    assert conditions(reading("plan"), Login, SECRET) == ({"plan": "a"}, {})
    assert conditions(of_login, Account, {"login": SECRET}) == ({"login/plan": "a"}, {})


@dataclasses.dataclass
class OrderData:
    v: float
    on: datetime.datetime | None = None
    express: bool = True


@pydantic_dataclass
class OrderOfPydantic:
    v: float
    tags: list[str] = Field(default_factory=list, alias="labels")


class OrderStruct(msgspec.Struct, rename="camel"):
    v: decimal.Decimal
    is_express: bool = True


def test_dataclasses_and_structs_are_told_as_they_were_sent_too():
    sent = {"v": 12, "on": "2026-01-01T00:00:00+00:00"}
    suggestion = suggested(reading("v", "on", "express"), OrderData, sent)
    assert suggestion.parameters["seen"] == "[12, '2026-01-01T00:00:00Z', True]"
    assert suggestion.when == {**sent, "express": None}
    suggestion = suggested(reading("v", "labels"), OrderOfPydantic, {"v": "3"})
    assert suggestion.parameters["seen"] == "[3.0, []]"
    assert suggestion.when == {"v": "3", "labels": None}
    suggestion = suggested(reading("v", "isExpress"), OrderStruct, {"v": 12.5})
    assert suggestion.parameters["seen"] == "[12.5, True]"
    assert suggestion.when == {"v": 12.5, "isExpress": None}


@pytest.mark.parametrize(
    "given", [{"n": "3"}, {"n": 3.5}, {"n": uuid.UUID(int=3)}, {}, {"other": 3}, {"n": None, "more": 3}]
)
def test_a_dictionary_in_which_the_handler_has_changed_something_says_nothing(given):
    said = Given(given, b'{"n": 3}').said(dict(given), {}, {})
    assert said == "its handler has changed 'n', or a framework has"


@pytest.mark.spec("4.16")
def test_what_a_handler_has_added_is_not_taken_for_what_was_sent():
    asked = Given({"n": 3, "tier": "gold"}, b'{"n": 3}')
    assert asked.said({"n": 3}, {"m": (5,)}, {}) == ({"n": 3}, {"m": (5,)})
    for when, unless in (({"tier": "gold"}, {}), ({}, {"tier": ("plain",)})):
        assert asked.said(when, unless, {}) == "it reads 'tier', and its handler has added to that"
    whole = asked.said({"": {"n": 3, "tier": "gold"}}, {}, {})
    assert whole == "it reads all of the request, and its handler has added to that"


def test_a_body_that_is_not_what_was_checked_says_nothing():
    for body in (b"", b"[1]", b"{", b'{"plan": 5}', b'{"wanted": {"plan": "a"}}', b"\xff"):
        said = Given(Order(plan="a"), body, lambda: Reader.of_pydantic(Order)).said({"plan": "a"}, {}, {})
        assert said == "its handler has changed what was sent, or a model reads that otherwise each time"


def test_what_a_memory_has_put_in_is_taken_out_of_what_was_sent():
    asked = Given(
        Order(plan="a", promoCode="A"), b'{"plan": "a", "promo_code": "A"}', lambda: Reader.of_pydantic(Order)
    )
    before = asked.without({"promo_code": None})
    assert before.fields == {"plan": "a", "promoCode": None, "express": True, "tags": []}
    of_the_handler = Given(Order(plan="b", promoCode="A"), b'{"plan": "a", "promoCode": "A"}')
    assert of_the_handler.without({"promoCode": None}).fields["plan"] == "b"
