"""What was seen in an engine on another machine: of a root at one revision, and by a thread in one moment."""

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple

from shelflife.client.asking import Fields
from shelflife.client.entries import Entry, Knowledge, Root, Shape
from shelflife.client.finding import ByShape, Found, holding, place_in, watched_by
from shelflife.client.stores import Known
from shelflife.contract.values import is_carried

__all__ = ["InMoment", "Look", "Moment", "PlacesBy", "Seen", "Told", "Wanted", "places_of"]

PlacesBy = Callable[[Root, tuple[Shape, ...]], list[str]]
"""The places at which entries of a root with these shapes are looked for."""


def places_of(operation: str, request: Fields) -> PlacesBy:
    """Those of a request: one for each shape, and none where JSON cannot carry it."""
    return cache(partial(_places, operation, request))


def _places(operation: str, request: Fields, root: Root, shapes: tuple[Shape, ...]) -> list[str]:
    if not shapes or not is_carried(operation, request):
        return []
    return [place_in(request, root, operation, shape) for shape in shapes]


class Wanted(NamedTuple):
    """What a moment is about, so that its first round trip can bring all of it."""

    root: Root
    """Or where it may be above that: the contract lives there, or on a path below."""

    operation: str
    places_by: PlacesBy

    tags: tuple[str, ...] = ()
    """Those that are counted."""


class Look(NamedTuple):
    """What an engine is asked about one root, all at once."""

    root: Root
    revision: int
    """What is held is of this one; 0 where nothing is."""

    operation: str | None = None
    """Of which the shapes are told, if the root is at another revision."""

    lacks_shapes: bool = False
    """Then they are told in any case."""

    missing: tuple[str, ...] = ()
    """Places whose entries are told in any case."""

    held: tuple[str, ...] = ()
    """Places whose entries are told if the root is at another revision."""

    tags: tuple[str, ...] = ()
    """Those that are counted."""


class Told(NamedTuple):
    """What an engine says to a look. All of it is of one moment."""

    revision: int
    knowledge: bytes | None
    """None at the revision that was named."""

    shapes: tuple[Shape, ...] | None
    """None where they are not told."""

    entries: Mapping[str, Sequence[Entry]]
    """By place. One that is not in it was not told, where the revision is the one named; else there is nothing."""

    counts: Sequence[int]


class Seen:
    """What was seen of a root at one revision. It grows, and is replaced when the revision is another."""

    def __init__(self, revision: int = 0, knowledge: Knowledge = Knowledge()) -> None:  # noqa: B008 - it is frozen
        self.known = Known(knowledge, revision)
        self.revision = revision
        self.shapes: dict[str, tuple[Shape, ...]] = {}
        self.places: dict[str, tuple[Entry, ...]] = {}
        self.counts: dict[str, int] = {}
        self.life: object | None = None
        """That of the channel when it was last looked at in the engine, and not when it is kept: what came in between was not heard of."""
        self.looked_at = -math.inf
        self._finding: dict[str, tuple[ByShape[Found], ...]] = {}
        """By operation: what is at some of these places, by what requests say."""
        self._keys: dict[str, tuple[str, int, bytes]] = {}
        """By place: where that is in there."""

    def has(self, operation: str | None, places: Sequence[str], tags: Sequence[str]) -> bool:
        """Whether all that is asked for was seen."""
        return (
            (operation is None or operation in self.shapes)
            and (not places or all(place in self.places for place in places))
            and (not tags or all(tag in self.counts for tag in tags))
        )

    def find(self, operation: str, request: Fields) -> list[Found] | None:
        """What holds for a request, where one that says the same was answered before; else None."""
        by_shape = self._finding.get(operation)
        if by_shape is None or not is_carried(operation, request):
            return None
        there: tuple[Found, ...] = ()
        for one in by_shape:
            found = one.by_key.get(one.key_in(request))
            if found is None:
                return None
            there += found
        return holding(there, request) if there else []

    def find_at(self, places: Mapping[Shape, str], operation: str, request: Fields) -> list[Found]:
        """What holds for a request that JSON can carry, of what is at its places, one for each shape. It can be found again by what it says."""
        by_shape = self._finding.get(operation)
        if by_shape is None:
            by_shape = self._finding[operation] = tuple(map(ByShape, places))
        there: tuple[Found, ...] = ()
        for number, one in enumerate(by_shape):
            place, key = places[one.shape], one.key_in(request)
            self._keys[place] = operation, number, key
            found = one.by_key[key] = tuple(Found(entry, watched_by(entry)) for entry in self.places[place])
            there += found
        return holding(there, request)

    def add_shapes(self, entries: Iterable[Entry]) -> None:
        """These have come, and with them maybe shapes that were not there."""
        for entry in entries:
            shapes = self.shapes.get(entry.operation)
            if shapes is not None and entry.condition.shape not in shapes:
                self.shapes[entry.operation] = (*shapes, entry.condition.shape)
                self._finding.pop(entry.operation, None)

    def after(
        self, revision: int, knowledge: Knowledge, places: Iterable[str], operations: Iterable[str]
    ) -> "Seen":
        """The same after a write that has changed what is at these places, and may have changed the shapes of these operations.

        It is another one, and shares nothing: whoever is in the middle of a moment goes on with this.
        """
        seen = Seen(revision, knowledge)
        seen.shapes, seen.places = dict(self.shapes), dict(self.places)
        seen.life, seen.looked_at = self.life, self.looked_at
        for operation in operations:
            seen.shapes.pop(operation, None)
        for operation, by_shape in dict(self._finding).items():
            if operation in seen.shapes:
                seen._finding[operation] = tuple(map(_copied, by_shape))
        # Two race here: this, and a thread that notes what it has found. That notes the place first, so that of all that was copied
        # before this the place is known.
        seen._keys = dict(self._keys)
        for place in places:
            seen.places.pop(place, None)
            operation, number, key = seen._keys.pop(place, ("", 0, b""))
            if operation in seen._finding:
                seen._finding[operation][number].by_key.pop(key, None)
        return seen


def _copied(by_shape: ByShape[Found]) -> ByShape[Found]:
    copy = ByShape[Found](by_shape.shape)
    copy.by_key = dict(by_shape.by_key)
    return copy


class Moment(threading.local):
    """What a thread has looked at since its moment began; outside of one, each verb is a moment of its own."""

    depth = 0
    wanted: Wanted | None = None

    def __init__(self) -> None:
        self.seen: dict[Root, Seen] = {}


class InMoment:
    """A block that is one moment, or a part of one."""

    def __init__(self, moment: Moment, wanted: Wanted | None) -> None:
        self._moment = moment
        self._before = moment.wanted
        self._wanted = wanted or moment.wanted

    def __enter__(self) -> None:
        self._moment.wanted = self._wanted
        self._moment.depth += 1

    def __exit__(self, *why: object) -> None:
        moment = self._moment
        moment.wanted = self._before
        moment.depth -= 1
        if not moment.depth:
            moment.seen.clear()
