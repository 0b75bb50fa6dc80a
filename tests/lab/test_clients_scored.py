"""The lab plays clients that are known, and the server says what they are from their requests alone."""

import re
from pathlib import Path

import pytest

from shelflife.lab.planners.simulated import simulated_planner
from shelflife.lab.runner import play
from shelflife.lab.scenarios import load
from shelflife.lab.spec import RunSpec

FOLLOWS, KEEPS = "remembers and follows", "remembers and does not forget"
CLIENTS = {
    ("A0", "compliant"): "does not remember",
    ("A2D", "forgetful"): "does not remember",
    ("A1", "compliant"): KEEPS,
    ("A2", "compliant"): "forgets too much",
    ("A2D", "compliant"): FOLLOWS,
    ("A2DC", "compliant"): FOLLOWS,
    ("A2DG", "compliant"): FOLLOWS,
    ("exact", "compliant"): FOLLOWS,
    ("A1", "compliant-last"): FOLLOWS,
    ("A2D", "conservative"): "does not comply with added fields",
}
"""What each is, by how it was made."""

FIRST_CHANGE = min(drift.after for drift in load("drifted").drift)
OPERATING = Path(__file__).parents[2] / "docs" / "guides" / "operating.md"


def verdicts(arm, planner_name, stream="drifted"):
    """What the server says of a client after each episode."""
    planner, servers, told = simulated_planner(planner_name, 0, frozenset()), [], []

    def look():
        scores = servers[0].provider.clients.scores()
        told.append(scores[0].verdict if scores else "not enough seen")

    spec = RunSpec(stream, arm, planner.name)
    play(spec, planner, lambda record: None, on_server=servers.append, on_episode=look)
    return told


@pytest.mark.parametrize(("arm", "planner"), CLIENTS)
def test_a_client_is_told_from_others_by_its_requests_alone(arm, planner):
    told = verdicts(arm, planner)
    assert {*told[: FIRST_CHANGE + 1]} == {"not enough seen"}
    assert told[-1] == CLIENTS[arm, planner]
    assert _row_of(arm, planner) == told[-1]


def _row_of(arm, planner):
    """What the documents say of a client: the column that has a mark in its row."""
    table = [line for line in OPERATING.read_text("utf-8").splitlines() if line.startswith("|")]
    [head] = [line for line in table if FOLLOWS in line and KEEPS in line and "played" in line]
    [row] = [line for line in table if re.match(rf"\| `{arm}`, {planner} +\|", line)]
    marks = [cell.strip() for cell in row.split("|")]
    return head.split("|")[marks.index("1")].strip()


def test_where_nothing_changes_only_a_client_without_memory_shows():
    assert verdicts("A0", "compliant", "undrifted")[-1] == "does not remember"
    assert {*verdicts("exact", "compliant", "undrifted")} == {"not enough seen"}
