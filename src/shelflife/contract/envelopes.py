"""Envelopes: the contract where there is no HTTP, as in the result of a tool. What a response would say, in one JSON object.

It goes where metadata can go (in MCP, `_meta`), and at the end of the text of an error, for clients that keep nothing else.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl, urlencode

import msgspec

from shelflife.contract.errors import BadMessage
from shelflife.contract.preconditions import PRECONDITION_HEADER

__all__ = ["CHANGES_URI", "META_KEY", "Envelope", "QuestionUri", "Trailed", "has_trailer", "read_headers"]

META_KEY = "dev.shelflife/contract"
"""Under this name it goes in metadata. In a request the headers go there that it would have."""

CHANGES_URI = "shelflife://contract/changes"
"""The resource that a client listens to: it is updated whenever something has moved."""

_ROOT = "shelflife:/"
_AT, _BODY = "at", "body"
_TRAILER = '{"shelflife":'
_VERDICT = PRECONDITION_HEADER.lower()
_LONGEST_TRAILER = 256 * 1024
_MOST_TRIED = 4
_MOST_HEADERS = 16


class Envelope(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a response would say of the contract."""

    status: int
    body: Any = None
    """The contract's members: with the suggestions, if it is a refusal."""

    headers: dict[str, str] = {}

    @classmethod
    def from_meta(cls, meta: object) -> "Envelope | None":
        """The one in the metadata of a result; None where there is none that can be understood."""
        if not isinstance(meta, Mapping) or META_KEY not in meta:
            return None
        try:
            return msgspec.convert(meta[META_KEY], cls)
        except msgspec.ValidationError:
            return None

    @property
    def as_meta(self) -> dict[str, Any]:
        """The metadata of a result that carries it."""
        return {META_KEY: msgspec.to_builtins(self)}

    def trailing(self, text: str) -> str:
        """A text with this at its end, in a line of its own."""
        return f"{text.rstrip()}\n{_TRAILER}{msgspec.json.encode(self).decode()}}}"


class Trailed(NamedTuple):
    """A text that may have had an envelope at its end."""

    text: str
    """Without it: what a model is shown."""

    envelope: Envelope | None

    @classmethod
    def from_text(cls, text: str) -> "Trailed":
        """Take the envelope out of a text, whatever others have put around that. The last one counts.

        Texts are written by anybody, so only so much is tried: a long one must not hold up whoever reads it. Nor is a text believed that
        a precondition has failed: what was asked for would be done a second time.
        """
        import json  # half a millisecond of every import of this package, for what few use

        at = len(text)
        for _ in range(_MOST_TRIED):
            at = text.rfind(_TRAILER, 0, at)
            if at < 0:
                break
            tried = text[at : at + _LONGEST_TRAILER]
            try:
                found, length = json.JSONDecoder().raw_decode(tried)
                envelope = msgspec.convert(found["shelflife"], Envelope)
            except (ValueError, RecursionError, msgspec.ValidationError):
                continue
            headers = {name: value for name, value in envelope.headers.items() if name.lower() != _VERDICT}
            envelope = msgspec.structs.replace(envelope, headers=headers)
            return cls(f"{text[:at].rstrip()}{text[at + length :]}", envelope)
        return cls(text, None)


def has_trailer(text: str) -> bool:
    """Whether something in a text begins as an envelope at its end does, whether that can be understood or not."""
    return _TRAILER in text


class QuestionUri(NamedTuple):
    """A question to one of the contract's endpoints, as the URI of a resource: `shelflife://contract/changes?from=*`.

    All of it is in the URI, so that nothing in between can drop a part of it: the body too, and the position that goes with one.
    """

    path: str
    """That of the endpoint, as in `/contract/changes`."""

    query: str = ""
    body: bytes | None = None
    at: str = ""
    """What goes in `Contract-At`, where there is a body. All others have their position in the query."""

    @property
    def text(self) -> str:
        """As it is written."""
        query = self.query
        if self.body is not None:
            query = urlencode(
                {_AT: self.at, _BODY: self.body.decode()} if self.at else {_BODY: self.body.decode()}
            )
        return f"{_ROOT}{self.path}?{query}" if query else f"{_ROOT}{self.path}"

    @classmethod
    def from_text(cls, uri: str) -> Self | None:
        """The question that a URI is; None when it is none."""
        path, _, query = uri.removeprefix(_ROOT).partition("?")
        if not uri.startswith(f"{_ROOT}/contract/"):
            return None
        said = dict(parse_qsl(query, keep_blank_values=True)) if f"{_BODY}=" in query else {}
        if said.keys() <= {_AT, _BODY} and _BODY in said:
            return cls(path, "", said[_BODY].encode(), said.get(_AT, ""))
        return cls(path, query)


def read_headers(meta: object) -> dict[str, str]:
    """What a request says in its metadata, as headers by lower-case name; `BadMessage` when that cannot be understood."""
    said = meta.get(META_KEY) if isinstance(meta, Mapping) else None
    if said is None:
        return {}
    try:
        headers = msgspec.convert(said, dict[str, str])
    except msgspec.ValidationError as error:
        raise BadMessage(f"{META_KEY} in the metadata is not understood: {error}") from None
    if len(headers) > _MOST_HEADERS:
        raise BadMessage(f"{META_KEY} in the metadata has more than {_MOST_HEADERS} members")
    return {name.lower(): value for name, value in headers.items()}
