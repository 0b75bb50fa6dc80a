"""Signing states: one signature for each state that a client asks about, each statement going on from the one before."""

import base64
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from shelflife.contract.compact import Moved, moved_between
from shelflife.contract.signed import Endorsement, SignedStates, SignedText, Statement, statement_input
from shelflife.server.errors import BadSetting
from shelflife.server.registry import Registry
from shelflife.server.state import Face, State
from shelflife.server.statefile import StateFile
from shelflife.server.wire import Level

__all__ = ["Lineage", "Signer", "Signing"]

_SHORTEST_VALID_S = 60

MOST_STATEMENTS = 64
"""A client that is further behind is told only the newest state, and not what has moved."""

_MOST_SIGNED = 256
"""How many signatures are kept. With aliases each client has texts of its own."""

_LARGEST_MOVE = 64 * 1024
_LARGEST_ANSWER = 256 * 1024
"""How many characters of statements one answer has. A client reads no more than a few times that."""


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


class Lineage:
    """The statements of one provider, in the order of its states.

    A statement is written to the state file before anybody sees it. So no two states ever have the same number.
    """

    def __init__(self, registry: Registry, level: Level, signing: Signing, state_file: StateFile) -> None:
        self._registry = registry
        self._level = level
        self._signing = signing
        self._state_file = state_file
        self._lock = threading.Lock()
        self._statements = state_file.statements()
        self._signed: dict[str, SignedText] = {}

    def answer(self, since: int | None, face: Face) -> SignedStates:
        """The statements after the number that a client has, in the client's words.

        The newest is always among them. Where some are not kept any more, it is the only one.
        """
        with self._lock:
            self._go_on()
            kept = self._statements
            numbers = [one.sequence for one in kept]
            first = numbers.index(since) + 1 if since in numbers[:-1] else len(kept) - 1
            if sum(len(one.text) for one in kept[first:]) > _LARGEST_ANSWER:
                first = len(kept) - 1
            told = [
                face.statement(statement, kept[index - 1] if index else None)
                for index, statement in enumerate(kept[first:], start=first)
            ]
            return SignedStates(
                statements=tuple(map(self._signed_text, told)), endorsements=self._signing.signer.endorsements
            )

    def _go_on(self) -> None:
        """Make sure that the newest statement is about the current state, and will hold for a while."""
        state, newest = self._registry.state, self._statements[-1] if self._statements else None
        now = int(self._signing.clock())
        stamp = state.face(self._level).stamp.message
        rules_version = stamp.rules_version or None
        if newest and (newest.table_versions, newest.rules_version) == (stamp.table_versions, rules_version):
            if newest.made_at <= now < (newest.made_at + newest.expires_at) // 2:
                return
            statement = msgspec.structs.replace(newest, made_at=now, expires_at=now + self._signing.valid_s)
        else:
            statement = Statement(
                lineage=newest.lineage if newest else secrets.token_hex(16),
                sequence=newest.sequence + 1 if newest else 1,
                table_versions=stamp.table_versions,
                rules_version=rules_version,
                previous=newest.versions.digest if newest else None,
                moved=self._moved(newest, state) if newest else None,
                made_at=now,
                expires_at=now + self._signing.valid_s,
            )
        self._state_file.write_statement(statement, MOST_STATEMENTS)
        kept = [one for one in self._statements if one.sequence != statement.sequence]
        self._statements = [*kept, statement][-MOST_STATEMENTS:]

    def _moved(self, newest: Statement, state: State) -> Moved | None:
        """What has moved since the last statement; None when that is too long to tell every client."""
        current = state.table_versions
        versions = {
            table: version
            for table, version in newest.table_versions.items()
            if current.get(table) != version
        }
        changes = state.face(self._level).changes_since(versions, newest.rules_version)
        moved = moved_between(newest.versions, changes)
        return moved if len(msgspec.json.encode(moved)) <= _LARGEST_MOVE else None

    def _signed_text(self, statement: Statement) -> SignedText:
        text = statement.text
        signed = self._signed.get(text)
        if signed is None:
            if len(self._signed) >= _MOST_SIGNED:
                self._signed.clear()
            signature = base64.b64encode(self._signing.signer.sign(statement_input(text))).decode()
            signed = SignedText(statement=text, key=self._signing.signer.key, signature=signature)
            self._signed[text] = signed
        return signed
