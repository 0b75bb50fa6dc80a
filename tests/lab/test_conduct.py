"""What goes beyond the paper, played through the real server: nothing stale, fewer bytes, and a memory for several."""

import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import msgspec
import pytest

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.cli import main
from shelflife.client import Question
from shelflife.lab.apis import APIS
from shelflife.lab.asking import Asking
from shelflife.lab.clock import Clock
from shelflife.lab.grid import execute, file_name_of, scores_in
from shelflife.lab.planners.simulated import simulated_planner
from shelflife.lab.records import Asked, EpisodeEnded, Evicted, RunEnded, read_records
from shelflife.lab.runner import LabError, play
from shelflife.lab.scenarios import load
from shelflife.lab.scores import as_json, is_whole, score_of
from shelflife.lab.spec import PLAIN, Conduct, Consume, RunSpec
from shelflife.lab.spending import Wire
from shelflife.lab.wire import contract_bytes_in, contract_header_bytes
from shelflife.server import WireFormat
from shelflife.testing import serving
from tests.lab.planners import Babbling, Counting
from tests.lab.played_runs import attempts_of, played, recorded, records_of

CHECK, FEED, PRECONDITION = Conduct(fresh="check"), Conduct(fresh="feed"), Conduct(precondition=True)
COMPACT = Conduct(form="compact")
ALL_OF_IT = Conduct(form="compact", fresh="feed", precondition=True)


def figures(score):
    return score.retries, score.mended, score.stale_injections, score.stale_executions


@pytest.mark.parametrize("consume", ["2", "3", "apply"])
@pytest.mark.parametrize("arm", ["A2D", "exact"])
@pytest.mark.parametrize(
    ("conduct", "expected"),
    [
        (PLAIN, (7, 0, 1, 0)),
        (COMPACT, (7, 0, 1, 0)),
        (CHECK, (6, 0, 0, 0)),
        (FEED, (6, 0, 0, 0)),
        (PRECONDITION, (6, 1, 1, 0)),
        (ALL_OF_IT, (6, 0, 0, 0)),
    ],
)
def test_a_rotation_costs_no_retry_once_the_memory_hears_of_it_in_time(arm, consume, conduct, expected):
    score = played("drifted", arm, conduct, consume=consume)
    assert figures(score) == expected
    assert (score.completed, score.evictions, score.eviction_precision, score.restamps) == (36, 1, 1.0, 3)


@pytest.mark.parametrize(
    ("arm", "conduct", "expected"),
    [
        ("A1", PLAIN, (6, 0, 2, 2)),
        ("A2D", PLAIN, (7, 0, 1, 1)),
        ("A2D", CHECK, (6, 0, 0, 0)),
        ("A2D", FEED, (6, 0, 0, 0)),
        ("A2D", PRECONDITION, (6, 1, 1, 0)),
        ("A2D", COMPACT, (7, 0, 1, 1)),
        ("exact", PLAIN, (7, 0, 1, 1)),
        ("exact", ALL_OF_IT, (6, 0, 0, 0)),
    ],
)
def test_a_silent_drift_is_carried_out_unless_the_memory_or_the_server_looks(arm, conduct, expected):
    assert figures(played("silent", arm, conduct)) == expected


def test_a_fix_that_was_learned_in_the_very_episode_before_a_drift_is_stale_after_it():
    learned_in = next(one.entry.learned_in for one in recorded("silent", "A2D") if isinstance(one, Evicted))
    [drift] = load("silent").drift
    early = msgspec.structs.replace(load("silent"), drift=[msgspec.structs.replace(drift, after=learned_in)])
    records = []
    planner = simulated_planner("compliant", 0, frozenset())
    play(RunSpec("silent", "A1", "compliant"), planner, records.append, scenario=early)
    score = score_of(records)
    assert score.stale_injections == score.stale_executions > 0


def test_a_precondition_does_not_help_an_arm_that_keeps_what_it_knows_to_be_stale():
    """The second time the server has told of the movement, and the agent says that it knows it."""
    assert figures(played("silent", "A1", PRECONDITION)) == (7, 1, 2, 1)


@pytest.mark.parametrize("arm", ["A2D", "exact"])
@pytest.mark.parametrize(
    ("conduct", "by_agent"),
    [
        (Conduct(agents=2), [7, 0]),
        (Conduct(agents=2, fresh="check"), [6, 0]),
        (Conduct(agents=3, fresh="feed"), [6, 0, 0]),
    ],
)
def test_what_one_agent_has_learned_the_others_know(arm, conduct, by_agent):
    score = played("drifted", arm, conduct)
    assert score.retries_by_agent == by_agent
    assert (score.retries, score.episodes, score.evictions, score.restamps) == (by_agent[0], 36, 1, 3)
    assert score.wire.responses == 36 + by_agent[0]


def test_what_one_agent_has_found_stale_the_others_do_not_use():
    score = played("silent", "A2D", Conduct(agents=2))
    assert (score.retries_by_agent, score.stale_executions) == ([6, 1], 1)


def test_a_run_of_several_agents_is_whole_when_all_of_them_have_played():
    records = recorded("drifted", "A2D", Conduct(agents=2))
    assert is_whole(records)
    last = next(one for one in reversed(records) if isinstance(one, EpisodeEnded))
    assert last.agent == 1
    assert not is_whole([one for one in records if one is not last])


@pytest.mark.parametrize("stream", ["drifted", "rules", "silent", "recipes"])
def test_the_compact_form_comes_to_the_same_but_for_bytes_and_the_tokens_of_answers(stream):
    full, compact = (as_json(played(stream, "A2D", conduct)) for conduct in (PLAIN, COMPACT))
    assert compact["tokens"]["completion"] == full["tokens"]["completion"]
    assert compact["tokens"]["prompt"] < full["tokens"]["prompt"]
    for apart in ("form", "wire", "tokens", "started_at", "spent"):
        del full[apart], compact[apart]
    for since in (*full["by_event"], *compact["by_event"]):
        del since["tokens"], since["bytes"]
    assert compact == full


def test_the_compact_form_takes_less_than_three_percent_of_all_bytes():
    full, compact = (played("drifted", "A2D", conduct).wire for conduct in (PLAIN, COMPACT))
    assert 15 < full.contract_percent_both_ways < 15.5
    assert compact.contract_percent < 3
    assert compact.contract_percent_in_all < 3
    following = played("drifted", "A2D", Conduct(form="compact", fresh="feed")).wire
    assert following.contract_percent_both_ways < compact.contract_percent_both_ways
    assert full.contract_request_bytes == 0
    assert full.bytes - full.contract_bytes == compact.bytes - compact.contract_bytes
    carried_out = [one for one in attempts_of(recorded("drifted", "A2D", COMPACT)) if one.status == 201]
    contract = sum(one.contract_bytes + one.contract_request_bytes for one in carried_out)
    headers = sum(one.contract_request_bytes for one in carried_out)
    whole = sum(one.response_bytes + one.request_bytes + one.other_header_bytes for one in carried_out)
    assert 100 * contract / (whole + headers) < 2


def test_the_bytes_of_the_contract_are_what_a_response_has_more_than_without_it():
    """Held against the very response of a server that has no contract."""
    wanted = {
        "customer": "cus_ada",
        "plan": "plan_basic_annual",
        "amount": 12000,
        "currency": "usd",
        "payment_method_token": "acme_pm_visa_credit",
    }
    bodies = []
    for level, headers in ((0, {}), (6, {}), (6, {"contract-at": "*"})):
        app = acme_app(acme_provider(wire=WireFormat(level=level)))
        with serving(app) as address, httpx2.Client(base_url=address, trust_env=False) as http:
            bodies.append(http.post("/subscriptions", json=wanted, headers=headers).content)
    bare, full, compact = bodies
    assert contract_bytes_in(full) == len(full) - len(bare)
    assert contract_bytes_in(compact) == len(compact) - len(bare) == len(b',"at":"AbCdEf1"')


def test_headers_of_the_contract_are_counted_with_what_is_around_them():
    headers = {"Contract-At": "AbCdEf1", "contract-state": '"x"', "Content-Type": "application/json"}
    assert contract_header_bytes(headers) == len("Contract-At: AbCdEf1\r\n") + len('contract-state: "x"\r\n')


NAMED_BYTES = len("Contract-At: AbCdEf1\r\n")


def test_requests_name_their_position_and_the_first_one_asks():
    first, *rest = attempts_of(recorded("drifted", "A2D", COMPACT))
    assert first.contract_request_bytes == len("Contract-At: *;n=abcdef\r\n")
    assert {one.contract_request_bytes for one in rest} == {NAMED_BYTES}


def test_only_requests_that_carry_remembered_values_are_conditional():
    attempts = attempts_of(recorded("drifted", "A2D", PRECONDITION))
    assert all((one.contract_request_bytes > NAMED_BYTES) is bool(one.carried) for one in attempts[1:])
    assert any(one.carried for one in attempts)
    [mended] = [one for one in attempts if one.mended]
    assert (mended.episode, mended.status) == (12, 201)
    [stale], [fresh] = mended.shown, mended.mended_with
    assert mended.carried == [fresh.id]
    assert (stale.parameters, fresh.parameters) == (
        {"promo_code": "SUMMERSALE25"},
        {"promo_code": "WINTERLAUNCH26"},
    )


def test_a_server_that_never_takes_a_precondition_is_not_asked_without_end(monkeypatch):
    def forgetful_app(provider):
        app = acme_app(provider)

        async def forgetting(scope, receive, send):
            """Passes preconditions on with a position that no server has ever had."""
            headers = [
                (name, b"Unhear" + value[6:] if name == b"contract-precondition" else value)
                for name, value in scope["headers"]
            ]
            await app({**scope, "headers": headers}, receive, send)

        return forgetting

    monkeypatch.setitem(APIS, "acme", APIS["acme"]._replace(app=forgetful_app))
    planner = simulated_planner("compliant", 0, frozenset())
    records = records_of(planner, "undrifted", "A2D", conduct=PRECONDITION)
    stuck = [one for one in attempts_of(records) if one.episode == 3]
    assert [(one.status, one.mended) for one in stuck] == [(422, 2), (201, 0)]
    assert score_of(records).wire.responses == sum(one.mended + 1 for one in attempts_of(records))


def test_a_value_that_the_planner_left_out_is_not_carried():
    planner = simulated_planner("conservative", 0, frozenset())
    records = records_of(planner, "drifted", "A2D", conduct=PRECONDITION)
    governed = [one for one in attempts_of(records) if one.episode in (3, 6, 9) and one.attempt == 1]
    assert [bool(one.shown) for one in governed] == [True] * 3
    assert [one.carried for one in governed] == [[]] * 3
    assert score_of(records).stale_executions == 0


def test_a_check_asks_once_an_episode_and_only_what_it_must():
    asked = [one for one in recorded("drifted", "A2D", CHECK) if isinstance(one, Asked)]
    states = [one for one in asked if "/contract/changes?from=" in one.url]
    assert [one.episode for one in states] == list(range(1, 36))
    assert {one.status for one in states} == {200}
    answer = '{"to":"AbCdEf1","nonce":"abcdef"}'
    brief = [one.question_bytes - len(one.url) for one in states]
    assert [one.episode for one, extra in zip(states, brief, strict=True) if extra > len(answer)] == [12, 24]
    assert {extra for extra in brief if extra <= len(answer)} == {len(answer)}
    [renewed] = [one for one in asked if "/contract/fixes" in one.url]
    assert (renewed.episode, renewed.status) == (12, 200)
    head = "GET /contract/changes?from=AbCdEf1&nonce=abcdef HTTP/1.1\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"
    assert all(one.whole_bytes > len(head) for one in states)


def test_questions_and_what_a_feed_tells_are_counted_as_whole_messages():
    score = played("drifted", "A2D", FEED)
    asked = [one for one in recorded("drifted", "A2D", FEED) if isinstance(one, Asked)]
    feed, *later = [one for one in asked if one.url.endswith("/contract/changes")]
    assert feed.whole_bytes - feed.question_bytes > 200  # start lines and headers, once
    assert all(one.whole_bytes == one.question_bytes for one in later)
    wire = score.wire
    assert wire.question_whole_bytes == sum(one.whole_bytes for one in asked)
    contract = wire.contract_bytes + wire.contract_request_bytes
    whole = wire.bytes + wire.request_bytes + wire.contract_request_bytes + wire.other_header_bytes
    assert wire.contract_percent_both_ways == 100 * contract / whole
    beside = wire.question_whole_bytes
    assert wire.contract_percent_in_all == 100 * (contract + beside) / (whole + beside)


def test_a_question_comes_to_the_bytes_of_its_messages():
    """Held against what a socket has sent and got."""
    answer = b"HTTP/1.1 304 Not Modified\r\ncontract-epoch: AbCdEfGh\r\nserver: one\r\n\r\n"
    noted = []
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        server.settimeout(60)

        def answered():
            with server.accept()[0] as one:
                sent = one.recv(65536)
                one.sendall(answer)
                return sent

        sent = pool.submit(answered)
        origin = f"http://127.0.0.1:{server.getsockname()[1]}"
        with httpx2.Client(trust_env=False) as http:
            asking = Asking(http, Clock(), lambda *told: noted.append(told))
            asking.ask(Question(f"{origin}/contract/state?known=x"))
        [(_, sent_with_it, status, question_bytes, whole_bytes)] = noted
        assert sent_with_it is None
        assert (status, question_bytes) == (304, len(f"{origin}/contract/state?known=x"))
        assert whole_bytes == len(sent.result()) + len(answer)


def test_what_any_agent_does_that_is_stale_counts():
    score = played("silent", "A1", Conduct(agents=3))
    assert (score.stale_injections, score.stale_executions) == (6, 6)
    injected = played("injection", "A2D", Conduct(agents=2))
    assert (injected.injected, injected.injected_by_answers) == (21 + 27, 6)


def test_what_a_feed_tells_is_counted_and_belongs_to_the_episode_after():
    asked = [one for one in recorded("drifted", "A2D", FEED) if isinstance(one, Asked)]
    feed = [one for one in asked if one.url.endswith("/contract/changes")]
    assert [one.episode for one in feed][:3] == [0, 12, 24]
    assert all(one.question_bytes > 0 for one in feed)
    assert [one.episode for one in asked if one.url.endswith("/contract/fixes")] == [12]


@pytest.mark.parametrize("fresh", ["check", "feed"])
def test_an_arm_without_memory_asks_nothing(fresh):
    assert played("undrifted", "A0", Conduct(fresh=fresh)).wire.question_bytes == 0


def test_a_server_that_tells_nothing_cannot_be_followed():
    with pytest.raises(LabError, match="no change feed to follow"):
        recorded("undrifted", "A2D", FEED, level=0)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("drifted --level 0 --fresh feed", "there is no change feed to follow: at Level 0 a server tells"),
        ("drifted --level 0 --trust", "there are no states to sign: at Level 0 a server tells"),
        ("drifted bumping --fresh feed", "a server that bumps has no feed that tells of its state"),
    ],
)
def test_what_cannot_be_played_together_is_told_in_one_sentence_before_anything_is_played(
    flags, told, tmp_path, capsys
):
    assert main(["lab", "run", *flags.split(), "--out", str(tmp_path)]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"shelflife: {told}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("disclose", ["aliases", "counts"])
def test_states_are_signed_in_aliases_too(disclose):
    score = played("silent", "A2D", Conduct(trust=True, fresh="check", disclose=disclose))
    assert (score.completed, score.retries, score.stale_executions, score.distrusted) == (36, 6, 0, 0)


def test_a_feed_that_stays_silent_ends_the_run_with_a_sentence(monkeypatch):
    def silent_app(provider):
        app = acme_app(provider)

        async def saying_nothing(scope, receive, send):
            """Has the feed begin, and keeps all that it tells."""

            async def sent(message):
                is_feed = scope["path"] == "/contract/changes" and not scope["query_string"]
                if message["type"] != "http.response.body" or not is_feed:
                    await send(message)

            await app(scope, receive, sent)

        return saying_nothing

    monkeypatch.setitem(APIS, "acme", APIS["acme"]._replace(app=silent_app))
    spec = RunSpec("undrifted", "A2D", "compliant", conduct=Conduct(fresh="feed", form="compact"))
    planner = simulated_planner("compliant", 0, frozenset())
    with pytest.raises(LabError, match=r"has not told of the server's state within 0\.1 s"):
        play(spec, planner, lambda record: None, longest_until_heard_s=0.1)


@pytest.mark.parametrize("level", [1, 4, 5])
@pytest.mark.parametrize("conduct", [CHECK, FEED, ALL_OF_IT])
def test_nothing_stale_is_carried_out_at_any_level(level, conduct):
    score = played("silent", "A2D", conduct, level=level)
    assert (score.stale_injections, score.stale_executions, score.completed) == (0, 0, 36)


def test_with_apply_a_request_in_a_later_answer_is_conditional_too():
    score = score_of(records_of(Babbling(), "silent", "A2D", consume=Consume.APPLY, conduct=PRECONDITION))
    assert (score.mended, score.stale_executions) == (1, 0)


def test_the_answers_of_each_agent_are_its_own_when_a_run_goes_on():
    two = RunSpec("drifted", "A2D", "counting", conduct=Conduct(agents=2))
    whole, going_on = Counting(), Counting()
    first, again = [], []
    play(two, whole, first.append)
    play(two, going_on, again.append, recorded=attempts_of(first))
    assert (whole.count, going_on.count) == (36 + 7 + 36, 0)
    assert score_of(again).retries_by_agent == score_of(first).retries_by_agent


FIGURES = re.findall(
    r"(?m)^\| (drifted|silent) \| (?:none|`([^`]*)`) \| (.*) \|$",
    (Path(__file__).parents[2] / "docs" / "explanation" / "lab.md").read_text("utf-8"),
)


@pytest.mark.usefixtures("commands_find_what_was_played")
@pytest.mark.parametrize(("stream", "flags", "told"), FIGURES)
def test_the_documented_figures_are_those_that_come_out(stream, flags, told, capsys):
    assert main(["lab", "run", stream, "--arm", "A2D", "--json", *flags.split()]) == 0
    [run] = json.loads(capsys.readouterr().out)["runs"]
    wire = msgspec.convert(run["wire"], Wire)
    assert told.split(" | ") == [
        " + ".join(map(str, run["retries_by_agent"])),
        *(str(run[name]) for name in ("stale_injections", "mended", "stale_executions")),
        f"{wire.contract_percent:.1f} %",
        f"{wire.contract_percent_both_ways:.1f} %",
        f"{wire.contract_percent_in_all:.1f} %",
        str(run["wire"]["question_bytes"]),
    ]


def test_there_are_documented_figures():
    assert len(FIGURES) == 12


CONDUCTS = [PLAIN, COMPACT, CHECK, FEED, PRECONDITION, ALL_OF_IT, Conduct(agents=2), Conduct(agents=3)]


def test_runs_of_another_conduct_are_other_runs_in_other_files(tmp_path):
    specs = [RunSpec("drifted", "A2D", "compliant", conduct=conduct) for conduct in CONDUCTS]
    assert len({file_name_of(spec, load("drifted")) for spec in specs}) == len(specs)
    plain, compact = specs[:2]
    execute([compact], tmp_path)
    misnamed = tmp_path / file_name_of(plain, load("drifted"))
    (tmp_path / file_name_of(compact, load("drifted"))).rename(misnamed)
    found = []
    [score] = execute([plain], tmp_path, on_found=found.append).scores
    assert (score.spec.conduct, found) == (PLAIN, [])
    execute([plain], tmp_path, on_found=found.append)
    assert found == [36]


def test_a_run_of_the_papers_conduct_is_found_under_the_name_it_always_had():
    name = file_name_of(RunSpec("drifted", "A2D", "compliant"), load("drifted"))
    assert name.startswith("drifted--compliant--A2D--consume-3--level-6--seed-0--")


def test_records_that_know_of_no_conduct_are_of_the_papers(tmp_path):
    [score] = execute([RunSpec("undrifted", "A2D", "compliant")], tmp_path).scores
    [path] = tmp_path.iterdir()
    path.write_text(path.read_text().replace('"conduct":{', '"ignored":{'))
    assert scores_in(tmp_path) == [score]
    assert isinstance(read_records(path)[-1], RunEnded)


def test_the_table_for_people_tells_conduct_and_stale_executions_where_there_are_any(capsys):
    assert main("lab run drifted --arm A2D".split()) == 0
    plain = capsys.readouterr().out
    assert "conduct" not in plain
    assert "stale" not in plain
    assert main("lab run silent --arm A2D".split()) == 0
    assert "stale executions" in capsys.readouterr().out
    assert (
        main("lab run drifted --arm A2D --wire compact --fresh check --precondition --agents 2".split()) == 0
    )
    shown = capsys.readouterr().out
    assert "compact, check, precondition, 2 agents  0 " in shown
    assert " 6 + 0 " in shown


@pytest.mark.parametrize("arm", ["A0", "A2D"])
def test_a_planner_that_reads_what_it_needs_does_the_same_for_fewer_tokens(arm):
    whole, needed = played("drifted", arm), played("drifted", arm, Conduct(reads="needed"))
    assert figures(needed) == figures(whole)
    spared = whole.tokens.prompt - needed.tokens.prompt
    assert spared > 200 * whole.retries


def test_the_record_of_such_a_run_has_the_whole_answer_and_shows_what_the_planner_saw(tmp_path, capsys):
    main(["lab", "run", "drifted", "--arm", "A0", "--reads", "needed", "--out", str(tmp_path)])
    [path] = tmp_path.iterdir()
    assert "table_versions" in path.read_text()
    capsys.readouterr()
    main(["lab", "show", str(path)])
    shown = capsys.readouterr().out
    assert "USE_REQUIRED_PROMO" in shown
    assert "table_versions" not in shown
    assert "other messages than these" not in shown
