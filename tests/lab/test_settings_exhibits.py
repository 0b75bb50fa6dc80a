"""What real models came to, and what other words make of the same runs: each way of playing in a row of its own."""

import re

import pytest

from shelflife.lab.exhibits import Kind, collection_of
from shelflife.lab.exhibits.cells import DASH
from shelflife.lab.exhibits.figures import figures_of
from shelflife.lab.records import Model
from shelflife.lab.spec import Conduct, RunSpec
from tests.lab.exhibit_lines import line
from tests.lab.played_runs import as_measured, executed

ARMS = ("A0", "A1", "A2D")
SERVED = "small@0123"
SMALL = Model("openai-api/local/small", SERVED)


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    specs = [
        *(RunSpec("drifted", arm, "compliant", wording=name) for name in ("plain", "terse") for arm in ARMS),
        RunSpec("drifted", "A2D", "compliant", consume="apply"),
        RunSpec("silent", "exact", "compliant", consume="apply", conduct=Conduct(precondition=True)),
    ]
    return executed(specs, tmp_path_factory.mktemp("records")).scores


def measured(scores, model=SMALL):
    return [as_measured(score, model) for score in scores]


def shown(scores):
    collection = collection_of(scores)
    return {exhibit.key: exhibit for exhibit in collection.exhibits}, collection


@pytest.fixture(scope="module")
def exhibits(scores):
    return shown([*scores, *measured(scores)])[0]


def test_every_run_of_a_model_has_a_row_that_says_how_it_was_played(exhibits):
    rows = [[cell.text for cell in row.cells[:4]] for row in exhibits["measured"].rows]
    assert rows == [
        ["drifted", SERVED, "not there", "A0"],
        *(["drifted", SERVED, "amendments", arm] for arm in ARMS[1:]),
        ["drifted", SERVED, "not there, terse wording", "A0"],
        *(["drifted", SERVED, "amendments, terse wording", arm] for arm in ARMS[1:]),
        ["drifted", SERVED, "applied", "A2D"],
        ["silent", SERVED, "applied, precondition", "exact"],
    ]
    assert {row.kind for row in exhibits["measured"].rows} == {Kind.MEASURED}
    assert exhibits["measured"].kinds == [Kind.MEASURED]


def test_its_numbers_are_those_of_the_run(exhibits):
    here = line(exhibits["measured"], "amendments", "A2D")
    assert (here["Done"], here["First try"], here["Retries"]) == ("36/36", "29", "7")
    assert (here["Evictions: all"], here["Evictions: right"], here["Restamps"]) == ("1", "1.00", "3")
    assert (here["Compliance (%)"], here["Stale done"]) == ("100.0", "0")


def test_what_is_saved_is_against_the_same_model_without_memory_in_the_same_words(exhibits, scores):
    spent = {(one.spec.arm, one.spec.wording): one.tokens.total for one in scores if one.spec.consume == "3"}
    for wording, how in (("plain", "amendments"), ("terse", "amendments, terse wording")):
        here = line(exhibits["measured"], how, "A2D")
        saved = 100 * (1 - spent["A2D", wording] / spent["A0", wording])
        assert here["Tokens: saved (%)"] == f"+{saved:.1f}"
        without = line(exhibits["measured"], how.replace("amendments", "not there"), "A0")
        assert without["Tokens: saved (%)"] == DASH
    assert line(exhibits["measured"], "silent")["Tokens: saved (%)"] == DASH


def test_two_models_under_one_name_stand_apart(scores):
    both = [*measured(scores), *measured(scores, Model(SMALL.requested, "small@4567"))]
    rows = shown(both)[0]["measured"].rows
    assert len(rows) == 2 * len(scores)
    assert {row.cells[1].text for row in rows} == {SERVED, "small@4567"}


def test_wordings_stand_beside_one_another_and_only_tokens_differ(exhibits):
    rows = exhibits["prompt-sensitivity"].rows
    assert [row.cells[4].text for row in rows] == ["plain", "terse"] * 6
    assert [row.is_first_of_block for row in rows] == [True, False] * 6
    for plain, terse in zip(rows[::2], rows[1::2], strict=True):
        assert plain.cells[:4] == terse.cells[:4]
        assert plain.cells[5:-1] == terse.cells[5:-1]
        assert plain.cells[-1] != terse.cells[-1]
    assert {row.kind for row in rows} == {Kind.EXACT, Kind.MEASURED}
    assert [row.cells[-1].kind for row in rows if row.kind is Kind.EXACT] == [Kind.ESTIMATED] * 6


def test_what_was_played_in_one_wording_alone_says_nothing_of_others(scores):
    exhibits, collection = shown([one for one in scores if one.spec.wording == "plain"])
    assert "prompt-sensitivity" not in exhibits
    assert "measured" not in exhibits
    missing = {
        title: why
        for title, why in collection.left_out
        if title in ("Prompt sensitivity", "A real model, measured")
    }
    assert missing == {
        "Prompt sensitivity": "there is no run on any stream in more than one wording",
        "A real model, measured": "there is no run on any stream by a real model",
    }


def test_runs_in_other_words_stand_apart_everywhere_and_are_not_held_against_the_paper(exhibits):
    ladder = exhibits["ladder"]
    names = [row.cells[0].text for row in ladder.rows if row.kind is Kind.EXACT]
    assert names == ["compliant", "compliant, wording terse", "compliant, consume apply"]
    assert sum(row.kind is Kind.PAPER for row in ladder.rows) == 1
    drifted = [row for row in exhibits["beyond"].rows if row.cells[0].text == "drifted"]
    assert drifted == []


def test_a_model_that_was_played_in_several_ways_is_one_planner_in_the_headline(scores):
    _, collection = shown(measured(scores))
    assert collection.headline_kind is Kind.MEASURED
    assert "lifts openai-api/local/small from 33.3 to 100.0 % compliance" in collection.headline


def test_panels_of_one_model_with_a_long_name_can_be_told_apart(scores):
    model = Model("openai-api/local/a-name-that-is-too-long-for-a-panel", None)
    figures, _ = figures_of(collection_of(measured(scores, model)).runs)
    titles = re.findall(r"<!-- (a-name.*?) -->|>(a-name.*?)<", figures[0].svg.decode())
    assert {comment or text for comment, text in titles} == {
        "a-name-that-is-too-long\N{HORIZONTAL ELLIPSIS}",
        "a-name-t\N{HORIZONTAL ELLIPSIS}, wording terse",
        "a-name-t\N{HORIZONTAL ELLIPSIS}, consume apply",
    }
