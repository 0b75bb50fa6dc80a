"""The recipes of the guide do what it says: each program runs as it stands there, in a process of its own."""

import pytest

from tests.agents.capabilities import table
from tests.agents.scripted import DONE, KEY, PROMPTS
from tests.document_programs import ROOT, document_programs
from tests.nursery import nursery_with

GUIDE = (ROOT / "docs" / "guides" / "frameworks.md").read_text("utf-8")
AGAIN_AND_AGAIN = """
import os, runpy, sys
sys.path.insert(0, os.getcwd())
for line in sys.stdin:
    runpy.run_path(line.strip())
    sys.stdout.flush()
"""
GLUE = ("memory", "Memory", "Tools", "shelflife")
MOST_GLUE = 10


@pytest.fixture(scope="module")
def frameworks():
    """Where processes are forked that need not import their framework first."""
    modules = (
        "langchain.agents",
        "langchain_openai",
        "agents",
        "pydantic_ai.models.openai",
        "claude_agent_sdk",
    )
    with nursery_with(*modules) as started:
        yield started


@pytest.fixture
def played(frameworks, tmp_path, server, model, monkeypatch):
    """Run a program five times in one process: another row changes after the first, and the code after the third. Tells what the server saw."""
    variables = {
        "OPENAI_BASE_URL": f"{model.address}/v1",
        "OPENAI_API_KEY": KEY,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "ANTHROPIC_BASE_URL": model.address,
        "ANTHROPIC_API_KEY": KEY,
        "HOME": str(tmp_path),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    def played(program, text):
        tools = {name: text for name, (_, text) in document_programs().items() if name.endswith("_tool.py")}
        for name, source in {**tools, program: text}.items():
            (tmp_path / name).write_text(source.replace("http://127.0.0.1:8000", server.address), "utf-8")
        counts = []
        with frameworks.forked(AGAIN_AND_AGAIN) as process:
            for change in (None, server.change_another_row, None, server.rotate, None):
                if change is not None:
                    change()
                before = len(server.seen)
                process.stdin.write(f"{program}\n")
                process.stdin.flush()
                assert process.stdout.readline() == f"{DONE}\n"
                counts.append(len(server.seen) - before)
        return counts

    return played


PROGRAMS = ["langchain_agent.py", "openai_agent.py", "pydantic_agent.py", "claude_agent.py"]


@pytest.mark.runs(
    "their_tool.py", "langchain_agent.py", "openai_agent.py", "pydantic_agent.py", "claude_agent.py"
)
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_recipe_of_a_framework_learns_applies_and_evicts_what_a_change_touches(program, played):
    text = document_programs()[program][1]
    assert len([line for line in text.splitlines() if any(word in line for word in GLUE)]) <= MOST_GLUE
    assert played(program, text) == [2, 1, 1, 2, 1]


BY_LINE = {
    "LangChain": """\
from langchain.agents import create_agent
print({line}.invoke({{"messages": [("user", "{prompt}")]}})["messages"][-1].content)
""",
    "OpenAI Agents SDK": """\
from agents import Agent, Runner, function_tool
print(Runner.run_sync({line}, "{prompt}").final_output)
""",
    "Pydantic AI": """\
from pydantic_ai import Agent
print({line}.run_sync("{prompt}").output)
""",
}


@pytest.mark.runs("billing_tool.py")
@pytest.mark.parametrize("framework", BY_LINE)
def test_a_decorated_function_needs_no_adapter(framework, played):
    [line] = [line.strip() for line in GUIDE.splitlines() if line.endswith(f"  # {framework}")]
    agent = line.removesuffix(f"  # {framework}")
    text = "from billing_tool import subscribe\n" + BY_LINE[framework].format(
        line=agent, prompt=PROMPTS["subscribe"]
    )
    assert played("agent.py", text) == [2, 1, 1, 2, 1]


def test_the_guide_says_of_each_framework_what_the_suite_holds_it_to():
    assert table() in GUIDE
