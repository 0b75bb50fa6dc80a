"""Tables and emphasis for people at a terminal."""

import os
import sys
from collections.abc import Container, Iterator, Sequence

__all__ = ["bold", "counted", "print_table", "printable", "table_lines"]


def bold(text: str) -> str:
    """Emphasised where that can be seen."""
    is_colored = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return f"\x1b[1m{text}\x1b[0m" if is_colored else text


def counted(count: int, what: str, several: str = "") -> str:
    """`1 run`, `2 runs`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {several or what + 's'}"


def printable(text: str) -> str:
    """A text that came from a server, so that it cannot give orders to the terminal or reorder what is on it."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, indent: str = "") -> None:
    """Columns as wide as they must be, two spaces apart."""
    for line in table_lines(heads, rows):
        print(f"{indent}{line}".rstrip())


def table_lines(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: Container[int] = ()
) -> Iterator[str]:
    """The lines of such a table. `right` are the columns of numbers."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        cells = enumerate(zip(row, widths, strict=True))
        yield "  ".join(
            cell.rjust(width) if at in right else cell.ljust(width) for at, (cell, width) in cells
        )
