"""A model as a planner, against servers that others wrote to stand in for the vendors: aimock and llmock."""

import os
import socket
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shelflife.lab import Message, ModelPlanner, PlannerError, Probe, Proposal, Usage
from tests.node_servers import serving_by_node

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

VENDORS = Path(__file__).parent / "vendors"
AIMOCK = VENDORS / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
KEY = "sk-aimock-0123456789"
CALLED = [Message("system", "You call an API."), Message("user", "subscribe ada")]
MADE = '{"plan":"growth"}'


@pytest.fixture(autouse=True)
def a_bare_environment(monkeypatch, tmp_path):
    """No keys and no proxies, and a folder of its own."""
    for name in list(os.environ):
        if name.upper().endswith(("_API_KEY", "_BASE_URL", "_PROXY")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def nothing_is_printed_or_written(a_bare_environment, capfd, tmp_path):
    """inspect-ai has a terminal of its own and logs; the lab must see neither."""
    yield
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def aimock():
    """The address of a server that speaks as several vendors do, and knows one key."""
    answers = ("--fixtures", VENDORS / "answers.json")
    with serving_by_node(AIMOCK, "--port", "0", *answers, AIMOCK_API_KEYS=KEY) as address:
        yield address


def planner_for(model, base_url=None, **options):
    """One that loses no time."""
    return ModelPlanner(model, base_url=base_url, **{"backoff_s": 0.01, "max_retries": 1, **options})


VENDOR_PATHS = {
    "openai/gpt-5-mini": "/v1",
    "openai/gpt-4.1-mini": "/v1",
    "openai-api/anyone/their-model": "/v1",
    "deepseek/deepseek-chat": "/v1",
    "anthropic/claude-sonnet-5-5": "",
    "google/gemini-2.5-flash": "",
}


@pytest.mark.parametrize("model", VENDOR_PATHS)
def test_every_vendor_is_asked_and_its_own_count_of_tokens_taken_over(aimock, monkeypatch, model):
    monkeypatch.setenv("GOOGLE_GENAI_API_VERSION", "beta")
    with planner_for(model, aimock + VENDOR_PATHS[model], api_key=KEY, seed=7) as planner:
        assert (planner.name, planner.kind, planner.probed) == (model, "model", None)
        proposal = planner.propose(CALLED)
        assert (proposal.text, proposal.usage) == (MADE, Usage(41, 7, "vendor"))


@pytest.mark.parametrize("model", [model for model in VENDOR_PATHS if not model.startswith("google")])
def test_the_model_that_was_served_is_recorded_beside_the_one_that_was_asked_for(aimock, model):
    with planner_for(model, aimock + VENDOR_PATHS[model], api_key=KEY) as planner:
        probed = planner.probe()
        assert (probed.requested, probed.served) == (model, "a-model-of-last-month")
        assert planner.probed is probed
        assert isinstance(probed, Probe)
        assert planner.propose(CALLED).served == "a-model-of-last-month"


@pytest.mark.parametrize("model", ["openai/gpt-5-mini", "openai/gpt-4.1-mini", "anthropic/claude-sonnet-5-5"])
def test_no_call_is_made_but_the_one_that_is_recorded(llmock, model):
    with planner_for(model) as planner:
        planner.propose(CALLED)
    assert len(llmock.requests) == 1


def test_a_whole_conversation_is_sent(llmock):
    conversation = [
        Message("system", "You call an API."),
        Message("user", "subscribe ada"),
        Message("assistant", "{}"),
        Message("user", "the plan is missing"),
    ]
    with planner_for("openai-api/local/any?max_tokens=300", llmock.base_url(), seed=7) as planner:
        planner.propose(conversation)
    sent = llmock.last_request.body
    assert [(message["role"], message["content"]) for message in sent["messages"]] == [
        (message.role, message.content) for message in conversation
    ]
    assert (sent["model"], sent["temperature"], sent["seed"], sent["max_tokens"]) == ("any", 0, 7, 300)


@pytest.mark.parametrize("wish", ["think with a cache", "fill a cache"])
def test_tokens_of_caches_and_of_reasoning_are_billed(aimock, wish):
    with planner_for("openrouter/any/model", f"{aimock}/api/v1", api_key=KEY) as planner:
        proposal = planner.propose([Message("user", wish)])
    assert proposal.usage == Usage(1000, 90, "vendor")


def test_tokens_that_no_server_has_counted_are_estimated(aimock):
    with planner_for("openai-api/local/any", f"{aimock}/v1", api_key=KEY) as planner:
        proposal = planner.propose([Message("user", "count nothing")])
    assert proposal == Proposal("12345678", Usage(4, 2, "estimated"), "any")


def test_a_server_on_this_machine_needs_no_key(llmock):
    with planner_for("openai-api/local/any", llmock.base_url()) as planner:
        assert planner.probe().served == "any"


def test_a_rate_limit_is_waited_out_as_long_as_the_vendor_asks(llmock):
    llmock.rate_limit(times=1, retry_after=0.5)
    with planner_for("openai/gpt-4.1-mini") as planner:
        assert planner.propose(CALLED).text
    assert len(llmock.requests) == 2
    llmock.assert_resilient()


@pytest.mark.parametrize("model", ["openai/gpt-5-mini", "anthropic/claude-sonnet-5-5"])
def test_a_failure_of_the_server_is_tried_again(llmock, model):
    llmock.fail(503, retry_after=0)
    with planner_for(model) as planner:
        assert planner.propose(CALLED).text
    assert len(llmock.requests) == 2


def test_a_model_that_refuses_a_temperature_is_asked_without_from_then_on(llmock):
    llmock.fail(400, message="Unsupported value: 'temperature' does not support 0 with this model.")
    with planner_for("openai-api/local/any", llmock.base_url()) as planner:
        planner.propose(CALLED)
        planner.propose(CALLED)
    assert ["temperature" in request.body for request in llmock.requests] == [True, False, False]


def test_planners_share_a_loop_and_outlive_one_another(llmock):
    with planner_for("openai-api/local/one", llmock.base_url()) as one:
        with planner_for("openai-api/local/two", llmock.base_url()) as two:
            assert [one.propose(CALLED).served, two.propose(CALLED).served] == ["one", "two"]
        assert one.propose(CALLED).served == "one"
    with planner_for("openai-api/local/three", llmock.base_url()) as three:
        assert three.propose(CALLED).served == "three"


def test_a_planner_can_be_asked_from_several_threads_at_once(llmock):
    with planner_for("openai-api/local/any", llmock.base_url()) as planner, ThreadPoolExecutor(4) as threads:
        proposals = list(threads.map(planner.propose, [CALLED] * 12))
    assert {proposal.served for proposal in proposals} == {"any"}
    assert len(llmock.requests) == 12


def test_a_closed_planner_says_so_and_may_be_closed_again(llmock):
    planner = planner_for("openai-api/local/any", llmock.base_url())
    planner.close()
    planner.close()
    assert failing(planner.probe) == "the planner for openai-api/local/any is closed"


def test_a_planner_that_nobody_holds_any_more_is_closed(llmock):
    before = threading.active_count()
    planner = planner_for("openai-api/local/any", llmock.base_url())
    assert threading.active_count() == before + 1
    del planner
    assert threading.active_count() == before


def test_the_hook_for_uncaught_errors_stays_the_users(llmock):
    hook = sys.excepthook
    with planner_for("openai-api/local/any", llmock.base_url()):
        assert sys.excepthook is hook


def failing(ask, *arguments, **options):
    """The one sentence of what fails."""
    with pytest.raises(PlannerError) as caught:
        ask(*arguments, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert KEY not in sentence
    told = "".join(traceback.format_exception(caught.value))
    assert told.count("Traceback") == 1, "the vendor's own errors are none of people's business"
    return sentence


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            "gpt-5-mini",
            "a model is named by its provider and its name, as in openai/gpt-5-mini, and 'gpt-5-mini' is not",
        ),
        (
            "opnai/gpt-5-mini",
            "there is no provider 'opnai'; there are anthropic, openai, google, deepseek and others,"
            " and openai-api/<service>/<model> for any address that speaks OpenAI's API",
        ),
        ("openai/gpt-5-mini", "openai/gpt-5-mini needs a key: set OPENAI_API_KEY"),
        ("anthropic/claude-x", "anthropic/claude-x needs a key: set ANTHROPIC_API_KEY"),
        ("google/gemini-x", "google/gemini-x needs a key: set GOOGLE_API_KEY"),
        ("deepseek/deepseek-chat", "deepseek/deepseek-chat needs a key: set DEEPSEEK_API_KEY"),
        ("openai-api/their/model", "openai-api/their/model needs a key: set THEIR_API_KEY"),
    ],
)
def test_what_a_model_lacks_is_said_when_the_planner_is_made(model, sentence):
    assert failing(ModelPlanner, model) == sentence


def test_a_compatible_server_without_an_address():
    sentence = failing(ModelPlanner, "openai-api/their/model", api_key=KEY)
    assert sentence == "openai-api/their/model needs an address: give its base URL or set THEIR_BASE_URL"


@pytest.mark.parametrize(
    ("module", "model", "sentence"),
    [
        ("openai", "openai/gpt-x", "openai/gpt-x needs the package openai: pip install 'shelflife[models]'"),
        (
            "anthropic",
            "anthropic/claude-x",
            "anthropic/claude-x needs the package anthropic: pip install 'shelflife[anthropic]'",
        ),
        (
            "google.genai",
            "google/gemini-x",
            "google/gemini-x needs the package google-genai: pip install 'shelflife[google]'",
        ),
        ("groq", "groq/any", "groq/any needs the package groq: pip install groq"),
    ],
)
def test_a_vendors_package_that_is_not_installed(monkeypatch, module, model, sentence):
    monkeypatch.setitem(sys.modules, module, None)
    assert failing(ModelPlanner, model, api_key=KEY) == sentence


@pytest.mark.parametrize("model", ["openai/gpt-x", "anthropic/claude-x"])
def test_an_address_at_which_nobody_listens_is_not_tried_again(model):
    with socket.create_server(("127.0.0.1", 0)) as free:
        host = f"127.0.0.1:{free.getsockname()[1]}"
    with planner_for(model, f"http://{host}", api_key=KEY, backoff_s=1000) as planner:
        assert failing(planner.probe) == f"{model} cannot be reached: nobody answers at {host}"


@pytest.mark.parametrize("model", ["openai/gpt-5-mini", "anthropic/claude-sonnet-5-5"])
def test_a_key_that_is_not_the_vendors(aimock, model):
    with planner_for(model, aimock + VENDOR_PATHS[model], api_key="sk-wrong-9876543210") as planner:
        sentence = failing(planner.probe)
    assert sentence == f"{model} refuses the key (401); check that it is right and may use this model"


def test_a_model_that_is_not_there(llmock):
    llmock.fail(404, message="The model `any` does not exist")
    with planner_for("openai-api/local/any", llmock.base_url()) as planner:
        sentence = failing(planner.probe)
    assert sentence == "openai-api/local/any is not known there (404): The model `any` does not exist"


@pytest.mark.parametrize("model", ["openai/gpt-4.1-mini", "anthropic/claude-sonnet-5-5"])
def test_a_rate_limit_that_does_not_end(llmock, model):
    llmock.fail(429, times=None, retry_after=0, message="Slow down.")
    with planner_for(model) as planner:
        assert failing(planner.propose, CALLED) == f"{model} limits the rate (429), in 2 tries: Slow down."
    assert len(llmock.requests) == 2


def test_a_wait_that_is_too_long_to_sit_out(llmock):
    llmock.rate_limit(times=None, retry_after=3600)
    with planner_for("openai/gpt-4.1-mini") as planner:
        sentence = failing(planner.propose, CALLED)
    assert sentence.startswith("openai/gpt-4.1-mini limits the rate (429), and trying again would not help: ")
    assert len(llmock.requests) == 1


def test_a_server_that_is_down(llmock):
    llmock.fail(503, times=None, retry_after=0)
    with planner_for("openai/gpt-4.1-mini") as planner:
        sentence = failing(planner.propose, CALLED)
    assert sentence.startswith("openai/gpt-4.1-mini failed (503), in 2 tries: ")


def test_a_request_that_the_vendor_refuses_is_quoted_short_and_without_the_key(llmock):
    llmock.fail(422, message=f"{KEY} is no good " + "at all " * 100)
    with planner_for("openai-api/local/any", llmock.base_url(), api_key=KEY) as planner:
        sentence = failing(planner.propose, CALLED)
    assert sentence.startswith("openai-api/local/any refuses the request (422): … is no good at all")
    assert len(sentence) < 300


def test_a_conversation_that_is_too_long_for_the_model(llmock, caplog):
    llmock.context_overflow()
    with planner_for("openai/gpt-4.1-mini") as planner:
        assert planner.propose(CALLED).text == ""
    assert "the conversation is longer than openai/gpt-4.1-mini can read" in caplog.messages


def test_a_server_that_does_not_answer_in_time():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        with planner_for("openai-api/local/any", address, timeout_s=1, max_retries=0) as planner:
            sentence = failing(planner.propose, CALLED)
    assert sentence == "openai-api/local/any did not answer within 1 s, in one try"


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ("say something bad", "openai-api/local/any withheld its answer (content filter)"),
        ("say nothing", "openai-api/local/any gave an empty answer"),
        (
            "think too long",
            "openai-api/local/any used up its 4096 tokens before it came to an answer; allow it more",
        ),
    ],
)
def test_an_answer_that_is_withheld_is_empty_and_told(aimock, wish, sentence, caplog):
    with planner_for("openai-api/local/any", f"{aimock}/v1", api_key=KEY) as planner:
        assert planner.propose([Message("user", wish)]).text == ""
    assert sentence in caplog.messages
