"""Signed states: what a server vouches for with a key, so that nobody in between can forge, hold back or replay it.

One statement for each state that anybody has asked about, each going on from the one before: the statements of a server are a lineage. How a key
signs is not known here, only what is signed.
"""

import re

import msgspec

from shelflife.contract.compact import Moved
from shelflife.contract.versions import Versions

__all__ = [
    "KEY",
    "MOST_ENDORSEMENTS",
    "Endorsement",
    "SignedStates",
    "SignedText",
    "Statement",
    "endorsement_input",
    "statement_input",
]

KEY = re.compile(r"ed25519:[A-Za-z0-9+/]{43}=")
"""How a public key is spelled."""

MOST_ENDORSEMENTS = 16

_encode = msgspec.json.Encoder(order="sorted").encode


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says of one of its states."""

    lineage: str
    """Names the history that the state is part of: 32 hexadecimal digits that are drawn once."""

    sequence: int
    """Counts the states of the lineage."""

    table_versions: dict[str, str]
    rules_version: str | None
    previous: str | None
    """The digest of the state before it in the lineage; null for the first."""

    moved: Moved | None
    """What has moved since that one; null when the server cannot tell, or not in short."""

    made_at: int
    """In seconds of Unix time."""

    expires_at: int
    """From then on the statement says nothing any more; the server makes it anew before."""

    @property
    def versions(self) -> Versions:
        """Of the state that it is about."""
        return Versions(self.table_versions, self.rules_version)

    @property
    def text(self) -> str:
        """The statement as it is signed and sent: JSON without white space, members sorted by name."""
        return _encode(self).decode()


class SignedText(msgspec.Struct, frozen=True, kw_only=True):
    """A statement and who vouches for it."""

    statement: str
    """The JSON text that was signed."""

    key: str
    """`ed25519:` and the public key in Base64."""

    signature: str
    """In Base64."""


class Endorsement(msgspec.Struct, frozen=True, kw_only=True):
    """A key says that another one takes its place."""

    key: str
    """The new one."""

    by: str
    signature: str


class SignedStates(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `GET /contract/signed`: the statements after one that the client has, or the newest alone."""

    statements: tuple[SignedText, ...]
    endorsements: tuple[Endorsement, ...] = ()


def statement_input(text: str) -> bytes:
    """What is signed for a statement. By how it begins it can never be taken for an endorsement."""
    return b"shelflife statement 1\n" + text.encode()


def endorsement_input(key: str, by: str) -> bytes:
    """What the key `by` signs to say that `key` takes its place."""
    return b"shelflife key 1\n" + _encode({"by": by, "key": key})
