"""A store in the memory of this process, gone when it ends."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice

import msgspec

from shelflife.client.entries import Entry, Knowledge, Root, Shape
from shelflife.client.stores import Filed, Known, Write, Written
from shelflife.forks import Locking

__all__ = ["InProcessStore"]

_Ids = defaultdict[tuple[str, ...], dict[str, None]]


class InProcessStore(Locking):
    """Dictionaries under a lock."""

    def __init__(self) -> None:
        super().__init__()
        self._revisions = count(1)
        self._known: dict[Root, Known] = {}
        self._filed: dict[str, Filed] = {}
        self._ids: _Ids = defaultdict(dict)
        """By place, by slot, and by root and tag."""

        self._by_use: defaultdict[Root, dict[str, None]] = defaultdict(dict)
        """Of a root, the longest unused first. One of which nothing is held is not in it."""

        self._shapes: defaultdict[tuple[Root, str], _Ids] = defaultdict(lambda: defaultdict(dict))
        """By root and operation: the ids by shape. An operation of which nothing is held is not in it."""

    def known(self, root: Root) -> Known:
        return self._known.get(root, Known(Knowledge(), 0))

    def shapes(self, root: Root, operation: str) -> Iterable[Shape]:
        with self._lock:
            return tuple(self._shapes.get((root, operation), ()))

    def at(self, root: Root, places: Sequence[str]) -> list[Entry]:
        with self._lock:
            found = [self._filed[id].entry for place in places for id in self._ids.get(("place", place), ())]
        return sorted(found, key=lambda entry: entry.learned_at) if len(found) > 1 else found

    def tagged(self, root: Root, *tags: str) -> list[Entry]:
        with self._lock:
            ids = dict.fromkeys(id for tag in tags for id in self._ids.get((root, tag), ()))
            return [self._filed[id].entry for id in ids]

    def count(self, root: Root, *tags: str) -> int:
        with self._lock:
            return sum(len(self._ids.get((root, tag), ())) for tag in tags)

    def write(self, root: Root, revision: int, write: Write) -> Written | None:
        with self._lock:
            if self.known(root).revision != revision:
                return None
            try:
                return self._written(root, write)
            except BaseException:  # Ctrl-C, or the end of the stack: half a write is worse than none
                for held in (self._known, self._filed, self._ids, self._by_use, self._shapes):
                    held.clear()
                raise

    def used(self, root: Root, ids: Iterable[str]) -> None:
        with self._lock:
            by_use = self._by_use.get(root, {})
            for id in ids:
                if id in by_use:
                    by_use[id] = by_use.pop(id)

    def entries(self) -> Iterator[Entry]:
        with self._lock:
            return iter([filed.entry for filed in self._filed.values()])

    def _written(self, root: Root, write: Write) -> Written:
        self._known[root] = Known(write.knowledge, next(self._revisions))
        written = Written([], [], [])
        for tag in write.drop:
            written.dropped.extend((self._remove(id), tag) for id in tuple(self._ids.get((root, tag), ())))
        written.dropped.extend((self._remove(id), id) for id in write.drop_ids if id in self._filed)
        for filed in write.put:
            self._put(filed, written)
        by_use = self._by_use.get(root, {})
        excess = 0 if write.capacity is None else max(len(by_use) - write.capacity, 0)
        written.trimmed.extend(self._remove(id) for id in tuple(islice(by_use, excess)))
        return written

    def _put(self, filed: Filed, written: Written) -> None:
        entry = filed.entry
        rivals = [id for id in self._ids.get(("slot", entry.place, filed.slot), ()) if id != entry.id]
        written.dropped.extend((self._remove(id), "") for id in rivals)
        before = self._filed.get(entry.id)
        if before is not None:
            self._unlink(before)
            entry = msgspec.structs.replace(entry, learned_at=before.entry.learned_at)
        self._filed[entry.id] = filed._replace(entry=entry)
        self._by_use[entry.root].setdefault(entry.id)
        for ids, key in self._links(filed):
            ids[key][entry.id] = None
        if before is None or entry.renews(before.entry):
            written.stored.append(entry)

    def _remove(self, id: str) -> Entry:
        filed = self._filed.pop(id)
        self._unlink(filed)
        root = filed.entry.root
        del self._by_use[root][id]
        if not self._by_use[root]:
            del self._by_use[root]
        return filed.entry

    def _unlink(self, filed: Filed) -> None:
        for ids, key in self._links(filed):
            ids[key].pop(filed.entry.id, None)
            if not ids[key]:
                del ids[key]
        operation = filed.entry.root, filed.entry.operation
        if not self._shapes[operation]:
            del self._shapes[operation]

    def _links(self, filed: Filed) -> Iterator[tuple[_Ids, tuple[str, ...]]]:
        """All that leads to an entry."""
        entry = filed.entry
        yield self._shapes[entry.root, entry.operation], entry.condition.shape
        yield self._ids, ("place", entry.place)
        yield self._ids, ("slot", filed.entry.place, filed.slot)
        for tag in filed.tags:
            yield self._ids, (entry.root, tag)
