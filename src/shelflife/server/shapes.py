"""How models read what is sent: which fields rest on what is sent for them, and on nothing else.

A field counts as plain only when all that its model does with it is known here: a few types of pydantic's and msgspec's, listed one
by one. Of anything else, nobody is told what a client has to send for it.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from types import NoneType
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import inspect

__all__ = ["RAW", "Model", "Part", "Shape", "is_watched", "model_of", "model_of_msgspec", "model_of_pydantic"]

_REQUIRED, _MADE_ANEW = object(), object()
"""In place of a default: there is none, or it may be another next time."""

_STEADY_FACTORIES = (list, dict)
_SCALARS = ("int", "float", "bool", "decimal", "date", "time", "datetime", "timedelta", "uuid")
_SCALARS_OF_MSGSPEC = (
    inspect.IntType | inspect.FloatType | inspect.BoolType | inspect.DecimalType | inspect.DateType | inspect.TimeType
    | inspect.DateTimeType | inspect.TimeDeltaType | inspect.UUIDType
)  # fmt: skip
_OTHER_TEXTS = ("strip_whitespace", "to_lower", "to_upper", "coerce_numbers_to_str")
"""By which a field of pydantic's reads one text as another."""

_Schema = Mapping[str, Any]
_ANY: _Schema = {"type": "any"}


class Shape(NamedTuple):
    """How a plain value is read."""

    null: Literal["refused", "nothing", "odd"] = "refused"
    """What a null is read as. Odd is what may be anything."""

    is_only: bool = False
    """Whether nothing else that is sent is read as the same value."""

    may_vanish: bool = False
    """Whether something that is sent may be read as nothing."""

    has_code: bool = False
    """Whether code of the app's own sees it, at any depth. What that makes of it may be a secret."""

    holds_nulls: bool = False
    """Whether there may be nulls inside, which only code can tell from nothing."""

    sees_others: bool = False
    """Whether other fields of its model count for it."""

    model: "Model | None" = None
    """Of an object: what its fields are."""

    @property
    def is_whole(self) -> bool:
        """Whether all of it is known, at any depth."""
        return self.model is None or self.model.is_whole


class Part(NamedTuple):
    """A field of a model."""

    name: str
    """In the code."""

    names: tuple[str, ...]
    """What a client may call it, in the order in which they are looked for. Policies know it by the first."""

    shape: Shape | None = None
    """None when it is not plain."""

    default: Any = _REQUIRED

    def fault(self, said: Sequence[Any]) -> str:
        """Why what is said by its names, in their order, is not all that counts; empty when it is. A null says nothing."""
        used = next((n for n, one in enumerate(said) if one is not None), None)
        if self.shape is None:
            return "is not plain"
        if used is None and self.default is _MADE_ANEW:
            return "has a default that may be another next time"
        is_null_other = self.shape.null == "odd" or (
            self.shape.null == "nothing" and self.default is not None
        )
        # Under the first name, before the others.
        is_null_found = self.shape.null != "refused" and len(self.names) > 1
        has_default = self.default is not _REQUIRED
        is_other = (is_null_other and has_default) if used is None else (used > 0 and is_null_found)
        return "tells a null from nothing" if is_other else ""

    def may_be_left_at(self, value: Any) -> bool:
        """Whether nothing may be read as this value."""
        is_simple = self.default is _REQUIRED or type(self.default) in (str, NoneType)
        return not is_simple or self.default == value

    @property
    def is_whole(self) -> bool:
        """Whether all of it is known, whatever is said."""
        is_one = len(self.names) == 1 or (self.shape is not None and self.shape.null == "refused")
        return not self.fault([]) and is_one and self.shape is not None and self.shape.is_whole


class Model(NamedTuple):
    """How a kind of object is read."""

    kind: type = dict
    """What comes of it."""

    parts: Mapping[str, Part] = {}
    """Its fields, by the first of their names on the wire."""

    computed: tuple[str, ...] = ()
    """What policies see that is no field."""

    is_open: bool = False
    """Whether it keeps fields that it does not know, as they are sent."""

    tells_nulls: bool = False
    """Whether code can find out if a field was null or absent."""

    reads: Literal["apart", "together", "unknown"] = "unknown"
    """Whether each field is read by itself, or code of its own sees them all once they are read."""

    @property
    def is_whole(self) -> bool:
        """Whether all of it is known, at any depth, whatever is said."""
        is_told_nulls = self.has_code and self.holds_nulls
        are_whole = all(part.is_whole for part in self.parts.values())
        return self.reads != "unknown" and are_whole and not is_told_nulls

    @property
    def has_code(self) -> bool:
        """Whether code of its own sees all of it."""
        return self.reads != "apart" or bool(self.computed)

    @property
    def holds_nulls(self) -> bool:
        shapes = [part.shape for part in self.parts.values()]
        takes_nulls = self.tells_nulls and any(one is None or one.null != "refused" for one in shapes)
        return self.is_open or takes_nulls or any(one is not None and one.holds_nulls for one in shapes)

    def is_whole_in(self, sent: Mapping[str, Any]) -> bool:
        """Whether all of it is known for what is sent, also to code of its own that sees more than the values."""
        if self.reads == "unknown" or (self.has_code and self.is_open):
            return False
        for part in self.parts.values():
            said, shape = [sent.get(name) for name in part.names], part.shape
            if part.fault(said) or shape is None or not shape.is_whole:
                return False
            is_null_told = self.tells_nulls and shape.null != "refused" and said[0] is None
            if self.has_code and (is_null_told or shape.holds_nulls):
                return False
        return True


RAW = Model(is_open=True, reads="apart")
"""An object that nothing is made of."""

_TEXT = Shape(is_only=True)
"""Of which nothing is made either."""


@lru_cache(maxsize=256)
def model_of(kind: type) -> Model | None:
    """How a class reads an object by itself; None when it is no model."""
    schema = kind.__dict__.get("__pydantic_core_schema__")
    if (
        schema is None
        and not hasattr(kind, "__struct_fields__")
        and not hasattr(kind, "__dataclass_fields__")
    ):
        return None
    try:
        return model_of_msgspec(kind) if schema is None else model_of_pydantic(schema)
    except Exception:  # noqa: BLE001 - nobody can read it; what its attributes are can still be seen
        names: Iterable[str] = getattr(kind, "__struct_fields__", getattr(kind, "__dataclass_fields__", ()))
        return _model([Part(name, (name,)) for name in names], kind=kind)


def model_of_pydantic(schema: _Schema) -> Model | None:
    """How pydantic reads an object by a schema of its own; None when it makes something else of it."""
    return _of_pydantic(schema, {}, {})


def model_of_msgspec(kind: Any) -> Model | None:
    """How msgspec reads an object as this type; None when it makes something else of it."""
    info = inspect.type_info(kind)
    if isinstance(info, inspect.StructType | inspect.DataclassType):
        return _of_msgspec(info)
    shape = _shape_of_msgspec(info, frozenset())
    return None if shape is None else shape.model


def _model(parts: Iterable[Part], **known: Any) -> Model:
    """A model of these fields. What two of them are called is plain for neither."""
    listed = list(parts)
    names = [name for part in listed for name in set(part.names)]
    shared = {name for name in names if names.count(name) > 1}
    plain = (part if shared.isdisjoint(part.names) else part._replace(shape=None) for part in listed)
    return Model(parts={part.names[0]: part for part in plain}, **known)


def _of_pydantic(schema: _Schema, shared: Mapping[str, _Schema], config: _Schema) -> Model | None:
    reads: Any = "apart"
    made, tells_nulls = dict, False
    while schema["type"] not in ("model-fields", "dataclass-args"):
        kind, config = schema["type"], schema.get("config", config)
        shared = {one["ref"]: one for one in schema.get("definitions", ())} or shared
        made, tells_nulls = schema.get("cls", made), tells_nulls or kind == "model"
        if kind == "function-after" or (schema.get("post_init") and not _is_of_pydantic(made)):
            reads = "together" if reads == "apart" else reads
        elif kind not in ("definitions", "definition-ref", "model", "dataclass", "nullable", "default"):
            reads = "unknown"
        is_odd = is_watched(schema.get("cls", object)) or schema.get("custom_init")
        if is_odd or schema.get("root_model"):
            reads = "unknown"
        inner = schema.get("schema") or shared.get(schema.get("schema_ref", ""))
        if inner is None:
            shape = _shape_of_pydantic(schema, shared, config)
            return shape.model if shape is not None else None
        if inner["type"] in ("dict", "any") and reads != "apart":
            return None
        schema = inner
    fields = schema["fields"]
    listed = fields.items() if isinstance(fields, dict) else [(field["name"], field) for field in fields]
    parts = [_part_of_pydantic(name, field, shared, config) for name, field in listed]
    computed = tuple(one["property_name"] for one in schema.get("computed_fields", ()))
    is_open = "allow" in (schema.get("extra_behavior"), config.get("extra_fields_behavior"))
    if any(field.get("init_only") for _, field in listed) or schema.get("extras_schema"):
        reads = "unknown"
    elif any(part.shape is not None and part.shape.sees_others for part in parts) and reads == "apart":
        reads = "together"
    return _model(parts, kind=made, computed=computed, is_open=is_open, tells_nulls=tells_nulls, reads=reads)


def _is_of_pydantic(kind: Any) -> bool:
    """Whether what runs after a model was read is pydantic's own: it makes room for private attributes."""
    return str(getattr(getattr(kind, "model_post_init", None), "__module__", "")).startswith("pydantic.")


def is_watched(kind: Any) -> bool:
    """Whether code of its own says what its attributes are."""
    return kind.__getattribute__ is not object.__getattribute__


def _part_of_pydantic(name: str, field: _Schema, shared: Mapping[str, _Schema], config: _Schema) -> Part:
    alias = field.get("validation_alias", []) if config.get("validate_by_alias", True) else []
    alias = [alias] if isinstance(alias, str) else alias
    paths: list[list[Any]] = alias if all(isinstance(one, list) for one in alias) else [alias]
    names = [path[0] for path in paths if len(path) == 1]
    if not names or config.get("validate_by_name") or config.get("populate_by_name"):
        names.append(name)
    read, default = field["schema"], _REQUIRED
    if read["type"] == "default":
        makes = read.get("default_factory")
        default = read["default"] if makes is None else makes() if makes in _STEADY_FACTORIES else _MADE_ANEW
        read = read["schema"]
    is_elsewhere = any(len(path) > 1 for path in paths)
    shape = None if is_elsewhere else _shape_of_pydantic(read, shared, config)
    return Part(name, tuple(dict.fromkeys(names)), shape, default)


def _shape_of_pydantic(schema: _Schema, shared: Mapping[str, _Schema], config: _Schema) -> Shape | None:
    """How a value is read; None when that is not plain."""

    def shape_of(one: Any) -> Shape | None:
        return _shape_of_pydantic(one, shared, config)

    kind = schema["type"]
    match kind:
        case "str":
            has_others = any(
                schema.get(one) or config.get(f"str_{one}", config.get(one)) for one in _OTHER_TEXTS
            )
            return Shape(is_only=not has_others)
        case "any":
            return Shape("nothing", is_only=True, holds_nulls=True, model=RAW)
        case "nullable":
            inner = shape_of(schema["schema"])
            return inner and inner._replace(null="nothing")
        case "literal":
            return _shape_of_choices(schema["expected"])
        case "enum" if not schema.get("missing"):
            return _shape_of_choices([member.value for member in schema["members"]])
        case "list":
            return _shape_of_list([shape_of(schema.get("items_schema", _ANY))])
        case "tuple":
            return _shape_of_list([shape_of(one) for one in schema["items_schema"]])
        case "dict":
            return _shape_of_dict(
                *(shape_of(schema.get(one, _ANY)) for one in ("keys_schema", "values_schema"))
            )
        case "definition-ref" if (ref := schema["schema_ref"]) in shared:
            others = {
                one: known for one, known in shared.items() if one != ref
            }  # what holds itself is not plain
            return _shape_of_pydantic(shared[ref], others, config)
        case "model" | "dataclass":
            return _shape_of_model(_of_pydantic(schema, shared, {}))
        case "function-after" | "function-before" | "function-wrap":
            return _shape_behind(schema, shape_of(schema["schema"]))
    return Shape() if kind in _SCALARS else None


def _shape_behind(schema: _Schema, inner: Shape | None) -> Shape | None:
    """How a value is read that code of the app's own sees too."""
    if inner is None:
        return None
    sees_others = inner.sees_others or schema["function"]["type"] == "with-info"
    is_after = schema["type"] == "function-after"
    null: Any = "refused" if is_after and inner.null == "refused" else "odd"
    if inner.model is RAW or (not is_after if inner.model else inner.holds_nulls):
        return None
    model = inner.model and inner.model._replace(reads="together")
    return Shape(
        null,
        may_vanish=True,
        has_code=True,
        holds_nulls=inner.holds_nulls,
        sees_others=sees_others,
        model=model,
    )


def _shape_of_choices(values: Iterable[Any]) -> Shape:
    listed = list(values)
    is_null, is_only = None in listed, all(isinstance(one, str) for one in listed)
    return Shape("nothing" if is_null else "refused", is_only=is_only, may_vanish=is_null)


def _shape_of_model(model: Model | None) -> Shape | None:
    if model is None or model.reads == "unknown":
        return None
    has_code = model.has_code or any(
        part.shape is None or part.shape.has_code for part in model.parts.values()
    )
    return Shape(has_code=has_code, holds_nulls=model.holds_nulls, model=model)


def _shape_of_list(items: Iterable[Shape | None]) -> Shape | None:
    shapes = list(items)
    if any(one is None or not one.is_whole for one in shapes):
        return None
    known = [one for one in shapes if one is not None]
    return Shape(
        has_code=any(one.has_code for one in known),
        holds_nulls=any(one.holds_nulls for one in known),
        sees_others=any(one.sees_others for one in known),
    )


def _shape_of_dict(key: Shape | None, value: Shape | None) -> Shape | None:
    if key is None or not key.is_only or value is None or not value.is_whole or value.null == "odd":
        return None
    is_raw = value.model is RAW or value == _TEXT
    model, holds_nulls = RAW if is_raw else None, value.null != "refused" or value.holds_nulls
    return Shape(has_code=value.has_code, holds_nulls=holds_nulls, sees_others=value.sees_others, model=model)


def _of_msgspec(info: Any, around: frozenset[type] = frozenset()) -> Model:
    reads = "together" if hasattr(info.cls, "__post_init__") else "apart"
    reads = "unknown" if is_watched(info.cls) else reads
    if getattr(info, "array_like", False) or info.cls in around:  # what holds itself is not plain
        return Model(kind=info.cls)
    parts = []
    for field in info.fields:
        default = _REQUIRED if field.required else field.default
        if not field.required and field.default is msgspec.NODEFAULT:
            makes = field.default_factory
            default = makes() if makes in _STEADY_FACTORIES else _MADE_ANEW
        shape = _shape_of_msgspec(field.type, around | {info.cls})
        parts.append(Part(field.name, (field.encode_name,), shape, default))
    return _model(parts, kind=info.cls, reads=reads)


def _shape_of_msgspec(info: inspect.Type, around: frozenset[type]) -> Shape | None:
    """How a value is read; None when that is not plain."""

    def shape_of(one: inspect.Type) -> Shape | None:
        return _shape_of_msgspec(one, around)

    match info:
        case inspect.StrType():
            return Shape(is_only=True)
        case inspect.AnyType():
            return Shape("nothing", is_only=True, holds_nulls=True, model=RAW)
        case inspect.UnionType(types=types):
            others = [one for one in types if not isinstance(one, inspect.NoneType)]
            inner = shape_of(others[0]) if len(others) == 1 else None
            # The text "null" may be one, too.
            return inner and inner._replace(null="nothing", may_vanish=True)
        case inspect.LiteralType(values=values):
            return _shape_of_choices(values)
        case inspect.EnumType(cls=kind) if kind._missing_.__func__ is Enum._missing_.__func__:  # type: ignore[attr-defined]
            return _shape_of_choices(member.value for member in kind)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return _shape_of_list([shape_of(item)])
        case inspect.TupleType(item_types=items):
            return _shape_of_list(map(shape_of, items))
        case inspect.DictType(key_type=key, value_type=value):
            return _shape_of_dict(shape_of(key), shape_of(value))
        case inspect.StructType() | inspect.DataclassType():
            return _shape_of_model(_of_msgspec(info, around))
    return Shape() if isinstance(info, _SCALARS_OF_MSGSPEC) else None
