"""What the contract costs on the wire."""

from collections.abc import Mapping
from typing import Any

import httpx2
import msgspec

__all__ = ["contract_bytes_in", "contract_header_bytes", "head_bytes", "other_header_bytes"]

_OF_RESPONSES = ("table_versions", "rules_version", "at")
_OF_SUGGESTIONS = ("cache_hint", "table", "tables", "rows", "cells", "rules", "on", "by", "when", "unless")
_PREFIX = "contract-"
_END = "\r\n"
_AROUND_A_HEADER = len(": ") + len(_END)


def contract_header_bytes(headers: Mapping[str, str]) -> int:
    """How many bytes of a request or a response are headers of the contract."""
    return sum(
        len(name) + len(value) + _AROUND_A_HEADER
        for name, value in headers.items()
        if name.lower().startswith(_PREFIX)
    )


def other_header_bytes(response: httpx2.Response) -> int:
    """The bytes of an exchange that are neither bodies nor the contract's headers, as HTTP/1.1 has them."""
    request = response.request
    lines = (
        f"{request.method} {request.url.raw_path.decode()} HTTP/1.1",
        f"HTTP/1.1 {response.status_code} {response.reason_phrase}",
    )
    headers = (*request.headers.multi_items(), *response.headers.multi_items())
    others = [header for header in headers if not header[0].lower().startswith(_PREFIX)]
    return (
        sum(len(line) + len(_END) for line in lines)
        + 2 * len(_END)
        + sum(len(name) + len(value) + _AROUND_A_HEADER for name, value in others)
    )


def head_bytes(response: httpx2.Response) -> int:
    """How many bytes of an exchange are no bodies: start lines and all headers, both ways."""
    contract = (contract_header_bytes(message.headers) for message in (response.request, response))
    return other_header_bytes(response) + sum(contract)


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
