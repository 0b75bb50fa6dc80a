"""A store in the memory of this process, gone when it ends."""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from shelflife.client.entries import Entry, Knowledge, Shape, shape_of
from shelflife.client.stores import MOST_SHAPES, Known, Written

__all__ = ["InProcessStore"]


class _Held:
    """An entry and all that leads to it."""

    __slots__ = ("entry", "id", "place", "slot", "tags")

    def __init__(self, entry: Entry, tags: Sequence[str]) -> None:
        self.entry = entry
        self.id = entry.id
        self.place = entry.place
        self.slot = entry.slot
        self.tags = tuple(f"{entry.origin} {tag}" for tag in tags)


class InProcessStore:
    """Dictionaries under a lock. The order of `_held` is the order of use, the longest unused first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Known] = {}
        self._held: dict[str, _Held] = {}
        self._at: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._in_slot: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._tagged: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._shapes: defaultdict[str, Counter[Shape]] = defaultdict(Counter)

    def known(self, origin: str) -> Known:
        return self._known.get(origin, Known(Knowledge(), 0))

    def shapes(self, origin: str, operation: str) -> Iterable[Shape]:
        with self._lock:
            return tuple(self._shapes.get(f"{origin} {operation}", ()))

    def at(self, places: Sequence[str]) -> list[Entry]:
        with self._lock:
            found = [self._held[id].entry for place in places for id in self._at.get(place, ())]
        return sorted(found, key=lambda entry: entry.learned_at) if len(found) > 1 else found

    def tagged(self, origin: str, tag: str) -> list[Entry]:
        with self._lock:
            return [self._held[id].entry for id in self._tagged.get(f"{origin} {tag}", ())]

    def count(self, origin: str, tag: str) -> int:
        with self._lock:
            return len(self._tagged.get(f"{origin} {tag}", ()))

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
        with self._lock:
            if self.known(origin).revision != revision:
                return None
            self._known[origin] = Known(knowledge, revision + 1)
            written = Written([], [], [])
            for tag in drop:
                for id in list(self._tagged.get(f"{origin} {tag}", ())):
                    written.dropped.append((self._remove(id), tag))
            written.dropped.extend((self._remove(id), id) for id in drop_ids if id in self._held)
            for entry, tags in put:
                self._put(_Held(entry, tags), is_beside, written)
            while capacity is not None and len(self._held) > capacity:
                written.trimmed.append(self._remove(next(iter(self._held))))
            return written

    def used(self, ids: Iterable[str]) -> None:
        with self._lock:
            for id in ids:
                held = self._held.pop(id, None)
                if held is not None:
                    self._held[id] = held

    def entries(self) -> Iterator[Entry]:
        with self._lock:
            held = list(self._held.values())
        return (one.entry for one in held)

    def _put(self, held: _Held, is_beside: bool, written: Written) -> None:
        entry = held.entry
        shapes = self._shapes[f"{entry.origin} {entry.operation}"]
        shape = shape_of(entry.when)
        if len(shapes) >= MOST_SHAPES and shape not in shapes:
            return
        before = self._held.get(held.id)
        if before is not None and (is_beside or entry.is_suspect):
            if before.entry.is_suspect == entry.is_suspect:
                return
            self._unlink(before)
        elif not is_beside:
            rivals = [(self._remove(id), "") for id in list(self._in_slot.get(held.slot, ()))]
            written.dropped.extend(rival for rival in rivals if rival[0].id != held.id)
        self._held[held.id] = held
        self._at[held.place][held.id] = None
        self._in_slot[held.slot][held.id] = None
        for tag in held.tags:
            self._tagged[tag][held.id] = None
        shapes[shape] += 1
        if before is None or before.entry.is_suspect:
            written.stored.append(entry)

    def _remove(self, id: str) -> Entry:
        held = self._held.pop(id)
        self._unlink(held)
        return held.entry

    def _unlink(self, held: _Held) -> None:
        for index, keys in (
            (self._at, (held.place,)),
            (self._in_slot, (held.slot,)),
            (self._tagged, held.tags),
        ):
            for key in keys:
                index[key].pop(held.id)
                if not index[key]:
                    del index[key]
        entry = held.entry
        shapes = self._shapes[f"{entry.origin} {entry.operation}"]
        shape = shape_of(entry.when)
        shapes[shape] -= 1
        if not shapes[shape]:
            del shapes[shape]
