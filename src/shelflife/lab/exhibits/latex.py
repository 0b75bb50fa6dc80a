"""An exhibit as LaTeX: a table across both columns of a page, whatever class the page is of.

Numbers take the room that they need. What names a row has the rest, and breaks its lines there. A table that is longer than a page
goes on in another. Names come from whoever wrote a planner or a stream, so all of them are escaped.
"""

import re
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from shelflife.lab.exhibits.cells import Exhibit, Row
from shelflife.lab.exhibits.markup import SOURCE, kept_together, source_at

__all__ = ["as_latex"]

_NARROWEST_PT = 400
"""Of the pages with two columns that there are, about the width of the narrowest: that of LaTeX's own class."""


class _Size(NamedTuple):
    """How large a table is set."""

    name: str
    character_pt: float
    beside_pt: float
    """The room on each side of a column."""


_SIZES = (_Size("footnotesize", 4.3, 2.5), _Size("scriptsize", 4.0, 1.5), _Size("tiny", 3.4, 1.2))
"""The first in which everything has its room is taken."""

_MOST_LINES = 40
"""Of a part of a table, so that it has room on a page with its caption."""

_MOST_LINES_WITH_NOTES = 46
"""Of the last part, the notes under it included."""

_BETWEEN_BLOCKS = 0.45
"""Of a line."""

_LONGEST_KEPT_WHOLE = 14
"""A word of so many letters; longer ones are broken anywhere."""

_NOTHING = "\0"
"""What keeps two hyphens from becoming a dash."""

_MAY_BREAK = "\1"

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
    "\N{NO-BREAK SPACE}": "~",
    _NOTHING: "{}",
    _MAY_BREAK: r"\allowbreak{}",
}


class _Column(NamedTuple):
    head: str
    group: str
    texts: list[str]
    is_text: bool
    """Names something, and may be broken into lines."""

    @property
    def longest(self) -> int:
        """In characters, on one line."""
        return max(map(len, (self.head, *self.texts)))

    @property
    def longest_word(self) -> int:
        words = (word for text in (self.head, *self.texts) for word in _pieces(text))
        return max(map(len, words), default=1)

    @property
    def number_width(self) -> int:
        """Of a column of numbers, in characters: its head is broken into lines as narrow as its widest number."""
        return max([*map(len, self.texts), *map(len, self.head.split())], default=1)


def as_latex(exhibit: Exhibit) -> str:
    """A table for the packages booktabs, amssymb and tabularx."""
    columns = _columns(exhibit)
    size, widths = _set(columns)
    notes = [*exhibit.notes, *(f"{kind.value}: {kind.means}" for kind in exhibit.kinds)]
    on_a_line = int(_NARROWEST_PT / size.character_pt)
    note_lines = sum(-(-len(note) // on_a_line) for note in notes)
    parts = _parts(exhibit.rows, columns, widths, note_lines)
    lines = ["% needs \\usepackage[T1]{fontenc} and \\usepackage{booktabs,amssymb,tabularx}"]
    for number, rows in enumerate(parts):
        caption = f"{exhibit.title}. {exhibit.guide}" if number == 0 else f"{exhibit.title}, continued."
        lines += [
            "\\begin{table*}",
            f"\\centering\\{size.name}\\setlength{{\\tabcolsep}}{{{size.beside_pt}pt}}",
            f"\\caption{{{_escaped(caption)}}}",
            *([f"\\label{{tab:{exhibit.key}}}"] if number == 0 else []),
            f"\\begin{{tabularx}}{{\\textwidth}}{{{_preamble(columns, widths)}}}",
            "\\toprule",
            *_heads(columns),
            "\\midrule",
        ]
        for index in rows:
            if index != rows[0] and exhibit.rows[index].is_first_of_block:
                lines.append("\\addlinespace")
            lines.append(_ampersands([_cell(column, column.texts[index]) for column in columns]))
        lines += ["\\bottomrule", "\\end{tabularx}"]
        if number == len(parts) - 1:
            lines += ["", *(f"\\par\\smallskip\\raggedright {_escaped(note)}" for note in notes)]
        lines += ["\\end{table*}", ""]
    return "\n".join(lines)


def _columns(exhibit: Exhibit) -> list[_Column]:
    columns = [
        _Column(
            column.name, column.group, [row.cells[at].text for row in exhibit.rows], column.align == "left"
        )
        for at, column in enumerate(exhibit.columns)
    ]
    columns.insert(source_at(exhibit), _Column(SOURCE, "", [row.source for row in exhibit.rows], True))
    return columns


def _set(columns: Sequence[_Column]) -> tuple[_Size, list[float]]:
    """How large a table is set, and the characters on a line of each column that may be broken, when the page is narrow."""
    texts = [column for column in columns if column.is_text]
    numbers = sum(column.number_width for column in columns if not column.is_text)
    least = [column.longest_word + 2 for column in texts]
    rooms = {
        size: (_NARROWEST_PT - 2 * size.beside_pt * len(columns)) / size.character_pt - numbers
        for size in _SIZES
    }
    size = next((size for size, room in rooms.items() if room >= sum(least)), _SIZES[-1])
    more = [max(column.longest, word) - word for column, word in zip(texts, least, strict=True)]
    left = max(rooms[size] - sum(least), 0.0)
    share = min(left / sum(more), 1.0) if sum(more) else 0.0
    return size, [word + share * further for word, further in zip(least, more, strict=True)]


def _preamble(columns: Sequence[_Column], widths: Sequence[float]) -> str:
    shares = iter(width * len(widths) / sum(widths) for width in widths)
    return "".join(
        f">{{\\hsize={next(shares):.3f}\\hsize\\raggedright\\arraybackslash\\hspace{{0pt}}}}X"
        if column.is_text
        else "r"
        for column in columns
    )


class _Block(NamedTuple):
    """Rows that belong together."""

    rows: range
    lines: float


def _parts(
    rows: Sequence[Row], columns: Sequence[_Column], widths: Sequence[float], note_lines: int
) -> list[range]:
    """The rows of each part: blocks stay together, and the last part leaves room for the notes."""
    starts = [index for index, row in enumerate(rows) if row.is_first_of_block or not index]
    parts: list[list[_Block]] = [[]]
    for first, end in pairwise([*starts, len(rows)]):
        lines = sum(_line_count(index, columns, widths) for index in range(first, end)) + _BETWEEN_BLOCKS
        if parts[-1] and _lines_of(parts[-1]) + lines > _MOST_LINES:
            parts.append([])
        parts[-1].append(_Block(range(first, end), lines))
    last, with_notes = parts[-1], [parts[-1][-1]]
    while len(with_notes) < len(last):
        longer = last[-len(with_notes) - 1 :]
        if _lines_of(longer) + note_lines > _MOST_LINES_WITH_NOTES:
            break
        with_notes = longer
    parts[-1:] = [part for part in (last[: -len(with_notes)], with_notes) if part]
    return [range(part[0].rows.start, part[-1].rows.stop) for part in parts]


def _lines_of(blocks: Sequence[_Block]) -> float:
    return sum(block.lines for block in blocks)


def _line_count(index: int, columns: Sequence[_Column], widths: Sequence[float]) -> int:
    texts = [column.texts[index] for column in columns if column.is_text]
    return max((-(-len(text) // int(width)) for text, width in zip(texts, widths, strict=True)), default=1)


def _heads(columns: Sequence[_Column]) -> list[str]:
    heads = [
        _cell(column, column.head) if column.is_text else _stacked(column.head, column.number_width, "r")
        for column in columns
    ]
    if not any(column.group for column in columns):
        return [_ampersands(heads)]
    groups, rules, place = [], [], 1
    for group, members in groupby(columns, key=lambda column: column.group):
        widths = [column.number_width + 1 for column in members]
        end = place + len(widths) - 1
        if group:
            groups.append(f"\\multicolumn{{{len(widths)}}}{{c}}{{{_stacked(group, sum(widths), 'c')}}}")
            rules.append(f"\\cmidrule(lr){{{place}-{end}}}")
        else:
            groups += [""] * len(widths)
        place = end + 1
    return [_ampersands(groups), "".join(rules), _ampersands(heads)]


def _stacked(text: str, width: int, align: str) -> str:
    """A head on as many lines as it takes to be no wider than this, or than its longest word."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    if len(lines) == 1:
        return _escaped(text)
    stacked = r" \\ ".join(map(_escaped, lines))
    return f"\\shortstack[{align}]{{{stacked}}}"


def _cell(column: _Column, text: str) -> str:
    return _escaped(_MAY_BREAK.join(_pieces(text, is_keeping_spaces=True)) if column.is_text else text)


def _pieces(text: str, *, is_keeping_spaces: bool = False) -> list[str]:
    """A text where it may be broken: after what joins the parts of a name, within what is very long, and at spaces."""
    whole = re.sub(rf"(\w{{{_LONGEST_KEPT_WHOLE}}})(?=\w)", rf"\1{_MAY_BREAK}", text)
    after = rf"(?<=[^\w\s(.])(?=\S)|(?<=_)|{_MAY_BREAK}"
    return re.split(after if is_keeping_spaces else rf"{after}|\s+", whole)


def _ampersands(texts: Sequence[str]) -> str:
    return " & ".join(texts) + r" \\"


def _escaped(text: str) -> str:
    known = "".join(char for char in kept_together(text) if char.isprintable() or char in _LATEX)
    apart = re.sub("-(?=-)", f"-{_NOTHING}", known)
    return "".join(_LATEX.get(char, char) for char in apart)
