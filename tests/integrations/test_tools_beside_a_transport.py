"""Tools, whose requests name no position, and a transport, whose requests do, on one server and with one memory."""

import httpx2
import pytest

from shelflife.client import Exchange, Guard, Memory, Reply, Tools
from shelflife.integrations.httpx2 import MemoryTransport
from tests.acme_world import FREE, GOVERNED
from tests.agents.billing import ENDPOINT, NEW_CODE, OLD_CODE, OPERATION, billing


@pytest.fixture(params=[OPERATION, None], ids=["by the server's name", "by a name of its own"])
def operations(request):
    return {} if request.param is None else {"subscribe": request.param}


@pytest.fixture
def server():
    with billing() as server:
        yield server


@pytest.fixture
def memory():
    return Memory()


@pytest.fixture
def by_transport(server, memory):
    transport = MemoryTransport(memory, guard=Guard())
    with httpx2.Client(base_url=server.address, transport=transport, trust_env=False, timeout=60) as client:

        def subscribe():
            for _ in range(2):
                if client.post(ENDPOINT, json=GOVERNED).is_success:
                    return

        yield subscribe


@pytest.fixture
def by_tool(server, memory, operations):
    tools = Tools(memory, server.address, operations=operations)

    def subscribe():
        for _ in range(2):
            try:
                tools.call("subscribe", GOVERNED, lambda wanted, _: server.subscribe(**wanted))
            except httpx2.HTTPStatusError:
                continue
            break

    return subscribe


def attempts(server, *plays):
    return [server.count_of(play) for play in plays]


@pytest.mark.spec("11.35")
def test_both_learn_and_use_what_they_know_in_turn(server, by_transport, by_tool):
    assert attempts(server, by_transport, by_tool)[0] == 2
    assert attempts(server, by_tool, by_transport, by_tool, by_transport) == [1, 1, 1, 1]


def test_what_a_rotation_has_made_stale_costs_each_one_attempt_at_most(server, by_transport, by_tool):
    attempts(server, by_transport, by_tool, by_tool, by_transport)
    server.rotate()
    assert max(attempts(server, by_tool, by_transport)) <= 2
    assert attempts(server, by_tool, by_transport, by_tool, by_transport) == [1, 1, 1, 1]


def test_another_row_that_changes_costs_neither_an_attempt(server, by_transport, by_tool):
    attempts(server, by_transport, by_tool, by_tool, by_transport)
    server.change_another_row()
    assert attempts(server, by_tool, by_transport, by_tool, by_transport) == [1, 1, 1, 1]


@pytest.mark.spec("11.29")
def test_the_server_is_asked_once_about_a_state_and_not_with_every_reply(server, by_transport, by_tool):
    attempts(server, by_transport, by_tool, by_tool, by_transport)
    before = len(server.asked)
    attempts(server, *[by_tool, by_transport] * 3)
    assert server.asked[before:] == []


def test_what_a_tool_has_learned_serves_the_transport_under_the_servers_name(server, memory, by_transport):
    with httpx2.Client(transport=MemoryTransport(memory), trust_env=False) as client:
        client.post(f"{server.address}{ENDPOINT}", json=FREE)  # so that the position is known
    tools = Tools(memory, server.address, operations={"subscribe": OPERATION})
    with pytest.raises(httpx2.HTTPStatusError):
        tools.call("subscribe", GOVERNED, lambda wanted, _: server.subscribe(**wanted))
    assert attempts(server, by_transport) == [1]


@pytest.mark.spec("11.36")
def test_a_first_answer_that_comes_after_later_stamps_teaches_nothing_stale():
    """A transport asks for the first time; before it has its reply, data moves, and a tool that names no position learns of it."""
    with billing() as server, httpx2.Client(base_url=server.address, trust_env=False, timeout=60) as client:
        memory = Memory()

        def told(at=None):
            reply = client.post(ENDPOINT, json=GOVERNED, headers={"Contract-At": at} if at else {})
            said = Reply(reply.status_code, reply.content, dict(reply.headers))
            return Exchange(server.address, OPERATION, GOVERNED, said, at)

        late = told(memory.contract_at(server.address))
        server.rotate()
        memory.observe(told())
        memory.observe(late)
        known = memory.recall(server.address, OPERATION, GOVERNED)
        assert OLD_CODE not in {one.parameters["promo_code"] for one in known}
        memory.observe(told(memory.contract_at(server.address)))
        [now] = memory.recall(server.address, OPERATION, GOVERNED)
        assert now.parameters["promo_code"] == NEW_CODE
