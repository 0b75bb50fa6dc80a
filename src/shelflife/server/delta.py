"""What happened to a table: the rows before and after.

Rows are compared as JSON, not as Python values: `1`, `1.0` and `true` differ, the order of fields does not.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Self

import msgspec

from shelflife.contract.positions import MovedTable
from shelflife.contract.values import are_packed_alike, same_json

__all__ = ["Delta", "Row"]

Row = dict[str, Any]
"""The values of one row: a JSON object."""

_COMPARED_AT_ONCE = 128
"""Most rows of a new content have not changed, and it is cheaper to compare many at once than one by one."""


class Delta(msgspec.Struct, frozen=True):
    """The rows that differ between two contents, before and after; None where there was no row.

    Both maps have the same keys, and under each key the two rows differ.
    """

    before: Mapping[str, Row | None]
    after: Mapping[str, Row | None]

    def __len__(self) -> int:
        return len(self.after)

    def __bool__(self) -> bool:
        return bool(self.after)

    @classmethod
    def of(cls, before: Mapping[str, Row | None], after: Mapping[str, Row | None]) -> Self:
        """The delta between two states of the same keys; what is equal in both is left out."""
        differing = [key for key in after if not same_json(before[key], after[key])]
        return cls({key: before[key] for key in differing}, {key: after[key] for key in differing})

    @classmethod
    def between(cls, old: Mapping[str, Row], new: Mapping[str, Row]) -> Self:
        """What turns `old` into `new`."""
        before: dict[str, Row | None] = {}
        after: dict[str, Row | None] = {}
        added_count = 0
        look_up = old.get
        items = iter(new.items())
        while chunk := list(islice(items, _COMPARED_AT_ONCE)):
            old_rows = [look_up(key) for key, _ in chunk]
            if None not in old_rows and are_packed_alike(old_rows, [row for _, row in chunk]):
                continue
            for (key, row), old_row in zip(chunk, old_rows, strict=True):
                if old_row is None:
                    added_count += 1
                elif same_json(old_row, row):
                    continue
                before[key], after[key] = old_row, row
        if len(old) + added_count != len(new):
            for key, old_row in old.items():
                if key not in new:
                    before[key], after[key] = old_row, None
        return cls(before, after)

    @classmethod
    def setting(cls, old: Mapping[str, Row], rows: Mapping[str, Row], without: Iterable[str] = ()) -> Self:
        """What setting `rows` and removing the keys `without` does to `old`; the work follows the change."""
        after = {**rows, **dict.fromkeys(without)}
        return cls.of({key: old.get(key) for key in after}, after)

    @property
    def diff(self) -> MovedTable:
        """The same by key and column, each list sorted."""
        added, removed, columns = [], [], {}
        for key in sorted(self.after):
            old, new = self.before[key], self.after[key]
            if old is None:
                added.append(key)
            elif new is None:
                removed.append(key)
            else:
                columns[key] = tuple(_differing(old, new))
        return MovedTable(added=tuple(added), removed=tuple(removed), changed=tuple(columns), columns=columns)

    def applied_to(self, rows: Mapping[str, Row]) -> dict[str, Row]:
        """`rows` after the delta. Faster ways are tested against this one."""
        result = dict(rows)
        for key, row in self.after.items():
            if row is None:
                result.pop(key, None)
            else:
                result[key] = row
        return result


def _differing(old: Row, new: Row) -> Iterator[str]:
    """The columns that were added or removed, or that have another value."""
    for column in sorted({**old, **new}):
        if column not in old or column not in new or not same_json(old[column], new[column]):
            yield column
