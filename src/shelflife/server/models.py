"""Requests that are models: read from what was sent, and shown to policies."""

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from copy import copy
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any

import msgspec

from shelflife.server.shapes import model_of

__all__ = ["is_ordinary", "read_as", "read_partly", "seen_of"]

_SCALARS = frozenset({str, int, bool, type(None)})
"""Of which there is nothing to look for in what was sent."""

_ORDINARY = frozenset({"builtins", "datetime", "decimal", "uuid"})
"""Where the types of values come from of which a client may be told. What an app has made may be a secret."""


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
        lenient = _lenient(kind)
        model = None if lenient is None else read_as(lenient, sent)
    return model


@lru_cache(maxsize=256)
def _lenient(kind: Any) -> type | None:
    """A model that asks for no field; None when there can be none."""
    fields = {name: copy(field) for name, field in kind.model_fields.items() if field.is_required()}
    for field in fields.values():
        field.default = None
    asked: dict[str, Any] = {name: (field.annotation, field) for name, field in fields.items()}
    try:
        lenient: type = sys.modules["pydantic"].create_model(kind.__name__, __base__=kind, **asked)
    except Exception:  # noqa: BLE001 - a class may refuse to be inherited from
        return None
    return lenient


def seen_of(model: Any, sent: Any) -> Any:
    """What the attributes of a model are, as JSON, by the names on the wire. Numbers are as the client wrote them, where they are the same.

    That is what a handler goes on with, whatever the model would write.
    """
    shape, told = model_of(model.__class__), sent if isinstance(sent, dict) else {}
    if "root" in getattr(model.__class__, "model_fields", ()):
        return _seen(model.root, sent)
    if not shape.parts:
        return _as_json(model)
    seen: dict[str, Any] = {}
    for wire, part in shape.parts.items():
        said = next((told[name] for name in part.names if told.get(name) is not None), None)
        seen[wire] = _seen(getattr(model, part.name, None), said)
    for name in shape.computed:
        seen.setdefault(name, _seen(_computed(model, name), None))
    for name, value in (getattr(model, "__pydantic_extra__", None) or {}).items():
        seen.setdefault(name, _seen(value, told.get(name)))
    return seen


def _computed(model: Any, name: str) -> Any:
    """A computed field, without the model keeping it: it may be asked again when it is another. None when it cannot be computed."""
    try:
        return getattr(copy(model), name)
    except Exception:  # noqa: BLE001 - it is the app's own code
        return None


def _seen(value: Any, sent: Any) -> Any:
    if type(value) in _SCALARS:
        return value
    if isinstance(value, float | Decimal):
        is_same = type(sent) in (int, float) and float(value) == sent
        return sent if is_same else str(value) if isinstance(value, Decimal) else value
    if isinstance(value, list | tuple | set | frozenset | deque):
        parts = sent if isinstance(sent, list) and len(sent) == len(value) else [None] * len(value)
        return [_seen(*pair) for pair in zip(value, parts, strict=True)]
    if isinstance(value, Mapping):
        told = sent if isinstance(sent, dict) else {}
        return {str(_as_json(name)): _seen(one, told.get(name)) for name, one in value.items()}
    return seen_of(value, sent) if model_of(value.__class__).parts else _as_json(value)


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


def is_ordinary(value: Any) -> bool:
    """Whether all of a value is of types of which a client may be told."""
    if isinstance(value, Enum):
        return True
    if isinstance(value, Mapping):
        return all(map(is_ordinary, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(is_ordinary, value))
    if parts := model_of(value.__class__).parts:
        return all(is_ordinary(getattr(value, part.name, None)) for part in parts.values())
    return type(value).__module__ in _ORDINARY
