"""The exhibit of attacks and defences, and that no other has hostile servers in it."""

import msgspec
import pytest

from shelflife.lab.exhibits import collection_of
from shelflife.lab.exhibits.cells import DASH, Kind
from shelflife.lab.exhibits.comparison import compared_with_the_paper
from shelflife.lab.exhibits.figures import figures_of
from shelflife.lab.exhibits.report import report_html
from shelflife.lab.spec import Conduct, RunSpec
from tests.lab.exhibit_lines import line
from tests.lab.played_runs import executed

HONEST = [
    RunSpec("drifted", "A0", "compliant"),
    RunSpec("drifted", "A1", "compliant"),
    RunSpec("drifted", "A2D", "compliant"),
    RunSpec("undrifted", "A2D", "compliant"),
]
ATTACKED = [
    RunSpec("injection", "A0", "compliant"),
    RunSpec("injection", "A2D", "compliant"),
    RunSpec("injection", "A2D", "compliant", conduct=Conduct(guard="fields")),
    RunSpec("bumping", "A0", "compliant"),
    RunSpec("bumping", "A2D", "compliant"),
    RunSpec("bumping", "A2D", "compliant", conduct=Conduct(bound=32)),
    RunSpec("bumping", "A2D", "compliant", conduct=Conduct(bound=4)),
    RunSpec("pinned", "exact", "compliant", conduct=Conduct(trust=True)),
    RunSpec("disclosure", "A2D", "compliant", conduct=Conduct(disclose="aliases")),
]


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    return executed(HONEST, tmp_path_factory.mktemp("honest")).scores


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    return executed(ATTACKED, tmp_path_factory.mktemp("attacked")).scores


@pytest.fixture(scope="module")
def exhibit(honest, attacked):
    [found] = [one for one in collection_of([*honest, *attacked]).exhibits if one.key == "under-attack"]
    return found


def test_each_attack_has_its_defences_after_no_memory_and_an_honest_server(exhibit):
    assert [[row.cells[place].text for place in (0, 2, 3)] for row in exhibit.rows] == [
        ["injection", "A0", "no memory"],
        ["injection", "A2D", "(no attack)"],
        ["injection", "A2D", "none"],
        ["injection", "A2D", "guard fields"],
        ["bumping", "A0", "no memory"],
        ["bumping", "A2D", "(no attack)"],
        ["bumping", "A2D", "none"],
        ["bumping", "A2D", "bound 4"],
        ["bumping", "A2D", "bound 32"],
        ["pinned", "exact", "trust"],
        ["disclosure", "A2D", "aliases"],
    ]
    firsts = [row.cells[0].text for row in exhibit.rows if row.is_first_of_block]
    assert firsts == ["injection", "bumping", "pinned", "disclosure"]


def test_a_row_has_what_the_attack_got_and_what_the_defence_cost(exhibit):
    guarded = line(exhibit, "injection", "guard fields")
    assert (guarded["Injected: memory"], guarded["Injected: answers"]) == ("0", "27")
    undefended, bounded = line(exhibit, "bumping", "A2D", "none"), line(exhibit, "bumping", "bound 4")
    assert (undefended["Retries"], undefended["Tokens: vs A0 (%)"]) == ("27", "+0.1")
    assert (bounded["Retries"], bounded["Tokens: vs A0 (%)"]) == ("10", "\N{MINUS SIGN}39.2")
    assert (bounded["Questions: asked"], bounded["Injected: memory"]) == ("44", DASH)
    pinned = line(exhibit, "pinned", "trust")
    assert (pinned["Stale values: sent"], pinned["Tokens: vs A0 (%)"]) == ("1", DASH)
    assert line(exhibit, "disclosure", "aliases")["Names"] == "0"
    assert line(exhibit, "bumping", "A0")["Tokens: vs A0 (%)"] == DASH


def test_each_number_says_where_it_comes_from(exhibit):
    for row in exhibit.rows:
        assert {cell.kind for cell in row.cells[:4]} == {None}
        assert {cell.kind for cell in row.cells[4:]} == {Kind.EXACT, Kind.ESTIMATED}
    assert any("by default; the paper has no such arm" in note for note in exhibit.notes)


def test_no_run_on_a_hostile_server_gets_into_another_exhibit(honest, attacked):
    """Not even one on a stream of the paper's name."""
    posing = [msgspec.structs.replace(run, hostile="bumps", retries=999, first_try=0) for run in honest]
    before, after = collection_of(honest), collection_of([*posing, *honest, *attacked])
    shown_anyway = ("runs", "under-attack")
    rows_before, rows_after = (
        {one.key: one.rows for one in collection.exhibits if one.key not in shown_anyway}
        for collection in (before, after)
    )
    assert rows_after == rows_before
    assert (after.headline, after.headline_kind) == (before.headline, before.headline_kind)
    assert compared_with_the_paper(after.exhibits) == compared_with_the_paper(before.exhibits)
    assert [one.svg for one in figures_of(after.runs)[0]] == [one.svg for one in figures_of(before.runs)[0]]


def test_without_a_hostile_server_there_is_no_such_exhibit(honest):
    collection = collection_of(honest)
    [why] = [one.why for one in collection.left_out if one.title == "Under attack"]
    assert why == "there is no run on a stream with a hostile server"


def test_the_report_shows_it(honest, attacked):
    page = report_html(collection_of([*honest, *attacked]), [])
    assert 'id="under-attack"' in page
    assert "other-streams" not in page
