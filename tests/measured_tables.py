"""The tables of kept runs in the documents, from the records in measured/; run as a program it writes them anew."""

import functools
import re
from pathlib import Path

from shelflife.lab.exhibits import collection_of
from shelflife.lab.exhibits.markup import as_markdown
from shelflife.lab.grid import scores_in

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "measured"
DOCUMENTS = [ROOT / "docs" / "explanation" / name for name in ("lab.md", "organic.md")]

_PLACE = re.compile(r"(<!-- exhibit ([a-z-]+), from (measured/(?:organic/)?) -->\n\n)(?:\|.*\n)*\n?")


@functools.cache
def tables(folder):
    """The lines of the table of each exhibit that is made from a folder, by its key."""
    exhibits = collection_of(scores_in(ROOT / folder)).exhibits
    return {one.key: "".join(re.findall(r"^\|.*\n", as_markdown(one), re.MULTILINE)) for one in exhibits}


def with_their_tables(text):
    """The document with the tables as they should be, and an empty line after each."""
    written, count = _PLACE.subn(lambda place: f"{place[1]}{tables(place[3])[place[2]]}\n", text)
    assert count > 0
    return written


if __name__ == "__main__":
    for document in DOCUMENTS:
        document.write_text(with_their_tables(document.read_text("utf-8")), "utf-8")
