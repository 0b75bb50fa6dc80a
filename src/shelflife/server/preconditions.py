"""Requests that carry remembered values: refused before anything is done when what the values rest on has moved."""

import msgspec

from shelflife.contract import BadMessage, ErrorMessage
from shelflife.contract.merging import merged
from shelflife.contract.preconditions import Precondition
from shelflife.server.errors import PolicyFailed
from shelflife.server.feedback import JSON, Answer, ErrorForm
from shelflife.server.policies import Rejected, Violation
from shelflife.server.provider import Provider
from shelflife.server.state import CompactStamp, Face, Stamp, State

__all__ = ["is_met", "refusal_of_malformed", "unmet"]

_FAILED = 412


def is_met(precondition: Precondition, face: Face) -> bool:
    """Whether nothing that the request's remembered values rest on has moved."""
    if precondition.rows is None and precondition.rules is None:
        return precondition.epoch == face.epoch
    return not face.has_moved(precondition.epoch, precondition.rows or (), precondition.rules or ())


def unmet(
    precondition: Precondition,
    provider: Provider,
    state: State,
    face: Face,
    operation: str,
    body: bytes,
    form: ErrorForm,
    stamp: Stamp | CompactStamp,
) -> Answer:
    """The answer to a request whose precondition does not hold: 412, with the fixes of the request as it was without memory.

    Looked at are the policies for every operation and those of `operation`, named as method and path.
    """
    rejected = Rejected(_violations(precondition, provider, operation, body), state)
    return provider.feedback.rejection(rejected, form, face, stamp, status=_FAILED)


def refusal_of_malformed(error: BadMessage) -> Answer:
    """The answer to a precondition that cannot be read, and so cannot be kept."""
    return Answer(400, JSON, msgspec.json.encode(ErrorMessage(error=str(error))))


def _violations(
    precondition: Precondition, provider: Provider, operation: str, body: bytes
) -> list[Violation]:
    try:
        request = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return []
    if not isinstance(request, dict):
        return []
    try:
        return provider.violations(merged(request, precondition.was), operation)
    except PolicyFailed:
        return []
