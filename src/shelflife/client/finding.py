"""Finding what is at hand by what a request says: one look into a dictionary, without a digest.

A store that has entries in the memory of this process, all of them or copies of some, keeps them by shape (`ByShape`), and has a verb
`find` (`Finder`), which a memory then uses instead of `known`, `shapes` and `at`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache, partial
from operator import itemgetter
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import msgspec

from shelflife.client.asking import Fields
from shelflife.client.entries import Entry, Root, Shape, key_as_read, place_at
from shelflife.client.stores import Known, Store
from shelflife.contract.values import is_carried
from shelflife.contract.when import WHOLE_REQUEST, mismatch, names_in, read_at, value_at

__all__ = ["ByShape", "ByVerbs", "Finder", "Found", "holding", "place_in", "watched_by"]

_encode = msgspec.json.Encoder().encode
_OPENS = ord("{")
"""Begins an object. Bytes are searched for a number at once, and for bytes after an exception that nobody sees."""


class Found(msgspec.Struct, gc=False):
    """An entry that is at hand, with what a look at it takes: nothing else of it is touched, which is mostly in no cache of the processor.

    It leads to nothing that leads back to it. So the collector need not look at it, nor at what an entry is made of.
    """

    entry: Entry
    watched: tuple[str, ...] | None
    """The fields of a request that may bar the entry (`unless`); None where any may."""

    used: int = 0
    """When it was last used, as the store counts."""

    is_gone: bool = False
    """Then it holds for no request any more."""


def watched_by(entry: Entry) -> tuple[str, ...] | None:
    """The fields that must be absent for an entry to hold without a closer look; None where that cannot be said."""
    unless = entry.condition.unless
    for path, values in unless.items():
        if path == WHOLE_REQUEST or None in values:
            return None
    return _first_names(tuple(unless))


@lru_cache(maxsize=1024)
def _first_names(paths: tuple[str, ...]) -> tuple[str, ...]:
    """One tuple for all entries that have the same, so that it is in a cache of the processor."""
    return tuple(dict.fromkeys(names_in(path)[0] for path in paths))


Kept = TypeVar("Kept", bound=Found)


class ByShape(Generic[Kept]):
    """Entries of one operation and one shape, by what a request says in the fields of the shape.

    Two requests have the same key exactly when they have the same place. So whatever stands at the key of a request has its `when` fulfilled.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.by_key: dict[bytes, tuple[Kept, ...]] = {}
        joined = "".join(shape)
        has_plain_paths = WHOLE_REQUEST not in shape and "/" not in joined and "~" not in joined
        self._values_in: Callable[[Fields], Sequence[Any]] | None = None
        """Where the fields are those of the request itself, and there are several: all of them at once."""
        if has_plain_paths and len(shape) > 1:
            self._values_in = itemgetter(*shape)

    def key_in(self, request: Fields) -> bytes:
        """What a request says that JSON can carry."""
        values_in = self._values_in
        if values_in is not None and type(request) is dict:  # any other mapping may make up what it has not
            try:
                values = values_in(request)  # as most have all of them
            except KeyError:
                values = [*map(request.get, self.shape)]
        else:
            values = [value_at(request, path) for path in self.shape]
        try:
            key = _encode(values)
        except TypeError:  # what is like a dictionary counts as one
            return key_as_read(values)
        # the order of fields does not count, nor a null
        return key if _OPENS not in key else key_as_read(values)

    def key_of(self, entry: Entry) -> bytes:
        """The key of the requests that an entry is for."""
        when = entry.condition.when
        return key_as_read([when[path] for path in self.shape])

    def filed(self, entry: Entry) -> tuple[bytes, tuple[str, ...] | None]:
        """That, and the fields of these requests that may bar it."""
        return self.key_of(entry), watched_by(entry)


def holding(there: Iterable[Kept], request: Fields) -> list[Kept]:
    """What holds for a request, of what stands at its keys; oldest first."""
    found, said = [], None
    for one in there:
        if one.is_gone:
            continue
        watched = one.watched
        if watched is not None:
            for name in watched:
                if request.get(name) is not None:
                    break  # it may be barred
            else:
                found.append(one)
                continue
        # what is large in a request is read once for all that look at it
        said = said or cache(partial(read_at, request))
        if mismatch({}, said, one.entry.condition.unless) is None:
            found.append(one)
    if len(found) > 1:
        found.sort(key=_age)
    return found


def place_in(request: Fields, root: Root, operation: str, shape: Shape) -> str:
    """Where entries of a shape are that hold for a request."""
    return place_at(root, operation, shape, key_as_read([value_at(request, path) for path in shape])).hex()


def _age(one: Found) -> float:
    return one.entry.learned_at


@runtime_checkable
class Finder(Protocol):
    """A store that finds by itself what holds for a request."""

    def find(self, root: Root, operation: str, request: Fields) -> tuple[Known, list[Found]]:
        """What is on record of a root, and the entries that hold for a request, oldest first.

        What is known is of no later moment than the entries: so none of them has gone stale by what is known.
        """

    def note(self, found: Found) -> None:
        """Note that it was used. May be late, and may be lost."""


class ByVerbs:
    """How a store is looked into that has no verb of its own for it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, root: Root, operation: str, request: Fields) -> tuple[Known, list[Found]]:
        """What is known is read first."""
        known = self._store.known(root)
        if not is_carried(operation, request):
            return known, []
        places = [place_in(request, root, operation, shape) for shape in self._store.shapes(root, operation)]
        there = self._store.at(root, places) if places else []
        said = cache(partial(read_at, request))
        held = [one for one in there if mismatch(one.condition.when, said, one.condition.unless) is None]
        return known, [Found(entry, None) for entry in held]

    def note(self, found: Found) -> None:
        self._store.used(found.entry.root, (found.entry.id,))
