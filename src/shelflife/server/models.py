"""What is known of the models of requests: pydantic's models and dataclasses, dataclasses, and msgspec's structs."""

import re
import sys
from collections.abc import Collection, Iterator, Mapping
from copy import copy
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from shelflife.server.errors import ServerError

__all__ = ["Field", "nulled", "read_as", "read_partly", "reading_of", "seen_of"]

_AROUND_FIELDS = ("definitions", "definition-ref", "model", "dataclass", "function-after")
"""What pydantic has around the fields of a model when no code sees them as they were sent."""

_AROUND_A_VALUE = ("model-field", "dataclass-field", "default", "nullable", "definition-ref")
_RESTS_ON_OTHERS = ("'with-info'", "'is_field_serializer': True", "Validator(")
"""In what is known of a field: a function that sees other fields too, or a validator that only pydantic would run."""

_ODD_FACTORY = re.compile(r"default_factory'?(=|: )(?!<class|<dataclasses._MISSING|None|NODEFAULT)")
_OTHER_TEXTS = ("strip_whitespace", "to_lower", "to_upper", "coerce_numbers_to_str")
"""By which a field of pydantic reads one text as another."""

_SCALARS = frozenset({str, int, bool, type(None)})
"""Of which there is nothing to look for in what was sent."""


class Field(NamedTuple):
    """How a model reads a field."""

    name: str
    """In the code."""

    spellings: tuple[str, ...]
    """What a client may call it, in the order in which they are looked for. The first is its name on the wire."""

    text: str = ""
    """All that is known of it."""

    schema: Mapping[str, Any] = {"type": ""}
    """What it holds when it is neither null nor absent, in the words of pydantic's schemas."""

    default: Any = None
    """Or what makes it."""

    def fault(self, *, is_sent: bool) -> str:
        """Why nobody can be told of what it holds; empty when there is no reason."""
        if "Secret" in self.text:
            return "holds a secret"
        is_odd = _ODD_FACTORY.search(str(self.schema) if is_sent else self.text)
        return "has a default that may be another next time" if is_odd else ""

    def is_only(self, value: Any) -> bool:
        """Whether nothing else that may be sent is read as this value; for None, nothing at all that is not null."""
        if value is None:
            return "'function" not in self.text
        is_text = self.schema["type"] == "str" and not any(self.schema.get(one) for one in _OTHER_TEXTS)
        is_choice = all(isinstance(one, str) for one in self.schema.get("expected", (None,)))
        return (is_text or is_choice) and not callable(self.default) and self.default != value


class Reading(NamedTuple):
    """How a kind of model reads what is sent."""

    fields: Mapping[str, Field] = {}
    computed: frozenset[str] = frozenset()
    """What policies see that is no field."""

    is_apart: bool = False
    """Whether each field is read by itself."""

    is_raw: bool = True
    """Whether code of its own may see what was sent before it is read."""

    def by_itself(self, wire: str) -> Field | None:
        """The field that is called like this on the wire, if it rests on what is sent for it and on nothing else."""
        called = (field for field in self.fields.values() if field.spellings[0] == wire)
        field = next(called, Field(wire, (wire,)))
        is_shaped = wire in self.computed or any(mark in field.text for mark in _RESTS_ON_OTHERS)
        return field if self.is_apart and not is_shaped else None


@lru_cache(maxsize=256)
def reading_of(kind: type) -> Reading:
    if hasattr(kind, "__pydantic_core_schema__"):
        return _of_pydantic(kind.__pydantic_core_schema__)
    fields, is_struct = {}, issubclass(kind, msgspec.Struct)
    known = msgspec.structs.fields(kind) if is_struct else getattr(kind, "__dataclass_fields__", {}).values()
    for one in known:
        is_model = hasattr(one.type, "__struct_fields__") or hasattr(one.type, "__dataclass_fields__")
        held = {"type": "model" if is_model else "str" if one.type in (str, str | None) else ""}
        default = one.default_factory if callable(one.default_factory) else one.default
        fields[one.name] = Field(one.name, (getattr(one, "encode_name", one.name),), str(one), held, default)
    return Reading(fields, is_apart=not hasattr(kind, "__post_init__"), is_raw=not fields)


def _of_pydantic(schema: Any) -> Reading:
    shared = {one["ref"]: one for one in schema.get("definitions", ())}
    is_apart, is_raw, config = True, False, dict[str, Any]()
    while schema["type"] not in ("model-fields", "dataclass-args"):
        is_raw = is_raw or schema["type"] not in _AROUND_FIELDS or bool(schema.get("custom_init"))
        is_after = schema["type"] == "function-after" or schema.get("post_init") or "serialization" in schema
        is_apart, config = is_apart and not is_after, schema.get("config", config)
        schema = schema.get("schema") or shared.get(schema.get("schema_ref"))
        if schema is None:
            return Reading()
    fields, known = {}, schema["fields"]
    computed = frozenset(one["property_name"] for one in schema["computed_fields"])
    settings = {setting.removeprefix("str_"): value for setting, value in config.items()}
    for name, field in known.items() if isinstance(known, dict) else ((one["name"], one) for one in known):
        alias = field.get("validation_alias", []) if config.get("validate_by_alias", True) else []
        alias = [alias] if isinstance(alias, str) else alias
        paths = alias if all(isinstance(one, list) for one in alias) else [alias]
        own = [path[0] for path in paths if len(path) == 1]
        if not own or config.get("validate_by_name") or config.get("populate_by_name"):
            own.append(name)
        is_apart = is_apart and all(len(path) == 1 for path in paths)
        text = str(field) + (str(shared) if "'definition-ref'" in str(field) else "")
        default = None
        while field["type"] in _AROUND_A_VALUE:
            default = field.get("default", field.get("default_factory", default))
            field = shared[field["schema_ref"]] if "schema_ref" in field else field["schema"]
        names = tuple(dict.fromkeys([*own, *(path[0] for path in paths)]))
        fields[name] = Field(name, names, text, {**settings, **field}, default)
    return Reading(fields, computed, is_apart and not is_raw, is_raw)


def nulled(held: Any, said: Any, only: Collection[str] = ()) -> Iterator[Any]:
    """What else a client may send that counts as the same: with a null more, or with a null less.

    `only` names the fields that are of interest. Raises `ServerError` when it is not known where a null may count.
    """
    if isinstance(said, list):
        is_alike = isinstance(held, list | tuple) and len(held) == len(said)
        for n, pair in enumerate(zip(held if is_alike else [None] * len(said), said, strict=True)):
            yield from ([*said[:n], other, *said[n + 1 :]] for other in nulled(*pair))
    elif isinstance(said, dict):
        reading, is_dict = reading_of(held.__class__), isinstance(held, dict)
        if reading.is_raw and not is_dict:
            raise ServerError(
                f"{type(held).__name__} has code that sees what was sent, and a null may count for it"
            )
        fields = [Field(name, (name,)) for name in said] if is_dict else reading.fields.values()
        for name, at in [(one.name, at) for one in fields for at in one.spellings if not only or at in only]:
            if said.get(at) is None:
                yield {one: said[one] for one in said if one != at} if at in said else said | {at: None}
            else:
                inner = held.get(name) if is_dict else getattr(held, name, None)
                yield from (said | {at: other} for other in nulled(inner, said[at]))


def read_as(kind: type, sent: Mapping[str, Any]) -> Any:
    """What a body is read as; None when it cannot be."""
    try:
        if hasattr(kind, "__pydantic_validator__"):
            return kind.__pydantic_validator__.validate_python(sent)
        return msgspec.convert(sent, kind, strict=False)
    except Exception:  # noqa: BLE001 - validators may raise anything
        return None


def read_partly(kind: type, sent: Mapping[str, Any]) -> Any:
    """The same for a body of which some fields may be unknown: those of a pydantic model are None then."""
    model = read_as(kind, sent)
    if model is None and hasattr(kind, "model_fields"):
        model = read_as(_lenient(kind), sent)
    return model


@lru_cache(maxsize=256)
def _lenient(kind: Any) -> type:
    """A model that asks for no field."""
    fields = {name: copy(field) for name, field in kind.model_fields.items() if field.is_required()}
    for field in fields.values():
        field.default = None
    asked: dict[str, Any] = {name: (field.annotation, field) for name, field in fields.items()}
    lenient: type = sys.modules["pydantic"].create_model(kind.__name__, __base__=kind, **asked)
    return lenient


def seen_of(model: Any, sent: Any, *, only_set: bool = False) -> Any:
    """What the attributes of a model are, as JSON, by the names on the wire. Numbers are as the client wrote them, where they are the same.

    That is what a handler goes on with, whatever the model would write. With `only_set` what was left to a default is left out.
    """
    reading, told = reading_of(model.__class__), sent if isinstance(sent, dict) else {}
    if "root" in getattr(model.__class__, "model_fields", ()):
        return _seen(model.root, sent)
    if not reading.fields:
        return _as_json(model)
    only = model.__pydantic_fields_set__ if only_set and hasattr(model, "__pydantic_fields_set__") else None
    seen: dict[str, Any] = {}
    for name, field in reading.fields.items():
        if only is None or name in only:
            said = next((told[own] for own in field.spellings if told.get(own) is not None), None)
            seen[field.spellings[0]] = _seen(getattr(model, name, None), said)
    for name in reading.computed:
        seen.setdefault(name, _seen(getattr(model, name), None))
    for name, value in (getattr(model, "__pydantic_extra__", None) or {}).items():
        seen.setdefault(name, _seen(value, told.get(name)))
    return seen


def _seen(value: Any, sent: Any) -> Any:
    if type(value) in _SCALARS:
        return value
    if isinstance(value, float | Decimal):
        is_same = type(sent) in (int, float) and float(value) == sent
        return sent if is_same else str(value) if isinstance(value, Decimal) else value
    if isinstance(value, list | tuple):
        parts = sent if isinstance(sent, list) and len(sent) == len(value) else [None] * len(value)
        return [_seen(*pair) for pair in zip(value, parts, strict=True)]
    if isinstance(value, Mapping):
        told = sent if isinstance(sent, dict) else {}
        return {str(_as_json(name)): _seen(one, told.get(name)) for name, one in value.items()}
    return seen_of(value, sent) if reading_of(value.__class__).fields else _as_json(value)


def _as_json(value: Any) -> Any:
    """Something that is no model and no container; None when JSON has no word for it."""
    if "pydantic_core" in sys.modules:
        return sys.modules["pydantic_core"].to_jsonable_python(value, serialize_unknown=True)
    try:
        return msgspec.to_builtins(value)
    except TypeError:
        return None
