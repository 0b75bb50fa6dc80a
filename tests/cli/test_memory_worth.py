"""`shelflife memory top` and `report`: what a memory has done, and what it was worth."""

import fcntl
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
from datetime import datetime
from pathlib import Path

import pytest

from shelflife.cli.memory_top import _lines
from shelflife.cli.worth import Looking
from shelflife.client import SqliteStore
from shelflife.client.diary import HOUR_S, KEPT_HOURS, Noted
from shelflife.client.opening import store_at
from shelflife.client.sqlite_diary import SqliteDiary
from tests.cli.commands import SHELFLIFE, environment
from tests.cli.memories import ORIGIN, OTHER, memory_in, run
from tests.processes import started


@pytest.fixture
def path(tmp_path):
    return memory_in(tmp_path)


NOW = int(time.time()) // HOUR_S
HOUR = NOW - 24 * 300
"""Long ago, and not longer than is kept."""


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


@pytest.mark.parametrize("where", ["file", "postgres_url", "valkey_url"])
def test_what_a_clock_that_is_ahead_has_noted_stays_in_sight(where, tmp_path, request):
    at = tmp_path / "memory.db" if where == "file" else request.getfixturevalue(where)
    with closing(store_at(at)) as store:
        store.diary.add([Noted(NOW + ahead, "http://h:80", "hits", 1) for ahead in (0, 1, 30, 9000)])
        look = Looking(store)
        for _ in range(3):
            assert look().total.hits == 4
            assert max(look().by_hour) <= NOW + 2


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
            store.diary.add(Noted(NOW, root, what, 41) for root in servers)
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
        noted(busy, (NOW, ORIGIN, "saved", 4))
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


@pytest.mark.parametrize("hour", [0, 10**8, 10**15])
def test_what_was_noted_by_a_clock_far_off_is_put_where_it_can_be_shown(hour, busy, tmp_path, capsys):
    noted(busy, (hour, ORIGIN, "saved", 5))
    _, out, _ = run(capsys, "top", busy, "--json")
    told = json.loads(out)
    assert told["total"]["saved"] == 33
    hours = [datetime.fromisoformat(one["at"]).timestamp() / HOUR_S for one in told["hours"]]
    assert min(hours) >= NOW - KEPT_HOURS - 1
    assert max(hours) <= NOW + 1
    page = tmp_path / "page.html"
    assert run(capsys, "report", busy, "--out", str(page))[0] == 0
    assert run(capsys, "top", busy)[0] == 0


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
