"""What the tests of the lab share."""

import pytest

from tests.lab.played_runs import executed


@pytest.fixture
def commands_find_what_was_played(monkeypatch):
    """`shelflife lab run` plays only what no test has."""
    monkeypatch.setattr("shelflife.lab.grid.execute", executed)
