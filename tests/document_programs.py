"""The Python programs that stand in the documents; run as a program it has mypy check their types.

The word after `python` at the head of a block names the file that it belongs into: "```python shop.py". Blocks of a
document without such a word are one file together, which is called after the document. So the programs can import each
other, as those of a reader who has saved them. Lines keep their numbers: whatever is wrong is found in the document.
"""

import re
import sys
import tempfile
from pathlib import Path

from mypy import api

ROOT = Path(__file__).parents[1]
DOCUMENTS = (
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "measured" / "README.md",
)

NOT_RUN = {"serve.py": "it serves a model of 1.1 GB, by a package that nothing else here needs"}
"""Programs that no test runs, and why."""


def document_blocks(document):
    """Each Python block of a document: the file it belongs into, the number of its first line, and its text."""
    text = document.read_text("utf-8")
    found = [*re.finditer(r"^```python(?: +(\S+\.py))?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    assert len(found) == text.count("```py"), f"{document.name} has a Python block that is not written as one"
    for block in found:
        yield block[1] or f"{document.stem}.py", text[: block.start(2)].count("\n"), block[2]


def document_programs():
    """Each program by the name of its file, with its document and its text."""
    programs = {}
    for document in DOCUMENTS:
        for name, line, text in document_blocks(document):
            found_in, before = programs.get(name, (document, ""))
            assert found_in == document, f"{name} is in {found_in.name} and in {document.name}"
            programs[name] = (document, before + "\n" * (line - before.count("\n")) + text)
    return programs


def write_programs(folder):
    """Put them into a folder, as a reader would."""
    for name, (_, text) in document_programs().items():
        (folder / name).write_text(text, "utf-8")


def check_types(folder):
    """Have mypy check them all at once; what it says, by the lines of the documents, and its status."""
    write_programs(folder)
    checked = {name: document for name, (document, _) in document_programs().items()}
    files = [str(folder / name) for name in checked]
    said, failure, status = api.run(["--config-file", str(ROOT / "pyproject.toml"), *files])
    for file, document in zip(files, checked.values(), strict=True):
        said = said.replace(file, str(document.relative_to(ROOT)))
    return said + failure, status


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as written:
        findings, exit_status = check_types(Path(written))
    sys.stdout.write(findings)
    sys.exit(exit_status)
