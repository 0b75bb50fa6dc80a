"""Schemathesis on all APIs' OpenAPI, over real HTTP: no input makes a 500, and every answer is as documented.

What every provider gets (`/contract`, `/admin`) is the same code in each app. So in one run it is tried on one of them.
"""

import os
import random

import pytest

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.apis.meetings import meetings_app, meetings_provider
from shelflife.apis.payouts import payouts_app, payouts_provider
from shelflife.apis.recipes import recipes_app, recipes_provider
from shelflife.testing import serving
from tests.calling import TOKEN
from tests.nursery import nursery_with

IS_LONG = os.environ.get("SHELFLIFE_TESTS") == "long"
MOST_EXAMPLES = "40" if IS_LONG else "20"
SEED = str(random.randrange(10**9)) if IS_LONG else "1"
APPS = {
    "acme": lambda: acme_app(acme_provider(admin_token=TOKEN)),
    "meetings": lambda: meetings_app(meetings_provider(admin_token=TOKEN)),
    "payouts": lambda: payouts_app(payouts_provider(admin_token=TOKEN)),
    "recipes": lambda: recipes_app(recipes_provider(admin_token=TOKEN)),
}


@pytest.fixture(scope="module")
def fuzzers():
    """Where processes are forked that need not import Schemathesis first."""
    with nursery_with("schemathesis.cli.commands.run.executor", "schemathesis.checks") as started:
        yield started


FUZZ = "import schemathesis.cli; schemathesis.cli.schemathesis()"


@pytest.mark.parametrize("api", APPS)
def test_any_input_is_answered_as_documented_and_never_with_500(api, fuzzers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    its_own = [] if api == "acme" or IS_LONG else ["--exclude-path-regex", "^/(contract|admin)/"]
    with serving(APPS[api]()) as address:
        arguments = (
            *("run", f"{address}/openapi.json", "--header", f"Authorization: Bearer {TOKEN}"),
            *("--max-examples", MOST_EXAMPLES, "--seed", SEED, "--checks", "all", "--workers", "1"),
            *("--exclude-checks", "positive_data_acceptance"),  # policies refuse what the schema allows
            *its_own,
        )
        with fuzzers.forked(FUZZ, *arguments) as run:
            told = run.stdout.read()
            assert run.wait(900) == 0, told[-6000:]
    assert " passed" in told
