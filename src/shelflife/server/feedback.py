"""What goes on the wire about a request, at the configured level."""

from http import HTTPStatus
from typing import NamedTuple

import msgspec

from shelflife.contract.compact import compacted
from shelflife.contract.messages import ErrorMessage, Problem
from shelflife.server.faces import Face, Stamp
from shelflife.server.policies import PreconditionFailed, Refusal
from shelflife.server.wire import ErrorForm, Level, WireFormat

__all__ = ["Answer", "error_answer", "form_asked_for", "refusal_answer", "stamped"]

JSON = "application/json"
PROBLEM_JSON = "application/problem+json"
PLAIN_TEXT = "text/plain; charset=utf-8"

_REJECTED = 422
_PRECONDITION_FAILED = 412
_ABSENT = msgspec.Raw(b"")
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
    refusal: Refusal,
    form: ErrorForm,
    face: Face,
    stamp: Stamp | None = None,
    status: int | None = None,
) -> Answer:
    """The answer to a refused request: the fixes as the face shows them, and its full stamp or the one
    given."""
    if status is None:
        status = _PRECONDITION_FAILED if isinstance(refusal, PreconditionFailed) else _REJECTED
    if wire.level == Level.PLAIN_TEXT:
        return Answer(status, PLAIN_TEXT, "\n".join((*refusal.sentences, "")).encode())
    stamp = stamp or face.stamp
    told = [
        compacted(face.suggestion(wire.suggestion(one.suggestion)), face.policy(one.policy.id))
        if stamp.is_compact
        else face.suggestion(wire.suggestion(one.suggestion))
        for one in refusal.violations
    ]
    members = b'"success":false,"recovery_feedback":{"suggestions":' + _encode(told) + b"}"
    if form == "problem":
        problem = Problem(title=_title(status), status=status, detail=" ".join(refusal.sentences))
        members = _encode(problem)[1:-1] + b"," + members
    body = b"{" + b",".join(part for part in (members, stamp.members) if part) + b"}"
    return Answer(status, PROBLEM_JSON if form == "problem" else JSON, body, tuple(stamp.beside))


def error_answer(
    wire: WireFormat, status: int, sentence: str, form: ErrorForm, headers: tuple[tuple[str, str], ...] = ()
) -> Answer:
    """An error in one sentence, which tells nothing of the contract."""
    if wire.level == Level.PLAIN_TEXT:
        return Answer(status, PLAIN_TEXT, f"{sentence}\n".encode(), headers)
    if form == "problem":
        problem = Problem(title=_title(status), status=status, detail=sentence)
        return Answer(status, PROBLEM_JSON, _encode(problem), headers)
    return Answer(status, JSON, _encode(ErrorMessage(error=sentence)), headers)


class _Own(msgspec.Struct):
    """The members of a body that are ours. The syntax of all others is checked, and they are skipped."""

    table_versions: msgspec.Raw = _ABSENT
    rules_version: msgspec.Raw = _ABSENT
    at: msgspec.Raw = _ABSENT


_read_own = msgspec.json.Decoder(_Own).decode


def _title(status: int) -> str:
    """The name of a status in RFC 9110. Python 3.11 has older names for two of them."""
    newer = {413: "Content Too Large", 422: "Unprocessable Content"}
    return newer.get(status) or HTTPStatus(status).phrase


def stamped(body: bytes, members: bytes) -> bytes:
    """A JSON object with these members added at its end; b"" when the body is no object, or has them
    already."""
    if not (body[:1] == b"{" and body[-1:] == b"}"):
        body = body.strip(b" \t\r\n")
        if not (body[:1] == b"{" and body[-1:] == b"}"):
            return b""
    try:
        if not body.isascii():
            body.decode()  # what is skipped is not checked for this
        own = _read_own(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return b""
    if not (own.table_versions is own.rules_version is own.at is _ABSENT):
        return b""
    if body[1:2] != b'"' and not body[1:-1].strip():
        return b"{" + members + b"}"
    return b"".join((body[:-1], b",", members, b"}"))


def form_asked_for(accept: str, default: ErrorForm) -> ErrorForm:
    """The form that an Accept header prefers, or the default where it prefers none."""
    quality = {JSON: 0.0, PROBLEM_JSON: 0.0}
    for part in accept.split(","):
        media_type, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if media_type in quality:
            quality[media_type] = _quality(parameters)
    if quality[PROBLEM_JSON] == quality[JSON]:
        return default
    return "problem" if quality[PROBLEM_JSON] > quality[JSON] else "json"


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0
