"""Tables and emphasis for people at a terminal."""

import os
import sys
from collections.abc import Sequence

__all__ = ["bold", "counted", "print_table"]


def bold(text: str) -> str:
    """Emphasised where that can be seen."""
    is_colored = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return f"\x1b[1m{text}\x1b[0m" if is_colored else text


def counted(count: int, what: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, indent: str = "") -> None:
    """Columns as wide as they must be, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(f"{indent}{line}".rstrip())
