"""A planner of one's own is put into a run with public names alone."""

import json
import subprocess
import sys

import pytest

from shelflife.cli import main
from shelflife.lab import LabError, Proposal, RunSpec, Usage, play, score_of
from tests.document_programs import document_programs


class Stubborn:
    """Sends the first JSON object that it is shown, and learns nothing from answers."""

    name = "stubborn"
    kind = "model"

    def propose(self, messages):
        task = messages[1].content
        request, _ = json.JSONDecoder().raw_decode(task, task.index("{"))
        return Proposal(json.dumps(request), Usage(100, 10, "vendor"), served="stubborn-1")


def test_a_planner_of_ones_own_is_put_into_a_run():
    spec, records = RunSpec("undrifted", "A2D", "stubborn", seed=2), []
    play(spec, Stubborn(), records.append)
    score = score_of(records)
    assert (score.spec, score.planner_kind, score.tuned_to) == (spec, "model", None)
    assert (score.episodes, score.tokens.source) == (36, "vendor")
    assert score.tokens.prompt == 100 * (36 + score.retries)
    # it follows no answer, so what it completes beyond the nine free tasks is the memory's doing
    assert score.completed == score.first_try > 9


def test_a_planner_bears_the_name_that_the_run_is_recorded_under():
    with pytest.raises(LabError, match="the run is one of 'compliant', and its planner is called 'stubborn'"):
        play(RunSpec("undrifted", "A2D", "compliant"), Stubborn(), lambda record: None)


@pytest.mark.runs("merging.py")
def test_the_planner_of_the_documents_plays_and_is_reported(tmp_path, monkeypatch):
    document, program = document_programs()["merging.py"]
    monkeypatch.chdir(tmp_path)
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert f"It prints `{printed.strip()}`" in document.read_text("utf-8")
    assert main(["lab", "report", "records"]) == 0
    assert "merging" in (tmp_path / "records" / "exhibits" / "ladder.md").read_text("utf-8")
