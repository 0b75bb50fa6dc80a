"""The tutorials can be followed as they are written: each program and each command, in their order."""

import sys
from pathlib import Path

import pytest

from tests.tutorials import Reader, set_up_of


@pytest.mark.runs("before.py", "api.py", "client.py", "test_api.py")
def test_the_tutorial_for_providers_leads_to_a_rotation_survived(tmp_path):
    Reader(tmp_path, Path(sys.executable).parent).follow("provider.md")


@pytest.mark.runs("task.py", "forgetful.py", "remembering.py", "careful.py")
def test_the_tutorial_for_agent_builders_leads_to_a_rotation_survived(tmp_path):
    Reader(tmp_path, Path(sys.executable).parent).follow("agent.md")


@pytest.mark.parametrize("tutorial", ["provider.md", "agent.md"])
def test_a_tutorial_says_how_to_set_up(tutorial):
    assert len(set_up_of(tutorial)) == 4
