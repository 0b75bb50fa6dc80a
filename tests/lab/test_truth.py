"""A remembered fix is stale when the server would not give it any more: by its value, and as things stand."""

import msgspec
import pytest

from shelflife.lab.planners.simulated import simulated_planner
from shelflife.lab.runner import play
from shelflife.lab.scenarios import load
from shelflife.lab.scores import score_of
from shelflife.lab.spec import Conduct, RunSpec

PLAN = "plan_partner_growth"
OLD, NEW = {"code": "SUMMERSALE25"}, {"code": "WINTERLAUNCH26"}


def played(arm, *drifts, planner="compliant", **conduct):
    """The score of the drifted stream with these rows set after these episodes."""
    drifted = load("drifted")
    [rotation, *_] = drifted.drift
    scenario = msgspec.structs.replace(
        drifted,
        drift=[msgspec.structs.replace(rotation, after=after, set={PLAN: row}) for after, row in drifts],
    )
    records = []
    by = simulated_planner(planner, 0, frozenset())
    spec = RunSpec("drifted", arm, planner, conduct=Conduct(**conduct))
    play(spec, by, records.append, scenario=scenario)
    return score_of(records)


@pytest.mark.parametrize("disclose", ["names", "aliases"])
def test_a_value_that_is_changed_makes_a_fix_stale_and_its_eviction_right(disclose):
    score = played("A2D", (11, NEW), disclose=disclose)
    assert (score.stale_injections, score.evictions, score.eviction_precision) == (1, 1, 1.0)


def test_what_was_changed_back_is_no_change():
    score = played("A1", (11, NEW), (11, OLD))
    assert (score.stale_injections, score.saving.valid) == (0, 21)


def test_a_fix_that_has_come_back_is_true_again():
    """Twice it is used while it is not true: after episode 11 and before the one that follows episode 17."""
    assert played("A1", (11, NEW)).stale_injections == 8
    assert played("A1", (11, NEW), (17, OLD)).stale_injections == 2


def test_a_column_that_no_policy_has_read_makes_nothing_stale():
    annotated = {**OLD, "note": "nobody reads this"}
    by_row = played("A2D", (11, annotated))
    assert (by_row.stale_injections, by_row.evictions, by_row.eviction_precision) == (0, 1, 0.0)
    by_cell = played("exact", (11, annotated))
    assert (by_cell.stale_injections, by_cell.evictions) == (0, 0)


def test_of_two_values_that_stand_side_by_side_the_one_that_is_used_counts():
    first, last = (played("A1", (11, NEW), planner=planner) for planner in ("compliant", "compliant-last"))
    assert (first.stale_injections, first.saving.valid) == (8, 13)
    assert (last.stale_injections, last.saving.valid) == (1, 20)


def test_a_fix_that_was_asked_for_is_judged_by_the_request_that_was_asked_about():
    """And not by the one that was sent last, which had the value in it already: nothing would be suggested for that."""
    for fresh in ("check", "feed"):
        score = played("exact", (11, NEW), (23, OLD), fresh=fresh)
        assert (score.stale_injections, score.evictions, score.eviction_precision) == (0, 2, 1.0)


def test_a_fix_that_came_with_a_refused_precondition_is_judged_by_the_request_without_remembered_values():
    score = played("exact", (11, NEW), (23, NEW), (29, NEW), precondition=True)
    assert (score.mended, score.stale_injections, score.evictions, score.eviction_precision) == (1, 1, 1, 1.0)
