"""A real Acme server, and an agent that calls it."""

import pytest

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.testing import serving
from tests.client.agents import Agent


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
