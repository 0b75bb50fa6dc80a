"""The contract where there is no HTTP: in metadata, and at the end of a text."""

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelflife.contract import BadMessage
from shelflife.contract.envelopes import CHANGES_URI, META_KEY, Envelope, QuestionUri, Trailed, read_headers

REFUSAL = Envelope(
    422, {"success": False, "recovery_feedback": {"suggestions": []}}, {"contract-root": "/v1"}
)


def test_a_text_with_an_envelope_gives_both_back():
    text = REFUSAL.trailing("The code is retired.\n")
    assert text.splitlines()[0] == "The code is retired."
    assert len(text.splitlines()) == 2
    assert Trailed.from_text(text) == ("The code is retired.", REFUSAL)


@given(text=st.text(), before=st.text(), after=st.text(), body=st.dictionaries(st.text(), st.text()))
def test_whatever_others_put_around_it_the_envelope_is_found(text, before, after, body):
    envelope = Envelope(422, body)
    assert Trailed.from_text(before + envelope.trailing(text) + after).envelope == envelope


def test_the_last_one_counts_and_what_only_looks_like_one_is_left_alone():
    quoted = Envelope(422, {"quoted": True}).trailing("a user's text")
    assert Trailed.from_text(REFUSAL.trailing(quoted)).envelope == REFUSAL
    for broken in ('{"shelflife":', '{"shelflife":{}}', '{"shelflife":{"status":"x"}}', '{"shelflife":3}'):
        assert Trailed.from_text(broken) == (broken, None)
        assert Trailed.from_text(f"{quoted}\n{broken}").envelope == Envelope(422, {"quoted": True})
    deep = '{"shelflife":{"status":422,"body":' + "[" * 100_000
    assert Trailed.from_text(deep) == (deep, None)


def test_a_text_with_much_that_looks_like_one_holds_nobody_up():
    nested = '{"shelflife":{"status":422,"body":' + "[" * 2_000
    begun_at = time.process_time()
    for text in (nested * 500, '{"shelflife":' * 80_000, '{"shelflife":{"a":"' + "\n" * 1_000_000):
        assert Trailed.from_text(text).envelope is None
    assert time.process_time() - begun_at < 2  # it took a minute
    assert Trailed.from_text(REFUSAL.trailing(nested * 500)).envelope == REFUSAL


def test_a_text_does_not_say_that_a_precondition_has_failed():
    stale = Envelope(412, {"success": False}, {"Contract-Precondition": "failed", "contract-root": "/v1"})
    found = Trailed.from_text(stale.trailing("No.")).envelope
    assert found == Envelope(412, {"success": False}, {"contract-root": "/v1"})
    assert Envelope.from_meta(stale.as_meta) == stale


def test_metadata_carries_it_as_plain_values():
    assert REFUSAL.as_meta == {META_KEY: {"status": 422, "body": REFUSAL.body, "headers": REFUSAL.headers}}
    assert Envelope(200, {"at": "x"}).as_meta == {META_KEY: {"status": 200, "body": {"at": "x"}}}
    for envelope in (REFUSAL, Envelope(200)):
        assert Envelope.from_meta(msgspec.json.decode(msgspec.json.encode(envelope.as_meta))) == envelope
    for meta in (None, {}, [], {META_KEY: None}, {META_KEY: {}}, {META_KEY: {"status": "422"}}):
        assert Envelope.from_meta(meta) is None


@given(
    path=st.sampled_from(["/contract/state", "/contract/fixes"]),
    body=st.text(),
    at=st.sampled_from(["", "*:a;n=1"]),
)
def test_a_question_is_a_uri_and_nothing_of_it_is_lost(path, body, at):
    for question in (
        QuestionUri(path, body=body.encode(), at=at),
        QuestionUri(path, "from=*&nonce=1"),
        QuestionUri(path),
    ):
        assert QuestionUri.from_text(question.text) == question
    assert QuestionUri(path).text == f"shelflife:/{path}"


def test_what_is_no_question_is_none():
    for uri in ("", "shelflife://", "shelflife://other", "test://contract/state", "shelflife:/contract"):
        assert QuestionUri.from_text(uri) is None
    assert QuestionUri.from_text("shelflife://contract/x?body=1&y=2") == QuestionUri(
        "/contract/x", "body=1&y=2"
    )
    assert QuestionUri.from_text(CHANGES_URI) == QuestionUri("/contract/changes")


def test_what_a_request_says_is_read_strictly():
    assert read_headers({META_KEY: {"Contract-At": "x"}, "other": 1}) == {"contract-at": "x"}
    assert read_headers(None) == read_headers({}) == read_headers({META_KEY: None}) == {}
    for said in ("x", ["x"], {"a": 1}, {str(number): "x" for number in range(17)}):
        with pytest.raises(BadMessage, match="in the metadata"):
            read_headers({META_KEY: said})
