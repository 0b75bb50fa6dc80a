"""A row that is added can make a fix untrue that rests on no row that was there: it was looked for, and was missing."""

import pytest
from fastapi import FastAPI

from shelflife.client import EXACT
from shelflife.integrations.fastapi import install
from shelflife.lab.arms import ARMS
from shelflife.server import Provider, fix
from shelflife.testing import serving
from tests.client.agents import Agent, knows

PREFIXES = {"49": {"operator": "Deutsche"}, "4915": {"operator": "Mobil"}, "33": {"operator": "France"}}
WANTED = {"number": "49151234567"}


def operator_must_be_that_of_the_longest_prefix(request, tables):
    """Numbers are sorted to operators by their longest known prefix."""
    number = request["number"]
    for length in range(len(number), 0, -1):
        row = tables.prefixes.get(number[:length])
        if row is not None:
            if request.equals("operator", row["operator"]):
                return None
            return fix("USE_OPERATOR", operator=row["operator"])
    return None


@pytest.fixture
def provider():
    provider = Provider({"prefixes": PREFIXES})
    provider.policy(operator_must_be_that_of_the_longest_prefix)
    return provider


@pytest.fixture
def address(provider):
    app = FastAPI()
    install(app, provider)

    @app.post("/topups", status_code=201)
    def top_up(wanted: dict[str, object]) -> dict[str, object]:
        provider.check(wanted)
        return {"success": True}

    with serving(app) as address:
        yield address


@pytest.mark.parametrize("strategy", [EXACT, ARMS["A2D"]], ids=lambda strategy: strategy.name)
@pytest.mark.parametrize(
    ("added", "is_kept"), [("49151", False), ("491512345", False), ("4916", True), ("4", True), ("34", True)]
)
def test_a_fix_goes_when_a_longer_prefix_comes_and_no_other_row_makes_it_go(
    provider, address, strategy, added, is_kept
):
    with Agent(address, "POST /topups", strategy) as agent:
        agent.call(WANTED)
        assert knows(agent, WANTED) == [{"operator": "Mobil"}]
        provider.registry.reload_table("prefixes", set={added: {"operator": "New"}})
        agent.call({"number": "33123"})  # whatever it is about, its reply tells that the table has moved
        assert (knows(agent, WANTED) == [{"operator": "Mobil"}]) is is_kept
        agent.call(WANTED)
        now = "Mobil" if is_kept else "New"
        assert knows(agent, WANTED) == [{"operator": now}]


def test_the_rows_that_were_found_would_not_tell():
    """Of the rows behind the fix that are there, none changes when a longer prefix comes."""
    provider = Provider({"prefixes": PREFIXES})
    provider.policy(operator_must_be_that_of_the_longest_prefix)
    [violation] = provider.fixes_for(WANTED, "POST /topups", provider.state)
    read = violation.suggestion.cells["prefixes"]
    assert [key for key in read if key in PREFIXES] == ["4915"]
    assert "49151" in read
    assert provider.registry.reload_table("prefixes", set={"49151": {"operator": "New"}}).changed == ()
