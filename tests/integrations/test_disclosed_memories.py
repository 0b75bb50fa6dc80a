"""Memories of agents that are shown aliases."""

import pytest

from shelflife.client import Exchange, Memory, Reply
from shelflife.client.events import LogLost
from shelflife.contract.positions import AT_HEADER
from shelflife.server import Disclosure
from tests.calling import calling
from tests.integrations.hidden_shop import GOVERNED, KEY_OF, SECRET, drift, position_of, shop


class Remembering:
    """An agent with a real memory and its own credentials. It names positions, or goes by versions."""

    def __init__(self, http, *, names_positions, memory=None, root=None):
        self.http = http
        self.names_positions = names_positions
        self.root = root or str(http.base_url).rstrip("/")
        self.events = []
        self.memory = memory or Memory()

    def ask(self, question):
        path = question.url.removeprefix(self.root)
        response = self.http.request(
            question.method, path, content=question.body, headers=dict(question.headers)
        )
        return Reply(response.status_code, response.content, dict(response.headers))

    def order(self, request):
        at = self.memory.contract_at(self.root) if self.names_positions else None
        response = self.http.post("/orders", json=request, headers={} if at is None else {AT_HEADER: at})
        reply = Reply(response.status_code, response.content, dict(response.headers))
        seen = Exchange(self.root, "POST /orders", request, reply, at)
        self.events += self.memory.observe(seen, self.ask)

    @property
    def plans(self):
        """What the memory would use."""
        return {
            entry.condition.when["plan"]
            for plan in KEY_OF
            for entry in self.memory.recall(self.root, "POST /orders", {"plan": plan})
        }


@pytest.mark.spec("14.6", "14.7")
@pytest.mark.parametrize("names_positions", [True, False])
@pytest.mark.parametrize(("sees_diffs", "kept"), [(False, set()), (True, {"gold", "tin"})])
def test_a_memory_that_is_told_counts_drops_the_table_and_keeps_it_over_a_benign_bump(
    sees_diffs, kept, names_positions
):
    provider, app = shop(Disclosure(secret=SECRET, sees_diffs=lambda client: sees_diffs))
    with calling(app, headers={"Authorization": "Bearer ada"}) as client:
        agent = Remembering(client, names_positions=names_positions)
        for plan in KEY_OF:
            agent.order({"plan": plan})
        assert agent.plans == {*KEY_OF}
        for table in ("HiddenCodes", "HiddenPromos"):
            drift(provider, ("bump", table))
        agent.order({"plan": "none"})
        assert agent.plans == {*KEY_OF}
        drift(provider, ("code", "iron", 7))
        agent.order({"plan": "none"})
        assert agent.plans == kept
        assert (agent.memory.position(agent.root) is not None) is names_positions


def restarted(*, names_positions, **options):
    """What a memory has before and after a restart of the server, and what happened."""
    memory, held = Memory(), []
    for _ in range(2):
        _, app = shop(Disclosure(secret=SECRET, sees_diffs=lambda client: True), **options)
        with calling(app, headers={"Authorization": "Bearer ada"}) as client:
            agent = Remembering(client, names_positions=names_positions, memory=memory, root="http://shop:80")
            agent.order({"plan": "none" if held else "gold"})
            held.append((agent.plans, [entry.grounds.cells for entry in memory.store.entries()]))
    return held, agent


@pytest.mark.spec("14.2", "14.4")
@pytest.mark.parametrize("names_positions", [True, False])
def test_a_memory_outlives_a_restart_of_the_server(tmp_path, names_positions):
    held, agent = restarted(names_positions=names_positions, log=tmp_path / "log.db")
    assert held[0] == held[1]
    assert held[0][0] == {"gold"}
    assert agent.events == []


@pytest.mark.spec("14.2")
def test_aliases_outlive_the_log():
    held, _ = restarted(names_positions=False)
    assert held[0] == held[1]
    assert held[0][0] == {"gold"}
    held, agent = restarted(names_positions=True)
    assert [type(event) for event in agent.events] == [LogLost]
    assert held[0][1] == held[1][1] != []
    assert (held[0][0], held[1][0]) == ({"gold"}, set())


@pytest.mark.spec("14.5")
def test_a_memory_whose_server_takes_it_for_another_client_begins_anew():
    """Its aliases mean nothing any more, so nothing that it holds may be used until it was asked for again."""
    _, app = shop(Disclosure(secret=SECRET))
    with calling(app, headers={"Authorization": "Bearer ada"}) as client:
        agent = Remembering(client, names_positions=True)
        agent.order(GOVERNED)
        assert agent.plans == {"gold"}
        client.headers["Authorization"] = "Bearer bob"
        agent.order({"plan": "none"})
        assert agent.plans == set()
        agent.memory.revalidate(agent.root, "POST /orders", GOVERNED, agent.ask)
        assert agent.plans == {"gold"}
        assert agent.memory.position(agent.root) == position_of(client)
