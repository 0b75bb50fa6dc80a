"""Acme as a world for tests: requests to it, what drifts in it, and a server of it that never keeps still."""

from shelflife.apis.acme import ROTATED_CODES, acme_app, acme_provider
from shelflife.contract import Rule

BASE = {"customer": "cus_1", "amount": 100, "currency": "usd", "payment_method_token": "acme_pm_visa_credit"}
GOVERNED = BASE | {"plan": "plan_partner_growth"}
FUNDING_1 = BASE | {"plan": "plan_enterprise_annual", "payment_method_token": "acme_pm_visa_debit"}
FUNDING_2 = BASE | {"plan": "plan_enterprise_monthly", "payment_method_token": "acme_pm_visa_debit"}
FUNDING_3 = BASE | {"plan": "plan_reseller", "payment_method_token": "acme_pm_mastercard_debit"}
CONTROL = BASE | {"plan": "plan_basic_monthly", "payment_method_token": "acme_pm_sepa_debit"}
FREE = BASE | {"plan": "plan_basic_monthly"}
LEARNED = [GOVERNED, FUNDING_1, FUNDING_2, CONTROL]

FUNDS = Rule(
    from_table="token_funding_map", to_table="recommended_credit_token", relation="funds", via="pays_for"
)
GOVERNED_BY = Rule(
    from_table="recommended_credit_token",
    to_table="funding_type_policy",
    relation="governed_by",
    via="policy",
)


def rotate(provider):
    """Change the code of one plan."""
    provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES)


def change_another_row(provider):
    """Change the table that the code of that plan is in, and leave its row as it is."""
    code = provider.registry.rows("active_csm_codes")["plan_partner_growth"]
    provider.registry.reload_table("active_csm_codes", set={"plan_other": dict(code)})


def bump(provider):
    """Give a table a new version and leave its rows as they are."""
    rows = provider.registry.rows("recommended_credit_token")
    provider.registry.reload_table("recommended_credit_token", rows, version="1.1.0")


def stir(provider, number):
    """Change what the fixes for GOVERNED and FUNDING_1 rest on, so that both go, and are given again as they were."""
    registry = provider.registry
    code = registry.rows("active_csm_codes")["plan_partner_growth"]
    registry.reload_table("active_csm_codes", set={f"plan_{number}": code})
    registry.reload_table("required_promo_policy", set={"plan_partner_growth": {"code_of": f"plan_{number}"}})
    token = registry.rows("token_funding_map")["acme_pm_visa_debit"] | {"funding": f"debit_{number}"}
    registry.reload_table("token_funding_map", set={"acme_pm_visa_debit": token})


class Restless:
    """An Acme server that changes what its fixes rest on before each thing it says, and says so."""

    def __init__(self):
        self.provider = acme_provider()
        self.app = acme_app(self.provider)
        self.count = 0
        self.said = []

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            self.count += 1
            self.said.append(scope["path"])
            stir(self.provider, self.count)
        await self.app(scope, receive, send)
