"""Where entries live. A store knows nothing of freshness: it finds by place, drops by tag, and does both whole."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from shelflife.client.entries import Entry, Knowledge, Root, Shape
from shelflife.errors import ShelflifeError

__all__ = ["Filed", "Known", "LosesWrites", "Store", "StoreError", "Write", "Written", "revision_after"]

_DRAWN_BITS = 31


class StoreError(ShelflifeError):
    """The store cannot do it. To a memory this is a miss and a warning."""


class Known(msgspec.Struct, frozen=True):
    """What a store has on record of a root."""

    knowledge: Knowledge
    revision: int
    """A higher one after each write, and 0 before the first; a write names the one it was decided on.

    A store that has lost writes, such as one that was set back to a copy, never comes to a revision again that somebody has seen."""


def revision_after(revision: int) -> int:
    """The revision that a write leads to: higher, and drawn, so that two that follow the same one differ. It has 62 bits."""
    return ((revision >> _DRAWN_BITS) + 1 << _DRAWN_BITS) | int.from_bytes(os.urandom(4), "big") >> 1


class Filed(msgspec.Struct, frozen=True):
    """An entry, and how it is filed: `slot` says what leaves for it, `tags` by what it can be found and dropped."""

    entry: Entry
    slot: str
    """It takes the place of every other entry at the same place that is filed in this slot."""

    tags: tuple[str, ...]
    """By which it can be found and dropped."""


class Write(msgspec.Struct, frozen=True):
    """What is written about one root, all at once.

    In this order: the knowledge is recorded; what is dropped goes; what is put comes, and what has its slot leaves; what is too much leaves.
    """

    knowledge: Knowledge
    drop: Iterable[str] = ()
    """Entries that bear one of these tags go."""

    drop_ids: Iterable[str] = ()
    """So do those with one of these ids."""

    put: Sequence[Filed] = ()
    """Entries that come. One that is there already keeps its age (`learned_at`) and its place in the order of use; all else becomes as it is
    put. Every other entry of the same place and slot leaves."""

    capacity: int | None = None
    """As long as there are more entries of the root than this, the one that was not used for the longest time leaves: no root takes the room
    of another."""

    counted: Sequence[str] = ()
    """Tags that are counted next: a store on another machine can tell how many bear them with what it answers."""


class Written(msgspec.Struct, frozen=True):
    """What a write did."""

    dropped: list[tuple[Entry, str]]
    """The entries that were dropped, each with the tag or id by which it was; "" where another took its slot."""

    trimmed: list[Entry]
    """The entries that had to leave for want of room."""

    stored: list[Entry]
    """The entries that were put and were not there before, or had to be revalidated (`Entry.renews`)."""


@runtime_checkable
class LosesWrites(Protocol):
    """A store that can be put back to an earlier state, and notices it."""

    @property
    def where(self) -> str:
        """What it is called in sentences."""

    @property
    def set_backs(self) -> Mapping[Root, int]:
        """How often that has happened to a root."""


class Store(Protocol):
    """What a memory needs of a store.

    Every verb may raise `StoreError` and nothing else. Several threads, and with a file several processes, may use one store at the
    same time; a write is seen whole or not at all.
    """

    def known(self, root: Root) -> Known:
        """What is on record of a root; empty knowledge at revision 0 when nothing is."""

    def shapes(self, root: Root, operation: str) -> Iterable[Shape]:
        """The shapes of all entries of an operation."""

    def at(self, root: Root, places: Sequence[str]) -> list[Entry]:
        """The entries of a root at these places, oldest first."""

    def tagged(self, root: Root, *tags: str) -> list[Entry]:
        """The entries of a root that bear one of these tags, each once."""

    def count(self, root: Root, *tags: str) -> int:
        """How many bear each of these tags, summed up: one that bears two of them counts twice."""

    def write(self, root: Root, revision: int, write: Write) -> Written | None:
        """Carry out what is written; None, and nothing done, when the root is not at the revision any more."""

    def used(self, root: Root, ids: Iterable[str]) -> None:
        """Note that these entries of a root were used. May be late, and may be lost."""

    def roots(self) -> list[Root]:
        """Every root of which something is on record, be it no entry, for the same."""

    def entries(self) -> Iterator[Entry]:
        """Every entry, for people and programs that look a memory over."""
