"""Every exhibit into a folder: tables as Markdown, CSV and LaTeX, figures as SVG and PNG, and the report."""

import os
from pathlib import Path

from shelflife.lab.exhibits.collection import Collection
from shelflife.lab.exhibits.figures import figures_of
from shelflife.lab.exhibits.markup import as_csv, as_latex, as_markdown
from shelflife.lab.exhibits.report import report_html

__all__ = ["ExhibitsError", "write_all"]


class ExhibitsError(Exception):
    """Exhibits cannot be written: one sentence for people."""


def write_all(collection: Collection, folder: Path) -> list[Path]:
    """Write `report.html` and all that is in `exhibits/`; the files, the report first."""
    figures, missing = figures_of(collection.runs)
    whole = collection._replace(left_out=(*collection.left_out, *missing))
    contents: dict[Path, bytes] = {Path("report.html"): report_html(whole, figures).encode()}
    exhibits = Path("exhibits")
    for exhibit in whole.exhibits:
        contents[exhibits / f"{exhibit.key}.md"] = as_markdown(exhibit).encode()
        contents[exhibits / f"{exhibit.key}.csv"] = as_csv(exhibit).encode()
        contents[exhibits / f"{exhibit.key}.tex"] = as_latex(exhibit).encode()
    for figure in figures:
        contents[exhibits / f"{figure.key}.svg"] = figure.svg
        contents[exhibits / f"{figure.key}.png"] = figure.png
    return [_written(folder / path, content) for path, content in contents.items()]


def _written(path: Path, content: bytes) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise ExhibitsError(f"cannot write {path}: {os.strerror(error.errno or 0)}") from error
    return path
