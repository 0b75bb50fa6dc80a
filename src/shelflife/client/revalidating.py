"""Asking before use: whether what is known of a server still holds, and what has replaced what does not."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from shelflife.client.asking import Exchange, Fields, Question, Steps
from shelflife.client.entries import Entry, Root
from shelflife.client.events import Event, Evicted, Ignored, Suspected
from shelflife.client.foresight import Lookout
from shelflife.client.guard import AnyGuard, Guard, amend
from shelflife.client.observing import About, Observing
from shelflife.client.shelf import Shelf
from shelflife.client.steps import body_of
from shelflife.contract.merging import merged
from shelflife.contract.when import names_in

__all__ = ["Revalidating"]

_MOST_RENEWED = 32
_MOST_ASKED = 8
"""About one request: it may be found again by what its fixes make of it, and others may learn of a movement while the server is asked."""


class Revalidating:
    """How one memory asks before it uses something."""

    def __init__(
        self,
        shelf: Shelf,
        observing: Observing,
        lookout: Lookout | None,
        clock: Callable[[], float],
    ) -> None:
        self._shelf = shelf
        self._observing = observing
        self._lookout = lookout
        self._clock = clock

    def refreshing(self, root: Root) -> Steps[list[Event]]:
        """Ask whether what is known of a server still holds.

        Nobody answering changes nothing, unless a key must vouch for it: no request would get through either.
        """
        shelf = self._shelf
        knowledge = shelf.knowledge(root)
        if knowledge is None or not (
            shelf.knows_of(root) or root in shelf.doubts or shelf.must_ask_first(root)
        ):
            return []
        if knowledge.place.at is not None or shelf.must_ask_first(root):
            return (yield from self._renewing(root, (yield from self._observing.refreshing(root))))
        body = body_of((yield Question(f"{root}/contract/state")))
        return [] if body is None else (yield from self._taking_in(Exchange.told(root, "", {}, body)))

    def doubting(self, root: Root, why: str) -> Steps[list[Event]]:
        """What is remembered of a server may be stale, and nothing says how. It is asked before any of it is used again."""
        shelf = self._shelf
        if not shelf.knows_of(root):
            return []
        events = list[Event]()
        if root not in shelf.doubts:
            shelf.doubts.add(root)
            events += shelf.telling.tell([Ignored(root, why)])
        return events + (yield from self.refreshing(root))

    def hearing(self, root: Root, told: bytes, at: str | None) -> Steps[list[Event]]:
        """What a server tells of its log outside of any request but the one to be told, which has named `at`."""
        heard = Exchange.told(root, "", {}, b'{"at":' + told + b"}")
        return (yield from self._taking_in(heard._replace(at=at)))

    def _taking_in(self, exchange: Exchange) -> Steps[list[Event]]:
        return (yield from self._renewing(exchange.root, (yield from self._observing.observing(exchange))))

    def _renewing(self, root: Root, events: list[Event]) -> Steps[list[Event]]:
        """Ask about the fixes that went, or became suspect. The server may move meanwhile: what goes with an answer is asked about too."""
        for operation, request in islice(_renewals(events), _MOST_RENEWED):
            events += (yield from self._observing.asking_about(root, operation, request)) or ()
        return events

    def revalidating(
        self,
        root: Root,
        operation: str,
        request: Fields,
        guard: AnyGuard | None,
        asked_as: str | None = None,
    ) -> Steps[list[Event]]:
        """Where something that this request finds must be revalidated, ask about exactly this request.

        It is asked about by its operation, or as the server knows that, by the method and path of the request.
        The same goes for what it finds once it is amended, as far as the guard allows. The same is not asked twice unless
        something else was learned meanwhile.
        """
        shelf, events = self._shelf, list[Event]()
        if self._lookout is not None:
            events += yield from self._asking_ahead(self._lookout, root, operation, request, guard, asked_as)
        if shelf.is_clear(root):
            return events
        shelf.unconfirm(root)
        if shelf.must_ask_first(root):
            events += yield from self.refreshing(root)
        fields, last_asked = request, None
        for _ in range(_MOST_ASKED if shelf.has_suspects(root) else 0):
            suspects = shelf.suspects(root, operation, fields)
            if all(guard is not None and guard.refusal(entry) is not None for entry in suspects):
                usable = partial(shelf.usable, root, operation, only_to_look=True)
                found = amend(request, usable, guard or Guard())
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
            about = About(suspects, knowledge)
            told = yield from self._observing.asking_about(root, operation, fields, about, asked_as)
            events += told or ()
        return events

    def _asking_ahead(
        self,
        lookout: Lookout,
        root: Root,
        operation: str,
        request: Fields,
        guard: AnyGuard | None,
        asked_as: str | None,
    ) -> Steps[list[Event]]:
        """Where something that this request would use is due to have changed, ask about the request: the answer has what moved, and the fix.

        A server that does not answer that, as it cannot say for every operation, is asked what has moved.
        """
        shelf = self._shelf
        usable = partial(shelf.usable, root, operation, only_to_look=True)
        entries = [done.entry for done in amend(request, usable, guard or Guard()).applied]
        knowledge = shelf.knowledge(root) if entries else None
        if knowledge is None or knowledge.histories is None or not self._observing.may_ask(root):
            return []
        now = self._clock()
        if not lookout.is_due(root, entries, knowledge.histories, now):
            return []
        events = yield from self._observing.asking_about(root, operation, request, asked_as=asked_as)
        if events is None:
            events = yield from self.refreshing(root)
        self._observing.note_asked(root, has_answered=lookout.was_heard(root, now))
        return events


def _renewals(events: Iterable[Event]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What to ask for fresh fixes in the place of those that are or may be stale: what they held for is all that their policy looks at."""
    for event in events:
        entries: tuple[Entry, ...] = ()
        if isinstance(event, Evicted) and event.reason.is_invalidation:
            entries = (event.entry,)
        elif isinstance(event, Suspected):
            entries = event.entries
        yield from ((entry.operation, _request_of(entry)) for entry in entries)


def _request_of(entry: Entry) -> dict[str, Any]:
    request: dict[str, Any] = {}
    for path, value in entry.condition.when.items():
        patch = value
        for name in reversed(names_in(path)):
            patch = {name: patch}
        request = merged(request, patch)
    return request
