"""Which levels of the protocol each arm draws on, read off the strategies."""

from shelflife.lab import paper
from shelflife.lab.arms import ARMS, OF_USERS, Arm, OnRules, OnTable
from shelflife.lab.exhibits.cells import DASH, Cell, Column, Exhibit, Kind, Row, label
from shelflife.lab.exhibits.comparison import notes
from shelflife.lab.exhibits.pools import Runs
from shelflife.lab.spec import Consume

__all__ = ["coverage"]

_LEVELS = ("L2", "L3", "L1", "L4", "L5", "L6", "Diff")
_USED, _BUNDLED, _UNUSED = "\N{CHECK MARK}", "(\N{CHECK MARK})", ""


def coverage(runs: Runs) -> Exhibit:
    """Which levels of the protocol each arm draws on, as its strategy has it."""
    rows = []
    for strategy in (*ARMS.values(), OF_USERS):
        if not strategy.is_remembering:
            continue
        consumed = {run.spec.consume for run in runs.of_the_papers_conduct if run.spec.arm == strategy.name}
        marks = {**_consumption(consumed), **_validity(strategy)}
        cells = [
            label(strategy.name, is_code=True),
            *(Cell(marks[level], Kind.EXACT) for level in _LEVELS),
            label(_what_it_does(strategy)),
        ]
        rows.append(Row(tuple(cells), Kind.EXACT, True))
        if known := paper.COVERAGE.facts.get(strategy.name):
            theirs = [
                Cell(
                    _USED if level in known.active else _BUNDLED if level in known.bundled else _UNUSED,
                    Kind.PAPER,
                )
                for level in _LEVELS
            ]
            rows.append(Row((label(strategy.name, is_code=True), *theirs, label(DASH)), Kind.PAPER))
    return Exhibit(
        "coverage",
        "Which arm draws on which level",
        "A check mark says that the arm acts on what that level sends; in brackets, only together with another level.",
        (
            Column("Arm", align="left"),
            *(Column(level, "Compliance") for level in _LEVELS[:2]),
            *(Column(level, "Validity") for level in _LEVELS[2:]),
            Column("What it does when something moves", align="left"),
        ),
        tuple(rows),
        notes(
            paper.COVERAGE.where,
            "Read off the strategies themselves, and levels 2 and 3 off the runs that are here; a dash there says that the arm was not run.",
            "L4 stands in brackets where rows are evicted: the rows that a fix rests on come with that level, and without them a changed row costs the whole table.",
        ),
    )


def _consumption(consumed: set[Consume]) -> dict[str, str]:
    if not consumed:
        return {"L2": DASH, "L3": DASH}
    is_amended = Consume.LEVEL_3 in consumed
    return {
        "L2": _USED if is_amended or Consume.LEVEL_2 in consumed else _UNUSED,
        "L3": _USED if is_amended else _UNUSED,
    }


def _validity(strategy: Arm) -> dict[str, str]:
    is_by_row = strategy.on_table is OnTable.EVICT_ROWS
    return {
        "L1": _USED if strategy.on_table is not OnTable.NOTHING else _UNUSED,
        "L4": _USED if strategy.is_comparing_vectors else _BUNDLED if is_by_row else _UNUSED,
        "L5": _USED if strategy.is_following_graph else _UNUSED,
        "L6": _USED if strategy.on_rules is not OnRules.NOTHING else _UNUSED,
        "Diff": _USED if is_by_row else _UNUSED,
    }


def _what_it_does(strategy: Arm) -> str:
    parts = [f"tables: {strategy.on_table.value}"]
    if strategy.is_following_graph:
        parts.append("with what lies downstream")
    if strategy.on_rules is not OnRules.NOTHING:
        parts.append(f"rules: {strategy.on_rules.value}")
    if strategy.is_comparing_vectors:
        parts.append("on a failure compare vectors")
    return "; ".join(parts)
