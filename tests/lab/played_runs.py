"""Runs, played for tests: those of the compliant planner once for all."""

import functools
import hashlib
import os
import pickle
import subprocess
from contextlib import contextmanager
from types import SimpleNamespace

import msgspec
import pytest

from shelflife.lab import workers
from shelflife.lab.planners.simulated import simulated_planner
from shelflife.lab.records import Attempted, Model
from shelflife.lab.runner import play
from shelflife.lab.scores import score_of
from shelflife.lab.spec import PLAIN, RunSpec
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


@functools.cache
def recorded(stream, arm, conduct=PLAIN, consume="3", level=6):
    """All that is recorded of a run."""
    name = hashlib.sha256(repr((stream, arm, conduct, consume, level)).encode()).hexdigest()
    kept = shared_folder() / name
    if kept.exists():
        return pickle.loads(kept.read_bytes())
    planner = simulated_planner("compliant", 0, frozenset())
    records = records_of(planner, stream, arm, consume=consume, conduct=conduct, level=level)
    written = kept.with_name(f"{name}-{os.getpid()}")
    written.write_bytes(pickle.dumps(records))
    written.replace(kept)  # two workers may play it at once, and a third never reads a part
    return records


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
