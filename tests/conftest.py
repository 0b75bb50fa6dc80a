"""Real engines for the tests, and Hypothesis profiles."""

import os

from hypothesis import HealthCheck, settings

from tests.engines import postgres, postgres_url, valkey, valkey_url

__all__ = ["postgres", "postgres_url", "valkey", "valkey_url"]

settings.register_profile(
    "suite", deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", settings.get_profile("suite"), max_examples=5_000)
settings.load_profile(os.environ.get("SHELFLIFE_TESTS", "suite"))
