"""The recipes of the guide do what it says: each program runs as it stands there, in a process of its own."""

import os
import subprocess
import sys

import pytest

from tests.agents.capabilities import table
from tests.agents.scripted import DONE, KEY
from tests.document_programs import ROOT, document_programs
from tests.processes import started

GUIDE = (ROOT / "docs" / "frameworks.md").read_text("utf-8")
AGAIN_AND_AGAIN = (
    "import runpy, sys\nfor line in sys.stdin:\n    runpy.run_path(line.strip())\n    sys.stdout.flush()\n"
)
GLUE = ("memory", "Memory", "Tools", "shelflife")
MOST_GLUE = 10


def played(program, tmp_path, server, model):
    """Run a program four times in one process, with a rotation in the middle. Tells what the server saw each time."""
    for name in ("billing_tool.py", program):
        text = document_programs()[name][1].replace("http://127.0.0.1:8000", server.address)
        (tmp_path / name).write_text(text, "utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "OPENAI_BASE_URL": f"{model.address}/v1",
        "OPENAI_API_KEY": KEY,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "ANTHROPIC_BASE_URL": model.address,
        "ANTHROPIC_API_KEY": KEY,
        "HOME": str(tmp_path),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    command = [sys.executable, "-c", AGAIN_AND_AGAIN]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    counts = []
    with started(command, cwd=tmp_path, env=environment, **pipes) as process:
        for episode in range(4):
            if episode == 2:
                server.rotate()
            before = len(server.seen)
            process.stdin.write(f"{program}\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"{DONE}\n"
            counts.append(len(server.seen) - before)
    return counts


@pytest.mark.runs("langchain_agent.py", "openai_agent.py", "pydantic_agent.py", "claude_agent.py")
@pytest.mark.parametrize(
    "program", ["langchain_agent.py", "openai_agent.py", "pydantic_agent.py", "claude_agent.py"]
)
def test_the_recipe_of_a_framework_learns_applies_and_evicts(program, tmp_path, server, model):
    lines = document_programs()[program][1].splitlines()
    assert len([line for line in lines if any(word in line for word in GLUE)]) <= MOST_GLUE
    assert played(program, tmp_path, server, model) == [2, 1, 2, 1]


@pytest.mark.runs("billing_tool.py")
def test_the_recipe_of_a_function_does_the_same(tmp_path, server):
    text = document_programs()["billing_tool.py"][1].replace("http://127.0.0.1:8000", server.address)
    call = 'print(remembering("cus_1", "plan_partner_growth", 100, "usd", "acme_pm_visa_credit")[:15])\n'
    command = [sys.executable, "-c", text + call]
    said = [
        subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True) for _ in range(2)
    ]
    assert [one.stdout for one in said] == ['{"success":fals\n', '{"success":true\n']


def test_the_guide_says_of_each_framework_what_the_suite_holds_it_to():
    assert table() in GUIDE
