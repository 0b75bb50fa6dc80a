"""The log in a file and in PostgreSQL: restarts, kills, damage, workers and forks."""

import math
import os
import random
import shutil
import signal
import sqlite3
import threading
from contextlib import ExitStack, closing, suppress

import pytest

from shelflife.contract import Rule, same_json
from shelflife.server import BadRule, LogError, Provider, Registry, SqliteLog
from shelflife.server.faces import face_of
from shelflife.server.log import InProcessLog
from shelflife.server.logs import log_at
from shelflife.server.wire import Level
from tests.processes import wait_until
from tests.server.opened_logs import CODES, TIE, Opened
from tests.threads import coming_between


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.db"


@pytest.fixture
def small_tails(monkeypatch):
    """Logs that keep less than they do: what happens at a bound is the same wherever it is."""
    for module in ("log", "sql_log"):
        monkeypatch.setattr(f"shelflife.server.{module}.MOST_ENTRIES", 32)
        monkeypatch.setattr(f"shelflife.server.{module}.MOST_ROWS", 1000)


@pytest.mark.spec("7.11")
def test_reloads_of_tables_and_rules_survive_a_restart(place):
    with Opened(place) as reg:
        report = reg.reload_table("codes", set={"growth": {"code": "WINTER"}, "new": {"n": [1, {}]}})
        reg.reload_table("codes", remove=["scale"], version="3")
        rules = reg.reload_rules([])
        before = reg.state
    with Opened(place) as reg:
        after = reg.state
        assert same_json(after.tables["codes"].rows.to_dict(), before.tables["codes"].rows.to_dict())
        assert after.table_versions == before.table_versions
        assert after.rules == before.rules
        for since in ("1.0.0", report.new_version, "3"):
            asked = ({"codes": since}, rules.old_version)
            told = [face_of(state, Level.FINGERPRINT).changes_since(*asked) for state in (before, after)]
            assert told[0] == told[1]


@pytest.mark.spec("7.4", "7.11")
def test_a_row_with_the_longest_key_there_may_be_is_kept(place):
    keys = [random.Random(seed).randbytes(512).hex() for seed in range(2)]
    with Opened(place) as reg:
        reg.reload_table("codes", set={key: {"code": "X"} for key in keys})
        reg.reload_table("codes", remove=keys[:1])
    with Opened(place) as reg:
        assert {*reg.state.tables["codes"].rows} == {*CODES, keys[1]}


def test_given_versions_and_the_bound_of_the_log_survive_a_restart(place, small_tails):
    with Opened(place) as reg:
        for number in range(50):
            reg.reload_table("codes", set={"growth": {"code": str(number)}}, version=f"v{number}")
        before = reg.state
    with Opened(place) as reg:
        after = reg.state
        assert (after.number, after.digest, after.log_id) == (before.number, before.digest, before.log_id)
        assert [entry.number for entry in after.tail] == [entry.number for entry in before.tail]
        assert len(after.tail) == 32
        assert dict(after.tables["codes"].given_versions) == dict(before.tables["codes"].given_versions)


def test_a_reload_that_is_larger_than_the_tail_is_read_whole_by_others(place, small_tails):
    with Opened(place) as one, Opened(place) as other:
        one.reload_table("codes", {str(number): {} for number in range(1001)})
        other.catch_up()
        assert (other.state.number, other.state.digest) == (one.state.number, one.state.digest)
        assert other.state.tail == one.state.tail == ()
        one.reload_table("codes", remove=["1"])
        other.catch_up()
        assert len(other.state.tail) == 1


def test_rows_that_are_declared_differently_count_as_a_reload(place):
    with Opened(place) as reg:
        reg.reload_table("codes", set={"growth": {"code": "WINTER"}})
    with Opened(place, codes={"growth": {"code": "SPRING"}}) as reg:
        table = reg.state.tables["codes"]
        assert table.rows.to_dict() == {"growth": {"code": "SPRING"}}
        changes = face_of(reg.state, Level.STAMPS).changes_since({"codes": "1.0.0"}, None).tables["codes"]
        assert (changes.changed, changes.removed) == (("growth",), ("scale",))
    with Opened(place, codes={"growth": {"code": "SPRING"}}) as reg:
        assert reg.state.tables["codes"].version == table.version


def test_a_row_that_was_reloaded_stays_when_another_is_declared_differently(place):
    with Opened(place) as reg:
        reg.reload_table("codes", set={"growth": {"code": "WINTER"}, "new": {}})
    with Opened(place, codes=CODES | {"scale": {"code": "OTHER"}}) as reg:
        assert reg.rows("codes") == {"growth": {"code": "WINTER"}, "new": {}, "scale": {"code": "OTHER"}}


def test_a_new_explicit_version_goes_with_rows_that_are_declared_differently(place):
    with Opened(place):
        pass
    versions = {"codes": "2.0.0", "promos": "1.0.0"}
    with Opened(place, codes={}, versions=versions) as reg:
        assert reg.state.tables["codes"].version == "2.0.0"
        reg.reload_table("codes", {"x": {}}, version="2.0.1")
    with Opened(place, codes={}, versions=versions) as reg:
        assert reg.state.tables["codes"].version == "2.0.1"


def test_rules_that_are_declared_differently_count_as_a_reload(place):
    other = Rule(from_table="promos", to_table="codes", relation="other")
    with Opened(place) as reg:
        reg.reload_rules([])
    with Opened(place, rules=(TIE, other)) as reg:
        assert set(reg.state.rules) == {TIE, other}
    with Opened(place, rules=(TIE, other)) as reg:
        reg.reload_rules([other])
    with Opened(place, rules=(TIE, other)) as reg:
        assert set(reg.state.rules) == {other}


def test_a_table_that_is_dropped_and_put_back_is_as_it_was(place):
    with Opened(place) as reg:
        reg.reload_table("promos", set={"NEW": {}})
    file = log_at(place)
    Registry({"codes": CODES}, log=file)
    file.close()
    with Opened(place) as reg:
        assert "NEW" in reg.state.tables["promos"].rows


@pytest.mark.spec("7.14")
def test_registries_over_one_file_come_to_the_same_state(place):
    with Opened(place) as one, Opened(place) as other:
        one.reload_table("codes", set={"growth": {"code": "WINTER"}})
        other.reload_table("codes", set={"scale": {"code": "OTHER"}})
        one.catch_up()
        assert (
            one.rows("codes")
            == other.rows("codes")
            == {"growth": {"code": "WINTER"}, "scale": {"code": "OTHER"}}
        )
        assert (
            (one.state.number, one.state.digest)
            == (other.state.number, other.state.digest)
            == (2, one.state.digest)
        )
        assert one.state.table_versions == other.state.table_versions


@pytest.mark.spec("7.14")
def test_registries_that_start_together_take_up_redeclared_rows_once(place):
    with Opened(place):
        pass
    with Opened(place, codes={"growth": {"code": "SPRING"}}) as one:
        one.reload_table("codes", set={"growth": {"code": "WINTER"}})
        with Opened(place, codes={"growth": {"code": "SPRING"}}) as other:
            assert other.rows("codes") == {"growth": {"code": "WINTER"}}
            assert other.state.number == one.state.number == 2


@pytest.mark.spec("7.14")
def test_a_registry_that_follows_hears_of_what_another_has_reloaded(place):
    with Opened(place) as one, Opened(place) as other:
        heard = threading.Event()
        other.on_change(heard.set)
        other.follow()
        one.reload_table("codes", set={"growth": {"code": "WINTER"}})
        assert heard.wait(60)
        assert other.rows("codes") == one.rows("codes")
        other.close()


def test_a_file_that_was_put_in_the_place_of_another_is_folded_anew(path, tmp_path):
    with Opened(path) as one, Opened(tmp_path / "other.db") as rival:
        one.reload_table("codes", set={"growth": {"code": "WINTER"}})
        rival.reload_table("codes", set={"growth": {"code": "SPRING"}})
        one._log, rival._log = rival._log, one._log
        one.catch_up()
        assert one.rows("codes")["growth"] == {"code": "SPRING"}
        one._log, rival._log = rival._log, one._log


CHILDREN = """
import sys
from tests.server.opened_logs import fork_again_and_again
fork_again_and_again(sys.argv[1])
"""


def test_a_child_process_has_a_connection_of_its_own_and_no_lock_of_its_parent(place, nursery):
    with nursery.forked(CHILDREN, place) as parent:  # which is small, and quick to fork
        assert parent.wait(300) == 0


RIVAL = """
import sys
from shelflife.server import Registry
from shelflife.server.logs import log_at

registry = Registry({"t": {}}, log=log_at(sys.argv[1]))
for number in range(40):
    registry.reload_table("t", set={f"{sys.argv[2]}.{number}": {}})
"""


@pytest.mark.spec("7.14")
def test_reloads_of_several_processes_at_once_all_count(place, nursery):
    with ExitStack() as stack:
        rivals = [stack.enter_context(nursery.forked(RIVAL, place, name)) for name in "abcd"]
        assert [rival.wait(300) for rival in rivals] == [0, 0, 0, 0]
    with closing(log_at(place)) as log:
        state = Registry({"t": {}}, log=log).state
    assert len(state.tables["t"].rows) == state.number == 160


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"this is no database, but a text of some length" * 100),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: edit(path, "update tables set version = ''"),
        lambda path: edit(path, "update rows set row = '5'"),
        lambda path: edit(path, "update rows set row = x'22ff22'"),
        lambda path: edit(path, "update log set rules = '[{}]'"),
        lambda path: edit(path, "drop table rows"),
        lambda path: edit(path, "pragma user_version = 99"),
        lambda path: edit(path, "pragma application_id = 7"),
    ],
)
def test_a_damaged_file_is_refused_in_one_sentence(path, damage):
    with Opened(path):
        pass
    damage(path)
    with pytest.raises(LogError) as refusal:
        Opened(path)
    assert "\n" not in str(refusal.value)
    assert str(path) in str(refusal.value)


def edit(path, statement):
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()


def test_a_reload_that_cannot_be_written_changes_nothing(path):
    with Opened(path) as reg:
        before = reg.state
        reg._log._file.connection().execute("pragma max_page_count = 1")
        big = {str(number): {"text": "x" * 1000} for number in range(2000)}
        with pytest.raises(LogError, match="cannot be written: database or disk is full"):
            reg.reload_table("codes", set=big)
        assert reg.state is before
        reg._log._file.connection().execute("pragma max_page_count = 1000000")
        assert reg.reload_table("codes", set={"growth": {"code": "X"}}).changed == ("growth",)


@pytest.mark.spec("7.14")
def test_a_process_that_does_not_know_a_table_loses_none_of_its_rules(place):
    """As in a deploy that adds a table, while workers without it are still there."""
    to_new = Rule(from_table="codes", to_table="new", relation="goes_with", via="code")
    back = Rule(from_table="promos", to_table="codes", relation="back")
    with Opened(place) as older, closing(log_at(place)) as log:
        rows = {"codes": CODES, "promos": {"SUMMER": {}, "WINTER": {}}, "new": {"SUMMER": {}}}
        newer = Registry(rows, [TIE, to_new], log=log)
        older.reload_rules(add=[back])
        newer.catch_up()
        assert {*newer.state.rules} == {TIE, to_new, back}
        assert {*older.state.rules} == {TIE, back}
        older.reload_rules([back])
        newer.catch_up()
        assert {*newer.state.rules} == {to_new, back}
        of_same_name = Rule(from_table="codes", to_table="promos", relation="goes_with", via="code")
        with pytest.raises(BadRule, match="two rules called goes_with leave table codes"):
            older.reload_rules(add=[of_same_name])
        newer.catch_up()
        assert {*newer.state.rules} == {to_new, back}
    with closing(log_at(place)) as log:
        assert {*Registry(rows, [TIE, to_new], log=log).state.rules} == {to_new, back}


def test_a_rule_that_is_no_longer_declared_goes_with_its_table_and_does_not_come_back(place):
    to_new = Rule(from_table="codes", to_table="new", relation="goes_with", via="code")
    rows = {"codes": CODES, "new": {"SUMMER": {}}}
    with closing(log_at(place)) as log:
        assert {*Registry(rows, [to_new], log=log).state.rules} == {to_new}
    with closing(log_at(place)) as log:
        assert {*Registry({"codes": CODES}, [], log=log).state.all_rules} == set()
    with closing(log_at(place)) as log:
        assert {*Registry(rows, [], log=log).state.rules} == set()


def test_whoever_only_reads_finds_out_too_that_the_file_is_another(path):
    with Opened(path) as reader:
        reader.follow()
        path.unlink()
        wait_until(lambda: reader.is_cut_off)
        with Opened(path) as anew:
            wait_until(lambda: reader.state.log_id == anew.state.log_id)
            wait_until(lambda: not reader.is_cut_off)  # which it says a moment after it has read
            assert reader.state.digest == anew.state.digest


def test_a_process_that_cannot_go_on_with_the_log_says_so_and_tries_again(place, caplog, monkeypatch):
    with Opened(place) as one, Opened(place) as other:
        with monkeypatch.context() as broken:
            one.follow()
            broken.setattr(one._keeper, "_take_in", lambda: 1 / 0)
            other.reload_table("codes", set={"growth": {"code": "WINTER"}})
            wait_until(lambda: one.is_cut_off)
        wait_until(lambda: not one.is_cut_off)
        assert one.rows("codes")["growth"] == {"code": "WINTER"}
    assert [record.message for record in caplog.records] == [
        "division by zero; what others reload is not seen until it can"
    ]


def test_a_file_that_is_deleted_while_it_is_in_use_is_not_written_to_unseen(path):
    with Opened(path) as reg:
        path.unlink()
        for _ in range(2):
            with pytest.raises(LogError, match="cannot be read: it was moved or deleted while it was in use"):
                reg.reload_table("codes", set={"growth": {"code": "LOST"}})
        assert not path.exists()
        with Opened(path) as anew:
            assert anew.state.log_id != reg.state.log_id
            reg.catch_up()
            assert reg.state.log_id == anew.state.log_id


def test_a_file_that_was_moved_away_is_missed_until_it_is_back_and_none_is_made_in_its_place(
    path, tmp_path, caplog
):
    away = tmp_path / "away"
    away.mkdir()

    def move(files, to):
        for file in sorted(files, reverse=True):  # what SQLite keeps beside it first
            file.rename(to / file.name)

    with Opened(path) as reg:
        reg.reload_table("codes", set={"growth": {"code": "WINTER"}})
        reg.follow()
        before = reg.state
        move(tmp_path.glob("state.db*"), away)
        wait_until(lambda: reg.is_cut_off)
        assert not [*tmp_path.glob("state.db*")]
        with pytest.raises(LogError, match=r"it was moved or deleted while it was in use; put it back"):
            reg.counts.totals()
        assert not [*tmp_path.glob("state.db*")]
        move(away.iterdir(), tmp_path)
        wait_until(lambda: not reg.is_cut_off)
        assert reg.state == before
        reg.reload_table("codes", set={"growth": {"code": "SPRING"}})
    with Opened(path) as again:
        assert again.state.log_id == before.log_id
        assert again.rows("codes")["growth"] == {"code": "SPRING"}
    [told] = [one.message for one in caplog.records if one.levelname == "WARNING"]
    assert told == (
        f"the log {path} cannot be read: it was moved or deleted while it was in use; put it back, or start anew;"
        " what others reload is not seen until it can"
    )


def test_a_file_with_nothing_in_it_that_is_put_in_the_place_of_a_log_is_not_made_one_while_in_use(path):
    with Opened(path) as reg:
        for file in path.parent.glob("state.db*"):
            file.unlink()
        path.touch()
        with pytest.raises(LogError, match="is a database, but not a log"):
            reg.catch_up()
        with Opened(path) as anew:  # as whoever starts does
            reg.catch_up()
            assert reg.state.log_id == anew.state.log_id


def test_a_start_that_fails_in_the_middle_leaves_the_file_as_it_was(place, monkeypatch):
    with Opened(place) as reg:
        before = reg.state.table_versions
    with monkeypatch.context() as patch:
        patch.setattr(
            "shelflife.server.sql_log._write_entry", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            Opened(place, codes={})
    with Opened(place) as reg:
        assert reg.state.table_versions == before


def test_a_provider_takes_the_path_of_a_log(place):
    provider = Provider({"codes": CODES}, log=place)
    provider.registry.reload_table("codes", {})
    provider.close()
    again = Provider({"codes": CODES}, log=place)
    assert not again.state.tables["codes"].rows
    again.close()


RELOADER = """
import sys
from shelflife.server import Registry, SqliteLog
from shelflife.server.faces import face_of
from shelflife.server.log import InProcessLog
from shelflife.server.logs import is_file, log_at

def content(number):
    return {str(key): {"number": number} for key in range(300)}

registry = Registry({"t": content(0)}, versions={"t": "0"}, log=SqliteLog(sys.argv[1]))
number = int(registry.state.tables["t"].version)
print("up", number, flush=True)
while True:
    number += 1
    registry.reload_table("t", content(number), version=str(number))
    print(number, flush=True)
"""


@pytest.mark.spec("7.11")
def test_a_kill_in_the_middle_of_a_reload_leaves_the_old_or_the_new_state_whole(path, nursery):
    chance = random.Random(7)
    last_reported = 0
    for _ in range(12):
        with nursery.forked(RELOADER, path) as process:
            word, number = process.stdout.readline().split()
            assert word == "up"
            assert int(number) >= last_reported
            for _ in range(chance.randrange(1, 12)):
                last_reported = int(process.stdout.readline())
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            rest = process.stdout.read().split()
            last_reported = int(rest[-1]) if rest else last_reported
        copy = path.with_name("copy.db")
        for suffix in ("", "-wal"):
            if path.with_name(path.name + suffix).exists():
                shutil.copy(path.with_name(path.name + suffix), copy.with_name(copy.name + suffix))
        file = SqliteLog(copy)
        rows = {str(key): {"number": 0} for key in range(300)}
        table = Registry({"t": rows}, versions={"t": "0"}, log=file).state.tables["t"]
        assert {row["number"] for row in table.rows.to_dict().values()} == {int(table.version)}
        assert int(table.version) in (last_reported, last_reported + 1)
        file.close()
        copy.unlink()


def test_whoever_looks_while_another_thread_finds_the_log_again_is_told_that_it_was_away_or_goes_on(path):
    number, is_between = 0, [True]
    with Opened(path) as reg:
        while is_between:
            reg._failure = LogError("the disk is gone"), math.inf
            with suppress(LogError), coming_between(reg._take_in, number, Registry.__module__) as is_between:
                reg.catch_up()
            number += 1
    assert number > 20


def test_registries_of_fewer_tables_leave_the_others_in_a_log_of_this_process():
    log, promos = InProcessLog(), {"SUMMER": {}}
    one = Registry({"codes": CODES, "promos": promos}, log=log)
    other = Registry({"promos": promos}, log=log)
    other.reload_table("promos", set={"WINTER": {}})
    one.catch_up()
    later = Registry({"codes": CODES, "promos": promos}, log=log)
    for registry in (one, later):
        assert registry.rows("codes") == CODES
        assert {*registry.rows("promos")} == {"SUMMER", "WINTER"}


def test_that_there_was_a_change_is_known_for_longer_than_its_rows(place, small_tails):
    with Opened(place) as reg:
        reg.reload_table("codes", set={"growth": {"code": "A"}}, by="Ada")
        reg.reload_table("codes", set={f"k{n}": {"code": "B"} for n in range(1001)}, by="Bob")
        known = [(one.number, one.by, one.tables) for one in reg.state.made]
        assert known[-2:] == [(1, "Ada", {"codes": 1}), (2, "Bob", {"codes": 1001})]
        assert reg.state.tail == ()
    with Opened(place) as again:
        assert [(one.number, one.by, one.tables) for one in again.state.made][: len(known)] == known
        for number in range(40):
            again.reload_table("codes", set={"growth": {"code": f"C{number}"}})
        made = again.state.made
        assert [one.number for one in made] == [*range(again.state.number - 31, again.state.number + 1)]
    with Opened(place) as last:
        assert last.state.made[:32] == made
