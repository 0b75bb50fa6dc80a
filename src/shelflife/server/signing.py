"""Signing: a provider vouches for what it answers when a client asks where its log is."""

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from shelflife.contract.positions import Account
from shelflife.contract.signed import Endorsement, SignedStatement, Statement, statement_input
from shelflife.server.errors import BadSetting
from shelflife.server.faces import Face

__all__ = ["Signer", "Signing", "signed"]

_SHORTEST_VALID_S = 60


class Signer(Protocol):
    """A private key. The one there is, `shelflife.integrations.ed25519.SigningKey`, comes with the extra
    `signed`."""

    @property
    def key(self) -> str:
        """The public key: `ed25519:` and 32 bytes in Base64."""

    @property
    def endorsements(self) -> tuple[Endorsement, ...]:
        """The endorsements by which earlier keys name their successors."""

    def sign(self, message: bytes) -> bytes:
        """The signature."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Signing:
    """How a provider vouches for the states that clients ask about."""

    signer: Signer
    """The private key."""

    valid_s: int = 24 * 3600
    """For how many seconds a statement holds; a minute at least."""

    clock: Callable[[], float] = time.time
    """The time of day, in seconds since 1970."""

    def __post_init__(self) -> None:
        if not callable(getattr(self.signer, "sign", None)):
            raise BadSetting(
                f"a signer is a SigningKey, not {type(self.signer).__name__}; see SigningKey.from_file"
            )
        if self.valid_s < _SHORTEST_VALID_S:
            raise BadSetting(f"states are signed for at least {_SHORTEST_VALID_S} s, not {self.valid_s}")


def signed(account: Account, face: Face, root: str, signing: Signing) -> SignedStatement:
    """The answer to a question, signed. It names the question, so each has its own."""
    now = int(signing.clock())
    text = Statement(
        **{name: getattr(account, name) for name in account.__struct_fields__},
        root=root,
        log=face.log_id,
        digest=face.digest,
        made_at=now,
        expires_at=now + signing.valid_s,
    ).text
    signer = signing.signer
    signature = base64.b64encode(signer.sign(statement_input(text))).decode()
    return SignedStatement(
        statement=text, key=signer.key, signature=signature, endorsements=signer.endorsements
    )
