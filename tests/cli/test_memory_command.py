"""`shelflife memory`, on a real file."""

import io
import json
import re
import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec
import pytest

from shelflife.cli import main
from shelflife.client import Condition, Knowledge, SqliteStore, Write
from shelflife.client.entries import Vouched
from shelflife.client.opening import store_at
from shelflife.client.positions import Place
from shelflife.contract.versions import Versions
from shelflife.server import SqliteLog
from tests.cli.memories import ORIGIN, OTHER, memory_in, run
from tests.client.entries import entry, put

JUST_NOW = 0.0
"""Stands for the time of the test, which may come long after its collection."""


@pytest.fixture
def path(tmp_path):
    return memory_in(tmp_path)


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


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("update entries set id = 'text'", "cannot be read"),
        ("update roots set root = 'nonsense'", "'nonsense' is not the URL of a server"),
        ("update knowledge set knowledge = '[]'", "cannot be read"),
    ],
)
def test_to_forget_what_cannot_be_read_is_told_in_one_sentence_and_nothing_is_done(
    path, capsys, damage, said
):
    with closing(sqlite3.connect(path)) as edited, edited:
        edited.execute(damage)
    status, out, err = run(capsys, "forget", path, "--type", "B")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert said in err
    assert not Path(f"{path}-diary").exists()


@pytest.mark.parametrize("at", [1e30, -1e300])
def test_a_fix_that_was_learned_at_no_time_of_any_calendar_is_shown_all_the_same(tmp_path, capsys, at):
    path = str(tmp_path / "memory.db")
    with closing(SqliteStore(path)) as store:
        put(store, entry(at=at))
    status, out, _ = run(capsys, "show", path, entry().id)
    assert status == 0
    assert f"learned_at  {at} seconds from 1970 on" in out


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
    for address in ("mysql://somewhere", "sqlite://somewhere", "sqlite:///"):
        status, _, told = run(capsys, "stats", address)
        assert status != 0
        assert "is not where a memory can be; give a file, or an address" in told
    status, _, told = run(capsys, "stats", path, "--namespace", "ours")
    assert (status, "a file has no namespaces" in told) == (1, True)


@pytest.mark.parametrize("engine", ["postgres_url", "valkey_url"])
def test_a_memory_in_an_engine_is_looked_at_and_forgets_like_a_file(request, capsys, engine):
    where = request.getfixturevalue(engine)
    with closing(store_at(where, namespace="ours")) as store:
        put(store, entry("basic"), entry("pro", "P2"), tags=["all"])
        id = entry("pro", "P2").id
    ours = partial(run, capsys)
    named = (where, "--namespace", "ours")
    assert ours("list", where)[1].endswith("0 remembered\n")
    assert ours("list", *named)[1].endswith("2 remembered\n")
    assert json.loads(ours("stats", *named, "--json")[1])["operations"] == {"POST /x": 2}
    assert '"promo": "P2"' in ours("show", *named, id[:8])[1]
    assert len(ours("export", *named)[1].splitlines()) == 2
    assert "not used" in ours("why", *named, ORIGIN, 'POST /x {"plan": "pro"}')[1]
    assert ours("forget", *named, "--id", id)[1] == "1 forgotten\n"
    assert ours("forget", *named, "--all")[1] == "1 forgotten\n"
    assert ours("list", *named)[1].endswith("0 remembered\n")


@pytest.mark.parametrize("where", ["redis://:secret@127.0.0.1:1/0", "postgresql://me:secret@127.0.0.1:1/db"])
def test_an_engine_that_is_not_there_is_told_in_one_sentence(capsys, where):
    status, out, err = run(capsys, "list", where)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "127.0.0.1:1/" in err
    assert "secret" not in err


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


def test_why_says_what_would_be_used_and_what_keeps_the_rest_out(path, capsys):
    status, out, err = run(capsys, "why", path, "https://a.example", 'POST /x {"plan": "basic"}')
    assert (status, err) == (0, "")
    used, other = entry("basic", root=ORIGIN).id[:12], entry("pro", "P2", root=ORIGIN).id[:12]
    assert out == (
        "1 of 2 remembered for POST /x would be used now.\n"
        "Of https://a.example:443 nothing is known: no reply with a contract was seen, or all was forgotten.\n"
        f'\n{used}  USE_PROMO sets {{"promo": "P1"}}: used\n'
        f'\n{other}  USE_PROMO sets {{"promo": "P2"}}: not used\n'
        "  it is for requests in which 'plan' is 'pro', and here it is 'basic'\n"
        "\nThis is with the default guard."
        " Keys that an agent has pinned, and what it doubts by itself, are not in it.\n"
    )


def test_why_lists_what_is_used_before_the_rest(path, capsys):
    for plan in ("basic", "pro"):
        _, out, _ = run(capsys, "why", path, "https://a.example", f'POST /x {{"plan": "{plan}"}}')
        assert re.findall(r": (used|not used)$", out, re.MULTILINE) == ["used", "not used"]


KNOWN = Knowledge(strategy="exact", versions=Versions({"t": "1"}))


@pytest.mark.parametrize(
    ("changes", "knowledge", "request_", "why_not"),
    [
        ({}, KNOWN, "POST /x", "'plan' is 'basic', and here it is not there"),
        (
            {"condition": Condition({"a/b": 1})},
            KNOWN,
            'POST /x {"a": {"b": 2}}',
            "'a/b' is 1, and here it is 2",
        ),
        (
            {"condition": Condition({}, {"plan": ("basic",)})},
            KNOWN,
            'POST /x {"plan": "basic"}',
            "does not hold for this value of 'plan': it is 'basic'",
        ),
        ({"condition": Condition({"": {"a": 1}})}, KNOWN, "POST /x", "it is for one whole request"),
        (
            {"operation": "POST /y"},
            KNOWN,
            'POST /x {"plan": "basic"}',
            "it is for another operation, POST /y",
        ),
        (
            {"parameters": {"amount": 5}},
            KNOWN,
            'POST /x {"plan": "basic"}',
            "the guard refuses it: 'amount' is for the caller to decide; allow it by name in Guard(fields=...)",
        ),
        (
            {"is_suspect": True},
            KNOWN,
            'POST /x {"plan": "basic"}',
            "asked about it first: it may have gone stale",
        ),
        (
            {},
            msgspec.structs.replace(KNOWN, generation=1),
            'POST /x {"plan": "basic"}',
            "asked about it first: it is of another log of the server",
        ),
        (
            {},
            msgspec.structs.replace(KNOWN, place=Place(at="WO5gZa12", doubt="d")),
            'POST /x {"plan": "basic"}',
            "asked about it first: a reply of the server may be newer than what is known",
        ),
        (
            {},
            msgspec.structs.replace(KNOWN, split_at=JUST_NOW),
            'POST /x {"plan": "basic"}',
            "asked about it first: several logs answer for the server",
        ),
        ({"strategy": "paper"}, KNOWN, 'POST /x {"plan": "basic"}', "kept under another strategy"),
        (
            {},
            KNOWN,
            'POST /x {"plan": "basic", "x": ' + "[" * 40 + "]" * 40 + "}",
            "something in it that JSON cannot carry, or is nested too deeply",
        ),
    ],
)
def test_why_gives_the_reason_of_whatever_withholds_a_fix(
    tmp_path, capsys, changes, knowledge, request_, why_not
):
    path, one = tmp_path / "memory.db", entry(root=ORIGIN, **changes)
    if knowledge.split_at == JUST_NOW:
        knowledge = msgspec.structs.replace(knowledge, split_at=time.time())
    with closing(SqliteStore(path)) as store:
        put(store, one, tags=["suspect" if one.is_suspect else "all"], root=ORIGIN)
        store.write(ORIGIN, store.known(ORIGIN).revision, Write(knowledge))
    status, out, _ = run(capsys, "why", str(path), ORIGIN, request_, "--json")
    [fix] = json.loads(out)["fixes"]
    assert (status, fix["id"], fix["is_used"]) == (0, one.id, False)
    assert why_not in fix["why_not"]


def test_why_tells_two_fixes_that_contradict_each_other(tmp_path, capsys):
    path = tmp_path / "memory.db"
    with closing(SqliteStore(path)) as store:
        put(store, entry(root=ORIGIN), entry(value="P2", type="B", root=ORIGIN), tags=["all"], root=ORIGIN)
    _, out, _ = run(capsys, "why", str(path), ORIGIN, 'POST /x {"plan": "basic"}')
    assert out.startswith("0 of 2 remembered for POST /x would be used now.\n")
    assert out.count("the guard refuses it: another remembered fix sets 'promo' to something else") == 2


def test_why_points_to_where_something_is_remembered(path, capsys):
    _, out, _ = run(capsys, "why", path, "https://a.example", "POST /nothing")
    assert out.startswith("Nothing is remembered for POST /nothing.\n")
    assert "another operation of this server:\n         2  POST /x\n" in out
    assert f"another server in this memory:\n         1  {OTHER}\n" in out


def test_why_finds_the_contract_that_a_path_is_under(tmp_path, capsys):
    path, root = tmp_path / "memory.db", f"{ORIGIN}/v1"
    with closing(SqliteStore(path)) as store:
        put(store, entry(root=root, operation="POST /v1/x"), tags=["all"], root=root)
        store.write(ORIGIN, 0, Write(Knowledge(strategy="exact", roots=("/v1",))))
    asked = [
        ("https://a.example", "/v1/x"),
        ("https://a.example/v1", "/v1/x"),
        ("https://a.example/v1", "/x"),
    ]
    for address, below in asked:
        _, out, _ = run(capsys, "why", str(path), address, f'POST {below} {{"plan": "basic"}}', "--json")
        told = json.loads(out)
        assert (told["root"], [one["is_used"] for one in told["fixes"]]) == (root, [True])


def test_the_fields_of_a_request_can_be_in_a_file_or_in_the_input(path, tmp_path, capsys, monkeypatch):
    body = tmp_path / "body.json"
    body.write_text('{"plan": "pro"}')
    monkeypatch.setattr("sys.stdin", io.StringIO('{"plan": "pro"}'))
    for given in (str(body), "-"):
        _, out, _ = run(capsys, "why", path, ORIGIN, "POST /x", "--body", given, "--json")
        told = json.loads(out)
        assert told["request"] == {"plan": "pro"}
        assert [one["when"]["plan"] for one in told["fixes"] if one["is_used"]] == ["pro"]


@pytest.mark.parametrize(
    ("request_", "more", "sentence"),
    [
        ("POST /x {nonsense", (), "the fields of the request are no JSON object"),
        ("POST /x plan=basic", (), "the fields of a request are a JSON object"),
        ("POST /x {}", ("--body", "-"), "given twice"),
        ("POST /x", ("--body", "nowhere.json"), "nowhere.json cannot be read"),
        ("POST /x", ("--body", __file__), "the fields of the request are no JSON object"),
    ],
)
def test_a_request_that_cannot_be_read_is_told_in_one_sentence(path, capsys, request_, more, sentence):
    status, out, err = run(capsys, "why", path, ORIGIN, request_, *more)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert sentence in err


def test_why_says_until_when_a_key_vouches(tmp_path, capsys):
    path = tmp_path / "memory.db"
    vouched = Vouched(log="l", at="WO5gZa12", digest="0" * 64, key="k", expires_at=86_400)
    known = Knowledge(strategy="exact", place=Place(at="WO5gZa12"), vouched=vouched)
    with closing(SqliteStore(path)) as store:
        store.write(ORIGIN, 0, Write(known))
    _, out, _ = run(capsys, "why", str(path), ORIGIN, "POST /x", "--json")
    assert json.loads(out)["known"] == (
        "the position WO5gZa12 is known; a key has vouched for it until 1970-01-02 00:00:00 UTC, and counts no longer"
    )


def test_why_changes_nothing(path, capsys):
    before = [one.read_bytes() for one in sorted(Path(path).parent.glob("memory.db"))]
    run(capsys, "why", path, ORIGIN, 'POST /x {"plan": "basic"}')
    assert [one.read_bytes() for one in sorted(Path(path).parent.glob("memory.db"))] == before


@pytest.mark.parametrize("verb", [["list"], ["top"], ["why", "http://h", "POST /x"]])
def test_the_log_of_a_server_is_told_to_be_one(tmp_path, capsys, verb):
    log = tmp_path / "state.db"
    SqliteLog(log).close()
    status, out, err = run(capsys, verb[0], str(log), *verb[1:])
    told = (
        f"shelflife: {log} is a database, but not a memory: it is the log of a server, for shelflife log and"
    )
    assert (status, out, err) == (1, "", f"{told} shelflife forecast\n")


def test_a_file_that_is_neither_memory_nor_log_is_not_made_one(tmp_path, capsys):
    empty = tmp_path / "empty.db"
    empty.touch()
    status, _, err = run(capsys, "list", str(empty))
    assert (status, "log of a server" in err, empty.stat().st_size) == (1, False, 0)


@pytest.mark.parametrize("request_", ['{"plan": "pro"}', ' {"plan": "pro"}', '["plan"]'])
def test_why_is_told_when_fields_come_without_an_operation(path, capsys, request_):
    status, out, err = run(capsys, "why", path, ORIGIN, request_)
    told = """an operation comes before the fields, as in 'POST /orders {"plan": "basic"}'"""
    assert (status, out, err) == (1, "", f"shelflife: {told}\n")
