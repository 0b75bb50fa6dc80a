"""`shelflife memory`, on a real file."""

import json
import sqlite3
from contextlib import closing
from functools import partial

import pytest

from shelflife.cli import main
from shelflife.client import SqliteStore
from tests.client.entries import entry, put

ORIGIN, OTHER = "https://a.example:443", "https://b.example:443"


@pytest.fixture
def path(tmp_path):
    store = SqliteStore(tmp_path / "memory.db")
    for origin, one in (
        (ORIGIN, entry("basic", root=ORIGIN)),
        (ORIGIN, entry("pro", "P2", root=ORIGIN)),
        (OTHER, entry(root=OTHER, type="B")),
    ):
        put(store, one, tags=["all"], root=origin)
    store.close()
    return str(tmp_path / "memory.db")


def run(capsys, *arguments):
    status = main(["memory", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_list_is_a_table_for_people_and_json_for_programs(path, capsys):
    _, out, _ = run(capsys, "list", path)
    assert out.splitlines()[0].split() == ["id", "root", "operation", "type", "sets", "when"]
    assert '{"promo": "P2"}' in out
    assert out.endswith("3 remembered\n")
    _, out, _ = run(capsys, "list", path, "--json", "--root", ORIGIN)
    assert [one["when"] for one in json.loads(out)] == [{"plan": "basic"}, {"plan": "pro"}]


def test_what_is_suspect_is_told(path, capsys):
    one = entry("pro", "P2", is_suspect=True, root=ORIGIN)
    store = SqliteStore(path)
    put(store, one, tags=["all"])
    store.close()
    _, out, _ = run(capsys, "list", path)
    assert [line.endswith("suspect") for line in out.splitlines()].count(True) == 1
    _, out, _ = run(capsys, "show", path, one.id[:8])
    assert "is_suspect  true" in out


def test_show_tells_what_a_fix_rests_on(path, capsys):
    _, out, _ = run(capsys, "show", path, entry("pro", "P2", root=ORIGIN).id[:8])
    assert 'rows        ["codes:pro"]' in out
    assert 'cells       {"codes": {"pro": ["code"]}}' in out
    _, out, _ = run(capsys, "show", path, entry("pro", "P2", root=ORIGIN).id, "--json")
    assert json.loads(out)["rows"] == ["codes:pro"]
    assert json.loads(out)["cells"] == {"codes": {"pro": ["code"]}}


def test_stats_count(path, capsys):
    _, out, _ = run(capsys, "stats", path)
    assert out.startswith("3 remembered\n")
    _, out, _ = run(capsys, "stats", path, "--json")
    assert json.loads(out)["types"] == {"USE_PROMO": 2, "B": 1}


def test_export_writes_a_line_for_each(path, capsys):
    _, out, _ = run(capsys, "export", path, "--type", "B")
    [line] = out.splitlines()
    assert json.loads(line)["root"] == OTHER


def test_forget_drops_what_matches(path, capsys):
    assert run(capsys, "forget", path, "--type", "B")[1] == "1 forgotten\n"
    assert run(capsys, "forget", path, "--all")[1] == "2 forgotten\n"
    assert run(capsys, "list", path)[1].endswith("0 remembered\n")


def test_to_forget_in_a_file_that_somebody_else_writes_to_is_an_error(path, capsys, monkeypatch):
    monkeypatch.setattr("shelflife.cli.memory.SqliteStore", partial(SqliteStore, busy_timeout_s=0.05))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        status, out, err = run(capsys, "forget", path, "--all")
    assert (status, out) == (1, "")
    assert "locked" in err
    assert err.endswith("; 0 forgotten\n")
    assert run(capsys, "list", path)[1].endswith("3 remembered\n")


def test_what_is_not_printable_is_escaped(path, capsys):
    hostile = entry(operation="POST /\x1b[2J\u202e\n", type="\x07", root="http://\x1b")
    store = SqliteStore(path)
    put(store, hostile, tags=["all"], root=hostile.root)
    store.close()
    for arguments in (["list", path], ["stats", path], ["show", path, hostile.id]):
        _, out, _ = run(capsys, *arguments)
        assert all(char == "\n" or char.isprintable() for char in out)
        assert "\\x1b[2J\\u202e\\n" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["list", "nowhere.db"], "there is no file nowhere.db"),
        (["list", "."], ". is a folder"),
        (["forget", "nowhere.db", "--all"], "there is no file nowhere.db"),
        (["forget", "{path}"], "say what to forget"),
        (["show", "{path}", "zzz"], "no remembered fixes have an id that begins with 'zzz'"),
        (["show", "{path}", ""], "3 remembered fixes have an id"),
        (["list", __file__], "file is not a database"),
    ],
)
def test_mistakes_are_told_in_one_sentence(path, capsys, arguments, sentence):
    status, out, err = run(capsys, *(argument.format(path=path) for argument in arguments))
    assert (status, out) == (1, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_memory_can_be_named_by_its_url(path, capsys):
    _, out, _ = run(capsys, "stats", f"sqlite:///{path}")
    assert out.startswith("3 remembered\n")
    for address in ("redis://somewhere", "sqlite://somewhere", "sqlite:///"):
        status, _, told = run(capsys, "stats", address)
        assert status != 0
        assert "give a file, or sqlite:///" in told


def test_one_fix_can_be_forgotten_by_its_id(path, capsys):
    _, out, _ = run(capsys, "forget", path, "--id", entry("pro", "P2", root=ORIGIN).id[:10])
    assert out == "1 forgotten\n"
    _, out, _ = run(capsys, "list", path, "--json")
    assert [one["when"] for one in json.loads(out) if one["root"] == ORIGIN] == [{"plan": "basic"}]


@pytest.mark.parametrize(
    "spelled", ["https://api.example", "https://API.example:443/v1/", "https://api.example/v1"]
)
def test_what_lives_below_a_root_is_of_it(tmp_path, spelled, capsys):
    path = tmp_path / "memory.db"
    store = SqliteStore(path)
    for root in ("https://api.example:443/v1", "https://api.example:443/v11", OTHER):
        put(store, entry(root=root), tags=["all"], root=root)
    store.close()
    _, out, _ = run(capsys, "list", str(path), "--json", "--root", spelled)
    below = ["/v1"] if "v1" in spelled else ["/v1", "/v11"]
    assert sorted(one["root"] for one in json.loads(out)) == [
        f"https://api.example:443{one}" for one in below
    ]
    assert run(capsys, "forget", str(path), "--root", spelled) == (0, f"{len(below)} forgotten\n", "")


def test_a_root_that_is_no_address_is_refused(path, capsys):
    with pytest.raises(SystemExit):
        main(["memory", "list", path, "--root", "api.example"])
    assert "'api.example' is not the URL of a server" in capsys.readouterr().err
