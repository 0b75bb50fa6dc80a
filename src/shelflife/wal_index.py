"""Whether anybody has written to a SQLite file, by the head of the index to its journal, which all processes share.

SQLite itself finds out so at the start of each transaction: it compares the head that it has seen with the one that is there. Whoever asks
it to do that has it take two locks, which costs as much as all else that a recall does. So the same bytes are read, through the file that
SQLite has open. None is opened for it: to close a file that SQLite has locked would give up its locks.
"""

import os
import sys
from contextlib import suppress

__all__ = ["Head", "head_of", "is_next", "is_out_of_reach"]

_OPEN_FILES = "/proc/self/fd"
_HEAD_SIZE = 96
"""The head is there twice, so that one that is half written is told from a whole one."""

_COUNT = slice(8, 12)
"""Where the number of transactions stands in it."""


class Head:
    """The head of an index, for as long as the connection is open through which SQLite has it. After that it is nothing, or like no other."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self) -> bytes:
        """As it is now; empty where that cannot be told. It is another one after each transaction that has written."""
        try:
            head = os.pread(self._descriptor, _HEAD_SIZE, 0)
        except OSError:
            return b""
        return head if len(head) == _HEAD_SIZE else b""

    def is_still(self, before: bytes) -> bool:
        """Whether it is as it was read before, if that could be told. It never comes back to what it was."""
        try:
            return before != b"" and os.pread(self._descriptor, _HEAD_SIZE, 0) == before
        except OSError:
            return False


def head_of(file: str) -> Head | None:
    """The head of the index of a file, spelled without links, that this process has open and has read from; None where that cannot be told.

    Another copy of SQLite may have it open in this process too, and let go of it at any time: then neither is read.
    """
    found = _open_at(f"{file}-shm")
    return Head(found[0]) if found is not None and len(found) == 1 else None


def is_out_of_reach(index: str) -> bool:
    """Whether there is an index that this process has not open, though it has just read from the file of it: another one, that was deleted.

    All connections of a process to a file share one index, until the last of them is closed.
    """
    return os.path.exists(index) and _open_at(index) == []  # noqa: PTH110


def _open_at(name: str) -> list[int] | None:
    """By which numbers this process has a file open; None where that cannot be told. One that was deleted has its name no longer."""
    found = []
    try:
        for number in os.listdir(_OPEN_FILES):  # noqa: PTH208 - paths are not imported here
            with suppress(OSError):  # it has just been closed
                if os.readlink(f"{_OPEN_FILES}/{number}") == name:  # noqa: PTH115
                    found.append(int(number))
    except OSError:
        return None
    return found


def is_next(head: bytes, before: bytes) -> bool:
    """Whether just one transaction has been written between two heads."""
    if not before or not head:
        return False
    return int.from_bytes(before[_COUNT], sys.byteorder) + 1 == int.from_bytes(head[_COUNT], sys.byteorder)
