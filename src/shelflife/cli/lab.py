"""`shelflife lab`: play streams, and look at what came of them."""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from shelflife.cli.errors import CommandError, needing
from shelflife.cli.progress import Progress
from shelflife.cli.tables import print_table

if TYPE_CHECKING:
    from shelflife.lab.grid import Job, Outcome
    from shelflife.lab.scores import RunScore

__all__ = ["add_to"]

_DEFAULT_ARMS = ["A0", "A1", "A2", "A2D"]


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "lab",
        help="measure memory, servers and planners",
        description="Play streams of tasks through a real server with a real memory, and score what happens.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

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
        choices=["2", "3", "apply"],
        default="3",
        help="how a remembered fix reaches the request: listed, as an amended input, or written in by the client",
    )
    run.add_argument("--level", type=int, choices=[0, 1, 4, 5, 6], default=6, help="of the server's wire")
    _add_model(run)
    run.add_argument("--json", action="store_true", help="print the scores for programs")
    _add_playing(run, worker_count=1)
    run.set_defaults(run=_run)

    grid = verbs.add_parser(
        "grid",
        help="play the whole evaluation of the paper, simulated",
        description="Play the paper's 250 runs with simulated planners that are tuned to its models.",
    )
    _add_playing(grid, worker_count=os.cpu_count() or 1)
    grid.set_defaults(run=_grid)

    preflight = verbs.add_parser(
        "preflight",
        help="tell whether memory will pay with a planner",
        description="Try a planner with valid fixes of every shape, shown in the prompt and applied by the client.",
    )
    preflight.add_argument(
        "--planner", required=True, help="as for run: compliant, conservative, …, or a model"
    )
    preflight.add_argument(
        "--trials", type=_positive, default=8, metavar="N", help="for each shape and way; 8 by default"
    )
    preflight.add_argument("--seed", type=int, default=0, help="of a seeded planner")
    _add_model(preflight)
    preflight.add_argument("--json", action="store_true", help="print the findings for programs")
    preflight.set_defaults(run=_preflight)

    report = verbs.add_parser(
        "report",
        help="make tables, figures and a page from records",
        description="Make the exhibits of all whole runs in a folder: report.html, and exhibits/ with tables"
        " (Markdown, CSV, LaTeX) and figures (SVG, PNG).",
    )
    report.add_argument("records", type=Path, metavar="DIR", help="where the records are")
    report.add_argument("--out", type=Path, metavar="DIR", help="write here; by default beside the records")
    report.set_defaults(run=_report)

    check = verbs.add_parser("check", help="tell what is wrong with a stream", description="Check a stream.")
    check.add_argument("stream", help="a .toml file, or a stream that comes with the lab")
    check.set_defaults(run=_check)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--base-url", metavar="URL", help="of a model's API")
    parser.add_argument(
        "--timeout",
        type=_positive,
        default=120,
        metavar="S",
        help="wait so long for a model's answer; 120 by default",
    )


def _add_playing(parser: argparse.ArgumentParser, *, worker_count: int) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="keep the records here; runs that are there already are not played again",
    )
    parser.add_argument(
        "--jobs", type=_positive, default=worker_count, metavar="N", help="play so many at once"
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _run(options: argparse.Namespace) -> None:
    with _lab():
        from shelflife.lab.grid import Job
        from shelflife.lab.scores import as_json
    jobs = [
        Job(stream, arm, planner, seed, options.consume, options.level, options.base_url, options.timeout)
        for stream in options.streams
        for planner in options.planner or ["compliant"]
        for arm in options.arm or _DEFAULT_ARMS
        for seed in options.seed or [0]
    ]
    outcome = _played(jobs, options)
    if options.json:
        print(json.dumps({"runs": [as_json(score) for score in outcome.scores]}))
    else:
        _print_scores(outcome.scores)
    _tell_failures(outcome)


def _grid(options: argparse.Namespace) -> None:
    with _lab():
        from shelflife.lab.grid import paper_grid
    outcome = _played(paper_grid(), options)
    spent = [score.spent for score in outcome.scores]
    episode_count = sum(score.episodes for score in outcome.scores)
    print(f"{len(outcome.scores)} runs, {episode_count:,} episodes (simulated, tuned to the paper)")
    parts = {
        "server": sum(one.server_s for one in spent),
        "memory": sum(one.memory_s for one in spent),
        "planner": sum(one.planner_s for one in spent),
        "HTTP": sum(one.http_s for one in spent),
    }
    whole_s = sum(one.whole_s for one in spent)
    parts["starting servers and the rest"] = whole_s - sum(parts.values())
    print("where the time went: " + ", ".join(f"{name} {s / whole_s:.0%}" for name, s in parts.items()))
    if options.out:
        print(f"records are in {options.out}; make the report with: shelflife lab report {options.out}")
    _tell_failures(outcome)


def _preflight(options: argparse.Namespace) -> None:
    with _lab():
        import msgspec

        from shelflife.lab.planners import PlannerError
        from shelflife.lab.planning import conditional_fields, planner_for
        from shelflife.lab.preflight import calls_of, preflight
        from shelflife.lab.scenarios import load
    fields = conditional_fields(load("undrifted"))
    try:
        with (
            planner_for(options.planner, options.seed, fields, options.base_url, options.timeout) as planned,
            Progress(calls_of(options.trials), "calls") as progress,
        ):
            found = preflight(planned.planner, trials=options.trials, on_call=progress.advance)
    except PlannerError as error:
        raise CommandError(str(error)) from error
    if options.json:
        print(json.dumps(msgspec.to_builtins(found)))
        return
    print(f"{found.planner} ({found.planner_kind}), {found.trials} valid fixes of each shape in each way\n")
    print(f"{'shape':<20}  {'way':<8}  {'complied':>8}  {'95 % interval':>13}  {'expected saving':>15}")
    ways = {"2": "Level 2", "3": "Level 3", "apply": "apply"}
    for shape in found.shapes:
        for finding in shape.findings:
            interval = f"{100 * finding.low:.0f} to {100 * finding.high:.0f} %"
            saving = "-" if finding.expected_saving is None else f"{100 * finding.expected_saving:.0f} %"
            print(
                f"{shape.shape:<20}  {ways[finding.consume]:<8}  {100 * finding.compliance:>6.0f} %"
                f"  {interval:>13}  {saving:>15}"
            )
    print()
    for shape in found.shapes:
        print(shape.recommendation)


def _report(options: argparse.Namespace) -> None:
    with _lab():
        from shelflife.lab.exhibits import ExhibitsError, collection_of, write_all
        from shelflife.lab.grid import scores_in
        from shelflife.lab.records import RecordsError
    if not options.records.is_dir():
        raise CommandError(f"there is no folder {options.records}")
    try:
        scores = scores_in(options.records)
        if not scores:
            raise CommandError(
                f"there is no whole run in {options.records}; make some with: shelflife lab run"
            )
        collection = collection_of(scores)
        with _lab():
            report, *rest = write_all(collection, options.out or options.records)
    except (ExhibitsError, RecordsError) as error:
        raise CommandError(str(error)) from error
    print(collection.headline)
    if collection.headline_kind:
        print(f"({collection.headline_kind.value})")
    print(f"\n{len(scores)} runs, {len(collection.exhibits)} tables; {len(rest)} files in {rest[0].parent}")
    print(f"look at {report}")


def _check(options: argparse.Namespace) -> None:
    with _lab():
        from shelflife.lab.audit import leaks_in
        from shelflife.lab.checking import problems_of
        from shelflife.lab.scenarios import ScenarioError, load
    try:
        scenario = load(options.stream)
    except ScenarioError as error:
        raise CommandError(f"{options.stream} is no stream:\n  " + "\n  ".join(error.problems)) from error
    problems = problems_of(scenario)
    if problems:
        raise CommandError(f"{options.stream} cannot be played:\n  " + "\n  ".join(problems))
    leaks = [*leaks_in(scenario, "A0"), *leaks_in(scenario, "A1")]
    if leaks:
        told = [f"episode {leak.episode}, attempt {leak.attempt}: {leak.value}" for leak in leaks]
        raise CommandError(f"{options.stream} gives answers away in its prompts:\n  " + "\n  ".join(told))
    print(
        f"{scenario.name}: {len(scenario.order)} episodes on {scenario.api}, {len(scenario.drift)} drifts,"
        f" {len(scenario.eligible)} episodes eligible for compliance"
    )


def _played(jobs: "list[Job]", options: argparse.Namespace) -> "Outcome":
    from shelflife.lab.grid import execute
    from shelflife.lab.planners import PlannerError
    from shelflife.lab.records import RecordsError
    from shelflife.lab.runner import LabError
    from shelflife.lab.scenarios import ScenarioError, load

    try:
        episode_count = sum(len(load(job.stream).order) for job in jobs)
        with _folder(options.out) as folder, Progress(episode_count, "episodes") as progress:
            return execute(jobs, folder, worker_count=options.jobs, on_episodes=progress.advance)
    except (LabError, PlannerError, RecordsError, ScenarioError) as error:
        raise CommandError(str(error)) from error


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


def _print_scores(scores: "list[RunScore]") -> None:
    heads = [
        "stream",
        "planner",
        "arm",
        "seed",
        "done",
        "first-try",
        "retries",
        "evictions",
        "precision",
        "restamps",
        "compliance",
        "tokens",
    ]
    rows = [
        (
            score.stream,
            score.planner,
            score.arm,
            str(score.seed),
            f"{score.completed}/{score.episodes}",
            str(score.first_try),
            str(score.retries),
            " + ".join(map(str, score.evictions_by_event)) if score.evictions else "0",
            "-" if score.eviction_precision is None else f"{score.eviction_precision:.2f}",
            str(score.restamps),
            "-" if score.compliance is None else f"{score.compliance:.1f} %",
            f"{score.tokens.prompt + score.tokens.completion:,}",
        )
        for score in scores
    ]
    print_table(heads, rows)
    kinds = {"simulated" if score.planner_kind == "simulated" else "measured" for score in scores}
    if kinds:
        print(f"\nPlanners: {' and '.join(sorted(kinds))}. Server, memory and wire are real.")


def _tell_failures(outcome: "Outcome") -> None:
    for failure in outcome.failures:
        print(f"{failure.job.stream} {failure.job.planner} {failure.job.arm}: {failure.why}", file=sys.stderr)
    if outcome.failures:
        raise CommandError(
            f"{len(outcome.failures)} runs could not be played to their end; the same command goes on"
        )
