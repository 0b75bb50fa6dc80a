"""The book can be made, every link in it leads somewhere, and it needs nothing from elsewhere."""

import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

from shelflife.cli import command_parser
from tests.document_programs import ROOT
from tests.public_names import PUBLIC

_LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src"}

SPHINX = """
import gc, sys
from sphinx.cmd.build import main
gc.disable()  # a quarter of the time went into looking for garbage
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """Where `make docs` would put it."""
    made = tmp_path_factory.mktemp("book")
    command = [sys.executable, "-c", SPHINX, "--fail-on-warning", "--keep-going", "--quiet"]
    command += ["--doctree-dir", str(made / "doctrees"), str(ROOT / "docs"), str(made / "html")]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    return made / "html"


class Page(HTMLParser):
    """What a page loads, where it leads, and where it can be led to."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.links, self.places, self.text = [], [], set(), text
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if "id" in given:
            self.places.add(given["id"])
        if tag in _LOADS and _LOADS[tag] in given:
            self.loads.append(given[_LOADS[tag]])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])


@pytest.fixture(scope="module")
def pages(book):
    return {path: Page(path.read_text("utf-8")) for path in book.rglob("*.html")}


def test_no_page_loads_anything_from_elsewhere(pages):
    elsewhere = {load for page in pages.values() for load in page.loads if urlsplit(load).netloc}
    assert elsewhere == set()


def test_no_style_and_no_script_loads_anything_from_elsewhere(book):
    for path in [*book.rglob("*.css"), *book.rglob("*.js")]:
        text = path.read_text("utf-8")
        assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)]*", text) == [], path.name
        assert re.findall(r"(?:fetch|import|importScripts)\(\s*[\"'`]https?:[^)]*", text) == [], path.name


def test_every_link_within_the_book_leads_somewhere(book, pages):
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), f"{path.relative_to(book)}: {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].places, f"{path.relative_to(book)}: {link}"


def test_the_reference_has_a_place_for_every_public_name(pages):
    places = set().union(*(page.places for page in pages.values()))
    named = {f"{module}.{name}" for module, names in PUBLIC.items() for name in names}
    under_another_module = {"shelflife.client.Event", "shelflife.client.Reason", "shelflife.contract.Rule"}
    not_for_users = {"shelflife.__version__", "shelflife.cli.command_parser", "shelflife.cli.main"}
    assert named - under_another_module - not_for_users - places == set()


def test_the_reference_has_every_command(book):
    text = (book / "reference" / "commands.html").read_text("utf-8")
    [commands] = [action for action in command_parser()._actions if action.dest == "==SUPPRESS=="]
    assert len(commands.choices) > 5
    assert [name for name in commands.choices if f'id="shelflife-{name}"' not in text] == []


def test_terms_in_italics_lead_to_the_glossary(book, pages):
    guide, glossary = (pages[book / name] for name in ("guides/providers.html", "reference/glossary.html"))
    places = {link.partition("#")[2] for link in guide.links if "glossary.html#term-" in link}
    assert {"term-rule", "term-position", "term-downstream"} <= places <= glossary.places


def test_the_settings_have_defaults_and_texts_that_a_reader_understands(book):
    """The cells of each row: the setting, its default, and what it is."""
    text = (book / "reference" / "settings.html").read_text("utf-8")
    rows = [
        re.findall(r"<td>(.*?)</td>", row, re.DOTALL) for row in re.findall(r"<tr.*?</tr>", text, re.DOTALL)
    ]
    told = [[unescape(re.sub(r"<[^>]*>", "", cell)).strip() for cell in row] for row in rows if len(row) == 3]
    without_text = {setting for setting, _, says in told if not says}
    assert (len(told) > 40, without_text) == (True, {"memory"})
    obscure = re.compile(r"Channel|MappingProxyType|[a-z]+_[a-z]+")
    assert [row for row in told if obscure.search(row[1])] == []
    of = {setting: (default, says) for setting, default, says in told}
    assert "compact" not in of["conditional"][1]
    assert (of["operation"][0], of["read"][0], of["guard"][0]) == ("built in", "built in", "Guard()")
