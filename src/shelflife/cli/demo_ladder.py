"""The second half of the demo: whole streams on both APIs, the paper's numbers beside ours, and the report."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from shelflife.cli.errors import CommandError, needing
from shelflife.cli.progress import Progress
from shelflife.cli.tables import bold, print_table
from shelflife.lab.exhibits import Collection, ExhibitsError, collection_of, make_room, write_all
from shelflife.lab.exhibits.cells import DASH, Kind, Row
from shelflife.lab.exhibits.comparison import compared_with_the_paper
from shelflife.lab.grid import execute
from shelflife.lab.paper import LADDER, TOKENS, counterpart_of
from shelflife.lab.planners import PlannerError
from shelflife.lab.records import RecordsError
from shelflife.lab.runner import LabError
from shelflife.lab.scenarios import load
from shelflife.lab.scores import RunScore
from shelflife.lab.spec import PLAIN, Conduct, Consume, Match, RunSpec

__all__ = ["make_room_for_the_report", "show_the_ladder"]

_LADDER = {
    "A0": "no memory",
    "A1": "a memory that never forgets",
    "A2": "drops a table that has moved",
    "A2D": "drops the rows that have changed",
}
_MINUS = "\N{MINUS SIGN}"
_DETECTION = ("A2D", "A2DC", "A2DR", "A2DRC", "A2DO")
_RUNS = (
    *(RunSpec("drifted", arm, "compliant") for arm in (*_LADDER, "A2DC", "A2DG")),
    *(RunSpec("drifted", arm, "compliant-last") for arm in _LADDER),
    *(RunSpec("rules", arm, "compliant") for arm in _DETECTION),
    *(
        RunSpec(f"rotations-{which}", arm, "compliant")
        for which in ("1", "2", "3", "3-early")
        for arm in ("A1", "A2D")
    ),
    *(
        RunSpec("drifted", arm, "compliant", level=1, conduct=Conduct(match=match))
        for match in get_args(Match)
        for arm in _LADDER
    ),
    *(RunSpec("undrifted", arm, "compliant") for arm in ("A1", "A2", "A2D")),
    *(RunSpec("recipes", arm, "compliant") for arm in _LADDER),
    *(RunSpec("drifted", arm, "conservative") for arm in ("A0", "A2D")),
    RunSpec("drifted", "A2D", "conservative", consume=Consume.APPLY),
    *(
        RunSpec("drifted", "A2D", "compliant", conduct=conduct)
        for conduct in (
            Conduct(form="compact"),
            Conduct(fresh="check"),
            Conduct(fresh="feed"),
            Conduct(form="compact", fresh="feed"),
            Conduct(precondition=True),
            Conduct(fresh="check", agents=2),
        )
    ),
    RunSpec(
        "drifted",
        "A2D",
        "compliant",
        consume=Consume.APPLY,
        conduct=Conduct(form="compact", fresh="feed", precondition=True),
    ),
    *(
        RunSpec("silent", "A2D", "compliant", conduct=Conduct(precondition=is_asked))
        for is_asked in (False, True)
    ),
    *(
        RunSpec(stream, "A0", "compliant")
        for stream in ("injection", "bumping", "pinned", "lying", "disclosure")
    ),
    *(
        RunSpec(stream, "A2D", "compliant", conduct=conduct)
        for stream, conducts in (
            ("injection", (PLAIN, Conduct(guard="fields"))),
            ("bumping", (PLAIN, Conduct(bound=4))),
            ("pinned", (PLAIN, Conduct(trust=True))),
            ("lying", (PLAIN, Conduct(trust=True))),
            ("disclosure", (PLAIN, Conduct(disclose="aliases"))),
        )
        for conduct in conducts
    ),
)


def make_room_for_the_report(out: Path) -> None:
    """Find out at once when it cannot be written, and not when all is played."""
    try:
        make_room(out)
    except ExhibitsError as error:
        raise CommandError(str(error)) from error


def show_the_ladder(out: Path) -> None:
    """Play, show, and write the report."""
    lengths = sorted({len(load(spec.stream).order) for spec in _RUNS})
    print(f"\n{bold(f'Now whole streams: {_either(lengths)} tasks each, and the data drifts under them')}")
    print("  Servers, memory and wire are real; the planner is one that does what it is shown.\n")
    try:
        scores = _all_played()
        _show_table(scores)
        _show_apply(scores)
        collection = collection_of(scores)
        with needing("lab"):
            report, *_ = write_all(collection, out)
    except (ExhibitsError, LabError, PlannerError, RecordsError) as error:
        raise CommandError(str(error)) from error
    _show_agreement(collection)
    _show_what_is_beyond(collection)
    _show_attacks(collection)
    print(f"\nEverything that was played, with the paper beside it: {bold(str(report))}")


def _all_played() -> list[RunScore]:
    episode_count = sum(len(load(spec.stream).order) for spec in _RUNS)
    with (
        tempfile.TemporaryDirectory(prefix="shelflife-demo-") as folder,
        Progress(episode_count, "episodes") as progress,
    ):
        outcome = execute(_RUNS, Path(folder), on_episodes=progress.advance)
    for spec, why in outcome.failures:
        raise CommandError(f"{spec.stream} could not be played by {spec.planner} with {spec.arm}: {why}")
    return outcome.scores


def _show_agreement(collection: Collection) -> None:
    compared = compared_with_the_paper(collection.exhibits)
    same_count = sum(pair.is_same for pair in compared)
    print(f"\n  Of the paper's numbers that need no model {same_count} of {len(compared)} come out the same.")
    for pair in compared:
        if not pair.is_same:
            print(f"  Not the same: {pair.where} of {pair.who}, {pair.ours} here and {pair.theirs} there.")


def _show_what_is_beyond(collection: Collection) -> None:
    rows = []
    for row, cells in _rows_of(collection, "beyond"):
        retries = [cells["Retries first"], cells["Retries others"]]
        rows.append(
            (
                cells["Stream"],
                cells["Conduct"] if row.kind is not Kind.PAPER else f"paper, {cells['Planner']}",
                " + ".join(one for one in retries if one != "-"),
                cells["Stale values sent"],
                cells["Stale values done"],
                cells["Contract (%) responses"],
                cells["Contract (%) both ways"],
                cells["Contract (%) in all"],
            )
        )
    print(f"\n{bold('Beyond the paper: A2D with what else the contract has')}\n")
    shown = (
        "stream",
        "conduct",
        "retries",
        "stale sent",
        "stale done",
        "contract %",
        "both ways %",
        "in all %",
    )
    print_table(shown, rows, indent="  ")
    print(
        "  Stale sent, stale done: requests with an outdated value, and those of them that were carried out."
    )
    print(
        "  Contract: its part in the bytes of responses, of requests and responses, and with its own questions and the feed."
    )


def _show_attacks(collection: Collection) -> None:
    shown = {
        "attack": "Attack",
        "defence": "Defence",
        "retries": "Retries",
        "tokens": "Tokens spent",
        "vs A0 %": "Tokens vs A0 (%)",
        "questions": "Questions asked",
        "stale done": "Stale values done",
        "injected": "Injected memory",
        "by answers": "Injected answers",
        "names": "Names",
    }
    rows = [
        tuple(cells[head] for head in shown.values()) for _, cells in _rows_of(collection, "under-attack")
    ]
    print(f"\n{bold('Under attack: A2D and a server that is up to something')}\n")
    print_table(list(shown), rows, indent="  ")
    print(
        "  Injection: the server adds an amount of its own to every fix. Bumping: it says with every response that all"
        "\n  has changed. Pinned: a proxy answers for ever with an old state. Lying: the server itself does, and signs it,"
        "\n  which nothing stops. Disclosure: somebody collects the names of its tables and rows."
        "\n  Injected: requests done with such an amount from memory; by answers: from the server's answer itself."
    )


def _rows_of(collection: Collection, key: str) -> Iterator[tuple[Row, dict[str, str]]]:
    """The rows of an exhibit, with their cells by the names of the columns."""
    for exhibit in collection.exhibits:
        heads = [f"{column.group} {column.name}".strip() for column in exhibit.columns]
        for row in exhibit.rows if exhibit.key == key else ():
            texts = (cell.text.replace(DASH, "-").replace(_MINUS, "-") for cell in row.cells)
            yield row, dict(zip(heads, texts, strict=True))


def _show_table(scores: list[RunScore]) -> None:
    model = counterpart_of("compliant") or ""
    ladder, cost = LADDER.facts[model], TOKENS.facts[model]
    rows = []
    for score in _played(scores, "drifted", "compliant"):
        if score.spec.arm not in _LADDER:
            continue
        untouched = score.after_split.percent if score.after_split else None
        rows.append(
            (
                f"{score.spec.arm:<4} {_LADDER[score.spec.arm]}",
                *_beside(score.retries, cost.retries.get(score.spec.arm), "{:.0f}"),
                *_beside(score.compliance, ladder.compliance.get(score.spec.arm), "{:.1f} %"),
                *_beside(untouched, ladder.funding_post.get(score.spec.arm), "{:.1f} %"),
                "-" if score.eviction_precision is None else f"{score.eviction_precision:.2f}",
            )
        )
    heads = ("arm", "retries", "paper", "compliance", "paper", "untouched class", "paper", "precision")
    print_table(heads, rows, indent="  ")
    print(f"  paper: its row for {model}. Compliance: the remembered fix is in the first attempt.")
    print(
        "  Untouched class: first tries after a bump that changed no row. Precision: evictions that were right."
    )


def _show_apply(scores: list[RunScore]) -> None:
    shown, applied = (
        next(one for one in _played(scores, "drifted", "conservative", consume) if one.spec.arm == "A2D")
        for consume in (Consume.LEVEL_3, Consume.APPLY)
    )
    print(
        f"\n  A planner that never takes a new field from its memory complies in {shown.compliance:.0f} % and needs"
        f" {shown.retries} retries;\n  with the fix applied by the client: {applied.compliance:.0f} %, and"
        f" {applied.retries} retries."
    )


def _played(
    scores: list[RunScore], stream: str, planner: str, consume: Consume = Consume.LEVEL_3
) -> list[RunScore]:
    """All arms of it, in the paper's conduct."""
    return [
        score
        for score in scores
        if score.spec == RunSpec(stream, score.spec.arm, planner, consume=consume, conduct=PLAIN)
    ]


def _either(numbers: list[int]) -> str:
    return " or ".join(map(str, numbers))


def _beside(here: float | None, paper: float | None, form: str) -> tuple[str, str]:
    here_text, paper_text = ("-" if value is None else form.format(value) for value in (here, paper))
    return here_text, paper_text
