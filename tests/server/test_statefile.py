"""The state file: restarts, kills, damage and rivals."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys

import pytest

from shelflife.contract import Rule, same_json
from shelflife.server import Provider, Registry, StateFile, StateFileError
from shelflife.server.wire import Level
from tests.processes import started

CODES = {"growth": {"code": "SUMMER"}, "scale": {"code": "SCALE"}}
TIE = Rule(from_table="codes", to_table="promos", relation="needs", via="code")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.db"


class Opened:
    """A registry on a state file that is closed at the end of the block, as a process would."""

    def __init__(self, path, codes=CODES, rules=(TIE,), **options):
        self.file = StateFile(path, busy_timeout_s=0.1)
        tables = {"codes": codes, "promos": {"SUMMER": {}, "WINTER": {}}}
        options = {"versions": {"codes": "1.0.0", "promos": "1.0.0"}} | options
        try:
            self.registry = Registry(tables, rules, state_file=self.file, **options)
        except BaseException:
            self.file.close()
            raise

    def __enter__(self):
        return self.registry

    def __exit__(self, *exception):
        self.file.close()


@pytest.mark.spec("7.11")
def test_reloads_of_tables_and_rules_survive_a_restart(path):
    with Opened(path) as reg:
        report = reg.reload_table("codes", set={"growth": {"code": "WINTER"}, "new": {"n": [1, {}]}})
        reg.reload_table("codes", remove=["scale"], version="3")
        rules = reg.reload_rules([])
        before = reg.state
    with Opened(path) as reg:
        after = reg.state
        assert same_json(after.tables["codes"].rows.to_dict(), before.tables["codes"].rows.to_dict())
        assert after.table_versions == before.table_versions
        assert after.rules == before.rules
        for since in ("1.0.0", report.new_version, "3"):
            asked = ({"codes": since}, rules.old_version)
            assert after.face(Level.FINGERPRINT).changes_since(*asked) == before.face(
                Level.FINGERPRINT
            ).changes_since(*asked)


@pytest.mark.spec("7.4", "7.11")
def test_used_versions_and_the_bound_of_the_history_survive_a_restart(path):
    with Opened(path) as reg:
        for number in range(300):
            reg.reload_table("codes", set={"growth": {"code": str(number)}}, version=f"v{number}")
        before = reg.state.tables["codes"]
    with Opened(path) as reg:
        after = reg.state.tables["codes"]
        assert len(after.history) == len(before.history)
        assert [step.old_version for step in after.history] == [step.old_version for step in before.history]
        assert set(after.used_versions) == set(before.used_versions)


def test_rows_that_are_declared_differently_count_as_a_reload(path):
    with Opened(path) as reg:
        reg.reload_table("codes", set={"growth": {"code": "WINTER"}})
    with Opened(path, codes={"growth": {"code": "SPRING"}}) as reg:
        table = reg.state.tables["codes"]
        assert table.rows.to_dict() == {"growth": {"code": "SPRING"}}
        changes = reg.state.face(Level.STAMPS).changes_since({"codes": "1.0.0"}, None).tables["codes"]
        assert (changes.changed, changes.removed) == (("growth",), ("scale",))
    with Opened(path, codes={"growth": {"code": "SPRING"}}) as reg:
        assert reg.state.tables["codes"].version == table.version


def test_a_row_that_was_reloaded_stays_when_another_is_declared_differently(path):
    with Opened(path) as reg:
        reg.reload_table("codes", set={"growth": {"code": "WINTER"}, "new": {}})
    with Opened(path, codes=CODES | {"scale": {"code": "OTHER"}}) as reg:
        assert reg.rows("codes") == {"growth": {"code": "WINTER"}, "new": {}, "scale": {"code": "OTHER"}}


def test_a_new_explicit_version_goes_with_rows_that_are_declared_differently(path):
    with Opened(path):
        pass
    versions = {"codes": "2.0.0", "promos": "1.0.0"}
    with Opened(path, codes={}, versions=versions) as reg:
        assert reg.state.tables["codes"].version == "2.0.0"
        reg.reload_table("codes", {"x": {}}, version="2.0.1")
    with Opened(path, codes={}, versions=versions) as reg:
        assert reg.state.tables["codes"].version == "2.0.1"


def test_rules_that_are_declared_differently_count_as_a_reload(path):
    other = Rule(from_table="promos", to_table="codes", relation="other")
    with Opened(path) as reg:
        reg.reload_rules([])
    with Opened(path, rules=(TIE, other)) as reg:
        assert set(reg.state.rules) == {TIE, other}
    with Opened(path, rules=(TIE, other)) as reg:
        reg.reload_rules([other])
    with Opened(path, rules=(TIE, other)) as reg:
        assert set(reg.state.rules) == {other}


def test_a_table_that_is_dropped_and_put_back_is_as_it_was(path):
    with Opened(path) as reg:
        reg.reload_table("promos", set={"NEW": {}})
    file = StateFile(path)
    Registry({"codes": CODES}, state_file=file)
    file.close()
    with Opened(path) as reg:
        assert "NEW" in reg.state.tables["promos"].rows


def test_a_second_process_on_the_file_is_refused(path):
    with Opened(path), pytest.raises(StateFileError, match="cannot be opened: another process holds it"):
        Opened(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"this is no database, but a text of some length" * 100),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: edit(path, "update tables set version = ''"),
        lambda path: edit(path, "update rows set row = '5'"),
        lambda path: edit(path, "update rows set row = x'22ff22'"),
        lambda path: edit(path, "update rules set rules = '[{}]'"),
        lambda path: edit(path, "drop table rows"),
        lambda path: edit(path, "pragma user_version = 99"),
        lambda path: edit(path, "pragma application_id = 7"),
    ],
)
def test_a_damaged_file_is_refused_in_one_sentence(path, damage):
    with Opened(path):
        pass
    damage(path)
    with pytest.raises(StateFileError) as refusal:
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
        reg._state_file._connection.execute("pragma max_page_count = 1")
        big = {str(number): {"text": "x" * 1000} for number in range(2000)}
        with pytest.raises(StateFileError, match="cannot be written: database or disk is full"):
            reg.reload_table("codes", set=big)
        assert reg.state is before
        reg._state_file._connection.execute("pragma max_page_count = 1000000")
        assert reg.reload_table("codes", set={"growth": {"code": "X"}}).changed == ("growth",)


def test_a_start_that_fails_in_the_middle_leaves_the_file_as_it_was(path, monkeypatch):
    with Opened(path) as reg:
        before = reg.state.table_versions
    with monkeypatch.context() as patch:
        patch.setattr(StateFile, "mark_declared", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            Opened(path, codes={})
    with Opened(path) as reg:
        assert reg.state.table_versions == before


def test_a_provider_takes_the_path_of_a_state_file(path):
    provider = Provider({"codes": CODES}, state_file=path)
    provider.registry.reload_table("codes", {})
    provider.close()
    again = Provider({"codes": CODES}, state_file=path)
    assert not again.state.tables["codes"].rows
    again.close()


RELOADER = """
import sys
from shelflife.server import Registry, StateFile

def content(number):
    return {str(key): {"number": number} for key in range(300)}

registry = Registry({"t": content(0)}, versions={"t": "0"}, state_file=StateFile(sys.argv[1]))
number = int(registry.state.tables["t"].version)
print("up", number, flush=True)
while True:
    number += 1
    registry.reload_table("t", content(number), version=str(number))
    print(number, flush=True)
"""


@pytest.mark.spec("7.11")
def test_a_kill_in_the_middle_of_a_reload_leaves_the_old_or_the_new_state_whole(path):
    chance = random.Random(7)
    last_reported = 0
    for _ in range(12):
        with started([sys.executable, "-c", RELOADER, path], stdout=subprocess.PIPE, text=True) as process:
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
        file = StateFile(copy)
        rows = {str(key): {"number": 0} for key in range(300)}
        table = Registry({"t": rows}, versions={"t": "0"}, state_file=file).state.tables["t"]
        assert {row["number"] for row in table.rows.to_dict().values()} == {int(table.version)}
        assert int(table.version) in (last_reported, last_reported + 1)
        file.close()
        copy.unlink()
