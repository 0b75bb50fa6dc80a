"""What a client asks of a server before its request is carried out: that nothing its remembered values rest on has moved."""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Literal, Self

import msgspec

from shelflife.contract.errors import BadMessage
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

_HEADER = re.compile(r"([A-Za-z][A-Za-z0-9]{7});on=:([A-Za-z0-9+/]*={0,2}):")
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

    rows: tuple[str, ...] | None = None
    """The rows that the values rest on; a bare table name for the whole table. None in the brief form: nothing at all may have moved."""

    rules: tuple[str, ...] | None = None
    was: dict[str, Any] = {}
    """What merging it into the request (RFC 7396) makes of it again what it was without them."""


class Precondition(_Grounds, frozen=True, kw_only=True):
    """The grounds of a request that carries remembered values."""

    epoch: str
    """The state at which these values were known to be right."""

    @property
    def header(self) -> str:
        """The value of `Contract-Precondition`: a Token of RFC 9651 with a Byte Sequence as its parameter `on`."""
        grounds = _Grounds(rows=self.rows, rules=self.rules, was=self.was)
        return f"{self.epoch};on=:{base64.b64encode(msgspec.json.encode(grounds)).decode()}:"

    @classmethod
    def from_header(cls, value: str) -> Self:
        """What the header says; `BadMessage` when it says nothing that can be held to."""
        found = _HEADER.fullmatch(value.strip()) if len(value) <= LONGEST_PRECONDITION else None
        try:
            raw = base64.b64decode(found[2], validate=True) if found else b""
            grounds = msgspec.json.decode(raw, type=_Grounds)
        except (binascii.Error, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            grounds = None
        if found is None or grounds is None or fault_in(grounds.was, DEEPEST_VALUE) is not None:
            raise BadMessage(
                f"{PRECONDITION_HEADER} cannot be read: it is an epoch, and after ;on=: its grounds as JSON in Base64"
            )
        return cls(epoch=found[1], **msgspec.structs.asdict(grounds))
