"""Rules and their fingerprint."""

import hashlib
import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelflife.contract import Rule
from shelflife.contract.errors import BadName
from shelflife.server.errors import BadRule
from shelflife.server.rules import RuleSet
from tests.worlds import rule_lists, rules

RECOGNITION = Rule(from_table="codes", to_table="promos", relation="requires_recognition")


@pytest.mark.spec("1.5")
def test_the_fingerprint_is_made_from_the_documented_canonical_form():
    text = json.dumps([["codes", "promos", "requires_recognition"], ["plans", "codes", "uses", "code"]])
    expected = hashlib.sha256(text.replace(", ", ",").encode()).hexdigest()[:12]
    uses = Rule(from_table="plans", to_table="codes", relation="uses", via="code")
    assert RuleSet([uses, RECOGNITION]).version == expected
    assert re.fullmatch(r"[0-9a-f]{12}", expected)


@pytest.mark.spec("1.6")
@given(rule_lists, st.randoms())
def test_the_order_of_declaration_does_not_matter(declared, chance):
    shuffled = list(declared)
    chance.shuffle(shuffled)
    assert RuleSet(shuffled).version == RuleSet(declared).version
    assert RuleSet(shuffled) == RuleSet(declared)


@pytest.mark.spec("1.6")
@given(rule_lists, rules)
def test_adding_removing_and_redeclaring_change_the_fingerprint(declared, rule):
    others = [other for other in declared if other.id != rule.id]
    without, with_it = RuleSet(others), RuleSet([*others, rule])
    redeclared = RuleSet([*others, msgspec.structs.replace(rule, via="another_column")])
    renamed = RuleSet([*others, msgspec.structs.replace(rule, relation="another_relation")])
    assert len({without.version, with_it.version, redeclared.version, renamed.version}) == 4


@given(rule_lists, rule_lists)
def test_fingerprints_are_equal_exactly_when_the_rules_are(one, other):
    assert (RuleSet(one).version == RuleSet(other).version) == (RuleSet(one) == RuleSet(other))


@given(rule_lists, rule_lists)
def test_what_was_added_and_removed_leads_from_one_set_to_the_other(one, other):
    old, new = RuleSet(one), RuleSet(other)
    assert (set(old) - set(old.added_since(new))) | set(new.added_since(old)) == set(new)


@pytest.mark.spec("1.7")
def test_two_rules_of_one_relation_may_not_leave_one_table():
    with pytest.raises(BadRule, match="two rules called requires_recognition leave table codes"):
        RuleSet([RECOGNITION, msgspec.structs.replace(RECOGNITION, to_table="plans")])


@pytest.mark.spec("1.1")
@pytest.mark.parametrize("name", ["", "1st", "a b", "a:b", "é", "x" * 129, "a\n"])
def test_names_that_the_wire_cannot_carry_are_refused(name):
    with pytest.raises(BadName, match="cannot name a"):
        Rule(from_table="codes", to_table="promos", relation=name)


def test_a_rule_is_found_by_the_table_it_leaves_and_its_relation():
    declared = RuleSet([RECOGNITION])
    assert declared.find("codes", "requires_recognition") is RECOGNITION
    assert declared.find("promos", "requires_recognition") is None
    assert declared.leaving("codes") == (RECOGNITION,)
    assert list(declared) == [RECOGNITION]
    assert len(declared) == 1
    assert hash(declared) == hash(RuleSet([RECOGNITION]))
