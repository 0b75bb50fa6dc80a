"""What Acme demands of a subscription."""

from shelflife.server import Fix, Request, Tables, fix

__all__ = ["POLICIES", "SMALLEST_STEP"]

SMALLEST_STEP = 5
"""Amounts are whole multiples of this many minor units."""


def promo_must_be_the_assigned_one(request: Request, tables: Tables) -> Fix | None:
    """This plan needs the promotional code that is currently assigned to it."""
    required = tables.required_promo_policy.get(request["plan"])
    if required is None:
        return None
    assigned = tables.active_csm_codes.get(required["code_of"])
    if assigned is None or assigned.follow("requires_recognition") is None:
        return None
    if request.equals("promo_code", assigned["code"]):
        return None
    return fix("USE_REQUIRED_PROMO", promo_code=assigned["code"])


def promo_must_be_redeemable(request: Request, tables: Tables) -> Fix | None:
    """This promotional code cannot be redeemed on this plan."""
    code = request.get("promo_code")
    if code is None or request["plan"] in tables.required_promo_policy:
        return None
    promo = tables.promo_eligibility.get(code)
    if promo is not None and request["plan"] in promo["plans"]:
        return None
    return fix("DROP_INELIGIBLE_PROMO", promo_code=None)


def funding_must_be_what_the_plan_requires(request: Request, tables: Tables) -> Fix | None:
    """This plan must be paid by credit."""
    recommended = tables.recommended_credit_token.get(request["plan"])
    if recommended is None or request.equals("payment_method_token", recommended["token"]):
        return None
    is_governed = tables.has_rule("recommended_credit_token", "governed_by")
    governing = recommended.follow("governed_by") if is_governed else None
    accepted = governing["accepts"] if governing else ["credit"]
    if tables.has_rule("token_funding_map", "funds"):
        on_file = tables.token_funding_map.get(request["payment_method_token"])
        if on_file is not None and on_file["funding"] in accepted:
            return None
    return fix("USE_REQUIRED_FUNDING_TYPE", payment_method_token=recommended["token"])


def currency_must_be_what_the_token_settles_in(request: Request, tables: Tables) -> Fix | None:
    """This payment token settles in another currency."""
    on_file = tables.token_funding_map.get(request["payment_method_token"])
    if on_file is None or request.equals("currency", on_file["currency"]):
        return None
    return fix("USE_SETTLEMENT_CURRENCY", currency=on_file["currency"])


def amount_must_be_round(request: Request, tables: Tables) -> Fix | None:
    """The amount must be a multiple of five minor units."""
    amount = request["amount"]
    rounded = max(SMALLEST_STEP, amount // SMALLEST_STEP * SMALLEST_STEP)
    return None if amount == rounded else fix("ROUND_AMOUNT", amount=rounded)


POLICIES = (
    promo_must_be_the_assigned_one,
    promo_must_be_redeemable,
    funding_must_be_what_the_plan_requires,
    currency_must_be_what_the_token_settles_in,
    amount_must_be_round,
)
