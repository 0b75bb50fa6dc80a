"""Real parts for the tests: servers on loopback, and Hypothesis profiles."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "suite", deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", settings.get_profile("suite"), max_examples=5_000)
settings.load_profile(os.environ.get("SHELFLIFE_TESTS", "suite"))
