"""The lab plays clients that are known, and the server says what they are from their requests alone."""

import re
from functools import cache
from pathlib import Path

import msgspec
import pytest

from shelflife.lab.exhibits import collection_of
from shelflife.lab.exhibits.cells import DASH
from shelflife.lab.known_clients import KNOWN
from shelflife.lab.planners.simulated import simulated_planner
from shelflife.lab.runner import play
from shelflife.lab.scenarios import load
from shelflife.lab.scores import score_of
from shelflife.lab.spec import RunSpec

FIRST_CHANGE = min(drift.after for drift in load("drifted").drift)
OPERATING = Path(__file__).parents[2] / "docs" / "guides" / "operating.md"


@cache
def played(arm, planner_name, stream="drifted"):
    """What the server says of a client after each episode, and the records of the run."""
    planner, servers, told = simulated_planner(planner_name, 0, frozenset()), [], []
    records = []

    def look():
        scores = servers[0].provider.clients.scores()
        told.append(scores[0].verdict if scores else "not enough seen")

    spec = RunSpec(stream, arm, planner.name)
    play(spec, planner, records.append, on_server=servers.append, on_episode=look)
    return told, score_of(records)


@pytest.mark.parametrize(("arm", "planner"), KNOWN)
def test_a_client_is_told_from_others_by_its_requests_alone(arm, planner):
    told, score = played(arm, planner)
    assert {*told[: FIRST_CHANGE + 1]} == {"not enough seen"}
    assert told[-1] == KNOWN[arm, planner]
    assert (score.first_verdict, score.verdict) == ("not enough seen", told[-1])
    assert _row_of(arm, planner) == told[-1]


def test_the_report_has_how_often_which_client_was_taken_for_what():
    scores = [played(arm, planner)[1] for arm, planner in KNOWN]
    [table] = [one for one in collection_of(scores).exhibits if one.key == "clients"]
    names = [column.name for column in table.columns]
    shown = {}
    for row in table.rows:
        arm, planner, what, runs, *counts, before = [cell.text for cell in row.cells]
        assert (what, runs, before) == (KNOWN[arm, planner], "1", "1")
        shown[arm, planner] = [name for name, count in zip(names[4:-1], counts, strict=True) if count != "0"]
    assert shown == {client: [verdict] for client, verdict in KNOWN.items()}


def test_a_run_that_nobody_scored_is_not_in_it():
    score = msgspec.structs.replace(played("A0", "compliant")[1], verdict=None)
    assert "clients" not in {one.key for one in collection_of([score]).exhibits}


def test_clients_of_planners_with_chance_stand_together_by_arm():
    scores = [played("A2D", "seeded:add=0.5")[1], played("A0", "compliant")[1]]
    [table] = [one for one in collection_of(scores).exhibits if one.key == "clients"]
    assert [[cell.text for cell in row.cells][:4] for row in table.rows] == [
        ["A0", "compliant", "does not remember", "1"],
        ["A2D", "others with chance", DASH, "1"],
    ]


def _row_of(arm, planner):
    """What the documents say of a client: the column that has a mark in its row."""
    table = [line for line in OPERATING.read_text("utf-8").splitlines() if line.startswith("|")]
    [head] = [line for line in table if "as played" in line and "not enough seen" in line]
    [row] = [line for line in table if re.match(rf"\| `{arm}`, {planner} +\|", line)]
    marks = [cell.strip() for cell in row.split("|")]
    return head.split("|")[marks.index("1")].strip()


def test_where_nothing_changes_only_a_client_without_memory_shows():
    assert played("A0", "compliant", "undrifted")[0][-1] == "does not remember"
    assert {*played("exact", "compliant", "undrifted")[0]} == {"not enough seen"}
