"""Scores of streams in which much happens, against what an oracle works out that shares no code with them.

`SHELFLIFE_TESTS=long` plays many more of those that are drawn at random.
"""

import os

import msgspec
import pytest

from shelflife.lab.planners.simulated import simulated_planner
from shelflife.lab.records import Attempted, Drifted, Evicted
from shelflife.lab.runner import play
from shelflife.lab.scenarios import load, parse
from shelflife.lab.scores import score_of
from shelflife.lab.slots import with_stale_slots
from shelflife.lab.spec import Conduct, RunSpec
from tests.lab.oracle import Oracle
from tests.lab.random_streams import random_stream

OF_TABLES = ("A1", "A2", "A2D", "A2DG", "exact")
OF_RULES = ("A2D", "A2DC", "A2DR", "A2DRC", "A2DO", "exact")
OLD, NEW = ('{ code = "SUMMERSALE25" }', '{ code = "WINTERLAUNCH26" }')
PLAN = "plan_partner_growth"
SEEDS = range(400 if os.environ.get("SHELFLIFE_TESTS") == "long" else len(OF_RULES))


def setting(after, table, row, **more):
    told = "".join(f"{name} = {value}\n" for name, value in more.items())
    return f'[[drift]]\nafter = {after}\ntable = "{table}"\nset = {{ {row} }}\n{told}'


def code(after, value):
    return setting(after, "active_csm_codes", f"{PLAN} = {value}")


def removing(after, table, key):
    return f'[[drift]]\nafter = {after}\ntable = "{table}"\nremove = ["{key}"]\n'


def rule(after, change, source, relation, target, via):
    written = f'{{ from = "{source}", relation = "{relation}", to = "{target}", via = "{via}" }}'
    return f"[[drift]]\nafter = {after}\n{change}_rules = [{written}]\n"


FUNDS = ("token_funding_map", "funds", "recommended_credit_token", "pays_for")
GOVERNED_BY = ("recommended_credit_token", "governed_by", "funding_type_policy", "policy")
RECOGNITION = ("active_csm_codes", "requires_recognition", "promo_eligibility", "code")
SETTLES = 'enterprise_annual = { accepts = ["credit"], settles_on = "acme_pm_amex_credit" }'
ANNUAL = 'plan_enterprise_annual = { token = "acme_pm_amex_credit", policy = "enterprise_annual" }'

STREAMS = {
    "there and back between two looks": [code(11, NEW), code(11, OLD)],
    "there and back, each used": [code(11, NEW), code(23, OLD)],
    "there, back and there again": [code(5, NEW), code(14, OLD), code(23, NEW)],
    "deleted and back between two looks": [removing(11, "active_csm_codes", PLAN), code(11, OLD)],
    "deleted, and back later": [removing(11, "active_csm_codes", PLAN), code(20, OLD)],
    "two tables in one gap": [
        code(11, NEW),
        setting(11, "recommended_credit_token", ANNUAL),
        setting(23, "recommended_credit_token", "", version='"1.1.0"'),
        setting(23, "token_funding_map", "", version='"1.1.0"'),
    ],
    "rules twice": [
        rule(5, "remove", *FUNDS),
        rule(14, "add", *GOVERNED_BY),
        rule(20, "add", *FUNDS),
        rule(29, "remove", *GOVERNED_BY),
    ],
    "rules there and back between two looks": [rule(11, "remove", *FUNDS), rule(11, "add", *FUNDS)],
    "a vector that grew, and a row of it": [
        rule(11, "add", *GOVERNED_BY),
        setting(26, "recommended_credit_token", ANNUAL),
        setting(29, "funding_type_policy", SETTLES),
    ],
    "vectors that grew by two tables at once": [
        rule(0, "remove", *FUNDS),
        rule(11, "add", *FUNDS),
        rule(11, "add", *GOVERNED_BY),
    ],
    "a change that only reaches downstream": [setting(11, "funding_type_policy", SETTLES)],
    "a rule goes that a fix needs": [rule(12, "remove", *RECOGNITION)],
    "a column that nobody reads": [
        setting(11, "active_csm_codes", f'{PLAN} = {{ code = "SUMMERSALE25", note = "n" }}')
    ],
}


def stream(name):
    if name not in STREAMS:
        return with_stale_slots(load(name))
    head = 'name = "mine"\ntitle = "t"\nlike = "undrifted"\n'
    return with_stale_slots(parse(head + "\n".join(STREAMS[name]), "mine.toml"))


def played(scenario, arm, planner="compliant", **conduct):
    records = []
    by = simulated_planner(planner, 0, frozenset())
    spec = RunSpec("mine", arm, planner, conduct=Conduct(**conduct))
    play(spec, by, records.append, scenario=scenario)
    return records


def scored(scenario, arm, planner="compliant"):
    score = score_of(played(scenario, arm, planner))
    found = msgspec.structs.asdict(score) | msgspec.structs.asdict(score.saving)
    return {name: found[name] for name in Oracle(scenario, "A0").score}


@pytest.mark.parametrize(
    ("name", "arm"),
    [
        *((name, arm) for name in STREAMS for arm in (OF_RULES if "rules" in name else OF_TABLES)),
        *((name, arm) for name in STREAMS if "vector" in name for arm in ("A2DC", "A2DRC")),
        *(("recipes", arm) for arm in ("A0", *OF_TABLES)),
        *(("silent", arm) for arm in ("A1", "A2D")),
    ],
)
def test_a_stream_comes_to_what_the_oracle_says(name, arm):
    scenario = stream(name)
    assert scored(scenario, arm) == Oracle(scenario, arm).score


@pytest.mark.parametrize("seed", SEEDS)
def test_so_does_one_in_which_rules_and_rows_drift_at_random(seed):
    scenario = random_stream(seed)
    for arm in ("exact", OF_RULES[seed % len(OF_RULES)]):
        assert (arm, scored(scenario, arm)) == (arm, Oracle(scenario, arm).score)


@pytest.mark.parametrize("seed", SEEDS[: len(SEEDS) // 3])
def test_whoever_asks_before_each_episode_sends_nothing_stale_whatever_drifts(seed):
    score = score_of(played(random_stream(seed), "exact", fresh="check"))
    assert (score.stale_injections, score.stale_executions) == (0, 0)


def test_what_was_asked_about_and_not_given_again_is_on_record_and_counts_as_evicted():
    """A rule goes without which nothing is suggested to partners: the memory asks in episode 15, and drops what it has."""
    scenario = stream("a rule goes that a fix needs")
    records = played(scenario, "exact")
    [dropped] = [one for one in records if isinstance(one, Evicted)]
    assert (dropped.episode, dropped.reason, dropped.is_given_again) == (15, "unconfirmed", False)
    score = score_of(records)
    assert (score.evictions_by_event, score.eviction_precision) == ([1], 1.0)


def test_a_fix_that_comes_with_the_answer_for_other_requests_was_not_evicted():
    """A fix that no longer depends on the token of a request is for more requests than before: it is another entry with the same fix."""
    records = played(stream("rules"), "exact")
    dropped = [one for one in records if isinstance(one, Evicted)]
    assert [(one.episode, one.reason, one.is_given_again) for one in dropped] == [
        (16, "unconfirmed", True),
        (19, "unconfirmed", True),
    ]
    assert score_of(records).evictions == 0


@pytest.mark.parametrize("name", ["there and back, each used", "two tables in one gap"])
@pytest.mark.parametrize("arm", ["A1", "A2D"])
@pytest.mark.parametrize(
    ("planner", "does"),
    [
        ("compliant-last", {"takes_last": True}),
        ("conservative", {"takes": lambda field, is_added: not is_added}),
        ("forgetful", {"takes": lambda field, is_added: False}),
    ],
)
def test_so_it_does_with_planners_that_do_not_take_all_that_they_are_shown(name, arm, planner, does):
    scenario = stream(name)
    assert scored(scenario, arm, planner) == Oracle(scenario, arm, **does).score


def test_a_value_that_is_learned_again_is_the_latest_again():
    """Six first meetings, and a retry for each change. Were it for ever the older one, the three governed episodes after that failed too."""
    score = scored(stream("there and back, each used"), "A1", "compliant-last")
    assert (score["retries"], score["stale_injections"]) == (8, 2)


def test_an_entry_of_two_tables_that_moved_is_restamped_once():
    """Three of the four entries rest on both tables: counted by tables there would be seven."""
    both = stream("two tables in one gap")
    later = msgspec.structs.replace(both, drift=[one for one in both.drift if one.after == 23])
    assert scored(later, "A2D")["restamps"] == 4


def test_the_arm_that_follows_the_graph_hears_of_a_table_on_which_nothing_rests_directly():
    scenario = stream("a change that only reaches downstream")
    by_rows, by_graph = (scored(scenario, arm) for arm in ("A2D", "A2DG"))
    assert (by_rows["evictions"], by_graph["evictions"]) == (0, 2)
    assert by_graph["eviction_precision"] == 0  # their own rows have not changed


def test_the_records_say_what_the_server_would_give_in_the_place_of_each_fix():
    records = played(stream("there and back, each used"), "A1")
    learned = next(one for one in records if isinstance(one, Attempted) and one.episode == 3).shown[0]
    there, back = (one.judged[learned.id] for one in records if isinstance(one, Drifted))
    assert there.request["plan"] == PLAN
    assert "promo_code" not in there.request
    assert [one.parameters for one in (*there.fixes, *back.fixes)] == [
        {"promo_code": "WINTERLAUNCH26"},
        {"promo_code": "SUMMERSALE25"},
    ]
    assert back.fixes[0].type == learned.type
    assert back.fixes[0].tables == sorted(learned.tables)
