"""Whose word about a server's state counts: its own, or that of keys that must vouch for it."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from shelflife.client.asking import Steps
from shelflife.client.entries import Knowledge, Root
from shelflife.client.reading import Contract
from shelflife.client.steps import Movement, Told, asking, what_moved
from shelflife.client.strategies import Strategy

__all__ = ["Distrust", "ServersWord", "Word", "Words"]


class Distrust(Exception):
    """What a server says of its state is not to be believed: one sentence."""


class Word(Protocol):
    """How to find out what has moved at one server."""

    @property
    def is_its_own(self) -> bool:
        """Whether it is the server's own word, so that whatever it says of its state counts."""

    def lacks(self, knowledge: Knowledge) -> str | None:
        """Why nothing of the server may be used before it is asked; None when it may."""

    def moved(
        self, knowledge: Knowledge, contract: Contract, *, is_doubted: bool, is_latest: bool
    ) -> Movement:
        """What a response says to have moved."""

    def asking(
        self, knowledge: Knowledge, contract: Contract, movement: Movement, *, is_latest: bool
    ) -> Steps[Told]:
        """Ask about a movement; `Distrust` when the answer is not to be believed."""


class Words(Protocol):
    """Knows whose word counts where it is not the server's own."""

    def word_about(self, root: Root, clock: Callable[[], float]) -> Word | None:
        """Whose word counts about a server; None for its own."""


class ServersWord(NamedTuple):
    """The server's own word."""

    root: Root
    strategy: Strategy
    is_held: Callable[[str], bool]
    """Whether anything that depends on a table is remembered."""

    is_its_own: bool = True

    def lacks(self, knowledge: Knowledge) -> str | None:
        return None

    def moved(
        self, knowledge: Knowledge, contract: Contract, *, is_doubted: bool, is_latest: bool
    ) -> Movement:
        return what_moved(knowledge, contract, is_doubted=is_doubted, is_latest=is_latest)

    def asking(
        self, knowledge: Knowledge, contract: Contract, movement: Movement, *, is_latest: bool
    ) -> Steps[Told]:
        return asking(
            self.root,
            knowledge,
            contract,
            movement,
            self.strategy,
            is_held=self.is_held,
            is_latest=is_latest,
        )
