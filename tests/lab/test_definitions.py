"""How scores read by other definitions, and one level of the protocol at a time."""

import re
from pathlib import Path

import msgspec
import pytest

from shelflife.client.prompts import MERGE_INSTRUCTION
from shelflife.lab.apis import APIS
from shelflife.lab.grid import further_runs
from shelflife.lab.planners.simulated import DETERMINISTIC, simulated_planner
from shelflife.lab.prompting import system_prompt
from shelflife.lab.records import RunStarted
from shelflife.lab.scenarios import load
from shelflife.lab.scores import FirstTry, score_of
from shelflife.lab.spec import Conduct, Consume
from shelflife.lab.wire import contract_bytes_in, contract_fields_in
from shelflife.lab.wordings import wordings
from tests.lab.played_runs import attempts_of, played, recorded, records_of

FAMILY = Conduct(match="family")
LAB = (Path(__file__).parents[2] / "docs" / "explanation" / "lab.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("stream", "arm", "told"),
    [
        ("drifted", "A2", {"value": 0.25, "row": 0.25, "table": 1.0, "count": 0.25}),
        ("drifted", "A2D", {"value": 1.0, "row": 1.0, "table": 1.0, "count": 1.0}),
        ("rotations-2", "A2D", {"value": 1.0, "row": 1.0, "table": 1.0, "count": 0.5}),
        ("recipes", "A2", {"value": 2 / 7, "row": 2 / 7, "table": 1.0, "count": 1 / 7}),
        ("rules", "A2DC", {"value": 1.0, "row": None, "table": None, "count": 0.5}),
        ("drifted", "A1", dict.fromkeys(("value", "row", "table", "count"))),
    ],
)
def test_the_same_evictions_read_otherwise_by_other_definitions(stream, arm, told):
    score = played(stream, arm)
    assert score.precision_by == told
    assert score.precision_by["value"] == score.eviction_precision


def test_rows_say_nothing_of_fixes_that_do_not_tell_theirs():
    told = played("drifted", "A2", level=1).precision_by
    assert (told["row"], told["table"]) == (None, 1.0)


def test_the_more_episodes_are_left_out_the_better_looks_a_memory_that_never_forgets():
    assert played("drifted", "A1").compliance_by_width == {
        0: FirstTry(11, 3),
        1: FirstTry(10, 3),
        2: FirstTry(9, 3),
        3: FirstTry(8, 3),
    }
    assert played("drifted", "A2D").compliance_by_width[0] == FirstTry(11, 10)
    assert played("rotations-3", "A1").compliance_by_width[3].percent == 100
    assert played("drifted", "A0").compliance_by_width is None


@pytest.mark.parametrize("stream", ["drifted", "rotations-3", "recipes", "rules", "second-table"])
def test_two_slots_after_a_drift_are_those_of_the_compliance(stream):
    score = played(stream, "A2D")
    assert score.compliance_by_width[2] == FirstTry(score.eligible, score.eligible_first_try)


def test_episodes_that_were_given_up_are_counted_by_class():
    stubborn = simulated_planner("seeded:follow=0,add=0", 0, frozenset())
    score = score_of(records_of(stubborn, "drifted", "A0"))
    assert score.uncompleted == {"governed": 12, "funding": 0, "free": 0, "control": 0}
    assert sum(score.uncompleted.values()) == score.episodes - score.completed


@pytest.mark.parametrize(("conduct", "level"), [(FAMILY, 1), (FAMILY, 4), (Conduct(), 6)])
def test_the_fields_of_the_contract_come_to_its_bytes_with_the_commas_between(conduct, level):
    for one in attempts_of(recorded("drifted", "A2D", conduct, level=level)):
        sizes = [size for _, size in contract_fields_in(one.answer)]
        assert sum(sizes) + len(sizes) == contract_bytes_in(one.answer.encode()) == one.contract_bytes


def test_a_cache_hint_takes_as_many_bytes_as_in_the_paper():
    wire = played("drifted", "A2D", FAMILY, level=1).wire
    assert set(wire.fields) == {"table_versions", "cache_hint", "table"}
    assert wire.fields["cache_hint"].bytes == 24 * wire.fields["cache_hint"].times
    assert (wire.carrying, wire.fields["table_versions"].times) == (wire.responses, wire.responses)


def test_answers_that_are_no_objects_have_no_fields_of_the_contract():
    for text in ("", "no JSON", "[]", '{"recovery_feedback": "none"}'):
        assert list(contract_fields_in(text)) == []


def test_a_server_for_the_papers_client_sends_the_papers_members_alone():
    for level, more in ((1, set()), (4, {"tables"})):
        answers = [
            msgspec.json.decode(one.answer)
            for one in attempts_of(recorded("second-table", "A2D", FAMILY, level=level))
        ]
        suggestions = [
            fix for told in answers if not told["success"] for fix in told["recovery_feedback"]["suggestions"]
        ]
        assert {frozenset(fix) for fix in suggestions} == {
            frozenset({"type", "parameters", "cache_hint", "table", *more})
        }


VECTORS = re.findall(r"(?m)^\| `([\w-]+)` \| (A2\w*) \| ((?:\d+, \d+ \| ?){5})$", LAB)


@pytest.mark.parametrize(("stream", "arm", "told"), VECTORS)
def test_the_documented_figures_of_level_4_are_those_that_come_out(stream, arm, told):
    runs = [played(stream, arm, FAMILY, level=level) for level in (1, 4)]
    figures = (
        [run.retries for run in runs],
        [run.stale_injections for run in runs],
        [run.evictions for run in runs],
        [run.restamps for run in runs],
        [len(run.alerts) for run in runs],
    )
    assert [", ".join(map(str, pair)) for pair in figures] == told.rstrip(" |").split(" | ")
    assert runs[0].compliance == runs[1].compliance


def test_there_are_documented_figures_of_level_4():
    assert len(VECTORS) == 5


def test_level_1_shows_what_level_2_shows_and_does_not_say_to_merge_it():
    by_way = {way: recorded("recipes", "A2D", consume=way) for way in ("1", "2")}
    starts = {way: next(one for one in by_way[way] if isinstance(one, RunStarted)) for way in by_way}
    assert starts["2"].system == f"{starts['1'].system}\n{MERGE_INSTRUCTION}"
    tasks = {way: [one.task for one in attempts_of(by_way[way])] for way in by_way}
    assert tasks["1"] == tasks["2"]
    assert any("Suggestions remembered" in task for task in tasks["1"])


@pytest.mark.parametrize("wording", wordings().values(), ids=wordings())
def test_below_level_2_every_wording_loses_the_one_line_that_has_suggestions_merged(wording):
    by_way = {way: system_prompt(APIS["acme"], way, wording) for way in Consume}
    *others, merge = by_way[Consume.LEVEL_2].split("\n")
    assert by_way[Consume.LEVEL_1].split("\n") == others
    assert "suggest" in merge
    assert "suggest" not in by_way[Consume.LEVEL_1]
    assert by_way[Consume.LEVEL_3] == by_way[Consume.APPLY] == by_way[Consume.LEVEL_2]


def test_the_further_runs_need_neither_a_model_nor_chance():
    specs = further_runs()
    assert len(set(specs)) == len(specs)
    assert {spec.planner for spec in specs} <= DETERMINISTIC
    assert {spec.seed for spec in specs} == {0}
    assert sum(len(load(spec.stream).order) for spec in specs) < 4000
