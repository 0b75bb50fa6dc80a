"""How a fix gets into a request, and out of it again."""

from collections.abc import Mapping
from typing import Any

from shelflife.contract.values import same_json

__all__ = ["merged", "patch_between"]


def merged(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A request with a fix merged into it, as RFC 7396 says."""
    result = dict(target)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            inner = result.get(name)
            result[name] = merged(inner if isinstance(inner, Mapping) else {}, value)
        else:
            result[name] = value
    return result


def patch_between(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """What must be merged into one request to make another of it. A null in a request is as good as none."""
    patch: dict[str, Any] = {}
    for name in dict.fromkeys((*one, *other)):
        old, new = one.get(name), other.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            inner = patch_between(old, new)
            if inner:
                patch[name] = inner
        elif not same_json(old, new):
            patch[name] = new
    return patch
