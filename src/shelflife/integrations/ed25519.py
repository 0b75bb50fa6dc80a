"""Ed25519 keys, by `cryptography`: signing at the server, pinning at the client. Needs the extra `signed`.

At the server: `Provider(..., log="log.db", signing=Signing(signer=SigningKey.from_file("signing.pem")))`; at the client:
`Memory(trust=trust({"https://api.example": ["ed25519:..."]}))`.
"""

import base64
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from shelflife.client.trust import Trust
from shelflife.contract.signed import MOST_ENDORSEMENTS, Endorsement, endorsement_input
from shelflife.errors import ShelflifeError
from shelflife.extras import needing

with needing("signed"):
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = ["KeyFileError", "SigningKey", "is_signed_by", "trust"]

_PREFIX = "ed25519:"


class KeyFileError(ShelflifeError):
    """A file holds no usable key or endorsement, or cannot be written. The message is one sentence."""


class SigningKey:
    """The private key of a server."""

    def __init__(self, private: Ed25519PrivateKey, endorsements: Iterable[Endorsement] = ()) -> None:
        self._private = private
        self.key = _PREFIX + base64.b64encode(private.public_key().public_bytes_raw()).decode()
        """The public key, for clients to pin."""
        self.endorsements = tuple(endorsements)
        """The endorsements by which earlier keys name this one, or one on the way to it."""
        _check_endorsements(self.key, self.endorsements)

    @classmethod
    def new(cls) -> "SigningKey":
        """A new random key."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_file(cls, path: str | Path, endorsements: Iterable[Endorsement] = ()) -> "SigningKey":
        """A key from a PEM file (PKCS #8, not encrypted)."""
        try:
            private = serialization.load_pem_private_key(Path(path).read_bytes(), password=None)
        except OSError as error:
            raise KeyFileError(f"cannot read {path}: {os.strerror(error.errno or 0)}") from error
        except TypeError:
            raise KeyFileError(f"the key in {path} is encrypted; write it without a passphrase") from None
        except (ValueError, UnsupportedAlgorithm):
            raise KeyFileError(f"{path} holds no private key in PEM that can be read") from None
        if not isinstance(private, Ed25519PrivateKey):
            raise KeyFileError(f"{path} holds a key of another kind than Ed25519")
        return cls(private, endorsements)

    def write(self, path: str | Path) -> None:
        """Write the key to a file that is not there yet, for the owner alone."""
        pem = self._private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        try:
            file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
            try:
                with file:
                    file.write(pem)
            except OSError:
                Path(path).unlink(missing_ok=True)  # half a key is none
                raise
        except OSError as error:
            raise KeyFileError(f"cannot write {path}: {os.strerror(error.errno or 0)}") from error

    def sign(self, message: bytes) -> bytes:
        """The signature of a message."""
        return self._private.sign(message)

    def endorse(self, key: str) -> Endorsement:
        """Name another key as the successor of this one. Clients that have pinned this one follow."""
        if key == self.key:
            raise KeyFileError("a key cannot take its own place")
        signature = self.sign(endorsement_input(key, self.key))
        return Endorsement(key=key, by=self.key, signature=base64.b64encode(signature).decode())


def _check_endorsements(key: str, endorsements: Sequence[Endorsement]) -> None:
    """Refuse endorsements that would lead no client to this key, or would lead clients away from it."""
    if len(endorsements) > MOST_ENDORSEMENTS:
        raise KeyFileError(f"a key has at most {MOST_ENDORSEMENTS} endorsements")
    for one in endorsements:
        if not is_signed_by(one.by, endorsement_input(one.key, one.by), one.signature):
            raise KeyFileError(f"an endorsement of {one.key} is not signed by {one.by}")
        if one.by == key:
            raise KeyFileError(f"an endorsement says that {one.key} takes the place of the signing key")
        if one.key not in {key, *(other.by for other in endorsements)}:
            raise KeyFileError(f"an endorsement is of {one.key}, which is not the signing key")


def is_signed_by(key: str, message: bytes, signature: str) -> bool:
    """Whether the signature of a message, in Base64, is by this key."""
    try:
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key.removeprefix(_PREFIX)))
        public.verify(base64.b64decode(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True


def trust(pins: Mapping[str, Collection[str]]) -> Trust:
    """Trust in these keys, by origin. What is not signed by one of them changes nothing in a memory."""
    return Trust(pins, is_signed_by)
