"""A memory that follows a feed: up to date without a request."""

import httpx2
import pytest

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.client.events import Evicted, Stored
from shelflife.integrations.following import Follower
from shelflife.testing import serving
from tests.acme_world import CONTROL, GOVERNED, rotate
from tests.client.agents import Agent, knows, learn


@pytest.fixture
def provider():
    return acme_provider()


@pytest.fixture
def client():
    with httpx2.Client(trust_env=False, timeout=httpx2.Timeout(10, read=None)) as client:
        yield client


def epoch_of(provider):
    return provider.state.face(provider.level).epoch


def test_what_moves_is_heard_and_renewed_without_a_request(provider, client):
    with serving(acme_app(provider)) as address, Agent(address) as agent:
        learn(agent, GOVERNED, CONTROL)
        heard = []
        with Follower(agent.memory, client, address, on_heard=heard.append) as follower:
            assert follower.wait_for(epoch_of(provider), 10)
            rotate(provider)
            assert follower.wait_for(epoch_of(provider), 10)
        assert knows(agent, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]
        assert knows(agent, CONTROL) == [{"currency": "eur"}]
        assert [type(event) for events in heard for event in events] == [Evicted, Stored]
        assert not any("changes" in asked for asked in agent.asked)


def test_a_follower_that_comes_late_catches_up(provider, client):
    with serving(acme_app(provider)) as address, Agent(address) as agent:
        learn(agent, GOVERNED, CONTROL)
        rotate(provider)
        provider.registry.reload_table("recommended_credit_token", set={}, version="2")
        with Follower(agent.memory, client, address) as follower:
            assert follower.wait_for(epoch_of(provider), 10)
        assert knows(agent, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]
        assert knows(agent, CONTROL) == [{"currency": "eur"}]


def test_a_server_that_went_away_is_followed_again(provider, client):
    with Agent("") as agent:
        with serving(acme_app(provider)) as address:
            port = int(address.rpartition(":")[2])
            agent.origin = address
            learn(agent, GOVERNED, CONTROL)
            follower = Follower(agent.memory, client, address)
            follower.__enter__()
            assert follower.wait_for(epoch_of(provider), 10)
        other = acme_provider()
        rotate(other)
        with serving(acme_app(other), port=port):
            assert follower.wait_for(epoch_of(other), 30)
            follower.__exit__()
        assert knows(agent, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]
        assert knows(agent, CONTROL) == [{"currency": "eur"}]


def test_many_changes_are_followed_to_the_end(provider, client):
    with serving(acme_app(provider)) as address, Agent(address) as agent:
        learn(agent, GOVERNED, CONTROL)
        with Follower(agent.memory, client, address) as follower:
            for turn in range(60):
                rotate(provider)
                row = {"code": ["SUMMERSALE25", "SCALEUP15"][turn % 2]}
                provider.registry.reload_table("active_csm_codes", set={"plan_partner_growth": row})
            assert follower.wait_for(epoch_of(provider), 30)
        assert knows(agent, GOVERNED) == [{"promo_code": "SCALEUP15"}]
        assert knows(agent, CONTROL) == [{"currency": "eur"}]
