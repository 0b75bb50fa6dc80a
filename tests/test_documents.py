"""The documents are true: the spec and the tests name each other, the schemas fit, every link leads somewhere."""

import ast
import functools
import re
from typing import get_args

import jsonschema
import pytest

from shelflife.apis.acme import ROTATED_CODES, acme_app, acme_provider
from shelflife.client import Event, postgres, sqlite_diary, sqlite_format, valkey
from shelflife.lab import records
from shelflife.server import sql_log
from shelflife.server.provider import _KINDS
from tests.calling import ADMIN, TOKEN, calling
from tests.document_programs import DOCUMENTS, NOT_RUN, ROOT, document_programs
from tests.module_table import ARCHITECTURE, PACKAGE, modules, with_its_table
from tests.public_names import PUBLIC
from tests.schema_files import FOLDER, OPENAPI, message_schema, schema_texts


def spec_sentences():
    text = (ROOT / "docs" / "reference" / "spec.md").read_text("utf-8")
    return re.findall(r"^- \*\*(\d+\.\d+)\*\* ", text, re.MULTILINE)


@functools.cache
def marks_of_tests():
    """Each `pytest.mark.…(...)`, wherever it stands in the tests."""
    return [
        node
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if ast.unparse(node.func.value) == "pytest.mark"
    ]


def named_by_tests(mark):
    """What `pytest.mark.spec(...)`, or another mark, names."""
    return {
        ast.literal_eval(argument)
        for node in marks_of_tests()
        if node.func.attr == mark
        for argument in node.args
    }


def test_every_sentence_of_the_spec_is_held_by_a_test():
    assert set(spec_sentences()) - named_by_tests("spec") == set()


def test_no_test_names_a_sentence_that_is_not_there():
    assert named_by_tests("spec") - set(spec_sentences()) == set()


def test_every_program_of_the_documents_is_run_by_a_test_or_said_not_to_be():
    named = named_by_tests("runs")
    assert named | set(NOT_RUN) == set(document_programs())
    assert named & set(NOT_RUN) == set()


def test_sentences_are_numbered_once_and_in_order():
    numbers = [tuple(map(int, number.split("."))) for number in spec_sentences()]
    assert numbers == sorted(set(numbers))


def test_the_checked_in_schemas_are_those_of_the_types():
    expected = schema_texts()
    assert {*FOLDER.glob("*.json"), OPENAPI} == set(expected)
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


def test_the_glossary_defines_each_term_once():
    text = (ROOT / "docs" / "reference" / "glossary.md").read_text("utf-8")
    terms = re.findall(r"^\| \*\*(.*?)\*\* \|", text, re.MULTILINE)
    assert len(terms) == len(set(terms)) > 40


def test_the_reference_has_every_event():
    [named] = re.findall(r"<!-- names: shelflife.client.events (.*?) -->", reference_text(), re.DOTALL)
    assert set(named.split()) - {"Event", "Reason"} == {event.__name__ for event in get_args(Event)}


def test_the_formats_are_those_that_the_versions_are_told_of():
    told = re.findall(r"^\| (.*?) \| (\d+)[ ,]", (ROOT / "VERSIONING.md").read_text("utf-8"), re.MULTILINE)
    spec = (ROOT / "docs" / "reference" / "spec.md").read_text("utf-8")
    assert {what: int(number) for what, number in told} == {
        "the wire": int(re.findall(r"^Version (\d+)\.", spec, re.MULTILINE)[0]),
        "a log, in a file or in PostgreSQL": sql_log.KIND.format,
        "a memory in a file": sqlite_format.KIND.format,
        "a memory in PostgreSQL": postgres._KIND.format,
        "a memory in Valkey or Redis": valkey._FORMAT,
        "the diary of a memory in a file": sqlite_diary._KIND.format,
        "records of the lab": records.FORMAT,
    }


def reference_text():
    return "".join(page.read_text("utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))


def test_the_reference_has_every_public_name():
    shown = {}
    for said in re.findall(r"<!-- names: (.*?) -->", reference_text(), re.DOTALL):
        module, _, names = " ".join(said.split()).partition(" ")
        chosen = {name for name, _ in re.findall(r"(\w+)(\(.*?\))?", names)}
        shown[module] = shown.get(module, set()) | (chosen or PUBLIC[module])
    elsewhere = {  # the version, the command line, and names that stand under another module
        "shelflife": {"__version__"},
        "shelflife.cli": {"command_parser", "main"},
        "shelflife.contract": {"Rule"},
        "shelflife.client": {"Event", "Reason"},
    }
    assert {module: shown.get(module, set()) | elsewhere.get(module, set()) for module in PUBLIC} == PUBLIC


def test_lines_of_documents_can_be_read_without_scrolling():
    for path in DOCUMENTS:
        prose = re.sub(r"(?ms)^```.*?^```", "", path.read_text("utf-8"))
        wide = [line for line in prose.splitlines() if len(line) > 110 and not line.startswith(("|", "    "))]
        assert wide == [], path.name


def test_a_command_that_needs_the_operators_token_is_shown_with_it():
    shown = 0
    for path in DOCUMENTS:
        for block in re.findall(r"(?m)(?:^    .*\n)+", path.read_text("utf-8")):
            if re.search(r"^    shelflife table ", block, re.MULTILINE):
                shown += 1
                assert re.search(r"SHELFLIFE_ADMIN_TOKEN=\S+\n(.*\n)*?    shelflife table ", block), path.name
    assert shown >= 3


def anchors_of(document):
    """Where a link may lead within a document: its headings, as GitHub spells them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_every_link_between_documents_leads_somewhere():
    for path in DOCUMENTS:
        for link in re.findall(r"\]\(([^):]+)\)", path.read_text("utf-8")):
            name, _, anchor = link.partition("#")
            target = path.parent / name if name else path
            assert target.exists(), f"{path.name}: {link}"
            assert not anchor or anchor in anchors_of(target), f"{path.name}: {link}"


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


def test_every_kind_of_setting_that_a_provider_takes_is_in_the_reference():
    [listed] = re.findall(
        r"<!-- settings: shelflife.server (.*) -->", (ROOT / "docs/reference/settings.md").read_text("utf-8")
    )
    assert {"Provider", *(kind.__name__ for kind in _KINDS.values())} == {*listed.split()}


def test_no_file_is_too_long():
    too_long = [
        path.name
        for folder in ("src", "tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if len(path.read_text("utf-8").splitlines()) > 600
    ]
    assert too_long == []


def test_the_architecture_says_of_every_module_what_its_docstring_says():
    text = ARCHITECTURE.read_text("utf-8")
    assert {path for _, path in modules()} == set(PACKAGE.rglob("*.py")) - {
        PACKAGE / "__init__.py",
        PACKAGE / "cli" / "__main__.py",
    }
    assert with_its_table(text) == text, "run `make modules`"
