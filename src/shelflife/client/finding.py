"""Finding what is at hand by what a request says: one look into a dictionary, without a digest.

A store that has entries in the memory of this process, all of them or copies of some, keeps them by shape (`ByShape`), and has a verb
`find` (`Finder`), which a memory then uses instead of `known`, `shapes` and `at`.
"""

from collections.abc import Iterable
from functools import cache, lru_cache, partial
from typing import Generic, Protocol, TypeVar, runtime_checkable

import msgspec

from shelflife.client.asking import Fields
from shelflife.client.entries import Entry, Root, Shape, digest_of
from shelflife.client.stores import Known, Store
from shelflife.contract.values import is_carried
from shelflife.contract.when import WHOLE_REQUEST, as_read, mismatch, names_in, read_at, value_at

__all__ = ["ByShape", "ByVerbs", "Finder", "Found", "holding", "place_in", "watched_by"]

_encode = msgspec.json.Encoder().encode


class Found(msgspec.Struct):
    """An entry that is at hand, with what a look at it takes: nothing else of it is touched, which is mostly in no cache of the processor."""

    entry: Entry
    watched: tuple[str, ...] | None
    """The fields of a request that may bar the entry (`unless`); None where any may."""

    used: int = 0
    """When it was last used, as the store counts."""


def watched_by(entry: Entry) -> tuple[str, ...] | None:
    """The fields that must be absent for an entry to hold without a closer look; None where that cannot be said."""
    unless = entry.condition.unless
    if WHOLE_REQUEST in unless or any(None in values for values in unless.values()):
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
        self._has_plain_paths = WHOLE_REQUEST not in shape and "/" not in joined and "~" not in joined

    def key_in(self, request: Fields) -> bytes:
        """What a request says that JSON can carry."""
        if self._has_plain_paths:
            values = list(map(request.get, self.shape))
        else:
            values = [value_at(request, path) for path in self.shape]
        key = _encode(values)
        return (
            key if b"{" not in key else _encode(list(map(as_read, values)))
        )  # the order of fields does not count, nor a null

    def key_of(self, entry: Entry) -> bytes:
        """The key of the requests that an entry is for."""
        when = entry.condition.when
        return _encode([as_read(when[path]) for path in self.shape])

    def filed(self, entry: Entry) -> tuple[bytes, tuple[str, ...] | None]:
        """That, and the fields of these requests that may bar it."""
        return self.key_of(entry), watched_by(entry)


def holding(there: Iterable[Kept], request: Fields) -> list[Kept]:
    """What holds for a request, of what stands at its keys; oldest first."""
    found, said = [], None
    for one in there:
        is_barred = one.watched is None
        for name in one.watched or ():
            if request.get(name) is not None:
                is_barred = True  # as it may be
        if is_barred:
            # what is large in a request is read once for all that look at it
            said = said or cache(partial(read_at, request))
            is_barred = mismatch({}, said, one.entry.condition.unless) is not None
        if not is_barred:
            found.append(one)
    if len(found) > 1:
        found.sort(key=_age)
    return found


def place_in(request: Fields, root: Root, operation: str, shape: Shape) -> str:
    """Where entries of a shape are that hold for a request."""
    return digest_of(root, operation, {path: read_at(request, path) for path in shape})


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
