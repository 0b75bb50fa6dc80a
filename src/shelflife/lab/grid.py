"""Many runs: which there are, and playing those that have not been played yet."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

from shelflife.lab.planners import PlannerError
from shelflife.lab.planning import LONGEST_ANSWER_S, conditional_fields, planner_for
from shelflife.lab.prompting import Consume
from shelflife.lab.records import Attempted, Record, RecordFile, RunStarted, read_records
from shelflife.lab.runner import LabError, play, strategy_of
from shelflife.lab.scenarios import load
from shelflife.lab.scores import RunScore, is_whole, score_of

__all__ = ["Failure", "Job", "Outcome", "execute", "paper_grid", "scores_in"]

_POLL_S = 0.2


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

    @property
    def file_name(self) -> str:
        """Where it is recorded."""
        parts = (
            Path(self.stream).stem,
            self.planner,
            self.arm,
            f"consume-{self.consume}",
            f"level-{self.level}",
            f"seed-{self.seed}",
        )
        return "--".join(_for_a_file(part) for part in parts) + ".jsonl"


class Failure(NamedTuple):
    """A run that could not be played to its end."""

    job: Job
    why: str


class Outcome(NamedTuple):
    """What came of the jobs."""

    scores: list[RunScore]
    """In the order of the jobs."""

    failures: list[Failure]


def execute(
    jobs: Sequence[Job],
    folder: Path,
    *,
    worker_count: int = 1,
    on_episodes: Callable[[int], None] = lambda count: None,
) -> Outcome:
    """Play every job whose records in the folder are not whole yet. `on_episodes` is told how many more are done."""
    for job in jobs:
        strategy_of(job.arm)
    waiting = []
    for job in jobs:
        if (folder / job.file_name).exists() and is_whole(_latest(folder / job.file_name)):
            on_episodes(len(load(job.stream).order))
        else:
            waiting.append(job)
    if worker_count == 1 or len(waiting) < 2:
        failures = [failure for job in waiting if (failure := _played(job, folder, on_episodes))]
    else:
        failures = list(_played_by_workers(waiting, folder, min(worker_count, len(waiting)), on_episodes))
    failed = {failure.job for failure in failures}
    whole = [job for job in jobs if job not in failed]
    return Outcome([score_of(_latest(folder / job.file_name)) for job in whole], failures)


def scores_in(folder: Path) -> list[RunScore]:
    """The scores of all whole runs that are recorded in a folder."""
    found = (_latest(path) for path in sorted(folder.glob("*.jsonl")))
    return [score_of(records) for records in found if is_whole(records)]


def _played(job: Job, folder: Path, on_episodes: Callable[[int], None]) -> Failure | None:
    path = folder / job.file_name
    earlier = read_records(path) if path.exists() else []
    recorded = [record for record in earlier if isinstance(record, Attempted)]
    try:
        scenario = load(job.stream)
        fields = conditional_fields(scenario)
        with (
            planner_for(job.planner, job.seed, fields, job.base_url, job.timeout_s) as planned,
            RecordFile(path) as record,
        ):
            play(
                scenario,
                job.arm,
                planned.planner,
                record,
                seed=job.seed,
                consume=Consume(job.consume),
                level=job.level,
                model=planned.model,
                recorded=recorded if planned.model else (),
                on_episode=lambda: on_episodes(1),
            )
    except (LabError, PlannerError) as error:
        return Failure(job, str(error))
    return None


def _played_by_workers(
    jobs: Sequence[Job], folder: Path, worker_count: int, on_episodes: Callable[[int], None]
) -> Iterator[Failure]:
    context = multiprocessing.get_context("spawn")
    done: Any = context.SimpleQueue()
    pool = ProcessPoolExecutor(worker_count, context, initializer=_remember_queue, initargs=(done,))
    try:
        left: set[Future[Failure | None]] = {pool.submit(_played_in_worker, job, folder) for job in jobs}
        while left:
            finished, left = wait(left, _POLL_S, FIRST_COMPLETED)
            while not done.empty():
                on_episodes(done.get())
            for future in finished:
                if failure := future.result():
                    yield failure
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


_done: Any = None
"""In a worker: where it says that an episode is done."""


def _remember_queue(done: Any) -> None:
    global _done
    _done = done


def _played_in_worker(job: Job, folder: Path) -> Failure | None:
    return _played(job, folder, _done.put)


def _latest(path: Path) -> list[Record]:
    """The records of the last time that a run was begun."""
    records = read_records(path)
    begun = [index for index, record in enumerate(records) if isinstance(record, RunStarted)]
    return records[begun[-1] :] if begun else []


def _for_a_file(text: str) -> str:
    return "".join(char if char.isalnum() or char in "._=-" else "_" for char in text)


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
