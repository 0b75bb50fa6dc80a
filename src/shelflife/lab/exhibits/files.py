"""Every exhibit into a folder: tables as Markdown, CSV and LaTeX, figures as SVG and PNG, and the report."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
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
    with _writing(folder / "exhibits") as made:
        made.mkdir(parents=True, exist_ok=True)
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
    for path, content in contents.items():
        with _writing(folder / path) as target:
            target.write_bytes(content)
    return [folder / path for path in contents]


@contextmanager
def _writing(path: Path) -> Iterator[Path]:
    try:
        yield path
    except OSError as error:
        raise ExhibitsError(f"cannot write {path}: {os.strerror(error.errno or 0)}") from error
