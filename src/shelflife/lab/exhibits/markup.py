"""An exhibit as Markdown and CSV.

Names come from whoever wrote a planner or a stream, so every format escapes them.
"""

import csv
import io
import re
from collections.abc import Callable, Sequence

from shelflife.lab.exhibits.cells import DASH, Exhibit, Row

__all__ = ["SOURCE", "as_csv", "as_markdown", "kept_together", "source_at"]

SOURCE = "Source"
"""The column that says of which kind a row is."""

_OPENS_A_FORMULA = (
    *("=", "+", "-", "@", "\t", "\r", "\N{MINUS SIGN}"),
    *("\N{FULLWIDTH EQUALS SIGN}", "\N{FULLWIDTH PLUS SIGN}"),
    *("\N{FULLWIDTH HYPHEN-MINUS}", "\N{FULLWIDTH COMMERCIAL AT}"),
)
_A_NUMBER = re.compile(r"[+-]?\d[\d,]*(\.\d+)?")
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#~&!$])")


def as_markdown(exhibit: Exhibit) -> str:
    """A heading, the guide, the table, the notes."""
    at = source_at(exhibit)
    names = [
        _in_markdown(f"{column.group}: {column.name}" if column.group else column.name)
        for column in exhibit.columns
    ]
    rules = ["---:" if column.align == "right" else "---" for column in exhibit.columns]
    lines = [
        _piped([*names[:at], SOURCE, *names[at:]]),
        _piped([*rules[:at], "---", *rules[at:]]),
        *(_piped(_cells(one, at, _in_markdown)) for one in exhibit.rows),
    ]
    notes = [f"- {_in_markdown(note)}" for note in exhibit.notes]
    legend = [f"- *{kind.value}*: {kind.means}" for kind in exhibit.kinds]
    parts = [f"# {_in_markdown(exhibit.title)}", _in_markdown(exhibit.guide), "\n".join(lines)]
    return "\n\n".join([*parts, "\n".join([*notes, *legend])]) + "\n"


def as_csv(exhibit: Exhibit) -> str:
    """One line a row; nothing that a spreadsheet would take for a formula."""
    at = source_at(exhibit)
    names = [f"{column.group}: {column.name}" if column.group else column.name for column in exhibit.columns]
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow([_in_csv(name) for name in (*names[:at], SOURCE, *names[at:])])
    writer.writerows(_cells(one, at, _in_csv) for one in exhibit.rows)
    return written.getvalue()


def kept_together(text: str) -> str:
    """A text in which no line is broken between a number and its percent sign."""
    return re.sub(r"(?<=\d) (?=%)", "\N{NO-BREAK SPACE}", text)


def source_at(exhibit: Exhibit) -> int:
    """The source stands after what names the row."""
    return next(
        (index for index, column in enumerate(exhibit.columns) if column.align == "right"),
        len(exhibit.columns),
    )


def _cells(one: Row, source_at: int, escaped: Callable[[str], str]) -> list[str]:
    texts = [escaped(cell.text) for cell in one.cells]
    return [*texts[:source_at], escaped(one.source), *texts[source_at:]]


def _piped(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _in_markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", text)


def _in_csv(text: str) -> str:
    if not text.startswith(_OPENS_A_FORMULA) or text == DASH:
        return text
    plain = text.replace("\N{MINUS SIGN}", "-")
    return plain if _A_NUMBER.fullmatch(plain) else f"'{text}"
