"""Which planner a name stands for: a simulated one, or a model."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shelflife.lab.answers import AskedOnce
from shelflife.lab.apis import APIS
from shelflife.lab.planners.models import LONGEST_ANSWER_S, ModelPlanner
from shelflife.lab.planners.protocol import Planner
from shelflife.lab.planners.simulated import Answer, simulated_planner
from shelflife.lab.records import Model
from shelflife.lab.scenarios import Family, Scenario

__all__ = ["planner_for"]


@contextmanager
def planner_for(
    name: str,
    seed: int,
    scenario: Scenario,
    base_url: str | None = None,
    timeout_s: int = LONGEST_ANSWER_S,
    answers: Path | None = None,
) -> Iterator[tuple[Planner, Model | None]]:
    """A planner for as long as a block runs. A model is probed first, and is told beside it.

    What a model answers is kept in the file `answers`, if there is one, and not asked for again.
    """
    fields = frozenset(family.field for family in _conditional(scenario) if family.field)
    simulated = simulated_planner(name, seed, fields, _answers(scenario))
    if simulated is not None:
        yield simulated, None
        return
    with ModelPlanner(name, base_url=base_url, seed=seed, timeout_s=timeout_s) as planner:
        probed = planner.probe()
        model = Model(probed.requested, probed.served)
        yield planner if answers is None else AskedOnce(planner, model, answers), model


def _conditional(scenario: Scenario) -> list[Family]:
    return [one for one in scenario.families.values() if one.hint == "conditional rewrite"]


def _answers(scenario: Scenario) -> list[Answer]:
    """What its conditional rewrites set, as long as nothing has drifted: somebody may find that without being told."""
    api = APIS[scenario.api]
    provider = api.provider()
    return [
        Answer(
            {field: value for field, value in family.input.items() if field not in scenario.varied},
            violation.suggestion.parameters,
        )
        for family in _conditional(scenario)
        for violation in provider.fixes_for(family.input, api.operation, provider.state)
        if family.field in violation.suggestion.parameters
    ]
