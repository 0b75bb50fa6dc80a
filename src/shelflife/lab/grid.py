"""Many runs: which there are, and playing those that have not been played yet."""

import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, get_args

import httpx2
import msgspec

from shelflife.client import StoreError
from shelflife.client.entries import digest_of
from shelflife.lab.answers import holds_answers
from shelflife.lab.engines import EngineError
from shelflife.lab.known_clients import KNOWN
from shelflife.lab.planners import PlannerError
from shelflife.lab.planners.models import LONGEST_ANSWER_S
from shelflife.lab.planners.naming import planner_for
from shelflife.lab.planners.simulated import stand_in_for
from shelflife.lab.records import (
    Attempted,
    Model,
    Record,
    RecordFile,
    RecordsError,
    RunStarted,
    compressed,
    for_a_file,
    read_records,
)
from shelflife.lab.runner import LabError, check_playable, play, strategy_of
from shelflife.lab.scenarios import Scenario, load
from shelflife.lab.scores import RunScore, is_whole, score_of
from shelflife.lab.spec import PLAIN_WORDING, Conduct, Consume, Match, RunSpec
from shelflife.lab.workers import WorkersError
from shelflife.server import LogError

__all__ = [
    "Failure",
    "Kept",
    "Outcome",
    "execute",
    "file_name_of",
    "further_runs",
    "kept_of",
    "last_run_in",
    "paper_grid",
    "scores_in",
]

_POLL_S = 0.2
_LONGEST_NAME = 160


class Failure(NamedTuple):
    """A run that could not be played to its end."""

    spec: RunSpec
    why: str


class Outcome(NamedTuple):
    """What came of the runs."""

    scores: list[RunScore]
    """In the order of the specs; specs of one and the same run have one."""

    failures: list[Failure]


class _Run(NamedTuple):
    """A run to be played, with its stream as it is now, and where it is recorded."""

    spec: RunSpec
    scenario: Scenario
    path: Path
    base_url: str | None
    timeout_s: int
    answers: Path | None

    @property
    def digest(self) -> str:
        """Tells the edition of the stream, and the model at one address from that at another."""
        return digest_of(self.scenario, self.base_url)

    def recorded(self) -> list[Record]:
        """Its records of the last time that it was played; empty when it was not played to its end."""
        for path in (self.path, compressed(self.path)):
            records = last_run_in(path) if path.exists() else []
            if is_whole(records) and self._is_of_this(records[0]):
                return records
        return []

    def _is_of_this(self, start: Record) -> bool:
        named = msgspec.structs.replace(self.spec, stream=self.scenario.name)
        return isinstance(start, RunStarted) and (start.digest, start.spec) == (self.digest, named)


def execute(
    specs: Sequence[RunSpec],
    folder: Path,
    *,
    base_url: str | None = None,
    timeout_s: int = LONGEST_ANSWER_S,
    answers: Path | None = None,
    job_count: int = 1,
    on_episodes: Callable[[int], None] = lambda count: None,
    on_found: Callable[[int], None] = lambda count: None,
) -> Outcome:
    """Play every run whose records in the folder are not whole yet.

    Models are asked at `base_url`, if they have one, and given `timeout_s` for an answer: with more patience the same run goes on.
    In the file `answers` those of models are kept for whatever run asks the same.
    `on_episodes` is told how many more episodes have been played, `on_found` how many were there already.
    """
    for spec in specs:
        strategy_of(spec.arm)
    runs = _runs(specs, folder, base_url, timeout_s, answers)
    for run in runs.values():
        check_playable(run.spec, run.scenario)
    failures: list[Failure] = []
    waiting = []
    for run in runs.values():
        try:
            if run.recorded():
                on_found(len(run.scenario.order))
            else:
                waiting.append(run)
        except RecordsError as error:
            failures.append(Failure(run.spec, str(error)))
    if job_count == 1 or len(waiting) < 2:
        failures += (failure for run in waiting if (failure := _played(run, on_episodes)))
    else:
        failures += _played_at_once(waiting, min(job_count, len(waiting)), on_episodes)
    failed = {failure.spec for failure in failures}
    return Outcome([score_of(run.recorded()) for run in runs.values() if run.spec not in failed], failures)


def _runs(
    specs: Sequence[RunSpec],
    folder: Path,
    base_url: str | None,
    timeout_s: int = LONGEST_ANSWER_S,
    answers: Path | None = None,
) -> dict[Path, _Run]:
    """The runs, each once, by where they are recorded."""
    runs = {}
    for spec in dict.fromkeys(specs):
        scenario = load(spec.stream)
        path = folder / file_name_of(spec, scenario, base_url)
        runs[path] = _Run(spec, scenario, path, base_url, timeout_s, answers)
    return runs


class Kept(NamedTuple):
    """What a folder has of runs that were not all played to their end."""

    whole_runs: int
    answers: int
    """Of models, in runs that are not whole: these are not asked for again."""


def kept_of(specs: Sequence[RunSpec], folder: Path, base_url: str | None = None) -> Kept:
    """What there is of these runs in a folder."""
    whole, answers = 0, 0
    for run in _runs(specs, folder, base_url).values():
        with suppress(RecordsError):  # the next time will tell
            begun = last_run_in(run.path) if run.path.exists() else []
            is_model = any(isinstance(one, RunStarted) and one.model for one in begun)
            if run.recorded():
                whole += 1
            elif is_model:
                answers += sum(isinstance(one, Attempted) for one in begun)
    return Kept(whole, answers)


def scores_in(folder: Path) -> list[RunScore]:
    """The scores of all whole runs that are recorded in a folder, compressed or not.

    Of a run that was played several times, as of a stream that was edited meanwhile, the last one counts.
    """
    scores: dict[Any, RunScore] = {}
    for path in sorted((*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz"))):
        records = [] if holds_answers(path) else last_run_in(path)
        if not is_whole(records):
            continue
        try:
            score = score_of(records)
        except (IndexError, KeyError, ValueError) as error:
            raise RecordsError(f"{path} contradicts itself: {error!r}") from error
        key = score.spec, score.model
        if key not in scores or scores[key].started_at <= score.started_at:
            scores[key] = score
    return list(scores.values())


def file_name_of(spec: RunSpec, scenario: Scenario, base_url: str | None = None) -> str:
    """Where a run is recorded.

    Names for people, and a digest: no two runs and no two editions of a stream share a file.
    """
    parts = (
        scenario.name,
        spec.planner,
        spec.arm,
        f"consume-{spec.consume}",
        f"level-{spec.level}",
        f"seed-{spec.seed}",
        *spec.conduct.words,
        *([] if spec.wording == PLAIN_WORDING else [f"wording-{spec.wording}"]),
    )
    named = "--".join(for_a_file(part) for part in parts)[:_LONGEST_NAME]
    return f"{named}--{digest_of(parts, scenario, base_url)[:8]}.jsonl"


def _played(run: _Run, on_episodes: Callable[[int], None]) -> Failure | None:
    spec, scenario = run.spec, run.scenario
    try:
        with (
            planner_for(spec.planner, spec.seed, scenario, run.base_url, run.timeout_s, run.answers) as (
                planner,
                model,
            ),
            RecordFile(run.path) as record,
        ):
            play(
                spec,
                planner,
                record,
                scenario=scenario,
                model=model,
                digest=run.digest,
                recorded=[] if model is None else list(_answers_of(model, read_records(run.path))),
                on_episode=lambda: on_episodes(1),
            )
    # of these the last two are what a server in this process that does not start raises
    except (
        EngineError,
        LabError,
        LogError,
        PlannerError,
        RecordsError,
        StoreError,
        WorkersError,
        httpx2.HTTPError,
        OSError,
        RuntimeError,
    ) as error:
        return Failure(spec, str(error) or type(error).__name__)
    return None


def _answers_of(model: Model, records: Sequence[Record]) -> Iterator[Attempted]:
    """What a model has answered in runs that were begun: the same by what a probe has shown, whatever its answers say."""
    is_same = False
    for record in records:
        if isinstance(record, RunStarted):
            is_same = record.model == model
        elif isinstance(record, Attempted) and is_same:
            yield record


def _played_at_once(
    runs: Sequence[_Run], job_count: int, on_episodes: Callable[[int], None]
) -> Iterator[Failure]:
    """Play runs in so many jobs, which are processes that end with this one, and with this iterator, however it ends."""
    context = multiprocessing.get_context("spawn")
    done: Any = context.SimpleQueue()
    watched, held = context.Pipe(duplex=False)
    scratch = tempfile.TemporaryDirectory(prefix="shelflife-lab-")
    pool = ProcessPoolExecutor(
        job_count, context, initializer=_begin_job, initargs=(done, watched, scratch.name)
    )
    try:
        with _interrupts_held_back():
            specs = {pool.submit(_played_in_job, run): run.spec for run in runs}
        watched.close()
        left = set(specs)
        while left:
            finished, left = wait(left, _POLL_S, FIRST_COMPLETED)
            while not done.empty():
                on_episodes(done.get())
            for future in finished:
                try:
                    failure = future.result()
                except BrokenProcessPool:
                    failure = Failure(specs[future], "a process that plays runs has died")
                if failure:
                    yield failure
    finally:
        held.close()
        pool.shutdown(cancel_futures=True)  # it waits for those that only start: they need what is here
        scratch.cleanup()


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Processes started in this block never see Ctrl-C, not even while they start; this one sees it after the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_done: Any = None
"""In a job: where it says that an episode is done."""


def _begin_job(done: Any, watched: Connection, scratch: str) -> None:
    """What a run leaves in `scratch` when its job is ended, the main process takes away."""
    global _done
    _done = done
    tempfile.tempdir = scratch
    threading.Thread(target=_end_with_the_main_process, args=(watched,), daemon=True).start()


def _end_with_the_main_process(watched: Connection) -> None:
    """Nothing is ever sent: the pipe ends when the main process lets go of it, or is no more."""
    watched.poll(None)
    os._exit(1)


def _played_in_job(run: _Run) -> Failure | None:
    return _played(run, _done.put)


def last_run_in(path: Path) -> list[Record]:
    """The records of the last time that a run was begun."""
    records = read_records(path)
    begun = [index for index, record in enumerate(records) if isinstance(record, RunStarted)]
    return records[begun[-1] :] if begun else []


def paper_grid() -> list[RunSpec]:
    """The paper's 250 runs, with simulated planners that are tuned to its models.

    The paper says how many runs there are on the drifted stream and on recipes; how the other hundred are spread is ours.
    """
    haiku, sonnet_4, sonnet_5, mini_54, deepseek, mini_5, gemini = (
        stand_in_for(model)
        for model in (
            "claude-haiku-4-5",
            "claude-sonnet-4-6",
            "claude-sonnet-5",
            "gpt-5.4-mini",
            "deepseek-v4-flash",
            "gpt-5-mini",
            "gemini-3.5-flash",
        )
    )
    ladder = ("A0", "A1", "A2", "A2D", "A2DC", "A2DG")
    detection = ("A2D", "A2DC", "A2DR", "A2DRC", "A2DO")
    in_both_domains = (haiku, sonnet_4, sonnet_5)
    parts = (
        (("drifted",), (haiku, sonnet_4, sonnet_5, mini_54, deepseek), ladder, 3),
        (("drifted",), (mini_5, gemini), ladder[:4], 3),
        (("recipes",), in_both_domains, ladder[:4], 3),
        (("rotations-1", "rotations-2", "rotations-3"), in_both_domains, ("A1", "A2D"), 3),
        (("rules",), in_both_domains, detection, 2),
        (("undrifted",), (haiku, sonnet_4, mini_54, mini_5), ("A1", "A2", "A2D", "A2DG"), 1),
    )
    return [
        RunSpec(stream, arm, planner, seed)
        for streams, planners, arms, seed_count in parts
        for stream in streams
        for planner in planners
        for arm in arms
        for seed in range(seed_count)
    ]


def further_runs() -> list[RunSpec]:
    """What needs no model and no chance: the numbers of the paper that follow from its protocol, and what it leaves open.

    The last three parts take one level at a time, with everything else as it was.
    """
    planner, ladder = "compliant", ("A0", "A1", "A2", "A2D")
    family = Conduct(match="family")
    specs = [
        *(RunSpec("drifted", arm, planner) for arm in (*ladder, "A2DC", "A2DG")),
        *(RunSpec("drifted", arm, "compliant-last") for arm in ladder),
        *(RunSpec("drifted", arm, one) for arm, one in KNOWN),
        *(RunSpec("rules", arm, planner) for arm in ("A2D", "A2DC", "A2DR", "A2DRC", "A2DO")),
        *(
            RunSpec(f"rotations-{which}", arm, planner)
            for which in ("1", "2", "3", "3-early")
            for arm in ladder[1:]
        ),
        *(RunSpec("undrifted", arm, planner) for arm in (*ladder, "A2DG")),
        *(RunSpec("recipes", arm, planner) for arm in ladder),
        *(
            RunSpec("drifted", arm, planner, level=1, conduct=Conduct(match=match))
            for match in get_args(Match)
            for arm in ladder
        ),
        *(RunSpec("recipes", arm, planner, level=1, conduct=family) for arm in ladder),
        *(
            RunSpec(stream, arm, planner, level=level, conduct=family)
            for stream, arms in (
                ("drifted", (*ladder[1:], "A2DC")),
                ("second-table", ladder[1:]),
                ("rules", ("A2D", "A2DC")),
            )
            for arm in arms
            for level in (1, 4)
        ),
        *(
            RunSpec(stream, arm, planner, consume=consume)
            for stream in ("drifted", "recipes")
            for arm in ("A1", "A2D")
            for consume in Consume
        ),
    ]
    return list(dict.fromkeys(specs))
