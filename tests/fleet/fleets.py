"""A fleet that was started, and an oracle that looks at whatever it answers."""

import os
import re
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager, suppress

import httpx2

from tests.cli.commands import run_here
from tests.fleet.group import KEY, LOG, ROWS
from tests.processes import is_running, started, wait_until
from tests.proxies import Proxy

ADMIN = {"Authorization": "Bearer t"}
WANTED = {"key": "7", "number": -1}
_POSITION = re.compile(r"[A-Za-z][A-Za-z0-9]{5}(\d+)")


class Fleet:
    """Groups of workers, each with a way of its own to the database, and one port for all of them."""

    def __init__(self, balancer, groups, ways, worker_count):
        self.balancer, self.groups, self.ways, self.worker_count = balancer, groups, ways, worker_count

    def call(self, method, path, address=None, **options):
        """One request on a connection of its own, so that it comes to any worker."""
        with httpx2.Client(base_url=address or self.balancer.address, trust_env=False, timeout=60) as client:
            return client.request(method, path, **options)

    def look(self, headers=None, address=None):
        return self.call("POST", "/look", address, json=WANTED, headers=headers or {})

    def pids(self, address=None):
        """The workers, or those of one machine, found by asking until all have answered."""
        count = self.worker_count if address is None else self.worker_count // len(self.groups)
        found = set()

        def are_all_found():
            with suppress(httpx2.TransportError):
                found.add(self.look(address=address).json()["pid"])
            found.difference_update([pid for pid in found if not is_running(pid)])
            return len(found) == count

        wait_until(are_all_found, timeout_s=300)
        return sorted(found)

    def position(self):
        """Where the log is now, whoever says so."""
        answers = []

        def is_told():
            with suppress(httpx2.TransportError):
                answers.append(self.look({"Contract-At": "*;n=now"}).json().get("at"))
            return answers and answers[-1] is not None

        wait_until(is_told)
        return answers[-1]["to"]


@contextmanager
def fleet_over(postgres, url, folder, group_count=2, workers_each=2):
    """A fleet, for as long as the block runs."""
    key = folder / "key.pem"
    assert run_here("key", "new", str(key)).returncode == 0
    with ExitStack() as stack:
        groups, ways = [], []
        for _ in range(group_count):
            way = stack.enter_context(Proxy(postgres.url))
            environment = {**os.environ, LOG: way.postgres_url_of(url), KEY: str(key)}
            group = stack.enter_context(
                started(
                    [sys.executable, "-m", "tests.fleet.group", workers_each],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                )
            )
            stack.callback(end, group)
            groups.append(group)
            ways.append(way)
        addresses = [group.stdout.readline().strip() for group in groups]
        balancer = stack.enter_context(Proxy(*addresses))
        fleet = Fleet(balancer, addresses, ways, group_count * workers_each)
        fleet.pids()
        yield fleet


def end(group):
    """Its workers end with it."""
    group.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        group.wait(15)


def number_of(position):
    return int(_POSITION.fullmatch(position)[1])


class Oracle:
    """Makes requests and reloads, and looks at every answer."""

    def __init__(self, fleet):
        self.fleet = fleet
        self._lock = threading.Lock()
        self.by_position, self.by_version = {}, {}
        self.floor = 0
        """The number that all workers had when a reload was answered, and none may go below."""
        self.sent = 0
        self.added = {"acknowledged": set(), "sent": set()}
        self.counts = dict.fromkeys(("vouched", "silent", "lost", "reloaded", "refused", "everywhere"), 0)

    def look(self, named=None, nonce=""):
        """One request, which may name a position, and what it must not be told."""
        with self._lock:
            floor = self.floor
        headers = {"Contract-At": (named or "*") + (f";n={nonce}" if nonce else "")} if named or nonce else {}
        try:
            answer = self.fleet.look(headers)
        except httpx2.TransportError:  # a worker was killed
            self._count("lost")
            return named
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert len(told["numbers"]) == 1, told
        [number] = told["numbers"]
        at = told.get("at")
        position = at["to"] if isinstance(at, dict) else at
        version = told.get("table_versions", {}).get("numbered")
        if position is None and version is None:
            self._count("silent")
            return named
        self._count("vouched")
        assert told["hint"] == "cacheable"
        assert number >= floor, (told, floor)
        with self._lock:
            if position is not None:
                assert self.by_position.setdefault(position, number) == number
                assert named is None or number_of(position) >= number_of(named), (named, told)
            else:
                assert self.by_version.setdefault(version, number) == number
        return position or named

    def reload(self, wait_s=None, address=None):
        """Give all rows the next number."""
        self.sent += 1
        number = self.sent
        rows = {str(key): {"number": number} for key in range(ROWS)}
        body = {"table": "numbered", "rows": rows} | ({} if wait_s is None else {"wait_s": wait_s})
        report = self._reloaded(body, address)
        if report is None:
            return None
        workers = report.get("workers")
        if workers is not None and workers["behind"] == 0:
            self._count("everywhere")
            with self._lock:
                self.floor = max(self.floor, number)
        return report

    def add(self, key):
        """Add a row, at the same time as others may."""
        self.added["sent"].add(key)
        if self._reloaded({"table": "added", "set": {key: {}}}) is not None:
            self.added["acknowledged"].add(key)

    def check_what_was_added(self):
        """Every reload that was acknowledged is there, and nothing that was never sent."""
        self.fleet.position()
        found = set()

        def is_everywhere():
            answers = [self.fleet.call("GET", "/added").json() for _ in range(2 * self.fleet.worker_count)]
            found.clear()
            found.update(answers[0])
            return all(answer == answers[0] for answer in answers)

        wait_until(is_everywhere)
        assert self.added["acknowledged"] <= found <= self.added["sent"]

    def _reloaded(self, body, address=None):
        try:
            answer = self.fleet.call("POST", "/admin/reload-table", address, json=body, headers=ADMIN)
        except httpx2.TransportError:
            self._count("lost")
            return None
        assert answer.status_code in (200, 503), answer.text
        self._count("reloaded" if answer.status_code == 200 else "refused")
        return answer.json() if answer.status_code == 200 else None

    def _count(self, what):
        with self._lock:
            self.counts[what] += 1


@contextmanager
def traffic(oracle, client_count=2):
    """Clients that ask all the time, each from the position that it knows, until the block ends. What one of them finds fails the block."""
    is_over, failures = threading.Event(), []

    def ask(client):
        known, turn = None, 0
        try:
            while not is_over.is_set():
                turn += 1
                if turn % 5 == 0:
                    oracle.look()
                else:
                    known = oracle.look(known, f"{client}.{turn}" if known is None or turn % 3 == 0 else "")
        except BaseException as error:  # noqa: BLE001 - it is raised where the block ends
            failures.append(error)

    threads = [threading.Thread(target=ask, args=[client]) for client in range(client_count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
