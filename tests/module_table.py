"""The table of modules in ARCHITECTURE.md, from the first paragraphs of their docstrings; run as a program it writes the table anew."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
PACKAGE = ROOT / "src" / "shelflife"
FROM_THE_BOTTOM = (
    "errors",
    "forks",
    "clocks",
    "places",
    "wal_index",
    "sqlite_files",
    "postgres_databases",
    "fingerprints",
    "function_sources",
    "habit_forms",
    "histories",
    "habits",
    "outlooks",
    "policy_code",
    "contract",
    "server",
    "client",
    "integrations",
    "testing",
    "apis",
    "lab",
    "cli",
    "extras",
)
"""The packages in the order of the picture."""

_TABLE = re.compile(r"(?<=\| module \| what it is \|\n\| --- \| --- \|\n)(?:\|.*\n)*")


def modules():
    """Each module and package below the root: its name, and its file."""
    for top in FROM_THE_BOTTOM:
        for path in sorted(PACKAGE.glob(f"{top}.py")) + sorted((PACKAGE / top).rglob("*.py")):
            if path.name != "__main__.py":
                parts = path.relative_to(PACKAGE).with_suffix("").parts
                yield ".".join(part for part in parts if part != "__init__"), path


def table():
    """A line for each, with the first paragraph of its docstring; packages stand out."""
    lines = []
    for name, path in modules():
        docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        says = " ".join(docstring.partition("\n\n")[0].split()).removesuffix(".")
        shown = f"**`{name}`**" if path.name == "__init__.py" else f"`{name}`"
        lines.append(f"| {shown} | {says} |\n")
    return "".join(lines)


def with_its_table(text):
    """The document with the table as it should be."""
    written, count = _TABLE.subn(lambda _: table(), text)
    assert count == 1
    return written


if __name__ == "__main__":
    ARCHITECTURE.write_text(with_its_table(ARCHITECTURE.read_text("utf-8")), "utf-8")
