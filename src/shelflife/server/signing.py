"""Signing states: one signature for each state that a client asks about, each statement going on from the one before."""

import base64
import secrets
import threading
from collections.abc import Callable
from typing import Protocol

import msgspec

from shelflife.contract import Level
from shelflife.contract.compact import Moved, moved_between
from shelflife.contract.signed import Endorsement, SignedStates, SignedText, Statement, statement_input
from shelflife.server.registry import Registry
from shelflife.server.state import Face, State
from shelflife.server.statefile import StateFile

__all__ = ["Lineage", "Signer"]

MOST_STATEMENTS = 64
"""A client that is further behind is told the newest state alone, and not what has moved since."""

_MOST_SIGNED = 256
"""Signatures are kept for so many texts; with aliases each client has its own."""

_LARGEST_MOVE = 64 * 1024
_LARGEST_ANSWER = 256 * 1024
"""Of statements, in characters; a client reads no more than a few times that."""


class Signer(Protocol):
    """A private key. The one there is, `shelflife.integrations.ed25519.SigningKey`, comes with the extra `signed`."""

    @property
    def key(self) -> str:
        """The public key: `ed25519:` and 32 bytes in Base64."""

    @property
    def endorsements(self) -> tuple[Endorsement, ...]:
        """By which earlier keys have named the one that takes their place."""

    def sign(self, message: bytes) -> bytes:
        """The signature."""


class Lineage:
    """The statements of one provider, in the order of its states.

    A statement is written to the state file before anybody sees it: whatever happens, no two states ever bear the same number.
    """

    def __init__(
        self,
        registry: Registry,
        level: Level,
        signer: Signer,
        state_file: StateFile,
        valid_s: int,
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._level = level
        self._signer = signer
        self._state_file = state_file
        self._valid_s = valid_s
        self._clock = clock
        self._lock = threading.Lock()
        self._statements = state_file.statements()
        self._signed: dict[str, SignedText] = {}

    def answer(self, since: int | None, face: Face) -> SignedStates:
        """The statements after a number that a client has, as far as they are kept, in the client's words; the newest is always there."""
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
                statements=tuple(map(self._signed_text, told)), endorsements=self._signer.endorsements
            )

    def _go_on(self) -> None:
        """See to it that the newest statement is of the current state, and will hold for a while."""
        state, newest = self._registry.state, self._statements[-1] if self._statements else None
        now = int(self._clock())
        stamp = state.face(self._level).stamp.message
        rules_version = stamp.rules_version or None
        if newest and (newest.table_versions, newest.rules_version) == (stamp.table_versions, rules_version):
            if newest.made_at <= now < (newest.made_at + newest.expires_at) // 2:
                return
            statement = msgspec.structs.replace(newest, made_at=now, expires_at=now + self._valid_s)
        else:
            statement = Statement(
                lineage=newest.lineage if newest else secrets.token_hex(16),
                sequence=newest.sequence + 1 if newest else 1,
                table_versions=stamp.table_versions,
                rules_version=rules_version,
                previous=newest.versions.digest if newest else None,
                moved=self._moved(newest, state) if newest else None,
                made_at=now,
                expires_at=now + self._valid_s,
            )
        self._state_file.write_statement(statement, MOST_STATEMENTS)
        kept = [one for one in self._statements if one.sequence != statement.sequence]
        self._statements = [*kept, statement][-MOST_STATEMENTS:]

    def _moved(self, newest: Statement, state: State) -> Moved | None:
        """What has moved since the last statement; None when that is too long to be told every client."""
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
            signature = base64.b64encode(self._signer.sign(statement_input(text))).decode()
            signed = SignedText(statement=text, key=self._signer.key, signature=signature)
            self._signed[text] = signed
        return signed
