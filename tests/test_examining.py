"""A policy on the bench: what it read and would say is told, and what is missing on its record is found."""

import time

import pytest

from shelflife.apis.acme.policies import POLICIES
from shelflife.contract import Rule
from shelflife.server import fix
from shelflife.testing import check_record, examine

TABLES = {
    "codes": {"growth": {"code": "SUMMER", "note": "n"}, "scale": {"code": "SCALE", "note": "m"}},
    "promos": {"SUMMER": {"percent": 25, "until": "August"}, "SCALE": {"percent": 5, "until": "May"}},
}
NEEDS = Rule(from_table="codes", to_table="promos", relation="needs", via="code")
WANTED = {"plan": "growth", "discount": 1, "customer": {"name": "Ada", "country": "de"}}


def discount_of_promo(request, tables):
    assigned = tables.codes.get(request.get("plan"))
    promo = assigned.follow("needs") if assigned else None
    if promo and not request.equals("discount", promo["percent"]):
        return fix("USE_DISCOUNT", discount=promo["percent"])
    return None


def test_it_tells_what_a_policy_read_and_would_say():
    seen = examine(discount_of_promo, TABLES, WANTED, [NEEDS])
    assert seen.suggestion.parameters == {"discount": 25}
    assert seen.cells == {"codes": {"growth": ("code",)}, "promos": {"SUMMER": ("percent",)}}
    assert seen.rules == ("codes:needs",)
    assert (seen.when, seen.unless) == ({"plan": "growth"}, {"discount": (25,)})
    assert seen.untracked == ()


def test_it_tells_what_a_policy_read_when_all_is_well():
    seen = examine(discount_of_promo, TABLES, {"plan": "growth", "discount": 25}, [NEEDS])
    assert seen.suggestion is None
    assert seen.when == {"plan": "growth", "discount": 25}
    assert seen.cells["promos"] == {"SUMMER": ("percent",)}


def test_it_tells_what_no_version_tells_of():
    def timed(request, tables):
        return fix("AT", at=time.time(), code=tables.codes["growth"]["code"])

    [told] = examine(timed, TABLES, {}).untracked
    assert told.endswith("reads the clock (time.time)")

    def reporting(request, tables):
        tables.report_untracked("the rate of the day")
        return fix("AT", code=tables.codes["growth"]["code"])

    assert examine(reporting, TABLES, {}).untracked == ("the rate of the day",)


def walks(request, tables):
    best = min(tables.promos.values(), key=lambda row: row["percent"])
    return fix("CHEAPEST", code=best.key, customer=request["customer"]["name"])


def says_whether_there_is_a_rule(request, tables):
    return fix("RULE", is_there=tables.has_rule("codes", "needs"), growth="growth" in tables.codes)


@pytest.mark.parametrize("policy", [discount_of_promo, walks, says_whether_there_is_a_rule])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_policy_of_the_views_alone_has_a_complete_record(policy, seed):
    check_record(policy, TABLES, WANTED, [NEEDS], seed=seed)


def peeking(look):
    """A policy that reads a row on record, and something else past it."""

    def policy(request, tables):
        return fix("USE", code=tables.codes["growth"]["code"], past=look(request, tables))

    return policy


PAST_THE_RECORD = {
    "a cell": lambda request, tables: tables._state.tables["promos"].rows["SUMMER"]["until"],
    "a column of the row itself": lambda request, tables: (
        tables._state.tables["codes"].rows["growth"].get("note")
    ),
    "whether there is a row": lambda request, tables: "SCALE" in tables._state.tables["promos"].rows,
    "how many rows there are": lambda request, tables: len(tables._state.tables["promos"].rows),
    "a column that only another row has": lambda request, tables: (
        tables._state.tables["codes"].rows["growth"].get("until")
    ),
    "a field": lambda request, tables: request._fields.get("discount"),
    "a field that is not there": lambda request, tables: len(request._fields),
    "a field of an object": lambda request, tables: request._fields.get("customer", {}).get("country"),
    "a rule": lambda request, tables: len(tables._state.rules),
}


@pytest.mark.parametrize("what", PAST_THE_RECORD)
def test_what_is_read_past_the_record_is_found(what):
    if "only another" in what:
        tables = {**TABLES, "codes": {**TABLES["codes"], "scale": {"until": "May"}}}
    else:
        tables = TABLES
    with pytest.raises(AssertionError, match=r"the policy says USE .* when .*, which is not on record"):
        check_record(peeking(PAST_THE_RECORD[what]), tables, WANTED, [NEEDS])


def test_what_counts_only_together_is_found_too():
    def look(request, tables):
        promos = tables._state.tables["promos"].rows
        return "SUMMER" not in promos and "SCALE" not in promos

    with pytest.raises(AssertionError, match=r"promos/\w+ is gone and "):
        check_record(peeking(look), TABLES, WANTED, [NEEDS], mixed_count=1000)


def test_a_policy_that_fails_then_is_found():
    def look(request, tables):
        return tables._state.tables["promos"].rows["SUMMER"]["until"].upper()

    with pytest.raises(AssertionError, match=r"and fails \("):
        check_record(peeking(look), TABLES, WANTED, [NEEDS])


def test_without_a_fix_there_is_no_record_to_check():
    with pytest.raises(ValueError, match="nothing to say"):
        check_record(discount_of_promo, TABLES, {}, [NEEDS])


def test_a_fix_that_is_not_kept_needs_no_record():
    check_record(lambda request, tables: fix("AT", at=time.time()), TABLES, {})


def test_the_tables_and_the_request_are_left_as_they_are():
    before = repr((TABLES, WANTED))
    check_record(walks, TABLES, WANTED)
    assert repr((TABLES, WANTED)) == before


def test_a_policy_of_the_reference_api_holds():
    tables = {
        "required_promo_policy": {"growth": {"code_of": "emea"}},
        "active_csm_codes": {"emea": {"code": "E1"}, "apac": {"code": "A1"}},
        "promo_eligibility": {"E1": {"plans": ["growth"]}},
    }
    recognised = Rule(
        from_table="active_csm_codes",
        to_table="promo_eligibility",
        relation="requires_recognition",
        via="code",
    )
    check_record(POLICIES[0], tables, {"plan": "growth", "promo_code": "OLD"}, [recognised])


def test_a_policy_that_reads_the_clock_has_no_complete_record():
    def of_today(request, tables):
        """It says the same as long as the day does."""
        row = tables.codes.get(request.get("plan"))
        return fix("USE", code=row["code"]) if row and time.time() > 0 else None

    with pytest.raises(AssertionError, match=r"reads what no version vouches for: .*the clock"):
        check_record(of_today, TABLES, WANTED)
