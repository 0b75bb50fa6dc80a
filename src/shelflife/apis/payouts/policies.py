"""What a payout must say of the bank that it goes to."""

from shelflife.server import Fix, Request, Tables, fix

__all__ = ["POLICIES"]


def bank_must_be_in_the_register(request: Request, tables: Tables) -> Fix | None:
    """No bank has this code, so the payout is put on hold."""
    if _bank(request) in tables.banks or request.equals("on_hold", True):
        return None
    return fix("PUT_ON_HOLD", on_hold=True)


def bic_must_be_that_of_the_bank(request: Request, tables: Tables) -> Fix | None:
    """This bank has another BIC."""
    bank = tables.banks.get(_bank(request))
    if bank is None or "bic" not in bank or request.equals("bic", bank["bic"]):
        return None
    return fix("USE_BIC", bic=bank["bic"])


def account_must_be_checked_by_the_method_of_the_bank(request: Request, tables: Tables) -> Fix | None:
    """This bank has another method for the check digits of its accounts."""
    bank = tables.banks.get(_bank(request))
    if bank is None or "check_method" not in bank or request.equals("check_method", bank["check_method"]):
        return None
    return fix("USE_CHECK_METHOD", check_method=bank["check_method"])


def _bank(request: Request) -> str:
    return f"{request['country']}:{request['bank_code']}"


POLICIES = (
    bank_must_be_in_the_register,
    bic_must_be_that_of_the_bank,
    account_must_be_checked_by_the_method_of_the_bank,
)
