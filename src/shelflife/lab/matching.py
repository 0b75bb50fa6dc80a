"""For whom a remembered fix is, on a wire that does not say so: what a client of the paper's may have gone by."""

from collections.abc import Mapping
from typing import Any

import msgspec

from shelflife.lab.spec import Match

__all__ = ["as_matched"]


def as_matched(body: bytes, match: Match, family_field: str, request: Mapping[str, Any]) -> bytes:
    """The answer to a request, as a client reads it that goes by this: each fix in it says what the client takes it to be for.

    Which row a fix rests on is not told either. A key of one of its tables that is a value of the request is taken for it.
    """
    if match == "request":
        return body
    try:
        told = msgspec.json.decode(body)
        suggestions = told["recovery_feedback"]["suggestions"]
    except (msgspec.MsgspecError, KeyError, TypeError):
        return body
    values = [value for value in request.values() if isinstance(value, str)]
    for suggestion in suggestions:
        if "table" in suggestion:
            suggestion |= _taken_for(match, family_field, request, suggestion["parameters"])
            vector = [one["table"] for one in suggestion.get("tables", ())] or [suggestion["table"]]
            suggestion["rows"] = [f"{table}:{value}" for table in vector for value in values]
    return msgspec.json.encode(told)


def _taken_for(
    match: Match, family_field: str, request: Mapping[str, Any], parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """The values that a request must have, null for a field that it must lack; and those that it must not have."""
    if match == "family":
        return {"when": {family_field: request.get(family_field)}}
    taken_away = {field: [None] for field, value in parameters.items() if value is None}
    set_fields = [field for field in parameters if field not in taken_away]
    # nobody takes a field away from a request that lacks it
    return {"when": dict.fromkeys(set_fields) if match == "absent" else {}, "unless": taken_away}
