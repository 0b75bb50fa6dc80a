"""What a client asks of a server before its request is carried out: that nothing its remembered values rest on has moved."""

import re
from collections.abc import Mapping
from typing import Any, Literal, Self

import msgspec

from shelflife.contract.cells import Cells
from shelflife.contract.errors import BadMessage
from shelflife.contract.positions import Position
from shelflife.contract.values import DEEPEST_VALUE, fault_in

__all__ = [
    "LONGEST_PRECONDITION",
    "PRECONDITION_HEADER",
    "Precondition",
    "Verdict",
    "has_gone_stale",
    "verdict_in",
]

PRECONDITION_HEADER = "Contract-Precondition"
"""In a request its grounds; in the response to it the verdict, when it was judged."""

Verdict = Literal["met", "failed"]
"""What a server made of a precondition."""

_VERDICTS: dict[str, Verdict] = {"met": "met", "failed": "failed"}

_HEADER = r"([A-Za-z0-9]{7,21});on=:([A-Za-z0-9+/]*={0,2}):"
LONGEST_PRECONDITION = 16_384
"""How many characters the header may have."""
_FAILED = 412


def verdict_in(headers: Mapping[str, str]) -> Verdict | None:
    """What a response, by its headers with lower-case names, says of the precondition of its request; None when nobody has judged it."""
    return _VERDICTS.get(headers.get(PRECONDITION_HEADER.lower(), ""))


def has_gone_stale(status: int, headers: Mapping[str, str]) -> bool:
    """Whether a response refuses its request because of what its remembered values rest on; any other 412 is the app's own."""
    return status == _FAILED and verdict_in(headers) == "failed"


class _Grounds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What remembered values rest on, and the request without them: what stands in the parameter `on`, as JSON."""

    cells: Cells | None = None
    """The cells that the values rest on. None in the brief form: nothing at all may have moved."""

    rules: tuple[str, ...] | None = None
    """None where it may be any rule."""

    policies: tuple[str, ...] | None = None
    """Those that gave the values, in short; None where it may be any."""

    was: dict[str, Any] = {}
    """What merging it into the request (RFC 7396) makes of it again what it was without them."""


class Precondition(_Grounds, frozen=True, kw_only=True):
    """The grounds of a request that carries remembered values."""

    at: str
    """The position at which these values were known to be right."""

    @property
    def position(self) -> Position | None:
        """The same as a place in the log."""
        return Position.from_text(self.at)

    @property
    def header(self) -> str:
        """The value of `Contract-Precondition`: a Token of RFC 9651 with a Byte Sequence as its parameter `on`."""
        import binascii  # a library to load, for what not every memory does

        grounds = _Grounds(cells=self.cells, rules=self.rules, policies=self.policies, was=self.was)
        return f"{self.at};on=:{binascii.b2a_base64(msgspec.json.encode(grounds), newline=False).decode()}:"

    @classmethod
    def from_header(cls, value: str) -> Self:
        """What the header says; `BadMessage` when it says nothing that can be held to."""
        import binascii

        found = re.fullmatch(_HEADER, value.strip()) if len(value) <= LONGEST_PRECONDITION else None
        try:
            raw = binascii.a2b_base64(found[2], strict_mode=True) if found else b""
            grounds = msgspec.json.decode(raw, type=_Grounds)
        except (binascii.Error, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            grounds = None
        if (
            not found
            or not Position.from_text(found[1])
            or grounds is None
            or fault_in(grounds.was, DEEPEST_VALUE) is not None
        ):
            raise BadMessage(
                f"{PRECONDITION_HEADER} cannot be read: it is a position, and after ;on=: its grounds as JSON in Base64"
            )
        return cls(at=found[1], **msgspec.structs.asdict(grounds))
