"""`shelflife lab`: play streams, and look at what came of them."""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from shelflife.cli import lab_fetch
from shelflife.cli.errors import CommandError, needing
from shelflife.cli.lab_conduct import add_conduct, add_defences, positive
from shelflife.cli.progress import Progress
from shelflife.cli.tables import counted, print_table
from shelflife.lab.planners.models import LONGEST_ANSWER_S
from shelflife.lab.planners.protocol import PlannerError
from shelflife.lab.records import RecordsError, RunStarted
from shelflife.lab.scenarios import ScenarioError, load
from shelflife.lab.scores import RunScore, as_json
from shelflife.lab.spec import (
    PLAIN,
    PLAIN_CONSUME,
    PLAIN_LEVEL,
    PLAIN_WORDING,
    Conduct,
    Consume,
    RunSpec,
)

if TYPE_CHECKING:
    from shelflife.lab.grid import Kept, Outcome

    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_to"]

_DEFAULT_ARMS = ["A0", "A1", "A2", "A2D"]
_MODEL_RECORDS = Path("shelflife-lab")
_GRID_RECORDS = Path("shelflife-grid")
_MOST_TERMS = 8
"""More moments of drift than that are not added up before everybody's eyes."""


def add_to(commands: "Verbs") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "lab",
        help="measure memory, servers and planners",
        description="Play streams of tasks through a real server with a real memory, and score what happens.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    for add in (_add_run, _add_grid, _add_preflight, _add_report, _add_show, _add_check, lab_fetch.add_to):
        add(verbs)


def _add_run(verbs: "Verbs") -> None:
    run = verbs.add_parser("run", help="play one stream or more", description="Play streams.")
    run.add_argument(
        "streams", nargs="+", metavar="STREAM", help="a stream that comes with the lab, or a .toml file"
    )
    run.add_argument("--arm", action="append", help="the client's strategy, e.g. A2D; may be repeated")
    run.add_argument(
        "--planner",
        action="append",
        help="compliant, compliant-last, conservative, forgetful, seeded:add=0.5, sim:MODEL, or a model"
        " such as openai/gpt-5-mini; may be repeated",
    )
    run.add_argument("--seed", action="append", type=int, help="may be repeated; 0 by default")
    run.add_argument(
        "--consume",
        choices=[one.value for one in Consume],
        default=PLAIN_CONSUME.value,
        help="how a remembered fix reaches the request: listed with or without the sentence that has it merged (2, 1),"
        " as an amended input, or written in by the client",
    )
    run.add_argument(
        "--level", type=int, choices=[0, 1, 4, 5, 6], default=PLAIN_LEVEL, help="of the server's wire"
    )
    run.add_argument(
        "--wording",
        action="append",
        metavar="NAME",
        help="of what the planner is told: plain (the default), terse or formal; may be repeated",
    )
    add_conduct(run)
    add_defences(run)
    _add_model(run)
    run.add_argument(
        "--answers",
        type=Path,
        metavar="FILE",
        help="keep what a model answers here, and do not ask again what it has answered before in any run",
    )
    run.add_argument("--json", action="store_true", help="print the scores for programs")
    _add_playing(run, job_count=1, kept=f"those of a model go to {_MODEL_RECORDS} by default")
    run.set_defaults(run=_run)


def _add_grid(verbs: "Verbs") -> None:
    grid = verbs.add_parser(
        "grid",
        help="play the whole evaluation of the paper, simulated",
        description="Play the paper's 250 runs with simulated planners that are tuned to its models, and those that need"
        " neither a model nor chance.",
    )
    _add_playing(grid, job_count=os.cpu_count() or 1, kept=f"{_GRID_RECORDS} by default")
    grid.add_argument(
        "--forecast",
        action="store_true",
        help="in place of these, the runs in which drift is foreseen, and those that they are compared with",
    )
    grid.set_defaults(run=_grid)


def _add_preflight(verbs: "Verbs") -> None:
    preflight = verbs.add_parser(
        "preflight",
        help="tell whether memory will pay with a planner",
        description="Try a planner with valid fixes of every shape, shown in the prompt and applied by the client.",
    )
    preflight.add_argument(
        "--planner", required=True, help="as for run: compliant, conservative, …, or a model"
    )
    preflight.add_argument(
        "--trials", type=positive, default=8, metavar="N", help="for each shape and way; 8 by default"
    )
    preflight.add_argument("--seed", type=int, default=0, help="of a seeded planner")
    _add_model(preflight)
    preflight.add_argument("--out", type=Path, metavar="DIR", help="keep what is found here, for the report")
    preflight.add_argument("--json", action="store_true", help="print the findings for programs")
    preflight.set_defaults(run=_preflight)


def _add_report(verbs: "Verbs") -> None:
    report = verbs.add_parser(
        "report",
        help="make tables, figures and a page from records",
        description="Make the exhibits of all whole runs in a folder: report.html, and exhibits/ with tables"
        " (Markdown, CSV, LaTeX) and figures (SVG, PNG).",
    )
    report.add_argument("records", type=Path, metavar="DIR", help="where the records are")
    report.add_argument("--out", type=Path, metavar="DIR", help="write here; by default beside the records")
    report.set_defaults(run=_report)


def _add_show(verbs: "Verbs") -> None:
    show = verbs.add_parser(
        "show",
        help="print a recorded run as a conversation",
        description="Print what planner and server said to each other in a run, word for word, with what drifted"
        " and what the memory did about it.",
    )
    show.add_argument(
        "record", type=Path, metavar="RECORD", help="a .jsonl or .jsonl.gz file of a folder of records"
    )
    show.add_argument("--episode", type=int, metavar="N", help="print this one alone; the first is 0")
    show.set_defaults(run=_show)


def _add_check(verbs: "Verbs") -> None:
    check = verbs.add_parser("check", help="tell what is wrong with a stream", description="Check a stream.")
    check.add_argument("stream", help="a .toml file, or a stream that comes with the lab")
    check.set_defaults(run=_check)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--base-url", metavar="URL", help="of a model's API")
    parser.add_argument(
        "--timeout",
        type=positive,
        default=LONGEST_ANSWER_S,
        metavar="S",
        help=f"wait so long for a model's answer; {LONGEST_ANSWER_S} by default",
    )


def _add_playing(parser: argparse.ArgumentParser, *, job_count: int, kept: str) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help=f"keep the records here; runs that are there already are not played again; {kept}",
    )
    parser.add_argument("--jobs", type=positive, default=job_count, metavar="N", help="play so many at once")


def _run(options: argparse.Namespace) -> None:
    conduct = Conduct(**{name: getattr(options, name) for name in Conduct.__struct_fields__})
    specs = [
        RunSpec(stream, arm, planner, seed, Consume(options.consume), options.level, conduct, wording)
        for stream in options.streams
        for planner in options.planner or ["compliant"]
        for wording in options.wording or [PLAIN_WORDING]
        for arm in options.arm or _DEFAULT_ARMS
        for seed in options.seed or [0]
    ]
    out, has_model = options.out, _has_model(specs)
    if options.answers and not has_model:
        raise CommandError("--answers keeps what models answer, and none of these planners is one")
    if has_model and out is None:
        out = _MODEL_RECORDS
        print(f"records are kept in {out}", file=sys.stderr)
    outcome = _played(
        specs,
        out,
        options.jobs,
        base_url=options.base_url,
        timeout_s=options.timeout,
        answers=options.answers,
    )
    if options.json:
        print(json.dumps({"runs": [as_json(score) for score in outcome.scores]}))
    elif outcome.scores:
        _print_scores(outcome.scores)
    _tell_failures(outcome, out)


def _has_model(specs: list[RunSpec]) -> bool:
    """Whether one of the planners is a model, whose answers cost too much to be thrown away."""
    with _lab():
        from shelflife.lab.planners.simulated import simulated_planner
    try:
        return any(simulated_planner(spec.planner, spec.seed, frozenset()) is None for spec in specs)
    except PlannerError as error:
        raise CommandError(str(error)) from error


def _grid(options: argparse.Namespace) -> None:
    with _lab():
        from shelflife.lab.grid import further_runs, paper_grid
        from shelflife.lab.ways_to_ask import forecast_runs
    out = options.out or _GRID_RECORDS
    specs = forecast_runs() if options.forecast else [*paper_grid(), *further_runs()]
    outcome = _played(specs, out, options.jobs)
    if outcome.scores:
        _print_extent(outcome.scores)
    print(f"records are in {out}; make the report with: shelflife lab report {out}")
    _tell_failures(outcome, out)


def _print_extent(scores: list[RunScore]) -> None:
    spent = [score.spent for score in scores]
    tuned = [score for score in scores if score.tuned_to]
    for played, kind in (
        (tuned, "simulated, tuned to the paper"),
        ([score for score in scores if not score.tuned_to], "deterministic"),
    ):
        episode_count = sum(score.episodes for score in played)
        print(f"{counted(len(played), 'run')}, {episode_count:,} episodes ({kind})")
    parts = {
        "server": sum(one.server_s for one in spent),
        "memory": sum(one.memory_s for one in spent),
        "planner": sum(one.planner_s for one in spent),
        "HTTP": sum(one.http_s for one in spent),
        "questions of the memory": sum(one.questions_s for one in spent),
    }
    whole_s = sum(one.whole_s for one in spent)
    parts["starting servers and the rest"] = whole_s - sum(parts.values())
    print("where the time went: " + ", ".join(f"{name} {s / whole_s:.0%}" for name, s in parts.items()))


def _preflight(options: argparse.Namespace) -> None:
    with _lab():
        from shelflife.lab.planners.naming import planner_for
        from shelflife.lab.preflight import calls_of, keep_preflight, preflight
    scenario = load("undrifted")
    try:
        with (
            planner_for(options.planner, options.seed, scenario, options.base_url, options.timeout) as (
                planner,
                _,
            ),
            Progress(calls_of(options.trials), "calls") as progress,
        ):
            found = preflight(planner, trials=options.trials, on_call=progress.advance)
        if options.out is not None:
            keep_preflight(found, options.out)
    except (PlannerError, RecordsError) as error:
        raise CommandError(str(error)) from error
    except KeyboardInterrupt:
        print("\nshelflife: interrupted: a preflight keeps nothing, and begins anew", file=sys.stderr)
        raise
    if options.json:
        print(json.dumps(msgspec.to_builtins(found)))
        return
    print(f"{found.planner} ({found.planner_kind}), {found.trials} valid fixes of each shape in each way\n")
    ways = {"2": "Level 2", "3": "Level 3", "apply": "apply"}
    rows = [
        (
            shape.shape,
            ways[finding.consume],
            f"{100 * finding.compliance:.0f} %",
            f"{100 * finding.low:.0f} to {100 * finding.high:.0f} %",
            "-" if finding.expected_saving is None else f"{100 * finding.expected_saving:.0f} %",
        )
        for shape in found.shapes
        for finding in shape.findings
    ]
    print_table(("shape", "way", "complied", "95 % interval", "expected saving"), rows)
    print()
    for shape in found.shapes:
        print(shape.recommendation)


def _report(options: argparse.Namespace) -> None:
    with _lab():
        from shelflife.lab.exhibits import ExhibitsError, collection_of, write_all
        from shelflife.lab.grid import scores_in
        from shelflife.lab.preflight import preflights_in
    if not options.records.is_dir():
        raise CommandError(f"there is no folder {options.records}")
    try:
        scores = scores_in(options.records)
        if not scores:
            raise CommandError(
                f"there is no whole run in {options.records}; make some with: shelflife lab run"
            )
        collection = collection_of(scores, preflights_in(options.records))
        with _lab():
            report, *rest = write_all(collection, options.out or options.records)
    except (ExhibitsError, RecordsError) as error:
        raise CommandError(str(error)) from error
    print(collection.headline)
    if collection.headline_kind:
        print(f"({collection.headline_kind.value})")
    print(
        f"\n{counted(len(scores), 'run')}, {counted(len(collection.exhibits), 'table')};"
        f" {counted(len(rest), 'file')} in {rest[0].parent}"
    )
    print(f"look at {report}")


def _show(options: argparse.Namespace) -> None:
    with _lab():
        from shelflife.lab.grid import last_run_in
        from shelflife.lab.transcripts import transcript_of
    if options.record.is_dir():
        raise CommandError(f"{options.record} is a folder: name one of its .jsonl files")
    try:
        records = last_run_in(options.record)
    except RecordsError as error:
        raise CommandError(str(error)) from error
    start = records[0] if records else None
    if not isinstance(start, RunStarted):
        raise CommandError(f"there is no run in {options.record}")
    if not start.system:
        raise CommandError(f"{options.record} does not keep what was said: play its run again")
    last = len(start.families) - 1
    if options.episode is not None and not 0 <= options.episode <= last:
        raise CommandError(f"there is no episode {options.episode}: they are 0 to {last}")
    print("\n\n".join(transcript_of(records, options.episode)))


def _check(options: argparse.Namespace) -> None:
    with _lab():
        from shelflife.lab.audit import leaks_in
        from shelflife.lab.checking import problems_of
        from shelflife.lab.slots import with_stale_slots
        from shelflife.lab.toml_lines import TomlLines
    try:
        scenario = load(options.stream)
    except ScenarioError as error:
        raise CommandError(f"{options.stream} is no stream:\n  " + "\n  ".join(error.problems)) from error
    file = Path(options.stream)
    problems = problems_of(scenario, TomlLines(file.read_text("utf-8")) if file.suffix == ".toml" else None)
    if problems:
        raise CommandError(f"{options.stream} cannot be played:\n  " + "\n  ".join(problems))
    is_given, scenario = scenario.stale_slots is not None, with_stale_slots(scenario)
    try:
        leaks = [*leaks_in(scenario, "A0"), *leaks_in(scenario, "A1")]
    except PlannerError as error:
        raise CommandError(str(error)) from error
    if leaks:
        told = [f"episode {leak.episode}, attempt {leak.attempt}: {leak.value}" for leak in leaks]
        raise CommandError(f"{options.stream} gives answers away in its prompts:\n  " + "\n  ".join(told))
    slots = ", ".join(map(str, scenario.stale_slots or ())) or "none"
    print(
        f"{scenario.name}: {counted(len(scenario.order), 'episode')} on {scenario.api}, {counted(len(scenario.drift), 'drift')},"
        f" {counted(len(scenario.eligible), 'episode')} eligible for compliance;"
        f" stale slots, {'as given' if is_given else 'worked out'}: {slots}"
    )


def _played(specs: list[RunSpec], out: Path | None, job_count: int, **asking: Any) -> "Outcome":
    with _lab():
        from shelflife.lab.engines import EngineError
        from shelflife.lab.grid import execute, kept_of
        from shelflife.lab.runner import LabError

    try:
        episode_count = sum(len(load(spec.stream).order) for spec in specs)
        with _folder(out) as folder, Progress(episode_count, "episodes") as progress:
            return execute(
                specs,
                folder,
                **asking,
                job_count=job_count,
                on_episodes=progress.advance,
                on_found=progress.find,
            )
    except (EngineError, LabError, PlannerError, RecordsError, ScenarioError) as error:
        raise CommandError(str(error)) from error
    except KeyboardInterrupt:
        kept = None if out is None else kept_of(specs, out, asking.get("base_url"))
        _tell_interrupted(kept, len(set(specs)), out)
        raise


def _tell_interrupted(kept: "Kept | None", run_count: int, out: Path | None) -> None:
    """How much of an interrupted command is kept, and how to go on."""
    if kept is None:
        said = "nothing is kept; with --out DIR it could be gone on with"
    else:
        answers = f", and {counted(kept.answers, 'answer')} of a model to another" if kept.answers else ""
        whole = f"{kept.whole_runs:,} of {counted(run_count, 'run')}"
        said = f"{out} keeps {whole} whole{answers}; the same command goes on from there"
    print(f"\nshelflife: interrupted: {said}", file=sys.stderr)


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    if out is not None:
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="shelflife-lab-") as folder:
        yield Path(folder)


@contextmanager
def _lab() -> Iterator[None]:
    with needing("lab"):
        yield


def _print_scores(scores: list[RunScore]) -> None:
    columns = {
        "stream": [score.spec.stream for score in scores],
        "planner": [score.spec.planner for score in scores],
        "arm": [score.spec.arm for score in scores],
        "seed": [str(score.spec.seed) for score in scores],
        **_of_conduct(scores),
        "done": [f"{score.completed}/{score.episodes}" for score in scores],
        "first-try": [str(score.first_try) for score in scores],
        "retries": [" + ".join(map(str, score.retries_by_agent)) for score in scores],
        "evictions": [_evictions(score) for score in scores],
        "precision": [
            "-" if score.eviction_precision is None else f"{score.eviction_precision:.2f}" for score in scores
        ],
        "restamps": [str(score.restamps) for score in scores],
        "compliance": ["-" if score.compliance is None else f"{score.compliance:.1f} %" for score in scores],
        "tokens": [f"{score.tokens.prompt + score.tokens.completion:,}" for score in scores],
    }
    print_table(list(columns), list(zip(*columns.values(), strict=True)))
    kinds = {"simulated" if score.planner_kind == "simulated" else "measured" for score in scores}
    if kinds:
        print(f"\nPlanners: {' and '.join(sorted(kinds))}. Server, memory and wire are real.")


def _evictions(score: RunScore) -> str:
    """Those after each drift, and first those before any."""
    early_count = score.evictions - sum(score.evictions_by_event)
    if len(score.evictions_by_event) > _MOST_TERMS:
        return str(score.evictions)
    after = " + ".join(map(str, score.evictions_by_event))
    if not early_count:
        return after if score.evictions else "0"
    return f"{early_count}, then {after}" if after else str(early_count)


def _of_conduct(scores: list[RunScore]) -> dict[str, list[str]]:
    """What is not as in the paper: how runs were played, what was silently wrong, what hostile servers got."""
    is_plain = not any(score.spec.conduct.words for score in scores)
    columns = {
        "conduct": [", ".join(score.spec.conduct.words) or "-" for score in scores],
        "stale executions": [str(score.stale_executions) for score in scores],
    }
    if any(score.spec.wording != PLAIN_WORDING for score in scores):
        columns["wording"] = [score.spec.wording for score in scores]
    if any(score.spec.conduct.match != PLAIN.match for score in scores):
        columns["misapplied"] = [str(score.misapplied) for score in scores]
    if any(score.injected is not None for score in scores):
        columns["injected"] = [_or_dash(score.injected) for score in scores]
        columns["by answers"] = [_or_dash(score.injected_by_answers) for score in scores]
    if any(score.disclosed is not None for score in scores):
        columns["names told"] = [_or_dash(score.disclosed) for score in scores]
    if is_plain:
        del columns["conduct"]
    if is_plain and not any(score.stale_executions for score in scores):
        del columns["stale executions"]
    return columns


def _or_dash(count: int | None) -> str:
    return "-" if count is None else str(count)


def _tell_failures(outcome: "Outcome", out: Path | None) -> None:
    for failure in outcome.failures:
        spec = failure.spec
        print(f"{spec.stream} {spec.planner} {spec.arm}: {failure.why}", file=sys.stderr)
    if outcome.failures:
        goes_on = (
            f"the same command goes on from {out}"
            if out
            else "nothing was kept: with --out DIR the same command goes on"
        )
        ends = "its end" if len(outcome.failures) == 1 else "their end"
        raise CommandError(
            f"{counted(len(outcome.failures), 'run')} could not be played to {ends}; {goes_on}"
        )
