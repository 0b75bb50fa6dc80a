"""The programs of the documents do what the documents say, each against a real server, and commands print what is shown."""

import ast
import asyncio
import contextlib
import importlib
import io
import itertools
import json
import os
import re
import runpy
import subprocess
import sys

import httpx2
import pytest
from fastapi import FastAPI
from starlette.responses import PlainTextResponse

from shelflife.apis.acme import ROTATED_CODES, acme_app, acme_provider
from shelflife.cli import main
from shelflife.client import Exchange, Guard, Reply
from shelflife.client.events import Distrusted
from shelflife.integrations.fastapi import install
from shelflife.integrations.httpx2 import MemoryTransport
from shelflife.testing import serving
from tests.acme_world import FUNDING_1, GOVERNED, bump
from tests.calling import calling
from tests.document_programs import ROOT, document_blocks, document_programs, write_programs
from tests.integrations.serving_wsgi import calling_wsgi
from tests.processes import started

README = (ROOT / "README.md").read_text("utf-8")
ADA = {"Authorization": "Bearer ada"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where a reader has saved the programs, and nothing else. It is the current folder, and can be imported from."""
    write_programs(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in document_programs():
        sys.modules.pop(name.removesuffix(".py"), None)


def shown_after(sentence):
    """The lines of output that the README shows next after a sentence."""
    return README.partition(sentence)[2].partition("```text\n")[2].partition("```")[0].splitlines()


def test_the_readme_shows_what_the_demo_says(tmp_path):
    command = [sys.executable, "-u", "-m", "shelflife.cli", "demo", "--out", tmp_path / "out"]
    where_it_leaves_what_it_began = os.environ | {"TMPDIR": str(tmp_path)}
    with started(command, stdout=subprocess.PIPE, text=True, env=where_it_leaves_what_it_began) as demo:
        story = itertools.takewhile(lambda line: "exactly as long as" not in line, demo.stdout)
        said = iter(
            [line.rstrip("\n") for line in story]
        )  # the story of one fix; whole streams come after it
    expected = shown_after("`shelflife demo` plays this")
    assert len(expected) > 10
    assert [line for line in expected if line not in said] == []  # each after the one before


def test_the_readme_shows_what_the_lab_says(capsys):
    assert main("lab run drifted".split()) == 0
    said = capsys.readouterr().out.splitlines()
    assert shown_after("shelflife lab run drifted") == said[:5]


def output_of(program, address):
    """What a program prints when its server is at this address."""
    command = [sys.executable, "-c", program.replace("http://127.0.0.1:8000", address)]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    return outcome.stdout.strip()


@pytest.mark.runs("shop.py")
def test_the_readme_gives_a_provider_about_ten_lines_and_they_work(folder):
    lines = [line for line in (folder / "shop.py").read_text("utf-8").splitlines() if line.strip()]
    assert len(lines) <= 22
    [answer] = re.findall(r"^```json\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    with calling(importlib.import_module("shop").app) as client:
        refused = client.post("/subscriptions", json={"plan": "growth"})
        assert refused.json() == json.loads(answer)
        [suggestion] = refused.json()["recovery_feedback"]["suggestions"]
        made = client.post("/subscriptions", json={"plan": "growth", **suggestion["parameters"]})
        assert made.status_code == 200
        assert set(made.json()["table_versions"]) == {"codes"}


@pytest.mark.runs("agent.py")
def test_the_agent_of_the_readme_learns_uses_and_replaces_a_fix(folder):
    program = (folder / "agent.py").read_text("utf-8")
    provider = acme_provider()
    with serving(acme_app(provider)) as address:

        def run():
            return ast.literal_eval(output_of(program, address))

        assert [run(), run()] == [(2, "SUMMERSALE25"), (1, "SUMMERSALE25")]
        provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES)
        assert [run(), run()] == [(2, "WINTERLAUNCH26"), (1, "WINTERLAUNCH26")]


@pytest.mark.runs("loop.py")
def test_the_loop_written_by_hand_does_the_same(folder):
    document = ROOT / "docs" / "guides" / "agents.md"
    loop = next(text for name, _, text in document_blocks(document) if name == "loop.py")
    provider = acme_provider()
    with serving(acme_app(provider)) as address:
        first, second = (output_of(loop, address) for _ in range(2))
        assert f"The first run prints `{first}`, the second `{second}`." in document.read_text("utf-8")
        *_, block, input, amended = output_of((folder / "loop.py").read_text(), address).split("\n\n")
        assert '{"promo_code":"SUMMERSALE25"}' in block + input
        assert amended == "[{'promo_code': 'SUMMERSALE25'}] []"
        provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES)
        assert output_of(loop, address) == "(2, 'WINTERLAUNCH26')"


@pytest.mark.runs("one_line.py")
def test_one_line_gives_a_client_a_memory(folder):
    names = runpy.run_path("one_line.py")
    with names["client"] as client, serving(acme_app(acme_provider())) as address:
        for expected in (422, 201):
            assert client.post(f"{address}/subscriptions", json=GOVERNED).status_code == expected


@pytest.mark.runs("requests_agent.py")
def test_one_line_gives_a_session_of_requests_a_memory(folder):
    session = runpy.run_path("requests_agent.py")["session"]
    session.trust_env = False
    with session, serving(acme_app(acme_provider())) as address:
        statuses = [session.post(f"{address}/subscriptions", json=GOVERNED).status_code for _ in range(2)]
    assert statuses == [422, 201]


@pytest.mark.runs("aiohttp_agent.py")
def test_one_line_gives_a_session_of_aiohttp_a_memory(folder):
    async def story(address):
        statuses = []
        async with runpy.run_path("aiohttp_agent.py")["session"]() as session:
            for _ in range(2):
                async with session.post(f"{address}/subscriptions", json=GOVERNED) as response:
                    await response.read()
                    statuses.append(response.status)
        return statuses

    with serving(acme_app(acme_provider())) as address:
        assert asyncio.run(story(address)) == [422, 201]


@pytest.mark.runs("sdk_agent.py")
def test_one_line_gives_an_sdk_a_memory(folder):
    """What it does with a vendor's API is in tests of the transports."""
    names = runpy.run_path("sdk_agent.py")
    assert names["sdk"]._client is names["client"]
    names["client"].close()


@pytest.mark.runs("pinned.py")
def test_the_guide_pins_a_key(folder):
    memory = runpy.run_path("pinned.py")["memory"]
    said = Reply(200, b'{"table_versions": {"t": "1"}}', {"content-type": "application/json"})
    [event] = memory.observe(Exchange("https://api.example:443", "POST /x", {}, said))
    assert isinstance(event, Distrusted)


@pytest.mark.runs(
    "contract.py", "starlette_orders.py", "litestar_orders.py", "asgi_orders.py", "litestar_asgi_orders.py"
)
@pytest.mark.parametrize(
    "module", ["starlette_orders", "litestar_orders", "asgi_orders", "litestar_asgi_orders"]
)
def test_the_guide_puts_one_provider_into_any_framework(module, folder):
    with calling(importlib.import_module(module).app) as client:
        refused = client.post("/orders/1", json={"plan": "growth"})
        [suggestion] = refused.json()["recovery_feedback"]["suggestions"]
        assert suggestion["rows"] == ["codes:growth", "promos:SUMMER25"]
        assert client.post("/orders/1", json={"plan": "growth", **suggestion["parameters"]}).is_success
        assert client.get("/contract/state").json()["table_versions"].keys() == {"codes", "promos"}
        assert client.get("/admin/graph", headers={"Authorization": "Bearer change-me"}).is_success


@pytest.mark.runs("operators.py")
def test_the_guide_serves_the_operators_page_alone(folder):
    with calling(importlib.import_module("operators").app) as client:
        assert "Admin token" in client.get("/admin/").text
        assert client.get("/admin/overview", headers={"Authorization": "Bearer change-me"}).is_success


@pytest.mark.runs("traced.py")
def test_the_guide_instruments_both_sides(folder):
    traced = importlib.import_module("traced")
    assert (len(traced.provider.on_checked), len(traced.memory.telling.listeners)) == (1, 1)


@pytest.mark.runs("forecast.py")
def test_the_guide_has_a_memory_foresee_and_shows_a_rule_of_ones_own(folder):
    names = runpy.run_path("forecast.py")
    rule = names["Hourly"]()
    assert [rule.is_due([], None, 0.0, now) for now in (3599.0, 3601.0)] == [False, True]
    with serving(acme_app(acme_provider())) as address:
        for memory in (names["memory"], names["hourly"]):
            with (
                contextlib.closing(memory),
                httpx2.Client(transport=MemoryTransport(memory, guard=Guard())) as client,
            ):
                statuses = [client.post(f"{address}/subscriptions", json=GOVERNED).status_code for _ in "ab"]
            assert statuses == [422, 201]


@pytest.mark.runs("watched.py")
def test_the_guide_names_the_clients_that_are_scored(folder):
    scoring = importlib.import_module("watched").provider.scoring
    assert [scoring.client(headers) for headers in ({"x-customer": "ada"}, {})] == ["ada", "anonymous"]


@pytest.mark.runs("flask_orders.py", "wsgi_orders.py")
@pytest.mark.parametrize(("module", "name"), [("flask_orders", "app"), ("wsgi_orders", "application")])
def test_the_guide_puts_the_same_provider_into_wsgi_apps(module, name, folder):
    with calling_wsgi(getattr(importlib.import_module(module), name)) as client:
        refused = client.post("/orders/1", json={"plan": "growth"})
        [suggestion] = refused.json()["recovery_feedback"]["suggestions"]
        assert suggestion["rows"] == ["codes:growth", "promos:SUMMER25"]
        made = client.post("/orders/1", json={"plan": "growth", **suggestion["parameters"]})
        assert made.json().keys() == {"success", "table_versions", "rules_version"}
        assert client.get("/contract/state").json()["table_versions"].keys() == {"codes", "promos"}
        assert client.get("/admin/graph", headers={"Authorization": "Bearer change-me"}).is_success


@pytest.mark.runs("django_orders.py")
def test_the_guide_puts_the_same_provider_into_django_by_both_protocols(folder):
    """In a process of its own: the settings of Django are those of a whole process."""
    program = """
from tests.calling import calling
from tests.integrations.serving_wsgi import calling_wsgi
from django_orders import application, asgi_application

for called in (calling_wsgi(application), calling(asgi_application)):
    with called as client:
        refused = client.post("/orders/1", json={"plan": "growth"})
        made = client.post("/orders/1", json={"plan": "growth", "discount": 25})
        state = client.get("/contract/state")
        print(refused.status_code, sorted(made.json()), sorted(state.json()["table_versions"]))
"""
    command = [sys.executable, "-c", program]
    paths = os.pathsep.join([str(ROOT), str(folder)])
    outcome = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": paths}
    )
    told = "422 ['rules_version', 'success', 'table_versions'] ['codes', 'promos']\n"
    assert (outcome.stdout, outcome.returncode) == (2 * told, 0), outcome.stderr


@pytest.mark.runs("orders.py")
def test_the_guide_gives_the_login_of_its_routes_to_the_contract(folder):
    with calling(importlib.import_module("orders").app) as client:
        assert client.get("/contract/state").status_code == 401
        assert client.get("/contract/state", headers=ADA).status_code == 200
        assert client.post("/orders/1", json={"plan": "growth"}).status_code == 401
        assert client.post("/orders/1", json={"plan": "growth"}, headers=ADA).status_code == 422


@pytest.mark.runs("reloading.py", "sources.py")
@pytest.mark.parametrize(("program", "said"), [("reloading.py", "This prints"), ("sources.py", "It prints")])
def test_the_guide_says_what_a_program_prints(folder, program, said):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(program)
    guide = (ROOT / "docs" / "guides" / "providers.md").read_text("utf-8")
    assert f"{said} `{printed.getvalue().strip()}`" in guide


def app_of(module):
    """An app for the provider of a program that has none."""
    app = FastAPI()
    install(app, importlib.import_module(module).provider)
    return app


@pytest.mark.runs("signed.py")
def test_the_guide_signs_states_with_the_key_that_clients_pin(folder, capsys):
    assert main(["key", "new", "signing.pem"]) == 0
    with calling(app_of("signed")) as client:
        signed = client.get("/contract/signed", params={"from": "*", "nonce": "n1"}).json()
    assert json.loads(signed["statement"])["nonce"] == "n1"
    assert signed["key"] == capsys.readouterr().out.strip()


@pytest.mark.runs("disclosed.py")
def test_the_guide_shows_each_client_names_of_its_own(folder):
    with calling(app_of("disclosed")) as client:
        shown = [client.get("/contract/state", headers={"X-Account": who}).json() for who in ("ada", "bob")]
    ada, bob = (set(state["table_versions"]) for state in shown)
    assert {"codes"} != ada != bob != {"codes"}


@pytest.mark.runs("test_orders.py", "test_policies.py", "test_remembered.py")
def test_the_tests_of_the_guide_pass(folder):
    programs = ["test_orders.py", "test_policies.py", "test_remembered.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *programs]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # importing all plugins here takes seconds
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    assert (outcome.returncode, outcome.stdout.splitlines()[-1][:8]) == (0, "4 passed")


def behind_a_login(app):
    """The app for whoever has the token, and nothing of it for anybody else."""

    async def let_in(scope, receive, send):
        if (b"authorization", b"Bearer secret") in scope.get("headers", []) or scope["type"] == "lifespan":
            return await app(scope, receive, send)
        return await PlainTextResponse("who are you?", 401)(scope, receive, send)

    return let_in


@pytest.mark.runs("login_tool.py")
@pytest.mark.parametrize("asks", [True, False], ids=["with ask", "without"])
def test_a_tool_of_an_api_with_a_login_asks_with_it_or_is_told_to(folder, monkeypatch, caplog, asks):
    monkeypatch.setenv("API_TOKEN", "secret")
    provider = acme_provider()
    with serving(behind_a_login(acme_app(provider))) as address:
        path = folder / "login_tool.py"
        text = path.read_text("utf-8").replace("http://127.0.0.1:8000", address)
        path.write_text(text if asks else text.replace(", ask=api", ""))
        tool = importlib.import_module("login_tool")
        for request in (GOVERNED, FUNDING_1):
            tool.subscribe(**request)
            assert "payment_method" in tool.subscribe(**request)
        provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES)
        bump(provider)  # of the other table no row has changed
        for _ in range(2):
            tool.subscribe(**GOVERNED)
        tool.api.close()
    evictions = tool.memory.statistics.evictions
    warnings = [record.message for record in caplog.records if "401" in record.message]
    if asks:
        assert (evictions, warnings) == ({"row_changed": 1}, [])
    else:
        [warning] = warnings
        assert evictions == {"table_moved": 2}
        assert warning.startswith(address)
        assert "give `ask`" in warning


@pytest.mark.runs("conditional_tool.py")
def test_the_conditional_tool_of_the_guide_is_run_again_after_a_change(folder):
    provider = acme_provider()
    with serving(acme_app(provider)) as address:
        path = folder / "conditional_tool.py"
        path.write_text(path.read_text("utf-8").replace("http://127.0.0.1:8000", address))
        tool = importlib.import_module("conditional_tool")
        tool.subscribe(**GOVERNED)
        provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES)
        assert '"promo_code":"WINTERLAUNCH26"' in tool.subscribe(**GOVERNED)
