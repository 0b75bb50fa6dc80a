"""The Python programs that stand in the documents; run as a program it has mypy check their types.

The word after `python` at the head of a block names its program: "```python shop.py". Blocks of a document that have no
such word are one program together, in their order. A program keeps the line numbers of its document, so that whatever
is wrong with it is found there.
"""

import re
import sys
import tempfile
from pathlib import Path

from mypy import api

ROOT = Path(__file__).parents[1]
DOCUMENTS = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")))

NOT_CHECKED = {
    "README.md agent.py": "MemoryTransport is not typed as a transport of httpx2",
    "docs/agents.md": "its functions have no types",
}
"""Programs whose types are not checked, and why."""

NOT_RUN = {"docs/lab.md serve.py": "it serves a model of 1.1 GB, by a package that nothing else here needs"}
"""Programs that no test runs, and why."""


def document_blocks(path):
    """Each Python block of a document: its program, the number of its first line, and its text."""
    text = path.read_text("utf-8")
    found = [*re.finditer(r"^```python(?: +(\S+))?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    assert len(found) == text.count("```py"), f"{path.name} has a Python block that is not written as one"
    document = path.relative_to(ROOT).as_posix()
    for block in found:
        name = f"{document} {block[1]}" if block[1] else document
        yield name, text[: block.start(2)].count("\n") + 1, block[2]


def document_programs():
    """Each program by its name: `README.md shop.py`, or the document where the program has none."""
    programs = {}
    for path in DOCUMENTS:
        for name, line, text in document_blocks(path):
            before = programs.get(name, "")
            programs[name] = before + "\n" * (line - 1 - before.count("\n")) + text
    return programs


def check_types():
    """Have mypy check them all at once; gives what it has to say, by the lines of the documents."""
    with tempfile.TemporaryDirectory() as folder:
        files = {
            Path(folder) / (re.sub(r"\W", "_", name) + ".py"): (name, text)
            for name, text in document_programs().items()
            if name not in NOT_CHECKED
        }
        for file, (_, text) in files.items():
            file.write_text(text, "utf-8")
        said, failure, status = api.run(["--config-file", str(ROOT / "pyproject.toml"), *map(str, files)])
    for file, (name, _) in files.items():
        said = said.replace(str(file), name.split(" ")[0])
    return said + failure, status


if __name__ == "__main__":
    found, exit_status = check_types()
    sys.stdout.write(found)
    sys.exit(exit_status)
