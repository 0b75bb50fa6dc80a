"""Observed reads: the record is complete, and says neither more nor less than what was read."""

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shelflife.contract import Rule, same_json, split_node_id
from shelflife.contract.values import DEEPEST_VALUE, fault_in
from shelflife.contract.when import holds
from shelflife.server import MalformedRequest, Registry, fix
from shelflife.server.policies import Policy, evaluate
from shelflife.server.reads import Reads, Request, Tables
from tests.cells import have_changed
from tests.contract.odd_values import odd
from tests.programs import programs, run_step
from tests.worlds import (
    CELL_VARIANTS,
    COLUMNS,
    KEYS,
    ROW_VARIANTS,
    TABLES,
    WIDE,
    dense_fields,
    dense_worlds,
    fields,
    grown,
    rule_lists,
    worlds,
)


def policy_of(program):
    """A policy whose fix holds all that it saw, and that branches on it."""

    def policy(request, tables):
        seen, last = [], None
        for step in program:
            if step == ("stop_when_empty",):
                if not last:
                    break
                continue
            last = run_step(step, last, request, tables)
            seen.append(last)
        return fix("SAW", seen=seen)

    return Policy.from_function(policy, None)


def suggestion_of(program, request, registry):
    return suggestion_after(registry, policy_of(program), request)


def suggestion_after(registry, policy, request):
    [violation] = evaluate([policy], request, registry.state)
    return violation.suggestion


def is_unchanged(suggestion, old, new, request):
    """Whether nothing that the suggestion says it rests on has changed, judged by its wire form alone."""
    before, after = ({name: table.rows for name, table in state.tables.items()} for state in (old, new))
    if have_changed(suggestion.cells, before, after):
        return False
    for rule in suggestion.rules or ():
        table, relation = split_node_id(rule)
        if old.rules.find(table, relation) != new.rules.find(table, relation):
            return False
    return holds(suggestion.when, request, suggestion.unless or None)


FIELD_VARIANTS = [None, "a", 1, True, [], ["a"], {}, {"p": None}, {"p": "a"}, {"q": {"p": 1}}]


def neighbours(world, declared, request_fields):
    """Every world, rule set and request that is one step away."""
    for table in TABLES:
        for key in KEYS:
            for row in ROW_VARIANTS:
                changed = {k: r for k, r in world[table].items() if k != key}
                if row is not None:
                    changed[key] = row
                yield world | {table: changed}, declared, request_fields
        for key, row in world[table].items():
            for column in WIDE:
                others = {name: value for name, value in row.items() if name != column}
                for changed in (others, *(others | {column: value} for value in CELL_VARIANTS)):
                    yield world | {table: world[table] | {key: changed}}, declared, request_fields
    for rule in declared:
        yield world, [other for other in declared if other is not rule], request_fields
    for table in TABLES:
        for via in [None, *COLUMNS]:
            rule = Rule(from_table=table, to_table="t0", relation="r", via=via)
            yield world, [*(other for other in declared if other.id != rule.id), rule], request_fields
    for name in ["f", "g", "h"]:
        for value in FIELD_VARIANTS:
            yield world, declared, request_fields | {name: value}
        yield world, declared, {n: value for n, value in request_fields.items() if n != name}


class Turning:
    """A registry that becomes one neighbour after another: of most of them only a table is another."""

    def __init__(self, world, declared):
        self._world, self._declared = world, declared
        self._registry = grown(world, declared)

    def into(self, world, declared):
        if declared is not self._declared:
            return grown(world, declared)
        for table, rows in world.items():
            if rows is not self._world[table]:
                self._registry.reload_table(table, rows)
        self._world = world
        return self._registry


@pytest.mark.spec("4.6", "4.1", "4.2", "4.3", "4.4", "4.5", "4.9")
@settings(max_examples=80 if settings().max_examples < 1000 else 10_000)
@given(dense_worlds, rule_lists, programs, dense_fields)
def test_when_no_recorded_read_has_changed_the_suggestion_is_equal(world, declared, program, request_fields):
    old, policy = Registry(world, declared), policy_of(program)
    suggestion = suggestion_after(old, policy, request_fields)
    assume(suggestion.cache_hint == "cacheable")
    turning = Turning(world, declared)
    for new_world, new_rules, new_fields in neighbours(world, declared, request_fields):
        new = turning.into(new_world, new_rules)
        if is_unchanged(suggestion, old.state, new.state, new_fields):
            again = suggestion_after(new, policy, new_fields)
            assert (again.type, again.parameters) == (suggestion.type, suggestion.parameters)
            for member in ("rows", "cells", "rules", "when", "unless"):
                assert getattr(again, member) == getattr(suggestion, member)


@given(worlds, rule_lists, programs, fields)
def test_a_fix_holds_for_the_request_it_was_made_for(world, declared, program, request_fields):
    suggestion = suggestion_of(program, request_fields, grown(world, declared))
    assume(suggestion.cache_hint == "cacheable")
    in_full = {name: value for name, value in request_fields.items() if value is not None}
    assert holds(suggestion.when, in_full, suggestion.unless or None)


@given(worlds, rule_lists, programs, fields)
def test_a_policy_cannot_write_into_what_it_reads(world, declared, program, request_fields):
    registry = grown(world, declared)
    before = {name: table.rows.to_dict() for name, table in registry.state.tables.items()}
    copies = {name: {key: dict(row) for key, row in rows.items()} for name, rows in before.items()}

    def vandal(request, tables):
        for table in TABLES:
            for row in tables[table].values():
                for column in row:
                    value = row[column]
                    if isinstance(value, list | dict):
                        value.clear()
        return

    evaluate([Policy.from_function(vandal, None)], request_fields, registry.state)
    assert same_json(copies, before)


PLANS = {"basic": {"promo": "P1", "limits": [1, 2]}, "pro": {"promo": "P2"}}
PROMOS = {"P1": {"percent": 5}}
TIE = Rule(from_table="plans", to_table="promos", relation="redeems", via="promo")


def reads_of(policy, request_fields):
    registry = Registry({"plans": PLANS, "promos": PROMOS, "other": {"k": {}}}, [TIE])
    [violation] = evaluate([Policy.from_function(policy, None)], request_fields, registry.state)
    return violation.suggestion


@pytest.mark.spec("3.4", "3.5", "4.1", "4.3")
def test_the_record_follows_what_the_policy_does():
    def policy(request, tables):
        plan = tables.plans[request["plan"]]
        promo = plan.follow("redeems")
        return fix("F", percent=promo["percent"], promo=plan["promo"])

    suggestion = reads_of(policy, {"plan": "basic", "amount": 3})
    assert suggestion.table == "plans"
    assert suggestion.depends_on == ("promos", "plans")
    assert suggestion.rows == ("plans:basic", "promos:P1")
    assert suggestion.rules == ("plans:redeems",)
    assert suggestion.when == {"plan": "basic"}


@pytest.mark.spec("4.1")
def test_a_row_that_is_not_there_is_on_record():
    def policy(request, tables):
        return None if "gold" in tables.plans else fix("F", plan="basic")

    assert reads_of(policy, {}).rows == ("plans:gold",)


@pytest.mark.spec("4.1", "4.3")
def test_a_rule_that_leads_nowhere_leaves_the_missing_row_on_record():
    def policy(request, tables):
        assert tables.plans["pro"].follow("redeems") is None
        return fix("F")

    suggestion = reads_of(policy, {})
    assert suggestion.rows == ("plans:pro", "promos:P2")
    assert suggestion.rules == ("plans:redeems",)


@pytest.mark.spec("4.3")
def test_a_rule_that_is_not_declared_is_on_record_and_nothing_behind_it_is():
    def policy(request, tables):
        assert tables.plans["basic"].follow("no_such_rule") is None
        assert not tables.has_rule("promos", "neither")
        return fix("F")

    suggestion = reads_of(policy, {})
    assert suggestion.rules == ("plans:no_such_rule", "promos:neither")
    assert suggestion.depends_on == ("plans",)


@pytest.mark.spec("4.2")
@pytest.mark.parametrize("scan", [len, list, dict])
def test_a_walk_over_a_table_reads_it_whole(scan):
    def policy(request, tables):
        scan(tables.plans)
        return fix("F")

    assert reads_of(policy, {}).rows[0] == "plans"


@pytest.mark.spec("3.3")
def test_a_fix_from_the_request_alone_is_to_be_recomputed():
    suggestion = reads_of(lambda request, tables: fix("F", amount=request["amount"] + 1), {"amount": 4})
    assert suggestion.cache_hint == "recompute"
    assert not suggestion.table
    assert not suggestion.tables


@pytest.mark.spec("3.3")
@pytest.mark.parametrize("look", [lambda tables: tables["later"], lambda tables: tables.later])
def test_a_fix_that_rests_on_a_table_not_being_there_is_never_cacheable(look):
    def policy(request, tables):
        try:
            look(tables)
        except (AttributeError, KeyError):
            return fix("USE", region=tables["codes"]["us"]["code"])
        return None

    registry = Registry({"codes": {"us": {"code": "U1"}}})
    [violation] = evaluate([Policy.from_function(policy, None)], {}, registry.state)
    assert violation.suggestion.cache_hint == "recompute"


def test_a_policy_that_read_something_untracked_is_never_cacheable():
    def policy(request, tables):
        tables.report_untracked("the exchange rate service")
        return fix("F", promo=tables.plans["basic"]["promo"])

    assert reads_of(policy, {}).cache_hint == "recompute"


def test_a_value_that_can_be_no_key_is_in_no_table_and_reads_nothing():
    def policy(request, tables):
        assert [tables.plans.get(value) for value in (None, [], True, 1.5, "")] == [None] * 5
        return fix("F")

    assert reads_of(policy, {}).cache_hint == "recompute"


def test_a_whole_number_finds_the_row_under_its_digits():
    registry = Registry({"plans": {"7": {"x": 1}}})

    def policy(request, tables):
        return fix("F", x=tables.plans[request["id"]]["x"])

    [violation] = evaluate([Policy.from_function(policy, None)], {"id": 7}, registry.state)
    assert violation.suggestion.rows == ("plans:7",)


@pytest.mark.spec("4.4")
def test_a_null_in_a_request_is_an_absent_field():
    def policy(request, tables):
        assert "promo" not in request
        assert list(request) == ["plan"]
        return fix("F", plan=tables.plans["basic"]["promo"])

    assert reads_of(policy, {"promo": None, "plan": "x"}).when == {"": {"plan": "x"}}


@pytest.mark.spec("4.9")
def test_a_comparison_that_fails_reads_no_more_than_that():
    def policy(request, tables):
        code = tables.plans["basic"]["promo"]
        return None if request.equals("promo", code) else fix("F", promo=code)

    for sent in ({}, {"promo": None}, {"promo": "P9"}, {"promo": {"x": 1}}):
        suggestion = reads_of(policy, sent)
        assert (suggestion.when, suggestion.unless) == ({}, {"promo": ("P1",)})
        assert holds(suggestion.when, {"promo": "anything"}, suggestion.unless)
        assert not holds(suggestion.when, {"promo": "P1"}, suggestion.unless)


@pytest.mark.spec("4.9")
def test_a_comparison_that_holds_reads_the_value():
    def policy(request, tables):
        assert "basic" in tables.plans
        assert request.equals("plan", "basic")
        assert request.equals("promo", None)
        assert not request.equals("plan", "pro")
        return fix("F")

    suggestion = reads_of(policy, {"plan": "basic"})
    assert suggestion.when == {"plan": "basic", "promo": None}
    assert not suggestion.unless


@pytest.mark.spec("4.5")
def test_only_the_inner_field_that_was_read_counts():
    def policy(request, tables):
        assert "basic" in tables.plans
        return fix("F", country=request["customer"]["country"])

    suggestion = reads_of(policy, {"customer": {"country": "de", "name": "Ada"}})
    assert suggestion.when == {"customer/country": "de"}


@pytest.mark.spec("4.4")
def test_that_an_object_is_there_is_a_reading_of_its_own():
    def policy(request, tables):
        assert "basic" in tables.plans
        return fix("F") if request.get("customer") is not None else None

    reads = reads_of(policy, {"customer": {"name": "Ada"}})
    assert (reads.when, reads.unless) == ({}, {"customer/name": (None,)})
    assert reads_of(policy, {"customer": {}}).when == {"customer": {}}


def test_an_unknown_table_is_the_policys_mistake():
    registry = Registry({"plans": PLANS})
    failures = []

    def policy(request, tables):
        for wrong in (lambda: tables.plants, lambda: tables["plants"], lambda: tables.plans["gold"]):
            with pytest.raises((AttributeError, KeyError)) as failure:
                wrong()
            failures.append(failure.type)

    evaluate([Policy.from_function(policy, None)], {}, registry.state)
    assert failures == [AttributeError, KeyError, KeyError]


def test_the_order_of_fields_in_a_row_cannot_be_seen():
    tie = Rule(from_table="a", to_table="b", relation="to")
    targets = {"k1": {"v": 1}, "k2": {"v": 2}}
    one = Registry({"a": {"r": {"x": "k1", "y": "k2", "o": {"p": 1, "q": 2}}}, "b": targets}, [tie])
    other = Registry({"a": {"r": {"o": {"q": 2, "p": 1}, "y": "k2", "x": "k1"}}, "b": targets}, [tie])

    def policy(request, tables):
        row = tables.a["r"]
        return fix("F", v=row.follow("to")["v"], first=next(iter(row["o"])), columns=list(row))

    policy = Policy.from_function(policy, None)
    assert suggestion_after(one, policy, {}) == suggestion_after(other, policy, {})


def test_the_order_of_fields_in_a_request_cannot_be_seen():
    reg = Registry({"a": {"r": {}}})

    def policy(request, tables):
        assert "r" in tables.a
        return fix("F", first=next(iter(request["items"][0])), names=list(request["o"]))

    policy = Policy.from_function(policy, None)
    one = suggestion_after(reg, policy, {"items": [{"p": 1, "q": None, "r": 2}], "o": {"s": 1, "t": 2}})
    other = suggestion_after(reg, policy, {"o": {"t": 2, "s": 1}, "items": [{"r": 2, "p": 1}]})
    assert one == other


def test_a_field_without_a_name_counts_as_the_whole_request():
    def policy(request, tables):
        assert "basic" in tables.plans
        return fix("F", x=request[""]["x"])

    assert reads_of(policy, {"": {"x": 1}}).when == {"": {"": {"x": 1}}}


def test_a_fix_may_hand_on_rows_and_objects():
    def policy(request, tables):
        return fix("F", plan=tables.plans["basic"], customer=request["customer"])

    assert reads_of(policy, {"customer": {"name": "Ada"}}).parameters == {
        "plan": {"promo": "P1", "limits": [1, 2]},
        "customer": {"name": "Ada"},
    }


@pytest.mark.spec("3.11", "4.4")
@given(
    st.dictionaries(st.sampled_from(["f", "g"]), odd), st.sampled_from(["field", "whole_request", "equals"])
)
def test_whatever_a_request_holds_its_fix_is_for_it_alone_or_it_is_malformed(request_fields, step):
    program = [
        (step, "f", "x") if step == "equals" else (step, "f") if step == "field" else (step,),
        ("keys", "t"),
    ]
    registry = Registry({"t": {"a": {}}})
    try:
        suggestion = suggestion_of(program, request_fields, registry)
    except MalformedRequest:
        assert fault_in(request_fields, DEEPEST_VALUE) is not None
        return
    told = msgspec.json.decode(msgspec.json.encode(suggestion))
    assert holds(told["when"], request_fields, told.get("unless"))
    assert not holds(told["when"], {"f": "x"}, told.get("unless")) or request_fields.get("f") in ("x", None)


@given(dense_worlds, rule_lists, programs, dense_fields)
def test_a_policy_sees_the_same_with_and_without_a_record(world, declared, program, request_fields):
    state = Registry(world, declared).state
    policy = policy_of(program).function
    reads = Reads()
    recorded = policy(Request(request_fields, reads), Tables(state, reads))
    unrecorded = Tables(state)
    for _ in range(2):
        assert policy(Request(request_fields), unrecorded) == recorded


NEEDS = Rule(from_table="codes", to_table="promos", relation="needs", via="code")


def following(relation, rules=(NEEDS,)):
    registry = Registry({"codes": {"x": {"code": "A"}}, "promos": {"A": {}}}, rules)

    def follow():
        tables = Tables(registry.state)
        row = tables.codes["x"].follow(relation)
        return row and row.key

    return registry, follow


def test_to_follow_what_no_rule_is_called_is_told_once(caplog):
    registry, follow = following("need")
    assert [follow(), follow()] == [None, None]
    registry.reload_table("promos", set={"B": {}})
    assert follow() is None
    [told] = caplog.messages
    assert "'need' from a row of the table codes" in told
    assert "(there: needs)" in told


def test_a_rule_that_is_removed_or_comes_later_is_no_mistake_that_is_told_again(caplog):
    registry, follow = following("needs")
    registry.reload_rules(remove=[NEEDS])
    assert follow() is None
    assert caplog.messages == []
    registry, follow = following("needs", rules=())
    assert follow() is None
    registry.reload_rules(add=[NEEDS])
    assert follow() == "A"
    registry.reload_rules(remove=[NEEDS])
    assert follow() is None
    assert len(caplog.messages) == 1


def test_whoever_asks_whether_there_is_a_rule_has_made_no_mistake(caplog):
    registry, _ = following("needs")
    assert not Tables(registry.state).has_rule("codes", "need")
    assert caplog.messages == []
