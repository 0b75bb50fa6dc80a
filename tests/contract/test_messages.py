"""The messages: levels, precedence, and clients that know less or more."""

import msgspec
import pytest

from shelflife.contract import BadMessage, Suggestion, split_node_id
from shelflife.contract.messages import TableVersion
from shelflife.contract.names import node_id
from shelflife.contract.when import holds
from shelflife.server.wire import Level, WireFormat

FUNDING = Suggestion(
    type="USE_REQUIRED_FUNDING_TYPE",
    parameters={"payment_method_token": "acme_pm_visa_credit"},
    cache_hint="cacheable",
    table="recommended_credit_token",
    tables=(
        TableVersion(table="token_funding_map", version="1.0.0"),
        TableVersion(table="recommended_credit_token", version="1.0.0"),
    ),
    rows=("recommended_credit_token:plan",),
    cells={"recommended_credit_token": {"plan": ("token",)}},
    rules=("token_funding_map:funds",),
    when={"plan": "plan"},
    unless={"promo": ("P",)},
)


def at(level, **wire):
    return WireFormat(level=level, **wire).suggestion(FUNDING)


def members(suggestion):
    return set(msgspec.to_builtins(suggestion))


@pytest.mark.spec("2.6", "2.3")
def test_each_level_adds_only_its_own_members():
    paper = {"type", "parameters", "cache_hint", "table"}
    assert members(at(Level.STAMPS)) == paper
    assert members(at(Level.VECTORS)) == paper | {"tables", "rows", "cells", "rules", "when", "unless"}
    assert at(Level.GRAPH) == at(Level.VECTORS)
    assert at(Level.FINGERPRINT) == at(Level.VECTORS)


@pytest.mark.spec("4.8")
def test_the_members_beyond_the_paper_can_be_left_out():
    assert members(at(Level.VECTORS, paper_only=True)) == {
        "type",
        "parameters",
        "cache_hint",
        "table",
        "tables",
    }


@pytest.mark.spec("3.6")
def test_the_vector_takes_precedence_over_the_scalar():
    assert FUNDING.depends_on == ("token_funding_map", "recommended_credit_token")
    assert at(Level.STAMPS).depends_on == ("recommended_credit_token",)


def test_a_recompute_fix_depends_on_no_table():
    rounding = Suggestion(type="ROUND", parameters={"amount": 5}, cache_hint="recompute")
    assert rounding.depends_on == ()
    assert members(rounding) == {"type", "parameters", "cache_hint"}


@pytest.mark.spec("3.4")
def test_a_recompute_fix_may_not_name_a_table():
    with pytest.raises(BadMessage, match="says recompute and yet names a table"):
        Suggestion(type="ROUND", parameters={}, cache_hint="recompute", table="t")


def test_a_suggestion_needs_a_type():
    with pytest.raises(BadMessage, match="empty type"):
        Suggestion(type="", parameters={}, cache_hint="recompute")


@pytest.mark.spec("4.7")
def test_a_client_that_knows_only_the_papers_members_reads_the_full_form():
    class PaperSuggestion(msgspec.Struct):
        type: str
        parameters: dict
        cache_hint: str
        table: str | None = None

    read = msgspec.json.decode(msgspec.json.encode(FUNDING), type=PaperSuggestion)
    assert read.table == "recommended_credit_token"


@pytest.mark.spec("4.7")
def test_our_messages_ignore_members_they_do_not_know():
    wire = msgspec.to_builtins(FUNDING) | {"confidence": 0.5}
    assert msgspec.convert(wire, Suggestion) == FUNDING


@pytest.mark.spec("1.3")
def test_the_first_colon_divides_table_and_key():
    assert split_node_id(node_id("t", "urn:x:1")) == ("t", "urn:x:1")


@pytest.mark.spec("4.2")
def test_a_bare_name_is_the_whole_table():
    assert split_node_id("t") == ("t", None)


@pytest.mark.spec("4.4", "4.5")
@pytest.mark.parametrize(
    ("when", "request_fields", "expected"),
    [
        ({}, {"plan": "x"}, True),
        ({"plan": "x"}, {"plan": "x", "amount": 1}, True),
        ({"plan": "x"}, {"plan": "y"}, False),
        ({"amount": 1}, {"amount": True}, False),
        ({"promo": None}, {}, True),
        ({"promo": None}, {"promo": None}, True),
        ({"promo": None}, {"promo": "P"}, False),
        ({"customer/country": "de"}, {"customer": {"country": "de"}}, True),
        ({"customer/country": "de"}, {"customer": "de"}, False),
        ({"customer/a~1b~0c": 1}, {"customer": {"a/b~c": 1}}, True),
        ({"": {"plan": "x"}}, {"plan": "x"}, True),
        ({"": {"plan": "x"}}, {"plan": "x", "amount": 1}, False),
    ],
)
def test_a_fix_applies_exactly_when_its_fields_have_their_values(when, request_fields, expected):
    assert holds(when, request_fields) is expected
