"""What is known of the models of requests: pydantic's, dataclasses, attrs classes and msgspec's structs."""

import dataclasses
import inspect
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, get_type_hints

import msgspec

__all__ = ["field_called", "is_default", "is_kept", "member", "read_as", "seen_of", "validators_of"]

Spelling = tuple[Any, ...]
"""The names that lead to a field where a client says it. A number among them is a place in a list."""

_OTHER_TEXTS = ("strip_whitespace", "to_lower", "to_upper", "coerce_numbers_to_str")
"""By which a field of pydantic reads one text as another."""

_PLAIN_FACTORIES = (None, list, dict, set, tuple, str, int, float, bool)
_SCALARS = frozenset({str, int, bool, type(None)})
"""Of which there is nothing to look for in what was sent."""

_ABSENT = inspect.Parameter.empty


def read_as(kind: type, sent: Mapping[str, Any]) -> Any:
    """What a body is read as; None when it cannot be."""
    try:
        if hasattr(kind, "model_validate"):
            return kind.model_validate(sent)
        return msgspec.convert(sent, kind, strict=False)
    except Exception:  # noqa: BLE001 - validators may raise anything
        return None


def seen_of(model: Any, sent: Any, *, only_set: bool = False) -> Any:
    """What a model holds, as JSON, by the names on the wire. Numbers are as the client wrote them, where they are the same."""
    if hasattr(model, "model_dump"):
        return _seen(model, model.model_dump(mode="json", by_alias=False, exclude_unset=only_set), sent)
    try:
        tree = _tree_of(model)
    except TypeError:
        return None
    return _seen(tree, tree, sent)


def _tree_of(value: Any) -> Any:
    """A value as JSON, but for decimal numbers. A default of a dataclass that msgspec has read is not in its dictionary."""
    if dataclasses.is_dataclass(value):
        return {one.name: _tree_of(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, list | tuple):
        return [_tree_of(one) for one in value]
    return msgspec.to_builtins(value, builtin_types=(Decimal,))


def _seen(value: Any, dumped: Any, sent: Any) -> Any:
    if isinstance(value, float | Decimal):
        is_same = type(sent) in (int, float) and _is_number(value, sent)
        return sent if is_same else str(dumped) if isinstance(dumped, Decimal) else dumped
    if isinstance(dumped, dict):
        kind: Any = type(value)
        held = value if kind is dict else getattr(value, "__dict__", {})
        names, shown = _wire_names(kind), {}
        for name, inner in dumped.items():
            wire, spellings = names.get(name) or (name, ((name,),))
            one = held.get(name, inner)
            if type(one) in _SCALARS:  # most are, and pay for no call
                shown[wire] = inner
            else:
                said = next(
                    (found for path in spellings if (found := _said_at(sent, path)) is not None), None
                )
                shown[wire] = _seen(one, inner, said)
        return shown
    if isinstance(dumped, list) and isinstance(value, list | tuple):
        said = sent if isinstance(sent, list) and len(sent) == len(dumped) else [None] * len(dumped)
        return [_seen(*three) for three in zip(value, dumped, said, strict=True)]
    return dumped


def _is_number(value: float | Decimal, sent: float) -> bool:
    try:
        return float(value) == float(sent)
    except OverflowError:
        return False


def _said_at(sent: Any, path: Spelling) -> Any:
    for step in path:
        sent = sent.get(step) if isinstance(sent, Mapping) else None
    return sent


def member(holder: Any, name: str, default: Any = None) -> Any:
    """A field of a model, or a member of a dictionary."""
    return holder.get(name, default) if isinstance(holder, Mapping) else getattr(holder, name, default)


@lru_cache(maxsize=256)
def _wire_names(kind: type) -> Mapping[str, tuple[str, tuple[Spelling, ...]]]:
    """Of each field of a pydantic model, by its name in the code: what it is called on the wire, and every spelling."""
    config: Mapping[str, Any] = getattr(kind, "model_config", {})
    by_name = config.get("populate_by_name") or config.get("validate_by_name")
    names = {}
    for name, field in getattr(kind, "model_fields", {}).items():
        alias = field.validation_alias if config.get("validate_by_alias", True) else None
        choices = [] if alias is None else getattr(alias, "choices", [alias])
        spellings = [(one,) if isinstance(one, str) else tuple(one.path) for one in choices]
        if by_name or not spellings:
            spellings.append((name,))
        wire = next((one[0] for one in spellings if len(one) == 1), name)
        names[name] = (wire, tuple(spellings))
    return names


def field_called(holder: Any, wire: str) -> tuple[str, tuple[Spelling, ...]]:
    """The name in the code of a field that is called like this on the wire, and every spelling of it, the first first."""
    kind: Any = type(holder)
    for name, (own, spellings) in _wire_names(kind).items():
        if own == wire:
            return name, spellings
    if isinstance(holder, msgspec.Struct):
        fields = msgspec.structs.fields(holder)
        return next((one.name for one in fields if one.encode_name == wire), wire), ((wire,),)
    return wire, ((wire,),)


def is_default(holder: Any, name: str) -> bool:
    """Whether a field has the value that it always has when nobody sends one."""
    if hasattr(holder, "model_fields_set"):
        field = type(holder).model_fields.get(name)
        is_unset = field is not None and name not in holder.model_fields_set
        return is_unset and field.default_factory in _PLAIN_FACTORIES
    if not hasattr(holder, name):
        return False
    default = inspect.signature(type(holder)).parameters.get(name)
    return default is not None and default.default is not _ABSENT and default.default == getattr(holder, name)


def validators_of(kind: type) -> set[str]:
    """When validators of a whole model run that may change any field: before, after or around it."""
    decorators = getattr(kind, "__pydantic_decorators__", None)
    modes = {one.info.mode for one in decorators.model_validators.values()} if decorators else set()
    runs_after = getattr(kind, "__pydantic_post_init__", None) or hasattr(kind, "__post_init__")
    return modes | {"after"} if runs_after else modes


def is_kept(kind: type, name: str) -> bool:
    """Whether a field holds texts alone, each as it was sent. Then no two values that are sent are read as the same."""
    schema: Any = getattr(kind, "__pydantic_core_schema__", None)
    if schema is None or not hasattr(kind, "model_config"):
        try:
            return get_type_hints(kind).get(name) in (str, str | None)
        except (NameError, TypeError):
            return False
    config = {setting.removeprefix("str_") for setting, value in kind.model_config.items() if value}
    while "schema" in schema and "fields" not in schema:
        schema = schema["schema"]
    field = schema.get("fields", {}).get(name, {"type": ""})
    while field["type"] in ("model-field", "default", "nullable"):
        field = field["schema"]
    if field["type"] == "literal":
        return all(isinstance(one, str) for one in field["expected"])
    is_other = not config.isdisjoint(_OTHER_TEXTS) or any(field.get(one) for one in _OTHER_TEXTS)
    return field["type"] == "str" and not is_other
