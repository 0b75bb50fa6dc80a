"""Repair on the spot: a client that prefers it has its request mended by the server, and is told how."""

import re
from typing import Any

import msgspec

from shelflife.contract import Suggestion
from shelflife.contract.merging import merged
from shelflife.contract.stamps import quoted
from shelflife.server.errors import PolicyFailed
from shelflife.server.policies import Rejected
from shelflife.server.state import CompactStamp, Stamp

__all__ = ["Repair", "RepairedStamp", "is_lenient"]

_MOST_ROUNDS = 4
_LENIENT = re.compile(r"(?i)(^|[,;\s])handling\s*=\s*\"?lenient\"?($|[,;\s])")
_encode = msgspec.json.Encoder().encode


def is_lenient(prefer: str) -> bool:
    """Whether a `Prefer` header (RFC 7240) asks for lenient handling."""
    return bool(prefer) and _LENIENT.search(prefer) is not None


class RepairedStamp:
    """What a response carries to a client whose request was repaired: the stamp, and what was merged."""

    is_repaired = True

    def __init__(self, stamp: Stamp | CompactStamp, suggestions: list[Suggestion]) -> None:
        told = [{"type": one.type, "parameters": one.parameters} for one in suggestions]
        self.vary = stamp.vary
        self.members = stamp.members + b',"repaired":' + _encode(told)
        types = ", ".join(quoted(one.type) for one in suggestions)
        self.headers = [*stamp.headers, ("Contract-Repaired", types)]


class Repair:
    """The body of a request, as it is mended round by round."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self._merged: list[Suggestion] = []

    def stamp(self, stamp: Stamp | CompactStamp) -> Stamp | CompactStamp | RepairedStamp:
        """What the response to the body as it is now carries."""
        return RepairedStamp(stamp, self._merged) if self._merged else stamp

    def merge(self, failure: Rejected | PolicyFailed | None) -> bool:
        """Merge the fixes of a refusal; False when they must not be, or go round in circles."""
        if not isinstance(failure, Rejected) or len(self._merged) >= _MOST_ROUNDS:
            return False
        suggestions = failure.suggestions
        if not all(one.cache_hint == "cacheable" for one in suggestions):
            return False
        request: Any = msgspec.json.decode(self.body)
        if not isinstance(request, dict):
            return False
        for suggestion in suggestions:
            request = merged(request, suggestion.parameters)
        self.body = _encode(request)
        self._merged += suggestions
        return True
