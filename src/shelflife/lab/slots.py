"""Stale slots, worked out: the episodes right after what the API suggests for their task has changed."""

from collections import Counter
from contextlib import closing, suppress
from typing import Any

import msgspec

from shelflife.errors import ShelflifeError
from shelflife.lab.apis import APIS
from shelflife.lab.scenarios import BEFORE_THE_FIRST, Drift, Scenario
from shelflife.server import Provider

__all__ = ["with_stale_slots"]

_SLOTS_OF_A_DRIFT = 2
"""As in the paper: the first episodes whose family it concerns."""


def with_stale_slots(scenario: Scenario) -> Scenario:
    """A stream with the stale slots that it gives, or with those that follow from its drift."""
    if scenario.stale_slots is not None:
        return scenario
    slots: list[int] = []
    if scenario.drift:
        with closing(APIS[scenario.api].provider()) as provider, suppress(ShelflifeError):
            _note_slots(scenario, provider, slots)  # up to a drift that is refused: the run will tell
    return msgspec.structs.replace(scenario, stale_slots=slots)


def _note_slots(scenario: Scenario, provider: Provider, slots: list[int]) -> None:
    """What was changed back before its family was met again has made nothing stale."""
    operation = APIS[scenario.api].operation
    met: dict[str, tuple[list[Any], int | None]] = {}
    """What was suggested when a family was met last, and the drift that had changed it."""
    changed_after: dict[str, int | None] = {}
    """The drift that has changed what is suggested now."""
    taken: Counter[int] = Counter()

    def suggested(name: str) -> list[Any]:
        found = provider.fixes_for(scenario.families[name].input, operation, provider.registry.state)
        return [(one.suggestion.type, one.suggestion.parameters) for one in found]

    _drift_after(BEFORE_THE_FIRST, scenario, provider)
    for index, name in enumerate(scenario.order):
        if scenario.families[name].in_class == scenario.governed:
            drift = changed_after.get(name)
            met[name] = suggested(name), drift
            if drift is not None and taken[drift] < _SLOTS_OF_A_DRIFT:
                taken[drift] += 1
                slots.append(index)
        before = {name: suggested(name) for name in met} if scenario.drift_after(index) else {}
        _drift_after(index, scenario, provider)
        for other, fixes in before.items():
            if (now := suggested(other)) != fixes:
                fixes_then, drift_then = met[other]
                changed_after[other] = drift_then if now == fixes_then else index


def _drift_after(index: int, scenario: Scenario, provider: Provider) -> None:
    for drift in scenario.drift_after(index):
        _apply(drift, provider)


def _apply(drift: Drift, provider: Provider) -> None:
    registry = provider.registry
    if drift.table is None:
        registry.reload_rules(add=drift.add_rules, remove=drift.remove_rules)
    else:
        given: dict[str, Any] = {"rows": drift.rows}
        if drift.rows is None:
            given = {"set": drift.set or {}, "remove": drift.remove}
        registry.reload_table(drift.table, **given, version=drift.version)
