"""What was seen in an engine on another machine: of a root at one revision, and by a thread in one moment."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from math import inf, isfinite

import msgspec

from shelflife.client.asking import Fields
from shelflife.client.entries import Entry, Knowledge, Root, Shape
from shelflife.client.finding import ByShape, Found, holding, place_in, watched_by
from shelflife.client.stores import Filed, Known
from shelflife.contract.values import is_carried

__all__ = [
    "Age",
    "InMoment",
    "Look",
    "Moment",
    "PlacesBy",
    "Seen",
    "Told",
    "Wanted",
    "entry_of",
    "knowledge_in",
    "places_of",
    "stored_of",
]

Age = float | str
"""When an entry was learned, as an engine tells: a number, or what somebody has written instead."""

_decode_knowledge = msgspec.json.Decoder(Knowledge).decode

PlacesBy = Callable[[Root, tuple[Shape, ...]], list[str]]
"""The places at which entries of a root with these shapes are looked for."""


def places_of(operation: str, request: Fields) -> PlacesBy:
    """Those of a request: one for each shape, and none where JSON cannot carry it."""
    return cache(partial(_places, operation, request))


def _places(operation: str, request: Fields, root: Root, shapes: tuple[Shape, ...]) -> list[str]:
    if not shapes or not is_carried(operation, request):
        return []
    return [place_in(request, root, operation, shape) for shape in shapes]


class Wanted(msgspec.Struct, frozen=True):
    """What a moment is about, so that its first round trip can bring all of it."""

    root: Root
    """Or where it may be above that: the contract lives there, or on a path below."""

    operation: str
    places_by: PlacesBy

    tags: tuple[str, ...] = ()
    """Those that are counted."""


class Look(msgspec.Struct, frozen=True):
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


class Told(msgspec.Struct, frozen=True):
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
        self.looked_at = -inf
        self._finding: dict[str, tuple[ByShape[Found], ...]] = {}
        """By operation: what is at some of these places, by what requests say."""
        self._keys: dict[str, tuple[str, int, bytes]] = {}
        """By place: where that is in there."""

    def has(self, operation: str | None, places: Sequence[str], tags: Sequence[str]) -> bool:
        """Whether all that is asked for was seen."""
        return (
            (operation is None or operation in self.shapes)
            and (not places or self.places.keys() >= {*places})
            and (not tags or self.counts.keys() >= {*tags})
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

    def with_told(self, look: Look, told: Told) -> "Seen":
        """What is seen after a look: the same with more in it, or another where the root is at another revision."""
        seen = self
        if told.revision != look.revision:
            seen = Seen(told.revision, knowledge_in(told.knowledge))
            seen.places.update(dict.fromkeys(look.held, ()))
        seen.places.update(dict.fromkeys(look.missing, ()))
        seen.places.update((place, tuple(entries)) for place, entries in told.entries.items())
        if look.operation is not None and told.shapes is not None:
            seen.shapes[look.operation] = told.shapes
        seen.counts.update(zip(look.tags, told.counts, strict=True))
        return seen

    def add_shapes(self, entries: Iterable[Entry]) -> None:
        """These have come, and with them maybe shapes that were not there."""
        for entry in entries:
            shapes = self.shapes.get(entry.operation)
            if shapes is not None and entry.condition.shape not in shapes:
                self.shapes[entry.operation] = (*shapes, entry.condition.shape)
                self._finding.pop(entry.operation, None)

    def after(
        self, revision: int, knowledge: Knowledge, operations: Iterable[str], places: Iterable[str]
    ) -> "Seen":
        """The same after a write that has changed what is at these places, and may have changed the shapes of these operations.

        It is another one, and shares nothing: whoever is in the middle of a moment goes on with this.
        """
        seen = Seen(revision, knowledge)
        seen.shapes, seen.life, seen.looked_at = dict(self.shapes), self.life, self.looked_at
        for operation in operations:
            seen.shapes.pop(operation, None)
        if (
            self.life is None
        ):  # what is at places is asked for again, which takes less time than to copy what may be thousands
            return seen
        seen.places = dict(self.places)
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


def knowledge_in(encoded: bytes | None) -> Knowledge:
    """What is known of a server, as an engine has it."""
    return _decode_knowledge(encoded) if encoded else Knowledge()


def entry_of(entry: Entry, age: Age, id: str, place: str, slot: str) -> Entry:
    """An entry as an engine tells of it, with the texts of it that are asked for next, and cost a digest each.

    Whoever has written an age that is no number has not said when it was learned: then it is older than all others.
    """
    if age != entry.learned_at or not isfinite(age):
        learned_at = age if isinstance(age, float) and isfinite(age) else 0.0
        entry = msgspec.structs.replace(entry, learned_at=learned_at)
    known = entry.__dict__
    known["id"] = id
    known["place"] = place
    known["slot"] = slot
    return entry


def stored_of(put: Sequence[Filed], before: Iterable[Entry | None]) -> list[Entry]:
    """Those of what was put that were not there before, or had to be revalidated; with the age that they had."""
    stored = []
    for filed, was in zip(put, before, strict=True):
        entry = filed.entry
        if was is not None:
            entry = msgspec.structs.replace(entry, learned_at=was.learned_at)
        if was is None or entry.renews(was):
            stored.append(entry)
    return stored


def _copied(by_shape: ByShape[Found]) -> ByShape[Found]:
    copy = ByShape[Found](by_shape.shape)
    copy.by_key = dict(by_shape.by_key)
    return copy


class Moment(threading.local):
    """What a thread has looked at since its moment began; outside of one, each verb is a moment of its own."""

    depth = 0
    wanted: Wanted | None = None
    until = 0.0
    """When what is done just now is given up, by the monotonic clock."""

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
