"""What the contract costs on the wire."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from shelflife.client.prompts import OF_RESPONSES, OF_SUGGESTIONS, for_planner

if TYPE_CHECKING:  # scores need no client
    import httpx2

__all__ = [
    "contract_bytes_in",
    "contract_fields_in",
    "contract_header_bytes",
    "head_bytes",
    "other_header_bytes",
]

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


def other_header_bytes(response: "httpx2.Response") -> int:
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


def head_bytes(response: "httpx2.Response") -> int:
    """How many bytes of an exchange are no bodies: start lines and all headers, both ways."""
    contract = (contract_header_bytes(message.headers) for message in (response.request, response))
    return other_header_bytes(response) + sum(contract)


def contract_bytes_in(body: bytes) -> int:
    """How many bytes of the body of a response are there only for the sake of invalidation.

    The fix itself, its type and its parameters, is not counted: it is there with or without a memory.
    """
    whole = _object_in(body)
    if whole is None:
        return 0
    encoded = msgspec.json.encode(whole)
    return len(encoded) - len(for_planner(encoded).encode())


def contract_fields_in(body: str) -> Iterator[tuple[str, int]]:
    """The members of the contract in the body of a response, each with its bytes: its name, the colon and its value.

    With the commas between them they come to `contract_bytes_in`.
    """
    whole = _object_in(body.encode()) or {}
    feedback = whole.get("recovery_feedback")
    suggestions = feedback.get("suggestions", ()) if isinstance(feedback, dict) else ()
    for names, members in ((OF_RESPONSES, [whole]), (OF_SUGGESTIONS, suggestions)):
        for one in members:
            for name in names:
                if name in one:
                    yield name, len(msgspec.json.encode({name: one[name]})) - len("{}")


def _object_in(body: bytes) -> dict[str, Any] | None:
    try:
        whole = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return whole if isinstance(whole, dict) else None
