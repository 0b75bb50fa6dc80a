"""Many threads against a server whose tables are reloaded a thousand times: no response mixes two states."""

import threading

import httpx2
import pytest

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.testing import serving
from tests.processes import wait_until

WANTED = {
    "customer": "cus_ada",
    "plan": "plan_partner_growth",
    "amount": 12000,
    "currency": "usd",
    "payment_method_token": "acme_pm_visa_credit",
}
RELOADS = 1000
READERS = 4


@pytest.mark.spec("5.2", "7.10")
def test_a_stamp_always_agrees_with_the_suggestion_beside_it():
    provider = acme_provider()
    codes = {f"CODE{number}": {"plans": ["plan_partner_growth"]} for number in range(RELOADS + 1)}
    provider.registry.reload_table("promo_eligibility", codes)
    over = threading.Event()
    mixtures, versions_seen = [], [set() for _ in range(READERS)]

    def read(reader, address):
        with httpx2.Client(base_url=address, trust_env=False, timeout=60) as client:
            while not over.is_set():
                answer = client.post("/subscriptions", json=WANTED).json()
                [suggestion] = answer["recovery_feedback"]["suggestions"]
                stamp = answer["table_versions"]["active_csm_codes"]
                held = {d["table"]: d["version"] for d in suggestion["tables"]}["active_csm_codes"]
                code = suggestion["parameters"]["promo_code"]
                rows = [row for row in suggestion["rows"] if row.startswith("promo_eligibility:")]
                expected = "SUMMERSALE25" if stamp == "1.0.0" else f"CODE{stamp}"
                if not (stamp == held and code == expected and rows == [f"promo_eligibility:{code}"]):
                    mixtures.append(answer)
                versions_seen[reader].add(stamp)

    provider.registry.reload_table(
        "active_csm_codes", set={"plan_partner_growth": {"code": "CODE0"}}, version="0"
    )
    with serving(acme_app(provider)) as address:
        threads = [threading.Thread(target=read, args=(reader, address)) for reader in range(READERS)]
        for thread in threads:
            thread.start()
        for number in range(1, RELOADS + 1):
            rows = {"plan_partner_growth": {"code": f"CODE{number}"}}
            provider.registry.reload_table("active_csm_codes", set=rows, version=str(number))
            # They read all the while. Each has to see this many states: while it waits, one can read the same thrice.
            wait_until(lambda number=number: min(map(len, versions_seen)) >= number // 40)
        over.set()
        for thread in threads:
            thread.join()
    assert mixtures == []
