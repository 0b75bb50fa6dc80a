"""Memories that are shown aliases decide as those that are shown names, in either form, with preconditions."""

import httpx2
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shelflife.client import Exchange, Memory, Reply
from shelflife.client.events import Evicted
from shelflife.client.sending import precondition_for
from shelflife.contract.cells import size_of
from shelflife.contract.positions import AT_HEADER
from shelflife.contract.preconditions import PRECONDITION_HEADER
from shelflife.server import Disclosure
from shelflife.testing import serving
from tests.cells import in_aliases
from tests.client.histories import World, drifts
from tests.programs import programs
from tests.worlds import dense_fields, dense_worlds, rule_lists

OPERATION = "POST /x"
CLIENT = "authorization"


class Agent:
    """Calls a server by its own name, naming positions or going by versions, and has a memory."""

    def __init__(self, http, address, client, *, names_positions):
        self.http = http
        self.root = address
        self.client = client
        self.names_positions = names_positions
        self.events = []
        self.memory = Memory(ask=self.ask, on_event=self.events.append)

    def ask(self, question):
        response = self.http.request(
            question.method,
            question.url,
            content=question.body,
            headers={**question.headers, CLIENT: self.client},
        )
        return Reply(response.status_code, response.content, dict(response.headers))

    def sent(self, request, **more):
        return self.http.post(self.root + "/x", json=request, headers={CLIENT: self.client, **more})

    def call(self, request):
        at = self.memory.contract_at(self.root) if self.names_positions else None
        response = self.sent(request, **({} if at is None else {AT_HEADER: at}))
        reply = Reply(response.status_code, response.content, dict(response.headers))
        self.memory.observe(Exchange(self.root, OPERATION, request, reply, at))

    def answers_to_remembered(self, request):
        """What the server says on condition that nothing has moved, or nothing that the memory's fixes rest on."""
        entries = self.memory.recall(self.root, OPERATION, request)
        position = self.memory.position(self.root)
        assert position is not None
        return [
            self._answer_on(precondition_for(position, entries, request, brief=one), request)
            for one in (True, False)
        ]

    def _answer_on(self, precondition, request):
        response = self.sent(request, **{PRECONDITION_HEADER: precondition.header})
        feedback = response.json().get("recovery_feedback", {"suggestions": []})
        return (
            response.status_code,
            response.headers[PRECONDITION_HEADER],
            [(one["type"], one["parameters"]) for one in feedback["suggestions"]],
        )

    @property
    def held(self):
        """What is remembered, and how many cells and rules it rests on."""
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
                size_of(one.grounds.cells),
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
    with httpx2.Client(trust_env=False, timeout=60) as client:
        yield client


@pytest.mark.spec("14.4", "14.8")
@settings(max_examples=20 if settings().max_examples < 1000 else 3000)
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
    reference = Agent(http, addresses[0], "ada", names_positions=True)
    others = [
        Agent(http, addresses[0], "bob", names_positions=False),
        Agent(http, addresses[1], "ada", names_positions=True),
        Agent(http, addresses[1], "bob", names_positions=False),
        Agent(http, addresses[1], "eve", names_positions=True),
    ]
    agents = [reference, *others]
    naming = [agent for agent in agents if agent.names_positions]

    def same(what, agents=agents):
        expected, *found = [what(agent) for agent in agents]
        assert found == [expected] * (len(agents) - 1)

    for events in rounds:
        for agent in agents:
            for request in requests:
                agent.call(request)
        same(lambda agent: agent.held)
        for agent in others[1:]:
            assert_in_aliases(agent, reference, disclosure.aliases(agent.client))
        assert len({agent.memory.position(agent.root) for agent in naming}) == len(naming)
        for event in events:
            named.drift(event)
            aliased.drift(event)
        for request in requests:
            same(lambda agent, request=request: agent.answers_to_remembered(request), naming)
        for agent in agents:
            agent.evicted()
            agent.call({"unrelated": True})
        same(lambda agent: agent.evicted())
        same(lambda agent: agent.held)


def assert_in_aliases(agent, reference, aliases):
    """What an agent's entries rest on is what the reference's do, in its own aliases."""

    def grounds(entries, cells, rule):
        return {
            (
                msgspec.json.encode(cells(one.grounds.cells), order="sorted"),
                frozenset(map(rule, one.grounds.rules)),
            )
            for one in entries
        }

    plain = grounds(
        reference.memory.store.entries(), lambda cells: in_aliases(aliases, cells), aliases.rule_id
    )
    assert grounds(agent.memory.store.entries(), dict, str) == plain
