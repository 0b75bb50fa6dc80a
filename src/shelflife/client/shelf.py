"""What one memory finds in its store, and whether it may be used now."""

from collections.abc import Callable, Mapping
from typing import Any

from shelflife.client.entries import Entry, Knowledge, Root, place_of
from shelflife.client.exchanges import is_json
from shelflife.client.standing import Doubts, Revalidate, Standing, Usable, standing_of
from shelflife.client.stores import Store, StoreError
from shelflife.client.strategies import SUSPECT, Strategy, table_tag
from shelflife.client.telling import Telling
from shelflife.client.words import ServersWord, Word, Words
from shelflife.contract.when import value_at

__all__ = ["Shelf"]


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

    def word_about(self, root: Root) -> Word:
        """Whose word counts about a server."""
        word = None if self._words is None else self._words.word_about(root, self._clock)
        is_held = lambda table: self.store.count(root, table_tag(table)) > 0  # noqa: E731
        return word or ServersWord(root, self.strategy, is_held)

    def standing_of(self, root: Root) -> Standing:
        """Whether anything that is remembered of a server may be used now."""
        standing = self.doubts.standing_of(root)
        if self._words is None or not isinstance(standing, Usable):
            return standing
        knowledge = self.knowledge(root)
        lack = "the store fails" if knowledge is None else self.word_about(root).lacks(knowledge)
        return standing if lack is None else Revalidate(lack)

    def usable(self, root: Root, operation: str, request: Mapping[str, Any]) -> list[Entry]:
        """The entries that hold for this request and may be used now, oldest first."""
        standing = self.standing_of(root)
        if not isinstance(standing, Usable):
            return []
        found = [
            entry
            for entry in self._held(root, operation, request)
            if isinstance(standing_of(entry, self.strategy.name, standing), Usable)
        ]
        if found:
            try:
                self.store.used([entry.id for entry in found])
            except StoreError as error:
                self.telling.store_failed(error, "write")  # and takes nothing from what was found
        return found

    def suspects(self, root: Root, operation: str, request: Mapping[str, Any]) -> list[Entry]:
        """The entries that hold for this request and must be revalidated, each for itself."""
        return [
            entry
            for entry in self._held(root, operation, request)
            if isinstance(standing_of(entry, self.strategy.name, Usable()), Revalidate)
        ]

    def has_suspects(self, root: Root) -> bool:
        """Whether there are any, for any request."""
        try:
            return self.store.count(root, SUSPECT) > 0
        except StoreError as error:
            self.telling.store_failed(error, "read")
            return False

    def _held(self, root: Root, operation: str, request: Mapping[str, Any]) -> list[Entry]:
        """The entries that hold for this request, whether they may be used or not."""
        if not is_json(operation, request):
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
