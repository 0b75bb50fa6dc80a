"""A store in the memory of this process, gone when it ends.

What a write drops is marked as gone, which takes one look at each, and is found by nobody from then on. Taking it out of all
dictionaries takes ten times as long, and is done as others come: two for each. So there is never more than there has been.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from operator import attrgetter
from typing import TypeVar

import msgspec

from shelflife.client.asking import Fields
from shelflife.client.entries import Entry, Knowledge, Root, Shape
from shelflife.client.finding import ByShape, Found, holding
from shelflife.client.stores import Filed, Known, Write, Written
from shelflife.contract.values import is_carried
from shelflife.forks import Locking

__all__ = ["InProcessStore"]

_FEW = 16
_by_age = attrgetter("learned_at")
_Where = TypeVar("_Where", str, bytes)


class _Tagged:
    """What bears one tag."""

    __slots__ = ("count", "held", "tag")

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.held: dict[str, _Kept] = {}
        """By id, with some that have gone."""
        self.count = 0
        """How many have not."""


class _Shaped(ByShape["_Kept"]):
    """What has one shape, with some that has gone."""

    held_count = 0
    """How many have not."""


class _Kept(Found, kw_only=True, gc=True):
    """An entry, as it is filed. Its tags lead back to it, which is the collector's business.

    What is looked at when it is found, or goes, comes first: then it is mostly in one line of the processor's cache.
    """

    tags: tuple[_Tagged, ...]
    shaped: _Shaped
    place: str
    slot: str
    key: bytes


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
            held = self._roots.get(root, _NOTHING)
            known, shapes = held.known, held.shapes.get(operation)
            there: tuple[_Kept, ...] = ()
            if shapes is not None and is_carried(operation, request):
                for one in shapes.values():
                    there += one.by_key.get(one.key_in(request), ())
        # Two race here: this, and a write that drops some of it. What has gone never comes back, so all that is left was there with `known`.
        return known, holding(there, request) if there else []

    def note(self, found: Found) -> None:
        found.used = next(_uses)  # one that has gone meanwhile does no harm

    def at(self, root: Root, places: Sequence[str]) -> list[Entry]:
        with self._lock:
            by_place = self._of(root).by_place
            found = [one.entry for place in places for one in by_place.get(place, ()) if not one.is_gone]
        return sorted(found, key=_by_age) if len(found) > 1 else found

    def tagged(self, root: Root, *tags: str) -> list[Entry]:
        with self._lock:
            by_tag = self._of(root).by_tag
            there = [by_tag[tag].held for tag in tags if tag in by_tag]
            # What has gone is left out of each: under one tag an entry may still stand as it was, and under another as it was learned again.
            found = {id: one.entry for held in there for id, one in held.items() if not one.is_gone}
            return list(found.values())

    def count(self, root: Root, *tags: str) -> int:
        with self._lock:
            by_tag = self._roots.get(root, _NOTHING).by_tag
            return sum([by_tag[tag].count for tag in tags if tag in by_tag])

    def write(self, root: Root, revision: int, write: Write) -> Written | None:
        with self._lock:
            held = self._roots.get(root)
            if (_NOTHING if held is None else held).known.revision != revision:
                return None
            try:
                if held is None:
                    held = self._roots[root] = _Held()
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

    def roots(self) -> list[Root]:
        with self._lock:
            return sorted(self._roots)

    def entries(self) -> Iterator[Entry]:
        with self._lock:
            found = [one.entry for held in self._roots.values() for one in held.living()]
        return iter(sorted(found, key=_by_age))

    def _of(self, root: Root) -> "_Held":
        return self._roots.get(root, _NOTHING)


class _Held:
    """All of one root. Whoever leads to nothing is not in it, but for what has gone and is still to be taken out."""

    def __init__(self) -> None:
        self.known = Known(Knowledge(), 0)
        self._begin()

    def _begin(self) -> None:
        self.filed: dict[str, _Kept] = {}
        """By id."""
        self.by_place: dict[str, tuple[_Kept, ...]] = {}
        self.by_tag: dict[str, _Tagged] = {}
        self.shapes: dict[str, dict[Shape, _Shaped]] = {}
        """By operation: those of which something is held."""
        self._held_count = 0
        self._gone: deque[_Kept] = deque()
        self._by_use: list[tuple[int, str]] | None = None
        """Once there were too many: a heap of when each was used and its id. One that was used since is put back when it comes up."""

    def living(self) -> list[_Kept]:
        """All that has not gone."""
        return [one for one in self.filed.values() if not one.is_gone]

    def written(self, write: Write) -> Written:
        written = Written([], [], [])
        for tag in write.drop:
            doomed = self.by_tag.pop(tag, None)
            if doomed is not None:
                written.dropped.extend([(one.entry, tag) for one in self._lose(doomed.held.values())])
                doomed.held = {}
        for id in write.drop_ids:
            kept = self.filed.get(id)
            if kept is not None:
                written.dropped.extend([(one.entry, id) for one in self._lose((kept,))])
        for filed in write.put:
            self._put(filed, written)
        if write.capacity is not None:
            while self._held_count > write.capacity:
                written.trimmed.extend([one.entry for one in self._lose((self._longest_unused(),))])
        if not self._held_count:
            self._begin()
        for _ in range(min(2 * len(write.put), len(self._gone))):
            self._unlink(self._gone.popleft())
        return written

    def _filed(self, id: str) -> _Kept | None:
        kept = self.filed.get(id)
        return None if kept is None or kept.is_gone else kept

    def _put(self, filed: Filed, written: Written) -> None:
        entry, shape = filed.entry, filed.entry.condition.shape
        id, place = entry.id, entry.place
        before = self._filed(id)
        others: list[_Kept] = []
        for rival in self.by_place.get(place, ()):
            if rival.is_gone or rival is before:
                continue
            if rival.slot == filed.slot:
                written.dropped.extend([(one.entry, "") for one in self._lose((rival,))])
            else:
                others.append(rival)
        if before is not None:
            self._lose((before,))
            entry = msgspec.structs.replace(entry, learned_at=before.entry.learned_at)
        shapes = self.shapes.setdefault(entry.operation, {})
        shaped = shapes.get(shape)
        if shaped is None:
            shaped = shapes[shape] = _Shaped(shape)
        key, watched = shaped.filed(entry)
        kept = self.filed[id] = _Kept(
            entry=entry,
            watched=watched,
            used=next(_uses) if before is None else before.used,
            place=place,
            slot=filed.slot,
            tags=tuple([self._tagged(tag) for tag in dict.fromkeys(filed.tags)]),
            shaped=shaped,
            key=key,
        )
        self.by_place[place] = shaped.by_key[key] = (*others, kept)
        for tagged in kept.tags:
            tagged.held[id] = kept
            tagged.count += 1
        shaped.held_count += 1
        self._held_count += 1
        if before is None and self._by_use is not None:
            self._by_use.append((kept.used, id))  # nothing was used later, so this is its place in the heap
            if len(self._by_use) > 2 * self._held_count + _FEW:
                self._by_use = None  # most of it has gone, and it may be long until there are too many again
        if before is None or entry.renews(before.entry):
            written.stored.append(entry)

    def _tagged(self, tag: str) -> _Tagged:
        tagged = self.by_tag.get(tag)
        if tagged is None:
            tagged = self.by_tag[tag] = _Tagged(tag)
        return tagged

    def _longest_unused(self) -> _Kept:
        from heapq import heapify, heappop, heappush  # which a memory does without that is never full

        if self._by_use is None:
            self._by_use = [(kept.used, kept.entry.id) for kept in self.living()]
            heapify(self._by_use)
        while True:
            used, id = heappop(self._by_use)
            kept = self._filed(id)
            if kept is not None and kept.used == used:
                return kept
            if kept is not None:
                heappush(self._by_use, (kept.used, id))

    def _lose(self, doomed: Iterable[_Kept]) -> list[_Kept]:
        """Let nobody find these any more, and tell which of them were still there."""
        left = [one for one in doomed if not one.is_gone]
        for one in left:
            one.is_gone = True
            for tagged in one.tags:
                tagged.count -= 1
            shaped = one.shaped
            shaped.held_count -= 1
            if not shaped.held_count:
                operation = one.entry.operation
                shapes = self.shapes[operation]
                del shapes[shaped.shape]
                if not shapes:
                    del self.shapes[operation]
        self._held_count -= len(left)
        self._gone.extend(left)
        return left

    def _unlink(self, kept: _Kept) -> None:
        """Take out an entry that has gone. Another may be where it was."""
        id = kept.entry.id
        if self.filed.get(id) is kept:
            del self.filed[id]
        for tagged in kept.tags:
            if tagged.held.get(id) is kept:
                del tagged.held[id]
                if not tagged.held and self.by_tag.get(tagged.tag) is tagged:
                    del self.by_tag[tagged.tag]
        _take_out(self.by_place, kept.place, kept)
        _take_out(kept.shaped.by_key, kept.key, kept)


def _take_out(there: dict[_Where, tuple[_Kept, ...]], where: _Where, kept: _Kept) -> None:
    others = tuple([one for one in there.get(where, ()) if one is not kept])
    if others:
        there[where] = others
    else:
        there.pop(where, None)


_NOTHING = _Held()
_uses = count(1)
