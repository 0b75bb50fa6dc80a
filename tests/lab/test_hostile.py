"""Hostile streams, played through the real server: what each attack gets, and what each defence leaves of it."""

import json
import re
from pathlib import Path

import httpx2
import msgspec
import pytest

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.cli import main
from shelflife.contract.preconditions import PRECONDITION_HEADER
from shelflife.lab.checking import problems_of
from shelflife.lab.grid import file_name_of
from shelflife.lab.hostile import bumping, holding_back, injecting
from shelflife.lab.records import Disclosed, Distrusted
from shelflife.lab.runner import LabError
from shelflife.lab.scenarios import ScenarioError, load, parse
from shelflife.lab.scores import score_of
from shelflife.lab.spec import PLAIN, Conduct, RunSpec
from shelflife.server.log import InProcessLog
from shelflife.testing import serving
from tests.lab.planners import Babbling
from tests.lab.played_runs import attempts_of, played, recorded, records_of
from tests.lab.streams import AT_HAND

LACKING = {
    "customer": "cus_ada",
    "plan": "plan_partner_growth",
    "amount": 12003,
    "currency": "usd",
    "payment_method_token": "acme_pm_visa_credit",
}
"""Lacks a code, for which there is a fix to keep, and is not round, for which the fix is made anew each time."""

ROTATED = {"plan_partner_growth": {"code": "WINTERLAUNCH26"}}
TRUST = Conduct(trust=True)
HOSTILE = [name for name in AT_HAND if load(name).hostile]


def ask(app, *calls):
    with serving(app) as address, httpx2.Client(base_url=address, trust_env=False) as http:
        return [http.request(method, path, **more) for method, path, more in calls]


def order(**headers):
    return "POST", "/subscriptions", {"json": LACKING, "headers": headers}


LIKE = 'name = "mine"\ntitle = "Mine"\nlike = "undrifted"\n'


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ('hostile = "bites"', "line 4: 'hostile' cannot be 'bites'; there is "),
        ('hostile = "injects"', "a server that injects says what it wants, and no other does"),
        ("wants = { amount = 7 }", "a server that injects says what it wants, and no other does"),
        ('hostile = "injects"\nwants = 5', "line 5: expected `object`, got `int`"),
        ('hostile = "injects"\nwants = { amount = 4900 }', "the tasks ask for this 'amount' themselves"),
        (
            'hostile = "injects"\nwants = { currency = "chf" }',
            "the field 'currency' is one that honest fixes set",
        ),
        (
            'hostile = "injects"\nwants = { amount = 2026-01-01 }',
            "the value of 'amount' is none that JSON has",
        ),
    ],
)
def test_what_is_wrong_with_a_hostile_stream_is_told(more, told):
    with pytest.raises(ScenarioError) as raised:
        parse(LIKE + more, "mine.toml")
    assert told in str(raised.value)


def test_a_value_that_the_api_does_not_take_cannot_be_injected():
    [*problems] = problems_of(parse(LIKE + 'hostile = "injects"\nwants = { amount = -1 }', "mine.toml"))
    assert problems[0].startswith("with what the server wants, 'basic' is answered otherwise: ")


def test_a_hostile_stream_of_the_users_is_checked_and_played(tmp_path, capsys):
    path = tmp_path / "mine.toml"
    path.write_text(LIKE + 'hostile = "injects"\nwants = { customer = "cus_eve" }')
    assert main(["lab", "check", str(path)]) == 0
    assert main(["lab", "run", str(path), "--arm", "A2D"]) == 0
    head, row = capsys.readouterr().out.splitlines()[1:3]
    assert re.search(r"injected +by answers", head)
    assert re.search(r" 21 +6 ", row)


def test_what_is_hostile_is_no_part_of_other_streams():
    """A stream that says nothing of it has the digest that it always had, and its records are found."""
    for name in set(AT_HAND) - set(HOSTILE):
        assert {"hostile", "wants"}.isdisjoint(msgspec.to_builtins(load(name)))
    names = {file_name_of(RunSpec(name, "A2D", "compliant"), load(name)) for name in HOSTILE}
    assert len(names) == len(HOSTILE)


def test_only_fixes_that_can_be_kept_are_added_to_and_nothing_else_is():
    wants = {"customer": "cus_eve"}
    [honest], [injected] = (ask(app, order()) for app in (acme_app(), injecting(acme_app(), wants)))
    told, told_honestly = injected.json(), honest.json()
    code, amount = told["recovery_feedback"]["suggestions"]
    assert code["parameters"] == {"promo_code": "SUMMERSALE25", "customer": "cus_eve"}
    assert amount["parameters"] == {"amount": 12000}
    del code["parameters"]["customer"]
    assert told == told_honestly
    assert injected.status_code == honest.status_code


@pytest.mark.parametrize("consume", ["2", "3", "apply"])
def test_a_guard_keeps_an_injected_value_out_of_first_attempts_and_not_out_of_answers(consume):
    got = [
        (score.injected, score.injected_by_answers, score.retries, score.completed)
        for guard in ("open", "default", "fields")
        for score in [played("injection", "A2D", Conduct(guard=guard), consume=consume)]
    ]
    assert got == [(21, 6, 6, 36), (0, 27, 27, 36), (0, 27, 27, 36)]


@pytest.mark.parametrize("consume", ["3", "apply"])
def test_an_answer_without_a_request_does_not_make_an_injected_value_the_servers_answer(consume):
    """This planner follows no answer of the server, so whatever is injected came from the memory."""
    score = score_of(records_of(Babbling(), "injection", "A2D", consume=consume))
    assert (score.injected, score.injected_by_answers) == (21, 0)


def test_evictions_before_any_drift_are_told_too(capsys):
    """The one after the drift is the rotated code: it was kept as a suspect, asked about and not given again."""
    assert main("lab run bumping --arm A2D --bound 4".split()) == 0
    assert " 4, then 1 + 0 " in capsys.readouterr().out


def test_what_a_guard_refuses_is_not_shown():
    attempts = attempts_of(recorded("injection", "A2D", Conduct(guard="fields")))
    assert not any(one.shown for one in attempts)


def test_the_fields_of_a_stream_are_all_that_its_honest_fixes_set():
    free, guarded = (played("drifted", "A2D", Conduct(guard=guard)) for guard in ("open", "fields"))
    assert (free.retries, free.tokens) == (guarded.retries, guarded.tokens)
    assert guarded.injected is None


def test_every_row_of_a_server_that_bumps_changes_with_every_response():
    provider = acme_provider(admin_token="operator")
    app = bumping(acme_app(provider), provider)
    first, second = (one.json() for one in ask(app, order(), order()))
    assert first["recovery_feedback"]["suggestions"][0]["parameters"] == {"promo_code": "SUMMERSALE25"}
    assert not set(first["table_versions"].items()) & set(second["table_versions"].items())
    since = [("since", f"{table}:{version}") for table, version in first["table_versions"].items()]
    [answer] = ask(app, ("GET", "/contract/changes", {"params": since}))
    rows = {table: set(provider.registry.rows(table)) for table in first["table_versions"]}
    assert {name: set(one["changed"]) for name, one in answer.json()["tables"].items()} == rows


def test_a_bound_gives_the_savings_back_for_round_trips():
    honest, unbounded, loose, tight = (
        played(*how)
        for how in (
            ("drifted", "A2D"),
            ("bumping", "A2D"),
            ("bumping", "A2D", Conduct(bound=4)),
            ("bumping", "A2D", Conduct(bound=1)),
        )
    )
    assert [one.retries for one in (honest, tight, loose, unbounded)] == [7, 7, 10, 27]
    # as many as may go by what the server says has moved, and the rotated code, about which it was asked
    assert [one.evictions for one in (tight, loose)] == [1 + 1, 4 + 1]
    assert [one.wire.questions for one in (honest, unbounded, loose, tight)] == [2, 27, 44, 47]
    assert {one.stale_injections for one in (unbounded, loose, tight)} == {0}
    assert tight.tokens.total < 1.02 * honest.tokens.total


@pytest.mark.parametrize("consume", ["2", "apply"])
def test_a_bound_works_however_fixes_are_consumed(consume):
    assert played("bumping", "A2D", Conduct(bound=4), consume=consume).retries == 10


def test_a_bound_costs_nothing_on_an_honest_server():
    free, bounded = (played("drifted", "A2D", conduct) for conduct in (PLAIN, Conduct(bound=1)))
    assert (free.retries, free.tokens, free.wire) == (bounded.retries, bounded.tokens, bounded.wire)


def test_signed_states_that_move_with_every_response_leave_nothing_to_a_bound():
    score = played("bumping", "A2D", Conduct(bound=4, trust=True))
    assert (score.completed, score.retries, score.stale_injections) == (36, 27, 0)


def test_a_server_that_bumps_what_no_policy_reads_meets_preconditions_and_takes_no_saving_by_them():
    score = played("bumping", "A2D", Conduct(bound=4, precondition=True))
    assert (score.completed, score.retries, score.stale_executions) == (36, 10, 0)


def test_what_is_held_back_is_the_state_and_not_the_answer():
    provider = acme_provider()
    app = acme_app(provider)
    provider.be_ready()
    frozen = acme_provider(log=InProcessLog(provider.state))
    position = str(frozen.face(frozen.state, {}).position)
    app = holding_back(app, provider, frozen, acme_app(frozen))
    [before] = ask(app, order(**{"Contract-At": "*"}))
    provider.registry.reload_table("active_csm_codes", set=ROTATED)
    after, state, fixes = ask(
        app,
        order(**{PRECONDITION_HEADER: f"{position};on=:e30=:", "Contract-At": position}),
        ("GET", f"/contract/changes?from={position}&nonce=abc", {}),
        ("POST", "/contract/fixes", {"json": {"operation": "POST /subscriptions", "request": LACKING}}),
    )
    told, told_before = after.json(), before.json()
    new, old = (one["recovery_feedback"]["suggestions"][0] for one in (told, told_before))
    assert (new.pop("parameters"), old.pop("parameters")) == (
        {"promo_code": "WINTERLAUNCH26"},
        {"promo_code": "SUMMERSALE25"},
    )
    for name in ("unless", "rows", "cells"):  # they name the code
        assert new.pop(name) != old.pop(name)
    assert told == told_before
    assert told["at"] == {"to": position}
    assert [value for name, value in after.headers.items() if name.startswith("contract-")] == [
        value for name, value in before.headers.items() if name.startswith("contract-")
    ]
    assert (after.status_code, state.json()) == (before.status_code, {"to": position, "nonce": "abc"})
    assert fixes.json()["recovery_feedback"]["suggestions"][0]["parameters"] == {"promo_code": "SUMMERSALE25"}


@pytest.mark.parametrize(
    "conduct", [PLAIN, Conduct(fresh="check"), Conduct(precondition=True), Conduct(bound=1)]
)
def test_without_a_signature_nobody_notices_that_states_are_held_back(conduct):
    score = played("pinned", "A2D", conduct)
    assert (score.stale_injections, score.stale_executions, score.distrusted) == (2, 2, None)


@pytest.mark.parametrize("arm", ["A2D", "exact"])
def test_nothing_is_recalled_once_the_signature_of_a_held_back_state_has_expired(arm):
    """The proxy lets signed answers through as long as they are true. The last one was given in episode 10."""
    records = recorded("pinned", arm, TRUST)
    [distrusted] = [one for one in records if isinstance(one, Distrusted)]
    assert distrusted.episode == 20
    assert "was asked for its signed state and gave none" in distrusted.why
    assert max(one.episode for one in attempts_of(records) if one.shown) < 20
    score = played("pinned", arm, TRUST)
    assert (score.stale_injections, score.stale_executions, score.distrusted) == (1, 1, 1)


@pytest.mark.parametrize("arm", ["A2D", "exact"])
def test_whoever_asks_before_each_episode_notices_at_once_that_a_signed_state_is_held_back(arm):
    conduct = Conduct(fresh="check", trust=True)
    [distrusted] = [one for one in recorded("pinned", arm, conduct) if isinstance(one, Distrusted)]
    assert distrusted.episode == min(drift.after for drift in load("pinned").drift) + 1
    score = played("pinned", arm, conduct)
    assert (score.stale_injections, score.stale_executions, score.distrusted) == (0, 0, 1)


def test_a_signature_does_not_help_where_the_signer_lies():
    score = played("lying", "A2D", TRUST)
    assert (score.stale_executions, score.distrusted) == (2, 0)


@pytest.mark.parametrize("disclose", ["names", "aliases"])
@pytest.mark.parametrize("fresh", ["none", "check", "feed"])
def test_an_honest_server_that_signs_is_believed_throughout(fresh, disclose):
    plainly = played("drifted", "A2D", Conduct(fresh=fresh))
    signed = played("drifted", "A2D", Conduct(fresh=fresh, trust=True, disclose=disclose))
    assert signed.distrusted == 0
    for name in ("retries", "evictions", "restamps", "stale_injections", "eviction_precision"):
        assert getattr(signed, name) == getattr(plainly, name)


@pytest.mark.parametrize("stream", ["disclosure", "recipes", "drifted", "rules"])
def test_with_aliases_a_run_comes_to_the_same(stream):
    named, aliased = (played(stream, "exact", conduct) for conduct in (PLAIN, Conduct(disclose="aliases")))
    for name in ("retries", "evictions", "eviction_precision", "restamps", "stale_injections", "saving"):
        assert getattr(named, name) == getattr(aliased, name)


@pytest.mark.parametrize("fresh", ["none", "check", "feed"])
def test_names_of_the_server_are_counted_and_aliases_hide_them_all(fresh):
    [named], [aliased], [counted] = (
        [one for one in recorded("disclosure", "A2D", conduct) if isinstance(one, Disclosed)]
        for conduct in (
            Conduct(fresh=fresh),
            Conduct(fresh=fresh, disclose="aliases"),
            Conduct(fresh=fresh, disclose="counts"),
        )
    )
    # whoever names positions is told only of the tables that fixes rest on
    assert len(named.tables) == (5 if fresh == "none" else 4)
    assert "milk+lemon_juice" in named.keys
    assert "soy_sauce" not in named.keys  # stands in requests
    assert named.relations == ["fits"]
    assert aliased == counted == Disclosed(tables=[], keys=[], relations=[])
    assert played("disclosure", "A2D", Conduct(fresh=fresh)).disclosed == (11 if fresh == "none" else 10)


def test_where_nothing_is_done_nothing_of_it_is_scored():
    score = played("drifted", "A2D")
    assert {score.hostile, score.injected, score.injected_by_answers, score.disclosed, score.distrusted} == {
        None
    }


@pytest.mark.parametrize("level", [0, 1, 4, 5])
@pytest.mark.parametrize("stream", HOSTILE)
def test_hostile_streams_are_played_at_every_level(stream, level):
    score = played(stream, "A2D", level=level)
    assert score.hostile == load(stream).hostile
    assert score.completed == (score.episodes if level else score.first_try)


@pytest.mark.parametrize("stream", ["bumping", "pinned", "lying"])
def test_a_server_that_tells_no_state_cannot_be_followed(stream):
    with pytest.raises(LabError, match="has no feed that tells of its state"):
        recorded(stream, "A2D", Conduct(fresh="feed"))


DOCUMENTED = (Path(__file__).parents[2] / "docs" / "explanation" / "lab.md").read_text("utf-8")
FIGURES = re.findall(r"(?m)^\| ([\w-]+) \| (A0|A2D) \| (?:none|`([^`]*)`) \| (\d+ \| .*) \|$", DOCUMENTED)
TOKENS_OF_A0 = {stream: told.split(" | ")[1] for stream, arm, _, told in FIGURES if arm == "A0"}


def or_dash(count):
    return "\N{EN DASH}" if count is None else str(count)


def against(tokens, baseline):
    percent = f"{100 * (tokens / int(baseline.replace(',', '')) - 1):+.1f} %"
    return percent.replace("+0.0", "0.0").replace("-", "\N{MINUS SIGN}")


@pytest.mark.usefixtures("commands_find_what_was_played")
@pytest.mark.parametrize(("stream", "arm", "flags", "told"), FIGURES)
def test_the_documented_figures_are_those_that_come_out(stream, arm, flags, told, capsys):
    assert main(["lab", "run", stream, "--arm", arm, "--json", *flags.split()]) == 0
    [run] = json.loads(capsys.readouterr().out)["runs"]
    tokens = run["tokens"]["prompt"] + run["tokens"]["completion"]
    is_compared = arm != "A0" and stream in TOKENS_OF_A0
    assert told.split(" | ") == [
        str(run["retries"]),
        f"{tokens:,}",
        against(tokens, TOKENS_OF_A0[stream]) if is_compared else or_dash(None),
        *(str(run["wire"][name]) for name in ("questions", "question_bytes")),
        *(str(run[name]) for name in ("stale_injections", "stale_executions")),
        *(or_dash(run[name]) for name in ("injected", "injected_by_answers", "disclosed")),
    ]


def test_there_are_documented_figures_of_every_hostile_stream():
    assert len(FIGURES) == 26
    assert {stream for stream, *_ in FIGURES} >= set(HOSTILE)
    told = re.findall(r"(?m)^\| `([\w-]+)` \| `[\w-]+` \| `\"(\w+)\"` \|", DOCUMENTED)
    assert sorted(told) == sorted((name, load(name).hostile) for name in HOSTILE)
