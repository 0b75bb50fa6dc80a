"""What can be imported, and what is there without the extras."""

import importlib
from types import SimpleNamespace

import pytest

from tests.nursery import nursery_with
from tests.public_names import PUBLIC


@pytest.mark.parametrize("module", PUBLIC)
def test_the_public_names_are_a_decision(module):
    imported = importlib.import_module(module)
    assert set(imported.__all__) == PUBLIC[module]
    assert all(hasattr(imported, name) for name in imported.__all__)


STANDARD = """
argparse asyncio concurrent.futures.thread ctypes dataclasses datetime decimal email.mime.multipart email.parser fractions
graphlib html.parser http.client http.cookies http.server importlib.metadata importlib.resources inspect ipaddress
json logging.config logging.handlers mimetypes multiprocessing pathlib pickle platform queue random secrets shlex shutil
sqlite3 ssl statistics subprocess tempfile tomllib typing unittest.mock urllib.request uuid xml.etree.ElementTree zoneinfo
"""
"""What Python itself brings and many packages need. It is always there, so no test is about it."""


@pytest.fixture(scope="module")
def run():
    """Runs a program in which these packages cannot be imported, in a process that has imported nothing but Python's own."""
    with nursery_with(*STANDARD.split()) as nursery:

        def run(program, *blocked):
            prelude = f"import sys\nfor name in {blocked!r}: sys.modules[name] = None\n"
            with nursery.forked(prelude + program, is_heard=True) as process:
                stdout, stderr = process.stdout.read(), process.stderr.read()
                return SimpleNamespace(returncode=process.wait(), stdout=stdout, stderr=stderr)

        yield run


EXTRAS = (
    "fastapi",
    "starlette",
    "pydantic",
    "uvicorn",
    "stripe",
    "httpx2",
    "sqlalchemy",
    "litestar",
    "psycopg",
    "redis",
    "flask",
    "werkzeug",
    "django",
    "asgiref",
    "requests",
    "urllib3",
    "aiohttp",
    "httpx",
    "anyio",
    "mcp",
    "mcp_types",
    "fastmcp",
    "opentelemetry",
)
"""What only one part or another needs."""


MCP = ["mcp", "mcp_types", "pydantic", "anyio", "httpx2", "starlette", "opentelemetry"]
"""The SDK, and what it needs itself."""


OTHER_SIDE = {
    "shelflife.integrations.mcp": ["shelflife.client"],
    "shelflife.integrations.mcp_client": ["shelflife.server"],
    "shelflife.integrations.opentelemetry, shelflife.integrations.telemetry_client": ["shelflife.server"],
}
"""What is our own, and yet not needed."""


def test_importing_the_package_does_no_work(run):
    outcome = run(
        "import shelflife; print(*sorted(name for name in sys.modules if name.startswith('shelflife')))"
    )
    assert outcome.stdout.split() == ["shelflife"]


def test_importing_the_client_brings_nothing_that_only_some_memories_need(run):
    of_some = {f"shelflife.{name}" for name in ("client.seen", "client.sqlite", "contract.signed", "habits")}
    imported = run("import shelflife.client; print(*sys.modules)").stdout.split()
    assert "shelflife.client.memory" in imported
    assert of_some.isdisjoint(imported)


@pytest.mark.parametrize(
    ("modules", "needed"),
    [
        ("shelflife.contract, shelflife.client", []),
        ("shelflife.integrations.httpx", ["httpx", "anyio"]),
        ("shelflife.integrations.httpx2", ["httpx2", "anyio"]),
        ("shelflife.integrations.requests", ["requests", "urllib3"]),
        ("shelflife.integrations.aiohttp", ["aiohttp"]),
        ("shelflife.integrations.proxying", ["rpds", "httpx2", "anyio"]),
        ("shelflife.server, shelflife.integrations.asgi, shelflife.integrations.wsgi", ["rpds"]),
        ("shelflife.integrations.flask", ["rpds", "flask", "werkzeug", "asgiref"]),
        ("shelflife.integrations.django", ["rpds", "django", "asgiref"]),
        ("shelflife.integrations.starlette", ["rpds", "starlette", "anyio"]),
        ("shelflife.integrations.litestar", ["rpds", "litestar", "anyio"]),
        ("shelflife.integrations.opentelemetry, shelflife.integrations.telemetry_client", ["opentelemetry"]),
        ("shelflife.integrations.telemetry_server", ["opentelemetry", "rpds"]),
        ("shelflife.integrations.mcp", [*MCP, "rpds"]),
        ("shelflife.integrations.mcp_client", MCP),
        ("shelflife.integrations.fastmcp", [*MCP, "rpds", "fastmcp", "uvicorn"]),
    ],
)
def test_each_part_needs_msgspec_and_what_it_is_for_alone(run, modules, needed):
    outcome = run(f"import {modules}", *({*EXTRAS, "rpds"} - {*needed}), *OTHER_SIDE.get(modules, ()))
    assert (outcome.returncode, outcome.stderr) == (0, "")


FRAMEWORKS = {
    "langchain": ("langchain", "langgraph"),
    "openai_agents": ("agents",),
    "pydantic_ai": ("pydantic_ai",),
    "claude_agent_sdk": ("claude_agent_sdk",),
}


@pytest.mark.parametrize("module", FRAMEWORKS)
def test_the_adapter_of_a_framework_needs_only_its_own(run, module):
    others = {name for other in FRAMEWORKS.keys() - {module} for name in FRAMEWORKS[other]}
    outcome = run(
        f"import shelflife.integrations.{module}", *others, "fastapi", "litestar", "psycopg", "redis"
    )
    assert (outcome.returncode, outcome.stderr) == (0, "")


def test_a_model_planner_without_its_extra_says_what_to_install(run):
    program = """
from shelflife.lab import ModelPlanner
try:
    ModelPlanner("openai/gpt-5-mini")
except Exception as error:
    print(type(error).__name__, error)
"""
    outcome = run(program, *EXTRAS, "inspect_ai", "anyio", "tenacity", "openai")
    assert (outcome.stdout, outcome.stderr) == (
        "PlannerError a model as a planner needs more than is installed: pip install 'shelflife[models]'"
        " (inspect_ai is missing)\n",
        "",
    )


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (["serve", "acme"], "server"),
        (["proxy", "contract.py", "--upstream", "http://127.0.0.1:9000"], "server"),
        (["demo"], "lab"),
        (["lab", "run", "drifted"], "lab"),
    ],
)
def test_a_command_without_its_extra_says_what_to_install(run, command, extra):
    outcome = run(f"from shelflife.cli import main; sys.exit(main({command!r}))", *EXTRAS)
    assert outcome.returncode == 1
    assert outcome.stderr.startswith(
        f"shelflife: this command needs more than is installed: pip install 'shelflife[{extra}]'"
    )
    assert outcome.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("verb", "missing"),
    [("run", "httpx2"), ("run", "uvicorn"), ("check", "splintr"), ("check", "cryptography")],
)
def test_a_command_of_the_lab_that_lacks_one_part_is_told_in_one_line(run, verb, missing):
    outcome = run(f"from shelflife.cli import main; sys.exit(main(['lab', {verb!r}, 'drifted']))", missing)
    assert (outcome.returncode, outcome.stderr.count("\n")) == (1, 1)
    assert "shelflife[lab]" in outcome.stderr


ENGINES = {"postgresql://127.0.0.1:1/x": "postgres", "redis://127.0.0.1:1/0": "redis"}


def test_a_command_about_a_memory_in_an_engine_says_what_to_install(run):
    why = ["http://h", "POST /x"]
    commands = [
        [*command, where, *(why if "why" in command else ())]
        for where in ENGINES
        for command in (["memory", "list"], ["memory", "top"], ["memory", "why"], ["forecast"])
    ]
    outcome = run(f"from shelflife.cli import main\nprint([main(one) for one in {commands!r}])", *EXTRAS)
    assert outcome.stdout == f"{[1] * len(commands)}\n"
    assert [line.partition(" (")[0] for line in outcome.stderr.splitlines()] == [
        f"shelflife: this needs more than is installed: pip install 'shelflife[{extra}]'"
        for extra in ENGINES.values()
        for _ in range(4)
    ]


@pytest.mark.parametrize(
    ("program", "missing", "extra"),
    [
        ("import shelflife.integrations.starlette", "starlette", "server"),
        ("import shelflife.integrations.fastapi", "fastapi", "server"),
        ("import shelflife.integrations.litestar", "litestar", "litestar"),
        ("import shelflife.integrations.flask", "flask", "flask"),
        ("import shelflife.integrations.django", "django", "django"),
        ("import shelflife.integrations.ed25519", "cryptography", "signed"),
        ("import shelflife.integrations.mcp", "mcp", "mcp"),
        ("import shelflife.integrations.mcp_client", "mcp", "mcp"),
        ("import shelflife.integrations.fastmcp", "fastmcp", "fastmcp"),
        ("import shelflife.testing", "uvicorn", "server"),
        (
            "from shelflife.server import Provider; Provider({}, log='postgresql://h/x')",
            "psycopg",
            "postgres",
        ),
        ("import shelflife.integrations.httpx2", "httpx2", "httpx2"),
        ("import shelflife.integrations.httpx", "httpx", "httpx"),
        ("import shelflife.integrations.requests", "requests", "requests"),
        ("import shelflife.integrations.aiohttp", "aiohttp", "aiohttp"),
        ("import shelflife.integrations.claude_agent_sdk", "claude_agent_sdk", "claude-agent-sdk"),
        ("import shelflife.integrations.langchain", "langchain", "langchain"),
        ("import shelflife.integrations.openai_agents", "agents", "openai-agents"),
        ("import shelflife.integrations.pydantic_ai", "pydantic_ai", "pydantic-ai"),
        ("from shelflife.lab import play", "httpx2", "lab"),
    ],
)
def test_a_part_that_is_missing_is_told_with_the_extra_that_brings_it(run, program, missing, extra):
    outcome = run(program, missing, *({"mcp", "mcp_types"} if missing == "fastmcp" else ()))
    told = outcome.stderr.strip().rpartition("\n")[2]
    assert told == (
        f"ModuleNotFoundError: this needs more than is installed: pip install 'shelflife[{extra}]'"
        f" ({missing} is missing)"
    )


@pytest.mark.parametrize("module", ["shelflife.server", "shelflife.integrations.flask"])
def test_what_every_extra_for_a_server_brings_is_told_with_all_of_them(run, module):
    told = run(f"import {module}", "rpds").stderr.strip().rpartition("\n")[2]
    assert told == (
        "ModuleNotFoundError: this needs more than is installed: pip install 'shelflife[server]'"
        " (rpds is missing; litestar, flask, django, mcp and fastmcp bring it too)"
    )
