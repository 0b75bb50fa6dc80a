"""A store in the memory of this process, gone when it ends."""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from operator import attrgetter

import msgspec

from shelflife.client.asking import Fields
from shelflife.client.entries import Entry, Knowledge, Root, Shape
from shelflife.client.finding import ByShape, Found, holding
from shelflife.client.stores import Filed, Known, Write, Written
from shelflife.contract.values import is_carried
from shelflife.forks import Locking

__all__ = ["InProcessStore"]

_by_age = attrgetter("learned_at")


class _Kept(Found, kw_only=True):
    """An entry, as it is filed."""

    place: str
    slot: str
    tags: tuple[str, ...]
    shape: Shape
    key: bytes


_Filed = dict[str, _Kept]
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

    def find(self, root: Root, operation: str, request: Fields) -> tuple[Known, list[Found]]:
        with self._lock:
            held = self._of(root)
            shapes = held.shapes.get(operation)
            there: tuple[_Kept, ...] = ()
            if shapes is not None and is_carried(operation, request):
                for one in shapes.values():
                    there += one.by_key.get(one.key_in(request), ())
            known = self.known(root)
        return known, holding(there, request) if there else []

    def note(self, found: Found) -> None:
        found.used = next(_uses)  # one that has gone meanwhile does no harm

    def at(self, root: Root, places: Sequence[str]) -> list[Entry]:
        with self._lock:
            by_place = self._of(root).by_place
            found = [one.entry for place in places for one in by_place.get(place, ())]
        return sorted(found, key=_by_age) if len(found) > 1 else found

    def tagged(self, root: Root, *tags: str) -> list[Entry]:
        with self._lock:
            by_tag, found = self._of(root).by_tag, _Filed()
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
                    self.note(filed[id])

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
        self.filed: _Filed = {}
        self.by_place: dict[str, tuple[_Kept, ...]] = {}
        self.by_tag: dict[str, _Filed] = {}
        self.shapes: dict[str, dict[Shape, ByShape[_Kept]]] = {}
        """By operation."""
        self._by_use: list[tuple[int, str]] | None = None
        """Once there were too many: a heap of when each was used and its id. One that was used since is put back when it comes up."""

    def written(self, write: Write) -> Written:
        written = Written([], [], [])
        for tag in write.drop:
            doomed = self.by_tag.pop(tag, _NONE)
            written.dropped.extend([(self._remove(id, but=tag), tag) for id in doomed])
        written.dropped.extend((self._remove(id), id) for id in write.drop_ids if id in self.filed)
        for filed in write.put:
            self._put(filed, written)
        if write.capacity is not None:
            while len(self.filed) > write.capacity:
                written.trimmed.append(self._remove(self._longest_unused()))
        return written

    def _put(self, filed: Filed, written: Written) -> None:
        entry, shape = filed.entry, filed.entry.condition.shape
        id, place = entry.id, entry.place
        for rival in self.by_place.get(place, ()):
            if rival.slot == filed.slot and rival.entry.id != id:
                written.dropped.append((self._remove(rival.entry.id), ""))
        before = self.filed.get(id)
        if before is not None:
            self._unlink(id, before)
            entry = msgspec.structs.replace(entry, learned_at=before.entry.learned_at)
        shapes = self.shapes.setdefault(entry.operation, {})
        by_shape = shapes.get(shape)
        if by_shape is None:
            by_shape = shapes[shape] = ByShape(shape)
        key, watched = by_shape.filed(entry)
        kept = self.filed[id] = _Kept(
            entry=entry,
            watched=watched,
            used=next(_uses) if before is None else before.used,
            place=place,
            slot=filed.slot,
            tags=tuple(dict.fromkeys(filed.tags)),
            shape=shape,
            key=key,
        )
        self.by_place[place] = by_shape.by_key[kept.key] = (*self.by_place.get(place, ()), kept)
        for tag in kept.tags:
            self.by_tag.setdefault(tag, {})[id] = kept
        if before is None and self._by_use is not None:
            heappush(self._by_use, (kept.used, id))
        if before is None or entry.renews(before.entry):
            written.stored.append(entry)

    def _longest_unused(self) -> str:
        if self._by_use is None or len(self._by_use) > 2 * len(self.filed):  # most of it has gone
            self._by_use = [(kept.used, id) for id, kept in self.filed.items()]
            heapify(self._by_use)
        while True:
            used, id = heappop(self._by_use)
            kept = self.filed.get(id)
            if kept is not None and kept.used == used:
                return id
            if kept is not None:
                heappush(self._by_use, (kept.used, id))

    def _remove(self, id: str, but: str = "") -> Entry:
        """Take an entry out; `but` is a tag that has gone already, with all that bears it."""
        kept = self.filed.pop(id)
        self._unlink(id, kept, but)
        return kept.entry

    def _unlink(self, id: str, kept: _Kept, but: str = "") -> None:
        by_tag, by_place, place, entry = self.by_tag, self.by_place, kept.place, kept.entry
        for tag in kept.tags:
            if tag != but:
                found = by_tag[tag]
                del found[id]
                if not found:
                    del by_tag[tag]
        there, shapes = by_place.pop(place), self.shapes[entry.operation]
        by_shape = shapes[kept.shape]
        if len(there) > 1:
            others = tuple([one for one in there if one is not kept])
            by_place[place] = by_shape.by_key[kept.key] = others
            return
        del by_shape.by_key[kept.key]
        if not by_shape.by_key:
            del shapes[kept.shape]
            if not shapes:
                del self.shapes[entry.operation]


_NONE: _Filed = {}
_NOTHING = _Held()
_uses = count(1)
