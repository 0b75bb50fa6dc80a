"""Tables from files and databases."""

import asyncio
import datetime
import decimal
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import sqlalchemy
import sqlalchemy.orm

from shelflife.server import (
    BadSetting,
    Provider,
    Registry,
    SourceError,
    csv_file,
    json_file,
    sql_query,
    toml_file,
)


@pytest.fixture
def write(tmp_path):
    def write(text, name="table"):
        path = tmp_path / name
        path.write_text(text, "utf-8")
        return path

    return write


EXPECTED = {"basic": {"code": "P1", "limit": 5}, "pro": {"code": "P2", "limit": 9}}


def test_a_json_object_from_key_to_row(write):
    path = write('{"basic": {"code": "P1", "limit": 5}, "pro": {"code": "P2", "limit": 9}}')
    assert json_file(path)() == EXPECTED


def test_a_json_list_of_rows_with_a_key_column(write):
    path = write(
        '{"plans": [{"id": "basic", "code": "P1", "limit": 5}, {"id": "pro", "code": "P2", "limit": 9}]}'
    )
    assert json_file(path, section="plans", key="id")() == EXPECTED


def test_a_toml_table_a_row(write):
    path = write('[plans.basic]\ncode = "P1"\nlimit = 5\n[plans.pro]\ncode = "P2"\nlimit = 9\n')
    assert toml_file(path, section="plans")() == EXPECTED


def test_toml_dates_become_text(write):
    path = write("[basic]\nsince = 2026-01-31\n")
    rows = Registry({"plans": toml_file(path)()}).state.tables["plans"].rows
    assert rows["basic"] == {"since": "2026-01-31"}


def test_a_csv_file_with_a_byte_order_mark_and_quoted_commas_and_empty_lines(write):
    path = write('\ufeffid,code,note\n\nbasic,P1,"a, b"\n\npro,P2,\n\n')
    assert csv_file(path, key="id")() == {
        "basic": {"code": "P1", "note": "a, b"},
        "pro": {"code": "P2", "note": ""},
    }


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "plans.db"
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("create table plans (id text, code text, amount numeric)")
        connection.executemany("insert into plans values (?, ?, ?)", [("basic", "P1", 5), ("pro", "P2", 9)])
    connection.close()
    return path


QUERY = "select id, code, amount as \"limit\" from plans where code like 'P%'"


def test_a_query_is_read_again_in_another_thread_and_sees_what_was_written_meanwhile(database):
    provider = Provider({"plans": sql_query(lambda: sqlite3.connect(database), QUERY, key="id")})
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("update plans set amount = 6 where id = 'basic'")
    with ThreadPoolExecutor(1) as elsewhere:
        assert elsewhere.submit(provider.refresh, "plans").result().changed == ("basic",)


def test_what_is_open_already_or_opens_nothing_is_refused_in_one_sentence(database):
    engine = sqlalchemy.create_engine(f"sqlite:///{database}")
    with closing(sqlite3.connect(database)) as connection, engine.connect() as of_engine:
        for given in (connection, of_engine, sqlalchemy.orm.Session(of_engine), "shop.db", None):
            with pytest.raises(BadSetting, match="takes an engine, or a function that opens a connection"):
                sql_query(given, QUERY, key="id")
    engine.dispose()


def test_a_query_through_a_function_that_opens_a_connection_which_is_closed_again(database):
    opened = []

    def connect():
        opened.append(sqlite3.connect(database))
        return opened[-1]

    assert sql_query(connect, QUERY, key="id")() == EXPECTED
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("select 1")


def test_a_query_through_sqlalchemy(database):
    engine = sqlalchemy.create_engine(f"sqlite:///{database}")
    assert sql_query(engine, QUERY, key="id")() == EXPECTED
    engine.dispose()


def test_whole_numbers_are_keys_too(database):
    source = sql_query(lambda: sqlite3.connect(database), "select 7 as id, 1.5 as x", key="id")
    assert list(source()) == ["7"]


@pytest.mark.parametrize(
    ("read", "text", "sentence"),
    [
        (json_file, "{", "cannot be read as JSON"),
        (json_file, '{"a": {}, "a": {}}', "two members of the same name: 'a'"),
        (json_file, "[]", "is not an object from key to row"),
        (json_file, "[" * 100_000, "is nested too deeply"),
        (lambda path: json_file(path, section="x"), "{}", "has no section x"),
        (lambda path: json_file(path, key="id"), "{}", "is not a list of rows"),
        (lambda path: json_file(path, key="id"), "[{}]", "has a row without the key column id"),
        (lambda path: json_file(path, key="id"), '[{"id": null}]', "has the key None"),
        (lambda path: json_file(path, key="id"), '[{"id": 1}, {"id": "1"}]', "has the key '1' twice"),
        (toml_file, "a = ", "cannot be read as TOML"),
        (toml_file, "a = " + "[" * 100_000, "is nested too deeply"),
        (lambda path: csv_file(path, key="id"), "", "has no column id"),
        (lambda path: csv_file(path, key="id"), "code\nP1\n", "has no column id"),
        (lambda path: csv_file(path, key="id"), "id,a,a\n1,2,3\n", "has two columns of the same name"),
        (
            lambda path: csv_file(path, key="id"),
            "id,a\n1,2,3\n",
            "more or fewer values than columns in row 2",
        ),
        (lambda path: csv_file(path, key="id"), "id,a\n1\n", "more or fewer values than columns in row 2"),
        (lambda path: csv_file(path, key="id"), 'id,a\n1,"2\n', "cannot be read as CSV"),
        (lambda path: csv_file(path, key="id"), "id,a\nx,1\nx,2\n", "has the key 'x' twice"),
        (lambda path: csv_file(path, key="id"), "id,a\n,1\n", "has the key ''"),
    ],
)
def test_a_file_that_gives_no_table_is_refused_in_one_sentence(write, read, text, sentence):
    with pytest.raises(SourceError, match=sentence):
        read(write(text))()


def test_a_file_that_is_not_there_is_refused(tmp_path):
    for source in (
        json_file(tmp_path / "no"),
        toml_file(tmp_path / "no"),
        csv_file(tmp_path / "no", key="id"),
    ):
        with pytest.raises(SourceError, match="cannot be read"):
            source()


def test_a_file_that_is_not_utf_8_is_refused(tmp_path):
    path = tmp_path / "latin"
    path.write_bytes(b"id\n\xe9\n")
    for source in (json_file(path), toml_file(path), csv_file(path, key="id")):
        with pytest.raises(SourceError, match="cannot be read"):
            source()


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("select nonsense", "the source of table plans failed: OperationalError: no such column: nonsense"),
        ("select 1 as id, 2 as a, 3 as a", "two columns of the same name"),
        ("select 1 as a", "without the key column id"),
        ("select null as id", "has the key None"),
    ],
)
def test_a_query_that_gives_no_table_is_refused(database, query, sentence):
    with pytest.raises(SourceError, match=sentence):
        Provider({"plans": sql_query(lambda: sqlite3.connect(database), query, key="id")})


METADATA = sqlalchemy.MetaData()
OFFERS = sqlalchemy.Table(
    "offers",
    METADATA,
    sqlalchemy.Column("id", sqlalchemy.String, primary_key=True),
    sqlalchemy.Column("is_open", sqlalchemy.Boolean),
    sqlalchemy.Column("since", sqlalchemy.Date),
    sqlalchemy.Column("at", sqlalchemy.DateTime),
    sqlalchemy.Column("terms", sqlalchemy.JSON),
    sqlalchemy.Column("price", sqlalchemy.Numeric(10, 2)),
)
OFFER = {
    "is_open": True,
    "since": datetime.date(2026, 1, 31),
    "at": datetime.datetime(2026, 1, 31, 12, 30),
    "terms": {"codes": ["A", "B"], "depth": {"x": None}},
    "price": decimal.Decimal("12.50"),
}
AS_JSON = {**OFFER, "since": "2026-01-31", "at": "2026-01-31T12:30:00", "price": "12.50"}


def rows_of(source):
    return Provider({"offers": source}).registry.rows("offers")


@pytest.fixture
def offers(tmp_path):
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'offers.db'}")
    METADATA.create_all(engine)
    with engine.begin() as connection:
        connection.execute(OFFERS.insert().values(id="x", **OFFER))
    yield engine
    engine.dispose()


@pytest.mark.parametrize("query", [sqlalchemy.select(OFFERS), OFFERS.select().where(OFFERS.c.is_open)])
def test_a_select_gives_values_of_the_types_of_its_columns(offers, query):
    assert rows_of(sql_query(offers, query, key="id")) == {"x": AS_JSON}


def test_a_text_of_sqlalchemy_is_a_query_too(offers):
    query = sqlalchemy.text("select id, is_open from offers")
    assert rows_of(sql_query(offers, query, key="id")) == {"x": {"is_open": 1}}


def test_an_async_engine_is_read_again_and_again(offers):
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(offers.url.set(drivername="sqlite+aiosqlite"))
    source = sql_query(engine, sqlalchemy.select(OFFERS), key="id")
    provider = Provider({"offers": source})
    assert provider.registry.rows("offers") == {"x": AS_JSON}
    with offers.begin() as connection:
        connection.execute(OFFERS.update().values(is_open=False))
    assert provider.refresh("offers").changed == ("x",)

    async def inside():
        return provider.refresh("offers").changed

    assert asyncio.run(inside()) == ()
    with pytest.raises(SourceError, match="the source of table offers failed: OperationalError: "):
        Provider({"offers": sql_query(engine, "select nonsense", key="id")})
