"""`shelflife lab` and the second half of the demo: what they keep, what they say, and what they say when it goes wrong."""

import io
import json
import re
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from shelflife.cli import demo_ladder, main, progress
from shelflife.cli.progress import Progress
from shelflife.cli.tables import counted
from shelflife.lab import grid
from shelflife.lab.records import Model
from shelflife.lab.scores import ForeseenTenth
from shelflife.lab.spec import RunSpec
from tests.lab.planners import Counting

LAB = (Path(__file__).parents[2] / "docs" / "explanation" / "lab.md").read_text("utf-8")


def documented(opening):
    """The fields that a paragraph of the documentation names, and those that it names in brackets after one of them."""
    paragraph = LAB.partition(opening)[2].partition("\n\n")[0]
    nested = {
        name: set(re.findall(r"`(\w+)`", within))
        for name, within in re.findall(r"`(\w+)` \(([^()]*)\)", paragraph)
    }
    return set(re.findall(r"`(\w+)`", re.sub(r"\([^()]*\)", "", paragraph))), nested


def test_the_json_of_runs_has_exactly_the_documented_fields(capsys):
    assert main("lab run drifted --arm A2D --json".split()) == 0
    [run] = json.loads(capsys.readouterr().out)["runs"]
    names, nested = documented("`shelflife lab run … --json` prints")
    assert names == set(run)
    first = {name: value[0] if isinstance(value, list) and value else value for name, value in run.items()}
    fields = {name: set(value) for name, value in first.items() if isinstance(value, dict) and name in nested}
    null_here = {"model", "foreseen"}
    assert fields == {name: within for name, within in nested.items() if within and name not in null_here}
    assert nested["model"] == {"requested", "served"}
    assert nested["foreseen"] == {*ForeseenTenth.__struct_fields__}


def test_the_json_of_a_preflight_has_exactly_the_documented_fields(capsys):
    assert main("lab preflight --planner compliant --trials 1 --json".split()) == 0
    found = json.loads(capsys.readouterr().out)
    names, _ = documented("`shelflife lab preflight … --json` prints")
    shape = found["shapes"][0]
    assert names == {*found, *shape, *shape["findings"][0]}


def test_a_grid_keeps_its_records_and_says_where(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(grid, "paper_grid", lambda: [RunSpec("undrifted", "A2D", "sim:gpt-5-mini")])
    further = [RunSpec("undrifted", arm, "compliant") for arm in ("A0", "A2D")]
    monkeypatch.setattr(grid, "further_runs", lambda: further)
    assert main("lab grid --jobs 1".split()) == 0
    shown = capsys.readouterr().out
    assert "1 run, 36 episodes (simulated, tuned to the paper)" in shown
    assert "2 runs, 72 episodes (deterministic)" in shown
    assert "records are in shelflife-grid" in shown
    assert len(list((tmp_path / "shelflife-grid").glob("*.jsonl"))) == 3


def test_a_grid_of_which_every_run_failed_has_no_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(grid, "paper_grid", lambda: [RunSpec("undrifted", "A2D", "sim:hal")])
    monkeypatch.setattr(grid, "further_runs", list)
    assert main("lab grid --jobs 1".split()) == 1
    shown = capsys.readouterr()
    assert "episodes" not in shown.out
    assert "1 run could not be played to its end; the same command goes on from shelflife-grid" in shown.err


def test_what_a_model_answered_is_kept_without_being_asked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main("lab run undrifted --arm A0 --arm A1 --planner nobody/nothing".split()) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("records are kept in shelflife-lab\n")
    assert "2 runs could not be played to their end; the same command goes on from shelflife-lab" in shown.err


def test_a_planner_that_there_is_not_is_answered_with_those_that_there_are(capsys):
    for arguments in ("lab run drifted --planner complaint", "lab preflight --planner complaint"):
        assert main(arguments.split()) == 1
        error = capsys.readouterr().err
        assert "there is no planner 'complaint'; there are compliant, compliant-last, conservative" in error
        assert "sim:claude-haiku-4-5" in error
        assert "models as in vendor/model" in error


def test_a_failure_without_records_does_not_promise_to_go_on(monkeypatch, capsys):
    def failing(specs, folder, **settings):
        return grid.Outcome([], [grid.Failure(specs[0], "the server is gone")])

    monkeypatch.setattr(grid, "execute", failing)
    assert main("lab run undrifted --arm A0".split()) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "undrifted compliant A0: the server is gone" in shown.err
    assert "nothing was kept: with --out DIR the same command goes on" in shown.err


def interrupted_at(episode_count, monkeypatch):
    """Ctrl-C is pressed when so many episodes have been played."""
    done = iter(range(1, episode_count + 1))

    def advance(self, count):
        if next(done) == episode_count:
            raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "advance", advance)


def test_ctrl_c_says_how_much_is_kept_and_how_to_go_on(tmp_path, monkeypatch, capsys):
    command = ["lab", "run", "undrifted", "--arm", "A0", "--arm", "A1", "--out", str(tmp_path)]
    with monkeypatch.context() as patched:
        interrupted_at(40, patched)
        assert main(command) == 130
    told = capsys.readouterr().err.strip()
    assert told == (
        f"shelflife: interrupted: {tmp_path} keeps 1 of 2 runs whole; the same command goes on from there"
    )
    assert main(command) == 0


def test_ctrl_c_counts_what_a_model_has_answered(tmp_path, monkeypatch, capsys):
    @contextmanager
    def planner_for(*args):
        planner = Counting()
        planner.name = "vendor/counting"
        yield planner, Model("vendor/counting", "counting-1")

    monkeypatch.setattr(grid, "planner_for", planner_for)
    interrupted_at(3, monkeypatch)
    run = "lab run undrifted --arm A0 --planner vendor/counting --out".split()
    assert main([*run, str(tmp_path)]) == 130
    told = f"{tmp_path} keeps 0 of 1 run whole, and 5 answers of a model to another; the same command goes on"
    assert told in capsys.readouterr().err


def test_ctrl_c_without_records_says_that_nothing_is_kept(monkeypatch, capsys):
    interrupted_at(3, monkeypatch)
    assert main("lab run undrifted --arm A0".split()) == 130
    assert "interrupted: nothing is kept; with --out DIR it could be gone on with" in capsys.readouterr().err


def test_ctrl_c_in_a_preflight_says_that_nothing_is_kept(monkeypatch, capsys):
    interrupted_at(3, monkeypatch)
    assert main("lab preflight --planner compliant --trials 2".split()) == 130
    assert "interrupted: a preflight keeps nothing, and begins anew" in capsys.readouterr().err


def play_instead(monkeypatch, *specs):
    """Have the demo play these runs and not its own."""
    monkeypatch.setattr(
        demo_ladder, "execute", lambda _, folder, **settings: grid.execute(specs, folder, **settings)
    )


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (RunSpec("undrifted", "A9", "compliant"), "there is no arm 'A9'"),
        (
            RunSpec("undrifted", "A1", "sim:hal"),
            "undrifted could not be played by sim:hal with A1: there is no preset",
        ),
    ],
)
def test_a_demo_that_cannot_play_says_why_in_one_sentence(spec, told, monkeypatch, tmp_path, capsys):
    play_instead(monkeypatch, spec)
    assert main(["demo", "--out", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("shelflife: ")
    assert told in error
    assert error.count("\n") == 1


def test_a_demo_without_what_the_report_needs_says_what_to_install(monkeypatch, tmp_path, capsys):
    shown, applied = (
        RunSpec("drifted", "A2D", "conservative", consume=consume) for consume in ("3", "apply")
    )
    play_instead(monkeypatch, shown, applied)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["demo", "--out", str(tmp_path)]) == 1
    assert "pip install 'shelflife[lab]'" in capsys.readouterr().err


def test_things_are_counted_as_people_do():
    assert (counted(1, "run"), counted(2, "run"), counted(0, "run")) == ("1 run", "2 runs", "0 runs")


class Terminal(io.StringIO):
    def isatty(self):
        return True

    @property
    def line(self):
        return self.getvalue().rpartition("\x1b[K")[2]


class Clock:
    now = 100.0

    def monotonic(self):
        return self.now


def at_a_terminal(monkeypatch):
    """A terminal and a clock. No fixture: pytest puts its own standard error in place after those were made."""
    terminal, clock = Terminal(), Clock()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "time", clock)
    return terminal, clock


def test_progress_that_begins_with_nothing_promises_nothing(monkeypatch):
    terminal, _ = at_a_terminal(monkeypatch)
    Progress(10, "episodes").advance(0)
    assert terminal.line.endswith(" 0 of 10 episodes")


def test_what_was_there_already_does_not_count_as_speed(monkeypatch):
    terminal, clock = at_a_terminal(monkeypatch)
    bar = Progress(100, "episodes")
    bar.find(90)
    assert terminal.line.endswith(" 90 of 100 episodes")
    clock.now += 10
    bar.advance(1)
    assert terminal.line.endswith(" 91 of 100 episodes, about 90 s left")


def test_runs_that_are_there_already_are_told_as_found(monkeypatch, tmp_path):
    terminal, _ = at_a_terminal(monkeypatch)
    arguments = ["lab", "run", "undrifted", "--arm", "A0", "--out", str(tmp_path)]
    assert main(arguments) == 0
    assert main(arguments) == 0
    assert " 36 of 36 episodes\r" in terminal.getvalue()
