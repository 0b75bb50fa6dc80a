"""A fleet for all tests about one."""

import time

import pytest

from tests.engines import engine, schema_of_its_own
from tests.fleet.fleets import Oracle, fleet_over
from tests.processes import wait_until


@pytest.fixture(scope="session")
def database():
    """One of its own, for it is killed."""
    with engine("postgres") as own:
        yield own


@pytest.fixture(scope="session")
def fleet(database, tmp_path_factory):
    with fleet_over(database, schema_of_its_own(database.url), tmp_path_factory.mktemp("fleet")) as one:
        yield one


@pytest.fixture
def oracle(fleet):
    """It begins with a state of its own that all have."""
    one = Oracle(fleet)
    one.sent = int(time.time() * 1000)
    wait_until(lambda: (one.reload(wait_s=20) or {}).get("workers") == {"live": 4, "behind": 0}, 180)
    return one
