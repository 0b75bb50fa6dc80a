"""Models that read what a client sends in ways of their own, and what a policy suggests for it."""

import dataclasses
import json
from typing import Annotated, Any, Literal

import msgspec
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationInfo,
    computed_field,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass

from shelflife.server import Registry
from shelflife.server.given import Given
from shelflife.server.policies import Policy, evaluate

STATE = Registry({"codes": {"x": {"code": "A"}}}).state


def suggested(policy, model, sent, *, altered=None):
    """What a policy suggests for what a client has sent and a model has read; None when it is content."""
    is_of_pydantic = hasattr(model, "__pydantic_validator__")
    request = TypeAdapter(model).validate_python(sent) if is_of_pydantic else msgspec.convert(sent, model)
    if altered is not None:
        altered(request)
    asked = Given(request, json.dumps(sent).encode(), lambda: model)
    found = evaluate([Policy.from_function(policy, None)], asked.fields, STATE, said=asked.said)
    return found[0].suggestion if found else None


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


class Nullable(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    plan: str | None = "PRO"
    promo_code: str | None = Field("A", alias="promoCode")
    weight: float | None = None
    ship: Ship | None = Ship(zip="2")
    ships: list[Ship] = []


class Capped(BaseModel):
    model_config = ConfigDict(validate_default=True)
    plan: str | None = ""
    seats: int = 1

    @field_validator("seats")
    @classmethod
    def capped(cls, seats: int, others: ValidationInfo) -> int:
        return min(seats, 5) if others.data["plan"] == "basic" else seats + 10


class Span(BaseModel):
    seats: int | None = 0
    weight: float = 0

    @model_validator(mode="after")
    def in_order(self) -> "Span":
        if self.seats is not None and self.seats > self.weight:
            self.seats = int(self.weight)
        return self


class Priced(BaseModel):
    seats: int = 1
    plan: Literal["pro", "basic"] = "pro"

    @computed_field
    def total(self) -> int:
        return self.seats * 2


class Shown(BaseModel):
    seats: int = 1
    plan: str = ""

    @field_serializer("seats")
    def with_plan(self, seats: int) -> str:
        return f"{seats} of {self.plan}"


class Legacy(BaseModel):
    plan: str | None = "A"

    @model_validator(mode="before")
    @classmethod
    def reshaped(cls, sent: Any) -> Any:
        return {"plan": sent.get("tariff", sent.get("plan", ""))}


class Chosen(BaseModel):
    code: str | None = Field("1", validation_alias=AliasChoices("code", AliasPath("ship", "zip")))
    plan: str = "PRO"


class EmptyIsNothing(BaseModel):
    code: str | None = None
    plan: str | None = None

    @field_validator("code", "plan", mode="before")
    @classmethod
    def text(cls, value: Any) -> Any:
        return "A" if value is None else value or None


class Trip(BaseModel):
    ship: Ship | Span | None = None
    plan: str = "A"
    code: str = ""


class Nested(BaseModel):
    ship: Trip = Trip()
    ships: list[Span] = []


@pydantic_dataclass
class OfPydantic:
    plan: str = "PRO"
    seats: int | None = 1
    ship: Ship | None = None


class Struct(msgspec.Struct):
    plan: str | None = "PRO"
    code: str = "A"
    seats: int = 1


@dataclasses.dataclass
class Data:
    plan: str = "PRO"
    code: str | None = None
    seats: int = 1

    def __post_init__(self):
        self.seats += self.plan == "pro"


KINDS = [Everything, Nullable, Capped, Span, Priced, Shown, Legacy, Chosen, EmptyIsNothing, Trip, Nested]
KINDS += [OfPydantic, Struct, Data]
