"""Streams as data files, and what is told of a wrong one."""

import pickle
import re
import time
from pathlib import Path

import msgspec
import pytest

from shelflife.cli import main
from shelflife.lab.audit import leaks_in
from shelflife.lab.checking import problems_of
from shelflife.lab.planners.simulated import SimulatedPlanner
from shelflife.lab.runner import play
from shelflife.lab.scenarios import Drift, Family, Scenario, ScenarioError, Split, load, parse
from shelflife.lab.scores import score_of
from shelflife.lab.slots import with_stale_slots
from shelflife.lab.spec import RunSpec
from shelflife.lab.toml_lines import TomlLines
from tests.lab.small_stream import SMALL
from tests.lab.streams import SHORT


@pytest.mark.parametrize("name", SHORT)
def test_every_shipped_stream_can_be_played(name):
    assert problems_of(load(name)) == []


def test_a_stream_of_the_users_is_read_from_its_file(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    scenario = load(str(path))
    assert [episode.task for episode in scenario.episodes(0)] == [
        "Subscribe to plan_partner_growth.",
        "Again.",
    ]
    assert problems_of(scenario) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('title = "Two tasks"', "", "missing required field `title`"),
        ("stale_slots", "stale_slot", "line 6: there is no field 'stale_slot' here; is 'stale_slots' meant?"),
        ('table = "active', 'tabel = "active', "line 27: there is no field 'tabel' here; is 'table' meant?"),
        ('task = "Again."', "task = 5", "line 22: expected `str`, got `int`"),
        (
            'task = "Again."',
            'prize = 5\ntask = "Again."',
            "line 22: there is no field 'prize' here; there is class, ",
        ),
        (
            'hint = "add a field"\ntask = "Again."',
            'hint = "adds a field"\ntask = "Again."',
            "line 21: 'hint' cannot be 'adds a field'; there is 'add a field', 'rewrite a value', 'conditional rewrite'",
        ),
        ('task = "Again."', 'task = "{prize}"', "line 22: the task names {prize}, which its input lacks"),
        ('["a", "b"]', '["a", "c"]', "line 5: the order names 'c', which is no family"),
        ('["a", "b"]', '["a", "a"]', "line 19: the family 'b' is in no episode"),
        ("after = 0", "after = 2", "line 25: there is no episode 2 to drift after"),
        ("[1]", "[7]", "line 6: there is no episode 7"),
        ('governed = "g"', 'governed = "h"', "line 4: no family is of the class 'h'"),
        ('table = "active_csm_codes"\n', "", "line 25: a drift is either of a table or of rules"),
        ('api = "acme"', 'api = "moon"', "line 3: 'api' cannot be 'moon'; there is 'acme'"),
        ('name = "small"', 'like = "nothing"', "line 1: there is no stream 'nothing' to be like"),
        ('name = "small"', "name = ", "line 1"),
        ('name = "small"', "", "missing required field `name`"),
        (
            'name = "small"',
            'name = "rules"',
            "line 1: 'rules' is the name of a stream that comes with the lab",
        ),
        ("[[drift]]", "[drift]", "line 25: a drift is one of a list, [[drift]]"),
        ("[[drift]]", "[[drift]]\nversion = 5", "line 26: expected `str"),
        ("remove = [", "rows = {}\nremove = [", "line 25: rows are all that the table has then"),
        (
            'table = "active_csm_codes"\nremove = ["plan_startup_program"]',
            'version = "1.1.0"\nadd_rules = [{ from = "a", to = "b", relation = "c" }]',
            "line 25: a drift of rules has no rows, set, remove or version",
        ),
        (
            "[[drift]]",
            "[varied]\nprize = [1]\n[[drift]]",
            "line 26: 'prize' is varied, and in no family's input",
        ),
        ("[[drift]]", "[varied]\namount = []\n[[drift]]", "line 26: there is no value of 'amount' to choose"),
        (
            "[[drift]]",
            "[varied]\namount = [nan]\n[[drift]]",
            "line 26: a value of 'amount' is none that JSON",
        ),
        (
            "stale_slots = [1]",
            'split = { class = "g", after = 2 }',
            "line 6: there is no episode 2 to split after",
        ),
        ("stale_slots = [1]", 'split = { class = "h", after = 0 }', "line 6: no family is of the class 'h'"),
        ("amount = 5\n", "amount = 2026-01-01\n", "line 15: the value of 'amount' is none that JSON has"),
        ("amount = 5\n", "amount = [inf]\n", "line 15: the value of 'amount' is none that JSON has"),
        (
            "remove = [",
            "set = { a = 2026-01-01 }\nremove = [",
            "line 25: a value in its rows is none that JSON",
        ),
        ('task = "Again."', 'name = "c"\ntask = "Again."', "line 22: a family is named by its table"),
        ('title = "Two tasks"', "title = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(old, new, told):
    assert old in SMALL
    with pytest.raises(ScenarioError) as refusal:
        parse(SMALL.replace(old, new, 1), "small.toml")
    assert told in str(refusal.value)
    assert "small.toml" in str(refusal.value)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('hint = "add a field"\ntask = "Again."', 'task = "Again."', "'b' meets a constraint"),
        ("amount = 5\n", 'amount = "much"\n', "'a' is refused without a fix"),
        ("active_csm_codes", "no_such_table", "refused the drift after episode 0"),
    ],
)
def test_what_the_api_refuses_is_found_by_asking_it(old, new, told):
    [problem] = problems_of(parse(SMALL.replace(old, new, 1), "small.toml"))
    assert told in problem


ROTATION = """\
[[drift]]
after = 11
table = "active_csm_codes"
set = { plan_partner_growth = { code = "%s" } }
"""


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            ROTATION % "NOT_ELIGIBLE",
            "line 3: the drift after episode 11 takes away the constraint that 'partner' meets: whatever is"
            " remembered, its episodes succeed at once (12, 15, 18, 21, 24, 27, 30, 33)",
        ),
        (
            ROTATION % "SUMMERSALE25",
            "line 3: the drift after episode 11 changes nothing: no row, no rule and no version",
        ),
        (
            '[[drift]]\nafter = -1\ntable = "active_csm_codes"\nset = {}',
            "line 3: the drift before the first episode changes nothing: no row, no rule and no version",
        ),
        (
            '[[drift]]\nafter = 5\nadd_rules = [{ from = "token_funding_map", to = "recommended_credit_token",'
            ' relation = "funds", via = "pays_for" }]',
            "line 3: the drift after episode 5 changes nothing",
        ),
        (
            "[varied]\namount = [12000, 12003]",
            "line 4: with 12003 for 'amount', 'partner' is answered otherwise",
        ),
        (
            '[varied]\npayment_method_token = ["acme_pm_visa_debit", "acme_pm_sepa_debit"]',
            "line 4: with 'acme_pm_sepa_debit' for 'payment_method_token', 'partner' is answered otherwise",
        ),
    ],
)
def test_what_would_be_scored_in_vain_is_found_with_its_line(more, told, tmp_path, capsys):
    path = tmp_path / "mine.toml"
    path.write_text(f'name = "mine"\nlike = "undrifted"\n{more}\n')
    assert main(["lab", "check", str(path)]) == 1
    first, *problems = capsys.readouterr().err.splitlines()
    assert first.endswith("mine.toml cannot be played:")
    assert problems[0].strip().startswith(told)


def test_a_bump_that_changes_no_row_is_a_change():
    bump = '[[drift]]\nafter = 5\ntable = "active_csm_codes"\nset = {}\nversion = "1.1.0"'
    assert problems_of(parse(f'name = "mine"\nlike = "undrifted"\n{bump}\n', "mine.toml")) == []


def test_a_constraint_that_comes_back_before_its_family_does_has_not_vanished():
    gone = '[[drift]]\nafter = 3\ntable = "active_csm_codes"\nremove = ["plan_partner_growth"]'
    text = f'name = "mine"\nlike = "undrifted"\n{gone}\n{rotated((4, "SUMMERSALE25"))}\n'
    assert problems_of(parse(text, "mine.toml")) == []


FAMILY = """\
[families.%s]
class = "%s"
task = "Subscribe to {plan}."
%s
[families.%s.input]
customer = "cus_ada"
plan = "%s"
amount = 12000
currency = "usd"
payment_method_token = "%s"
"""


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (
            'hint = "rewrite a value"\nfield = "promo_code"',
            "line 6: the fix for 'partner' adds a field to its input (promo_code), and its hint says 'rewrite a value'",
        ),
        (
            'hint = "add a field"\nfield = "promo"',
            "line 7: the fix for 'partner' sets promo_code, and its field says promo",
        ),
    ],
)
def test_a_hint_or_a_field_that_is_not_what_the_fix_does_is_told(how, told):
    partner = ("partner", "governed", how, "partner", "plan_partner_growth", "acme_pm_visa_credit")
    text = f'name = "mine"\nlike = "undrifted"\n{FAMILY % partner}'
    assert problems_of(parse(text, "mine.toml"), TomlLines(text)) == [told]


def test_a_hint_that_would_add_what_the_fix_rewrites_is_told():
    annual = ("annual", "funding", 'hint = "add a field"', "annual", "plan_enterprise_annual")
    text = f'name = "mine"\nlike = "undrifted"\n{FAMILY % (*annual, "acme_pm_visa_debit")}'
    assert problems_of(parse(text, "mine.toml")) == [
        "the fix for 'annual' rewrites a value of its input (payment_method_token), and its hint says 'add a field'"
    ]


def test_the_command_tells_what_is_wrong(tmp_path, capsys):
    path = tmp_path / "wrong.toml"
    path.write_text(SMALL.replace("after = 0", "after = 9"))
    assert main(["lab", "check", str(path)]) == 1
    assert "line 25: there is no episode 9" in capsys.readouterr().err
    assert main(["lab", "check", "drifted"]) == 0
    shown = capsys.readouterr().out
    assert "36 episodes on acme" in shown
    assert "stale slots, as given: 12, 15" in shown
    for missing in (str(tmp_path / "none.toml"), "no-such-stream"):
        assert main(["lab", "check", missing]) == 1
        assert capsys.readouterr().err.startswith("shelflife: ")


def test_seeds_vary_what_makes_no_difference_and_nothing_else():
    scenario = load("drifted")
    one, same, other = (list(scenario.episodes(seed)) for seed in (0, 0, 1))
    assert one == same
    assert one != other
    for left, right in zip(one, other, strict=True):
        kept = {"plan", "currency", "payment_method_token"}
        assert {k: left.input[k] for k in kept} == {k: right.input[k] for k in kept}


@pytest.mark.parametrize("families", ["families = 5", "families = []"])
def test_families_that_are_no_tables_are_told_though_another_stream_has_some(families):
    with pytest.raises(ScenarioError, match=r"line 3: a family is a table of its own"):
        parse(f'name = "mine"\nlike = "undrifted"\n{families}\n', "mine.toml")


@pytest.mark.parametrize("like", SHORT)
def test_a_stream_may_be_like_any_that_comes_with_the_lab(like):
    scenario = parse(f'name = "mine"\nlike = "{like}"\ntitle = "Mine"\n', "mine.toml")
    assert scenario == msgspec.structs.replace(load(like), name="mine", title="Mine")


def test_what_is_wrong_can_be_told_by_another_process():
    error = ScenarioError("mine.toml", ["line 1: no", "line 2: no"])
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.problems) == ("mine.toml: line 1: no; mine.toml: line 2: no", error.problems)


def test_the_lines_of_a_file_full_of_blanks_are_found_at_once():
    blanks = " " * 20_000
    began_at = time.thread_time()
    assert TomlLines(f"[{blanks}a{blanks}b\n[{blanks}c{blanks}]{blanks}# c\n").of("c") == 2
    assert time.thread_time() - began_at < 5


@pytest.mark.parametrize("name", [name for name in SHORT if not load(name).history])
def test_stale_slots_are_worked_out_to_what_the_shipped_streams_give(name):
    given = load(name)
    worked_out = with_stale_slots(msgspec.structs.replace(given, stale_slots=None))
    assert worked_out.stale_slots == (given.stale_slots or [])


def rotated(*moments):
    """Drifts of the partner plan's code, after an episode each, to a code of its own."""
    return "\n".join(
        f'[[drift]]\nafter = {after}\ntable = "active_csm_codes"\nset = {{ plan_partner_growth = {{ code = "{code}" }} }}'
        for after, code in moments
    )


@pytest.mark.parametrize(
    ("moments", "slots"),
    [
        ([(3, "WINTERLAUNCH26")], [6, 9]),
        ([(3, "WINTERLAUNCH26"), (6, "SUMMERSALE25")], [6, 9, 12]),
        ([(3, "WINTERLAUNCH26"), (4, "SUMMERSALE25")], []),
        ([(3, "WINTERLAUNCH26"), (6, "SUMMERSALE25"), (7, "WINTERLAUNCH26")], [6, 9]),
        ([(-1, "WINTERLAUNCH26")], []),
        ([(30, "WINTERLAUNCH26")], [33]),
    ],
)
def test_a_slot_is_stale_when_what_its_family_met_before_is_suggested_no_more(moments, slots):
    text = f'name = "mine"\nlike = "drifted"\n{rotated(*moments)}\n'
    assert with_stale_slots(parse(text, "mine.toml")).stale_slots == slots


WRITING = (Path(__file__).parents[2] / "docs" / "explanation" / "lab.md").read_text("utf-8")
WRITING = WRITING.partition("\n## Writing a stream\n")[2].partition("\n## ")[0]


def test_all_that_a_stream_can_say_is_documented():
    for kind in (Scenario, Family, Drift, Split):
        keys = {field.encode_name for field in msgspec.structs.fields(kind)}
        documented = re.findall(r"(?m)^\| (`.*?) \|", WRITING)
        assert keys - {"name"} <= {key for row in documented for key in re.findall(r"`(\w+)`", row)}


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", WRITING, re.DOTALL))
def test_the_streams_of_the_documentation_can_be_checked_and_played(text, tmp_path, capsys):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    assert main(["lab", "check", str(path)]) == 0, capsys.readouterr().err
    assert main(["lab", "run", str(path), "--arm", "A2D"]) == 0


def test_slots_that_are_given_are_taken_as_they_are():
    text = f'name = "mine"\nlike = "undrifted"\nstale_slots = [33]\n{rotated((3, "WINTERLAUNCH26"))}\n'
    assert with_stale_slots(parse(text, "mine.toml")).stale_slots == [33]


def test_a_drift_may_come_before_the_first_episode():
    scenario = parse(f'name = "mine"\nlike = "undrifted"\n{rotated((-1, "WINTERLAUNCH26"))}\n', "mine.toml")
    records = []
    play(
        RunSpec("mine", "A2D", "compliant"), SimulatedPlanner("compliant"), records.append, scenario=scenario
    )
    _, drifted, attempted, *_ = records
    assert (drifted.after, drifted.rows) == (-1, ["active_csm_codes:plan_partner_growth"])
    assert (attempted.episode, attempted.status) == (0, 422)
    score = score_of(records)
    assert (score.retries, score.evictions, score.stale_injections) == (6, 0, 0)


@pytest.mark.parametrize("arm", ["A0", "A1"])
def test_a_word_of_the_schema_that_a_drift_brings_is_no_answer(arm):
    drift = '[[drift]]\nafter = 3\ntable = "ingredient_diets"\nset = { anchovies = { fits = "omnivore", substitute = "capers" } }'
    assert leaks_in(parse(f'name = "mine"\nlike = "recipes"\n{drift}\n', "mine.toml"), arm) == []
