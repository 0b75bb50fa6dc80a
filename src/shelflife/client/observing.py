"""Taking in what a server says: the one place where a memory decides, asks and writes."""

import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from shelflife.client.asking import Exchange, Reply, Steps
from shelflife.client.entries import Entry, Knowledge, Root
from shelflife.client.events import Distrusted, Event, Ignored, Unjudged
from shelflife.client.reading import Contract, read_contract
from shelflife.client.shelf import MOST_TRIES, Shelf
from shelflife.client.steps import Distrust, New, Told, Unmoved, dispose
from shelflife.client.stores import Known, StoreError, Write
from shelflife.client.writing import Writing
from shelflife.contract import BadMessage
from shelflife.contract.preconditions import verdict_in
from shelflife.contract.versions import Versions

__all__ = ["About", "Observing"]

_log = logging.getLogger("shelflife.memory")

_MOST_NAMED = 16
"""Of one server: epochs whose versions are kept for replies that are still to come."""


class About(NamedTuple):
    """Of a reply that is the answer to a revalidation: the suspects that were asked about, and what was known before."""

    suspects: Sequence[Entry] = ()
    knowledge: Knowledge | None = None
    """As long as that is all that is known, nothing is later than the answer."""


_NOTHING = About()


class Observing:
    """How one memory takes things in. Threads may share it."""

    def __init__(self, shelf: Shelf, writing: Writing) -> None:
        self._shelf = shelf
        self._writing = writing
        self._lock = threading.Lock()
        self._naming = threading.Lock()
        self._named: dict[Root, dict[str, Versions]] = {}

    def epoch(self, root: Root) -> str | None:
        """Names the state of a server that is known, unless the server is in doubt; None for none."""
        knowledge = None if root in self._shelf.doubts else self._shelf.knowledge(root)
        if knowledge is None or not knowledge.versions.tables:
            return None
        with self._naming:
            named = self._named.setdefault(root, {})
            epoch = next(reversed(named), "")
            if named.get(epoch) != knowledge.versions:
                epoch = knowledge.versions.epoch
                named.pop(epoch, None)
                named[epoch] = knowledge.versions  # the last one that was named stands last
                if len(named) > _MOST_NAMED:
                    del named[next(iter(named))]
            return epoch

    def observing(self, exchange: Exchange, about: About = _NOTHING) -> Steps[list[Event]]:
        """What a reply comes to. It is the answer about something, where it was asked for."""
        root, reply = exchange.root, exchange.reply
        events: list[Event] = []
        if exchange.conditional and _is_unjudged(reply):
            events = self._shelf.telling.tell([Unjudged(root, exchange.operation)])
        try:
            named = self._named.get(root, {}).get(exchange.epoch or "")
            contract = read_contract(reply, named)
            if (
                exchange.epoch is not None
                and named is None
                and (contract is None or contract.versions is None)
            ):
                raise BadMessage("the response may go on from a state that is not known here any more")
        except BadMessage as error:
            if self._shelf.knows_of(root):
                self._shelf.doubts.add(root)
            return events + self._shelf.telling.tell([Ignored(root, str(error))])
        if contract is None:
            return events
        return events + (yield from self.heeding(exchange, contract, about))

    def heeding(self, exchange: Exchange, contract: Contract, about: About = _NOTHING) -> Steps[list[Event]]:
        """What follows from a contract, whatever comes of asking about it: unless it could be dealt with, its server is in doubt."""
        root, doubts, telling = exchange.root, self._shelf.doubts, self._shelf.telling
        events: list[Event] = [Ignored(root, fault) for fault in contract.faults]
        try:
            with doubts.dealing(root) as is_doubted:
                events = yield from self._dealing(exchange, contract, about, is_doubted=is_doubted)
        except StoreError as error:
            telling.store_failed(error, "write")
        except Distrust as distrust:
            # others, and a later process, must know too that a key is to be asked before anything is used
            self._shelf.rewrite(root, _lapsing)
            if doubts.is_news(root, str(distrust)):
                _log.warning("%s is not believed: %s", root, distrust)
                events.append(Distrusted(root, str(distrust)))
        return telling.tell(events)

    def _dealing(
        self, exchange: Exchange, contract: Contract, about: About, *, is_doubted: bool
    ) -> Steps[list[Event]]:
        """Decide and write in one piece, unless the server must be asked in between."""
        root, shelf = exchange.root, self._shelf
        word = shelf.word_about(root)
        told: Told | None = None
        asked_with: Knowledge | None = None
        with ExitStack() as settling:
            for _ in range(MOST_TRIES):
                # Threads of this process race for the store, and so do other processes. Between threads the lock decides, so that
                # what was decided is still so when it is written. Between processes the revision does: a write that
                # was decided on an older one is not carried out, and all is decided anew.
                with self._lock:
                    known = shelf.store.known(root)
                    knowledge = shelf.known_here(known.knowledge)
                    is_latest = about.knowledge == knowledge and not is_doubted
                    # While the server is asked nobody is locked out, and another may learn of a movement meanwhile: then the
                    # answer is about a state that is not the known one any more, and it is asked again.
                    if told is None or knowledge != asked_with:
                        movement = word.moved(knowledge, contract, is_doubted=is_doubted, is_latest=is_latest)
                        told = Told(contract, movement) if isinstance(movement, Unmoved | New) else None
                    if told is not None:
                        disposal = dispose(knowledge, told, shelf.strategy)
                        lessons = self._writing.taught(exchange, told.contract, disposal)
                        is_answer = is_latest and told.contract.versions is not None
                        checked = about.suspects if is_answer else ()
                        events = self._writing.carried_out(root, known, disposal, lessons, checked)
                        if events is not None:
                            return [*(Ignored(root, fault) for fault in told.contract.faults), *events]
                        continue
                if asked_with is None:
                    settling.enter_context(shelf.doubts.settling(root))
                asked_with = knowledge
                told = yield from word.asking(knowledge, contract, movement, is_latest=is_latest)
        raise StoreError("too many others are writing to the memory at the same time")


def _is_unjudged(reply: Reply) -> bool:
    """Whether a request may have been carried out though nobody has found its precondition to be met."""
    return not 400 <= reply.status < 500 and verdict_in(reply.headers) != "met"


def _lapsing(known: Known) -> Write | None:
    lapsed = known.knowledge.lapsed
    return None if lapsed == known.knowledge else Write(lapsed)
