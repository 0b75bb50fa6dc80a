"""Real servers, stores of all kinds, and an agent that calls."""

from contextlib import closing

import httpx2
import pytest

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.client import Memory
from shelflife.client.circuit import Circuit
from shelflife.client.pauses import Pauses
from shelflife.server import keeping_up
from shelflife.testing import serving
from tests.client.agents import Agent, Clock
from tests.client.histories import World
from tests.client.kinds import store_of


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


@pytest.fixture(params=["in process", "SQLite", "PostgreSQL", "Valkey"])
def store(request, tmp_path):
    with closing(store_of(request.param, request.getfixturevalue, tmp_path)) as store:
        yield store


@pytest.fixture(scope="module")
def world():
    return World()


@pytest.fixture(scope="module")
def world_address(world):
    with serving(world) as address:
        yield address


@pytest.fixture(scope="module")
def http():
    with httpx2.Client(trust_env=False, timeout=60) as client:
        yield client


@pytest.fixture
def servers_end_soon(monkeypatch):
    """A server that keeps up with a log ends within half a second, and most tests of it wait for that more than for all else."""
    monkeypatch.setattr(keeping_up, "_LONGEST_WAIT_S", 0.05)


@pytest.fixture
def open_circuits_stay_open(monkeypatch):
    """However long a test takes: a store that has failed is left alone until the test closes the circuit."""
    for_long = Pauses(600, 600)
    monkeypatch.setattr(Circuit.__init__, "__defaults__", (for_long,))
    monkeypatch.setattr("shelflife.client.sqlite._PAUSES", for_long)


@pytest.fixture(params=["PostgreSQL", "Valkey"])
def where(request):
    """The address of an engine."""
    return request.getfixturevalue("postgres_url" if request.param == "PostgreSQL" else "valkey_url")


@pytest.fixture
def opened():
    """Memories, each over a store of its own, as on machines of their own."""
    memories = []

    def at(where, **settings):
        memories.append(Memory.at(where, **settings))
        return memories[-1]

    yield at
    for memory in memories:
        memory.close()
