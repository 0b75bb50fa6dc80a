"""`shelflife lab show`: a recorded run as a conversation."""

import msgspec
import pytest

from shelflife.cli import main
from shelflife.lab.planners import Proposal, Usage
from shelflife.lab.records import Attempted, RecordFile, read_records
from shelflife.lab.runner import play
from shelflife.lab.spec import Conduct, Consume, RunSpec
from tests.lab.planners import Babbling
from tests.lab.played_runs import recorded, records_of


def kept(path, records):
    with RecordFile(path) as record:
        for one in records:
            record(one)
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return kept(tmp_path_factory.mktemp("records") / "run.jsonl", recorded("drifted", "A2D"))


def shown(capsys, *arguments):
    assert main(["lab", "show", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_an_episode_is_a_conversation_with_what_drifted_before_it_and_what_the_memory_did(path, capsys):
    text = shown(capsys, path, "--episode", 12)
    order = [
        "drifted: Payments, a rotation and a benign bump",
        "system:\n  You make requests to an HTTP API.",
        "=== drift after episode 11: the code of the partner plan is rotated (active_csm_codes:plan_partner_growth) ===",
        "=== episode 12: partner (governed) ===",
        "task:\n  Task: Subscribe",
        '- promo_code: "SUMMERSALE25" (added)',
        'remembered fixes that went into it:\n  USE_REQUIRED_PROMO {"promo_code":"SUMMERSALE25"}, learned in episode 0',
        "planner, attempt 1:\n  {",
        'server, 422:\n  {"success":false',
        "memory: asked http://",
        "memory: dropped (row_changed)",
        "planner, attempt 2:\n  {",
        'server, 201:\n  {"success":true',
        "completed after 2 attempts",
    ]
    places = [text.find(part) for part in order]
    assert -1 not in places
    assert places == sorted(places)
    assert "other messages" not in text


def test_without_an_episode_all_of_them_are_shown(path, capsys):
    text = shown(capsys, path)
    assert text.count("=== episode ") == 36
    assert text.count("=== drift after ") == 2
    assert text.count("completed after ") == 36


@pytest.mark.parametrize(
    ("how", "conduct"),
    [
        (Consume.LEVEL_2, Conduct()),
        (Consume.APPLY, Conduct(precondition=True)),
        (Consume.LEVEL_3, Conduct(fresh="check", agents=2)),
    ],
)
def test_what_is_shown_is_what_the_planner_was_given_however_it_is_played(how, conduct, tmp_path, capsys):
    path = kept(tmp_path / "run.jsonl", recorded("drifted", "A2D", conduct, how))
    assert "other messages" not in shown(capsys, path)


def test_an_answer_without_a_request_is_part_of_the_conversation(tmp_path, capsys):
    path = kept(tmp_path / "run.jsonl", records_of(Babbling(), "undrifted", "A0"))
    text = shown(capsys, path, "--episode", 2)
    assert "planner, attempt 1:\n  I would rather not." in text
    assert "lab:\n  There was no JSON object in your reply." in text
    assert "other messages" not in text


def test_words_that_were_changed_in_the_records_are_found_out(path, tmp_path, capsys):
    changed = [
        msgspec.structs.replace(one, task=one.task.replace("SUMMERSALE25", "AUTUMNDEAL27"))
        if isinstance(one, Attempted)
        else one
        for one in read_records(path)
    ]
    text = shown(capsys, kept(tmp_path / "run.jsonl", changed), "--episode", 12)
    assert text.count("given other messages than these") == 2


class Colourful:
    """A planner whose words would do something to a terminal."""

    name, kind = "colourful", "simulated"

    def propose(self, messages):
        return Proposal("\x1b[2J\rnothing\n", Usage(1, 1, "estimated"))


def test_what_was_said_does_nothing_to_a_terminal(tmp_path, capsys):
    with RecordFile(tmp_path / "run.jsonl") as record:
        play(RunSpec("undrifted", "A0", "colourful"), Colourful(), record)
    text = shown(capsys, tmp_path / "run.jsonl", "--episode", 0)
    assert "\\x1b[2J\\rnothing" in text
    assert text.replace("\n", "").isprintable()
    assert "given up after 5 attempts" in text


def test_what_cannot_be_shown_is_one_sentence(path, tmp_path, capsys):
    start, *rest = read_records(path)
    silent = kept(tmp_path / "silent.jsonl", [msgspec.structs.replace(start, system=""), *rest])
    (tmp_path / "empty.jsonl").write_text("")
    for arguments, told in (
        ([tmp_path / "none.jsonl"], "cannot read"),
        ([tmp_path], "is a folder: name one of its .jsonl files"),
        ([tmp_path / "empty.jsonl"], "there is no run in"),
        ([silent], "does not keep what was said: play its run again"),
        ([path, "--episode", "36"], "there is no episode 36: they are 0 to 35"),
    ):
        assert main(["lab", "show", *map(str, arguments)]) == 1
        error = capsys.readouterr().err
        assert told in error
        assert error.count("\n") == 1
