"""Workers of two machines over one PostgreSQL, behind one port: nothing is lost, mixed or old, whatever is killed or cut."""

import json
import os
import random
import signal
import threading

import httpx2
import pytest

from shelflife.client import Guard, Memory
from shelflife.integrations.httpx2 import MemoryTransport
from shelflife.server import Disclosure, Provider
from tests.fleet.fleets import traffic
from tests.integrations.event_streams import LISTENING, events
from tests.processes import wait_until

IS_LONG = os.environ.get("SHELFLIFE_TESTS") == "long"


@pytest.mark.spec("15.3", "15.4")
def test_all_replicas_sign_the_same_for_a_position(fleet, oracle):
    at = fleet.position()
    oracle.reload(wait_s=20)
    told = set()
    for _ in range(12):
        answer = fleet.call("GET", f"/contract/signed?from={at}&nonce=e3").json()
        statement = json.loads(answer["statement"])
        assert statement.pop("expires_at") > statement.pop("made_at")
        told.add((answer["key"], json.dumps(statement, sort_keys=True)))
    assert len(told) == 1


@pytest.mark.spec("15.15")
def test_replicas_that_disclose_less_show_a_client_the_same(postgres_url):
    disclosure = Disclosure(secret="0123456789abcdef", client=lambda headers: headers.get("x-api-key", ""))
    one, other = [Provider({"t": {"a": {}}}, log=postgres_url, disclosure=disclosure) for _ in range(2)]
    one.registry.reload_table("t", set={"b": {}})
    other.registry.catch_up()
    for client in ("ada", "eve"):
        faces = [each.face(each.state, {"x-api-key": client}) for each in (one, other)]
        assert len({(face.position, face.log_id, face.digest, face.stamp.members) for face in faces}) == 1
    for each in (one, other):
        each.close()


@pytest.mark.spec("13.3")
def test_a_feed_goes_on_at_another_replica_from_its_last_position(fleet, oracle):
    known = fleet.position()
    for turn in range(4):
        address = fleet.groups[turn % 2]
        report = oracle.reload()
        headers = {**LISTENING, "Last-Event-ID": known}
        with (
            httpx2.Client(base_url=address, trust_env=False, timeout=60) as client,
            client.stream("GET", "/contract/changes", headers=headers) as response,
        ):
            event = next(one for one in events(response) if one is not None)
        assert (event["event"], event["data"]["from"]) == ("moved", known)
        assert [*event["data"]["moved"]["tables"]] == ["numbered"]
        assert report["new_version"]
        known = event["id"]


@pytest.mark.spec("12.3")
def test_a_precondition_is_judged_by_any_replica_as_by_the_one_that_was_reloaded(fleet, oracle):
    agent = MemoryTransport(Memory(), guard=Guard(), conditional=True)
    with httpx2.Client(transport=agent, base_url=fleet.balancer.address, timeout=60) as client:
        assert [client.post("/orders", json={"key": "7"}).status_code for _ in range(2)] == [422, 200]
        for _ in range(6):
            oracle.reload()  # without waiting for anybody
            carried_out = client.post("/orders", json={"key": "7"})
            sent = json.loads(carried_out.extensions["shelflife_sent"].content)
            assert (carried_out.status_code, sent["number"]) == (200, oracle.sent)


@pytest.mark.spec("7.14")
def test_reloads_to_two_machines_at_once_all_count(fleet, oracle):
    names = [f"{turn} of {place}" for turn in range(5) for place in (0, 1)]
    for pair in zip(names[::2], names[1::2], strict=True):
        threads = [threading.Thread(target=oracle.add, args=[name]) for name in pair]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(oracle.added["acknowledged"]) == 10
    oracle.added["sent"] |= set(fleet.call("GET", "/added").json())
    oracle.check_what_was_added()


class Faults:
    """What can go wrong, each undone after a moment."""

    def __init__(self, fleet, database, oracle, chance):
        self.fleet, self.database, self.oracle, self.chance = fleet, database, oracle, chance

    def kill_workers_in_a_reload(self):
        """All of a machine, so that the one that is at it is among them. The way to the database is long, so that it is at it for long."""
        place, before = self.chance.randrange(2), self.oracle.counts["lost"]
        way, address = self.fleet.ways[place], self.fleet.groups[place]
        way.delay_s = 0.03
        for _ in range(10):
            victims, sent = self.fleet.pids(address), self.oracle.sent
            reloading = threading.Thread(target=self.oracle.reload, args=[None, address])
            reloading.start()
            wait_until(lambda sent=sent: self.oracle.sent > sent)
            carried = way.carried_count
            wait_until(lambda carried=carried: way.carried_count > carried + 10)
            for victim in victims:
                os.kill(victim, signal.SIGKILL)
            reloading.join()
            if self.oracle.counts["lost"] > before:
                break
        way.delay_s = 0.0

    def kill_the_database(self):
        self.database.kill()
        self.oracle.reload()
        self.database.start()

    def cut_off_a_machine(self):
        way = self.chance.choice(self.fleet.ways)
        way.is_silent = True
        self.oracle.reload()
        self.wait_for_silence()
        self.oracle.reload()
        way.is_silent = False

    def wait_for_silence(self):
        """Until somebody has told that it vouches for nothing any more."""
        before = self.oracle.counts["silent"]
        wait_until(lambda: self.oracle.counts["silent"] > before)

    def cut_connections(self):
        self.chance.choice(self.fleet.ways).cut()
        self.oracle.reload()

    def delay_a_machine(self):
        way = self.chance.choice(self.fleet.ways)
        way.delay_s = 0.02
        self.oracle.reload(wait_s=5)
        way.delay_s = 0.0

    def have_a_worker_lag(self):
        victim = self.chance.choice(self.fleet.pids())
        os.kill(victim, signal.SIGSTOP)
        try:
            self.oracle.reload(wait_s=0.2)
        finally:
            os.kill(victim, signal.SIGCONT)

    def reload_at_two_machines(self):
        names = [f"{self.chance.random()}" for _ in range(2)]
        threads = [threading.Thread(target=self.oracle.add, args=[name]) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def all(self):
        """Each of them."""
        return [
            getattr(self, name)
            for name in vars(Faults)
            if not name.startswith("_") and name not in ("all", "wait_for_silence")
        ]


@pytest.mark.spec("7.10", "7.11", "7.14", "7.17", "7.18")
def test_whatever_is_killed_or_cut_nothing_is_lost_mixed_or_old(fleet, database, oracle):
    chance = random.Random(os.environ.get("SHELFLIFE_SEED", "5"))
    faults = Faults(fleet, database, oracle, chance)
    oracle.added["sent"] |= set(fleet.call("GET", "/added").json())
    steps = faults.all()
    with traffic(oracle):
        for step in chance.choices(steps, k=200) if IS_LONG else steps:
            fleet.pids()  # a worker that was killed cannot start again while its machine is cut off
            step()
            oracle.reload(wait_s=chance.choice([None, 2]))
    oracle.check_what_was_added()
    wait_until(lambda: (oracle.reload(wait_s=20) or {}).get("workers") == {"live": 4, "behind": 0}, 180)
    assert len({fleet.look().json()["numbers"][0] for _ in range(12)}) == 1
    assert min(oracle.counts.values()) > 0, oracle.counts
    print(oracle.counts)
