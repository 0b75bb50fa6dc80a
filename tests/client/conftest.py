"""Real servers, stores of both kinds, and an agent that calls."""

import httpx2
import pytest

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.client import InProcessStore, SqliteStore
from shelflife.testing import serving
from tests.client.agents import Agent, Clock
from tests.client.histories import World


@pytest.fixture
def provider():
    return acme_provider()


@pytest.fixture
def address(provider):
    with serving(acme_app(provider)) as address:
        yield address


@pytest.fixture
def agent(address):
    with Agent(address) as agent:
        yield agent


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["in process", "SQLite"])
def store(request, tmp_path):
    if request.param == "in process":
        yield InProcessStore()
    else:
        store = SqliteStore(tmp_path / "memory.db")
        yield store
        store.close()


@pytest.fixture(scope="module")
def world():
    return World()


@pytest.fixture(scope="module")
def world_address(world):
    with serving(world) as address:
        yield address


@pytest.fixture(scope="module")
def http():
    with httpx2.Client(trust_env=False, timeout=30) as client:
        yield client
