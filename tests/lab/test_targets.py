"""The numbers of the paper that depend on no model, played through the real server over HTTP."""

import functools
import json

import pytest

from shelflife.cli import main
from shelflife.lab.planners.simulated import simulated_planner
from shelflife.lab.scores import as_json, score_of
from shelflife.lab.spec import ADDRESSES, Conduct
from tests.lab.played_runs import recorded, records_of, servers_forked


@pytest.fixture(scope="module", autouse=True)
def quickly_started():
    with servers_forked():
        yield


@functools.cache
def played(stream, arm, planner="compliant", consume="3", level=6, **conduct):
    if planner == "compliant":
        return score_of(recorded(stream, arm, Conduct(**conduct), consume, level))
    by = simulated_planner(planner, 0, frozenset())
    return score_of(records_of(by, stream, arm, consume=consume, level=level, conduct=Conduct(**conduct)))


def first_tries(score):
    return (
        score.governed_scored.first_try,
        score.before_split.first_try,
        score.after_split.first_try,
        score.classes["control"].first_try,
        score.classes["free"].first_try,
    )


@pytest.mark.parametrize(
    ("arm", "planner", "retries", "evictions", "precision", "restamps", "compliance", "by_class"),
    [
        ("A0", "compliant", 27, 0, None, 0, None, (0, 0, 0, 0, 9)),
        ("A1", "compliant", 14, 0, None, 0, 33.3, (3, 3, 2, 5, 9)),
        ("A1", "compliant-last", 7, 0, None, 0, 100.0, (9, 3, 2, 5, 9)),
        ("A2", "compliant", 9, 4, 0.25, 0, 100.0, (9, 3, 0, 5, 9)),
        ("A2D", "compliant", 7, 1, 1.0, 3, 100.0, (9, 3, 2, 5, 9)),
        ("A2DC", "compliant", 7, 1, 1.0, 3, 100.0, (9, 3, 2, 5, 9)),
        ("A2DG", "compliant", 7, 1, 1.0, 3, 100.0, (9, 3, 2, 5, 9)),
    ],
)
def test_the_ladder_on_the_drifted_stream(
    arm, planner, retries, evictions, precision, restamps, compliance, by_class
):
    score = played("drifted", arm, planner)
    assert (score.retries, score.evictions, score.eviction_precision) == (retries, evictions, precision)
    assert (score.restamps, as_json(score)["compliance"], score.eligible) == (restamps, compliance, 9)
    assert first_tries(score) == by_class
    assert (score.governed_scored.episodes, score.classes["governed"].episodes) == (10, 12)
    assert (score.before_split.episodes, score.after_split.episodes) == (6, 3)
    assert (score.classes["control"].episodes, score.classes["free"].episodes) == (6, 9)
    assert (score.episodes, score.completed) == (36, 36)


@pytest.mark.parametrize(
    ("arm", "first_try", "retries", "evictions", "precision", "restamps", "alerts"),
    [
        ("A2D", 30, 6, [0, 0], None, 0, []),
        ("A2DC", 28, 8, [2, 0], 1.0, 3, [13, 25]),
        ("A2DR", 22, 14, [4, 5], 2 / 9, 0, [12, 24]),
        ("A2DRC", 28, 8, [2, 0], 1.0, 3, [12, 24]),
        ("A2DO", 27, 9, [3, 0], 2 / 3, 3, [12, 24]),
    ],
)
def test_the_detection_policies_on_the_rule_stream(
    arm, first_try, retries, evictions, precision, restamps, alerts
):
    score = played("rules", arm)
    assert (score.first_try, score.retries) == (first_try, retries)
    assert (score.evictions_by_event, score.eviction_precision) == (evictions, precision)
    assert (score.stale_injections, score.stale_executions) == (0, 0)
    assert (score.restamps, score.alerts) == (restamps, alerts)


SAME = (
    "first_try",
    "retries",
    "completed",
    "evictions_by_event",
    "eviction_precision",
    "restamps",
    "alerts",
    "compliance",
    "classes",
    "stale_executions",
)


@pytest.mark.parametrize(
    ("stream", "arm"),
    [
        *(("drifted", arm) for arm in ("A0", "A2", "A2DG")),
        *(("rules", arm) for arm in ("A2DC", "A2DR", "A2DO")),
    ],
)
def test_four_workers_come_to_the_same(stream, arm):
    alone, by_workers = (played(stream, arm, workers=count) for count in (1, 4))
    assert [getattr(by_workers, name) for name in SAME] == [getattr(alone, name) for name in SAME]


@pytest.fixture(scope="module")
def engines(postgres, valkey):
    """Where runs find their engines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ADDRESSES["postgres"], postgres.url)
        patch.setenv(ADDRESSES["valkey"], valkey.url)
        yield


@pytest.mark.usefixtures("engines")
@pytest.mark.parametrize("store", ["postgres", "valkey"])
@pytest.mark.parametrize(
    ("stream", "arm"),
    [
        *(("drifted", arm) for arm in ("A1", "A2", "A2DG", "exact")),
        *(("rules", arm) for arm in ("A2DC", "A2DR")),
    ],
)
def test_a_memory_in_an_engine_comes_to_the_same(stream, arm, store):
    """Arms that do something else to a store each: none is taken out, a table's, a row's and what is downstream, some, all."""
    alone, remote = played(stream, arm), played(stream, arm, store=store)
    assert [getattr(remote, name) for name in SAME] == [getattr(alone, name) for name in SAME]


@pytest.mark.usefixtures("engines")
@pytest.mark.parametrize("store", ["postgres", "valkey"])
@pytest.mark.parametrize(("stream", "arm"), [("drifted", "A2D"), ("drifted", "exact"), ("rules", "A2DR")])
def test_agents_that_share_a_memory_in_an_engine_do_as_those_that_share_a_file(stream, arm, store):
    by_file, shared = (played(stream, arm, store=kind, agents=2) for kind in ("sqlite", store))
    assert [getattr(shared, name) for name in SAME] == [getattr(by_file, name) for name in SAME]
    assert shared.retries_by_agent == by_file.retries_by_agent


@pytest.mark.usefixtures("engines")
@pytest.mark.parametrize(("stream", "arm"), [("drifted", "A2D"), ("rules", "A2DRC")])
def test_a_fleet_on_postgres_comes_to_the_same(stream, arm):
    alone = played(stream, arm)
    fleet = played(stream, arm, workers=4, log="postgres", store="postgres", agents=2)
    assert [getattr(fleet, name) for name in SAME] == [getattr(alone, name) for name in SAME]


@pytest.mark.parametrize("planner", ["compliant-last", "conservative"])
def test_what_the_rule_stream_comes_to_is_up_to_the_arm_and_not_to_the_planner(planner):
    first_tries = [
        played("rules", arm, planner).first_try for arm in ("A2D", "A2DC", "A2DR", "A2DRC", "A2DO")
    ]
    assert first_tries == [30, 28, 22, 28, 27]


@pytest.mark.parametrize(
    ("stream", "eligible", "naive", "retries"),
    [
        ("undrifted", 11, 100.0, 6),
        ("rotations-1", 9, 55.6, 7),
        ("rotations-2", 7, 42.9, 8),
        ("rotations-3", 5, 60.0, 9),
        ("rotations-3-early", 5, 40.0, 9),
    ],
)
def test_how_often_a_table_is_rotated(stream, eligible, naive, retries):
    score = played(stream, "A2D")
    assert (score.eligible, score.compliance, score.retries) == (eligible, 100.0, retries)
    assert as_json(played(stream, "A1"))["compliance"] == naive


def test_the_eligible_episodes_of_three_rotations():
    score = played("rotations-3", "A1")
    assert score.drifted_after == [11, 20, 29]
    assert score.eligible_episodes == [3, 6, 9, 18, 27]
    assert set(score.first_try_episodes).intersection(score.eligible_episodes) == {3, 6, 9}


@pytest.mark.parametrize(
    ("match", "retries", "evictions", "restamps", "misapplied"),
    [
        ("family", [27, 14, 9, 7], [0, 0, 4, 1], 3, 0),
        ("request", [27, 26, 26, 26], [0, 0, 10, 4], 6, 0),
        ("operation", [27, 33, 26, 26], [0, 0, 2, 1], 1, 35),
        ("absent", [27, 33, 26, 26], [0, 0, 2, 1], 1, 24),
    ],
)
def test_the_papers_own_wire_is_up_to_what_a_client_takes_a_fix_to_be_for(
    match, retries, evictions, restamps, misapplied
):
    scores = [played("drifted", arm, level=1, match=match) for arm in ("A0", "A1", "A2", "A2D")]
    assert [score.retries for score in scores] == retries
    assert [score.evictions for score in scores] == evictions
    assert (scores[-1].restamps, scores[-1].misapplied) == (restamps, misapplied)


def test_what_a_fix_says_of_itself_is_never_misapplied():
    assert {played(stream, "A1").misapplied for stream in ("drifted", "rules", "recipes")} == {0}


def test_recipes_have_forty_eight_episodes_and_the_rotation_is_noticed_row_by_row():
    score = played("recipes", "A2D")
    assert {name: rate.episodes for name, rate in score.classes.items()} == {
        "celiac": 20,
        "incompatible": 20,
        "control": 4,
        "free": 4,
    }
    assert (score.evictions, score.eviction_precision, score.compliance) == (2, 1.0, 100.0)
    assert score.before_split is None
    by_arm = [played("recipes", arm).classes["celiac"].percent for arm in ("A1", "A2D")]
    assert by_arm == [25.0, 75.0]


@pytest.mark.parametrize("planner", ["compliant", "conservative", "forgetful"])
def test_with_apply_every_planner_complies_at_the_retries_of_the_compliant_one(planner):
    score = played("drifted", "A2D", planner, consume="apply")
    assert (score.compliance, score.retries) == (100.0, 7)


def test_shown_in_the_prompt_the_conservative_planner_adds_nothing():
    for consume in ("2", "3"):
        score = played("drifted", "A2D", "conservative", consume=consume)
        assert (score.compliance, score.completed) == (0.0, 36)
        assert score.after_split.first_try == 2


def test_level_2_leads_a_compliant_planner_to_the_same():
    assert played("drifted", "A2D", consume="2").retries == 7


def test_the_default_of_users_does_as_well_as_the_best_arm():
    assert played("drifted", "exact").retries == 7


def test_by_default_a_changed_rule_costs_no_retry_where_the_value_stands():
    score = played("rules", "exact")
    assert (score.first_try, score.retries, score.evictions_by_event) == (30, 6, [0, 0])
    assert (score.stale_injections, score.stale_executions, score.alerts) == (0, 0, [12, 24])


def test_validity_times_compliance_is_the_share_of_chances_taken():
    for arm, valid in (("A0", 0), ("A1", 13), ("A2", 18), ("A2D", 20)):
        saving = played("drifted", arm).saving
        assert (saving.chances, saving.valid) == (21, valid)
    saving = played("drifted", "A2D", "conservative").saving
    assert saving.validity == 20 / 21
    assert saving.compliance == 10 / 20


def test_the_json_has_the_documented_fields(capsys):
    assert main("lab run drifted --arm A2 --arm A0 --seed 3 --json".split()) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["arm"] for run in runs] == ["A2", "A0"]
    run = runs[0]
    assert run["evictions_by_event"] == [1, 3]
    assert run["seed"] == 3
    assert run["classes"]["governed"] == {"episodes": 12, "first_try": 10}
    assert run["governed_scored"] == {"episodes": 10, "first_try": 9}
    assert run["funding_pre"] == {"episodes": 6, "first_try": 3}
    assert run["funding_post"] == {"episodes": 3, "first_try": 0}
    assert run["tokens"]["source"] == "estimated"
    assert run["tokens"]["prompt"] > run["tokens"]["completion"] > 0
    assert run["wire"]["responses"] == 36 + 9
    assert 0 < run["wire"]["contract_bytes"] < run["wire"]["bytes"]
    assert (run["planner_kind"], run["model"]) == ("simulated", None)
    assert runs[1]["compliance"] is None
    assert runs[1]["eviction_precision"] is None
