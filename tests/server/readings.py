"""Policies that do one thing with the tables or the request, and what is on record then."""

from shelflife.contract import Rule
from shelflife.server import Registry, fix
from shelflife.server.policies import Policy, evaluate

PLANS = {
    "basic": {"code": "P1", "limits": [1, 2], "note": "n"},
    "pro": {"code": "P2", "note": "n"},
    "bare": {},
}
CODES = {"P1": {"percent": 5, "note": "n"}}
BY_CODE = Rule(from_table="plans", to_table="codes", relation="redeems", via="code")
BY_ANY = Rule(from_table="plans", to_table="codes", relation="names")


def suggestion_of(policy, request=None, world=None):
    registry = Registry(world or {"plans": PLANS, "codes": CODES}, [] if world else [BY_CODE, BY_ANY])
    [violation] = evaluate([Policy.from_function(policy, None)], request or {}, registry.state)
    return violation.suggestion


def cells_after(read, world=None):
    """What is on record when this is all that a policy does with the tables."""

    def policy(request, tables):
        read(tables)
        return fix("F")

    return suggestion_of(policy, world=world).cells


def basic(read):
    return cells_after(lambda tables: read(tables.plans["basic"]))


def conditions_of(look, request):
    def policy(request, tables):
        assert tables.plans["basic"]
        look(request)
        return fix("F")

    suggestion = suggestion_of(policy, request)
    return suggestion.when, suggestion.unless or {}
