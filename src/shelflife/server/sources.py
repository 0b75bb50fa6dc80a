"""Tables from files and databases. Each function gives a source that can be read again."""

import csv
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from shelflife.contract.names import shown
from shelflife.contract.values import members_once
from shelflife.server.declaring import TableSource
from shelflife.server.delta import Row
from shelflife.server.errors import BadSetting, SourceError
from shelflife.server.tables import key_of

__all__ = ["csv_file", "json_file", "sql_query", "toml_file"]


def json_file(path: str | Path, *, section: str | None = None, key: str | None = None) -> TableSource:
    """A table in a JSON file: an object from key to row, or a list of rows with their key in the column `key`.

    `section` names the member that holds the table, where a file holds several.
    """
    parse = partial(json.loads, object_pairs_hook=members_once)
    return lambda: _table_in(_parsed(path, parse, "JSON"), f"{path}", section, key)


def toml_file(path: str | Path, *, section: str | None = None, key: str | None = None) -> TableSource:
    """A table in a TOML file: one TOML table a row, or an array of tables with their key in the column `key`.

    `section` names the table that holds them, where a file holds several.
    """
    return lambda: _table_in(_parsed(path, tomllib.loads, "TOML"), f"{path}", section, key)


def _parsed(path: str | Path, parse: Callable[[str], Any], language: str) -> Any:
    try:
        return parse(Path(path).read_text("utf-8"))
    except RecursionError:
        raise SourceError(f"{path} is nested too deeply") from None
    except (OSError, ValueError) as error:
        raise SourceError(f"{path} cannot be read as {language}: {error}") from error


def csv_file(path: str | Path, *, key: str) -> TableSource:
    """A table in a CSV file with a header line; `key` is the column that holds the keys. All values are
    text."""

    def read() -> Mapping[str, Row]:
        try:
            with Path(path).open(newline="", encoding="utf-8-sig") as file:
                columns, *lines = [*csv.reader(file, strict=True)] or [[]]
        except (OSError, ValueError, csv.Error) as error:
            raise SourceError(f"{path} cannot be read as CSV: {error}") from error
        if key not in columns:
            raise SourceError(f"{path} has no column {key}")
        return _keyed(_named(columns, filter(None, lines), f"{path}"), key, f"{path}")

    return read


def sql_query(database: Any, query: Any, *, key: str) -> TableSource:
    """A table that a query gives; `key` is the column that holds the keys.

    `database` is a SQLAlchemy engine, or a function that opens a DB-API connection. Each reading has a connection of
    its own, because it may be in any thread. The query is a text, or for SQLAlchemy a select, whose values have the
    types of their columns. An async engine must be one that nothing else uses, because it is read in an event loop of
    its own.
    """
    if hasattr(database, "close") or not (hasattr(database, "connect") or callable(database)):
        raise BadSetting("sql_query takes an engine, or a function that opens a connection for each reading")

    def table_of(columns: Iterable[str], records: Iterable[Any]) -> Mapping[str, Row]:
        return _keyed(_named([*columns], records, "the query"), key, "the query")

    def asked(connection: Any) -> Mapping[str, Row]:
        result = connection.exec_driver_sql(query) if isinstance(query, str) else connection.execute(query)
        return table_of(result.keys(), result)

    def read() -> Mapping[str, Row]:
        if hasattr(database, "connect"):
            with database.connect() as connection:
                return asked(connection)
        with closing(database()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(query)
            return table_of((column[0] for column in cursor.description), cursor.fetchall())

    async def read_async() -> Mapping[str, Row]:
        try:
            async with database.connect() as connection:
                rows: Mapping[str, Row] = await connection.run_sync(asked)
                return rows
        finally:
            await database.dispose()  # its connections belong to an event loop that ends here

    return read_async if hasattr(database, "sync_engine") else read


def _table_in(content: Any, place: str, section: str | None, key: str | None) -> Mapping[str, Row]:
    if section is not None:
        if not isinstance(content, Mapping) or section not in content:
            raise SourceError(f"{place} has no section {section}")
        content, place = content[section], f"{place}, section {section},"
    if key is not None:
        if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
            raise SourceError(f"{place} is not a list of rows")
        return _keyed(content, key, place)
    if not isinstance(content, Mapping):
        raise SourceError(f"{place} is not an object from key to row; say which column is the key")
    return content


def _named(columns: list[str], records: Iterable[Sequence[Any]], place: str) -> Iterator[Row]:
    """Rows from records, which have their values in the order of the columns."""
    if len(set(columns)) != len(columns):
        raise SourceError(f"{place} has two columns of the same name")
    for number, record in enumerate(records, start=2):
        if len(record) != len(columns):
            raise SourceError(f"{place} has more or fewer values than columns in row {number}")
        yield dict(zip(columns, record, strict=True))


def _keyed(rows: Iterable[Row], key: str, place: str) -> dict[str, Row]:
    """Rows by the value of their key column, which is left out of the row."""
    keyed: dict[str, Row] = {}
    for row in rows:
        if key not in row:
            raise SourceError(f"{place} has a row without the key column {key}")
        row_key = key_of(row[key])
        if row_key is None:
            raise SourceError(f"{place} has the key {shown(row[key])}; a key is a string or a whole number")
        if row_key in keyed:
            raise SourceError(f"{place} has the key {shown(row_key)} twice")
        keyed[row_key] = {column: value for column, value in row.items() if column != key}
    return keyed
