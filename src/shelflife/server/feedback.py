"""What goes on the wire about a request, at the configured level."""

from typing import Literal, NamedTuple

import msgspec

from shelflife.contract import ErrorMessage, Level, Problem
from shelflife.contract.compact import compacted
from shelflife.server.errors import MalformedRequest
from shelflife.server.policies import PreconditionFailed, Refusal
from shelflife.server.state import CompactStamp, Face, Stamp

__all__ = ["Answer", "ErrorForm", "Feedback", "form_asked_for", "stamped"]

ErrorForm = Literal["json", "problem"]
"""How errors are written: the paper's JSON, or `application/problem+json` with the same members."""

JSON = "application/json"
PROBLEM_JSON = "application/problem+json"
PLAIN_TEXT = "text/plain; charset=utf-8"

_MALFORMED = 400
_REJECTED = 422
_PRECONDITION_FAILED = 412
_TITLES = {_REJECTED: "Unprocessable Content", _PRECONDITION_FAILED: "Precondition Failed"}
_ABSENT = msgspec.Raw(b"")
_encode = msgspec.json.Encoder().encode


class Answer(NamedTuple):
    """An HTTP answer, free of any framework."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Feedback(NamedTuple):
    """How a provider's answers are written."""

    level: Level
    error_form: ErrorForm = "json"
    paper_only: bool = False
    """Leave out the members that the paper does not know."""

    def refusal(
        self,
        refusal: Refusal,
        form: ErrorForm,
        face: Face,
        stamp: Stamp | CompactStamp | None = None,
        status: int | None = None,
    ) -> Answer:
        """The answer to a request that is refused: the fixes as the state's face shows them, with a stamp if not of the full form."""
        if status is None:
            status = _PRECONDITION_FAILED if isinstance(refusal, PreconditionFailed) else _REJECTED
        if self.level == Level.PLAIN_TEXT:
            return Answer(status, PLAIN_TEXT, "\n".join((*refusal.sentences, "")).encode())
        stamp = stamp or face.stamp
        suggestions = [
            face.suggestion(suggestion.at_level(self.level, paper_only=self.paper_only))
            for suggestion in refusal.suggestions
        ]
        told = (
            [compacted(one, face.stamp.message.table_versions) for one in suggestions]
            if stamp.is_compact
            else suggestions
        )
        members = b'"success":false,"recovery_feedback":{"suggestions":' + _encode(told) + b"}"
        if form == "problem":
            problem = Problem(title=_TITLES[status], status=status, detail=" ".join(refusal.sentences))
            members = _encode(problem)[1:-1] + b"," + members
        body = b"{" + members + b"," + stamp.members + b"}"
        return Answer(status, PROBLEM_JSON if form == "problem" else JSON, body)

    def failure(self, form: ErrorForm) -> Answer:
        """The answer when a policy has a bug: 500, and nothing about why."""
        if self.level == Level.PLAIN_TEXT:
            return Answer(500, PLAIN_TEXT, b"Internal Server Error\n")
        if form == "problem":
            return Answer(500, PROBLEM_JSON, _encode(Problem(title="Internal Server Error", status=500)))
        return Answer(500, JSON, b'{"success":false,"error":"internal server error"}')

    def malformed(self, error: MalformedRequest, form: ErrorForm) -> Answer:
        """The answer to a request that holds what JSON cannot carry: 400, what is wrong, and no stamps."""
        if self.level == Level.PLAIN_TEXT:
            return Answer(_MALFORMED, PLAIN_TEXT, f"{error}\n".encode())
        if form == "problem":
            problem = Problem(title="Bad Request", status=_MALFORMED, detail=str(error))
            return Answer(_MALFORMED, PROBLEM_JSON, _encode(problem))
        return Answer(_MALFORMED, JSON, _encode(ErrorMessage(error=str(error))))


class _Own(msgspec.Struct):
    """The members of a body that are ours. What else is there is checked for its syntax, and skipped."""

    table_versions: msgspec.Raw = _ABSENT
    rules_version: msgspec.Raw = _ABSENT
    epoch: msgspec.Raw = _ABSENT


_read_own = msgspec.json.Decoder(_Own).decode


def stamped(body: bytes, members: bytes) -> bytes:
    """A JSON object with these members added at its end; b"" when the body is not one object, or has them already."""
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
    if not (own.table_versions is own.rules_version is own.epoch is _ABSENT):
        return b""
    if body[1:2] != b'"' and not body[1:-1].strip():
        return b"{" + members + b"}"
    return b"".join((body[:-1], b",", members, b"}"))


def form_asked_for(accept: str, default: ErrorForm) -> ErrorForm:
    """The form that an Accept header prefers; the provider's own where it does not say."""
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
