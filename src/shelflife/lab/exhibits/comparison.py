"""The paper beside ours: its rows under those of planners, and which numbers are the same."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from shelflife.client import EXACT
from shelflife.lab.exhibits.cells import Cell, Column, Exhibit, Kind, Row, label, number
from shelflife.lab.exhibits.pools import Runs, Subject

__all__ = [
    "PLANNER",
    "Pair",
    "agreement_with_the_paper",
    "compared_with_the_paper",
    "default_note",
    "notes",
    "rows_beside_the_paper",
    "with_default",
]

PLANNER = Column("Planner", align="left")
_FOUND_UNAIDED = (
    "gpt-5.4-mini finds some conditional rewrites unaided, and no planner that only does as it is shown can;"
    " sim:gpt-5.4-mini, which guesses one in five, comes near"
)
_REASONS = {
    ("compliant-last", "Post-drift funding A2"): _FOUND_UNAIDED,
    ("compliant-last", "Retries per stream A0"): _FOUND_UNAIDED,
}
"""By planner and place, why a number of ours is not the paper's."""

_DEFAULT_ARM_NOTE = f"The arm {EXACT.name} is the strategy that users of the package have by default; the paper has no such arm."


def with_default(arms: Sequence[str], runs: Runs, stream: str) -> list[str]:
    """Arms of the paper, and the default of users where it was run."""
    return [*arms, *([EXACT.name] if EXACT.name in runs.arms(stream) else [])]


def rows_beside_the_paper(
    subjects: Iterable[Subject],
    here: Callable[[Subject], list[Cell]],
    published: Callable[[str], list[Cell] | None],
) -> tuple[Row, ...]:
    """For every subject that has a number its row, and under it the paper's."""
    rows = []
    for subject in subjects:
        cells = here(subject)
        if all(cell.is_missing for cell in cells):
            continue
        theirs = published(subject.counterpart) if subject.counterpart else None
        name = label(subject.name, is_code=True)
        rows.append(Row((name, *cells), subject.kind, True, is_compared=theirs is not None))
        if theirs is not None and subject.counterpart:
            rows.append(Row((label(subject.counterpart, is_code=True), *theirs), Kind.PAPER))
    return tuple(rows)


def notes(where: str | None, *more: str | None) -> tuple[str, ...]:
    """What is said under a table, last where the paper has it, if it has."""
    return tuple(note for note in (*more, where and f"Paper: {where}.") if note)


def default_note(arms: Sequence[str]) -> str | None:
    """What the default of users is, where it is among the arms."""
    return _DEFAULT_ARM_NOTE if EXACT.name in arms else None


class Pair(NamedTuple):
    """A number of ours and the paper's of the same thing."""

    who: str
    """The planner."""

    where: str
    ours: str
    theirs: str

    @property
    def is_same(self) -> bool:
        return self.ours == self.theirs

    @property
    def why(self) -> str:
        """Why it is not the same."""
        return _REASONS.get((self.who, self.where), "not known")


def compared_with_the_paper(exhibits: Sequence[Exhibit]) -> list[Pair]:
    """Everything that the exact planners and the paper have both."""
    return [pair for exhibit in exhibits for pairs in _by_planner(exhibit).values() for pair in pairs]


def agreement_with_the_paper(exhibits: Sequence[Exhibit]) -> Exhibit:
    """Cell by cell, where the exact planners and the paper say the same."""
    rows = []
    for exhibit in exhibits:
        for planner, pairs in _by_planner(exhibit).items():
            differing = [pair for pair in pairs if not pair.is_same]
            apart = [f"{pair.where}: {pair.ours} here, {pair.theirs} there" for pair in differing]
            cells = [
                label(exhibit.title),
                label(planner, is_code=True),
                number(len(pairs), Kind.EXACT, 0),
                number(len(pairs) - len(apart), Kind.EXACT, 0),
                label("; ".join(apart) or "nothing"),
                label("; ".join(dict.fromkeys(pair.why for pair in differing))),
            ]
            rows.append(Row(tuple(cells), Kind.EXACT, True))
    return Exhibit(
        "agreement",
        "Against the paper, cell by cell",
        "Of the numbers that the paper prints and that need no model, how many come out the same when the stream is played through the real server.",
        (
            Column("Exhibit", align="left"),
            Column("Planner", align="left"),
            Column("Compared"),
            Column("The same"),
            Column("What differs", align="left"),
            Column("Why", align="left"),
        ),
        tuple(rows),
        (
            "The planner compliant is held against gpt-5-mini and compliant-last against gpt-5.4-mini, the models that do as they do with two values for one field;"
            " the price sheet against the paper's three, which agree in every count.",
            "Tokens are not compared, for the paper's are vendors' bills for other prompts. Nor are bytes, which are those of another API's texts: what each field costs on the wire says there why it differs."
            " That retries stay near a number however often a table is rotated is held against ours under the rotations.",
        ),
    )


def _by_planner(exhibit: Exhibit) -> dict[str, list[Pair]]:
    """What an exhibit has of each exact planner and of the paper."""
    if PLANNER not in exhibit.columns:
        return {}
    who_at = exhibit.columns.index(PLANNER)
    found: dict[str, list[Pair]] = {}
    for block in _blocks(exhibit):
        theirs = next((one for one in block if one.kind is Kind.PAPER), None)
        for ours in block:
            if theirs is not None and ours.is_compared and ours.kind is Kind.EXACT:
                who = ours.cells[who_at].text
                found.setdefault(who, []).extend(_pairs(who, exhibit, ours, theirs))
    return {who: pairs for who, pairs in found.items() if pairs}


def _pairs(who: str, exhibit: Exhibit, ours: Row, theirs: Row) -> Iterator[Pair]:
    for column, left, right in zip(exhibit.columns, ours.cells, theirs.cells, strict=True):
        is_in_both = left.kind is not None and not left.is_missing and not right.is_missing
        if is_in_both and column.is_comparable:
            group = column.group.removesuffix(" (%)")
            yield Pair(who, f"{group} {column.name}".strip(), left.text, right.text)


def _blocks(exhibit: Exhibit) -> Iterator[list[Row]]:
    block: list[Row] = []
    for one in exhibit.rows:
        if one.is_first_of_block and block:
            yield block
            block = []
        block.append(one)
    if block:
        yield block
