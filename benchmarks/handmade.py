"""What an agent builder would write by hand: fixes in a SQLite file with an inverted index from tags to fixes.

It is the yardstick for our store on the machine at hand: it looks up, puts and drops, and does nothing else that a memory does.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["HandmadeIndex"]


class HandmadeIndex:
    """Fixes by key, and keys by tag."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.executescript(
            """
            pragma journal_mode = wal;
            pragma synchronous = normal;
            create table fixes (number integer primary key, key text unique, fix blob);
            create table tags (tag text, number integer, primary key (tag, number)) without rowid;
            create index tags_by_number on tags (number);
            """
        )

    def close(self) -> None:
        self._connection.close()

    def put(self, fixes: Iterable[tuple[str, bytes, Sequence[str]]]) -> None:
        """Keep these fixes, each under its key and with its tags, in one transaction."""
        execute = self._connection.execute
        execute("begin immediate")
        for key, fix, tags in fixes:
            number = execute("insert into fixes (key, fix) values (?, ?)", (key, fix)).lastrowid
            self._connection.executemany("insert into tags values (?, ?)", [(tag, number) for tag in tags])
        execute("commit")

    def recall(self, key: str) -> bytes | None:
        row = self._connection.execute("select fix from fixes where key = ?", (key,)).fetchone()
        return row[0] if row else None

    def evict(self, tag: str) -> int:
        """Drop all that bears the tag; tells how many these were."""
        execute = self._connection.execute
        execute("begin immediate")
        numbers = execute("select number from tags where tag = ?", (tag,)).fetchall()
        self._connection.executemany("delete from fixes where number = ?", numbers)
        self._connection.executemany("delete from tags where number = ?", numbers)
        execute("commit")
        return len(numbers)
