"""What the contract costs on the wire."""

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["contract_bytes_in", "contract_header_bytes"]

_OF_RESPONSES = ("table_versions", "rules_version", "epoch")
_OF_SUGGESTIONS = ("cache_hint", "table", "tables", "rows", "rules", "on", "when", "unless")
_PREFIX = "contract-"
_AROUND_A_HEADER = len(": \r\n")


def contract_header_bytes(headers: Mapping[str, str]) -> int:
    """How many bytes of a request or a response are headers of the contract."""
    return sum(
        len(name) + len(value) + _AROUND_A_HEADER
        for name, value in headers.items()
        if name.lower().startswith(_PREFIX)
    )


def contract_bytes_in(body: bytes) -> int:
    """How many bytes of the body of a response are there only for the sake of invalidation.

    The fix itself, its type and its parameters, is not counted: it is there with or without a memory.
    """
    try:
        whole = msgspec.json.decode(body)
    except msgspec.MsgspecError:
        return 0
    if not isinstance(whole, dict):
        return 0
    return len(msgspec.json.encode(whole)) - len(msgspec.json.encode(_without_contract(whole)))


def _without_contract(whole: dict[str, Any]) -> dict[str, Any]:
    bare = {name: value for name, value in whole.items() if name not in _OF_RESPONSES}
    feedback = bare.get("recovery_feedback")
    if isinstance(feedback, dict):
        suggestions = [
            {name: value for name, value in suggestion.items() if name not in _OF_SUGGESTIONS}
            for suggestion in feedback.get("suggestions", ())
        ]
        bare["recovery_feedback"] = {**feedback, "suggestions": suggestions}
    return bare
