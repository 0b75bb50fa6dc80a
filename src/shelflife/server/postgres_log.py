"""The log in PostgreSQL: for workers on any number of machines."""

from contextlib import AbstractContextManager

import msgspec

from shelflife.postgres_databases import Connection, Database
from shelflife.server.log import Entry
from shelflife.server.sql_log import KIND, SqlLog, is_in

__all__ = ["PostgresLog"]

_KIND = msgspec.structs.replace(
    KIND, schema=KIND.schema.replace("blob", "bytea").replace(" without rowid", "")
)


class PostgresLog(SqlLog):
    """A log in a schema of its own, as in `postgresql://user@host/database?schema=shop`. It is made when it is not there.

    Whoever appends tells all who wait in the same transaction. What is missed all the same is found by those who look.
    """

    now = "extract(epoch from clock_timestamp())"

    def __init__(self, url: str, *, longest_silence_s: float = 3.0, read_only: bool = False) -> None:
        self._database = Database(url, _KIND, longest_silence_s=longest_silence_s, read_only=read_only)
        self.name = self._database.name
        self._database.open()
        super().__init__(self._database)

    def _beginning(self) -> AbstractContextManager[Connection]:
        return self._database.writing(patient=True)  # whoever is first may have large tables to write

    def _appending(self, entry: Entry) -> AbstractContextManager[Connection]:
        return self._database.writing(lambda connection: is_in(connection, entry))

    def _tell_all(self, connection: Connection) -> None:
        self._database.tell_all(connection)

    def wait(self, timeout_s: float) -> None:
        """Waits until somebody has told all."""
        self._database.wait(timeout_s)
