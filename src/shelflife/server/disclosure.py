"""Disclosing less: a face that shows each client aliases of its own, and counts in place of lists."""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from shelflife.server.errors import BadSetting
from shelflife.server.faces import Face
from shelflife.server.state import State
from shelflife.server.tables import is_minted, minted_version
from shelflife.server.wire import Level
from shelflife.server.words import Words

__all__ = ["Aliases", "Disclosure"]

_SHORTEST_SECRET = 16
_DIGITS = 15
_MOST_FACES = 1024
_CREDENTIALS = ("authorization", "x-api-key")
_ANONYMOUS = ""
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Disclosure:
    """What clients are shown: aliases of names and keys, different for each of them, and counts in place of
    diffs."""

    secret: str | bytes = field(repr=False)
    """What all aliases are made from, 16 bytes at least. The same secret gives the same aliases, after a
    restart and on every replica."""

    client: Callable[[Mapping[str, str]], str] | None = None
    """Names the client from the headers of its request (by lower-case name), by something that the request
    proves. By default it is a digest of the `Authorization` or `X-API-Key` header. All who send neither are
    one client."""

    sees_diffs: Callable[[str], bool] | None = None
    """Whether a client is told which rows changed, in aliases. It can then keep fixes that rest on other
    rows. By default no client is."""

    def __post_init__(self) -> None:
        given: object = self.secret
        if not isinstance(given, str | bytes) or len(self._raw_secret) < _SHORTEST_SECRET:
            raise BadSetting(f"the secret of a disclosure has at least {_SHORTEST_SECRET} bytes")

    def aliases(self, client: str) -> "Aliases":
        """What things are called for a client. An operator can look up here what a client means."""
        return Aliases(hmac.digest(self._raw_secret, client.encode(errors="surrogateescape"), "sha256"))

    def face(self, state: State, level: Level, headers: Mapping[str, str]) -> Face:
        """What a state shows to the client whose request has these headers. It is kept as long as the state."""
        client = (self.client or _by_credentials)(headers)
        sees_diffs = self.sees_diffs is not None and self.sees_diffs(client)
        key = (self, level, client, sees_diffs)
        face: Face | None = state.faces.get(key)
        if face is None:
            if len(state.faces) >= _MOST_FACES:
                state.faces.clear()
            vary = ", ".join(_CREDENTIALS) if self.client is None else "*"
            face = Face(state, level, self.aliases(client), sees_diffs=sees_diffs, vary=vary)
            state.faces[key] = face
        return face

    @property
    def _raw_secret(self) -> bytes:
        return self.secret.encode() if isinstance(self.secret, str) else self.secret


def _by_credentials(headers: Mapping[str, str]) -> str:
    for name in _CREDENTIALS:
        if credentials := headers.get(name):
            return hashlib.sha256(f"{name}: {credentials}".encode(errors="surrogateescape")).hexdigest()
    return _ANONYMOUS


class Aliases(Words):
    """What tables, rows and rules are called for one client. An alias never changes, and does not tell the
    name."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def version(self, table: str, version: str) -> str:
        """A table's version. One that is made from the content gets another: from the real one the rows could be
        guessed."""
        if not is_minted(version):
            return version
        return minted_version(int.from_bytes(self._digest("v", table, version), "big"))

    def _name(self, kind: str, *names: str) -> str:
        return kind + self._digest(kind, *names).hex()[:_DIGITS]

    def _hexadecimal(self, kind: str, digits: str) -> str:
        """Others, of the same length. From the fingerprint of the rules names could be guessed, and from the log's own
        name and its digest what is in it. With another name for the log, nobody else is shown the same positions."""
        return self._digest(kind, digits).hex()[: len(digits)]

    def _digest(self, kind: str, *names: str) -> bytes:
        return hmac.digest(self._key, _encode((kind, *names)), "sha256")
