"""Words in italics that the glossary defines lead there."""

import re
from collections.abc import Iterator

from docutils import nodes
from sphinx.application import Sphinx

__all__ = ["give_terms_their_places", "link_terms"]

PAGE = "reference/glossary"


def _place(term: str) -> str:
    return "term-" + re.sub(r"\W+", "-", term.removeprefix("to ")).lower()


def _forms(term: str) -> Iterator[str]:
    """How a term may be written in a sentence."""
    plain = term.removeprefix("to ")
    yield from (plain, f"{plain}s", f"{plain}es")
    if plain != term:
        yield from (f"{plain}ed", f"{plain}d", f"{plain}ing", f"{plain.removesuffix('e')}ing")
    if plain.endswith("y"):
        yield plain.removesuffix("y") + "ies"


def give_terms_their_places(app: Sphinx, tree: nodes.document) -> None:
    """In the glossary: each row of its tables can be linked to."""
    if app.env.current_document.docname != PAGE:
        return
    terms: dict[str, str] = {}
    for row in tree.findall(nodes.row):
        for term in row.children[0].findall(nodes.strong):
            place = _place(term.astext())
            row["ids"].append(place)
            terms |= dict.fromkeys(_forms(term.astext()), place)
    app.env.metadata[PAGE]["terms"] = terms


def link_terms(app: Sphinx, tree: nodes.document, page: str) -> None:
    """On all other pages: a term in italics is a link."""
    terms = app.env.metadata[PAGE].get("terms", {})
    for word in [*tree.findall(nodes.emphasis)]:
        place = terms.get(word.astext().lower())
        if page != PAGE and place and not isinstance(word.parent, nodes.reference):
            address = f"{app.builder.get_relative_uri(page, PAGE)}#{place}"
            word.replace_self(nodes.reference("", "", word.deepcopy(), refuri=address, classes=["term"]))
