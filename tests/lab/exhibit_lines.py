"""The lines of an exhibit, found by the names in them."""


def line(exhibit, *names, kind=None):
    """The numbers of the first row that has these names, by group and name of their column."""
    for row in exhibit.rows:
        if set(names) <= {cell.text for cell in row.cells} and kind in (None, row.kind):
            heads = [f"{column.group}: {column.name}".removeprefix(": ") for column in exhibit.columns]
            return {head: cell.text for head, cell in zip(heads, row.cells, strict=True)}
    raise AssertionError(f"{names} is not in {exhibit.title}")
