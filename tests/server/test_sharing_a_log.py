"""Worker processes over one log, while they are deployed, killed, forked, and told things at the same time."""

import itertools
import json
import random
import sqlite3
import threading
from contextlib import closing, suppress
from functools import partial

import httpx2
import pytest

from shelflife.client import Guard, Memory
from shelflife.integrations.httpx2 import MemoryTransport
from shelflife.server import Provider, SqliteLog, sql_log
from shelflife.server.logs import is_file, log_at
from tests.processes import wait_until
from tests.server.opened_logs import Opened
from tests.server.shop_workers import ORDER, shop_workers


@pytest.fixture
def workers_over(nursery):
    return partial(shop_workers, nursery)


class Balancer(httpx2.BaseTransport):
    """Hands each request to the next worker, and notes what was sent and what came of it."""

    def __init__(self):
        self.workers = []
        self.turns = itertools.count()
        self.orders = []

    def handle_request(self, request):
        worker = self.workers[next(self.turns) % len(self.workers)]
        content = request.read()
        headers = {name: value for name, value in request.headers.items() if name != "host"}
        answer = worker.client.request(
            request.method, request.url.raw_path.decode(), content=content, headers=headers
        )
        if request.url.path == "/orders":
            names_a_position = "at" in answer.json() or "contract-at" in answer.headers
            self.orders.append(
                (worker.release, json.loads(content).get("code"), answer.status_code, names_a_position)
            )
        return httpx2.Response(answer.status_code, headers=answer.headers, content=answer.content)


class Meanings:
    """What each position has meant, whoever named it; and who has fallen silent."""

    def __init__(self):
        self.by_position = {}
        self.silent = set()

    def look_at(self, workers):
        for worker in workers:
            told = worker.refusal()
            if "at" not in told:
                self.silent.add(worker)
                continue
            assert worker not in self.silent
            meant = told["recovery_feedback"]["suggestions"]
            assert self.by_position.setdefault(told["at"], meant) == meant


@pytest.mark.spec("7.14")
def test_in_a_rolling_deploy_a_position_means_one_thing_and_no_stale_fix_is_used(workers_over, tmp_path):
    balancer, meanings = Balancer(), Meanings()
    transport = MemoryTransport(Memory(), balancer, guard=Guard())
    with (
        workers_over(tmp_path / "shop.db") as start,
        httpx2.Client(base_url="http://shop.example", transport=transport) as client,
    ):

        def play(order_count):
            for _ in range(order_count):
                client.post("/orders", json=ORDER)
                meanings.look_at(balancer.workers)

        balancer.workers = old = start("old", "old")
        play(6)
        assert [order[:3] for order in balancer.orders] == [("old", None, 422)] + [("old", "SUMMER", 200)] * 5
        new = start("new")
        balancer.workers = [*old, *new]
        play(12)
        wait_until(lambda: all("at" not in worker.refusal() for worker in old))
        play(12)
        assert meanings.silent == {*old}
        new += start("new")
        old[0].end()
        balancer.workers = [old[1], *new]
        play(12)
        old[1].end()
        balancer.workers = new
        play(
            1
        )  # it may have been the old one's turn: whoever that has refused is in doubt until another has answered
        play(12)
    heard_at = next(
        place for place, (release, *_, names) in enumerate(balancer.orders) if release == "new" and names
    )
    assert all(code != "SUMMER" for _, code, _, _ in balancer.orders[heard_at + 1 :])
    assert [order[:3] for order in balancer.orders[-12:]] == [("new", "SUMMER-2", 200)] * 12
    assert len(meanings.by_position) == 2


class Reloads:
    """Whole reloads of a table, one after another in a thread of their own, until the worker that is told them is no more."""

    def __init__(self, worker, first):
        self._worker = worker
        self.sent, self.answered = [first], [first]
        self._told = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._go_on)
        self._thread.start()

    def _go_on(self):
        with suppress(httpx2.TransportError):
            while True:
                number = self.sent[-1] + 1
                self.sent.append(number)
                rows = {str(key): {"number": number} for key in range(100)}
                assert self._worker.reload(table="numbered", rows=rows).status_code == 200
                self.answered.append(number)
                self._told.release()

    def kill_after(self, count):
        """Kill the worker when so many were answered, and the next is under way."""
        for _ in range(count):
            assert self._told.acquire(timeout=60)
        self._worker.kill()
        self._thread.join()


@pytest.mark.spec("7.11", "7.14")
def test_a_worker_that_is_killed_in_a_reload_leaves_the_old_or_the_new_state_whole_for_all(
    workers_over, tmp_path
):
    chance = random.Random(3)
    number = 0
    with workers_over(tmp_path / "shop.db") as start:
        others = start("old", "old")
        for _ in range(8):
            [victim] = start("old")
            reloads = Reloads(victim, number)
            reloads.kill_after(chance.randrange(1, 8))
            [again] = start("old")
            wait_until(lambda again=again: len({worker.rows()["at"] for worker in (*others, again)}) == 1)
            [number] = again.rows()["numbers"]
            assert again.rows() == others[0].rows() == others[1].rows()
            assert number in (reloads.answered[-1], reloads.sent[-1])
            again.end()
    assert_unharmed(tmp_path / "shop.db")


def assert_unharmed(path):
    connection = sqlite3.connect(path)
    assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    connection.close()


def at_once(*functions):
    """Call these in threads that begin together."""
    barrier, results = threading.Barrier(len(functions)), {}

    def call(place, function):
        barrier.wait()
        results[place] = function()

    threads = [threading.Thread(target=call, args=one) for one in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[place] for place in range(len(functions))]


@pytest.mark.spec("7.14")
def test_of_two_reloads_at_once_to_two_workers_none_is_lost_unawares(workers_over, tmp_path):
    with workers_over(tmp_path / "shop.db") as start:
        one, other = start("old", "old")
        for turn in range(25):
            added = [{f"of {name} {turn}": {"code": "X"}} for name in ("one", "other")]
            both = at_once(
                lambda added=added: one.reload(table="codes", set=added[0]),
                lambda added=added: other.reload(table="codes", set=added[1]),
            )
            assert [answer.status_code for answer in both] == [200, 200]
        for turn in range(25):
            version = f"given-{turn}"
            rivals = at_once(
                lambda turn=turn, version=version: one.reload(
                    table="codes", set={"growth": {"code": f"ONE{turn}"}}, version=version
                ),
                lambda turn=turn, version=version: other.reload(
                    table="codes", set={"growth": {"code": f"OTHER{turn}"}}, version=version
                ),
            )
            told = sorted(rivals, key=lambda answer: answer.status_code)
            assert [answer.status_code for answer in told] == [200, 409]
            assert version in told[1].text
        wait_until(lambda: one.rows()["at"] == other.rows()["at"])
        assert one.rows() == other.rows()
        codes = one.rows()["codes"]
    assert {f"of {name} {turn}" for name in ("one", "other") for turn in range(25)} <= {*codes}


def entries_in(place):
    with closing(log_at(place)) as log, log._tables.snapshot() as connection:
        return [entry.change for entry in sql_log._entries_in(connection)]


def parts_of(change):
    return {name for name in ("tables", "rules", "policies") if getattr(change, name)}


@pytest.mark.spec("7.14")
def test_workers_that_start_together_take_up_what_is_declared_anew_once(workers_over, tmp_path):
    place, expected = tmp_path / "shop.db", [{"policies"}]
    with workers_over(place) as start:
        for worker in start("old"):
            worker.end()
        assert [*map(parts_of, entries_in(place))] == expected
        for number, release in enumerate(("new", "old")):
            workers = start(release, release, release, code=f"CODE{number}")
            assert {worker.rows()["codes"]["growth"]["code"] for worker in workers} == {f"CODE{number}"}
            expected += [{"tables"}, {"policies"}]
            assert [*map(parts_of, entries_in(place))] == expected
            for worker in workers:
                worker.end()


FORKING = """
import os
import signal
import sys
import threading
import warnings

from shelflife.server import Provider

provider = Provider({"codes": {}}, log=sys.argv[1])
provider.be_ready()


def connections():
    tables = provider.registry._log._tables
    return {tables.connection()} if hasattr(tables, "connection") else {*tables._opened}


inherited = connections()


def reload_as(name):
    for number in range(25):
        provider.registry.reload_table("codes", set={f"{name} {number}": {"code": os.getpid()}})
        assert f"{name} {number}" in provider.registry.rows("codes")


warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what this is about
in_the_middle = threading.Thread(target=reload_as, args=["of another thread"])
in_the_middle.start()
children = []
for child_number in range(3):
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        provider.be_ready()
        reload_as(f"of child {child_number}")
        assert not connections() & inherited
        os._exit(0)
    children.append(child)
reload_as("of the parent")
in_the_middle.join()
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
provider.registry.catch_up()
print(len(provider.registry.rows("codes")), provider.registry.state.number)
provider.close()
"""


def test_a_process_that_forks_after_its_provider_was_made_and_its_children_all_count(place, nursery):
    for attempt in range(1, 3):
        with nursery.forked(FORKING, place, is_heard=True) as process:
            assert (process.wait(300), process.stderr.read()) == (0, "")
            assert process.stdout.read() == f"{5 * 25} {attempt * 5 * 25}\n"
    if is_file(place) is not None:
        assert_unharmed(place)


def test_what_fails_beside_following_the_log_is_told_once_and_keeps_nobody_from_it(tmp_path, caplog):
    one, other = (Provider({"codes": {"a": {"code": "A"}}}, log=tmp_path / "log.db") for _ in range(2))
    beats = []

    def failing():
        beats.append(1)
        raise ZeroDivisionError

    one.registry.on_beat(failing)
    one.registry.on_beat(lambda: beats.append(2))
    with closing(one), closing(other):
        one.registry.follow()
        wait_until(lambda: beats.count(2) >= 2)
        other.registry.reload_table("codes", set={"a": {"code": "B"}})
        wait_until(lambda: one.state.number == other.state.number)
        assert not one.registry.is_cut_off
    assert beats.count(1) >= 2
    assert [record.exc_info[0] for record in caplog.records] == [ZeroDivisionError]


def test_a_worker_looks_often_only_while_something_has_moved_of_late(tmp_path, monkeypatch):
    now, pauses, path = [0.0], [], tmp_path / "state.db"

    class Clock:
        @staticmethod
        def monotonic():
            return now[0]

        @staticmethod
        def sleep(pause_s):
            pauses.append(pause_s)
            now[0] += pause_s

    def paused(timeout_s):
        """The pauses between the looks of one wait in which nothing comes."""
        log.wait(timeout_s)  # which notices what has come before
        pauses.clear()
        log.wait(timeout_s)
        return {*pauses}

    monkeypatch.setattr("shelflife.server.sqlite_log.time", Clock)
    with Opened(path) as reg, closing(SqliteLog(path)) as log:
        known = reg.state
        assert paused(0.5) == {0.02}
        log.note("another", 1, 60)  # as each does every two seconds
        assert not log.read(known.number, known.digest)
        assert paused(0.5) == {0.02}
        reg.reload_table("codes", set={"growth": {"code": "WINTER"}})
        assert log.read(known.number, known.digest)
        assert paused(0.4) == {0.005}
        now[0] += 1
        assert paused(0.5) == {0.02}
