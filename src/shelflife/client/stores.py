"""Where entries live. A store knows nothing of freshness: it finds by place, drops by tag, and does both whole."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from shelflife.client.entries import Entry, Knowledge, Shape
from shelflife.errors import ShelflifeError

__all__ = ["MOST_SHAPES", "Known", "Store", "StoreError", "Written"]

MOST_SHAPES = 64
"""Of one operation: each costs every recall a look, and an honest server has about as many as policies."""


class StoreError(ShelflifeError):
    """The store cannot do it. To a memory this is a miss and a warning."""


class Known(NamedTuple):
    """What a store has on record of an origin."""

    knowledge: Knowledge
    revision: int
    """Counts the writes; a write names the one it was decided on."""


class Written(NamedTuple):
    """What a write did."""

    dropped: list[tuple[Entry, str]]
    """The entries that were dropped, each with the tag or id by which it was; "" where another took its slot."""

    trimmed: list[Entry]
    """The entries that had to leave for want of room."""

    stored: list[Entry]
    """The entries that were put and were not there before, or only as suspects."""


class Store(Protocol):
    """What a memory needs of a store.

    Every verb may raise `StoreError` and nothing else. Several threads, and with a file several processes, may use one store at the
    same time; a write is seen whole or not at all.
    """

    def known(self, origin: str) -> Known:
        """What is on record of an origin; empty knowledge at revision 0 when nothing is."""

    def shapes(self, origin: str, operation: str) -> Iterable[Shape]:
        """The shapes of all entries of an operation."""

    def at(self, places: Sequence[str]) -> list[Entry]:
        """The entries at these places, oldest first."""

    def tagged(self, origin: str, tag: str) -> list[Entry]:
        """The entries of an origin that bear a tag."""

    def count(self, origin: str, tag: str) -> int:
        """How many these are."""

    def write(
        self,
        origin: str,
        revision: int,
        knowledge: Knowledge,
        *,
        drop: Iterable[str] = (),
        drop_ids: Iterable[str] = (),
        put: Sequence[tuple[Entry, Sequence[str]]] = (),
        is_beside: bool = False,
        capacity: int | None = None,
    ) -> Written | None:
        """Drop what bears one of the tags or ids, put entries with their tags, and record the knowledge, all at once.

        An entry takes the place of what is in its slot, unless it is to stand beside it. One that is there already and is put as suspect, or beside, stays where it is
        in the order of use; only whether it is suspect changes, and its tags with that. With a capacity the entries that were not used
        for the longest time leave. One whose shape would be one more than `MOST_SHAPES` of its operation is not put. None, and nothing done, when the origin is not at the revision any more.
        """

    def used(self, ids: Iterable[str]) -> None:
        """Note that these entries were used. May be late, and may be lost."""

    def entries(self) -> Iterator[Entry]:
        """Every entry, for people and programs that look a memory over."""
