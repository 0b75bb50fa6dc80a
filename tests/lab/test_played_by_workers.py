"""Runs whose server is several processes: what is refused, what is recorded, and that nothing is left of them."""

import json
import os
import signal
import subprocess
import sys
from contextlib import closing, suppress

import httpx2
import psycopg
import pytest
import redis

from shelflife.cli import main
from shelflife.lab.grid import execute
from shelflife.lab.records import RunStarted, read_records
from shelflife.lab.runner import LabError, pushed
from shelflife.lab.scenarios import load
from shelflife.lab.scores import score_of
from shelflife.lab.spec import ADDRESSES, Conduct, RunSpec
from shelflife.lab.workers import served_by_workers
from tests.cli.commands import SHELFLIFE, environment
from tests.lab.played_runs import recorded, servers_forked
from tests.processes import descendants_of, is_running, started, wait_until


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("bumping", "the stream bumping, on which the server bumps, is played with a server in one process"),
        ("disclosure", "the stream disclosure, on which the server tells, is played"),
        ("drifted --trust", "--trust is played with a server in one process: leave --workers out"),
        ("drifted --disclose counts", "--disclose counts is played with a server in one process"),
    ],
)
def test_what_needs_a_server_in_the_lab_itself_is_refused_in_one_sentence(arguments, told, capsys):
    assert main(f"lab run {arguments} --arm A2D --workers 2".split()) == 1
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--log postgres", "--log postgres is for several workers: give --workers too"),
        ("--log postgres --workers 2", "to play on postgres, say where it is: set SHELFLIFE_POSTGRES_URL"),
        ("--store valkey", "to play on valkey, say where it is: set SHELFLIFE_VALKEY_URL"),
    ],
)
def test_an_engine_that_is_not_there_is_told_in_one_sentence(arguments, told, capsys, monkeypatch):
    for name in ADDRESSES.values():
        monkeypatch.delenv(name, raising=False)
    assert main(f"lab run drifted --arm A2D {arguments}".split()) == 1
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("{folder}/log.db", "SHELFLIFE_POSTGRES_URL is to begin with postgresql://"),
        ("redis://127.0.0.1:1/0", "SHELFLIFE_POSTGRES_URL is to begin with postgresql://"),
        ("postgresql://127.0.0.1:1/db?schema=mine", "and to name no schema"),
        ("postgresql://me:secret@127.0.0.1:1/db", "cannot be read: connection"),
    ],
)
def test_what_is_no_address_of_an_engine_is_refused_and_nothing_is_touched(
    address, told, tmp_path, monkeypatch, capsys
):
    (tmp_path / "thesis.txt").write_text("years of work")
    monkeypatch.setenv(ADDRESSES["postgres"], address.format(folder=tmp_path))
    assert main("lab run drifted --arm A2D --workers 2 --log postgres".split()) == 1
    error = capsys.readouterr().err
    assert told in error
    assert "secret" not in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_nothing_is_left_in_an_engine(postgres, valkey, monkeypatch, capsys):
    monkeypatch.setenv(ADDRESSES["postgres"], postgres.url)
    monkeypatch.setenv(ADDRESSES["valkey"], valkey.url)
    command = "lab run drifted --arm exact --workers 2 --log postgres --store valkey --agents 2 --json"
    with servers_forked():
        assert main(command.split()) == 0
    [run] = json.loads(capsys.readouterr().out)["runs"]
    assert (run["log"], run["store"], run["retries"]) == ("postgres", "valkey", 7)
    with psycopg.connect(postgres.url) as connection:
        named = connection.execute("select nspname from pg_namespace where nspname like 'lab%'").fetchall()
    with closing(redis.Redis.from_url(valkey.url)) as client:
        assert (named, list(client.scan_iter("*lab-*"))) == ([], [])


@pytest.mark.parametrize("flags", ["--jobs 2", "--workers 2 --log postgres"])
def test_ctrl_c_is_one_sentence_and_leaves_nothing_in_an_engine(flags, postgres, valkey):
    command = f"lab run drifted rules recipes --arm exact --store valkey {flags}".split()
    addresses = {ADDRESSES["postgres"]: postgres.url, ADDRESSES["valkey"]: valkey.url}
    with (
        closing(redis.Redis.from_url(valkey.url)) as client,
        started([*SHELFLIFE, *command], stderr=-1, text=True, env=environment(**addresses)) as process,
    ):
        if "--jobs" in flags:  # while they start
            wait_until(lambda: len(descendants_of(process.pid)) > 1)
        else:
            wait_until(lambda: list(client.scan_iter("*lab-*")))
        process.send_signal(signal.SIGINT)
        told = process.stderr.read()
        assert process.wait() == 130
        assert told.strip() == (
            "shelflife: interrupted: nothing is kept; with --out DIR it could be gone on with"
        )
        if "--jobs" not in flags:
            assert list(client.scan_iter("*lab-*")) == []


@pytest.mark.parametrize(
    "conduct", [Conduct(fresh="feed"), Conduct(form="compact", precondition=True, agents=2)]
)
def test_what_goes_beyond_the_paper_comes_to_the_same_with_workers(conduct):
    with servers_forked():
        alone, by_workers = (
            score_of(recorded("drifted", "exact", Conduct(**{**fields_of(conduct), "workers": count})))
            for count in (1, 2)
        )
    for name in (
        "retries_by_agent",
        "mended",
        "stale_injections",
        "stale_executions",
        "evictions",
        "restamps",
    ):
        assert getattr(by_workers, name) == getattr(alone, name)
    assert by_workers.wire.responses == alone.wire.responses


def fields_of(conduct):
    return {name: getattr(conduct, name) for name in Conduct.__struct_fields__}


def test_the_records_say_how_many_workers_there_were(tmp_path, capsys):
    arguments = f"lab run drifted --arm A2D --workers 2 --json --out {tmp_path}"
    with servers_forked():
        assert main(arguments.split()) == 0
    [run] = json.loads(capsys.readouterr().out)["runs"]
    assert (run["workers"], run["retries"]) == (2, 7)
    [path] = tmp_path.glob("*--2_workers--*.jsonl")
    start = read_records(path)[0]
    assert isinstance(start, RunStarted)
    assert start.spec.conduct.workers == 2


def test_workers_that_do_not_come_to_one_state_are_one_sentence():
    before = {*descendants_of(os.getpid())}
    drift = load("silent").drift[0]
    with (
        served_by_workers("acme", 6, "t", 2) as workers,
        httpx2.Client(base_url=workers.address, trust_env=False) as client,
    ):
        _, *processes = [pid for pid in descendants_of(os.getpid()) if pid not in before]
        assert len(processes) == 2
        os.kill(processes[0], signal.SIGSTOP)
        try:
            told = rf"1 of 2 workers have not come to the state after the drift of episode {drift.after} within 0\.1 s"
            with pytest.raises(LabError, match=told):
                pushed(drift, client, "t", 0.1)
        finally:
            os.kill(processes[0], signal.SIGCONT)


def test_a_run_whose_workers_are_killed_fails_in_one_sentence_and_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()

    before = {*descendants_of(os.getpid())}

    def kill(count):
        for pid in {*descendants_of(os.getpid())} - before:
            with suppress(ProcessLookupError):  # a worker ends with the first process
                os.kill(pid, signal.SIGKILL)

    spec = RunSpec("drifted", "A2D", "compliant", conduct=Conduct(workers=2))
    outcome = execute([spec], tmp_path / "records", on_episodes=kill)
    [failure] = outcome.failures
    assert (outcome.scores, failure.why.count("\n")) == ([], 0)
    assert not list((tmp_path / "scratch").iterdir())


RUN = """
import sys
from contextlib import suppress
from pathlib import Path
from shelflife.lab.grid import execute
from shelflife.lab.spec import ADDRESSES, Conduct, RunSpec

def report(count):
    print("episode", flush=True)
    sys.stdin.readline()

specs = [RunSpec("drifted", arm, "compliant", conduct=Conduct(workers=2)) for arm in ("A1", "A2D")]
if __name__ == "__main__":
    execute(specs, Path(sys.argv[1]), job_count=int(sys.argv[2]), on_episodes=report)
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_lab_that_is_ended_leaves_no_process_and_no_file(tmp_path, ending, jobs):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (tmp_path / "playing.py").write_text(RUN)
    with started(
        [sys.executable, tmp_path / "playing.py", tmp_path / "records", jobs],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(scratch)},
    ) as process:
        assert process.stdout.readline() == b"episode\n"
        children = descendants_of(process.pid)
        assert len(children) >= 3
        assert list(scratch.glob("*/log.db"))
        process.send_signal(ending)
        process.wait()
        wait_until(lambda: not any(map(is_running, children)))
        wait_until(lambda: not list(scratch.glob("*/log.db")))
    assert not any(map(is_running, children))


def test_a_run_that_has_ended_leaves_no_process_and_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = {*descendants_of(os.getpid())}
    with served_by_workers("recipes", 6, "t", 2) as workers:
        assert len({*descendants_of(os.getpid())} - before) >= 3
        assert list(tmp_path.glob("shelflife-lab-*/log.db"))
        assert httpx2.get(f"{workers.address}/contract/state", trust_env=False).status_code == 200
    assert {*descendants_of(os.getpid())} <= before
    assert not list(tmp_path.iterdir())
