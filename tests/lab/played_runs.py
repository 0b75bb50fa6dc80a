"""Runs, played for tests: those of the compliant planner once for all."""

import functools
import os
import shutil
import subprocess
from contextlib import contextmanager
from types import SimpleNamespace

import msgspec
import pytest

from shelflife.client.entries import digest_of
from shelflife.lab import workers
from shelflife.lab.grid import execute, file_name_of, last_run_in
from shelflife.lab.planners.simulated import simulated_planner
from shelflife.lab.records import Attempted, Model, RecordFile
from shelflife.lab.runner import play
from shelflife.lab.scenarios import load
from shelflife.lab.scores import score_of
from shelflife.lab.spec import PLAIN, Consume, RunSpec
from tests.nursery import shared_folder, shared_nursery

SERVER = """
import os
from shelflife.lab.workers import _main
os.setsid()
_main()
"""


@contextmanager
def servers_forked():
    """While the block runs, the server of a run with workers is forked off a process that has all imported."""

    def start(command, *, env, **options):
        assert command[1:] == ["-m", workers.__name__]
        return shared_nursery().start(SERVER, env=env)

    with pytest.MonkeyPatch.context() as patch:
        names = {name: getattr(subprocess, name) for name in ("PIPE", "TimeoutExpired")}
        patch.setattr(workers, "subprocess", SimpleNamespace(**names, Popen=start))
        yield


def _kept_at(spec):
    """Where the records of a run are kept for all workers."""
    kept = shared_folder() / "runs"
    kept.mkdir(exist_ok=True)
    return kept / file_name_of(spec, load(spec.stream))


@contextmanager
def _written(kept):
    """A file in the place of which the block writes: two workers may play a run at once, and a third never reads a part."""
    written = kept.with_name(f"{kept.name}-{os.getpid()}")
    yield written
    written.replace(kept)


def executed(specs, folder, **options):
    """As `execute` does, which plays what is not in its folder. What another test has played is."""
    paths = {folder / kept.name: kept for kept in map(_kept_at, specs)}
    for path, kept in paths.items():
        if kept.exists():
            shutil.copy(kept, path)
    outcome = execute(specs, folder, **options)
    for path, kept in paths.items():
        if path.exists() and not kept.exists():
            with _written(kept) as written:
                shutil.copy(path, written)
    return outcome


@functools.cache
def recorded(stream, arm, conduct=PLAIN, consume="3", level=6):
    """All that is recorded of a run."""
    spec = RunSpec(stream, arm, "compliant", consume=Consume(consume), level=level, conduct=conduct)
    kept = _kept_at(spec)
    if not kept.exists():
        with _written(kept) as written, RecordFile(written) as record:
            planner, digest = simulated_planner("compliant", 0, frozenset()), digest_of(load(stream), None)
            play(spec, planner, record, digest=digest)
    return last_run_in(kept)


def records_of(planner, stream, arm, **settings):
    """The same for any planner."""
    records = []
    play(RunSpec(stream, arm, planner.name, **settings), planner, records.append)
    return records


def played(*how, **more):
    """What came of a run."""
    return score_of(recorded(*how, **more))


def attempts_of(records):
    """Each answer of the planner, and what the server said to it."""
    return [one for one in records if isinstance(one, Attempted)]


def as_if(score, **changes):
    """A score as if its run had been played otherwise."""
    return msgspec.structs.replace(score, spec=msgspec.structs.replace(score.spec, **changes))


def as_measured(score, model, **changes):
    """A score as if a model had been served to its run, and had told its tokens."""
    asked = as_if(score, planner=model.requested, **changes)
    tokens = msgspec.structs.replace(score.tokens, source="vendor")
    return msgspec.structs.replace(asked, planner_kind="model", model=model, tokens=tokens)


QWEN = Model(
    "openai-api/local/qwen2.5-coder-1.5b-instruct-q4_k_m",
    "qwen2.5-coder-1.5b-instruct-q4_k_m@cc324af070c2ecbf",
)
"""A model with a long name."""
