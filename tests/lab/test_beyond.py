"""The exhibit of what goes beyond the paper, and that nothing of it gets into the paper's own."""

import msgspec
import pytest

from shelflife.lab.exhibits import Kind, collection_of
from shelflife.lab.exhibits.cells import DASH
from shelflife.lab.exhibits.comparison import compared_with_the_paper
from shelflife.lab.exhibits.figures import figures_of
from shelflife.lab.exhibits.report import report_html
from shelflife.lab.spec import PLAIN, Conduct, RunSpec
from tests.lab.exhibit_lines import line
from tests.lab.played_runs import as_if, executed

PLAINLY = [
    *(RunSpec("drifted", arm, "compliant") for arm in ("A0", "A1", "A2D", "exact")),
    *(RunSpec("drifted", "A2D", "sim:claude-haiku-4-5", seed) for seed in (0, 1)),
    RunSpec("rules", "A2DC", "compliant"),
    RunSpec("recipes", "A2D", "compliant"),
    RunSpec("undrifted", "A2D", "compliant"),
    RunSpec("rotations-1", "A2D", "compliant"),
]
FURTHER = [
    RunSpec("drifted", "A2D", "compliant", conduct=Conduct(form="compact")),
    RunSpec("drifted", "A2D", "compliant", conduct=Conduct(fresh="feed")),
    RunSpec("drifted", "A2D", "compliant", conduct=Conduct(precondition=True)),
    RunSpec("drifted", "A2D", "compliant", conduct=Conduct(fresh="check", agents=2)),
    RunSpec("drifted", "A2D", "compliant", consume="apply", conduct=Conduct(precondition=True)),
    RunSpec("drifted", "A2D", "sim:claude-haiku-4-5", conduct=Conduct(fresh="check")),
    RunSpec("silent", "A1", "compliant"),
    RunSpec("silent", "A2D", "compliant"),
]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return executed(PLAINLY, tmp_path_factory.mktemp("plain")).scores


@pytest.fixture(scope="module")
def further(tmp_path_factory):
    return executed(FURTHER, tmp_path_factory.mktemp("further")).scores


@pytest.fixture(scope="module")
def beyond(plain, further):
    return next(one for one in collection_of([*plain, *further]).exhibits if one.key == "beyond")


def test_each_conduct_has_a_row_beside_the_papers_best_arm(beyond):
    names = [[cell.text for cell in row.cells[:4]] for row in beyond.rows]
    assert [row for row in names if "haiku" not in row[1]] == [
        ["drifted", "compliant", "A2D", "as in the paper"],
        ["drifted", "gpt-5-mini", "A2D", "published"],
        ["drifted", "compliant", "A2D", "compact"],
        ["drifted", "compliant", "A2D", "feed"],
        ["drifted", "compliant", "A2D", "precondition"],
        ["drifted", "compliant", "A2D", "applied, precondition"],
        ["drifted", "compliant", "A2D", "check, 2 agents"],
        ["silent", "compliant", "A1", "as in the paper"],
        ["silent", "compliant", "A2D", "as in the paper"],
    ]
    paper = line(beyond, "published", "gpt-5-mini")
    assert (paper["Retries: first"], paper["Contract (%): responses"]) == ("7", "15.1")
    assert paper["Stale values: done"] == DASH


def test_a_row_has_what_the_conduct_brings_and_costs(beyond):
    feed, conditional = line(beyond, "compliant", "feed"), line(beyond, "compliant", "precondition")
    assert feed["Retries: first"] == "6"
    assert (feed["Stale values: sent"], feed["Stale values: mended"]) == ("0", DASH)
    assert 0 < int(feed["Bytes: asked"].replace(",", "")) < 1000
    assert (conditional["Stale values: sent"], conditional["Stale values: mended"]) == ("1", "1")
    assert conditional["Stale values: done"] == "0"
    shared = line(beyond, "check, 2 agents")
    assert (shared["Retries: first"], shared["Retries: others"]) == ("6", "0")
    assert line(beyond, "compliant", "compact")["Contract (%): both ways"] == "3.0"
    assert line(beyond, "silent", "A1")["Stale values: done"] == "2"


def test_each_number_says_where_it_comes_from(beyond):
    for row in beyond.rows:
        assert {cell.kind for cell in row.cells[:4]} == {None}
        assert {cell.kind for cell in row.cells[4:]} <= {row.kind, Kind.ESTIMATED}
    assert {row.kind for row in beyond.rows} == {Kind.EXACT, Kind.TUNED, Kind.PAPER}


def rows_of(collection):
    shown_anyway = ("beyond", "runs")
    return {one.key: one.rows for one in collection.exhibits if one.key not in shown_anyway}


CONDUCTS = [
    Conduct(form="compact"),
    Conduct(fresh="check"),
    Conduct(fresh="feed"),
    Conduct(precondition=True),
    Conduct(agents=2),
]


def drawings_of(collection):
    return [one.svg for one in figures_of(collection.runs)[0]]


def ruined_by(conduct, plain):
    """Runs that would ruin every number, were they pooled."""
    return [
        msgspec.structs.replace(
            as_if(run, conduct=conduct, consume=consume),
            retries=999,
            first_try=0,
            eligible_first_try=0,
            eviction_precision=0.0,
            classes={},
            tokens=msgspec.structs.replace(run.tokens, prompt=10**9),
            wire=msgspec.structs.replace(run.wire, contract_bytes=0, responses=10**6),
        )
        for run in plain
        for consume in ("3", "apply")
    ]


@pytest.mark.parametrize("conduct", CONDUCTS)
def test_no_run_of_another_conduct_gets_into_an_exhibit_of_the_papers(plain, conduct):
    ruined = ruined_by(conduct, plain)
    strangers = [as_if(run, arm="A2DO", stream="my-api") for run in ruined[:1]]
    before, after = collection_of(plain), collection_of([*ruined, *plain, *strangers])
    assert rows_of(after) == rows_of(before)
    assert (after.headline, after.headline_kind) == (before.headline, before.headline_kind)
    assert compared_with_the_paper(after.exhibits) == compared_with_the_paper(before.exhibits)


def test_no_run_of_another_conduct_gets_into_a_drawing(plain):
    ruined = [run for conduct in CONDUCTS for run in ruined_by(conduct, plain)]
    strangers = [as_if(run, arm="A2DO", stream="my-api") for run in ruined[:1]]
    assert drawings_of(collection_of([*ruined, *plain, *strangers])) == drawings_of(collection_of(plain))


def test_runs_of_the_papers_conduct_alone_have_nothing_beyond_it(plain):
    collection = collection_of([run for run in plain if run.spec.conduct == PLAIN])
    assert "beyond" not in {one.key for one in collection.exhibits}
    assert "Beyond the paper" in {one.title for one in collection.left_out}


def test_the_report_shows_it(plain, further):
    page = report_html(collection_of([*plain, *further]), [])
    assert 'id="beyond"' in page
    assert "check, 2 agents" in page
    assert "other-streams" not in page
