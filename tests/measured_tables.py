"""The tables of measured runs in docs/lab.md, from the records in measured/; run as a program it writes them anew."""

import re
from pathlib import Path

from shelflife.lab.exhibits import collection_of
from shelflife.lab.exhibits.markup import as_markdown
from shelflife.lab.grid import scores_in

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "measured"
DOCUMENT = ROOT / "docs" / "lab.md"

_PLACE = re.compile(r"(<!-- exhibit ([a-z-]+), from measured/ -->\n\n)(?:\|.*\n)*")


def tables():
    """The lines of each exhibit's table, by its key."""
    exhibits = collection_of(scores_in(MEASURED)).exhibits
    return {one.key: "".join(re.findall(r"^\|.*\n", as_markdown(one), re.MULTILINE)) for one in exhibits}


def with_their_tables(text):
    """The document with the tables as they should be."""
    made = tables()
    written, count = _PLACE.subn(lambda place: place[1] + made[place[2]], text)
    assert count > 0
    return written


if __name__ == "__main__":
    DOCUMENT.write_text(with_their_tables(DOCUMENT.read_text("utf-8")), "utf-8")
