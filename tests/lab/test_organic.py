"""Organic drift: streams drawn from real releases, and what memories come to on them."""

import re
from contextlib import closing
from itertools import pairwise

import pytest

from shelflife.apis.meetings import meetings_provider
from shelflife.cli import main
from shelflife.lab.exhibits import Kind, collection_of
from shelflife.lab.exhibits.figures import figures_of
from shelflife.lab.organic.releases import FETCHED, file_of, read_releases
from shelflife.lab.planners.simulated import simulated_planner
from shelflife.lab.records import Drifted
from shelflife.lab.runner import play
from shelflife.lab.scenarios import ScenarioError, load, parse
from shelflife.lab.scores import score_of
from shelflife.lab.spec import RunSpec
from tests.lab.exhibit_lines import line
from tests.lab.organic_oracle import Predicted, predicted
from tests.lab.played_runs import QWEN, as_if, as_measured, recorded, records_of

SHORT = "organic-zones-40"
WINDOW = {"first": "2018.3", "last": "2019.2"}
FORGETS = {"A0": "everything", "A1": "nothing", "A2": "table", "A2D": "row", "exact": "cell"}


def manifest(**keys):
    written = "\n".join(
        f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}"
        for key, value in keys.items()
    )
    return f'name = "mine"\ntitle = "Mine"\n[organic]\n{written}\n'


def drawn(**keys):
    return parse(manifest(**{"releases": "zones", "rows": 50, "requests": 4} | keys), "mine.toml")


def at_last(record):
    return score_of(records_of(simulated_planner("compliant-last", 0, frozenset()), SHORT, record))


def numbers(score):
    return Predicted(score.retries, score.stale_injections, score.stale_executions, score.evictions)


def test_the_history_of_the_time_zones_comes_with_the_lab():
    releases = read_releases("zones")
    assert len(releases) == 54
    assert (releases[0].version, releases[-1].version) == ("2014.9", "2026.6")
    assert sum(bool(one.tables["zones"].set or one.tables["zones"].remove) for one in releases[1:]) < 53


def test_a_stream_has_so_many_requests_with_each_release():
    scenario = drawn(last="2015.4")
    assert len(scenario.order) == 4 * 4
    moments = [drift.after for drift in scenario.drift if drift.table == "zones"]
    assert moments == [-1, 3, 7, 11]
    assert [drift.version for drift in scenario.drift if drift.table == "zones"] == [
        None,
        "2014.10",
        "2015.2",
        "2015.4",
    ]
    assert {drift.table for drift in scenario.drift} == {"zones", "zone_aliases"}


def test_the_same_draw_is_the_same_stream_and_another_is_another():
    assert drawn() == drawn()
    assert drawn(draw=1).order != drawn().order


def test_usage_is_skewed_and_even_where_it_should_be():
    def most_used(skew):
        order = drawn(skew=skew, requests=40).order
        return max(map(order.count, set(order))) / len(order)

    assert most_used(1.0) > 4 * most_used(0.0)


def test_enriched_usage_has_the_share_of_drifting_rows_that_it_says():
    scenario = drawn(drifting=0.4, skew=0.0, requests=40)
    classes = [family.in_class for family in scenario.families.values()]
    assert (classes.count("drifting"), classes.count("steady")) == (20, 30)


def test_a_frozen_stream_has_the_same_usage_and_no_release_after_the_first():
    frozen = drawn(frozen=True)
    assert frozen.order == drawn().order
    assert [drift.after for drift in frozen.drift] == [-1, -1]


def test_all_releases_one_after_another_come_to_what_the_last_one_has():
    """What is drawn to begin late is the fold of all releases before."""
    late = {drift.table: drift.rows for drift in drawn(first="2026.6").drift}
    with closing(meetings_provider()) as provider:
        for drift in drawn().drift:
            if drift.rows is not None:
                provider.registry.reload_table(drift.table, drift.rows)
            else:
                provider.registry.reload_table(
                    drift.table, set=drift.set or {}, remove=drift.remove, version=drift.version
                )
        assert {table: provider.registry.rows(table) for table in late} == late


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"first": "2014.8"}, r"line 3: there is no release 2014\.8 of zones: they are 2014\.9, "),
        ({"first": "2016.1", "last": "2015.2"}, "line 3: the release 2016.1 comes after 2015.2"),
        ({"rows": 5000}, r"line 3: 5000 rows of zones are to be drawn from 58\d"),
        ({"rows": 200, "drifting": 0.9}, r"line 3: 180 rows of zones are to be drawn from \d+"),
        ({"releases": "moons"}, "line 4: 'releases' cannot be 'moons'; there is "),
        ({"rows": 0}, "line 5: expected `int` >= 1"),
        ({"requests": 0}, "line 6: expected `int` >= 1"),
        ({"drifting": 1.5}, "line 7: expected `float` <= 1.0"),
        ({"skew": -1.0}, "line 7: expected `float` >= 0.0"),
        ({"skew": float("nan")}, "line 7: expected `float` >= 0.0"),
        ({"usage": 5}, "line 7: there is no field 'usage' here; "),
    ],
)
def test_what_is_wrong_with_an_organic_stream_is_told(keys, told):
    with pytest.raises(ScenarioError, match=told):
        drawn(**keys)


def test_what_is_drawn_cannot_be_given_too():
    with pytest.raises(ScenarioError, match="line 3: `order` is drawn from the releases: leave it out"):
        parse(
            manifest(releases="zones", rows=5, requests=2).replace("[organic]", "order = []\n[organic]"),
            "mine.toml",
        )


def test_a_stream_may_be_like_an_organic_one_with_another_draw():
    text = 'name = "mine"\nlike = "organic-zones-40"\n[organic]\ndraw = 7\n'
    mine, base = parse(text, "mine.toml"), load("organic-zones-40")
    assert len(mine.order) == len(base.order) == 40
    assert mine.families != base.families


def test_a_stream_whose_releases_were_not_fetched_says_how_to_fetch_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["lab", "run", "organic-banks"]) == 1
    assert (
        "the releases of banks have not been fetched into shelflife-organic:"
        " fetch them with shelflife lab fetch banks" in capsys.readouterr().err
    )


@pytest.mark.parametrize("content", [b"", b"no gzip", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03half"])
def test_a_broken_history_says_so(tmp_path, monkeypatch, capsys, content):
    monkeypatch.chdir(tmp_path)
    FETCHED.mkdir()
    (FETCHED / "zones.jsonl.gz").write_bytes(content)
    assert main(["lab", "run", SHORT]) == 1
    assert re.search(
        r"zones\.jsonl\.gz holds no releases.*: fetch them anew with shelflife lab fetch zones",
        capsys.readouterr().err,
    )


@pytest.mark.parametrize("arm", FORGETS)
def test_a_memory_comes_to_what_an_oracle_that_shares_nothing_with_it_says(arm):
    score = score_of(recorded(SHORT, arm))
    expected = predicted("zones", file_of("zones"), load(SHORT).order, 5, forgets=FORGETS[arm], **WINDOW)
    assert numbers(score) == expected
    assert score.completed == 40


def test_writing_over_an_old_value_needs_as_few_retries_as_exact_and_sends_stale_ones():
    overwriting, exact = at_last("A1"), score_of(recorded(SHORT, "exact"))
    expected = predicted(
        "zones", file_of("zones"), load(SHORT).order, 5, forgets="nothing", takes_last=True, **WINDOW
    )
    assert numbers(overwriting) == expected
    assert overwriting.retries == exact.retries
    assert (overwriting.stale_injections, overwriting.stale_executions) == (5, 2)
    assert (exact.stale_injections, exact.stale_executions, exact.eviction_precision) == (1, 0, 1.0)


@pytest.mark.parametrize("arm", ["A1", "A2", "exact"])
def test_what_came_since_each_release_adds_up_to_the_whole(arm):
    score = score_of(recorded(SHORT, arm))
    assert [one.evictions for one in score.by_event] == score.evictions_by_event
    assert [one.after for one in score.by_event] == score.drifted_after == [-1, 4, 9, 14, 19, 24, 29, 34]
    assert {one.episodes for one in score.by_event} == {5}
    for name in ("retries", "stale_injections", "stale_executions", "evictions"):
        assert sum(getattr(one, name) for one in score.by_event) == getattr(score, name)
    assert sum(one.tokens for one in score.by_event) == score.tokens.total
    wire = score.wire
    assert sum(one.bytes for one in score.by_event) == wire.bytes + wire.request_bytes + wire.question_bytes


def test_a_large_release_is_recorded_by_some_of_its_rows_and_their_number():
    first = next(one for one in recorded(SHORT, "exact") if isinstance(one, Drifted))
    # the release has 593 zones, and of those that the API comes with one goes
    assert (first.table, len(first.rows), first.more_rows) == ("zones", 32, 594 - 32)


def test_all_rows_of_a_large_release_that_remembered_fixes_rest_on_are_recorded():
    scenario = drawn(first="2016.6.1", last="2016.7", rows=100, requests=60, skew=0.0)
    records = []
    planner = simulated_planner("compliant", 0, frozenset())
    play(RunSpec("mine", "A2D", "compliant"), planner, records.append, scenario=scenario)
    [release] = [
        one for one in records if isinstance(one, Drifted) and one.says == "zones 2016.7" and one.rows
    ]
    assert (release.table, release.more_rows > 0) == ("zones", True)
    score = score_of(records)
    assert score.evictions > 5
    assert score.precision_by["row"] == 1.0


def test_what_the_server_would_give_is_recorded_once_and_when_it_changes():
    judged = [one.judged for one in recorded(SHORT, "A1") if isinstance(one, Drifted)]
    told = [id for one in judged for id in one]
    assert len(told) > len(set(told))  # some have changed
    for id in set(told):
        fixes = [one[id].fixes for one in judged if id in one]
        assert all(before != after for before, after in pairwise(fixes))


@pytest.fixture(scope="module")
def collection():
    scores = [score_of(recorded(SHORT, arm)) for arm in FORGETS]
    frozen = as_if(score_of(recorded(SHORT, "exact")), stream=f"{SHORT}-undrifted")
    return collection_of([*scores, frozen, at_last("A1"), as_measured(scores[-1], QWEN)])


def test_the_report_has_each_arm_beside_no_drift(collection):
    [exhibit] = [one for one in collection.exhibits if one.key == "organic"]
    exact = line(exhibit, SHORT, "compliant", "exact")
    assert (exact["Retries"], exact["Stale values: sent"], exact["Precision"]) == ("10", "1", "1.00")
    assert line(exhibit, SHORT, "compliant", "A2")["Saving kept (%)"] == "35.7"
    assert line(exhibit, SHORT, "compliant", "no drift")["Saving kept (%)"] == "100.0"
    overwriting = line(exhibit, SHORT, "compliant-last", "A1")
    assert (overwriting["Stale values: carried out"], overwriting["Saving kept (%)"]) == ("2", "100.0")
    assert line(exhibit, SHORT, QWEN.requested, "exact", kind=Kind.MEASURED)["Retries"] == "10"
    assert all(one.key != "other-streams" for one in collection.exhibits)


def test_the_report_shows_how_things_grow(collection):
    [growth] = [one for one in collection.exhibits if one.key == "organic-growth"]
    assert line(growth, SHORT, "compliant", "A2")["Evictions: last"] == "5.0"
    figures, _ = figures_of(collection.runs)
    drawn = {figure.key: [name for name, _ in figure.panels] for figure in figures}
    assert drawn["organic-retries"] == drawn["organic-stale"] == [SHORT]
