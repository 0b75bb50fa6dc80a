"""A planner's row with the paper's under it, and what such tables have in common."""

from collections.abc import Callable, Iterable, Sequence

from shelflife.client import EXACT
from shelflife.lab.exhibits.cells import Cell, Column, Kind, Row, label, row
from shelflife.lab.exhibits.pools import Runs, Subject

__all__ = ["PLANNER", "default_note", "notes", "rows_beside_the_paper", "with_default"]

PLANNER = Column("Planner", align="left")
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
            rows.append(row(Kind.PAPER, [label(subject.counterpart, is_code=True), *theirs]))
    return tuple(rows)


def notes(where: str, *more: str | None) -> tuple[str, ...]:
    """What is said under a table, last where the paper has it."""
    return (*(note for note in more if note), f"Paper: {where}.")


def default_note(arms: Sequence[str]) -> str | None:
    """What the default of users is, where it is among the arms."""
    return _DEFAULT_ARM_NOTE if EXACT.name in arms else None
