"""The exhibits of what hangs on a definition, of what should not move, of one level at a time, and of the preflight."""

import json

import msgspec
import pytest

from shelflife.cli import main
from shelflife.lab import paper
from shelflife.lab.exhibits import Kind, collection_of
from shelflife.lab.exhibits.cells import DASH
from shelflife.lab.exhibits.preflights import preflights_shown
from shelflife.lab.planners.simulated import simulated_planner
from shelflife.lab.preflight import keep_preflight, preflight, preflights_in
from shelflife.lab.records import Model
from shelflife.lab.spec import Conduct, RunSpec
from tests.lab.exhibit_lines import line
from tests.lab.played_runs import as_if, executed

FAMILY = Conduct(match="family")
GEMINI, MINI = "sim:gemini-3.5-flash", "sim:gpt-5.4-mini"
SPECS = [
    *(RunSpec("drifted", arm, "compliant") for arm in ("A0", "A1", "A2", "A2D")),
    *(RunSpec("drifted", arm, planner) for arm in ("A0", "A2D") for planner in (GEMINI, MINI)),
    *(RunSpec("recipes", "A2D", "compliant", consume=way) for way in ("1", "2", "3")),
    RunSpec("drifted", "A2D", "compliant", consume="2"),
    RunSpec("recipes", "A2D", "compliant", level=1, conduct=FAMILY),
    *(
        RunSpec(stream, arm, "compliant", level=level, conduct=FAMILY)
        for stream, arms in (("drifted", ("A0", "A2D")), ("second-table", ("A2",)))
        for arm in arms
        for level in (1, 4)
    ),
    *(RunSpec("undrifted", arm, "compliant") for arm in ("A0", "A2D")),
    RunSpec("rotations-3", "A1", "compliant"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("records")


@pytest.fixture(scope="module")
def scores(folder):
    return executed(SPECS, folder).scores


@pytest.fixture(scope="module")
def exhibits(scores):
    return {exhibit.key: exhibit for exhibit in collection_of(scores).exhibits}


def test_evictions_stand_beside_what_they_come_to_by_each_definition(exhibits):
    a2 = line(exhibits["precision"], "drifted", "A2", "compliant")
    assert [a2[f"Precision: {name}"] for name in ("by value", "by row", "by table", "1 / count")] == [
        "0.25",
        "0.25",
        "1.00",
        "0.25",
    ]
    there = line(exhibits["precision"], "drifted", "A2", kind=Kind.PAPER)
    assert (there["Evictions"], there["Precision: by table"], there["Restamps"]) == ("4", "1.00", DASH)
    assert line(exhibits["precision"], "drifted", "A2D", "gpt-5-mini")["Restamps"] == "3"
    assert line(exhibits["precision"], "recipes", "A2D", "compliant")["Precision: 1 / count"] == "0.50"
    assert any("calls 1 restamp correct" in note and "of 3" in note for note in exhibits["precision"].notes)


def test_the_stale_slot_can_be_widened_and_the_published_width_is_the_ladders(exhibits):
    here = line(exhibits["slot-widths"], "compliant")
    there = line(exhibits["slot-widths"], "gpt-5-mini", kind=Kind.PAPER)
    head = "Compliance at A1 (%), left out: "
    assert [here[f"{head}{width}"] for width in range(4)] == ["27.3", "30.0", "33.3", "37.5"]
    assert [there[f"{head}{width}"] for width in range(4)] == [DASH, DASH, "33.3", "higher"]
    assert line(exhibits["ladder"], "compliant")["Compliance (%): A1"] == here[f"{head}2"]
    rotated = line(exhibits["slot-widths"], "rotations-3")
    assert [rotated[f"{head}{width}"] for width in range(4)] == ["27.3", "37.5", "60.0", "100.0"]


def test_what_no_event_touches_is_told_at_a0_and_free_episodes_are_counted(exhibits):
    here = line(exhibits["untouched"], "compliant")
    assert [here[f"Control (%): {arm}"] for arm in ("A0", "A1", "A2", "A2D")] == [
        "0.0",
        "83.3",
        "83.3",
        "83.3",
    ]
    assert (here["No constraint: episodes"], here["No constraint: first try"]) == ("36", "36")
    together = line(exhibits["untouched"], "2 planners")
    assert together["Control (%): A0"] == "0.0 for 1 of 2"
    assert (together["No constraint: runs"], together["No constraint: first try"]) == ("4", "36")
    there = line(exhibits["untouched"], "7 models", kind=Kind.PAPER)
    assert (there["Control (%): A0"], there["No constraint: episodes"]) == ("0.0 for 5 of 7", "1,026")


def test_episodes_that_were_given_up_are_told_by_arm_and_by_class(exhibits, scores):
    here = line(exhibits["uncompleted"], GEMINI)
    there = line(exhibits["uncompleted"], "gemini-3.5-flash", kind=Kind.PAPER)
    given_up = {one.spec.arm: one.episodes - one.completed for one in scores if one.spec.planner == GEMINI}
    assert min(given_up.values()) > 0
    assert {arm: int(here[f"With arm: {arm}"]) for arm in given_up} == given_up
    classes = ("governed", "funding", "control", "others")
    assert sum(int(here[f"In class: {name}"]) for name in classes) == sum(given_up.values())
    assert here["With arm: A1"] == DASH
    assert [there[f"With arm: {arm}"] for arm in ("A0", "A1", "A2", "A2D")] == ["41", "34", "32", "29"]
    assert there["Episodes: not completed"] == "136"


def test_a_class_of_which_nothing_was_played_is_missing_and_not_zero(scores):
    """Recipes have nothing that is called funding."""
    recipes = [one for one in scores if one.spec.stream == "recipes"]
    [shown] = [one for one in collection_of(recipes).exhibits if one.key == "uncompleted"]
    here = line(shown, "compliant")
    assert [here[f"In class: {name}"] for name in ("governed", "funding", "control", "others")] == [
        "0",
        DASH,
        "0",
        "0",
    ]


def test_every_byte_that_differs_from_the_papers_says_why_and_no_other(exhibits):
    shown = exhibits["wire-fields"]
    ours = next(row for row in shown.rows if row.kind is Kind.EXACT)
    theirs = next(row for row in shown.rows if row.kind is Kind.PAPER)
    assert [cell.text for cell in ours.cells[1:3]] == ["Level 1", "3 streams"]
    heads = [f"{column.group}: {column.name}" for column in shown.columns]
    for head, here, there in zip(heads, ours.cells, theirs.cells, strict=True):
        is_compared = here.kind is not None and not there.is_missing and head != "Responses: counted"
        said = [note for note in shown.notes if note.startswith(f"{head}, {here.text} here and ")]
        assert len(said) == (is_compared and here.text != there.text)
    assert line(shown, "Level 1")["Fields of a suggestion: cache_hint"] == "24"


def test_the_paper_is_consistent_with_itself():
    for model, row in paper.LADDER.facts.items():
        assert row.gain == pytest.approx(row.compliance["A2D"] - row.compliance["A1"], abs=0.11)
        assert row.funding_post["A2D"] == paper.CLASSES.facts[model].funding_post["A2D"]
        costs = paper.TOKENS.facts[model]
        assert costs.gain == pytest.approx(costs.saving["A2D"] - costs.saving["A1"], abs=0.11)
    for model, shapes in paper.HINT_SHAPES.facts.items():
        assert shapes.add == paper.CLASSES.facts[model].governed["A2D"]
    wire = paper.WIRE.facts
    assert wire.contract_percent == pytest.approx(100 * wire.mean_contract_bytes / wire.mean_bytes, abs=0.06)


def test_the_papers_numbers_of_the_wire_agree_with_each_other():
    cost, fields = paper.WIRE.facts, paper.WIRE_FIELDS.facts
    whole = cost.responses * cost.mean_bytes
    assert fields.carrying * fields.mean_of_carrying == pytest.approx(
        cost.responses * cost.mean_contract_bytes, rel=0.01
    )
    assert fields.versions_percent + fields.suggestion_percent == pytest.approx(
        cost.contract_percent, abs=0.3
    )
    assert fields.versions_percent / 100 * whole / fields.versions_bytes == pytest.approx(1700, abs=20)
    assert sum(one.all for one in paper.UNCOMPLETED.facts.values()) == paper.EXTENT.facts.uncompleted
    for model in paper.UNCOMPLETED.facts.values():
        assert sum(model.by_class.values()) == model.all
    gemini = paper.UNCOMPLETED.facts["gemini-3.5-flash"]
    assert sum(gemini.by_arm.values()) == gemini.all


def test_each_way_of_showing_a_fix_stands_under_the_one_before(exhibits):
    shown = exhibits["consumption"]
    recipes = [[cell.text for cell in row.cells[3:6]] for row in shown.rows if row.cells[0].text == "recipes"]
    assert recipes == [
        ["1: listed", "100.0", DASH],
        ["2: listed, to be merged verbatim", "100.0", "0.0"],
        ["3: the input amended", "100.0", "0.0"],
    ]
    assert line(shown, "2 Claude models")["Compliance: step"] == "+56.0"


def test_a_measured_step_is_told_as_one(scores):
    a2d = next(one for one in scores if one.spec == RunSpec("drifted", "A2D", "compliant"))
    runs = [
        msgspec.structs.replace(
            as_if(a2d, planner="vendor/m", consume=way), planner_kind="model", eligible_first_try=right
        )
        for way, right in (("1", 2), ("2", 7))
    ]
    shown = next(one for one in collection_of(runs).exhibits if one.key == "consumption")
    assert [row.kind for row in shown.rows] == [Kind.MEASURED, Kind.MEASURED, Kind.PAPER]
    assert line(shown, "2: listed, to be merged verbatim")["Compliance: step"] == "+55.6"


def test_it_is_told_how_many_models_were_those_that_were_asked_for(scores):
    models = [Model("vendor/m", "m"), Model("vendor/m", "m-2"), Model("vendor/m", None)]
    asked = [
        msgspec.structs.replace(as_if(scores[0], seed=seed), planner_kind="model", model=model)
        for seed, model in enumerate(models)
    ]
    run = next(one for one in collection_of(asked).exhibits if one.key == "runs")
    assert "Of 3 runs with a model 1 were served by the one that was asked for" in run.notes[0]
    assert not any("with a model" in note for note in collection_of(scores).exhibits[-1].notes)


def test_level_4_is_held_against_level_1_with_everything_else_as_it_was(exhibits):
    shown = exhibits["vectors"]
    assert {row.cells[0].text for row in shown.rows} == {"drifted", "second-table"}
    papers, other = line(shown, "drifted", "A2D"), line(shown, "second-table", "A2")
    for head in ("Retries", "Compliance (%)", "Evictions", "Precision", "Restamps"):
        assert papers[f"{head}: L1"] == papers[f"{head}: L4"]
    assert (other["Retries: L1"], other["Retries: L4"]) == ("8", "10")
    assert (other["Stale values sent: L1"], other["Stale values sent: L4"]) == ("1", "0")
    assert float(papers["Contract (%): L4"]) > float(papers["Contract (%): L1"])


def test_what_a_stream_without_drift_costs_is_told_at_a0_too(exhibits):
    here = line(exhibits["undrifted"], "compliant")
    assert (here["Retries per stream: A0"], here["Retries per stream: A2D"]) == ("27", "6")


@pytest.fixture(scope="module")
def tried():
    return preflight(simulated_planner("conservative", 0, frozenset()), trials=5)


def test_a_preflight_that_was_kept_is_in_the_report(folder, scores, tried, tmp_path, capsys):
    path = min(folder.glob("*.jsonl"))
    (tmp_path / path.name).write_bytes(path.read_bytes())
    assert main(["lab", "report", str(tmp_path)]) == 0
    assert "The preflight: no preflight was kept" in (tmp_path / "report.html").read_text("utf-8")
    assert main(["lab", "preflight", "--planner", "compliant", "--trials", "2", "--out", str(tmp_path)]) == 0
    keep_preflight(tried, tmp_path)
    assert [one.planner for one in preflights_in(tmp_path)] == ["compliant", "conservative"]
    capsys.readouterr()
    assert main(["lab", "report", str(tmp_path)]) == 0
    assert "Memory in the prompt will not pay for fixes that add a field; apply will." in (
        tmp_path / "exhibits" / "preflight.md"
    ).read_text("utf-8")


def test_a_preflight_is_shown_by_shape_and_way_with_where_it_comes_from(tried):
    shown = preflights_shown([tried])
    refused = line(shown, "add a field", "Level 3")
    assert (refused["Complied: of"], refused["Complied: (%)"], refused["Complied: interval"]) == (
        "0/5",
        "0.0",
        "0 to 43",
    )
    assert line(shown, "add a field", "applied")["Complied: of"] == "5/5"
    assert shown.kinds == [Kind.EXACT, Kind.ESTIMATED]
    measured = preflights_shown([msgspec.structs.replace(tried, planner_kind="model", counted_by="vendor")])
    assert measured.kinds == [Kind.MEASURED]


def test_of_two_preflights_of_one_planner_the_later_is_kept(tried, tmp_path):
    keep_preflight(tried, tmp_path)
    keep_preflight(msgspec.structs.replace(tried, trials=9), tmp_path)
    keep_preflight(msgspec.structs.replace(tried, planner="vendor/../m"), tmp_path)
    assert [(one.planner, one.trials) for one in preflights_in(tmp_path)] == [
        ("conservative", 9),
        ("vendor/../m", 5),
    ]


def test_what_cannot_be_kept_or_read_of_a_preflight_is_one_sentence(folder, scores, tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    kept = ["lab", "preflight", "--planner", "compliant", "--trials", "1", "--out", str(tmp_path / "file")]
    assert main(kept) == 1
    assert "cannot write" in capsys.readouterr().err
    broken = tmp_path / "records"
    broken.mkdir()
    for path in folder.glob("*.jsonl"):
        (broken / path.name).write_bytes(path.read_bytes())
    (broken / "preflight--x.json").write_text(json.dumps({"planner": "x"}))
    assert main(["lab", "report", str(broken)]) == 1
    error = capsys.readouterr().err
    assert "preflight--x.json is no preflight" in error
    assert error.count("\n") == 1
