"""Signed statements: what a server vouches for with a key, so that nobody in between can forge or replay it.

A statement is the answer to a question, so it names the question. How a key signs is not known here, only what is signed.
"""

import re

import msgspec

from shelflife.contract.positions import Account

__all__ = [
    "KEY",
    "MOST_ENDORSEMENTS",
    "Endorsement",
    "SignedStatement",
    "Statement",
    "endorsement_input",
    "statement_input",
]

KEY = re.compile(r"ed25519:[A-Za-z0-9+/]{43}=")
"""How a public key is spelled."""

MOST_ENDORSEMENTS = 16

_encode = msgspec.json.Encoder(order="sorted").encode


class Statement(Account, frozen=True, kw_only=True, omit_defaults=True):
    """What a server says of the position where it is, to a client that has asked, and for which it vouches."""

    root: str
    """Where the contract lives: a path, or a whole address where the server knows that."""

    log: str
    """Names the log."""

    digest: str
    """Over the log and all that is in it, in hexadecimal."""

    made_at: int
    """In seconds of Unix time."""

    expires_at: int
    """From then on the statement says nothing any more."""

    @property
    def text(self) -> str:
        """The statement as it is signed and sent: JSON without white space, members sorted by name."""
        return _encode(self).decode()


class Endorsement(msgspec.Struct, frozen=True, kw_only=True):
    """A key says that another one takes its place."""

    key: str
    """The new one."""

    by: str
    signature: str


class SignedStatement(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `GET /contract/signed`: a statement and who vouches for it."""

    statement: str
    """The JSON text that was signed."""

    key: str
    """`ed25519:` and the public key in Base64."""

    signature: str
    """In Base64."""

    endorsements: tuple[Endorsement, ...] = ()


def statement_input(text: str) -> bytes:
    """What is signed for a statement. By how it begins it can never be taken for an endorsement."""
    return b"shelflife statement 2\n" + text.encode()


def endorsement_input(key: str, by: str) -> bytes:
    """What the key `by` signs to say that `key` takes its place."""
    return b"shelflife key 1\n" + _encode({"by": by, "key": key})
