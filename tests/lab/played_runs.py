"""Runs of the compliant planner, each played once for all tests of a process."""

import functools

from shelflife.lab.conduct import PLAIN
from shelflife.lab.planners.simulated import simulated_planner
from shelflife.lab.prompting import Consume
from shelflife.lab.records import Attempted
from shelflife.lab.runner import play
from shelflife.lab.scenarios import load
from shelflife.lab.scores import score_of


@functools.cache
def recorded(stream, arm, conduct=PLAIN, consume="3", level=6):
    """All that is recorded of a run."""
    records = []
    planner = simulated_planner("compliant", 0, frozenset())
    play(load(stream), arm, planner, records.append, consume=Consume(consume), conduct=conduct, level=level)
    return records


def played(*how, **more):
    """What came of a run."""
    return score_of(recorded(*how, **more))


def attempts_of(records):
    """Each answer of the planner, and what the server said to it."""
    return [one for one in records if isinstance(one, Attempted)]
