"""Asking before use: whether what is known of a server still holds, and what has replaced what does not."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec

from shelflife.client.asking import Exchange, Fields, Question, Steps
from shelflife.client.entries import Entry, Root
from shelflife.client.events import Event, Evicted
from shelflife.client.guard import Guard, amend
from shelflife.client.observing import About, Observing
from shelflife.client.reading import Contract
from shelflife.client.shelf import Shelf
from shelflife.client.steps import body_of
from shelflife.contract import AskFixes
from shelflife.contract.when import WHOLE_REQUEST

__all__ = ["Revalidating"]

_MOST_RENEWED = 32
_MOST_ASKED = 3
"""About one request: it may be found again by what its fixes make of it, and others may learn of a movement while the server is asked."""

_encode = msgspec.json.Encoder().encode


class Revalidating:
    """How one memory asks before it uses something."""

    def __init__(self, shelf: Shelf, observing: Observing) -> None:
        self._shelf = shelf
        self._observing = observing

    def refreshing(self, root: Root) -> Steps[list[Event]]:
        """Ask whether what is known of a server still holds.

        Nobody answering changes nothing, unless a key must vouch for it: no request would get through either.
        """
        known = self._observing.epoch(root)
        if known is None and root not in self._shelf.doubts:
            return []
        if self._shelf.must_ask_first(root):
            return (yield from self.taking_in(root, b""))
        since = "" if known is None else f"?known={known}"
        body = body_of((yield Question(f"{root}/contract/state{since}")))
        # without a body there is nothing new: the state is the known one (304), or nobody has answered
        return [] if body is None else (yield from self.taking_in(root, body))

    def taking_in(self, root: Root, told: bytes, since: str | None = None) -> Steps[list[Event]]:
        """What a server tells outside of any request; then what has replaced the fixes that went."""
        exchange = Exchange.told(root, "", {}, told)._replace(epoch=since)
        if self._shelf.word_about(root).is_its_own:
            events = yield from self._observing.observing(exchange)
        else:  # whatever it tells, others are asked
            events = yield from self._observing.heeding(exchange, Contract())
        for operation, request in _renewals(events):
            body = body_of((yield _about(root, operation, request)))
            if body is not None:
                answer = Exchange.told(root, operation, request, body)
                events += yield from self._observing.observing(answer)
        return events

    def revalidating(
        self, root: Root, operation: str, request: Fields, guard: Guard | None
    ) -> Steps[list[Event]]:
        """Where something that this request finds must be revalidated, ask about exactly this request.

        The same goes for what it finds once it is amended, as far as the guard allows. The same is not asked twice unless
        something else was learned meanwhile.
        """
        shelf, events = self._shelf, list[Event]()
        if shelf.is_clear(root):
            return events
        if shelf.must_ask_first(root):
            events += yield from self.refreshing(root)
        fields, last_asked = request, None
        for _ in range(_MOST_ASKED if shelf.has_suspects(root) else 0):
            suspects = shelf.suspects(root, operation, fields)
            if all(guard is not None and guard.refusal(entry) is not None for entry in suspects):
                found = amend(request, partial(shelf.usable, root, operation), guard or Guard())
                if found.request == fields:
                    break
                fields = found.request
                continue
            if root in shelf.doubts:
                events += yield from self.refreshing(root)
            knowledge = None if root in shelf.doubts else shelf.knowledge(root)
            suspects = shelf.suspects(root, operation, fields)
            if knowledge is None or not suspects or (fields, suspects, knowledge) == last_asked:
                break
            last_asked = fields, suspects, knowledge
            body = body_of((yield _about(root, operation, fields)))
            if body is None:
                break
            told = Exchange.told(root, operation, fields, body)
            events += yield from self._observing.observing(told, About(suspects, knowledge))
        return events


def _about(root: Root, operation: str, request: Fields) -> Question:
    """What a server would suggest for a request, which it does not carry out."""
    return Question(f"{root}/contract/fixes", _encode(AskFixes(operation=operation, request=dict(request))))


def _renewals(events: Iterable[Event]) -> list[tuple[str, dict[str, Any]]]:
    """What to ask for fresh fixes in the place of those that were found stale: what they held for is all that their policy looks at."""
    gone = [event.entry for event in events if isinstance(event, Evicted) and event.reason.is_invalidation]
    found = ((entry.operation, _request_of(entry)) for entry in gone[:_MOST_RENEWED])
    return [(operation, request) for operation, request in found if request is not None]


def _request_of(entry: Entry) -> dict[str, Any] | None:
    when = entry.condition.when
    request = when.get(WHOLE_REQUEST) if WHOLE_REQUEST in when else when
    if not isinstance(request, dict) or any("/" in path for path in request):
        return None
    return {field: value for field, value in request.items() if value is not None}
