"""Memories that are shown aliases decide as one that is shown the names, in either form and with preconditions."""

import httpx2
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shelflife.client import Exchange, Memory, Reply
from shelflife.client.events import Evicted
from shelflife.client.sending import precondition_for
from shelflife.contract.compact import EPOCH_HEADER
from shelflife.contract.preconditions import PRECONDITION_HEADER
from shelflife.server import Disclosure
from shelflife.testing import serving
from tests.client.histories import World, drifts
from tests.programs import programs
from tests.worlds import dense_fields, dense_worlds, rule_lists

OPERATION = "POST /x"
CLIENT = "authorization"


class Agent:
    """Calls a server by its own name, in the full form or the compact one, and has a memory."""

    def __init__(self, http, address, client, *, is_compact):
        self.http = http
        self.origin = address
        self.client = client
        self.is_compact = is_compact
        self.events = []
        self.memory = Memory(ask=self.ask, on_event=self.events.append)

    def ask(self, question):
        response = self.http.get(question.url, headers={CLIENT: self.client})
        return Reply(response.status_code, response.content)

    def sent(self, request, **more):
        return self.http.post(self.origin + "/x", json=request, headers={CLIENT: self.client, **more})

    def call(self, request):
        epoch = self.memory.epoch(self.origin) if self.is_compact else None
        response = self.sent(request, **({} if epoch is None else {EPOCH_HEADER: epoch}))
        headers = {name.lower(): value for name, value in response.headers.items()}
        self.memory.observe(
            Exchange(
                self.origin, OPERATION, request, Reply(response.status_code, response.content, headers), epoch
            )
        )

    def answer_to_remembered(self, request):
        """What the server says to a request on condition that what is remembered for it still holds."""
        entries = self.memory.recall(self.origin, OPERATION, request)
        epoch = self.memory.epoch(self.origin)
        if not entries or epoch is None:
            return len(entries)
        header = precondition_for(epoch, entries, request).header
        response = self.sent(request, **{PRECONDITION_HEADER: header})
        feedback = response.json().get("recovery_feedback", {"suggestions": []})
        return response.status_code, [(one["type"], one["parameters"]) for one in feedback["suggestions"]]

    @property
    def held(self):
        """What is remembered, and how many rows and rules it rests on."""
        return as_set(self.memory.store.entries())

    def evicted(self):
        """What has been evicted since this was asked last."""
        events = [event.entry for event in self.events if isinstance(event, Evicted)]
        self.events.clear()
        return as_set(events)


def as_set(entries):
    return {
        msgspec.json.encode(
            (
                one.type,
                one.parameters,
                one.condition.when,
                one.condition.unless,
                len(one.grounds.rows),
                len(one.grounds.rules),
            ),
            order="sorted",
        )
        for one in entries
    }


@pytest.fixture(scope="module")
def named():
    return World()


@pytest.fixture(scope="module")
def disclosure():
    return Disclosure(
        secret="a secret of the provider",
        client=lambda headers: headers[CLIENT],
        sees_diffs=lambda client: True,
    )


@pytest.fixture(scope="module")
def aliased():
    return World()


@pytest.fixture(scope="module")
def addresses(named, aliased):
    with serving(named) as one, serving(aliased) as other:
        yield one, other


@pytest.fixture(scope="module")
def http():
    with httpx2.Client(trust_env=False, timeout=30) as client:
        yield client


@pytest.mark.spec("14.4", "14.8")
@settings(max_examples=150 if settings().max_examples < 1000 else 3000)
@given(
    content=dense_worlds,
    declared=rule_lists,
    program_list=st.lists(programs, min_size=1, max_size=3),
    requests=st.lists(dense_fields, min_size=1, max_size=3),
    rounds=st.lists(drifts, min_size=1, max_size=3),
)
def test_aliases_lead_to_the_same_decisions(
    named, aliased, disclosure, addresses, http, content, declared, program_list, requests, rounds
):
    named.make(content, declared, program_list)
    aliased.make(content, declared, program_list, disclosure=disclosure)
    reference = Agent(http, addresses[0], "ada", is_compact=False)
    others = [
        Agent(http, addresses[1], "ada", is_compact=False),
        Agent(http, addresses[1], "bob", is_compact=True),
    ]
    agents = [reference, *others]

    def same(what):
        expected, *found = [what(agent) for agent in agents]
        assert found == [expected] * len(others)

    for events in rounds:
        for agent in agents:
            for request in requests:
                agent.call(request)
        same(lambda agent: agent.held)
        for agent in others:
            assert_in_aliases(agent, reference, disclosure.aliases(agent.client))
        for event in events:
            named.drift(event)
            aliased.drift(event)
        for request in requests:
            same(lambda agent, request=request: agent.answer_to_remembered(request))
        for agent in agents:
            agent.evicted()
            agent.call({"unrelated": True})
        same(lambda agent: agent.evicted())
        same(lambda agent: agent.held)


def assert_in_aliases(agent, reference, aliases):
    """What an agent's entries rest on is what the reference's do, in its own aliases."""

    def grounds(entries, row, rule):
        return {
            (frozenset(map(row, one.grounds.rows)), frozenset(map(rule, one.grounds.rules)))
            for one in entries
        }

    plain = grounds(reference.memory.store.entries(), aliases.row, aliases.rule_id)
    assert grounds(agent.memory.store.entries(), str, str) == plain
