"""The leakage audit: no prompt gives an answer away."""

import pytest

from shelflife.cli import main
from shelflife.lab import audit
from shelflife.lab.apis import APIS
from shelflife.lab.audit import leaks_in
from shelflife.lab.scenarios import load, parse
from tests.lab.small_stream import SMALL
from tests.lab.streams import SHORT


@pytest.mark.parametrize("arm", ["A0", "A1"])
@pytest.mark.parametrize("stream", SHORT)
def test_no_prompt_of_a_shipped_stream_gives_an_answer_away(stream, arm):
    """Nobody is shown more than one who forgets nothing, and nobody less than one who keeps nothing."""
    assert leaks_in(load(stream), arm) == []


@pytest.mark.parametrize("stream", ["drifted", "rules", "recipes"])
def test_nor_does_one_that_is_shown_to_who_forgets_what_has_changed(stream):
    assert leaks_in(load(stream), "A2D") == []


def test_an_answer_in_the_system_prompt_is_found(monkeypatch, capsys):
    told = APIS["acme"]._replace(fields="promo_code (such as SUMMERSALE25 or WINTERLAUNCH26)")
    monkeypatch.setitem(APIS, "acme", told)
    leaks = leaks_in(load("drifted"), "A1")
    assert {leak.value for leak in leaks if leak.episode == 0} == {"SUMMERSALE25", "WINTERLAUNCH26"}
    assert {leak.value for leak in leaks if leak.episode == 9} == {"WINTERLAUNCH26"}
    assert len(leaks_in(load("drifted"), "A0")) > len(leaks)
    assert main(["lab", "check", "drifted"]) == 1
    assert "gives answers away in its prompts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Subscribe to {plan}.", "Subscribe to {plan} with SUMMERSALE25."),
        ('customer = "c"\nplan', 'customer = "SUMMERSALE25"\nplan'),
        ("[[drift]]", '[varied]\ncustomer = ["d", "e", "f", "SUMMERSALE25"]\n[[drift]]'),
    ],
)
@pytest.mark.parametrize("field", ["", 'field = "promo_code"\n'])
def test_an_answer_that_the_stream_itself_has_in_a_task_is_found(old, new, field):
    assert old in SMALL
    text = SMALL.replace(old, new, 1).replace('hint = "add', f'{field}hint = "add')
    leaks = leaks_in(parse(text, "small.toml"), "A0")
    assert (0, "SUMMERSALE25") in {(leak.episode, leak.value) for leak in leaks}
    assert leaks_in(parse(SMALL, "small.toml"), "A0") == []


def test_numbers_and_truth_values_are_answers_too():
    assert list(audit._scalars({"a": [1, {"b": True}], "c": 2.5, "d": None})) == ["1", "true", "2.5"]


@pytest.mark.parametrize("consume", ["2", "3"])
def test_both_ways_of_showing_a_fix_are_looked_through(monkeypatch, consume):
    played = audit.play

    def play_one_way(*args, **options):
        if args[0].consume == consume:
            monkeypatch.setitem(APIS, "acme", APIS["acme"]._replace(fields="promo_code (WINTERLAUNCH26)"))
            played(*args, **options)

    monkeypatch.setattr(audit, "play", play_one_way)
    assert leaks_in(load("drifted"), "A1")
