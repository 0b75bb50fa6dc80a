"""An exhibit as Markdown, CSV and LaTeX.

Names come from whoever wrote a planner or a stream, so every format escapes them.
"""

import csv
import io
import re
from collections.abc import Callable, Sequence
from itertools import groupby

from shelflife.lab.exhibits.cells import DASH, Exhibit, Row

__all__ = ["as_csv", "as_latex", "as_markdown"]

SOURCE = "Source"
"""The column that says of which kind a row is."""

_OPENS_A_FORMULA = (
    *("=", "+", "-", "@", "\t", "\r", "\N{MINUS SIGN}"),
    *("\N{FULLWIDTH EQUALS SIGN}", "\N{FULLWIDTH PLUS SIGN}"),
    *("\N{FULLWIDTH HYPHEN-MINUS}", "\N{FULLWIDTH COMMERCIAL AT}"),
)
_A_NUMBER = re.compile(r"[+-]?\d[\d,]*(\.\d+)?")
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#~&!$])")
_NOTHING = "\0"
"""What keeps two hyphens from becoming a dash."""

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "\N{EN DASH}": "--",
    "\N{MINUS SIGN}": "$-$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "\N{CHECK MARK}": r"$\checkmark$",
    _NOTHING: "{}",
}


def as_markdown(exhibit: Exhibit) -> str:
    """A heading, the guide, the table, the notes."""
    at = _source_at(exhibit)
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
    at = _source_at(exhibit)
    names = [f"{column.group}: {column.name}" if column.group else column.name for column in exhibit.columns]
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow([_in_csv(name) for name in (*names[:at], SOURCE, *names[at:])])
    writer.writerows(_cells(one, at, _in_csv) for one in exhibit.rows)
    return written.getvalue()


def as_latex(exhibit: Exhibit) -> str:
    """A table for the packages booktabs and amssymb."""
    at = _source_at(exhibit)
    aligned = ["r" if column.align == "right" else "l" for column in exhibit.columns]
    columns = exhibit.columns
    heads = [_in_latex(column.name) for column in columns]
    lines = [
        "% needs \\usepackage{booktabs,amssymb}",
        "\\begin{table*}",
        "\\centering\\footnotesize\\setlength{\\tabcolsep}{3pt}",
        f"\\caption{{{_in_latex(exhibit.title)}. {_in_latex(exhibit.guide)}}}",
        f"\\label{{tab:{exhibit.key}}}",
        f"\\begin{{tabular}}{{{''.join([*aligned[:at], 'l', *aligned[at:]])}}}",
        "\\toprule",
    ]
    if any(column.group for column in columns):
        lines += _grouped_heads(exhibit, at)
    lines += [_ampersands([*heads[:at], SOURCE, *heads[at:]]), "\\midrule"]
    for index, one in enumerate(exhibit.rows):
        if index and one.is_first_of_block:
            lines.append("\\addlinespace")
        lines.append(_ampersands(_cells(one, at, _in_latex)))
    notes = [*exhibit.notes, *(f"{kind.value}: {kind.means}" for kind in exhibit.kinds)]
    lines += ["\\bottomrule", "\\end{tabular}", ""]
    lines += [f"\\par\\smallskip {_in_latex(note)}" for note in notes]
    return "\n".join([*lines, "\\end{table*}", ""])


def _grouped_heads(exhibit: Exhibit, at: int) -> list[str]:
    heads: list[str] = []
    rules: list[str] = []
    for is_right, half in ((False, exhibit.columns[:at]), (True, exhibit.columns[at:])):
        place = at + 2 if is_right else 1
        if is_right:
            heads.append("")
        for group, members in groupby(half, key=lambda column: column.group):
            width = len(list(members))
            heads.append(
                f"\\multicolumn{{{width}}}{{c}}{{{_in_latex(group)}}}" if group else " & " * (width - 1)
            )
            if group:
                rules.append(f"\\cmidrule(lr){{{place}-{place + width - 1}}}")
            place += width
    return [_ampersands(heads), "".join(rules)]


def _source_at(exhibit: Exhibit) -> int:
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


def _ampersands(texts: Sequence[str]) -> str:
    return " & ".join(texts) + r" \\"


def _in_markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", text)


def _in_csv(text: str) -> str:
    if not text.startswith(_OPENS_A_FORMULA) or text == DASH:
        return text
    plain = text.replace("\N{MINUS SIGN}", "-")
    return plain if _A_NUMBER.fullmatch(plain) else f"'{text}"


def _in_latex(text: str) -> str:
    apart = re.sub("-(?=-)", f"-{_NOTHING}", "".join(char for char in text if char.isprintable()))
    return "".join(_LATEX.get(char, char) for char in apart)
