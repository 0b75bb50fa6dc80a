"""What does not fit into a manifest, in a sentence for the person who wrote it: what there is, where something unknown is named."""

import re
from collections.abc import Collection
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin

import msgspec

__all__ = ["sentence_of"]

_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(?P<name>.*?)`")
_UNKNOWN_VALUE = re.compile(r"Invalid enum value '(?P<value>.*)' - at `\$\.(?P<name>\w+)`")


def sentence_of(error: msgspec.ValidationError, kind: type[Any], not_written: str = "") -> str:
    """What is wrong with a part of a manifest that should be of this kind, which may have one field that nobody writes."""
    said = str(error)
    known = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    fields = {name: type for name, type in known.items() if name != not_written}
    if (unknown := _UNKNOWN_FIELD.fullmatch(said)) is not None:
        return _unknown_field(unknown["name"], fields)
    if (wrong := _UNKNOWN_VALUE.fullmatch(said)) is not None and (choices := _choices(fields[wrong["name"]])):
        listed = ", ".join(map(repr, choices))
        return f"{wrong['name']!r} cannot be {wrong['value']!r}; there is {listed}"
    return said[:1].lower() + said[1:]


def _unknown_field(name: str, known: Collection[str]) -> str:
    """That there is no such field, and which may be meant."""
    close = get_close_matches(name, known, 1)
    meant = f"is {close[0]!r} meant?" if close else f"there is {', '.join(known)}"
    return f"there is no field {name!r} here; {meant}"


def _choices(kind: Any) -> list[str]:
    """The values of a field that is one of a few."""
    if get_origin(kind) is Literal:
        return [*get_args(kind)]
    return [choice for one in get_args(kind) for choice in _choices(one)]
