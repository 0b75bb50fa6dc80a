"""The base prompt in several wordings: the plain one as it always was, and planners that read all of them alike."""

import functools
import string

import msgspec
import pytest

from shelflife.cli import main
from shelflife.client.prompts import MERGE_INSTRUCTION
from shelflife.lab.apis import APIS
from shelflife.lab.grid import file_name_of
from shelflife.lab.planners.simulated import simulated_planner
from shelflife.lab.prompting import Turn, messages_for
from shelflife.lab.records import RecordFile, RunStarted, read_records
from shelflife.lab.runner import LabError, play
from shelflife.lab.scenarios import load
from shelflife.lab.scores import score_of
from shelflife.lab.spec import Consume, RunSpec
from shelflife.lab.transcripts import transcript_of
from shelflife.lab.wordings import wording_of_system, wordings
from tests.lab.planners import Babbling
from tests.lab.played_runs import attempts_of, records_of

OTHERS = [name for name in wordings() if name != "plain"]
PLACES = {"system": {"operation", "fields"}, "task": {"task"}, "answered": {"status"}}


def test_there_are_several():
    assert len(OTHERS) >= 2


@pytest.mark.parametrize("name", wordings())
def test_a_wording_has_its_values_where_they_belong(name):
    said = msgspec.to_builtins(wordings()[name])
    for part, text in {**said, **said["memory"]}.items():
        if part != "memory":
            places = {field for _, field, *_ in string.Formatter().parse(text) if field}
            assert places - {"merge"} == PLACES.get(part, set())
            assert text == text.strip()
            assert part == "system" or "\n" not in text


@pytest.mark.parametrize("name", wordings())
def test_a_wording_is_known_by_how_it_begins(name):
    assert wording_of_system(wordings()[name].system) == wordings()[name]
    assert wording_of_system("Something else.") == wordings()["plain"]


def test_the_plain_wording_is_word_for_word_what_it_was():
    episode = next(iter(load("undrifted").episodes(0)))
    before = [Turn('{"a":1}', 422, '{"success":false}'), Turn("what?", None, "")]
    system, task, *since = messages_for(APIS["acme"], episode, Consume.LEVEL_3, [], before)
    assert system.content == (
        "You make requests to an HTTP API. The operation is POST /subscriptions, with a JSON body of these fields:"
        f" {APIS['acme'].fields}.\n"
        "Reply with the JSON body of the next request: one JSON object, and nothing else.\n"
        "Merge the suggestion parameters into your next request verbatim; do not paraphrase or omit fields."
    )
    assert system.content.endswith(MERGE_INSTRUCTION)
    assert task.content == (
        f"Task: {episode.task}\n\nInput:\n{msgspec.json.encode(episode.input).decode()}\n"
    )
    assert [one.content for one in since] == [
        '{"a":1}',
        'The server answered 422:\n{"success":false}\n\nReply with the JSON body of the next request.',
        "what?",
        "There was no JSON object in your reply.\n\nReply with the JSON body of the next request.",
    ]


def outcome(records):
    """All that a run came to, but for its words and their tokens."""
    score = msgspec.to_builtins(score_of(records))
    for name in ("tokens", "spent", "started_at"):
        del score[name]
    for since in score["by_event"]:
        del since["tokens"]
    del score["spec"]["wording"]
    return score


@pytest.mark.parametrize("wording", OTHERS)
@pytest.mark.parametrize("consume", ["2", "3"])
@pytest.mark.parametrize(
    ("planner", "stream"),
    [
        ("compliant", "drifted"),
        ("compliant-last", "recipes"),
        ("conservative", "drifted"),
        ("seeded:add=0.5,rewrite=0.5,conditional=0.5,last=0.5,follow=0.5,guess=0.5", "drifted"),
    ],
)
def test_simulated_planners_come_to_the_same_in_every_wording(planner, stream, consume, wording):
    assert played_in(wording, planner, stream, consume) == played_in("plain", planner, stream, consume)


@functools.cache
def played_in(wording, planner, stream, consume):
    one = simulated_planner(planner, 0, frozenset({"amount"}))
    return outcome(records_of(one, stream, "A1", consume=consume, wording=wording))


@pytest.mark.parametrize("wording", OTHERS)
def test_no_sentence_of_the_plain_wording_is_left_in_another(wording):
    plain = msgspec.to_builtins(wordings()["plain"])
    attempts = attempts_of(records_of(Babbling(), "drifted", "A1", wording=wording))
    told = [line for one in attempts for line in one.task.split("\n")]
    for text in (plain["input"], plain["memory"]["amended"], plain["memory"]["amendments"]):
        assert text not in told


@pytest.mark.parametrize("wording", wordings())
def test_a_record_keeps_the_words_so_that_a_transcript_is_what_was_said(wording, tmp_path):
    with RecordFile(tmp_path / "run.jsonl") as record:
        play(RunSpec("undrifted", "A1", "counting", wording=wording), Babbling(), record)
    records = read_records(tmp_path / "run.jsonl")
    assert isinstance(records[0], RunStarted)
    assert (records[0].spec.wording, records[0].wording) == (wording, wordings()[wording])
    told = "\n\n".join(transcript_of(records))
    assert wordings()[wording].no_request in told
    assert "other messages than these" not in told
    assert ("wording" in told.split("\n")[1]) == (wording != "plain")


def test_records_from_before_there_were_wordings_have_the_plain_one():
    start, *rest = records_of(Babbling(), "undrifted", "A1")
    before = msgspec.structs.replace(start, wording=None)
    assert "other messages than these" not in "\n\n".join(transcript_of([before, *rest]))


def test_a_run_in_another_wording_has_a_file_of_its_own_and_those_of_the_plain_one_keep_theirs():
    scenario = load("drifted")
    plain, terse = (
        file_name_of(RunSpec("drifted", "A1", "compliant", wording=name), scenario)
        for name in ("plain", "terse")
    )
    assert "terse" in terse
    assert "plain" not in plain


def test_the_table_of_runs_says_which_was_said_in_which_words(capsys):
    assert main(["lab", "run", "undrifted", "--arm", "A0", "--wording", "plain", "--wording", "terse"]) == 0
    heads, *rows = (line.split() for line in capsys.readouterr().out.split("\n")[:3])
    assert [row[heads.index("wording")] for row in rows] == ["plain", "terse"]
    assert main(["lab", "run", "undrifted", "--arm", "A0"]) == 0
    assert "wording" not in capsys.readouterr().out


def test_a_wording_that_there_is_not_is_answered_with_those_that_there_are(capsys):
    told = "there is no wording 'rude'; there are plain, terse, formal"
    with pytest.raises(LabError, match=told):
        play(RunSpec("undrifted", "A1", "counting", wording="rude"), Babbling(), print)
    assert main(["lab", "run", "undrifted", "--wording", "rude"]) == 1
    assert capsys.readouterr().err == f"shelflife: {told}\n"
