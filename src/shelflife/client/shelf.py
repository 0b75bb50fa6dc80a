"""What one memory finds in its store, and whether it may be used now."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from shelflife.client.asking import Fields
from shelflife.client.entries import Entry, Knowledge, Root, place_of
from shelflife.client.steps import Word, Words
from shelflife.client.stores import Known, Store, StoreError, Write, Written
from shelflife.client.strategies import SUSPECT, Strategy, table_tag
from shelflife.client.telling import Telling
from shelflife.contract.values import is_carried
from shelflife.contract.when import value_at

__all__ = ["Doubts", "Revalidate", "Shelf", "Standing", "Usable", "Withheld", "standing_of"]

MOST_TRIES = 64
"""So often at most is something decided anew because others have written."""


class Usable(msgspec.Struct, frozen=True):
    """Nothing is known against it."""


class Revalidate(msgspec.Struct, frozen=True):
    """It is not to be used until the server was asked about it, or has said something that could be dealt with."""

    why: str


class Withheld(msgspec.Struct, frozen=True):
    """It is not to be used, and asking would not help."""

    why: str


Standing = Usable | Revalidate | Withheld


def standing_of(entry: Entry, strategy: str, server: Standing) -> Standing:
    """Whether an entry may be used, given the strategy that asks and how its server stands."""
    if entry.strategy != strategy:
        return Withheld("it was kept under another strategy, which may keep what is stale")
    if entry.is_suspect and isinstance(server, Usable):
        return Revalidate("it may have gone stale")
    return server


class Doubts:
    """Servers of which a response was seen that could not be dealt with, is being dealt with, or is not to be believed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unsettled: dict[Root, int] = {}
        self._count = 0
        self._settling: Counter[Root] = Counter()
        self._told: dict[Root, str] = {}

    def __contains__(self, root: Root) -> bool:
        """Whether something was seen that has not been dealt with."""
        return root in self._unsettled

    def standing_of(self, root: Root) -> Standing:
        """How a server stands."""
        if root in self._unsettled:
            return Revalidate("a response of the server could not be dealt with")
        if self._settling[root]:
            return Withheld("the server is being asked which entries a change has made stale")
        return Usable()

    @contextmanager
    def settling(self, root: Root) -> Iterator[None]:
        """Withhold all that is remembered of a server.

        Two race here: whoever finds out what a movement makes stale, and another thread or task that recalls meanwhile. The
        second gets nothing, for it might get what the first is about to drop.
        """
        with self._lock:
            self._settling[root] += 1
        try:
            yield
        finally:
            with self._lock:
                self._settling[root] -= 1

    @contextmanager
    def dealing(self, root: Root) -> Iterator[bool]:
        """While a response of the server is dealt with; tells whether one before it was not.

        Whatever keeps it from being dealt with, also that whoever waits for an answer is cancelled, leaves the server in doubt.
        Two race here: this response, and another that failed meanwhile. The doubt that the second has raised stays.
        """
        doubt = self._unsettled.get(root)
        try:
            yield doubt is not None
        except BaseException:
            self.add(root)
            raise
        with self._lock:
            if self._unsettled.get(root) == doubt:
                self._unsettled.pop(root, None)
            self._told.pop(root, None)

    def add(self, root: Root) -> None:
        """A response of the server was seen that has not been dealt with."""
        with self._lock:
            self._count += (
                1  # never goes back: a doubt that was settled must not look like one that came after it
            )
            self._unsettled[root] = self._count

    def is_news(self, root: Root, why: str) -> bool:
        """Whether a reason not to believe a server is to be told: once, until it is believed again or there is another."""
        with self._lock:
            is_news = self._told.get(root) != why
            self._told[root] = why
            return is_news

    def forget(self, root: Root) -> None:
        """Tell anew what is held against a server."""
        with self._lock:
            self._told.pop(root, None)


class Shelf:
    """A store as one memory sees it. What the store cannot do is a miss, and told."""

    def __init__(
        self,
        store: Store,
        strategy: Strategy,
        words: Words | None,
        telling: Telling,
        clock: Callable[[], float],
    ) -> None:
        self.store = store
        self.strategy = strategy
        self.telling = telling
        self.doubts = Doubts()
        self._words = words
        self._clock = clock

    def known_here(self, knowledge: Knowledge) -> Knowledge:
        """What is known under this strategy: nothing, where another one has been at work."""
        if knowledge.strategy == self.strategy.name:
            return knowledge
        return Knowledge(strategy=self.strategy.name, vouched=knowledge.lapsed.vouched)

    def knowledge(self, root: Root) -> Knowledge | None:
        """What is known of a server; None when the store does not say."""
        try:
            return self.known_here(self.store.known(root).knowledge)
        except StoreError as error:
            self.telling.store_failed(error, "read")
            return None

    def rewrite(self, root: Root, decide: Callable[[Known], Write | None]) -> Written | None:
        """Write what is decided about what is known of a server; None when that is nothing, or the store does not write it.

        Another may write between the look and the write: then nothing was written, and it is decided anew.
        """
        with self.telling.failing("write"):
            for _ in range(MOST_TRIES):
                known = self.store.known(root)
                write = decide(known)
                if write is None:
                    return None
                written = self.store.write(root, known.revision, write)
                if written is not None:
                    self.telling.store_works("write")
                    return written
        return None

    def knows_of(self, root: Root) -> bool:
        """Whether anything of a server can go stale: something is known of it, or the store does not say."""
        knowledge = self.knowledge(root)
        return knowledge is None or bool(knowledge.versions.tables or knowledge.state_tag)

    def word_about(self, root: Root) -> Word:
        """Whose word counts about a server."""
        word = None if self._words is None else self._words.word_about(root, self._clock)
        is_held = lambda table: self.store.count(root, table_tag(table)) > 0  # noqa: E731
        return word or Word(root, self.strategy, is_held)

    def standing_of(self, root: Root) -> Standing:
        """Whether anything that is remembered of a server may be used now."""
        standing = self.doubts.standing_of(root)
        if self._words is None or not isinstance(standing, Usable):
            return standing
        knowledge = self.knowledge(root)
        lack = "the store fails" if knowledge is None else self.word_about(root).lacks(knowledge)
        return standing if lack is None else Revalidate(lack)

    def must_ask_first(self, root: Root) -> bool:
        """Whether somebody must vouch for a server before anything that is remembered of it is used."""
        return (
            self._words is not None
            and isinstance(self.standing_of(root), Revalidate)
            and not self.word_about(root).is_its_own
        )

    def is_clear(self, root: Root) -> bool:
        """Whether there is nothing to revalidate. A doubt alone is left to the next reply."""
        return not self.must_ask_first(root) and not self.has_suspects(root)

    def usable(self, root: Root, operation: str, request: Fields) -> list[Entry]:
        """The entries that hold for this request and may be used now, oldest first."""
        standing = self.standing_of(root)
        found = self._held(root, operation, request) if isinstance(standing, Usable) else []
        name = self.strategy.name
        found = [entry for entry in found if isinstance(standing_of(entry, name, standing), Usable)]
        if found:
            with self.telling.failing("write"):  # which takes nothing from what was found
                self.store.used([entry.id for entry in found])
        return found

    def suspects(self, root: Root, operation: str, request: Fields) -> list[Entry]:
        """The entries that hold for this request and must be revalidated, each for itself."""
        found, name = self._held(root, operation, request), self.strategy.name
        return [entry for entry in found if isinstance(standing_of(entry, name, Usable()), Revalidate)]

    def has_suspects(self, root: Root) -> bool:
        """Whether there are any, for any request."""
        try:
            return self.store.count(root, SUSPECT) > 0
        except StoreError as error:
            self.telling.store_failed(error, "read")
            return False

    def _held(self, root: Root, operation: str, request: Fields) -> list[Entry]:
        """The entries that hold for this request, whether they may be used or not."""
        if not is_carried(operation, request):
            return []
        try:
            places = [
                place_of(root, operation, {path: value_at(request, path) for path in shape})
                for shape in self.store.shapes(root, operation)
            ]
            found = self.store.at(places) if places else []
        except StoreError as error:
            self.telling.store_failed(error, "read")
            return []
        self.telling.store_works("read")
        return [entry for entry in found if entry.applies_to(request)]
