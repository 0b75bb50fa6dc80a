"""What an exhibit is: a table whose every cell knows where its number comes from."""

from collections.abc import Iterable
from enum import Enum
from typing import Literal, NamedTuple

from shelflife.lab.planners.simulated import DETERMINISTIC
from shelflife.lab.scores import RunScore

__all__ = [
    "DASH",
    "Cell",
    "Column",
    "Exhibit",
    "Kind",
    "Row",
    "count",
    "kind_of",
    "kind_of_planner",
    "kind_of_tokens",
    "label",
    "number",
    "signed",
    "written",
]

DASH = "\N{EN DASH}"
"""What is not there. Never zero."""

_MINUS = "\N{MINUS SIGN}"


class Kind(Enum):
    """Where a number comes from."""

    EXACT = "deterministic"
    """Not called exact where people read it: that is the name of an arm."""

    TUNED = "simulated, tuned to the paper"
    SIMULATED = "simulated"
    ESTIMATED = "estimated"
    MEASURED = "measured"
    PAPER = "paper"

    @property
    def slug(self) -> str:
        """What it is called in a style sheet."""
        return self.name.lower()

    @property
    def means(self) -> str:
        """What it says about a number, in one sentence."""
        return _MEANINGS[self]


_MEANINGS = {
    Kind.EXACT: "Follows from the stream, the arm and the protocol, for a planner that has no chance in it.",
    Kind.TUNED: "Played by a stand-in whose rates were set after the paper's: its compliance is an input, not a finding.",
    Kind.SIMULATED: "Played by a stand-in at rates that somebody chose.",
    Kind.ESTIMATED: "Tokens, counted by one public tokenizer: they follow from how our prompts are worded, and are nobody's bill.",
    Kind.MEASURED: "Played by a real model.",
    Kind.PAPER: "Published in the paper, and not run here.",
}


def kind_of(score: RunScore) -> Kind:
    """Where the numbers of a run come from."""
    return kind_of_planner(score.planner_kind, score.tuned_to, score.spec.planner)


def kind_of_planner(kind: Literal["simulated", "model"], tuned_to: str | None, name: str) -> Kind:
    """The same of whatever a planner did."""
    if kind == "model":
        return Kind.MEASURED
    if tuned_to:
        return Kind.TUNED
    return Kind.EXACT if name in DETERMINISTIC else Kind.SIMULATED


def kind_of_tokens(runs: Iterable[RunScore], kind: Kind) -> Kind:
    """Where the tokens of runs come from, all of whose other numbers are of this kind."""
    return Kind.ESTIMATED if any(run.tokens.source == "estimated" for run in runs) else kind


class Cell(NamedTuple):
    """What stands in one place of a table."""

    text: str
    kind: Kind | None
    """None for what names a row and is no number."""

    is_code: bool = False
    """A name that a program knows."""

    @property
    def is_missing(self) -> bool:
        return self.text == DASH


class Column(NamedTuple):
    """One column; neighbours of the same group share a heading."""

    name: str
    group: str = ""
    align: Literal["left", "right"] = "right"
    is_comparable: bool = True
    """The paper's number is of the same thing. Tokens are not: its are vendors' bills for other prompts."""


class Row(NamedTuple):
    """One row, all its numbers of one kind but for tokens that are estimated."""

    cells: tuple[Cell, ...]
    kind: Kind
    is_first_of_block: bool = False
    """Begins something new, after what belongs together."""

    is_compared: bool = False
    """The paper's row of its block is about the same thing."""

    @property
    def kinds(self) -> list[Kind]:
        """Where its numbers come from, its tokens last."""
        is_estimated = any(cell.kind is Kind.ESTIMATED and not cell.is_missing for cell in self.cells)
        return [self.kind, *([Kind.ESTIMATED] if is_estimated else [])]

    @property
    def source(self) -> str:
        """The same in words."""
        return ", tokens ".join(kind.value for kind in self.kinds)


class Exhibit(NamedTuple):
    """A table with what a reader needs to read it."""

    key: str
    """What its files are called."""

    title: str
    guide: str
    """How to read it, in one sentence."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def kinds(self) -> list[Kind]:
        """Where its numbers come from, in the order of the legend."""
        return [kind for kind in Kind if any(kind in row.kinds for row in self.rows)]


def label(text: str, *, is_code: bool = False) -> Cell:
    """A cell that names something. Line breaks have no place in it, whoever wrote them."""
    return Cell(" ".join(text.split()) or DASH, None, is_code)


def number(value: float | None, kind: Kind, digits: int = 1) -> Cell:
    """A cell with a number, or with a dash."""
    return Cell(DASH if value is None else written(value, digits), kind)


def count(value: float | None, kind: Kind) -> Cell:
    """A cell with a count. It is whole; a mean of several that is not has one digit."""
    return number(value, kind, 0 if value is not None and float(value).is_integer() else 1)


def signed(value: float | None, kind: Kind, digits: int = 1) -> Cell:
    """The same for a difference, with its sign."""
    if value is None:
        return Cell(DASH, kind)
    text = written(value, digits)
    return Cell(f"+{text}" if float(f"{value:.{digits}f}") > 0 else text, kind)


def written(value: float, digits: int) -> str:
    """A number for people."""
    text = f"{value:,.{digits}f}".replace("-", _MINUS)
    return text.removeprefix(_MINUS) if not float(f"{value:.{digits}f}") else text
