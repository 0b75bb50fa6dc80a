"""Asking before use: whether what a memory knows of a server still holds, and what has taken the place of what does not."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from shelflife.client.driving import Question
from shelflife.client.entries import Entry, Knowledge
from shelflife.client.events import Event, Evicted
from shelflife.contract import AskFixes, ContractState
from shelflife.contract.reading import Contract
from shelflife.contract.when import WHOLE_REQUEST

__all__ = ["Asked", "Renewal", "fixes_question", "renewals", "state_of"]

_MOST_RENEWED = 32
_encode = msgspec.json.Encoder().encode


class Asked(NamedTuple):
    """What a server was asked about."""

    suspects: tuple[Entry, ...]
    knowledge: Knowledge
    """Before it was asked: as long as that is all that is known, nothing is later than the answer."""


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
    return Renewal(entry.operation, known, fixes_question(origin, entry.operation, known))


def fixes_question(origin: str, operation: str, request: Mapping[str, Any]) -> Question:
    """What a server would suggest for a request, which it does not carry out."""
    body = _encode(AskFixes(operation=operation, request=dict(request)))
    return Question(f"{origin}/contract/fixes", body)


def state_of(contract: Contract) -> ContractState | None:
    """The state that an answer names; None when it does not."""
    if contract.table_versions is None:
        return None
    return ContractState(
        table_versions=contract.table_versions, rules_version=contract.rules_version or msgspec.UNSET
    )
