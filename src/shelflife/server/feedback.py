"""What goes on the wire about a request, at the configured level."""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from shelflife.contract import Suggestion
from shelflife.contract.compact import CompactSuggestion, compacted
from shelflife.contract.messages import ErrorMessage, Problem
from shelflife.server.faces import Face
from shelflife.server.policies import PreconditionFailed, Refusal, Violation
from shelflife.server.stamps import Stamp
from shelflife.server.wire import ErrorForm, Level, WireFormat

__all__ = ["Answer", "error_answer", "feedback_members", "refusal_answer", "stamped", "title_of"]

JSON = "application/json"
PROBLEM_JSON = "application/problem+json"
PLAIN_TEXT = "text/plain; charset=utf-8"

_REJECTED = 422
_PRECONDITION_FAILED = 412
_QUALITY = re.compile(r";\s*q=([01](?:\.[0-9]{0,3})?)?")
_QUOTE, _CLOSING = b'"}'
_WHITE_SPACE = b" \t\r\n"
_encode = msgspec.json.Encoder().encode


class Answer(NamedTuple):
    """An HTTP answer, free of any framework."""

    status: int
    content_type: str
    """Empty when there is no body at all."""
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


def refusal_answer(
    wire: WireFormat,
    accept: str,
    refusal: Refusal,
    face: Face,
    stamp: Stamp | None = None,
    status: int | None = None,
) -> Answer:
    """The answer to a refused request: the fixes as the face shows them, and its full stamp or the one
    given. `accept` is what the request says of the form."""
    if status is None:
        status = _PRECONDITION_FAILED if isinstance(refusal, PreconditionFailed) else _REJECTED
    if wire.level == Level.PLAIN_TEXT:
        return Answer(status, PLAIN_TEXT, "\n".join((*refusal.sentences, "")).encode())
    stamp = stamp or face.stamp
    parts = [b'"success":false,' + feedback_members(wire, refusal.violations, face, stamp)]
    form = _form_asked_for(accept, wire.errors)
    if form == PROBLEM_JSON:
        problem = Problem(title=title_of(status), status=status, detail=" ".join(refusal.sentences))
        parts.insert(0, _encode(problem)[1:-1])
    if stamp.members:
        parts.append(stamp.members)
    return Answer(status, form, b"{" + b",".join(parts) + b"}", tuple(stamp.beside))


def feedback_members(wire: WireFormat, violations: Iterable[Violation], face: Face, stamp: Stamp) -> bytes:
    """The members of a JSON object that hold the fixes, as the face shows them."""
    told: list[Suggestion | CompactSuggestion] = []
    for violated in violations:
        suggestion = face.suggestion(wire.suggestion(violated.suggestion))
        by = face.words.policy(violated.policy.id)
        told.append(compacted(suggestion, by) if stamp.is_compact else suggestion)
    return b'"recovery_feedback":{"suggestions":' + _encode(told) + b"}"


def error_answer(
    wire: WireFormat, accept: str, status: int, sentence: str, headers: tuple[tuple[str, str], ...] = ()
) -> Answer:
    """An error in one sentence, which tells nothing of the contract."""
    if wire.level == Level.PLAIN_TEXT:
        return Answer(status, PLAIN_TEXT, f"{sentence}\n".encode(), headers)
    form = _form_asked_for(accept, wire.errors)
    error: Problem | ErrorMessage = ErrorMessage(error=sentence)
    if form == PROBLEM_JSON:
        error = Problem(title=title_of(status), status=status, detail=sentence)
    return Answer(status, form, _encode(error), headers)


class _Unstamped(msgspec.Struct, gc=False):
    """An object without the members that are ours. The syntax of all others is checked, and they are skipped."""

    table_versions: UnsetType = UNSET
    rules_version: UnsetType = UNSET
    at: UnsetType = UNSET


_check_unstamped = msgspec.json.Decoder(_Unstamped).decode


def title_of(status: int) -> str:
    """The name of a status in RFC 9110. Python 3.11 has older names for two of them."""
    newer = {413: "Content Too Large", 422: "Unprocessable Content"}
    return newer.get(status) or HTTPStatus(status).phrase


def stamped(body: bytes, stamp: Stamp) -> bytes:
    """A JSON object with a stamp added at its end; b"" when the body is no object, or has its members already."""
    try:
        if not body.isascii():
            body.decode()  # what is skipped is not checked for this
        _check_unstamped(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return b""
    if body[-1] == _CLOSING and body[1] == _QUOTE:
        return body[:-1] + stamp.ending
    body = body.strip(_WHITE_SPACE)
    if not body.strip(b"{}" + _WHITE_SPACE):
        return b"{" + stamp.members + b"}"
    return body[:-1] + stamp.ending


def _form_asked_for(accept: str, default: ErrorForm) -> str:
    """The media type that an Accept header prefers, or the default where it prefers none."""
    quality = {JSON: 0.0, PROBLEM_JSON: 0.0}
    for part in accept.lower().split(","):
        found = _QUALITY.search(part)
        quality[part.partition(";")[0].strip()] = float(found[1] or 0) if found else 1.0
    if quality[PROBLEM_JSON] == quality[JSON]:
        return PROBLEM_JSON if default == "problem" else JSON
    return PROBLEM_JSON if quality[PROBLEM_JSON] > quality[JSON] else JSON
