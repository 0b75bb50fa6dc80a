"""A diary in a SQLite file, beside the one of the memory."""

from collections.abc import Callable, Iterable
from os import PathLike, fspath

from shelflife.client.diary import KEPT_HOURS, Noted
from shelflife.client.stores import StoreError
from shelflife.sqlite_files import Kind, SqliteFile

__all__ = ["SqliteDiary"]

_SCHEMA = """
create table counts (
    hour integer, root text, what text, count integer not null, primary key (hour, root, what)
) without rowid
"""
_KIND = Kind("diary", StoreError, 0x5348_4C44, 1, _SCHEMA, begins_anew=True)
_ADD = "insert into counts values (?, ?, ?, ?) on conflict do update set count = count + excluded.count"
_IS_BEGUN = "select 1 from counts where hour = ?"
_OLDER = (
    "delete from counts where hour < (select distinct hour from counts order by hour desc limit 1 offset ?)"
)


class SqliteDiary:
    """In a file of its own: each write to the memory's own file has all other processes look at it anew."""

    def __init__(self, memory: str | PathLike[str], *, read_only: bool = False) -> None:
        self._is_read_only = read_only
        path = f"{fspath(memory)}-diary"
        self._file = SqliteFile(path, _KIND, busy_timeout_s=0.1, durable=False, read_only=read_only)
        self.path = self._file.path

    def add(self, noted: Iterable[Noted]) -> None:
        """Add to what is there. Whoever only looks adds nothing.

        The file stays open: its journal would come and go with each time, and whoever looks whether the memory's own is still there looks at
        whether anything in the folder has come or gone.
        """
        if self._is_read_only:
            return
        with self._file.writing() as connection:
            added = list(noted)
            begins = any(
                connection.execute(_IS_BEGUN, (hour,)).fetchone() is None
                for hour in {one.hour for one in added}
            )
            connection.executemany(_ADD, added)
            if begins:
                connection.execute(_OLDER, (KEPT_HOURS - 1,))

    def close(self) -> None:
        """Let go of the file, until something is added."""
        self._file.close()

    def at_the_end(self, write: Callable[[], bool]) -> None:
        write()

    def read(self, since: int = 0) -> list[Noted]:
        """All that is there from this hour on, the oldest first; nothing where no diary was begun."""
        if not self.path.exists():
            return []
        try:
            with self._file.snapshot() as connection:
                rows = connection.execute(
                    "select hour, root, what, count from counts where hour >= ? order by hour", (since,)
                ).fetchall()
        finally:
            self._file.close()
        return [Noted(*row) for row in rows]
