"""A store of one's own: a list that is searched from end to end, written with nothing but what `shelflife.client` exports."""

from collections.abc import Iterable, Iterator, Sequence
from threading import Lock

import msgspec

from shelflife.client import Entry, Filed, Knowledge, Known, Root, Shape, Write, Written

__all__ = ["ListStore"]


class ListStore:
    """All that is filed, the longest unused first."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[Root, Known] = {}
        self._filed: list[Filed] = []

    def known(self, root: Root) -> Known:
        return self._known.get(root, Known(Knowledge(), 0))

    def shapes(self, root: Root, operation: str) -> Iterable[Shape]:
        return {
            one.entry.condition.shape
            for one in self._filed
            if (one.entry.root, one.entry.operation) == (root, operation)
        }

    def at(self, root: Root, places: Sequence[str]) -> list[Entry]:
        found = [one.entry for one in self._filed if one.entry.place in places]
        return sorted(found, key=lambda entry: entry.learned_at)

    def tagged(self, root: Root, *tags: str) -> list[Entry]:
        return [one.entry for one in self._filed if one.entry.root == root and {*tags} & {*one.tags}]

    def count(self, root: Root, *tags: str) -> int:
        return sum(len(self.tagged(root, tag)) for tag in tags)

    def write(self, root: Root, revision: int, write: Write) -> Written | None:
        with self._lock:
            if self.known(root).revision != revision:
                return None
            self._known[root] = Known(write.knowledge, revision + 1)
            written = Written([], [], [])
            for tag in write.drop:
                written.dropped.extend((entry, tag) for entry in self.tagged(root, tag))
                self._filed = [one for one in self._filed if one.entry.root != root or tag not in one.tags]
            for id in write.drop_ids:
                doomed = [one for one in self._filed if (one.entry.root, one.entry.id) == (root, id)]
                written.dropped.extend((one.entry, id) for one in doomed)
                self._filed = [one for one in self._filed if one not in doomed]
            for filed in write.put:
                self._put(filed, written)
            of_root = [one for one in self._filed if one.entry.root == root]
            excess = 0 if write.capacity is None else max(len(of_root) - write.capacity, 0)
            written.trimmed.extend(one.entry for one in of_root[:excess])
            self._filed = [one for one in self._filed if one not in of_root[:excess]]
            return written

    def used(self, root: Root, ids: Iterable[str]) -> None:
        with self._lock:
            for id in ids:
                self._filed.sort(key=lambda one, used=id: one.entry.id == used)  # type: ignore[misc]

    def roots(self) -> list[Root]:
        return sorted(self._known)

    def entries(self) -> Iterator[Entry]:
        return iter([one.entry for one in self._filed])

    def _put(self, filed: Filed, written: Written) -> None:
        entry = filed.entry
        same = [number for number, one in enumerate(self._filed) if one.entry.id == entry.id]
        if same:
            before = self._filed[same[0]].entry
            entry = msgspec.structs.replace(entry, learned_at=before.learned_at)
            filed = msgspec.structs.replace(filed, entry=entry)
            self._filed[same[0]] = filed
        else:
            before = None
            self._filed.append(filed)
        rivals = [
            one
            for one in self._filed
            if (one.slot, one.entry.place) == (filed.slot, entry.place) and one.entry.id != entry.id
        ]
        written.dropped.extend((one.entry, "") for one in rivals)
        self._filed = [one for one in self._filed if one not in rivals]
        if before is None or entry.renews(before):
            written.stored.append(filed.entry)
