"""What makes the book of the documents in this folder: parts of pages that are written from the code, links that lead out, terms.

A page says in a comment what is to stand in its place, as in `<!-- names: shelflife.server -->`. Whoever reads it elsewhere sees nothing.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from _book import code_links, glossary, outside
from _book.commands import commands
from _book.errors import error_tree
from _book.public_names import names_of, settings_of
from _book.schemas import messages

__all__ = ["setup"]

_PARTS: dict[str, Callable[[str], str]] = {
    "commands": commands,
    "errors": error_tree,
    "messages": messages,
    "names": names_of,
    "settings": settings_of,
}
_PART = re.compile(rf"^<!-- ({'|'.join(_PARTS)})(?:: (.*?))? -->$", re.MULTILINE | re.DOTALL)
_PROGRAM = re.compile(r"^```(\w+) +([\w.-]+\.\w+)$", re.MULTILINE)


def _written(app: Sphinx, page: str, source: list[str]) -> None:
    """The page as it is to be read: with its parts, and with the name of a program above its code."""
    path = Path(app.srcdir) / f"{page}.md"
    text = outside.with_links_inside(source[0], path)
    text = _PART.sub(lambda part: _PARTS[part[1]](" ".join((part[2] or "").split())), text)
    source[0] = _PROGRAM.sub(r"```{code-block} \1\n:caption: \2\n", text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", _written)
    app.connect("doctree-read", glossary.give_terms_their_places)
    app.connect("doctree-resolved", glossary.link_terms)
    app.connect("doctree-resolved", code_links.link_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
