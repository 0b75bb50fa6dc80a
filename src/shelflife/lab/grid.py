"""Many runs: which there are, and playing those that have not been played yet."""

import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from shelflife.client.entries import digest_of
from shelflife.lab.conduct import PLAIN, Conduct
from shelflife.lab.planners import PlannerError
from shelflife.lab.planners.naming import LONGEST_ANSWER_S, conditional_fields, planner_for
from shelflife.lab.prompting import Consume
from shelflife.lab.records import Attempted, Record, RecordFile, RecordsError, RunStarted, read_records
from shelflife.lab.runner import LabError, check_playable, play, strategy_of
from shelflife.lab.scenarios import Scenario, load
from shelflife.lab.scores import RunScore, is_whole, score_of

__all__ = ["Failure", "Job", "Outcome", "execute", "file_name_of", "paper_grid", "scores_in"]

_POLL_S = 0.2
_LONGEST_NAME = 160


class Job(NamedTuple):
    """A run to be played."""

    stream: str
    arm: str
    planner: str
    seed: int = 0
    consume: str = Consume.LEVEL_3.value
    level: int = 6
    base_url: str | None = None
    timeout_s: int = LONGEST_ANSWER_S
    conduct: Conduct = PLAIN


class Failure(NamedTuple):
    """A run that could not be played to its end."""

    job: Job
    why: str


class Outcome(NamedTuple):
    """What came of the jobs."""

    scores: list[RunScore]
    """In the order of the jobs; jobs that are one and the same run have one."""

    failures: list[Failure]


_Identity = tuple[str, str, str, int, str, int, Conduct]
"""What must agree for records to be of a run."""


class _Run(NamedTuple):
    """A job with its stream as it is now, and where it is recorded."""

    job: Job
    scenario: Scenario
    digest: str
    path: Path

    @property
    def identity(self) -> _Identity:
        """What its records say of it."""
        job = self.job
        return self.digest, job.arm, job.planner, job.seed, job.consume, job.level, job.conduct

    def recorded(self) -> list[Record]:
        """Its records of the last time that it was played; empty when it was not played to its end."""
        records = _latest(self.path) if self.path.exists() else []
        return records if is_whole(records) and _identity_of(records[0]) == self.identity else []


def execute(
    jobs: Sequence[Job],
    folder: Path,
    *,
    worker_count: int = 1,
    on_episodes: Callable[[int], None] = lambda count: None,
    on_found: Callable[[int], None] = lambda count: None,
) -> Outcome:
    """Play every job whose records in the folder are not whole yet.

    `on_episodes` is told how many more episodes have been played, `on_found` how many were there already.
    """
    for job in jobs:
        strategy_of(job.arm)
    runs = {run.path: run for run in (_run_of(job, folder) for job in dict.fromkeys(jobs))}
    for run in runs.values():
        check_playable(run.scenario, run.job.level, run.job.conduct)
    failures: list[Failure] = []
    waiting = []
    for run in runs.values():
        try:
            if run.recorded():
                on_found(len(run.scenario.order))
            else:
                waiting.append(run)
        except RecordsError as error:
            failures.append(Failure(run.job, str(error)))
    if worker_count == 1 or len(waiting) < 2:
        failures += (failure for run in waiting if (failure := _played(run, on_episodes)))
    else:
        failures += _played_by_workers(waiting, min(worker_count, len(waiting)), on_episodes)
    failed = {failure.job for failure in failures}
    return Outcome([score_of(run.recorded()) for run in runs.values() if run.job not in failed], failures)


def scores_in(folder: Path) -> list[RunScore]:
    """The scores of all whole runs that are recorded in a folder."""
    found = (_latest(path) for path in sorted(folder.glob("*.jsonl")))
    return [score_of(records) for records in found if is_whole(records)]


def file_name_of(job: Job, scenario: Scenario) -> str:
    """Where a job is recorded: names for people, and a digest so that no two runs and no two editions of a stream share a file.

    How long a model may take is not in it: with more patience the same run goes on.
    """
    parts = (
        scenario.name,
        job.planner,
        job.arm,
        f"consume-{job.consume}",
        f"level-{job.level}",
        f"seed-{job.seed}",
        *job.conduct.words,
    )
    named = "--".join(_for_a_file(part) for part in parts)[:_LONGEST_NAME]
    return f"{named}--{digest_of(parts, scenario, job.base_url)[:8]}.jsonl"


def _run_of(job: Job, folder: Path) -> _Run:
    scenario = load(job.stream)
    return _Run(job, scenario, digest_of(scenario, job.base_url), folder / file_name_of(job, scenario))


def _identity_of(start: Record) -> _Identity | None:
    if not isinstance(start, RunStarted):
        return None
    return start.digest, start.arm, start.planner, start.seed, start.consume, start.level, start.conduct


def _played(run: _Run, on_episodes: Callable[[int], None]) -> Failure | None:
    job, scenario = run.job, run.scenario
    fields = conditional_fields(scenario)
    try:
        with (
            planner_for(job.planner, job.seed, fields, job.base_url, job.timeout_s) as planned,
            RecordFile(run.path) as record,
        ):
            earlier = read_records(run.path) if planned.model else []
            play(
                scenario,
                job.arm,
                planned.planner,
                record,
                seed=job.seed,
                consume=Consume(job.consume),
                level=job.level,
                conduct=job.conduct,
                model=planned.model,
                digest=run.digest,
                recorded=[
                    one
                    for one in earlier
                    if isinstance(one, Attempted) and planned.model and one.served == planned.model.served
                ],
                on_episode=lambda: on_episodes(1),
            )
    # of these the last two are what a server that does not start raises
    except (LabError, PlannerError, RecordsError, httpx2.HTTPError, OSError, RuntimeError) as error:
        return Failure(job, str(error) or type(error).__name__)
    return None


def _played_by_workers(
    runs: Sequence[_Run], worker_count: int, on_episodes: Callable[[int], None]
) -> Iterator[Failure]:
    """Play runs in processes that end with this one, and with this iterator, however it ends."""
    context = multiprocessing.get_context("spawn")
    done: Any = context.SimpleQueue()
    watched, held = context.Pipe(duplex=False)
    scratch = tempfile.TemporaryDirectory(prefix="shelflife-lab-")
    pool = ProcessPoolExecutor(
        worker_count, context, initializer=_begin_worker, initargs=(done, watched, scratch.name)
    )
    try:
        with _interrupts_held_back():
            jobs = {pool.submit(_played_in_worker, run): run.job for run in runs}
        watched.close()
        left = set(jobs)
        while left:
            finished, left = wait(left, _POLL_S, FIRST_COMPLETED)
            while not done.empty():
                on_episodes(done.get())
            for future in finished:
                try:
                    failure = future.result()
                except BrokenProcessPool:
                    failure = Failure(jobs[future], "a process that plays runs has ended before its time")
                if failure:
                    yield failure
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        held.close()
        pool.shutdown(wait=True)
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
"""In a worker: where it says that an episode is done."""


def _begin_worker(done: Any, watched: Connection, scratch: str) -> None:
    """What a run leaves in `scratch` when its worker is ended, the main process takes away."""
    global _done
    _done = done
    tempfile.tempdir = scratch
    threading.Thread(target=_end_with_the_main_process, args=(watched,), daemon=True).start()


def _end_with_the_main_process(watched: Connection) -> None:
    """Nothing is ever sent: the pipe ends when the main process lets go of it, or is no more."""
    watched.poll(None)
    os._exit(1)


def _played_in_worker(run: _Run) -> Failure | None:
    return _played(run, _done.put)


def _latest(path: Path) -> list[Record]:
    """The records of the last time that a run was begun."""
    records = read_records(path)
    begun = [index for index, record in enumerate(records) if isinstance(record, RunStarted)]
    return records[begun[-1] :] if begun else []


def _for_a_file(text: str) -> str:
    return "".join(char if char.isascii() and (char.isalnum() or char in "._=-") else "_" for char in text)


def paper_grid() -> list[Job]:
    """The paper's 250 runs, with simulated planners that are tuned to its models.

    The paper says how many runs there are on the drifted stream and on recipes; how the other hundred are spread is ours.
    """
    haiku, sonnet_4, sonnet_5, mini_54, deepseek, mini_5, gemini = (
        f"sim:{name}"
        for name in (
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
        Job(stream, arm, planner, seed)
        for streams, planners, arms, seed_count in parts
        for stream in streams
        for planner in planners
        for arm in arms
        for seed in range(seed_count)
    ]
