"""What each member of the contract takes on the wire, by level, beside what the paper counts."""

from collections.abc import Iterator, Sequence

from shelflife.lab import paper
from shelflife.lab.exhibits.cells import (
    DASH,
    Cell,
    Column,
    Exhibit,
    Kind,
    Row,
    kind_of,
    label,
    number,
    written,
)
from shelflife.lab.exhibits.comparison import PLANNER, notes
from shelflife.lab.exhibits.pools import Runs
from shelflife.lab.scores import RunScore
from shelflife.lab.spec import PLAIN, Conduct

__all__ = ["wire_fields"]

_OWN_LEVEL = 1
_STAMPS, _HINT, _TABLE = "table_versions", "cache_hint", "table"
_FIRST_OF_OURS = 4
"""From this level on suggestions have members beside the paper's."""

_AS_THE_PAPERS_CLIENT = Conduct(match="family")
"""With which the paper's numbers come out of its own wire: so the responses are of the same sorts as the paper's."""

_WHY = {
    "Responses: of them with contract": "every response of ours carries the stamps, and in the paper seven in ten carry anything of the contract",
    "Mean response: bytes": "the texts of another server; ours tells of a subscription that was made in as many words as Stripe does",
    "Mean response: contract": "as above: in the paper three responses in ten carry nothing",
    "Mean response: (%)": "every response carries the contract, and the rest of it is of another length",
    "Carrying ones: mean": "all of ours have the dictionary, and by its own numbers about {with_stamps:,} of the paper's {carrying:,}",
    "Carrying ones: most": "the dictionary and two fields of a suggestion, with the names that our tables have and the versions that our server mints",
    "table_versions: of all bytes (%)": "it comes with every response of ours, and by its own numbers with about {with_stamps:,} of the paper's {responses:,}",
    "table_versions: bytes each": "the names of our tables, and the versions that our server mints after a drift",
    "Fields of a suggestion: of all bytes (%)": "they come with refusals, which by its own numbers are about {with_hints:,} of the paper's {responses:,}: its models fail more often than a planner that does as it is shown",
    "Fields of a suggestion: cache_hint": "another value",
    "Fields of a suggestion: table": "the names of the tables that our fixes come from",
}
"""By column, why it is not the paper's number."""


def wire_fields(runs: Runs) -> Exhibit:
    """Bytes by member, at the paper's own level and above."""
    by_wire: dict[tuple[int, bool, Kind], dict[str, list[RunScore]]] = {}
    for run in runs.on_honest_servers:
        level, conduct = run.spec.level, run.spec.conduct
        is_the_papers = conduct == _AS_THE_PAPERS_CLIENT
        if run.wire.responses and (is_the_papers or (conduct == PLAIN and level >= _FIRST_OF_OURS)):
            key = level, is_the_papers, kind_of(run)
            by_wire.setdefault(key, {}).setdefault(run.spec.stream, []).append(run)
    rows: list[Row] = []
    at_the_papers_level: Row | None = None
    for (level, is_the_papers, kind), streams in sorted(by_wire.items(), key=lambda one: _place(*one[0])):
        lines = dict(sorted(streams.items()))
        if len(lines) > 1:
            lines = {
                f"{len(lines)} streams": [run for played in lines.values() for run in played],
                **_known(lines),
            }
        for index, (stream, played) in enumerate(lines.items()):
            names = (
                _who(played),
                label(_wire(level, is_the_papers)),
                label(stream, is_code=" " not in stream),
            )
            rows.append(Row((*names, *_of_fields(played, kind)), kind, not index))
            if level == _OWN_LEVEL and kind is Kind.EXACT and index == 0:
                at_the_papers_level = rows[-1]
        if level == _OWN_LEVEL and kind is Kind.EXACT:
            rows.append(_published())
    if rows and at_the_papers_level is None:
        rows.append(_published()._replace(is_first_of_block=True))
    return Exhibit(
        "wire-fields",
        "What each field costs on the wire",
        "The paper counts the fields of Level 1, the stamps of a response and the two fields of a suggestion: here they are at that level, and what the levels above add.",
        _COLUMNS,
        tuple(rows),
        notes(
            paper.WIRE_FIELDS.where,
            "A field is counted with its name, the colon and its value; the contract as a whole also with the commas between. The fix itself is not counted.",
            *_why(at_the_papers_level),
        ),
    )


_COLUMNS = (
    PLANNER,
    Column("Wire", align="left"),
    Column("Stream", align="left"),
    Column("counted", "Responses"),
    Column("of them with contract", "Responses"),
    Column("bytes", "Mean response"),
    Column("contract", "Mean response"),
    Column("(%)", "Mean response"),
    Column("mean", "Carrying ones"),
    Column("most", "Carrying ones"),
    Column("of all bytes (%)", _STAMPS),
    Column("bytes each", _STAMPS),
    Column("of all bytes (%)", "Fields of a suggestion"),
    Column(_HINT, "Fields of a suggestion"),
    Column(_TABLE, "Fields of a suggestion"),
    Column("of all bytes (%)", "Other fields"),
)


def _place(level: int, is_the_papers: bool, kind: Kind) -> tuple[int, bool, int]:
    return level, not is_the_papers, [*Kind].index(kind)


def _who(played: Sequence[RunScore]) -> Cell:
    names = sorted({run.spec.planner for run in played})
    return label(names[0], is_code=True) if len(names) == 1 else label(f"{len(names)} planners")


def _wire(level: int, is_the_papers: bool) -> str:
    is_all = level < _FIRST_OF_OURS or not is_the_papers
    return f"Level {level}" if is_all else f"Level {level}, the paper's members"


def _known(lines: dict[str, list[RunScore]]) -> dict[str, list[RunScore]]:
    """The streams that stand for an API each."""
    return {stream: played for stream, played in lines.items() if stream in ("drifted", "recipes")}


def _of_fields(played: Sequence[RunScore], kind: Kind) -> Iterator[Cell]:
    wires = [run.wire for run in played]
    responses, whole = sum(one.responses for one in wires), sum(one.bytes for one in wires)
    contract, carrying = sum(one.contract_bytes for one in wires), sum(one.carrying for one in wires)

    def bytes_of(name: str) -> int:
        return sum(one.fields[name].bytes for one in wires if name in one.fields)

    def each(name: str) -> float | None:
        times = sum(one.fields[name].times for one in wires if name in one.fields)
        return bytes_of(name) / times if times else None

    of_a_suggestion = bytes_of(_HINT) + bytes_of(_TABLE)
    all_fields = sum(bytes_of(name) for name in {name for one in wires for name in one.fields})
    yield number(responses, kind, 0)
    yield number(carrying, kind, 0)
    yield number(whole / responses, kind, 0)
    yield number(contract / responses, kind, 0)
    yield number(100 * contract / whole, kind)
    yield number(contract / carrying if carrying else None, kind, 0)
    yield number(max(one.most_contract_bytes for one in wires), kind, 0)
    yield number(100 * bytes_of(_STAMPS) / whole, kind)
    yield number(each(_STAMPS), kind, 0)
    yield number(100 * of_a_suggestion / whole, kind)
    yield number(each(_HINT), kind, 0)
    yield number(each(_TABLE), kind, 0)
    yield number(100 * (all_fields - bytes_of(_STAMPS) - of_a_suggestion) / whole, kind)


def _published() -> Row:
    cost, fields = paper.WIRE.facts, paper.WIRE_FIELDS.facts
    texts = (
        written(cost.responses, 0),
        written(fields.carrying, 0),
        written(cost.mean_bytes, 0),
        written(cost.mean_contract_bytes, 0),
        written(cost.contract_percent, 1),
        written(fields.mean_of_carrying, 0),
        written(fields.most, 0),
        written(fields.versions_percent, 1),
        written(fields.versions_bytes, 0),
        written(fields.suggestion_percent, 1),
        written(fields.hint_bytes, 0),
        written(fields.table_bytes, 0),
        DASH,
    )
    names = (label("7 models"), label(_wire(_OWN_LEVEL, is_the_papers=True)), label("all streams"))
    return Row((*names, *(Cell(text, Kind.PAPER) for text in texts)), Kind.PAPER)


def _why(ours: Row | None) -> Iterator[str]:
    """For each number of ours at the paper's level that is another, why."""
    told = _worked_out()
    for column, here, there in zip(_COLUMNS, ours.cells, _published().cells, strict=True) if ours else ():
        name = f"{column.group}: {column.name}"
        if name in _WHY and here.text != there.text:
            yield f"{name}, {here.text} here and {there.text} there: {_WHY[name].format(**told)}."


def _worked_out() -> dict[str, int]:
    """How many of the paper's responses had what, in hundreds: the share of a field in all bytes, over what it takes each time."""
    cost, fields = paper.WIRE.facts, paper.WIRE_FIELDS.facts
    one_percent = cost.responses * cost.mean_bytes / 100
    hint_and_table = fields.hint_bytes + fields.table_bytes
    return {
        "responses": cost.responses,
        "carrying": fields.carrying,
        "with_stamps": 100 * round(fields.versions_percent * one_percent / fields.versions_bytes / 100),
        "with_hints": 100 * round(fields.suggestion_percent * one_percent / hint_and_table / 100),
    }
