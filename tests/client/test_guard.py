"""Amending outgoing requests: only what holds, only what is allowed, each fix once."""

import logging
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelflife.client import Memory, Write
from shelflife.client.events import Applied
from shelflife.client.guard import Guard, amend
from shelflife.contract.merging import merged
from tests.client.entries import ORIGIN, entry, filed


def amended(request, *entries, guard=None):
    return amend(request, lambda fields: [one for one in entries if one.applies_to(fields)], guard or Guard())


def fixing(parameters, when=None, **changes):
    return entry(parameters=parameters, when={"plan": "basic"} if when is None else when, **changes)


def test_a_fix_that_holds_is_merged_and_logged():
    one = fixing({"promo": "P1", "note": None})
    outcome = amended({"plan": "basic", "note": "x"}, one)
    assert outcome.request == {"plan": "basic", "promo": "P1"}
    assert outcome.applied == [Applied(one, {"promo": "P1", "note": None})]


def test_a_fix_that_does_not_hold_is_left_alone():
    request = {"plan": "pro"}
    assert amended(request, fixing({"promo": "P1"})).request == request


def test_what_a_fix_brings_about_may_call_for_another():
    first = fixing({"country": "de"}, {"city": "Berlin"})
    second = fixing({"language": "de"}, {"country": "de"}, type="LANGUAGE")
    outcome = amended({"city": "Berlin"}, first, second)
    assert outcome.request == {"city": "Berlin", "country": "de", "language": "de"}
    assert [done.entry for done in outcome.applied] == [first, second]


def test_two_fixes_that_undo_each_other_come_to_an_end():
    there = fixing({"x": 2}, {"x": 1})
    back = fixing({"x": 1}, {"x": 2}, type="BACK")
    outcome = amended({"x": 1}, there, back)
    assert outcome.request == {"x": 2}
    assert [refusal.why for refusal in outcome.refused] == [
        "another remembered fix sets 'x' to something else"
    ]


def test_where_two_fixes_contradict_neither_is_applied():
    outcome = amended({"plan": "basic"}, fixing({"promo": "P1"}), fixing({"promo": "P2"}, type="OTHER"))
    assert outcome.request == {"plan": "basic"}
    assert (outcome.applied, len(outcome.refused)) == ([], 2)


def test_fixes_that_set_different_fields_of_one_object_do_not_contradict():
    city = fixing({"place": {"city": "Berlin"}})
    code = fixing({"place": {"zip": "10115"}}, type="ZIP")
    outcome = amended({"plan": "basic"}, city, code)
    assert outcome.request == {"plan": "basic", "place": {"city": "Berlin", "zip": "10115"}}


def test_fixes_that_set_one_field_of_an_object_differently_do():
    one = fixing({"place": {"zip": "10115"}})
    other = fixing({"place": {"zip": "10117", "city": "Berlin"}}, type="OTHER")
    outcome = amended({"plan": "basic"}, one, other)
    assert outcome.applied == []
    assert outcome.refused[0].why == "another remembered fix sets 'place/zip' to something else"


CREDENTIALS = (
    "password Passwd passphrase userPassword client-secret secrets credentials Authorization proxy_authorization auth"
    " oauth2 jwt bearer cookie Set-Cookie session_id sessionId SESSIONID api_key apiKey APIKey apikey X-Api-Key"
    " private_key access_token accessToken accesstokens refresh.token pin passcode otp cvc securityCode ssh_key auth_token id_token api_token sessionToken access_key token"
)
ADDRESSES = "url callback_url callbackUrl baseURL redirect_uris redirecturi host smtp.hostname proxy source_ip webhook endpoint callback callbackURLs hostName host_name"
PLAIN = (
    "payment_method_token card_token max_tokens prepaid_token author authored_by host_count original url_count"
    " session sessions secretary key api_version promo_code v2 _ 1"
)


@pytest.mark.parametrize("name", CREDENTIALS.split())
def test_credentials_are_never_set(name):
    assert "credential" in amended({"plan": "basic"}, fixing({name: "evil"})).refused[0].why


@pytest.mark.parametrize("name", ADDRESSES.split())
def test_addresses_are_never_set(name):
    assert "address" in amended({"plan": "basic"}, fixing({name: "evil"})).refused[0].why


@pytest.mark.parametrize("name", PLAIN.split())
def test_names_that_only_resemble_them_may_be_set(name):
    money = Guard(decides_for_caller=True)
    assert amended({"plan": "basic"}, fixing({name: "pm_1"}), guard=money).applied


@pytest.mark.parametrize("name", ["", "a b", "p\u0430ssword", "\uff50assword", "__proto__", "a\n", "x[0]"])
def test_what_is_no_plain_name_is_never_set(name):
    assert "no plain name" in amended({"plan": "basic"}, fixing({name: "evil"})).refused[0].why


@pytest.mark.parametrize("parameters", [{"user": {"password": "x"}}, {"hooks": [1, [{"url": "x"}]]}])
def test_names_are_looked_at_however_deep_they_are(parameters):
    assert amended({"plan": "basic"}, fixing(parameters)).refused


def test_a_fix_that_is_nested_without_end_is_refused():
    parameters = {}
    for _ in range(100):
        parameters = {"a": [parameters]}
    assert "too deeply" in amended({"plan": "basic"}, fixing(parameters)).refused[0].why


def test_the_user_says_which_operations_and_fields():
    one = fixing({"promo": "P1"})
    for guard, is_applied in (
        (Guard(operations=frozenset({"POST /x"})), True),
        (Guard(operations=frozenset({"POST /y"})), False),
        (Guard(fields={"POST /x": frozenset({"promo"})}), True),
        (Guard(fields={"POST /x": frozenset({"note"})}), False),
        (Guard(fields={}), False),
    ):
        assert bool(amended({"plan": "basic"}, one, guard=guard).applied) is is_applied


def test_below_a_root_an_operation_may_be_named_as_the_server_does():
    one = fixing({"promo": "P1"}, root=f"{ORIGIN}/shop", operation="POST /shop/orders")
    for name in ("POST /orders", "POST /shop/orders"):
        allowed = Guard(operations=frozenset({name}), fields={name: frozenset({"promo"})})
        assert amended({"plan": "basic"}, one, guard=allowed).request["promo"] == "P1"
    other = Guard(fields={"POST /carts": frozenset({"promo"})})
    [refused] = amended({"plan": "basic"}, one, guard=other).refused
    assert refused.why == "POST /shop/orders is not among the operations whose fields may be set"


def test_a_fix_that_is_too_large_is_refused():
    assert "too large" in amended({"plan": "basic"}, fixing({"promo": "x" * 20_000})).refused[0].why


def test_a_memory_amends_and_tells():
    events = []
    memory = Memory(on_event=events.append)
    assert memory.amend("http://h", "POST /x", {"plan": "basic"}).request == {"plan": "basic"}
    known = memory.store.known(ORIGIN)
    memory.store.write(ORIGIN, known.revision, Write(known.knowledge, put=[filed(entry())]))
    outcome = memory.amend(ORIGIN, "POST /x", {"plan": "basic"})
    assert outcome.request == {"plan": "basic", "promo": "P1"}
    assert events == [Applied(entry(), {"promo": "P1"})]
    assert memory.statistics.applied == 1


def test_the_user_is_warned_of_a_refusal_once_for_each_field_and_reason(caplog):
    caplog.set_level(logging.INFO, "shelflife.memory")
    memory = Memory()
    known = memory.store.known(ORIGIN)
    entries = [filed(entry(parameters={name: 1}, type=name)) for name in ("amount", "fee")]
    memory.store.write(ORIGIN, known.revision, Write(known.knowledge, put=entries))
    for _ in range(3):
        assert len(memory.amend("https://a.example", "POST /x", {"plan": "basic"}).refused) == 2
    assert [(record.levelname, record.message) for record in caplog.records] == [
        (
            "WARNING",
            f"the guard keeps what is remembered out of POST /x: '{name}' is for the caller to decide; allow it by name in Guard(fields=...)",
        )
        for name in ("amount", "fee")
    ]


def test_a_server_that_thinks_up_ever_new_names_fills_no_log(caplog):
    memory = Memory()
    for number in range(150):
        known = memory.store.known(ORIGIN)
        made_up = entry(parameters={f"amount_{number}": 1}, operation=f"POST /{number}")
        memory.store.write(ORIGIN, known.revision, Write(known.knowledge, put=[filed(made_up)]))
        assert memory.amend(ORIGIN, f"POST /{number}", {"plan": "basic"}).refused
    assert len(caplog.records) == 100


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)
objects = st.dictionaries(st.sampled_from("abc"), json_values, max_size=3)


def merge_by_the_book(target, patch):
    """The pseudo-code of RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = merge_by_the_book(target.get(name), value)
    return target


@pytest.mark.spec("3.2")
@given(objects, objects)
def test_merging_is_that_of_the_rfc(target, patch):
    assert merged(target, patch) == merge_by_the_book(target, patch)


def fields_of_apis(kind):
    """Names of a list that was sorted by hand."""
    lines = Path(__file__).with_name("api_fields.txt").read_text().splitlines()
    sorted_so = (line.removeprefix(f"{kind}: ").split() for line in lines if line.startswith(f"{kind}: "))
    return list(dict.fromkeys(chain.from_iterable(sorted_so)))


def test_the_fields_of_real_apis_are_decided_as_people_would():
    def is_allowed(name):
        return Guard().refusal(fixing({name: "x"}, {})) is None

    harmless, of_the_caller = fields_of_apis("harmless"), fields_of_apis("caller")
    assert min(len(harmless), len(of_the_caller)) > 200
    assert not {*harmless} & {*of_the_caller}
    assert [name for name in harmless if not is_allowed(name)] == []
    assert [name for name in of_the_caller if is_allowed(name)] == []


@pytest.mark.parametrize(
    "name",
    [
        "amount",
        "unit_price",
        "ship_to",
        "payment_method_token",
        "cardNumber",
        "recipients",
        "to_account",
        "customer",
        "quantity",
        "email",
        "origin",
        "destination",
        "consent",
        "force_delete",
    ],
)
def test_what_only_the_caller_may_decide_must_be_allowed(name):
    fixed = fixing({name: "x"}, {})
    assert "is for the caller to decide" in amended({}, fixed).refused[0].why
    assert amended({}, fixed, guard=Guard(decides_for_caller=True)).request == {name: "x"}
    by_name = Guard(fields={fixed.operation: frozenset({name})})
    assert amended({}, fixed, guard=by_name).request == {name: "x"}
    nested = fixing({"order": {name: "x"}}, {})
    listed = Guard(fields={nested.operation: frozenset({"order"})})
    [refused] = amended({}, nested, guard=listed).refused
    assert "allow it with Guard(decides_for_caller=True)" in refused.why


def test_allowing_money_allows_no_credential():
    assert amended({}, fixing({"api_key": "x"}, {}), guard=Guard(decides_for_caller=True)).refused


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"operations": "POST /x"}, "are sets of names, and not one text"),
        ({"fields": {"POST /x": "promo_code"}}, "are sets of names, and not one text"),
        (
            {"operations": frozenset({"POST /x"}), "fields": {"POST /y": frozenset()}},
            "may not be amended at all",
        ),
    ],
)
def test_a_guard_that_can_match_nothing_or_too_much_is_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        Guard(**options)


def test_the_fields_of_a_guard_are_by_operation():
    with pytest.raises(ValueError, match="sets of names, each by its operation"):
        Guard(fields=frozenset({"promo_code"}))
