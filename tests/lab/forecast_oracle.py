"""What asking before use comes to on a stream of drawn habits, worked out from its manifest alone: no server, and no memory."""

from types import SimpleNamespace
from typing import NamedTuple

from shelflife.histories import Histories
from shelflife.lab.ways_to_ask import conduct_of, foresight_of


class Foretold(NamedTuple):
    """What a run should come to."""

    questions: int
    stale: int
    retries: int
    said: list
    """Of each use for which something was said: how likely it was to be stale, and whether it was."""

    def cost(self, stale_costs):
        return self.questions + stale_costs * self.stale


def foretold(scenario, way, stale_costs=3.0, chance_of=None):
    """Of a stream that is drawn: each reply tells all that has moved, so that what was told of is forgotten, and what was not is stale."""
    foresight = foresight_of(conduct_of(way, stale_costs))
    now = looked_at = 0.0
    histories, remembered, unheard, said = None, set(), [], []
    questions = stale = retries = 0
    for index, zone in enumerate(scenario.order):
        now += 60 * scenario.minutes_until(index) if index else 0.0
        is_due = False
        if zone in remembered and foresight is not None:
            entry = SimpleNamespace(grounds=SimpleNamespace(rows=(f"zones:{zone}",), tables=("zones",)))
            is_due = foresight.is_due([entry], histories, looked_at, now)
            if chance_of is not None:
                said.append((chance_of([entry], histories, looked_at, now), zone in unheard))
        if is_due:
            questions += 1
        elif zone in remembered:
            stale += zone in unheard
        is_fresh = zone in remembered and (is_due or zone not in unheard)
        retries += not is_fresh
        histories = histories or Histories(now)
        if unheard:
            names = ["zones", *(f"zones:{one}" for one in sorted(set(unheard)))]
            histories = histories.after(names, looked_at, now)
        remembered -= set(unheard)
        remembered.add(zone)
        looked_at, unheard = now, []
        unheard = [key for drift in scenario.drift_after(index) for key in drift.set]
    return Foretold(questions, stale, retries, said)
