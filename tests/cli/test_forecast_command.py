"""`shelflife forecast`: what a memory or a log says of how things change, for people and for programs."""

import json
import re
import time
from contextlib import closing

import psycopg
import pytest
import redis

from shelflife.cli import main
from shelflife.client import Knowledge, SqliteStore, Write
from shelflife.histories import Histories, Seen
from shelflife.server import Registry, SqliteLog
from shelflife.server.logs import log_at
from tests.client.entries import entry, filed

ROOT = "https://api.example:443"
DAY = 86_400.0
BEGUN = 1_700_000_000.0


def days(count, *, each=DAY, width=60.0, offset=0.0):
    return tuple(
        Seen(BEGUN + offset + n * each - width, BEGUN + offset + n * each) for n in range(1, count + 1)
    )


HISTORIES = Histories(
    BEGUN,
    {
        "prices:old": days(2),
        "prices:odd": tuple(
            Seen(BEGUN + at * DAY - 60, BEGUN + at * DAY) for at in (1, 1.5, 4, 5.1, 8, 8.6, 12.3)
        ),
        "codes:growth": days(14),
    },
)


@pytest.fixture
def memory(tmp_path):
    """The file of a memory that has seen a code rotate each day."""
    path = tmp_path / "memory.db"
    kept = entry(root=ROOT)
    with closing(SqliteStore(path)) as store:
        store.write(
            ROOT, store.known(ROOT).revision, Write(Knowledge(histories=HISTORIES), put=[filed(kept)])
        )
    return path


def told(capsys, *arguments):
    assert main(["forecast", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_of_each_table_and_row_it_says_how_often_by_what_habit_and_when_it_is_due(memory, capsys):
    lines = told(capsys, memory).splitlines()
    assert lines[0].startswith(f"{ROOT}, as of 2023-11-28")
    rows = {line.split("  ")[0]: line for line in lines[3:]}
    assert "about every day" in rows["codes:growth"]
    assert "2023-11-29" in rows["codes:growth"]
    assert "no pattern" in rows["prices:odd"]
    assert "too little seen" in rows["prices:old"]
    assert lines[3].startswith("codes:growth")


def test_what_changes_within_an_hour_is_told_to_the_second_and_what_has_no_pattern_cannot_be_told(
    memory, capsys
):
    quick = Histories(BEGUN, HISTORIES.seen | {"codes:quick": days(14, each=2.0, width=0.1)})
    with closing(SqliteStore(memory)) as store:
        store.write(ROOT, store.known(ROOT).revision, Write(Knowledge(histories=quick)))
    rows = {line.split("  ")[0]: line for line in told(capsys, memory).splitlines()[3:]}
    assert "about every 2 seconds" in rows["codes:quick"]
    assert re.search(r"\d\d:\d\d:\d\d UTC to .* \d\d:\d\d:\d\d UTC$", rows["codes:quick"])
    assert not re.search(r"\d\d:\d\d:\d\d", rows["prices:odd"])
    assert rows["prices:odd"].split("  ")[-1].strip() == "cannot be told"


def test_programs_get_the_same(memory, capsys):
    said = json.loads(told(capsys, memory, "--json"))
    assert said["source"] == "memory"
    first, *others = said["forecasts"]
    assert (first["root"], first["table"], first["row"], first["changes"]) == (ROOT, "codes", "growth", 14)
    assert (first["habit"], first["follows"]) == ("regular", None)
    assert first["usual_gap_s"] == pytest.approx(DAY)
    assert first["due"]["after"] < BEGUN + 15 * DAY < first["due"]["by"] < BEGUN + 16 * DAY
    assert first["due"]["confidence"] == 0.8
    assert [one["due"] for one in others] == [None, None]


def test_only_one_server_of_a_memory_can_be_asked_for(memory, capsys):
    assert json.loads(told(capsys, memory, "--json", "--root", "https://api.example"))["forecasts"]
    assert not json.loads(told(capsys, memory, "--json", "--root", "https://other.example"))["forecasts"]


def test_what_was_seen_of_a_server_is_said_though_all_its_fixes_have_just_gone(memory, capsys):
    with closing(SqliteStore(memory)) as store:
        known = store.known(ROOT)
        store.write(ROOT, known.revision, Write(known.knowledge, drop_ids=[entry(root=ROOT).id]))
        assert list(store.entries()) == []
    assert "about every day" in told(capsys, memory)


def test_a_memory_that_notes_nothing_says_how_it_would(tmp_path, capsys):
    path = tmp_path / "memory.db"
    with closing(SqliteStore(path)) as store:
        store.write(ROOT, 0, Write(Knowledge()))
    assert "Memory(foresight=Forecast())" in told(capsys, path)


def changed_often(opened):
    """A log in which one row has changed often, and another never."""
    with closing(opened):
        registry = Registry({"codes": {"growth": {"code": "A"}, "basic": {"code": "B"}}}, log=opened)
        for number in range(12):
            registry.reload_table("codes", set={"growth": {"code": f"A{number}"}})


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.db"
    changed_often(SqliteLog(path))
    return path


@pytest.fixture(params=["file", "PostgreSQL"])
def told_of_a_log(request, capsys):
    """What is said of a log to programs: an address is said to be that of one."""
    if request.param == "file":
        return told(capsys, request.getfixturevalue("log"), "--json")
    url = request.getfixturevalue("postgres_url")
    changed_often(log_at(url))
    return told(capsys, url, "--log", "--json")


def test_the_log_of_a_server_says_it_too(told_of_a_log):
    said = json.loads(told_of_a_log)
    assert said["source"] == "log"
    by_name = {(one["table"], one["row"]): one for one in said["forecasts"]}
    assert by_name["codes", "growth"]["changes"] == 12
    assert ("codes", "basic") not in by_name
    assert abs(by_name["codes", "growth"]["looked_at"] - time.time()) < 600


def test_a_change_that_a_wrong_clock_has_noted_spoils_nothing(tmp_path, capsys, monkeypatch):
    path, begun = tmp_path / "log.db", time.time() - 40 * 86_400
    monkeypatch.setattr(time, "time", lambda: now)
    with closing(SqliteLog(path)) as opened:
        now = begun
        registry = Registry({"codes": {"growth": {"code": "A"}}}, log=opened)
        for number in range(40):
            now = begun + number * 86_400 + (9 * 365 * 86_400 if number == 20 else 0)
            registry.reload_table("codes", set={"growth": {"code": f"A{number}"}})
    now = begun + 40 * 86_400
    said = json.loads(told(capsys, path, "--json"))
    for one in said["forecasts"]:
        assert (one["changes"], one["looked_at"]) == (39, now)
        assert one["due"] is not None


def test_that_a_table_changed_is_said_though_its_rows_are_not_kept_any_more(log, capsys, monkeypatch):
    for module in ("log", "sql_log"):
        monkeypatch.setattr(f"shelflife.server.{module}.MOST_ROWS", 5)
    with closing(SqliteLog(log)) as opened:
        registry = Registry({"codes": {"growth": {"code": "A11"}, "basic": {"code": "B"}}}, log=opened)
        registry.reload_table("codes", set={f"plan{number}": {"code": "C"} for number in range(6)})
        registry.add_table("prices", {"growth": {"price": 1}})
    said = json.loads(told(capsys, log, "--json"))
    assert [(one["table"], one["row"], one["changes"]) for one in said["forecasts"]] == [("codes", None, 13)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{}/none.db"], "there is no file {}/none.db"),
        (["{}/none.db", "--log"], "there is no file {}/none.db"),
        (["{}"], "{} is a folder"),
        (["{}/text.db"], "file is not a database"),
        (["{}/text.db", "--log"], "the log {}/text.db cannot be opened: file is not a database"),
        (["{}/empty.db"], "{}/empty.db is a database, but not a memory"),
        (["{}/empty.db", "--log"], "{}/empty.db is a database, but not a log"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_sentence(arguments, says, tmp_path, capsys):
    (tmp_path / "text.db").write_text("a text\n" * 200)
    (tmp_path / "empty.db").touch()
    assert main(["forecast", *(one.format(tmp_path) for one in arguments)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("shelflife: ")
    assert said.count("\n") == 1
    assert says.format(tmp_path) in said
    assert (tmp_path / "empty.db").stat().st_size == 0  # nothing is made of what is only looked at


@pytest.mark.parametrize("option", ["--root=https://api.example", "--namespace=team"])
def test_what_is_for_a_memory_alone_is_refused_with_a_log(option, log, capsys):
    assert main(["forecast", str(log), option]) == 1
    name = option.partition("=")[0]
    assert capsys.readouterr().err == f"shelflife: {name} is for a memory, and this is the log of a server\n"


def test_a_database_that_does_not_answer_is_said_in_one_sentence(capsys):
    assert main(["forecast", "postgresql://nobody:secret@127.0.0.1:1/none", "--log"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("shelflife: ")
    assert said.count("\n") == 1
    assert "secret" not in said


def test_nothing_is_made_in_a_valkey_that_is_only_looked_at(valkey_url, capsys):
    assert main(["memory", "list", valkey_url, "--namespace", "mistyped"]) == 0
    assert capsys.readouterr().out.endswith("0 remembered\n")
    with redis.Redis.from_url(valkey_url) as client:
        assert client.keys() == []


@pytest.mark.parametrize("command", [["forecast"], ["forecast", "--log"], ["memory", "list"]])
def test_nothing_is_made_in_a_database_that_is_only_looked_at(command, postgres_url, capsys):
    assert main([*command, postgres_url]) == 1
    address, schema = postgres_url.split("&schema=")
    said = capsys.readouterr().err
    kind = "log" if "--log" in command else "memory"
    assert said.startswith(f"shelflife: there is no {kind} postgresql://")
    assert said.endswith(f"?schema={schema}\n")
    with psycopg.connect(address) as connection:
        assert connection.execute("select to_regnamespace(%s)", (schema,)).fetchone() == (None,)
