"""Schemas of our own in a real PostgreSQL: made once, known by their signs, and used across losses, silence and forks."""

import os
import signal
import socket
import threading
import time
from contextlib import ExitStack, closing, suppress

import psycopg
import pytest
from msgspec.structs import replace

from shelflife.errors import ShelflifeError
from shelflife.postgres_databases import Database
from shelflife.sqlite_files import Kind
from tests.engines import engine
from tests.processes import wait_until
from tests.proxies import Proxy
from tests.threads import at_once


class NotesError(ShelflifeError):
    """The notes cannot be used."""


NOTES = Kind("notes", NotesError, 7, 2, "create table notes (text text primary key)")


@pytest.fixture
def database(postgres_url):
    with closing(Database(postgres_url, NOTES)) as one:
        yield one


def note(database, text):
    with database.writing() as connection:
        connection.execute("insert into notes values (?)", (text,))


def noted(database):
    with database.snapshot() as connection:
        return sorted(text for (text,) in connection.execute("select text from notes"))


def test_several_that_open_a_schema_at_the_same_time_make_it_once(postgres_url):
    several = [Database(postgres_url, NOTES) for _ in range(4)]
    threads = [threading.Thread(target=note, args=[one, str(number)]) for number, one in enumerate(several)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [noted(one) for one in several] == [["0", "1", "2", "3"]] * 4
    for one in several:
        one.close()


def test_what_fails_in_the_middle_leaves_nothing_and_the_next_goes_on(database):
    with pytest.raises(NotesError, match="cannot be written: invalid literal for int"):
        note_and(database, "lost", lambda _: int("none"))
    with pytest.raises(NotesError, match="cannot be written: duplicate key"):
        note_and(
            database, "twice", lambda connection: connection.execute("insert into notes values ('twice')")
        )
    note(database, "kept")
    assert noted(database) == ["kept"]


def note_and(database, text, then):
    with database.writing() as connection:
        connection.execute("insert into notes values (?)", (text,))
        then(connection)


def test_schemas_of_one_database_know_nothing_of_each_other(postgres):
    with (
        closing(Database(f"{postgres.url}&schema=one_of_two", NOTES)) as one,
        closing(Database(postgres.url, NOTES, schema="other_of_two")) as other,
    ):
        note(one, "a")
        assert (noted(one), noted(other)) == (["a"], [])


def test_a_schema_of_a_newer_format_or_of_another_kind_is_refused(postgres_url, database):
    note(database, "a")
    for kind, sentence in (
        (
            replace(NOTES, format=1),
            r"the notes postgresql://.*/postgres\?schema=.* has format 2; this version of",
        ),
        (replace(NOTES, application_id=8), r"is in use, but not as a notes"),
    ):
        with pytest.raises(NotesError, match=sentence):
            Database(postgres_url, kind).open()
    anew = Database(postgres_url, replace(NOTES, format=3, begins_anew=True))
    assert noted(anew) == []
    anew.close()


def test_a_schema_that_somebody_else_uses_is_left_alone(postgres, postgres_url):
    schema = postgres_url.rpartition("=")[2]
    with psycopg.connect(postgres.url) as connection:
        connection.execute(f"create schema {schema}; create table {schema}.theirs ()")
    with pytest.raises(NotesError, match="is in use, but not as a notes"):
        Database(postgres_url, NOTES).open()


def test_where_a_schema_is_there_already_nobody_needs_the_right_to_make_one(postgres):
    with psycopg.connect(postgres.url) as connection:
        connection.execute("create role clerk login")
        connection.execute("create schema made_before authorization clerk")
    clerks = postgres.url.replace("postgres@", "clerk@")
    with closing(Database(clerks, NOTES, schema="made_before")) as database:
        note(database, "a")
        assert noted(database) == ["a"]
    with pytest.raises(NotesError, match="cannot be opened: permission denied for database postgres"):
        Database(clerks, NOTES, schema="made_never").open()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("postgresql://ada:secret@[::1/x", "the address of the notes cannot be read; give one as in"),
        ("postgresql://ada:secret@h/x?secret=secret", "the address of the notes cannot be read"),
        ("postgresql://ada:secret@h/x?schema=A-b", "a schema is called by at most 48 of a-z, 0-9 and _"),
        (
            "postgresql://ada:secret@127.0.0.1:1/x",
            r"postgresql://127.0.0.1:1/x\?schema=shelflife cannot be opened",
        ),
        ("postgresql://ada:secret@/x?host=/nowhere", "cannot be opened: .*No such file"),
    ],
)
def test_what_cannot_be_reached_is_one_sentence_without_the_password(url, sentence):
    with pytest.raises(NotesError, match=sentence) as refusal:
        Database(url, NOTES).open()
    assert "secret" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_connection_that_was_ended_while_it_was_idle_is_replaced(postgres, database):
    note(database, "a")
    with psycopg.connect(postgres.url, autocommit=True) as other:
        other.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'shelflife'"
        )
    assert noted(database) == ["a"]


def test_a_database_that_is_killed_is_used_again_once_it_is_back():
    with engine("postgres") as own, closing(Database(own.url, NOTES)) as database:
        note(database, "a")
        own.kill()
        with pytest.raises(NotesError, match="cannot be read"):
            noted(database)
        own.start()
        assert noted(database) == ["a"]


def test_a_database_that_falls_silent_is_noticed_in_time_and_holds_up_nobody_else(postgres, postgres_url):
    """As when a network drops what is sent. Whoever was in the middle of writing lets go of it soon."""
    with (
        Proxy(postgres.url) as proxy,
        closing(Database(proxy.postgres_url_of(postgres_url), NOTES, longest_silence_s=0.5)) as far,
        closing(Database(postgres_url, NOTES, longest_silence_s=1.0)) as near,
    ):
        note(far, "a")

        def fall_silent(connection):
            proxy.is_silent = True
            connection.execute("select 1")

        begun_at = time.monotonic()
        with pytest.raises(NotesError, match=r"it has not answered for 0\.5 s"):
            note_and(far, "b", fall_silent)
        assert time.monotonic() - begun_at < 20  # not for as long as a statement may take
        note(near, "b")
        proxy.is_silent = False

        def is_heard_again():
            with suppress(NotesError):  # on a busy machine half a second is soon over
                return noted(far) == ["a", "b"]

        wait_until(is_heard_again)


def test_several_hosts_that_are_silent_are_waited_for_no_longer_than_one(postgres, postgres_url):
    with (
        Proxy(postgres.url) as proxy,
        socket.create_server(("127.0.0.1", 0)) as silent,  # whoever connects hears nothing
    ):
        port, schema = silent.getsockname()[1], postgres_url.rpartition("=")[2]
        begun_at = time.monotonic()
        with pytest.raises(NotesError, match="cannot be opened: connection timeout expired"):
            Database(f"postgresql://u@{','.join([f'127.0.0.1:{port}'] * 9)}/x", NOTES).open()
        assert time.monotonic() - begun_at < 9  # 27 with three seconds for each
        hosts = f"127.0.0.1:{port},127.0.0.1:{proxy.port}"
        url = f"postgresql://postgres@{hosts}/postgres?sslmode=disable&schema={schema}"
        with closing(Database(url, NOTES)) as database:
            note(database, "a")
            assert noted(database) == ["a"]


def test_what_is_being_opened_when_a_database_is_closed_is_let_go_of_too(postgres, postgres_url):
    with (
        Proxy(postgres.url) as proxy,
        closing(Database(proxy.postgres_url_of(postgres_url), NOTES)) as database,
    ):
        proxy.delay_s = 0.2
        noting = threading.Thread(target=note, args=[database, "a"])
        noting.start()
        wait_until(lambda: proxy.carried_count)
        database.close()
        noting.join()
        assert database._opened == set()
        assert noted(database) == ["a"]


def test_whoever_waits_is_told_at_once_and_again_after_a_loss(postgres, database, postgres_url):
    with closing(Database(postgres_url, NOTES)) as other:
        other.wait(0)  # the first time something may have been told before
        for _ in range(2):
            threading.Timer(0.05, lambda: tell(database)).start()
            begun_at = time.monotonic()
            other.wait(60)
            assert time.monotonic() - begun_at < 30
        with psycopg.connect(postgres.url, autocommit=True) as killer:
            killer.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'shelflife'"
            )
        with pytest.raises(NotesError, match="cannot be read"):
            other.wait(60)
        other.wait(60)  # it was opened anew


def tell(database):
    with database.writing() as connection:
        database.tell_all(connection)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_process_has_connections_of_its_own(database):
    note(database, "of the parent")
    database.wait(0)
    for number in range(3):
        child = os.fork()
        if child == 0:
            signal.alarm(120)
            note(database, f"of child {number}")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        note(database, f"of the parent {number}")
    assert len(noted(database)) == 7


def test_what_is_in_use_when_a_database_is_closed_is_carried_out_and_then_let_go_of(database):
    note_and(database, "a", lambda _: database.close())
    assert database._opened == set()
    assert noted(database) == ["a"]
    assert len(database._opened) == 1


def test_a_statement_that_fails_costs_no_connection(postgres, database, postgres_url):
    note(database, "one")
    for _ in range(8):
        with pytest.raises(NotesError, match="does not exist"):
            database.once("select * from nothing")
    with pytest.raises(NotesError, match="cannot be read"):
        database.listening("x" * 100 + '"')
    assert noted(database) == ["one"]
    assert len(database._opened) == 1


def test_that_others_wait_for_each_other_does_not_mean_that_the_database_is_away(database):
    note(database, "one")
    with closing(psycopg.connect(**database._settings)) as rival, closing(rival.cursor()) as cursor:
        cursor.execute(f'lock table "{database.schema}".notes in exclusive mode')
        with pytest.raises(NotesError, match="lock timeout") as locked:
            note(database, "two")
    with pytest.raises(NotesError, match="statement timeout") as slow, database.writing() as connection:
        connection.execute("set local statement_timeout = 10; select pg_sleep(10)")
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(database.snapshot())
        with pytest.raises(NotesError, match="all 4 connections have been in use for too long") as busy:
            database.once("select 1", until=time.monotonic() + 0.01)
    with pytest.raises(NotesError, match="terminating connection") as ended, database.writing() as connection:
        connection.execute("select pg_terminate_backend(pg_backend_pid())")
    assert [one.value.is_away for one in (locked, slow, busy, ended)] == [False, False, False, True]


def test_one_whose_transactions_are_isolated_more_than_is_needed_is_as_good_as_any(postgres_url):
    """As a role may have it by default."""
    url = f"{postgres_url}&options=-cdefault_transaction_isolation%3Dserializable"
    several = [Database(url, NOTES) for _ in range(4)]
    count_one = f'update "{several[0].schema}".notes set text = (text::int + 1)::text returning text'
    opening, counting = iter(several), iter(several)

    def count():
        database = next(counting)
        for _ in range(20):
            database.once(count_one)
            with database.noting() as connection:
                connection.execute("update notes set text = (text::int + 1)::text")

    with ExitStack() as stack:
        for one in several:
            stack.enter_context(closing(one))
        assert at_once(lambda: next(opening).open(), 4) == []
        note(several[0], "0")
        assert at_once(count, 4) == []
        assert noted(several[0]) == [str(4 * 20 * 2)]
        with pytest.raises(NotesError, match="division by zero"):
            several[0].once("select 1 / 0")
        assert several[0].once("select 'as before'") == [(b"as before",)]
