"""`when` and `unless`: the request fields, with their values, under which a fix holds."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from shelflife.contract.values import same_json

__all__ = ["WHOLE_REQUEST", "as_read", "field_path", "holds", "mismatch", "names_in", "read_at", "value_at"]

WHOLE_REQUEST = ""
"""The pointer to the request as a whole."""


def field_path(parent: str, name: str) -> str:
    """The pointer to a field: JSON Pointer (RFC 6901) without the leading slash."""
    escaped = name.replace("~", "~0").replace("/", "~1")
    return f"{parent}/{escaped}" if parent else escaped


def names_in(path: str) -> list[str]:
    """The names of the fields that a pointer leads through."""
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")] if path else []


def as_read(value: Any) -> Any:
    """A request value as policies and `when` see it: a copy with its fields sorted, a null field being none."""
    # the usual cases come first: to find out that something is no mapping takes its time
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return {name: as_read(value[name]) for name in sorted(value) if value[name] is not None}
    if isinstance(value, list | tuple):
        return [as_read(member) for member in value]
    return value


def holds(
    when: Mapping[str, Any], request: Mapping[str, Any], unless: Mapping[str, Sequence[Any]] | None = None
) -> bool:
    """Whether a fix that was learned under these conditions applies to this request."""
    return mismatch(when, partial(read_at, request), unless) is None


def mismatch(
    when: Mapping[str, Any],
    said: Callable[[str], Any],
    unless: Mapping[str, Sequence[Any]] | None = None,
) -> str | None:
    """The field for which a fix that was learned under these conditions does not apply to a request; None when it does.

    `said` is what `read_at` tells of the request. Whoever holds many fixes to one request need not read it anew for each.
    """
    for path, value in when.items():
        found = said(path)
        if not ((type(found) is str and found == value) or _is(found, value)):
            return path
    for path, values in (unless or {}).items():
        found = said(path)
        if any(_is(found, value) for value in values):
            return path
    return None


def read_at(request: Mapping[str, Any], path: str) -> Any:
    """The value that the pointer leads to, as policies and `when` see it."""
    value = value_at(request, path)
    return value if type(value) is str else as_read(value)


def _is(said: Any, value: Any) -> bool:
    read = as_read(value)
    # What is the same JSON is equal, and that is found out sooner.
    return said == read and same_json(said, read)


def value_at(request: Mapping[str, Any], path: str) -> Any:
    """The value that the pointer leads to; None when there is none."""
    if type(request) is dict and path and "/" not in path and "~" not in path:
        return request.get(path)  # as most do
    value: Any = request
    for name in names_in(path):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value
