"""Agents on machines of their own that share a memory in an engine: none recalls what another is known to have found stale."""

import os
import random
import threading
import time
from contextlib import ExitStack, closing, suppress

import httpx2
import pytest

from shelflife.client import Guard, Memory
from shelflife.client.events import Evicted, Stored
from shelflife.client.near import LONGEST_LAG_S
from shelflife.integrations.httpx2 import MemoryTransport
from tests.engines import engine
from tests.fleet.group import ROWS
from tests.processes import wait_until
from tests.proxies import Proxy

IS_LONG = os.environ.get("SHELFLIFE_TESTS") == "long"
AGENT_COUNT = 8
STEP_COUNT = 10_000 if IS_LONG else 160
LONGEST_PAUSE_S = 1.0
OWED = "recalled", "missed", "applied", "refused"
"""What happens at least once. In how many steps it does is a matter of chance."""


@pytest.fixture(scope="module", params=["valkey", "postgres"])
def store_engine(request):
    """One of its own, for it is killed."""
    with engine(request.param) as own:
        yield own


class Floors:
    """What each key must not be recalled below: somebody has seen that it is stale, and has written that down."""

    def __init__(self):
        self._lock = threading.Lock()
        self._noted = {}
        self.counts = dict.fromkeys(("recalled", "missed", "failed", "applied", "refused"), 0)

    def of(self, key, at):
        """Of all that was done by then."""
        with self._lock:
            return max((number for number, done_at in self._noted.get(key, ()) if done_at <= at), default=0)

    def note(self, events):
        """These writes are done now."""
        with self._lock:
            now = time.monotonic()
            for event in events:
                if isinstance(event, Evicted) and event.reason.is_invalidation:
                    self._raise(event.entry, event.entry.parameters["number"] + 1, now)
                elif isinstance(event, Stored):
                    self._raise(event.entry, event.entry.parameters["number"], now)

    def _raise(self, entry, number, now):
        noted = self._noted.setdefault(entry.condition.when["key"], [])
        if not noted or number > noted[-1][0]:
            noted.append((number, now))

    def count(self, what):
        with self._lock:
            self.counts[what] += 1


class Agent:
    """One of many, with a way of its own to the engine and a memory over it."""

    def __init__(self, number, address, way, store_url, floors, *, near):
        self.way = way
        self._floors = floors
        self._lag_s = LONGEST_LAG_S if near else 0.0
        self._chance = random.Random(number)
        self._happened = []
        self._address = address
        self.memory = Memory.at(store_url, near=near, most_evictions=None, on_event=self._happened.append)
        transport = MemoryTransport(self.memory, guard=Guard())
        self._client = httpx2.Client(transport=transport, base_url=address, trust_env=False, timeout=60)

    def close(self):
        self._client.close()
        self.memory.close()

    def step(self):
        """Recall something and look at it, then make a request of it, and tell what was written for it."""
        key = str(self._chance.randrange(ROWS))
        floor = self._floors.of(key, time.monotonic() - self._lag_s)
        recalled = self.memory.recall(self._address, "POST /orders", {"key": key})
        assert all(entry.parameters["number"] >= floor for entry in recalled), (key, floor, recalled)
        self._floors.count("recalled" if recalled else "missed")
        with suppress(httpx2.TransportError):
            answer = self._client.post("/orders", json={"key": key})
            self._floors.count("applied" if answer.status_code == 200 else "refused")
        happened, self._happened[:] = self._happened[:], []
        self._floors.note(happened)
        if any(type(event).__name__ == "StoreFailed" for event in happened):
            self._floors.count("failed")


@pytest.mark.parametrize("near", [False, True], ids=["", "near"])
def test_no_agent_recalls_what_another_has_found_stale(fleet, oracle, store_engine, near):
    floors, failures, is_over, steps = Floors(), [], threading.Event(), []
    chance = random.Random(os.environ.get("SHELFLIFE_SEED", "7"))

    def act(agent):
        try:
            while not is_over.is_set():
                agent.step()
                steps.append(None)
        except BaseException as error:  # noqa: BLE001 - it is raised where all of them end
            failures.append(error)
            is_over.set()

    with ExitStack() as stack:
        agents = []
        for number in range(AGENT_COUNT):
            way = stack.enter_context(Proxy(store_engine.url))
            url = way.url_of(store_engine.url)
            agent = Agent(number, fleet.balancer.address, way, url, floors, near=near)
            agents.append(stack.enter_context(closing(agent)))
        threads = [threading.Thread(target=act, args=[agent]) for agent in agents]
        for thread in threads:
            thread.start()
        faults = 0
        try:
            while not is_over.is_set() and len(steps) < 10 * STEP_COUNT:
                if len(steps) >= STEP_COUNT and faults and all(floors.counts[name] for name in OWED):
                    break
                oracle.reload()
                goal = len(steps) + AGENT_COUNT
                wait_until(lambda goal=goal: len(steps) >= goal or is_over.is_set(), 120)
                if chance.random() < 0.5:
                    faults += 1
                    trouble(chance, store_engine, chance.choice(agents).way)
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
    if failures:
        raise failures[0]
    assert faults > 0
    assert min(floors.counts[name] for name in OWED) > 0, floors.counts


def trouble(chance, store_engine, way):
    """Something goes wrong between an agent and the engine, or with the engine itself, and is undone after a moment."""
    match chance.choice(["cut", "silent", "slow", "killed"]):
        case "cut":
            way.cut()
        case "silent":
            way.is_silent = True
            time.sleep(chance.random() * LONGEST_PAUSE_S)
            way.is_silent = False
            way.cut()
        case "slow":
            way.delay_s = 0.05
            time.sleep(chance.random() * LONGEST_PAUSE_S)
            way.delay_s = 0.0
        case "killed":
            store_engine.kill()
            store_engine.start()


@pytest.mark.parametrize("kind", ["of its own", "in an engine"])
def test_a_rotation_costs_an_agent_one_retry_whichever_machine_answers(fleet, oracle, valkey_url, kind):
    with closing(Memory() if kind == "of its own" else Memory.at(valkey_url)) as memory:
        statuses = []

        def play(episode_count):
            for _ in range(episode_count):
                # a connection for each request, so that it comes to any worker of either machine
                transport = MemoryTransport(memory, guard=Guard())
                address = fleet.balancer.address
                with httpx2.Client(base_url=address, transport=transport, trust_env=False) as client:
                    statuses.append(client.post("/orders", json={"key": "7"}).status_code)

        play(10)
        oracle.reload(wait_s=20)
        play(10)
    assert statuses == [422, *[200] * 9, 422, *[200] * 9]
