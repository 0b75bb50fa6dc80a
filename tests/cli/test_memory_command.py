"""`shelflife memory`, on a real file."""

import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import sqlite3
import struct
import subprocess
import termios
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec
import pytest

from shelflife.cli import main
from shelflife.cli.memory_top import _lines
from shelflife.cli.worth import Looking
from shelflife.client import Condition, Knowledge, SqliteStore, Write
from shelflife.client.diary import HOUR_S, Noted
from shelflife.client.entries import Vouched
from shelflife.client.opening import store_at
from shelflife.client.positions import Place
from shelflife.client.sqlite_diary import SqliteDiary
from shelflife.contract.versions import Versions
from shelflife.server import SqliteLog
from tests.cli.commands import SHELFLIFE, environment
from tests.client.entries import entry, put
from tests.processes import started

ORIGIN, OTHER = "https://a.example:443", "https://b.example:443"
JUST_NOW = 0.0
"""Stands for the time of the test, which may come long after its collection."""


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
    assert "0 of 0 remembered for POST /nothing would be used now." in out
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


HOUR = 500_000


def noted(path, *rows):
    SqliteDiary(path).add(Noted(*row) for row in rows)


@pytest.fixture
def busy(path):
    noted(
        path,
        (HOUR, ORIGIN, "hits", 30),
        (HOUR, ORIGIN, "misses", 10),
        (HOUR, ORIGIN, "saved", 28),
        (HOUR, ORIGIN, "stored", 12),
        (HOUR + 2, ORIGIN, "evicted:row_changed", 2),
        (HOUR + 2, OTHER, "suspected", 3),
        (HOUR + 2, OTHER, "evicted:forgotten", 1),
    )
    return path


def test_top_tells_once_where_there_is_no_terminal(busy, capsys):
    _, out, _ = run(capsys, "top", busy)
    lines = out.splitlines()
    assert lines[0] == f"3 fixes of 2 servers, in {busy}"
    assert lines[1].startswith("It has spared 28 refusals in the hours from ")
    assert (
        lines[2] == "One fix or more was remembered for 75 % of requests."
    )  # which is not how many were accepted
    assert [line.split() for line in lines[4:8]] == [
        ["server", "fixes", "hits", "misses", "saved", "learned", "evicted", "doubts"],
        [ORIGIN, "2", "30", "10", "28", "12", "2", "0"],
        [OTHER, "1", "0", "0", "0", "0", "1", "3"],
        ["all", "3", "30", "10", "28", "12", "3", "3"],
    ]
    assert "         2  a row it rests on has changed" in lines


def test_who_looks_again_reads_the_past_only_once(tmp_path):
    path, now = tmp_path / "memory.db", 1000 * HOUR_S
    with closing(SqliteStore(path)) as store:
        store.diary.add(Noted(hour, "http://h:80", "hits", 1) for hour in range(990, 1001))
        look = Looking(store, lambda: now)
        assert look().total.hits == 11
        with closing(sqlite3.connect(store.diary.path)) as diary, diary:
            diary.execute("delete from counts where hour < 999")
        store.diary.add([Noted(999, "http://h:80", "hits", 1), Noted(1000, "http://h:80", "hits", 1)])
        assert look().total.hits == 13
        now += 3 * HOUR_S
        store.diary.add([Noted(1003, "http://h:80", "hits", 1)])
        for _ in range(2):
            assert look().total.hits == 14
            assert min(look().by_hour) == 990


def test_who_looks_again_counts_nothing_twice_when_the_clock_was_set_back(tmp_path):
    now = 1000 * HOUR_S
    with closing(SqliteStore(tmp_path / "memory.db")) as store:
        store.diary.add(Noted(hour, "http://h:80", "hits", 1) for hour in range(990, 1001))
        look = Looking(store, lambda: now)
        for hours_back in (0, 5, -2):
            now -= hours_back * HOUR_S
            for _ in range(2):
                assert look().total.hits == 11
        store.diary.add([Noted(995, "http://h:80", "hits", 1)])  # by somebody whose clock is still set back
        now -= 3 * HOUR_S
        assert look().total.hits == 12


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


@pytest.mark.parametrize("width", [80, 100, 200])
def test_top_shows_all_columns_however_narrow_the_window(tmp_path, width):
    servers = ["https://api.billing-of-a-customer.example:443/v1", "http://127.0.0.1:8000"]
    with closing(SqliteStore(tmp_path / "memory.db")) as store:
        look = Looking(store)
        store.diary.add(
            Noted(HOUR, root, what, 900) for root in servers for what in ("hits", "saved", "stored")
        )
        first = look()
        for what in ("hits", "misses", "saved", "stored", "evicted:row_changed", "suspected"):
            store.diary.add(Noted(HOUR, root, what, 41) for root in servers)
        lines = list(_lines(first, look(), "memory.db", width))
    assert max(map(len, lines)) <= width
    table = lines[4:8]
    assert table[0].endswith("doubts")
    assert table[-1].split()[0] == "all"
    assert any(":8000 " in line for line in table)  # the end of a name tells servers apart
    assert ("(+41)" in table[1]) == (width > 80)


def test_top_is_json_for_programs(busy, capsys):
    _, out, _ = run(capsys, "top", busy, "--json")
    told = json.loads(out)
    assert told["total"] == {"hits": 30, "misses": 10, "saved": 28, "learned": 12, "evicted": 3, "doubts": 3}
    assert told["servers"][ORIGIN]["fixes"] == 2
    assert told["evictions"] == {"row_changed": 2, "forgotten": 1}
    assert [hour["saved"] for hour in told["hours"]] == [28, 0]


def test_top_of_a_memory_that_has_done_nothing_says_so(path, capsys):
    _, out, _ = run(capsys, "top", path)
    assert out.splitlines()[1] == "It has done nothing yet that was noted."


def test_what_cannot_be_written_is_said_in_one_sentence(busy):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*SHELFLIFE, "memory", "top", busy], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (1, "shelflife: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_top_shows_at_a_terminal_what_happens_as_it_does(busy, ends):
    """A real terminal of 100 columns, which a person leaves with Ctrl-C, and a system with other signals."""
    main_end, other_end = pty.openpty()
    fcntl.ioctl(other_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    command = [*SHELFLIFE, "memory", "top", busy]
    with started(
        command, stdin=other_end, stdout=other_end, stderr=other_end, env=environment(COLUMNS="")
    ) as process:
        os.close(other_end)
        seen = read_until(main_end, b"28 refusals")
        noted(busy, (HOUR + 3, ORIGIN, "saved", 4))
        seen += read_until(main_end, b"32 (+4)")
        process.send_signal(ends)
        seen += read_until(main_end, b"\x1b[?1049l")
        assert process.wait(timeout=60) == (0 if ends == signal.SIGINT else 128 + ends)
    os.close(main_end)
    assert seen.startswith(b"\x1b[?1049h")  # what was on the screen before comes back
    assert b"Traceback" not in seen


def read_until(descriptor, awaited):
    """It draws for as long as it runs, so that it is not silence that ends this."""
    seen, until = b"", time.monotonic() + 120
    while awaited not in seen:
        left_s = until - time.monotonic()
        assert left_s > 0, seen[-2000:]
        if select.select([descriptor], [], [], left_s)[0]:
            seen += os.read(descriptor, 65536)
    return seen


def test_the_report_is_one_page_that_loads_nothing_and_takes_no_orders(busy, tmp_path, capsys):
    hostile = "http://h:80/<script>alert(1)</script>"
    noted(busy, (HOUR, hostile, "hits", 1))
    page = tmp_path / "page.html"
    status, out, _ = run(capsys, "report", busy, "--out", str(page))
    assert (status, out) == (0, f"Wrote {page}\n")
    html = page.read_text()
    assert "This memory has spared 28 refusals" in html
    assert "of requests had one fix or more remembered" in html
    assert "a row it rests on has changed" in html
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert not re.search(r"(src|href)=|url\(|@import", html)
    assert html.count("<rect") == 2  # an hour with refusals spared, and one in which fixes left


def test_the_report_of_many_days_has_a_bar_for_each_day(path, tmp_path, capsys):
    noted(path, *((HOUR + 24 * day, ORIGIN, "saved", day + 1) for day in range(200)))
    run(capsys, "report", path, "--out", str(tmp_path / "page.html"))
    html = (tmp_path / "page.html").read_text()
    assert "By day" in html
    assert html.count("<rect") == 120


def test_a_report_that_cannot_be_written_is_an_error(path, tmp_path, capsys):
    status, _, err = run(capsys, "report", path, "--out", str(tmp_path))
    assert status == 1
    assert err == f"shelflife: {tmp_path} cannot be written: Is a directory\n"


def test_a_diary_that_is_none_is_an_error(path, capsys):
    Path(f"{path}-diary").write_bytes(
        b"something else that is long enough to be taken for a file of its own" * 9
    )
    status, _, err = run(capsys, "top", path)
    assert status == 1
    assert err == f"shelflife: the diary {path}-diary cannot be read: file is not a database\n"
