"""Whether anybody has written to a SQLite file, by the head of the index to its journal, which all processes share.

SQLite itself finds out so at the start of each transaction: it compares the head that it has seen with the one that is there. Whoever asks
it to do that has it take two locks, which costs as much as all else that a recall does. So the same bytes are read where SQLite has them in
the memory of this process. Nothing is opened for it: to close a file that SQLite has locked would give up its locks.
"""

import os
import sys
from contextlib import suppress
from typing import Protocol

__all__ = ["Head", "head_of", "is_next"]

_MAPS = "/proc/self/maps"
_HEAD_SIZE = 96
"""The head is there twice, so that one that is half written is told from a whole one."""

_COUNT = slice(8, 12)
"""Where the number of transactions stands in it."""


class Head(Protocol):
    """The head of an index. It can be read for as long as the connection is open through which SQLite has it."""

    @property
    def raw(self) -> bytes:
        """As it is now. It is another one after each transaction that has written."""


def head_of(file: str) -> Head | None:
    """The head of the index of a file, spelled without links, that this process has open and has read from; None where that cannot be told.

    Another copy of SQLite may have it open in this process too, and let go of it at any time: then neither is read.
    """
    index = os.fsencode(f"{file}-shm")
    with suppress(OSError, ValueError, ImportError), open(_MAPS, "rb") as maps:  # noqa: PTH123 - not imported here
        mapped = [line.rstrip(b"\n").split(None, 5) for line in maps]
        starts = [
            one[0].partition(b"-")[0] for one in mapped if one[2].strip(b"0") == b"" and one[5:] == [index]
        ]
        if len(starts) == 1:
            import ctypes  # a few milliseconds, which only those pay who have a file

            return (ctypes.c_char * _HEAD_SIZE).from_address(int(starts[0], 16))
    return None


def is_next(head: bytes, before: bytes) -> bool:
    """Whether just one transaction has been written between two heads."""
    counts = [int.from_bytes(one[_COUNT], sys.byteorder) for one in (before, head)]
    return len(before) == _HEAD_SIZE and counts[0] + 1 == counts[1]
