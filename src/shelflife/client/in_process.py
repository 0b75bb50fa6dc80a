"""A store in the memory of this process, gone when it ends."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice
from operator import attrgetter
from typing import NamedTuple

import msgspec

from shelflife.client.entries import Entry, Knowledge, Root, Shape
from shelflife.client.stores import Filed, Known, Write, Written
from shelflife.forks import Locking

__all__ = ["InProcessStore"]

_by_age = attrgetter("learned_at")


class _Kept(NamedTuple):
    """An entry, as it is filed."""

    entry: Entry
    slot: str
    tags: tuple[str, ...]
    shape: Shape


_Found = dict[str, _Kept]
"""By id."""


class InProcessStore(Locking):
    """Dictionaries under a lock."""

    def __init__(self) -> None:
        super().__init__()
        self._revisions = count(1)
        self._roots: dict[Root, _Held] = {}

    def known(self, root: Root) -> Known:
        held = self._roots.get(root)
        return _NOTHING.known if held is None else held.known

    def shapes(self, root: Root, operation: str) -> Iterable[Shape]:
        held = self._roots.get(root)
        if held is None:
            return ()
        with self._lock:
            return tuple(held.shapes.get(operation, ()))

    def at(self, root: Root, places: Sequence[str]) -> list[Entry]:
        with self._lock:
            by_place = self._of(root).by_place
            found = [one.entry for place in places for one in by_place.get(place, ())]
        return sorted(found, key=_by_age) if len(found) > 1 else found

    def tagged(self, root: Root, *tags: str) -> list[Entry]:
        with self._lock:
            by_tag, found = self._of(root).by_tag, _Found()
            for tag in tags:
                found |= by_tag.get(tag, _NONE)
        return [one.entry for one in found.values()]

    def count(self, root: Root, *tags: str) -> int:
        with self._lock:
            by_tag = self._of(root).by_tag
            return sum(len(by_tag.get(tag, _NONE)) for tag in tags)

    def write(self, root: Root, revision: int, write: Write) -> Written | None:
        with self._lock:
            if self.known(root).revision != revision:
                return None
            try:
                held = self._roots.setdefault(root, _Held())
                held.known = Known(write.knowledge, next(self._revisions))
                return held.written(write)
            except BaseException:  # Ctrl-C, or the end of the stack: half a write is worse than none
                self._roots.clear()
                raise

    def used(self, root: Root, ids: Iterable[str]) -> None:
        with self._lock:
            filed = self._of(root).filed
            for id in ids:
                if id in filed:
                    filed[id] = filed.pop(id)

    def entries(self) -> Iterator[Entry]:
        with self._lock:
            found = [one.entry for held in self._roots.values() for one in held.filed.values()]
        return iter(sorted(found, key=_by_age))

    def _of(self, root: Root) -> "_Held":
        return self._roots.get(root, _NOTHING)


class _Held:
    """All of one root. Whoever leads to nothing is not in it."""

    def __init__(self) -> None:
        self.known = Known(Knowledge(), 0)
        self.filed: _Found = {}
        """The longest unused first."""
        self.by_place: dict[str, tuple[_Kept, ...]] = {}
        self.by_tag: dict[str, _Found] = {}
        self.shapes: dict[str, dict[Shape, int]] = {}
        """By operation: how many have each."""

    def written(self, write: Write) -> Written:
        written = Written([], [], [])
        for tag in write.drop:
            doomed = tuple(self.by_tag.get(tag, ()))
            written.dropped.extend([(self._remove(id), tag) for id in doomed])
        written.dropped.extend((self._remove(id), id) for id in write.drop_ids if id in self.filed)
        for filed in write.put:
            self._put(filed, written)
        if write.capacity is not None and len(self.filed) > write.capacity:
            excess = len(self.filed) - write.capacity
            written.trimmed.extend([self._remove(id) for id in tuple(islice(self.filed, excess))])
        return written

    def _put(self, filed: Filed, written: Written) -> None:
        entry = filed.entry
        id, place = entry.id, entry.place
        for rival in self.by_place.get(place, ()):
            if rival.slot == filed.slot and rival.entry.id != id:
                written.dropped.append((self._remove(rival.entry.id), ""))
        before = self.filed.get(id)
        if before is not None:
            self._unlink(id, before)
            entry = msgspec.structs.replace(entry, learned_at=before.entry.learned_at)
        tags = tuple(dict.fromkeys(filed.tags))
        kept = self.filed[id] = _Kept(entry, filed.slot, tags, entry.condition.shape)
        self.by_place[place] = (*self.by_place.get(place, ()), kept)
        for tag in tags:
            self.by_tag.setdefault(tag, {})[id] = kept
        counts = self.shapes.setdefault(entry.operation, {})
        counts[kept.shape] = counts.get(kept.shape, 0) + 1
        if before is None or entry.renews(before.entry):
            written.stored.append(entry)

    def _remove(self, id: str) -> Entry:
        kept = self.filed.pop(id)
        self._unlink(id, kept)
        return kept.entry

    def _unlink(self, id: str, kept: _Kept) -> None:
        entry, _, tags, shape = kept
        by_tag, by_place, place = self.by_tag, self.by_place, entry.place
        for tag in tags:
            found = by_tag[tag]
            del found[id]
            if not found:
                del by_tag[tag]
        others = tuple([one for one in by_place[place] if one is not kept])
        if others:
            by_place[place] = others
        else:
            del by_place[place]
        counts = self.shapes[entry.operation]
        counts[shape] -= 1
        if not counts[shape]:
            del counts[shape]
            if not counts:
                del self.shapes[entry.operation]


_NONE: _Found = {}
_NOTHING = _Held()
