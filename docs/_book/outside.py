"""Documents that live outside of this folder, where people look for them in a repository, and have a page here."""

import functools
import os
import re
from pathlib import Path

__all__ = ["ROOT", "with_links_inside"]

ROOT = Path(__file__).parents[2]
_DOCS = ROOT / "docs"
_STANDS_FOR = re.compile(r"^<!-- document: (\S+) -->$", re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(?=[#)])")
_HIDDEN = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@functools.cache
def _pages() -> dict[Path, Path]:
    """By document outside: the page that stands for it."""
    return {
        (page.parent / stands_for[1]).resolve(): page
        for page in _DOCS.rglob("*.md")
        if (stands_for := _STANDS_FOR.search(page.read_text("utf-8")))
    }


def with_links_inside(text: str, page: Path) -> str:
    """The text of a page; that of the document which it stands for. Links lead to pages, wherever the text was written."""
    stands_for = _STANDS_FOR.search(text)
    written_in = (page.parent / stands_for[1]).resolve() if stands_for else page
    if stands_for:
        text = written_in.read_text("utf-8")
    pages = _pages()

    def inside(link: re.Match[str]) -> str:
        target = (written_in.parent / link[1]).resolve()
        return os.path.relpath(pages.get(target, target), page.parent)

    def outside_of_code(prose: str) -> str:
        return _LINK.sub(inside, prose)

    parts = re.split(rf"({_HIDDEN.pattern})", text, flags=_HIDDEN.flags)
    return "".join(part if part.startswith("```") else outside_of_code(part) for part in parts)
