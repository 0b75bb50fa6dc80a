"""The programs of the documents do what the documents say, each against a real server."""

import ast
import json
import re
import subprocess
import sys

import pytest

from shelflife.apis.acme import ROTATED_CODES, acme_app, acme_provider
from shelflife.testing import serving
from tests.calling import calling
from tests.document_programs import ROOT, document_blocks, document_programs

README = (ROOT / "README.md").read_text("utf-8")


def names_of(program):
    """What a program of the documents leaves behind."""
    names = {}
    exec(compile(document_programs()[program], program, "exec"), names)
    return names


def output_of(text, address, folder):
    """What a program prints when its server is at this address."""
    text = text.replace("http://127.0.0.1:8000", address)
    command = [sys.executable, "-c", text]
    outcome = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    return outcome.stdout.strip()


@pytest.mark.runs("README.md shop.py")
def test_the_readme_gives_a_provider_about_ten_lines_and_they_work():
    lines = [line for line in document_programs()["README.md shop.py"].splitlines() if line.strip()]
    assert len(lines) <= 22
    [answer] = re.findall(r"^```json\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    with calling(names_of("README.md shop.py")["app"]) as client:
        refused = client.post("/subscriptions", json={"plan": "growth"})
        assert refused.json() == json.loads(answer)
        [suggestion] = refused.json()["recovery_feedback"]["suggestions"]
        made = client.post("/subscriptions", json={"plan": "growth", **suggestion["parameters"]})
        assert made.status_code == 200
        assert set(made.json()["table_versions"]) == {"codes"}


@pytest.mark.runs("README.md agent.py")
def test_the_agent_of_the_readme_learns_uses_and_replaces_a_fix(tmp_path):
    program = document_programs()["README.md agent.py"]
    provider = acme_provider()
    with serving(acme_app(provider)) as address:

        def run():
            return ast.literal_eval(output_of(program, address, tmp_path))

        assert [run(), run()] == [(2, "SUMMERSALE25"), (1, "SUMMERSALE25")]
        provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES)
        assert [run(), run()] == [(2, "WINTERLAUNCH26"), (1, "WINTERLAUNCH26")]


@pytest.mark.runs("docs/agents.md")
def test_the_loop_written_by_hand_does_the_same(tmp_path):
    document = ROOT / "docs" / "agents.md"
    (_, _, loop), *_ = document_blocks(document)
    provider = acme_provider()
    with serving(acme_app(provider)) as address:
        first, second = (output_of(loop, address, tmp_path) for _ in range(2))
        assert f"The first run prints `{first}`, the second `{second}`." in document.read_text("utf-8")
        whole = output_of(document_programs()["docs/agents.md"], address, tmp_path)
        *_, block, input, amended = whole.split("\n\n")
        assert '{"promo_code":"SUMMERSALE25"}' in block + input
        assert amended == "[{'promo_code': 'SUMMERSALE25'}] []"
        provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES)
        assert output_of(loop, address, tmp_path) == "(2, 'WINTERLAUNCH26')"
