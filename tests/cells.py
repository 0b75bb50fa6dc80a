"""What it means for cells to change, judged by the rows themselves and by nothing of the code under test."""

from collections.abc import Mapping

from shelflife.contract import same_json
from shelflife.contract.cells import Cells
from shelflife.server.delta import Row
from shelflife.server.disclosure import Aliases

Rows = Mapping[str, Row]


def have_changed(cells: Mapping[str, object], before: Mapping[str, Rows], after: Mapping[str, Rows]) -> bool:
    """Whether anything that is in `cells`, as it goes on the wire, differs between two contents of the tables."""
    return any(_has_table_changed(read, before[table], after[table]) for table, read in cells.items())


def _has_table_changed(read: object, before: Rows, after: Rows) -> bool:
    if read is None:
        return not same_json(dict(before), dict(after))
    assert isinstance(read, Mapping)
    return any(
        set(before) != set(after) if key == "" else _has_row_changed(columns, before.get(key), after.get(key))
        for key, columns in read.items()
    )


def _has_row_changed(columns: list[str] | None, before: Row | None, after: Row | None) -> bool:
    if before is None or after is None:
        return before is not after
    if columns is None:
        return not same_json(before, after)
    seen = [{column: row[column] for column in columns if column in row} for row in (before, after)]
    return not same_json(*seen)


def in_aliases(aliases: Aliases, cells: Cells) -> Cells:
    """The same cells as the client is to be shown them, or says them, who has these aliases."""
    return {
        aliases.table(table): None
        if rows is None
        else {
            key and aliases.key(table, key): None
            if columns is None
            else tuple(sorted(aliases.column(table, column) for column in columns))
            for key, columns in rows.items()
        }
        for table, rows in cells.items()
    }
