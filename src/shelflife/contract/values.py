"""What JSON can carry from one end of the wire to the other, and what is wrong with what it cannot."""

import math
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from shelflife.contract.errors import BadMessage
from shelflife.contract.names import is_unicode, shown

__all__ = [
    "DEEPEST_VALUE",
    "MOST_DIGITS",
    "Fault",
    "are_packed_alike",
    "fault_in",
    "has_odd_number",
    "is_carried",
    "members_once",
    "same_json",
]

DEEPEST_VALUE = 32
"""How deep objects and lists may be nested in a request, and in each value that a suggestion names."""

MOST_DIGITS = 4300
"""How many digits a whole number may have. Python's usual readers of JSON take no more."""

_TOO_LONG: int = 10**MOST_DIGITS
_NO_NUMBER = "holds a number that JSON cannot carry"
_OF_JSON = frozenset({str, int, float, bool, type(None)})
_LISTS = (list, tuple)
_WRITTEN_AS_LISTS = (*_LISTS, set, frozenset)
_SAME_WHEN_EQUAL = {str, type(None)}
"""Types whose values are the same as JSON when they are equal; most values are of these."""

_SMALL = (type(None), bool)
_FEW = 2**63

_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_pack = msgspec.msgpack.Encoder(order="sorted").encode


class Fault(NamedTuple):
    """Something in a value that JSON cannot carry."""

    path: tuple[str, ...]
    """The fields and the numbers of list members that lead to it."""

    what: str
    """What is wrong with it: the rest of a sentence that begins with the name of the value."""


def fault_in(value: Any, deepest: int, *, is_strict: bool = False, layer: int = 0) -> Fault | None:
    """The first thing in a value that JSON cannot carry; None when all is well.

    Objects and lists may be nested at most `deepest` deep; `layer` is how deep the value itself stands. A type that JSON does not
    know is a fault only when `is_strict`; else it is left to whoever writes the value.
    """
    is_object = type(value) is dict or isinstance(value, dict if is_strict else Mapping)
    if not is_object and not isinstance(value, _LISTS if is_strict else _WRITTEN_AS_LISTS):
        return _fault_of_scalar(value, is_strict)
    if layer > deepest:
        return Fault((), f"is nested deeper than {deepest} levels")
    members: Iterable[tuple[Any, Any]] = value.items() if is_object else enumerate(value)
    for name, member in members:
        fault = None
        if is_object and not (type(name) is str and name.isascii()):
            fault = _fault_of_name(name, is_strict)
        if fault is None and not (member is None or (type(member) is str and member.isascii())):
            # the usual values need no such call
            fault = fault_in(member, deepest, is_strict=is_strict, layer=layer + 1)
        if fault is not None:
            return Fault((str(name), *fault.path), fault.what)
    return None


def _fault_of_name(name: Any, is_strict: bool) -> Fault | None:
    if isinstance(name, str):
        return None if is_unicode(name) else Fault((), "has a name that is not valid Unicode")
    return Fault((), "has a name that is no string") if is_strict else None


def _fault_of_scalar(value: Any, is_strict: bool) -> Fault | None:
    if isinstance(value, Enum):
        value = value.value if isinstance(value, str | int | float) or not is_strict else value
    if isinstance(value, str):
        return None if is_unicode(value) else Fault((), "holds text that is not valid Unicode")
    if isinstance(value, float) and not math.isfinite(value):
        return Fault((), f"{_NO_NUMBER}: {'NaN' if math.isnan(value) else 'infinity'}")
    if isinstance(value, int) and not -_TOO_LONG < value < _TOO_LONG:
        return Fault((), f"{_NO_NUMBER}: one of more than {MOST_DIGITS} digits")
    if is_strict and type(value) not in _OF_JSON:
        return Fault((), f"holds a {type(value).__name__}, which is no JSON value")
    return None


def same_json(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same, whatever the order of their fields."""
    if type(one) in _SAME_WHEN_EQUAL and type(other) in _SAME_WHEN_EQUAL:
        return bool(one == other)
    if are_packed_alike(one, other):
        return True
    encoded = _encode_sorted(one)
    return encoded == _encode_sorted(other) and not (b"null" in encoded and has_odd_number((one, other)))


def are_packed_alike(one: Any, other: Any) -> bool:
    """Whether two values are the same at a glance. They may be the same even if not. Unlike JSON, MessagePack
    tells NaN from null."""
    try:
        return _pack(one) == _pack(other)
    except OverflowError:  # a whole number of more than 64 bits
        return False


def members_once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object from its members, as a hook of `json.loads`; `BadMessage` when two of them have the same name."""
    once: dict[str, Any] = {}
    for name, value in members:
        if name in once:
            raise BadMessage(f"an object has two members of the same name: {shown(name)}")
        once[name] = value
    return once


def is_carried(operation: str, fields: Mapping[str, Any]) -> bool:
    """Whether JSON can carry a request as it is. To a memory any other is one that it has never seen."""
    try:
        is_plain = "".join((operation, *fields)).isascii()
    except TypeError:  # of a name that is no text
        is_plain = False
    for value in fields.values() if is_plain else ():
        kind = type(value)
        if not (value.isascii() if kind is str else kind in _SMALL or (kind is int and -_FEW < value < _FEW)):
            break
    else:
        if is_plain:
            return True  # as most are
    return fault_in({operation: dict(fields)}, DEEPEST_VALUE + 1, is_strict=True) is None


def has_odd_number(value: Any) -> bool:
    """Whether NaN or an infinity is anywhere in a value; both are written as null."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, str) or value is None:
        return False
    if isinstance(value, Mapping):
        return any(map(has_odd_number, value.values()))
    return isinstance(value, _WRITTEN_AS_LISTS) and any(map(has_odd_number, value))
