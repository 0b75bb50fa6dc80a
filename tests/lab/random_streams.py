"""Streams in which rules and rows drift at random, in an order of their own: made from a seed, so that each can be played again."""

import random

import msgspec

from shelflife.contract import Rule
from shelflife.lab.scenarios import Drift, load
from shelflife.lab.slots import with_stale_slots

EPISODES = 30
RULES = (
    ("token_funding_map", "funds", "recommended_credit_token", "pays_for"),
    ("recommended_credit_token", "governed_by", "funding_type_policy", "policy"),
    ("active_csm_codes", "requires_recognition", "promo_eligibility", "code"),
    ("recommended_credit_token", "pays_with", "token_funding_map", "token"),
)
AT_FIRST = {"funds", "requires_recognition", "pays_with"}
PLANS = ("plan_enterprise_annual", "plan_enterprise_monthly", "plan_reseller", "plan_public_sector")
CREDIT = ("acme_pm_visa_credit", "acme_pm_amex_credit")
CODES = ("SUMMERSALE25", "WINTERLAUNCH26")


def random_stream(seed):
    """One to six moments at which one to three things drift: rules come, go or both, a row is set, a table is bumped."""
    chance = random.Random(seed)
    base = load("undrifted")
    there, drift = set(AT_FIRST), []
    for after in sorted(chance.sample(range(EPISODES - 1), chance.randint(1, 6))):
        for _ in range(chance.randint(1, 3)):
            is_of_rules = chance.random() < 0.6
            drift.append(
                rules_drift(chance, after, there) if is_of_rules else rows_drift(chance, after, len(drift))
            )
    order = [chance.choice([*base.families]) for _ in range(EPISODES)]
    return with_stale_slots(
        msgspec.structs.replace(base, name="random", order=order, drift=drift, stale_slots=None, split=None)
    )


def rules_drift(chance, after, there):
    """One that comes or goes, or two of which each does."""
    changed = chance.sample(RULES, chance.choice((1, 1, 2)))
    rules = {
        relation: Rule(from_table=source, relation=relation, to_table=target, via=via)
        for source, relation, target, via in changed
    }
    add = [rule for relation, rule in rules.items() if relation not in there]
    remove = [rule for relation, rule in rules.items() if relation in there]
    there ^= {*rules}
    return Drift(after=after, says="rules", add_rules=add, remove_rules=remove)


def rows_drift(chance, after, number):
    """A value that fixes give, a row that decides whether they are given, a column that nobody reads, or a version alone."""
    token, code = chance.choice(CREDIT), chance.choice(CODES)
    accepts = chance.choice((["credit"], ["credit", "prepaid"], ["credit", "debit"]))
    governing = chance.choice(("credit_only", "enterprise_annual"))
    table, rows, removed = chance.choice(
        (
            ("active_csm_codes", {"plan_partner_growth": {"code": code}}, []),
            ("active_csm_codes", {"plan_partner_growth": {"code": code, "note": f"{number}"}}, []),
            ("recommended_credit_token", {chance.choice(PLANS): {"token": token, "policy": governing}}, []),
            ("recommended_credit_token", {}, [chance.choice(PLANS)]),
            ("funding_type_policy", {governing: {"accepts": accepts, "settles_on": token}}, []),
            ("promo_eligibility", {code: {"plans": ["plan_partner_growth"], "percent_off": 10}}, []),
            ("promo_eligibility", {}, [code]),
            ("token_funding_map", {}, []),
            ("recommended_credit_token", {}, []),
        )
    )
    return Drift(after=after, says="rows", table=table, set=rows, remove=removed, version=f"2.{number}.0")
