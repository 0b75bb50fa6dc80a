"""Answers of a model that are kept, with a server on loopback that speaks as vendors do and counts what it is asked."""

import threading
from contextlib import contextmanager

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from shelflife.cli import main
from shelflife.lab import Message, PlannerError, Proposal, Usage
from shelflife.lab.answers import Answers
from shelflife.lab.grid import execute
from shelflife.lab.planners.naming import planner_for
from shelflife.lab.planners.simulated import simulated_planner
from shelflife.lab.records import RecordsError
from shelflife.lab.scenarios import load
from shelflife.lab.spec import RunSpec
from shelflife.testing import serving

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

MODEL = "openai-api/local/any"
PROBES = 1
"""A run asks once which model is served, whatever is kept."""


class Vendor:
    """Answers chat completions as a compliant model would."""

    def __init__(self):
        self.served = "any@1"
        self.asked = []
        self.refusal = None
        self._planner = simulated_planner("compliant", 0, frozenset())

    def app(self):
        return Starlette(routes=[Route("/v1/chat/completions", self._completed, methods=["POST"])])

    async def _completed(self, http):
        request = await http.json()
        self.asked.append(request)
        if self.refusal and "temperature" in request:
            return JSONResponse({"error": {"message": self.refusal}}, 400)
        return JSONResponse(self._answer(request))

    def _answer(self, request):
        messages = [Message(one["role"], one["content"]) for one in request["messages"]]
        text = self._planner.propose(messages).text if len(messages) > 1 else "ready"
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        usage = {"prompt_tokens": 41, "completion_tokens": 7, "total_tokens": 48}
        return {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": self.served,
            "choices": [choice],
            "usage": usage,
        }


@pytest.fixture
def vendor():
    return Vendor()


@pytest.fixture
def address(vendor):
    with serving(vendor.app()) as at:
        yield f"{at}/v1"


@pytest.fixture
def play(vendor, address, tmp_path):
    """Play runs into a folder of their own, and say what they came to and how often the model was asked."""

    def played(folder, *specs, answers=tmp_path / "answers.jsonl"):
        vendor.asked.clear()
        outcome = execute(specs, tmp_path / folder, base_url=address, answers=answers)
        assert outcome.failures == []
        return outcome.scores, len(vendor.asked)

    return played


def spec(arm="A1", **settings):
    return RunSpec("undrifted", arm, MODEL, **settings)


def without_times(score):
    return {
        name: value
        for name, value in msgspec.to_builtins(score).items()
        if name not in ("spent", "started_at")
    }


def test_a_run_that_is_repeated_asks_nothing_again_and_comes_to_the_same(play):
    (before,), first_count = play("first", spec())
    (again,), second_count = play("again", spec())
    assert (first_count > 30, second_count) == (True, PROBES)
    assert without_times(again) == without_times(before)
    assert again.tokens.total == 48 * (again.episodes + again.retries)
    assert again.tokens.source == "vendor"


def test_an_arm_that_asks_the_same_costs_nothing(play):
    play("records", spec("A1"))
    _, count = play("records", spec("A2D"))
    assert count == PROBES


def test_without_a_file_nothing_is_kept(play):
    _, first_count = play("first", spec(), answers=None)
    _, second_count = play("again", spec(), answers=None)
    assert first_count == second_count > 30


def test_another_model_under_the_same_name_has_its_own_answers(play, vendor):
    _, count = play("first", spec())
    vendor.served = "any@2"
    assert play("again", spec())[1] == count


def test_another_seed_or_wording_has_its_own_answers(play):
    _, count = play("first", spec())
    assert play("seed", spec(seed=1))[1] > PROBES
    assert play("wording", spec(wording="terse"))[1] == count
    assert play("both", spec(seed=1), spec(wording="terse"))[1] == 2 * PROBES


def test_a_model_can_be_held_to_so_many_tokens_and_has_its_own_answers_then(play, vendor):
    _, count = play("first", spec())
    assert {one["max_tokens"] for one in vendor.asked[PROBES:]} == {4096}
    (score,), held_count = play("held", RunSpec("undrifted", "A1", f"{MODEL}?max_tokens=256"))
    assert held_count == count
    assert {one["max_tokens"] for one in vendor.asked[PROBES:]} == {256}
    assert {one["model"] for one in vendor.asked} == {"any"}
    assert score.spec.planner == f"{MODEL}?max_tokens=256"


@pytest.mark.parametrize("ending", ["?", "?max_tokens=", "?max_tokens=0", "?max_tokens=x", "?seed=1"])
def test_another_ending_of_a_models_name_is_refused(ending, tmp_path, capsys):
    planner = ["--planner", MODEL + ending]
    assert main(["lab", "run", "undrifted", *planner, "--out", str(tmp_path / "records")]) == 1
    told = capsys.readouterr().err
    assert f"a model's name may end in ?max_tokens=256, and not in {ending}" in told


def test_answers_of_which_no_two_need_be_the_same_are_not_kept(vendor, address, tmp_path):
    vendor.refusal = "Unsupported value: 'temperature' does not support 0 with this model."
    scenario = load("undrifted")
    with (
        pytest.raises(PlannerError, match=f"{MODEL} takes no temperature, so the same prompt may have"),
        planner_for(MODEL, 0, scenario, address, answers=tmp_path / "answers.jsonl"),
    ):
        pass
    assert not (tmp_path / "answers.jsonl").exists()


GIVEN = {
    f"key-{number}": Proposal(f'{{"n":{number}}} \N{SNOWMAN}', Usage(40 + number, 7, "vendor"), "any@1")
    for number in range(3)
}


@pytest.fixture
def kept(tmp_path):
    answers = Answers(tmp_path / "deep" / "answers.jsonl")
    for key, proposal in GIVEN.items():
        answers.add(key, proposal)
    return answers.path


def test_what_was_kept_is_there_in_full(kept):
    again = Answers(kept)
    assert {key: again.get(key) for key in GIVEN} == GIVEN
    assert again.get("another") is None


def test_a_process_that_is_killed_while_it_writes_loses_that_answer_and_no_other(kept):
    whole = kept.read_bytes()
    first, second, third = whole.splitlines(keepends=True)
    for length in range(len(third)):
        kept.write_bytes(first + second + third[:length])
        again = Answers(kept)
        assert [again.get(key) is not None for key in GIVEN] == [True, True, False]
        again.add("key-2", GIVEN["key-2"])
        assert kept.read_bytes() == whole


def test_several_may_keep_answers_in_one_file_at_once(tmp_path):
    path = tmp_path / "answers.jsonl"

    def keep(who):
        answers = Answers(path)
        for number in range(50):
            answers.add(f"{who}-{number}", Proposal("x" * 10_000, Usage(1, 1, "vendor")))

    threads = [threading.Thread(target=keep, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = Answers(path)
    assert all(found.get(f"{who}-{number}") for who in range(4) for number in range(50))
    assert len(path.read_bytes().splitlines()) == 200


@contextmanager
def told(sentence):
    with pytest.raises(RecordsError) as caught:
        yield
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_what_is_no_file_of_answers_is_one_sentence(kept, tmp_path):
    with told(f"cannot keep answers in {tmp_path}: Is a directory"):
        Answers(tmp_path)
    with kept.open("a") as file:
        file.write("[]\n")
    with told(f"{kept}, line 4, is no kept answer: "):
        Answers(kept)


@pytest.mark.parametrize("text", ["my notes", "my notes\n", "{}", '{"keys"'])
def test_a_file_of_somebody_else_is_refused_and_left_as_it_is(text, tmp_path):
    path = tmp_path / "notes"
    path.write_text(text)
    with told(f"{path}, line 1, is no kept answer: "):
        Answers(path)
    assert path.read_text() == text


def test_a_run_whose_answers_cannot_be_kept_fails_with_that_sentence(address, tmp_path, capsys):
    options = ["--planner", MODEL, "--base-url", address, "--answers", str(tmp_path)]
    assert main(["lab", "run", "undrifted", "--out", str(tmp_path / "records"), *options]) == 1
    assert f"cannot keep answers in {tmp_path}: Is a directory" in capsys.readouterr().err


def test_there_are_no_answers_to_keep_of_simulated_planners(tmp_path, capsys):
    assert main(["lab", "run", "undrifted", "--answers", str(tmp_path / "answers.jsonl")]) == 1
    sentence = "--answers keeps what models answer, and none of these planners is one"
    assert capsys.readouterr().err == f"shelflife: {sentence}\n"
    assert list(tmp_path.iterdir()) == []
