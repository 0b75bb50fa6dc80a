"""Requests that are models: read from what was sent, and shown to policies."""

import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import copy, deepcopy
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from typing import Annotated, Any, NamedTuple

import msgspec

from shelflife.contract.values import DEEPEST_VALUE
from shelflife.server.shapes import (
    RAW,
    Model,
    Shape,
    is_watched,
    model_of,
    model_of_msgspec,
    model_of_pydantic,
)

__all__ = [
    "DICTIONARY",
    "Reader",
    "may_be_told",
    "own_names",
    "plain_fields",
    "pydantic_model_of",
    "seen_of",
]

_SCALARS = frozenset({str, int, bool, type(None)})
"""Of which there is nothing to look for in what was sent."""

_ABSENT = object()

_ORDINARY = frozenset({"builtins", "datetime", "decimal", "uuid"})
"""Where the types of values come from of which a client may be told. What an app has made may be a secret."""


class Reader(NamedTuple):
    """How a framework reads the body of a request before its handler is called."""

    model: Model
    """Of its kind is what the handler is given: a model, or a dictionary."""

    convert: Callable[[Any], Any]
    """May raise anything."""

    @classmethod
    def of_pydantic(cls, annotation: Any, *metadata: Any) -> "Reader | None":
        """For what pydantic reads as this type; None when that is neither a model nor a dictionary as it is."""
        try:
            asked_for: Any = Annotated[(annotation, *metadata)] if metadata else annotation
            adapter = sys.modules["pydantic"].TypeAdapter(asked_for)
            model = model_of_pydantic(adapter.core_schema)
        except Exception:  # noqa: BLE001 - what pydantic cannot read is read in a way of the framework's own
            return None
        return None if model is None else cls(model, adapter.validate_python)

    @classmethod
    def of_msgspec(cls, kind: Any) -> "Reader | None":
        """For what msgspec reads as this type; None when that is neither a model nor a dictionary as it is."""
        try:
            model = model_of_msgspec(kind)
        except Exception:  # noqa: BLE001 - it holds what msgspec does not know
            return None
        return None if model is None else cls(model, partial(msgspec.convert, type=kind, strict=False))

    def read(self, sent: Mapping[str, Any]) -> Any:
        """What a body is read as; None when it cannot be."""
        try:
            return self.convert(sent)
        except Exception:  # noqa: BLE001 - validators may raise anything
            return None

    def for_parts(self, sent: Mapping[str, Any]) -> "Reader":
        """The same, or one that also reads a body of which some fields are unknown: those of a pydantic model are None then."""
        if self.model.has_code or not hasattr(self.model.kind, "model_fields") or self.read(sent) is not None:
            return self
        lenient = _lenient(self.model.kind)
        return (lenient and Reader.of_pydantic(lenient)) or self


DICTIONARY = Reader(RAW, lambda sent: sent)
"""Reads nothing as anything else."""


@lru_cache(maxsize=256)
def _lenient(kind: Any) -> Any:
    """A model that asks for no field, nor do the models in it; None when there can be none."""
    asked: dict[str, Any] = {}
    for name, known in kind.model_fields.items():
        field, inner = copy(known), known.annotation
        field.default = None if field.is_required() else field.default
        if isinstance(inner, type) and hasattr(inner, "model_fields"):
            asked[name] = (_lenient(inner) or inner, field)
        elif known.is_required():
            asked[name] = (inner, field)
    try:
        return sys.modules["pydantic"].create_model(kind.__name__, __base__=kind, **asked)
    except Exception:  # noqa: BLE001 - a class may refuse to be inherited from
        return None


def seen_of(value: Any, sent: Any, model: Model | None = None, depth: int = 0) -> Any:
    """What a value is, as JSON, by the names on the wire. Numbers are as the client wrote them, where they are the same.

    Of a model these are the attributes: what a handler goes on with, whatever the model would write.
    """
    if type(value) in _SCALARS or depth > DEEPEST_VALUE:
        return value
    if isinstance(value, float | Decimal):
        is_same = type(sent) in (int, float) and float(value) == sent
        return sent if is_same else str(value) if isinstance(value, Decimal) else value
    if isinstance(value, list | tuple | set | frozenset | deque):
        parts = sent if isinstance(sent, list) and len(sent) == len(value) else [None] * len(value)
        return [seen_of(one, said, None, depth + 1) for one, said in zip(value, parts, strict=True)]
    told = sent if isinstance(sent, dict) else {}
    if isinstance(value, Mapping):
        return {
            str(_as_json(name)): seen_of(one, told.get(name), None, depth + 1) for name, one in value.items()
        }
    if getattr(value, "__pydantic_root_model__", False):
        return seen_of(value.root, sent, None, depth + 1)
    known = model if model is not None and model.kind is type(value) else model_of(value.__class__)
    return _as_json(value) if known is None else _fields_of(value, told, known, depth)


@lru_cache(maxsize=256)
def pydantic_model_of(kind: type) -> Model | None:
    """How a class that pydantic has made a model of reads an object; None of any other."""
    return (
        model_of(kind) if "__pydantic_core_schema__" in vars(kind) and hasattr(kind, "model_fields") else None
    )


def plain_fields(holder: Any, model: Model) -> dict[str, Any] | None:
    """The same of a model with nothing in it but texts, whole numbers, truth values and nulls: for these it does not count what was
    sent. None of any other."""
    if model.computed or not _keeps_its_fields(model.kind) or getattr(holder, "__pydantic_extra__", None):
        return None
    held = holder.__dict__
    seen = {wire: held.get(part.name, _ABSENT) for wire, part in model.parts.items()}
    return seen if _SCALARS.issuperset(map(type, seen.values())) else None


@lru_cache(maxsize=256)
def own_names(kind: type) -> dict[str, str] | None:
    """The names of fields by which a model of pydantic keeps them and which they also have on the wire; None of any other class.

    Each leads to itself, as the one text that all code is written with."""
    model = pydantic_model_of(kind)
    if model is None or model.computed or not _keeps_its_fields(kind):
        return None
    is_same = all(part.name == wire for wire, part in model.parts.items())
    return {name: name for name in map(sys.intern, model.parts)} if is_same else None


@lru_cache(maxsize=256)
def _keeps_its_fields(kind: type) -> bool:
    """Whether the fields of a model are what its dictionary holds, and it is nothing else than a model."""
    return (
        getattr(kind, "__dictoffset__", 0) != 0
        and not is_watched(kind)
        and not getattr(kind, "__pydantic_root_model__", False)
        and not issubclass(kind, str | int | float | Decimal | Collection)
    )


def _fields_of(holder: Any, told: Mapping[str, Any], model: Model, depth: int) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for wire, part in model.parts.items():
        said = next((told[name] for name in part.names if told.get(name) is not None), None)
        inner = part.shape.model if part.shape else None
        seen[wire] = seen_of(_attribute(holder, part.name), said, inner, depth + 1)
    for name in model.computed:
        seen.setdefault(name, seen_of(_computed(holder, name), None, None, depth + 1))
    for name, value in (getattr(holder, "__pydantic_extra__", None) or {}).items():
        seen.setdefault(name, seen_of(value, told.get(name), None, depth + 1))
    return seen


def _attribute(holder: Any, name: str) -> Any:
    """What a field holds. To ask for one that is deprecated would warn of that."""
    known = {} if is_watched(type(holder)) else getattr(holder, "__dict__", {})
    return known[name] if name in known else getattr(holder, name, None)


def _computed(holder: Any, name: str) -> Any:
    """A computed field, without the model keeping or using up anything for it; None when it cannot be computed so."""
    left_out = {
        id(one): None for one in getattr(holder, "__dict__", {}).values() if isinstance(one, Iterator)
    }
    try:
        return getattr(deepcopy(holder, left_out), name)
    except Exception:  # noqa: BLE001 - it is the app's own code
        return None


def _as_json(value: Any) -> Any:
    """Something that is no model and no container; None when JSON has no word for it."""
    core = sys.modules.get("pydantic_core")
    is_unset = value is msgspec.UNSET or (core is not None and value is getattr(core, "MISSING", None))
    if is_unset or isinstance(value, Iterator):  # to look at an iterator would use it up
        return None
    try:
        if core is not None:
            return core.to_jsonable_python(value, serialize_unknown=True)
        return msgspec.to_builtins(value)
    except Exception:  # noqa: BLE001 - bytes that are no text, say
        return None


def may_be_told(value: Any, shape: Shape | None, has_code: bool = False) -> bool:
    """Whether a client may be told what it has sent for a value. What code of the app's own has made of it may be a secret."""
    has_code = has_code or shape is None or shape.has_code
    if not has_code or value is None:
        return True
    if shape is None or shape.model is None or shape.model is RAW:
        return _is_ordinary(value)
    model, private = shape.model, getattr(value, "__pydantic_private__", None) or {}
    return (
        type(value) is model.kind
        and all(map(_is_ordinary, private.values()))
        and all(
            may_be_told(_attribute(value, part.name), part.shape, model.reads != "apart")
            for part in model.parts.values()
        )
    )


def _is_ordinary(value: Any) -> bool:
    if type(value) is dict:
        return all(map(_is_ordinary, value.values()))
    if type(value) in (list, tuple):
        return all(map(_is_ordinary, value))
    return isinstance(value, Enum) or type(value).__module__ in _ORDINARY
