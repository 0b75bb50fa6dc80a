"""Which planner a name stands for: a simulated one, or a model."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from shelflife.lab.planners import Planner
from shelflife.lab.planners.simulated import simulated_planner
from shelflife.lab.records import Model
from shelflife.lab.scenarios import Scenario

__all__ = ["LONGEST_ANSWER_S", "Planned", "conditional_fields", "planner_for"]


LONGEST_ANSWER_S = 120


class Planned(NamedTuple):
    """A planner, ready to be asked."""

    planner: Planner
    model: Model | None
    """What the probe of a model found; None for a simulated planner."""


@contextmanager
def planner_for(
    spec: str,
    seed: int,
    fields: frozenset[str],
    base_url: str | None = None,
    timeout_s: int = LONGEST_ANSWER_S,
) -> Iterator[Planned]:
    """A planner for as long as a block runs; a model is probed first.

    `fields` are those whose rewriting depends on a condition, which only a seeded planner tells from others.
    """
    simulated = simulated_planner(spec, seed, fields)
    if simulated is not None:
        yield Planned(simulated, None)
        return
    from shelflife.lab.planners.models import ModelPlanner  # not everyone has it installed

    with ModelPlanner(spec, base_url=base_url, seed=seed, timeout_s=timeout_s) as planner:
        probed = planner.probe()
        yield Planned(planner, Model(probed.requested, probed.served))


def conditional_fields(scenario: Scenario) -> frozenset[str]:
    """The fields of a stream whose rewriting depends on a condition."""
    families = scenario.families.values()
    return frozenset(
        family.field for family in families if family.field and family.hint == "conditional rewrite"
    )
