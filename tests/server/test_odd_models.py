"""Models with odd fields: what is not known for sure is never told, and nothing of it gets in anybody's way."""

import dataclasses
import enum
from collections import deque
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec
import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    Base64Bytes,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Json,
    RootModel,
    SecretStr,
    TypeAdapter,
    ValidationError,
    computed_field,
    model_validator,
)
from typing_extensions import TypedDict

from shelflife.contract.when import holds
from shelflife.server import fix
from shelflife.server.errors import MalformedRequest
from shelflife.server.given import Given
from shelflife.server.models import read_partly
from shelflife.server.shapes import model_of
from tests.server.request_models import suggested


def speed_of(request, tables):
    """Tells what it sees of the speed, wherever that is."""
    part = request.get("part") if isinstance(request.get("part"), Mapping) else request
    return fix("F", seen=str(part.get("speed")), code=tables.codes["x"]["code"])


def not_normal(request, tables):
    """Is content with a normal speed, and compares no more than it must."""
    part = request.get("part") if isinstance(request.get("part"), Mapping) else request
    return fix("F", code=tables.codes["x"]["code"]) if not part.equals("speed", "normal") else None


class Speed(enum.Enum):
    NORMAL = "normal"
    FAST = "fast"


class Counting(BaseModel):
    speed: str = "normal"
    a: int | None = None
    b: int | None = None

    @model_validator(mode="after")
    def counted(self) -> "Counting":
        self.speed = "fast" if len(self.model_fields_set) == 2 else "normal"
        return self


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    speed: str = "normal"

    @model_validator(mode="after")
    def gifted(self) -> "Open":
        self.speed = "fast" if "gift" in (self.__pydantic_extra__ or {}) else self.speed
        return self


class Inner(BaseModel):
    speed: str = "normal"
    size: str | None = None


class Named(BaseModel):
    part: Inner = Field(Inner(speed="fast"), validation_alias=AliasChoices("part", "pkg"))


class TwiceNamed(BaseModel):
    model_config = ConfigDict(extra="allow", populate_by_name=True)
    v: str = Field("normal", alias="lane")
    speed: str = "normal"


class Swapped(BaseModel):
    x: str = Field("normal", alias="speed")
    speed: str = Field("fast", alias="x")


class Collided(BaseModel):
    speed: str = "normal"
    other: str = Field("fast", alias="speed")


class Typed(TypedDict, total=False):
    speed: str | None


class WithTyped(BaseModel):
    part: Typed = {"speed": "fast"}


class Either(BaseModel):
    part: Inner | Named | None = None


class Tree(BaseModel):
    speed: str = "normal"
    part: "Tree | None" = None


class EnumDefault(BaseModel):
    speed: str = Speed.NORMAL  # type: ignore[assignment]


class Watched(BaseModel):
    vip: bool = False
    speed: str = "normal"

    def __getattribute__(self, name: str) -> Any:
        return "fast" if name == "speed" and self.__dict__.get("vip") else super().__getattribute__(name)


class Slashed(BaseModel):
    part: Inner = Inner()
    other: str = Field("normal", alias="part/speed")


class Texts(BaseModel):
    speed: Annotated[str | None, AfterValidator(lambda text: text or "fast")] = None


class Before(BaseModel):
    speed: Annotated[str, BeforeValidator(lambda text: text or "fast")] = "normal"


class Lowered(BaseModel):
    model_config = ConfigDict(str_to_lower=True)
    part: dict[str, str] = {}
    speed: str = "normal"


class Unset(msgspec.Struct):
    speed: str | msgspec.UnsetType | None = msgspec.UNSET


class Listed(msgspec.Struct, array_like=True):
    speed: str = "normal"


class Chosen(msgspec.Struct):
    speed: Literal["normal", "null", None] = None


@dataclasses.dataclass
class Deep:
    part: Inner | None = None
    speed: str | None = None


ODD = [Counting, Open, Named, TwiceNamed, Swapped, Collided, WithTyped, Either, Tree, EnumDefault]
ODD += [Watched, Slashed, Texts, Before, Lowered, Unset, Chosen, Deep]
SPEEDS = ["normal", "fast", "FAST", "", None, "null"]
BODIES: list[dict[str, Any]] = [{}, {"a": None}, {"a": None, "b": None}, {"gift": None}, {"vip": True}]
BODIES += [{name: speed} for name in ("speed", "lane", "v", "x", "part/speed") for speed in SPEEDS]
BODIES += [{"speed": "fast", "x": "normal"}, {"lane": "a", "v": "b", "speed": "fast"}]
BODIES += [
    {name: part}
    for name in ("part", "pkg")
    for part in ({}, {"speed": "fast"}, {"speed": None}, {"SPEED": "fast"}, {"size": None}, None)
]
BODIES += [{"part": {"speed": "normal"}, "pkg": {"speed": "fast", "size": "S"}}]
BODIES += [{"pkg": {"speed": "fast", "size": "S"}}, {"part": {"part": {"speed": "fast"}}}]


def outcome(policy, model, body):
    """What a policy says of a body; "refused" where it never sees it."""
    try:
        return suggested(policy, model, body)
    except (ValidationError, msgspec.ValidationError):
        return "refused"


@pytest.mark.spec("4.6", "4.15")
@pytest.mark.parametrize("policy", [speed_of, not_normal])
@pytest.mark.parametrize("model", ODD, ids=lambda model: model.__name__)
def test_no_fix_is_told_for_a_body_that_would_get_another(model, policy):
    said = [(body, outcome(policy, model, body)) for body in BODIES]
    assert any(one not in ("refused", None) for _, one in said)
    for taught, one in said:
        if one in ("refused", None) or one.cache_hint == "recompute":
            continue
        assert holds(one.when, taught, one.unless or {})
        for body, other in said:
            if other != "refused" and holds(one.when, body, one.unless or {}):
                assert other is not None, (taught, body)
                assert other.parameters == one.parameters, (taught, body)


class Card(BaseModel):
    secrets: dict[str, SecretStr] = {}
    pin: SecretStr = SecretStr("")
    code: str = Field("", validation_alias=AliasChoices("code", "pin"))


class OwnSecret(str):
    def __repr__(self) -> str:
        return "***"


class OwnCard(BaseModel):
    pin: Annotated[str, AfterValidator(OwnSecret)] = ""
    pins: list[Annotated[str, AfterValidator(OwnSecret)]] = []


@pytest.mark.spec("4.15")
@pytest.mark.parametrize("model", [Card, OwnCard])
@pytest.mark.parametrize("name", ["secrets", "pin", "code", "pins"])
def test_no_secret_is_told_however_it_is_held(model, name):
    def policy(request, tables):
        return fix("F", code=tables.codes["x"]["code"], is_there=bool(request.get(name)))

    sent = {"secrets": {"a": "hunter2"}, "pin": "hunter2", "pins": ["hunter2"]}
    assert b"hunter2" not in msgspec.json.encode(suggested(policy, model, sent))


PLAIN = [
    (list[Inner], [{"speed": "a"}]),
    (dict[str, int], {"a": 1}),
    (tuple[int, str], [1, "a"]),
    (Mapping[str, Any], {"a": {"b": None}}),
    (Speed, "fast"),
    (Annotated[str, AfterValidator(str.upper)], "a"),
]
NOT_PLAIN = [
    (set[str], ["a"]),
    (int | str, 5),
    (Typed, {}),
    (Json[int], "5"),
    (SecretStr, "a"),
    (RootModel[str], "a"),
    (dict[int, str], {"1": "a"}),
    (dict[Annotated[str, AfterValidator(str.lower)], str], {"A": "a"}),
    (list[Typed], [{}]),
    (deque[Inner], [{}]),
]


@pytest.mark.spec("4.14", "4.15")
@pytest.mark.parametrize(
    ("kind", "sent", "hint"),
    [(*one, "cacheable") for one in PLAIN] + [(*one, "recompute") for one in NOT_PLAIN],
)
def test_what_is_plain_is_kept_and_nothing_else(kind, sent, hint):
    model = type("Model", (BaseModel,), {"__annotations__": {"v": kind}, "v": Field(...)})

    def policy(request, tables):
        return fix("F", seen=str(request.get("v")), code=tables.codes["x"]["code"])

    assert suggested(policy, model, {"v": sent}).cache_hint == hint


def test_to_look_at_a_request_uses_nothing_up():
    class Streamed(BaseModel):
        numbers: Iterable[int]
        rate: int = 1

        @computed_field  # type: ignore[prop-decorator]
        @cached_property
        def total(self) -> int:
            return self.rate * 2

    request = Streamed(numbers=[1, 2])
    assert Given(request).fields == {"numbers": None, "rate": 1, "total": 2}
    request.rate = 5
    assert (list(request.numbers), request.total) == ([1, 2], 10)


def test_what_json_has_no_word_for_is_nothing_to_a_policy():
    class Broken(BaseModel):
        raw: Base64Bytes = b""

        @computed_field
        def ratio(self) -> float:
            return 1 / len(self.raw)

    assert Given(Broken()).fields == {"raw": "", "ratio": None}
    assert Given(Broken.model_validate({"raw": "/w=="})).fields["raw"] is None
    assert Given(Unset()).fields == {"speed": None}


def test_a_model_that_cannot_be_asked_about_in_part_is_not():
    class Tagged(BaseModel):
        speed: str

        def __init_subclass__(cls, *, tag: str, **more: Any) -> None:
            super().__init_subclass__(**more)

    assert read_partly(Tagged, {"speed": "a"}).speed == "a"
    assert read_partly(Tagged, {}) is None


def test_a_struct_that_is_sent_as_a_list_or_holds_itself_is_not_plain():
    class Node(msgspec.Struct):
        speed: str = "normal"
        part: "Node | None" = None

    globals()["Node"] = Node
    try:
        assert model_of(Node).parts["speed"].shape is not None
        assert model_of(Node).parts["part"].shape is None
    finally:
        del globals()["Node"]
    assert model_of(Listed).reads == "unknown"


def test_a_model_that_is_nested_too_deeply_is_refused():
    class Anything(BaseModel):
        v: Any = None

    deep: Any = 1
    for _ in range(900):
        deep = {"a": deep}
    request = TypeAdapter(Anything).validate_python({"v": deep})
    with pytest.raises(MalformedRequest, match="nested too deeply"):
        Given(request)
