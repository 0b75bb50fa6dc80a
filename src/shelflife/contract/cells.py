"""Cells: the smallest things that a fix can rest on, one column of one row each."""

from collections.abc import Collection, Iterable, Mapping

from shelflife.contract.names import split_node_id

__all__ = ["ALL_KEYS", "Cells", "Columns", "cells_of_rows", "rows_of_cells", "size_of", "united"]

ALL_KEYS = ""
"""Stands among the keys of a table for the set of them; no row has this key."""

Columns = tuple[str, ...] | None
"""What was read of a row: these columns, sorted; with none at all whether it is there; None for all of it."""

Cells = dict[str, dict[str, Columns] | None]
"""What was read, by table and key; None for a whole table."""


def rows_of_cells(cells: Mapping[str, Mapping[str, Columns] | None]) -> tuple[str, ...]:
    """The rows that cells are of, as `table:key`; a bare table where it was read whole, or walked over."""
    rows: list[str] = []
    for table, read in cells.items():
        is_walk = read is None or ALL_KEYS in read
        rows += [table] if is_walk else (f"{table}:{key}" for key in read or ())
    return tuple(rows)


def cells_of_rows(rows: Iterable[str]) -> Cells:
    """What rests on these rows, of which nobody has said which columns were read: all of them."""
    return united({table: None if key is None else {key: None}} for table, key in map(split_node_id, rows))


def united(every: Iterable[Mapping[str, Mapping[str, Columns] | None]]) -> Cells:
    """All that was read. A whole table subsumes its rows, and a whole row its columns."""
    whole: Cells = {}
    for cells in every:
        for table, read in cells.items():
            rows = whole.setdefault(table, {})
            if read is None or rows is None:
                whole[table] = None
                continue
            for key, columns in read.items():
                known = rows.get(key, ())
                rows[key] = None if columns is None or known is None else tuple(sorted({*known, *columns}))
    return whole


def size_of(cells: Mapping[str, Mapping[str, Collection[str] | None] | None]) -> int:
    """How many whole tables, rows and columns are named."""
    rows = ({"": None} if read is None else read for read in cells.values())
    return sum(1 + len(columns or ()) for read in rows for columns in read.values())
