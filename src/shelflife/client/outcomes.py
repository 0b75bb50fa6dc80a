"""What the outcome of a tool says of the contract, wherever it says it: in metadata, at the end of an error's text, in an HTTP response or in JSON.

Nothing here imports a framework. Results are looked at by the names that their members have in all of them.
"""

from collections.abc import AsyncGenerator, Awaitable, Generator, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from shelflife.client.asking import Reply
from shelflife.client.entries import origin_of
from shelflife.client.reading import read_contract
from shelflife.contract.envelopes import META_KEY, Envelope, Trailed, has_trailer
from shelflife.contract.errors import BadMessage
from shelflife.contract.preconditions import PRECONDITION_HEADER, verdict_in

__all__ = [
    "Outcome",
    "ReadOutcome",
    "Source",
    "is_open",
    "is_pause",
    "read_outcome",
    "reply_in_meta",
    "reply_in_text",
    "reply_of",
    "says_error",
]

_JSON = {"content-type": "application/json"}
_MEMBERS = ("recovery_feedback", "table_versions")
_OF_A_RESPONSE = ("status_code", "headers", "content")
_STATUSES = ("status_code", "status")
_MOST_CAUSES = 16
_PAUSES = {
    ("langgraph.errors", "GraphBubbleUp"),
    ("pydantic_ai.exceptions", "ApprovalRequired"),
    ("pydantic_ai.exceptions", "CallDeferred"),
}
_REFUSED, _DONE = 422, 200
_SAYS_WHY = (401, 403, 407, 429)
_UNREADABLE = b"{"
"""The body of a reply whose contract cannot be read. That there was one must not get lost."""


class Source(msgspec.Struct, frozen=True):
    """The HTTP response that an outcome was read from."""

    origin: str | None = None
    """Where it came from; None where it does not say."""

    sent_to: str | None = None
    """Where its request was sent at first, before any redirect."""

    precondition: str | None = None
    """What its request had asked."""


class Outcome(msgspec.Struct, frozen=True):
    """How the run of a tool has ended."""

    shown: Any
    """What it returned or raised, without the contract at the end of its text: what a model is shown."""

    reply: Reply | None
    """What a response would have said; None where there is nothing of the contract."""

    is_error: bool = False
    """Whether the tool has failed, as far as that can be seen."""

    source: Source | None = None
    """The response that the reply was; None where it was none."""

    is_only: bool = False
    """Whether it is known that the reply is to the only request that the tool has made."""

    @property
    def has_contract(self) -> bool:
        """Whether there is one that can be read."""
        try:
            return self.reply is not None and read_contract(self.reply) is not None
        except BadMessage:
            return False

    @property
    def is_unexplained(self) -> bool:
        """Whether the tool has failed, and nothing that can be read says what is wrong. What a precondition was met for is not."""
        if self.reply is None:
            return self.is_error
        if verdict_in(self.reply.headers) == "met":
            return False
        try:
            is_silent = read_contract(self.reply) is None
        except BadMessage:
            return True
        status = self.reply.status
        return is_silent and 400 <= status < 500 and status not in _SAYS_WHY


def is_pause(outcome: object) -> bool:
    """Whether it is what a tool raises that waits for somebody, or hands over to another part of a framework: it has not failed."""
    return isinstance(outcome, Exception) and any(
        (one.__module__, one.__name__) in _PAUSES for one in type(outcome).__mro__
    )


def is_open(outcome: object) -> bool:
    """Whether what a tool has returned is still to run, or is a response that nothing is known of."""
    is_to_run = isinstance(outcome, Generator | AsyncGenerator | Awaitable)
    return is_to_run or any(isinstance(getattr(outcome, name, None), int) for name in _STATUSES)


class ReadOutcome(Protocol):
    """Looks for the contract in what a tool has returned, or raised. With `is_error` it is what there is to read of an error."""

    def __call__(self, outcome: Any, *, is_error: bool = False) -> Outcome: ...


def read_outcome(outcome: Any, *, is_error: bool = False) -> Outcome:
    """Look for the contract in what a tool has returned, or raised. With `is_error` it is what there is to read of an error.

    Only in an error is the end of a text looked at: what a tool hands on as its result may have been written by anybody.
    """
    if isinstance(outcome, BaseException):
        errors = [*_causes(outcome)]
        told = [_of_its_text(error) for error in errors]
        found = [getattr(error, "response", None) for error in errors]
        responses = [response for response in found if _is_response(response)]
        # a response says more than a text, which may be anybody's
        if responses:
            return Outcome(outcome, _of_response(responses[0]), True, _source_of(responses[0]))
        return Outcome(outcome, next(filter(None, told), None), True)
    if _is_response(outcome):
        return Outcome(outcome, _of_response(outcome), source=_source_of(outcome))
    if _is_unread(outcome):
        return Outcome(outcome, None)
    if isinstance(outcome, str):
        return Outcome(*_of_text(outcome, is_error), is_error)
    content = _member(outcome, "content")
    if isinstance(content, str | list) and not _is_body(outcome):
        return _of_message(outcome, content, is_error)
    return Outcome(outcome, _of_body(outcome))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that it was raised from. One that was only dealt with at the time may be of another server."""
    now: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if now is None:
            return
        yield now
        now = now.__cause__


def _of_its_text(error: BaseException) -> Reply | None:
    """What the text of an error says, without which it is from then on."""
    for at, text in enumerate(error.args):
        if isinstance(text, str):
            shown, reply = _of_text(text, is_error=True)
            if reply is not None and shown == text:
                return reply
            if reply is not None:
                error.args = (*error.args[:at], shown, *error.args[at + 1 :])
                for name, value in vars(error).items():  # errors of frameworks keep their text a second time
                    if isinstance(value, str) and value == text:
                        setattr(error, name, shown)
                return reply
    return None


def _is_response(outcome: object) -> bool:
    """Whether it is an HTTP response, as httpx2, httpx, requests and SDKs on top of them have it."""
    if isinstance(outcome, type) or not hasattr(outcome, _OF_A_RESPONSE[0]) or _is_unread(outcome):
        return False
    try:
        status, headers, content = (getattr(outcome, name) for name in _OF_A_RESPONSE)
    except Exception:  # noqa: BLE001 - a body that is not read yet is for the tool to read
        return False
    return isinstance(status, int) and isinstance(headers, Mapping) and isinstance(content, bytes)


def _is_unread(outcome: object) -> bool:
    """Whether it is a response of `requests` whose body is still to come: to look at its content would read that."""
    return getattr(outcome, "_content", None) is False


def _of_response(response: Any) -> Reply:
    return Reply(response.status_code, response.content, dict(response.headers))


def _source_of(response: Any) -> Source:
    """By the names that httpx2, httpx and requests share."""
    try:
        url, history = response.url, response.history
        precondition = response.request.headers.get(PRECONDITION_HEADER)
        first = history[0].url if history else url
        return Source(origin_of(str(url)), origin_of(str(first)), precondition)
    except Exception:  # noqa: BLE001 - of one that was made by hand, or a URL that is none
        return Source()


def reply_in_text(text: str) -> tuple[str, Reply | None]:
    """What stands at the end of an error's text, and the text without it."""
    trailed = Trailed.from_text(text)
    if trailed.envelope is not None:
        return trailed.text, reply_of(trailed.envelope)
    return text, Reply(_REFUSED, _UNREADABLE, _JSON) if has_trailer(text) else None


def reply_in_meta(meta: object, *, is_error: bool) -> Reply | None:
    """What the metadata of a result says."""
    if not isinstance(meta, Mapping) or META_KEY not in meta:
        return None
    envelope = Envelope.from_meta(meta)
    if envelope is None:
        return Reply(_REFUSED if is_error else _DONE, _UNREADABLE, _JSON)
    return reply_of(envelope)


def says_error(result: object) -> bool:
    """Whether a result of MCP says that it is an error. Where it has the newer name, the older one is not looked at: libraries warn of that."""
    said = _member(result, "is_error")
    return (_member(result, "isError") if said is None else said) is True


def _of_text(text: str, is_error: bool) -> tuple[str, Reply | None]:
    if is_error:
        shown, reply = reply_in_text(text)
        if reply is not None:
            return shown, reply
    if any(f'"{name}"' in text for name in _MEMBERS):
        try:
            return text, _of_body(msgspec.json.decode(text))
        except (msgspec.MsgspecError, RecursionError):
            if text.lstrip().startswith("{"):  # else it only speaks of it
                return text, Reply(_REFUSED, text.encode(errors="replace"), _JSON)
    return text, None


def reply_of(envelope: Envelope) -> Reply:
    """An envelope as a response would be."""
    try:
        body = b"" if envelope.body is None else msgspec.json.encode(envelope.body)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):  # what no JSON is
        return Reply(envelope.status, _UNREADABLE, _JSON)
    return Reply(envelope.status, body, {**_JSON, **envelope.headers})


def _is_body(outcome: object) -> bool:
    return isinstance(outcome, Mapping) and any(name in outcome for name in _MEMBERS)


def _of_body(outcome: object) -> Reply | None:
    """That of the JSON with which an API has answered, handed on as it is."""
    if not (isinstance(outcome, Mapping) and _is_body(outcome)):
        return None
    try:
        body = msgspec.json.encode(outcome)
    except (TypeError, ValueError, RecursionError):
        return None
    return Reply(_REFUSED if "recovery_feedback" in outcome else _DONE, body, _JSON)


def _of_message(outcome: Any, content: str | list[Any], is_error: bool) -> Outcome:
    """That of a result with content and metadata, as in MCP and in the messages of frameworks."""
    is_error = is_error or says_error(outcome) or _member(outcome, "status") == "error"
    texts = [content] if isinstance(content, str) else content
    read = [_of_block(block, is_error) for block in texts]
    reply = next((one.reply for one in reversed(read) if one.reply is not None), None)
    shown = [one.shown for one in read]
    meta = _member(outcome, "meta") or _member(outcome, "_meta")
    reply = reply_in_meta(meta, is_error=is_error) or reply
    return Outcome(outcome if shown == texts else _with_content(outcome, content, shown), reply, is_error)


def _of_block(block: Any, is_error: bool) -> Outcome:
    text = block if isinstance(block, str) else _member(block, "text")
    if not isinstance(text, str):
        return Outcome(block, None)
    shown, reply = _of_text(text, is_error)
    is_the_same = shown == text
    return Outcome(
        block if is_the_same else shown if block is text else _replaced(block, "text", shown), reply
    )


def _with_content(outcome: Any, content: str | list[Any], shown: list[Any]) -> Any:
    return _replaced(outcome, "content", shown[0] if isinstance(content, str) else shown)


def _member(of: Any, name: str) -> Any:
    return of.get(name) if isinstance(of, Mapping) else getattr(of, name, None)


def _replaced(of: Any, name: str, value: Any) -> Any:
    """The same with another member: a mapping, or a model of pydantic."""
    if isinstance(of, Mapping):
        return {**of, name: value}
    return of.model_copy(update={name: value}) if hasattr(of, "model_copy") else of
