"""The documents are true: the spec and the tests name each other, the schemas fit, the README runs."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import jsonschema
import pytest

from shelflife.apis.acme import ROTATED_CODES, acme_app, acme_provider
from shelflife.client import Event
from shelflife.testing import serving
from tests.calling import ADMIN, TOKEN, calling
from tests.schema_files import FOLDER, message_schema, schema_texts

ROOT = Path(__file__).parents[1]


def spec_sentences():
    text = (ROOT / "docs" / "spec.md").read_text("utf-8")
    return re.findall(r"^- \*\*(\d+\.\d+)\*\* ", text, re.MULTILINE)


def sentences_named_by_tests():
    """What `pytest.mark.spec(...)` names, wherever it stands in the tests."""
    named = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.spec":
                for argument in node.args:
                    named.setdefault(ast.literal_eval(argument), path.name)
    return named


def test_every_sentence_of_the_spec_is_held_by_a_test():
    assert set(spec_sentences()) - set(sentences_named_by_tests()) == set()


def test_no_test_names_a_sentence_that_is_not_there():
    assert set(sentences_named_by_tests()) - set(spec_sentences()) == set()


def test_sentences_are_numbered_once_and_in_order():
    numbers = [tuple(map(int, number.split("."))) for number in spec_sentences()]
    assert numbers == sorted(set(numbers))


def test_the_checked_in_schemas_are_those_of_the_types():
    expected = schema_texts()
    assert set(FOLDER.glob("*.json")) == set(expected)
    stale = [path.name for path, text in expected.items() if path.read_text("utf-8") != text]
    assert stale == [], "run `make schemas`"


def check_against_schema(name, message):
    jsonschema.Draft202012Validator(message_schema(name)).validate(message)


def test_what_the_server_sends_fits_the_schemas():
    wanted = {
        "customer": "cus_ada",
        "plan": "plan_partner_growth",
        "amount": 100,
        "currency": "usd",
        "payment_method_token": "acme_pm_visa_credit",
    }
    rotation = {"table": "active_csm_codes", "set": ROTATED_CODES}
    rules = {
        "remove": [
            {
                "from": "token_funding_map",
                "to": "recommended_credit_token",
                "relation": "funds",
                "via": "pays_for",
            }
        ]
    }
    with calling(acme_app(acme_provider(admin_token=TOKEN)), headers=ADMIN) as client:
        before = client.get("/contract/state").json()
        problem = client.post("/subscriptions", json=wanted, headers={"Accept": "application/problem+json"})
        query = {"since": ["active_csm_codes:1.0.0", "gone:1"], "rules": before["rules_version"]}
        answers = {
            "ContractState": before,
            "Rejection": client.post("/subscriptions", json=wanted).json(),
            "Problem": problem.json(),
            "Graph": client.get("/admin/graph").json(),
            "ReloadTable": rotation,
            "ReloadReport": client.post("/admin/reload-table", json=rotation).json(),
            "ReloadRules": rules,
            "RulesReport": client.post("/admin/reload-rules", json=rules).json(),
            "Changes": client.get("/contract/changes", params=query).json(),
            "ErrorMessage": client.post("/admin/reload-table", content=b"{").json(),
        }
    for name, answer in answers.items():
        check_against_schema(name, answer)
    with pytest.raises(jsonschema.ValidationError):
        check_against_schema("Rejection", answers["Problem"] | {"success": True})


def readme_block(language, section):
    """The block of code in this language that stands under a heading of the README."""
    text = (ROOT / "README.md").read_text("utf-8").partition(f"## {section}")[2].partition("\n## ")[0]
    [block] = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    return block


def test_the_readme_gives_a_provider_about_ten_lines_and_they_work():
    block = readme_block("python", "For an API provider")
    statements = [line for line in block.splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(statements) <= 22
    names = {}
    exec(compile(block, "README.md", "exec"), names)
    with calling(names["app"]) as client:
        refused = client.post("/subscriptions", json={"plan": "growth"})
        assert refused.json() == json.loads(readme_block("json", "For an API provider"))
        [suggestion] = refused.json()["recovery_feedback"]["suggestions"]
        made = client.post("/subscriptions", json={"plan": "growth", **suggestion["parameters"]})
        assert made.status_code == 200
        assert set(made.json()["table_versions"]) == {"codes"}


def test_the_agent_of_the_readme_learns_uses_and_replaces_a_fix(tmp_path):
    provider = acme_provider()
    with serving(acme_app(provider)) as address:
        program = readme_block("python", "For an agent builder").replace("http://127.0.0.1:8000", address)

        def run():
            return ast.literal_eval(output_of(program, tmp_path))

        assert [run(), run()] == [(2, "SUMMERSALE25"), (1, "SUMMERSALE25")]
        provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES)
        assert [run(), run()] == [(2, "WINTERLAUNCH26"), (1, "WINTERLAUNCH26")]


def output_of(program, folder):
    outcome = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True
    )
    return outcome.stdout


def test_the_loop_written_by_hand_does_the_same(tmp_path):
    text = (ROOT / "docs" / "agents.md").read_text("utf-8")
    loop, *rest = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    provider = acme_provider()
    with serving(acme_app(provider)) as address:
        loop = loop.replace("http://127.0.0.1:8000", address)
        first, second = (output_of(loop, tmp_path).strip() for _ in range(2))
        assert f"The first run prints `{first}`, the second `{second}`." in text
        *_, block, input, amended = output_of(loop + "\n".join(rest), tmp_path).split("\n\n")
        assert '{"promo_code":"SUMMERSALE25"}' in block + input
        assert amended.strip() == "[{'promo_code': 'SUMMERSALE25'}] []"
        provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES)
        assert output_of(loop, tmp_path).strip() == "(2, 'WINTERLAUNCH26')"


def test_the_documents_name_every_event():
    text = (ROOT / "docs" / "agents.md").read_text("utf-8")
    named = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(named) == sorted(event.__name__ for event in get_args(Event))


def test_lines_of_documents_can_be_read_without_scrolling():
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        prose = re.sub(r"(?ms)^```.*?^```", "", path.read_text("utf-8"))
        wide = [line for line in prose.splitlines() if len(line) > 110 and not line.startswith(("|", "    "))]
        assert wide == [], path.name


def test_every_link_between_documents_leads_somewhere():
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^)#:]+)\)", path.read_text("utf-8")):
            assert (path.parent / link).exists(), f"{path.name}: {link}"


@pytest.mark.parametrize("lock", ["requirements.lock", "tests/lab/vendors/package-lock.json"])
def test_a_lock_names_no_address(lock):
    assert "://" not in (ROOT / lock).read_text()


def test_every_module_says_what_it_is_and_what_it_gives():
    for path in (ROOT / "src").rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        if path.name == "__main__.py":
            continue
        assert ast.get_docstring(tree), path
        names = {
            ast.unparse(target)
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
        }
        if len(tree.body) > 1:
            assert "__all__" in names, path


def test_no_file_is_too_long():
    too_long = [
        path.name
        for folder in ("src", "tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if len(path.read_text("utf-8").splitlines()) > 600
    ]
    assert too_long == []


def test_the_architecture_has_a_line_for_every_module():
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    modules = {
        str(path.relative_to(ROOT / "src" / "shelflife").with_suffix("")).replace("/", ".")
        for path in (ROOT / "src" / "shelflife").rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    }
    missing = {module for module in modules if f"`{module}`" not in text}
    assert missing == set()
