"""Runs are recorded as they go, and go on where they stopped."""

import json
import os
import signal

import msgspec
import pytest

from shelflife.cli import main
from shelflife.client import Condition, Entry, Grounds
from shelflife.contract.merging import merged
from shelflife.lab.apis import APIS
from shelflife.lab.grid import execute, file_name_of, paper_grid, scores_in
from shelflife.lab.planners import Message, PlannerError, Proposal
from shelflife.lab.planners.simulated import simulated_planner
from shelflife.lab.prompting import Turn, messages_for, request_in
from shelflife.lab.records import Asked, Attempted, Model, RecordFile, RecordsError, read_records
from shelflife.lab.runner import play
from shelflife.lab.scenarios import load, parse
from shelflife.lab.scores import as_json, is_whole, score_of
from shelflife.lab.spec import Consume, RunSpec
from tests.lab.planners import Babbling, Counting
from tests.lab.played_runs import played, records_of
from tests.lab.small_stream import SMALL


def test_the_papers_grid_is_250_runs_over_9432_episodes():
    specs = paper_grid()
    assert len(set(specs)) == 250
    assert sum(len(load(spec.stream).order) for spec in specs) == 9432
    assert sum(spec.stream == "drifted" for spec in specs) == 114
    assert sum(spec.stream == "recipes" for spec in specs) == 36
    assert len({file_name_of(spec, load(spec.stream)) for spec in specs}) == 250


def test_a_run_that_is_recorded_whole_is_not_played_again(tmp_path):
    specs = [RunSpec("undrifted", "A2D", "compliant"), RunSpec("undrifted", "A0", "compliant")]
    first = execute(specs, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = execute(specs, tmp_path)
    assert again == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert scores_in(tmp_path) == sorted(first.scores, key=lambda score: score.spec.arm)


def test_jobs_play_the_same_runs(tmp_path):
    specs = [
        RunSpec("undrifted", arm, "sim:gemini-3.5-flash", seed) for arm in ("A1", "A2D") for seed in (0, 1)
    ]
    done = []
    by_jobs = execute(specs, tmp_path / "jobs", job_count=2, on_episodes=done.append)
    alone = execute(specs, tmp_path / "alone")
    assert sum(done) == 4 * 36
    for left, right in zip(by_jobs.scores, alone.scores, strict=True):
        assert (left.retries, left.tokens, left.classes) == (right.retries, right.tokens, right.classes)


INTERRUPTED = """
import sys
from pathlib import Path
from shelflife.lab.spec import RunSpec
from shelflife.lab.grid import execute

played = []

def report(count):
    print("episode", flush=True)
    played.append(count)
    if len(played) == 10:
        sys.stdin.read()  # until it is killed

execute([RunSpec("drifted", "A2D", "compliant")], Path(sys.argv[1]), on_episodes=report)
"""


def test_a_run_that_was_killed_leaves_its_records_and_is_played_to_its_end(tmp_path, nursery):
    with nursery.forked(INTERRUPTED, tmp_path) as process:
        for _ in range(10):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    [path] = tmp_path.iterdir()
    assert not is_whole(read_records(path))
    assert scores_in(tmp_path) == []
    [score] = execute([RunSpec("drifted", "A2D", "compliant")], tmp_path).scores
    assert (score.episodes, score.retries) == (36, 7)


def test_a_model_is_not_asked_again_what_it_has_answered(tmp_path):
    spec, model = RunSpec("drifted", "A2D", "counting"), Model("counting", "counting-1")
    broken = Counting(breaks_at=21)
    with RecordFile(tmp_path / "run.jsonl") as record, pytest.raises(PlannerError):
        play(spec, broken, record, model=model)
    recorded = [one for one in read_records(tmp_path / "run.jsonl") if isinstance(one, Attempted)]
    assert len(recorded) == 20
    going_on, records = Counting(), []
    play(spec, going_on, records.append, recorded=recorded, model=model)
    score = score_of(records)
    assert score.retries == 7
    assert going_on.count == 36 + 7 - 20
    assert (score.tokens.prompt, score.tokens.source) == (43 * 1000, "vendor")
    assert score.planner_kind == "model"
    assert score.model == Model("counting", "counting-1")


def test_an_answer_without_a_request_costs_an_attempt_and_no_more():
    records = records_of(Babbling(), "undrifted", "A0")
    score = score_of(records)
    assert score.first_try == 0
    assert score.wire.responses < sum(isinstance(one, Attempted) for one in records)


@pytest.mark.parametrize("planner", [Babbling, Counting])
def test_with_apply_the_first_request_is_amended_whichever_answer_it_is_in(planner):
    records = records_of(planner(), "undrifted", "A2D", consume=Consume.APPLY)
    told = [one for one in records if isinstance(one, Attempted) and one.episode == 3]
    assert [one.status for one in told if one.status] == [201]
    assert [bool(one.shown) for one in told] == [one.status is not None for one in told]


class Stammering(Counting):
    """A planner that utters half a character."""

    def propose(self, messages):
        proposal = super().propose(messages)
        return Proposal(
            f"\ud83d {proposal.text}", proposal.usage, "counting-2" if self.count > 40 else "counting-1"
        )


def test_half_a_character_in_an_answer_does_no_harm(tmp_path):
    with RecordFile(tmp_path / "run.jsonl") as record:
        play(
            RunSpec("drifted", "A2D", "counting"),
            Stammering(),
            record,
            model=Model("counting", "counting-1"),
        )
    score = score_of(read_records(tmp_path / "run.jsonl"))
    assert score.retries == 7
    assert score.model == Model("counting", "counting-1, counting-2")


def test_the_questions_of_the_memory_are_counted_apart():
    records = records_of(Counting(), "drifted", "A2D")
    asked = [one for one in records if isinstance(one, Asked)]
    assert all("/contract/changes" in one.url and one.status == 200 for one in asked)
    score = score_of(records)
    assert score.wire.question_bytes == sum(one.question_bytes for one in asked) > 0
    assert score.spent.questions_s > 0
    assert "type" not in as_json(score)["spent"]


def test_tokens_are_the_vendors_only_if_all_of_them_are():
    records = records_of(Counting(), "undrifted", "A0")
    first, *_ = (one for one in records if isinstance(one, Attempted))
    mixed = [
        msgspec.structs.replace(one, token_source="estimated") if one is first else one for one in records
    ]
    assert score_of(records).tokens.source == "vendor"
    assert score_of(mixed).tokens.source == "estimated"


def test_memory_has_a_chance_only_where_the_family_meets_a_constraint():
    free = (
        SMALL.replace('["a", "b"]', '["a", "b", "a", "b"]')
        .replace('hint = "add a field"\ntask = "Again."', 'task = "Again."')
        .replace("plan_partner_scale", "plan_basic_annual", 1)
        .replace("[[drift]]\nafter = 0", "[[drift]]\nafter = 3")
    )
    records = []
    scenario = parse(free.replace("stale_slots = [1]", ""), "small.toml")
    play(RunSpec("small", "A2D", "counting"), Counting(), records.append, scenario=scenario)
    score = score_of(records)
    assert score.classes["g"].episodes == 4
    assert (score.saving.chances, score.saving.valid, score.saving.complied) == (1, 1, 1)
    assert score.hints == {"a": "add a field"}


@pytest.mark.parametrize(("level", "right", "count"), [(1, 4, 10), (4, 1, 4)])
def test_evictions_are_judged_by_what_the_server_would_give_whatever_the_wire_names(level, right, count):
    """At Level 1 a fix is for the identical request, so there are more of them."""
    score = played("drifted", "A2", level=level)
    assert (score.evictions, score.eviction_precision) == (count, right / count)


@pytest.mark.parametrize(
    ("reply", "request_found"),
    [
        ('{"a": 1}', {"a": 1}),
        ('```json\n{"a": {"b": 2}}\n```', {"a": {"b": 2}}),
        ('Here it is: {"a": 1}. Good luck!', {"a": 1}),
        ("no", None),
        ("}{", None),
        ("[1]", None),
        ('{"a": 1} or {"a": 2}', None),
        ("{" * 5000 + "}" * 5000, None),
    ],
)
def test_the_request_is_read_out_of_a_reply(reply, request_found):
    assert request_in(reply) == request_found


def test_an_unknown_arm_planner_or_stream_is_one_sentence(capsys):
    for arguments, told in (
        ("lab run drifted --arm A9", "there is no arm 'A9'"),
        ("lab run drfted", "no such stream; there are bumping"),
        ("lab run drifted --planner sim:hal", "there is no preset 'hal'"),
        ("lab run drifted --planner seeded:add=2", "between 0 and 1"),
        ("lab run drifted --planner seeded:luck=1", "is no seeded planner"),
        ("lab run drifted --match family", "play it with --level 1 or 4, and with no other conduct"),
        ("lab run drifted --level 1 --match family --fresh check", "with no other conduct"),
    ):
        assert main(arguments.split()) == 1
        assert told in capsys.readouterr().err


def test_records_that_cannot_be_written_or_read_are_one_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    assert main(["lab", "run", "undrifted", "--arm", "A0", "--out", str(tmp_path / "file" / "sub")]) == 1
    assert "cannot write" in capsys.readouterr().err
    (tmp_path / "bad.jsonl").write_text('{"type": "nonsense"}\n')
    with pytest.raises(RecordsError, match=r"bad\.jsonl, line 1, is no record"):
        scores_in(tmp_path)


def test_the_table_for_people_says_what_is_simulated(tmp_path, capsys):
    assert main(["lab", "run", "drifted", "--arm", "A2", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "1 + 3" in shown
    assert "Planners: simulated. Server, memory and wire are real." in shown
    assert json.loads((next(tmp_path.iterdir())).read_text().splitlines()[0])["type"] == "run started"


def test_a_planner_sees_the_task_the_memory_and_the_answers_and_nothing_else():
    [episode, *_] = load("drifted").episodes(0)
    before = [Turn('{"a":1}', 422, '{"success":false}'), Turn("what?", None, "")]
    messages = messages_for(APIS["acme"], episode, Consume.LEVEL_3, [], before)
    assert [message.role for message in messages] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert messages[1] == Message(
        "user", f"Task: {episode.task}\n\nInput:\n{json.dumps(episode.input, separators=(',', ':'))}\n"
    )
    assert messages[3].content.startswith('The server answered 422:\n{"success":false}\n')
    assert messages[5].content.startswith("There was no JSON object in your reply.")


@pytest.mark.parametrize("value", ["a | b", ") | (was", {"x": "y | (added)"}, 3, None])
@pytest.mark.parametrize("consume", [Consume.LEVEL_2, Consume.LEVEL_3])
def test_a_simulated_planner_reads_values_and_tasks_that_look_like_marks(value, consume):
    marked = "Input:\n{} and Input, with amendments already made:\n{}"
    [episode, *_] = load("drifted").episodes(0)
    task_input = {"plan": "p \u2028 | q", "brand": "was | (added)"}
    episode = msgspec.structs.replace(episode, task=marked, input=task_input)
    entries = [fix({"brand": value}), fix({"code": "x | y"}), fix({"code": "z"})]
    for name, code in (("compliant", "x | y"), ("compliant-last", "z")):
        messages = messages_for(APIS["acme"], episode, consume, entries, [])
        proposed = simulated_planner(name, 0, frozenset()).propose(messages)
        assert request_in(proposed.text) == merged(task_input, {"brand": value, "code": code})
    declined = simulated_planner("forgetful", 0, frozenset()).propose(messages)
    assert request_in(declined.text) == task_input


def fix(parameters):
    return Entry(
        root="http://x",
        operation="POST /subscriptions",
        type="t",
        parameters=parameters,
        condition=Condition({}),
        grounds=Grounds((), {}, ()),
        learned_at=0,
    )
