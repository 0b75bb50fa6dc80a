"""Which planner a name stands for: a simulated one, or a model."""

from collections.abc import Iterator
from contextlib import contextmanager

from shelflife.lab.planners.models import LONGEST_ANSWER_S, ModelPlanner
from shelflife.lab.planners.protocol import Planner
from shelflife.lab.planners.simulated import simulated_planner
from shelflife.lab.records import Model
from shelflife.lab.scenarios import Scenario

__all__ = ["planner_for"]


@contextmanager
def planner_for(
    name: str,
    seed: int,
    scenario: Scenario,
    base_url: str | None = None,
    timeout_s: int = LONGEST_ANSWER_S,
) -> Iterator[tuple[Planner, Model | None]]:
    """A planner for as long as a block runs. A model is probed first, and is told beside it."""
    simulated = simulated_planner(name, seed, _conditional_fields(scenario))
    if simulated is not None:
        yield simulated, None
        return
    with ModelPlanner(name, base_url=base_url, seed=seed, timeout_s=timeout_s) as planner:
        probed = planner.probe()
        yield planner, Model(probed.requested, probed.served)


def _conditional_fields(scenario: Scenario) -> frozenset[str]:
    """The fields of a stream whose rewriting depends on a condition. The text does not show it, and rates differ."""
    families = scenario.families.values()
    return frozenset(
        family.field for family in families if family.field and family.hint == "conditional rewrite"
    )
