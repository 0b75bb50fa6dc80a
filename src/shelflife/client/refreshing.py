"""Asking before use: whether what a memory knows of a server still holds, and what has taken the place of what does not."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from shelflife.client.driving import Question
from shelflife.client.entries import Entry
from shelflife.client.events import Event, Evicted
from shelflife.contract import AskFixes
from shelflife.contract.when import WHOLE_REQUEST

__all__ = ["Renewal", "renewals"]

_MOST_RENEWED = 32
_encode = msgspec.json.Encoder().encode


class Renewal(NamedTuple):
    """The question that brings the fix that has taken the place of one that went."""

    operation: str
    request: dict[str, Any]
    question: Question


def renewals(origin: str, events: Iterable[Event]) -> list[Renewal]:
    """How to get fresh fixes for those that were found stale: what they held under is all of a request that their policy looks at."""
    gone = [event.entry for event in events if isinstance(event, Evicted) and event.reason.is_invalidation]
    found = (_renewal(origin, entry) for entry in gone[:_MOST_RENEWED])
    return [renewal for renewal in found if renewal is not None]


def _renewal(origin: str, entry: Entry) -> Renewal | None:
    request = entry.when.get(WHOLE_REQUEST) if WHOLE_REQUEST in entry.when else entry.when
    if not isinstance(request, dict) or any("/" in path for path in request):
        return None
    known = {field: value for field, value in request.items() if value is not None}
    body = _encode(AskFixes(operation=entry.operation, request=known))
    return Renewal(entry.operation, known, Question(f"{origin}/contract/fixes", body))
