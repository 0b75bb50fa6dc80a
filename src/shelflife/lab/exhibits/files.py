"""Every exhibit into a folder: tables as Markdown, CSV and LaTeX, figures as SVG and PNG, and the report."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shelflife.errors import ShelflifeError
from shelflife.lab.exhibits.collection import Collection, exhibit_keys
from shelflife.lab.exhibits.figures import figure_keys, figures_of
from shelflife.lab.exhibits.latex import as_latex
from shelflife.lab.exhibits.markup import as_csv, as_markdown
from shelflife.lab.exhibits.report import report_html
from shelflife.lab.whole_files import write_whole

__all__ = ["ExhibitsError", "make_room", "write_all"]

_TABLE_SUFFIXES = ("md", "csv", "tex")
_FIGURE_SUFFIXES = ("svg", "png")


class ExhibitsError(ShelflifeError):
    """Exhibits cannot be written: one sentence for people."""


def write_all(collection: Collection, folder: Path) -> list[Path]:
    """Write `report.html` and all that is in `exhibits/`; the files, the report first.

    What an earlier report left in `exhibits/` and this one does not have is removed; no other file there is touched.
    """
    make_room(folder)
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
    for path in _all_files() - contents.keys():
        with _writing(folder / path) as stale:
            stale.unlink(missing_ok=True)
    for path, content in contents.items():
        with _writing(folder / path) as target:
            write_whole(target, content)
    return [folder / path for path in contents]


def make_room(folder: Path) -> None:
    """Make the folder that exhibits go into; `ExhibitsError` when nothing can be written there.

    Call it before much is played for them.
    """
    with _writing(folder / "exhibits") as made:
        made.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=made):
            pass


def _all_files() -> set[Path]:
    """All that any report writes into `exhibits/`."""
    return {
        Path("exhibits", f"{key}.{suffix}")
        for keys, suffixes in ((exhibit_keys(), _TABLE_SUFFIXES), (figure_keys(), _FIGURE_SUFFIXES))
        for key in keys
        for suffix in suffixes
    }


@contextmanager
def _writing(path: Path) -> Iterator[Path]:
    try:
        yield path
    except OSError as error:
        raise ExhibitsError(f"cannot write {path}: {os.strerror(error.errno or 0)}") from error
