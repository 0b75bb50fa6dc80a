"""The compact form of a suggestion: nothing is lost, and nothing is taken for another request."""

import base64
import hashlib
import json
from copy import deepcopy

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from shelflife.contract import BadMessage, Suggestion, same_json
from shelflife.contract.cells import rows_of_cells
from shelflife.contract.compact import CompactSuggestion, compacted, expanded
from shelflife.contract.messages import TableVersion
from shelflife.contract.when import as_read, field_path, value_at
from shelflife.server.wire import Level, WireFormat
from tests.contract.odd_values import odd
from tests.worlds import scalars

BY = "a1b"
ODD_TEXTS = [
    "=",
    "~",
    ">",
    ":",
    "=f",
    "~f",
    ">r",
    ":f",
    "==f",
    "::",
    "f",
    "key",
    "a:b=c>d~e",
    "é",
    "f/p",
    "~0f",
]
texts = st.one_of(st.sampled_from(ODD_TEXTS), st.text(st.characters(codec="utf-8"), min_size=1, max_size=4))
names = st.one_of(st.sampled_from(["f", "g", "", "=f", "~f", "a/b", "~1"]), texts)
values = st.one_of(scalars, texts, st.lists(texts, max_size=2), st.dictionaries(names, texts, max_size=2))
requests = st.dictionaries(names, st.one_of(values, st.dictionaries(names, values, max_size=2)), max_size=4)
columns = st.one_of(st.none(), st.lists(texts, unique=True, max_size=3).map(sorted).map(tuple))
unlesses = st.dictionaries(names, st.lists(values, min_size=1, max_size=2).map(tuple), max_size=2)
relations = st.sampled_from(["r", "s"])


def paths_of(fields, parent=""):
    """The pointers to all fields of a request, the request itself and some that are not there."""
    found = [parent, field_path(parent, "none"), field_path(parent, "no/~ne")]
    for name, value in fields.items():
        path = field_path(parent, name)
        found += paths_of(value, path) if isinstance(value, dict) and path else [path]
    return found


def texts_in(value):
    if isinstance(value, str):
        return [value] if value else []
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for member in members for text in texts_in(member)]


@st.composite
def suggestions(draw):
    """A request, and a suggestion for it that says what it rests on."""
    request, parameters = draw(requests), draw(st.dictionaries(names, values, max_size=3))
    paths = draw(st.lists(st.sampled_from(paths_of(request)), unique=True, max_size=4))
    when = {path: as_read(value_at(request, path)) for path in paths}
    at_hand = texts_in(request) + texts_in(parameters)
    keys = st.one_of(texts, st.sampled_from(at_hand)) if at_hand else texts
    read = st.one_of(
        st.none(),
        st.just({"": ()}),
        st.builds(
            lambda rows, is_walk: ({"": ()} if is_walk else {}) | rows,
            st.dictionaries(keys, columns, min_size=1, max_size=3),
            st.booleans(),
        ),
    )
    tables = ["t0", "t1", "t2"]
    cells = draw(st.dictionaries(st.sampled_from(tables), read, min_size=1))
    rules = draw(st.lists(st.tuples(st.sampled_from([*tables, "u"]), relations), unique=True, max_size=4))
    implied = {name: (value,) for name, value in parameters.items() if name not in when}
    return request, Suggestion(
        type="T",
        parameters=parameters,
        cache_hint="cacheable",
        table=list(cells)[-1],
        tables=tuple(TableVersion(table=table, version="1") for table in cells),
        rows=rows_of_cells(cells),
        cells=cells,
        rules=tuple(f"{table}:{relation}" for table, relation in rules) or msgspec.UNSET,
        when=when,
        unless=draw(st.one_of(unlesses, st.just(implied))) or msgspec.UNSET,
    )


def sent(suggestion):
    """The compact form of it as a client reads it from the wire."""
    return msgspec.json.decode(msgspec.json.encode(compacted(suggestion, BY)), type=CompactSuggestion)


def told(suggestion):
    """What a suggestion says, but for versions and order."""
    return {
        "type": suggestion.type,
        "parameters": msgspec.json.encode(suggestion.parameters, order="sorted"),
        "hint": suggestion.cache_hint,
        "tables": set(suggestion.depends_on),
        "rows": set(suggestion.rows or ()),
        "cells": suggestion.cells,
        "rules": set(suggestion.rules or ()),
        "when": msgspec.json.encode(suggestion.when, order="sorted"),
        "unless": msgspec.json.encode(suggestion.unless or {}, order="sorted"),
    }


ABSENT_AND_ASKED_FOR = (
    {},
    Suggestion(
        type="T",
        parameters={"promo": "SUMMER25"},
        cache_hint="cacheable",
        tables=(TableVersion(table="codes", version="1"),),
        rows=("codes:SUMMER25",),
        cells={"codes": {"SUMMER25": ()}},
        when={"promo": None},
    ),
)
"""The policy has looked at the very field that its fix sets, and at the row of what it sets."""


def by_of(when):
    """What `by` says for these values of a request."""
    return sent(msgspec.structs.replace(ABSENT_AND_ASKED_FOR[1], when=when)).by


@pytest.mark.spec("11.18")
@example(ABSENT_AND_ASKED_FOR)
@given(suggestions())
def test_a_compact_suggestion_says_all_that_the_full_one_says(drawn):
    request, suggestion = drawn
    again = expanded(sent(suggestion), request)
    assert told(again) == told(suggestion)
    assert again.by == BY


@pytest.mark.spec("11.18")
@given(suggestions())
def test_the_order_of_the_fields_of_a_request_does_not_matter(drawn):
    request, suggestion = drawn
    turned = dict(reversed(deepcopy(request).items())) | {"never there": None}
    for value in turned.values():
        if isinstance(value, dict):
            value["never there"] = None
    assert told(expanded(sent(suggestion), turned)) == told(suggestion)


@pytest.mark.spec("11.19")
@given(suggestions(), requests)
def test_a_compact_suggestion_is_not_taken_for_a_request_with_other_values(drawn, other):
    _, suggestion = drawn
    assume(
        any(not same_json(as_read(value_at(other, path)), value) for path, value in suggestion.when.items())
    )
    with pytest.raises(BadMessage, match="is for other values than the request has"):
        expanded(sent(suggestion), other)


@pytest.mark.spec("11.19")
@given(suggestions(), st.dictionaries(st.text(st.characters(), max_size=2), odd, max_size=3))
def test_whatever_a_request_holds_a_suggestion_is_for_it_or_is_refused(drawn, request):
    _, suggestion = drawn
    try:
        expanded(sent(suggestion), request)
    except BadMessage:
        return
    assert all(same_json(as_read(value_at(request, path)), value) for path, value in suggestion.when.items())


@pytest.mark.parametrize(
    ("whole", "is_taken"),
    [({"n": 1}, True), ({"n": 1, "m": None}, True), ({"n": 1.0}, False), ({"n": True}, False), ({}, False)],
)
@pytest.mark.spec("11.19")
def test_a_suggestion_for_the_whole_request_is_for_no_other(whole, is_taken):
    suggestion = msgspec.structs.replace(ABSENT_AND_ASKED_FOR[1], when={"": {"n": 1}})
    if is_taken:
        assert expanded(sent(suggestion), whole).when == {"": {"n": 1}}
        return
    with pytest.raises(BadMessage):
        expanded(sent(suggestion), whole)


@pytest.mark.spec("11.19")
@pytest.mark.parametrize(
    ("on", "by", "sentence"),
    [
        ({"plans": {"=n": []}}, by_of({"n": 1}), "rests on what is not there"),
        ({"plans": {"=none": []}}, by_of({"none": None}), "rests on what is not there"),
        ({"plans": {"=": []}}, by_of({"": {"n": 1}}), "rests on what is not there"),
        ({"plans": {"~n": []}}, by_of({}), "rests on what is not there"),
        ({"plans": {"~none": []}}, by_of({}), "rests on what is not there"),
        ({"plans": {"~m": []}}, by_of({}), "rests on what is not there"),
        ({"plans": {"~": []}}, by_of({}), "rests on what is not there"),
        ({"plans": {"~empty": []}}, by_of({}), "rests on what is not there"),
        ({name: {"~long": []} for name in ("plans", "codes")}, by_of({}), "rests on too much"),
        ({"plans": {"a": []}}, "", "other values"),
        ({"plans": {"a": []}}, BY, "other values"),
        ({"plans": {"a": []}}, by_of({"n": 1}), "other values"),
        ({"plans": {"a": []}}, by_of({}) + "A", "other values"),
    ],
)
def test_grounds_that_are_not_there_are_no_grounds(on, by, sentence):
    parameters = {"n": 1, "m": {"a": 1}, "long": "x" * 9000, "empty": ""}
    right = CompactSuggestion(type="T", parameters=parameters, on={"plans": {"~long": ()}}, by=by_of({}))
    assert expanded(right, {"n": 1}).cells == {"plans": {"x" * 9000: ()}}
    wrong = msgspec.convert({"type": "T", "parameters": parameters, "on": on, "by": by}, CompactSuggestion)
    with pytest.raises(BadMessage, match=sentence):
        expanded(wrong, {"n": 1})


def as_sent(suggestion):
    return json.loads(msgspec.json.encode(compacted(suggestion, BY)))


FULL = Suggestion(
    type="T",
    parameters={"promo": "PROMO_1"},
    cache_hint="cacheable",
    table="plans",
    tables=(TableVersion(table="codes", version="1"), TableVersion(table="plans", version="1")),
    rows=("codes:annual", "codes:b", "codes:=b", "plans"),
    cells={
        "codes": {"annual": ("code", "percent"), "b": None, "=b": ()},
        "plans": {"": (), "PROMO_1": ("code",)},
    },
    rules=("codes:needs", "plans:has", "codes:takes"),
    when={"plan": "annual", "customer/country": None},
    unless={"promo": ("PROMO_1",)},
)


@pytest.mark.spec("11.18", "11.19")
def test_a_compact_suggestion_leaves_out_what_follows():
    compact = as_sent(FULL)
    assert compact == {
        "type": "T",
        "parameters": {"promo": "PROMO_1"},
        "on": {
            "codes": {"=plan": ["code", "percent"], "b": None, ":=b": [], ">": ["needs", "takes"]},
            "plans": {"": [], "~promo": "code", ">": "has"},
        },
        "by": "a1bq2UY",
        "when": ["customer/country"],
    }
    told_nothing = msgspec.structs.replace(FULL, unless=msgspec.UNSET)
    assert as_sent(told_nothing) == compact | {"unless": {}}
    there = msgspec.structs.replace(FULL, unless={"promo": ("PROMO_1",), "note": (None,)})
    assert as_sent(there) == compact | {"unless": {"promo": ["PROMO_1"], "note": [None]}}
    whole = msgspec.structs.replace(FULL, cells={"codes": None, "plans": None}, rules=msgspec.UNSET)
    assert as_sent(whole)["on"] == {"codes": {"": None}, "plans": {"": None}}
    assert as_sent(whole)["when"] == ["plan", "customer/country"]


@pytest.mark.spec("11.19")
def test_the_values_of_a_request_are_told_from_others_by_four_characters():
    canonical = '{"customer/country":null,"plan":"annual"}'
    digest = hashlib.sha256(canonical.encode()).digest()
    assert as_sent(FULL)["by"] == BY + base64.urlsafe_b64encode(digest).decode()[:4]


@pytest.mark.spec("11.17")
def test_what_does_not_say_what_it_rests_on_stays_as_it_is():
    recompute = Suggestion(type="T", parameters={"n": 1}, cache_hint="recompute")
    coarse = WireFormat(level=Level.STAMPS).suggestion(FULL)
    of_the_paper = WireFormat(paper_only=True).suggestion(FULL)
    for suggestion in (recompute, coarse, of_the_paper):
        assert compacted(suggestion, BY) is suggestion
        assert expanded(suggestion, {}) is suggestion


def test_a_parameter_stands_for_a_key_only_where_that_is_shorter():
    def on(parameters, key, when=None):
        cells = {"codes": {key: ()}}
        return as_sent(
            msgspec.structs.replace(
                FULL,
                parameters=parameters,
                tables=FULL.tables[:1],
                rows=rows_of_cells(cells),
                cells=cells,
                rules=msgspec.UNSET,
                when=when or {},
            )
        )["on"]["codes"]

    assert on({"promo": "P"}, "P") == {"P": []}
    assert on({"p": "PP"}, "PP") == {"~p": []}
    assert on({"promo": "P"}, "P", {"promo": "P"}) == {"=promo": []}
    assert on({"promo": "NEW"}, "OLD", {"promo": "OLD"}) == {"=promo": []}
    assert on({"p": "NEW"}, "NEW", {"p": "OLD"}) == {"~p": []}


def test_rows_that_were_told_without_cells_are_whole_in_the_compact_form_too():
    suggestion = msgspec.structs.replace(
        FULL, rows=("codes:a", "plans:b", "plans"), cells=msgspec.UNSET, rules=msgspec.UNSET
    )
    assert as_sent(suggestion)["on"] == {"codes": {"a": None}, "plans": {"": None}}
