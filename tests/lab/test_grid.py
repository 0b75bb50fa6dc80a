"""Many runs: each in a file of its own, none played twice, and all of them ended by Ctrl-C."""

import contextlib
import os
import signal
import subprocess
import sys

import httpx2
import pytest

from shelflife.lab import grid
from shelflife.lab.grid import execute, file_name_of, scores_in
from shelflife.lab.planners import PlannerError, Proposal, Usage
from shelflife.lab.planners.simulated import simulated_planner
from shelflife.lab.records import Model, RunStarted, read_records
from shelflife.lab.scenarios import load
from shelflife.lab.spec import RunSpec
from tests.lab.small_stream import SMALL
from tests.processes import started


def written(path, text=SMALL):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return str(path)


def test_runs_that_differ_have_files_that_differ(tmp_path):
    one = written(tmp_path / "one" / "same.toml")
    other = written(tmp_path / "other" / "same.toml", SMALL.replace("Again.", "Once more."))
    specs = [
        RunSpec(one, "A2D", "compliant"),
        RunSpec(other, "A2D", "compliant"),
        RunSpec(one, "A2D", "openai/x:y"),
        RunSpec(one, "A2D", "openai/x/y"),
        RunSpec(one, "A2D", "seeded:" + ",".join(["add=0.5"] * 100)),
        RunSpec(one, "A2D", "seeded:" + ",".join(["add=0.5"] * 101)),
    ]
    names = [file_name_of(spec, load(spec.stream)) for spec in specs]
    names.append(file_name_of(specs[3], load(one), "http://127.0.0.1:1"))
    assert len(set(names)) == len(specs) + 1
    assert max(len(name.encode()) for name in names) < 200
    assert all(name.isascii() and "/" not in name for name in names)


def test_more_patience_goes_on_with_the_same_file(tmp_path):
    spec, found = RunSpec(written(tmp_path / "small.toml"), "A0", "compliant"), []
    execute([spec], tmp_path / "records")
    execute([spec], tmp_path / "records", timeout_s=600, on_found=found.append)
    assert found == [2]


def test_runs_that_are_the_same_are_played_once(tmp_path):
    one, copy = written(tmp_path / "one.toml"), written(tmp_path / "copy.toml")
    specs = [
        RunSpec(one, "A2D", "compliant"),
        RunSpec(one, "A2D", "compliant"),
        RunSpec(copy, "A2D", "compliant"),
    ]
    outcome = execute(specs, tmp_path / "records", job_count=2)
    assert (len(outcome.scores), outcome.failures) == (1, [])
    [path] = (tmp_path / "records").iterdir()
    assert sum(isinstance(record, RunStarted) for record in read_records(path)) == 1


def test_a_stream_that_was_edited_is_played_again(tmp_path):
    stream = written(tmp_path / "small.toml")
    [before] = execute([RunSpec(stream, "A0", "compliant")], tmp_path / "records").scores
    written(tmp_path / "small.toml", SMALL.replace('order = ["a", "b"]', 'order = ["a", "b", "b"]'))
    [after] = execute([RunSpec(stream, "A0", "compliant")], tmp_path / "records").scores
    assert (before.episodes, after.episodes) == (2, 3)
    assert before.digest != after.digest


def test_records_of_another_run_are_not_taken_for_this_one(tmp_path):
    mine, other = (RunSpec("undrifted", "A0", "compliant", seed) for seed in (0, 1))
    execute([other], tmp_path)
    scenario = load("undrifted")
    (tmp_path / file_name_of(other, scenario)).rename(tmp_path / file_name_of(mine, scenario))
    [score] = execute([mine], tmp_path).scores
    assert score.spec.seed == 0


def test_a_run_whose_records_are_damaged_fails_alone(tmp_path):
    specs = [RunSpec("undrifted", "A0", "compliant", seed) for seed in (0, 1)]
    (tmp_path / file_name_of(specs[0], load("undrifted"))).write_text("nonsense\n")
    outcome = execute(specs, tmp_path)
    assert [score.spec.seed for score in outcome.scores] == [1]
    [failure] = outcome.failures
    assert failure.spec == specs[0]
    assert "line 1, is no record" in failure.why


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (RuntimeError("no server started"), "no server started"),
        (OSError(24, "Too many open files"), "[Errno 24] Too many open files"),
        (httpx2.ReadTimeout(""), "ReadTimeout"),
    ],
)
def test_a_run_whose_server_does_not_start_or_answer_fails_alone(tmp_path, monkeypatch, error, why):
    played = []

    def play(*args, **options):
        played.append(args[0])
        if len(played) == 1:
            raise error
        return grid_play(*args, **options)

    grid_play = grid.play
    monkeypatch.setattr(grid, "play", play)
    outcome = execute([RunSpec("undrifted", "A0", "compliant", seed) for seed in (0, 1)], tmp_path)
    assert [score.spec.seed for score in outcome.scores] == [1]
    assert [failure.why for failure in outcome.failures] == [why]


class Answering:
    """A planner that a vendor serves under a name, and that counts."""

    name, kind = "answering", "model"

    def __init__(self, probed, served=None):
        self.probed, self.served = probed, served or probed
        self.count = 0
        self.inner = simulated_planner("compliant", 0, frozenset())

    def propose(self, messages):
        self.count += 1
        if self.count > 30:
            raise PlannerError("the vendor is gone")
        return Proposal(self.inner.propose(messages).text, Usage(1, 1, "vendor"), self.served)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (Answering("model-1"), Answering("model-1")),
        (Answering("model-1", "one of several"), Answering("model-1", "one of several")),
        (Answering("model-1"), Answering("model-2")),
    ],
    ids=["the same", "one whose answers bear another name than its probe", "another"],
)
def test_answers_are_used_again_only_if_the_same_model_is_served(tmp_path, monkeypatch, first, then):
    spec = RunSpec("undrifted", "exact", "answering")
    planners = [first, then]

    @contextlib.contextmanager
    def planner_for(*args):
        planner = planners.pop(0)
        yield planner, Model("model", planner.probed)

    monkeypatch.setattr(grid, "planner_for", planner_for)
    [failure] = execute([spec], tmp_path).failures
    assert failure.why == "the vendor is gone"
    outcome = execute([spec], tmp_path)
    if then.probed == first.probed:
        [score] = outcome.scores
        assert score.model == Model("model", first.served)
        assert then.count == score.episodes + score.retries - 30
    else:
        assert then.count == 31  # as far as the first time, and the vendor is gone again


MANY = """
import multiprocessing, signal, sys
from pathlib import Path
from shelflife.lab.spec import Conduct
from shelflife.lab.spec import RunSpec
from shelflife.lab.grid import execute

def report(count):
    print(*(job.pid for job in multiprocessing.active_children()), flush=True)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored
    two = Conduct(agents=2)  # they share a file
    specs = [RunSpec("drifted", "A2D", "compliant", seed, conduct=two) for seed in range(100)]
    outcome = execute(specs, Path(sys.argv[1]), job_count=2, on_episodes=report)
    print({failure.why for failure in outcome.failures}, flush=True)
"""

LONGEST_END_S = 120


@contextlib.contextmanager
def many(folder):
    """A hundred runs in two jobs, the first episode of which has been played; and the ids of the jobs.

    They all write to the same pipe, so it ends when the last of them has.
    """
    program = folder.parent / "many.py"
    program.write_text(MANY)
    scratch = folder.parent / "scratch"
    scratch.mkdir()
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    piped["env"] = {**os.environ, "TMPDIR": str(scratch)}
    with started([sys.executable, program, folder], **piped, start_new_session=True) as process:
        try:
            jobs = [int(pid) for pid in process.stdout.readline().split()]
            assert len(jobs) == 2
            yield process, jobs
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # whoever has outlived the main process


def stopped(process, records):
    """Hold all of them, so that none goes on while the test looks: how many runs they have begun."""
    os.killpg(process.pid, signal.SIGSTOP)
    return len(list(records.iterdir()))


def test_ctrl_c_ends_the_runs_and_leaves_no_process_and_no_file_but_records(tmp_path):
    with many(tmp_path / "records") as (process, _):
        begun_count = stopped(process, tmp_path / "records")
        os.killpg(process.pid, signal.SIGINT)
        os.killpg(process.pid, signal.SIGCONT)
        _, told = process.communicate(timeout=LONGEST_END_S)
    assert process.returncode == -signal.SIGINT
    assert len(list((tmp_path / "records").iterdir())) <= begun_count + 2
    assert told.count("Traceback") == 1, told
    assert told.rstrip().endswith("KeyboardInterrupt")
    assert list((tmp_path / "scratch").iterdir()) == []


def test_jobs_end_when_the_main_process_is_killed(tmp_path):
    with many(tmp_path / "records") as (process, _):
        begun_count = stopped(process, tmp_path / "records")
        process.kill()
        os.killpg(process.pid, signal.SIGCONT)
        process.communicate(timeout=LONGEST_END_S)
    assert len(list((tmp_path / "records").iterdir())) <= begun_count + 2


def test_a_job_that_dies_makes_failures_and_no_traceback(tmp_path):
    with many(tmp_path / "records") as (process, jobs):
        os.kill(jobs[0], signal.SIGKILL)
        out, told = process.communicate(timeout=LONGEST_END_S)
    assert (process.returncode, told) == (0, "")
    assert "a process that plays runs has died" in out
    assert len(scores_in(tmp_path / "records")) < 100
