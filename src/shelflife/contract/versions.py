"""The versions of a state: one value, and the two names that both sides work out from it."""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

__all__ = ["Versions"]

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CHARACTERS = _LETTERS + "0123456789"
_encode = msgspec.json.Encoder(order="sorted").encode


class Versions(NamedTuple):
    """Every table of a state with its version, and the fingerprint of its rules."""

    tables: Mapping[str, str]
    rules: str | None = None
    """None below Level 6, where rules have no version."""

    @property
    def epoch(self) -> str:
        """Names the state, on any server and any client: a Token of RFC 9651, a letter and seven letters or digits."""
        number = int.from_bytes(self._hash().digest(), "big")
        token = ""
        for alphabet in (_LETTERS, *[_CHARACTERS] * 7):
            number, index = divmod(number, len(alphabet))
            token += alphabet[index]
        return token

    @property
    def digest(self) -> str:
        """The SHA-256 of the canonical form of the state, in hexadecimal: what a signed statement is about."""
        return self._hash().hexdigest()

    def _hash(self) -> "hashlib._Hash":
        return hashlib.sha256(_encode([self.tables, self.rules]))
