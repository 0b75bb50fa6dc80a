"""What a forge runs is what anybody can run here: make targets, and nothing that names a place."""

import re

import pytest
import yaml

from tests.document_programs import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FILES = [*WORKFLOWS, ROOT / ".pre-commit-config.yaml"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def steps_of(workflow):
    jobs = yaml.safe_load(workflow.read_text("utf-8"))["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_make_targets_that_there_are(workflow):
    runs = [step["run"] for step in steps_of(workflow) if "run" in step and step["run"] != "pip install uv"]
    assert runs
    assert {run.removeprefix("make ") for run in runs} <= TARGETS


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_the_actions_of_a_workflow_have_a_version_each(workflow):
    used = [step["uses"] for step in steps_of(workflow) if "uses" in step]
    assert [action for action in used if not re.fullmatch(r"[\w-]+/[\w-]+@v\d+\.\d+\.\d+", action)] == []


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_no_such_file_names_an_address(file):
    assert "://" not in file.read_text("utf-8")


def test_the_makefile_says_what_each_target_does():
    told = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert told == TARGETS
