"""What is said of a client is fair to it: however it sends its requests, whoever else there is, and whichever worker it comes to."""

import itertools
import random

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.apis.acme.app import EXAMPLE
from shelflife.integrations.fastapi import install
from shelflife.server import Provider, Scoring, fix
from shelflife.server.lessons import Requests, seen_in
from shelflife.server.scoring import _MOST_LESSONS, Clients

ADMIN = {"Authorization": "Bearer operator"}
PLANS = "abc"


class Batches:
    """A client that sends requests in batches: all of one are under way before the first is answered."""

    def __init__(self, kind, workers=1):
        self.kind, self.kept, self.rows = kind, {}, {plan: {"code": f"{plan}0"} for plan in PLANS}
        self.provider = Provider({"codes": self.rows}, admin_token="t")
        self.provider.clients._clock = itertools.count(0, 10).__next__
        first = self.provider.clients
        self.workers = [first, *(Clients(Scoring(), b"", clock=first._clock) for _ in range(workers - 1))]
        for one in self.workers:
            one._digests = first._digests
        self.draw = random.Random(kind)
        self.tasks = 0

        @self.provider.policy
        def code_is_right(request, tables):
            code = tables.codes[request["plan"]]["code"]
            return None if request.equals("code", code) else fix("USE", code=code)

    def sends(self, fields):
        found = self.provider.violations(fields, "POST /x")
        worker = self.draw.choice(self.workers)
        worker.note(dict, "POST /x", fields, found, self.provider.registry.state)
        for other in self.workers:
            other.learn([worker.seen()])
        return [told.parameters for _, told in found]

    def works_on(self, plan, size):
        kept = self.kept.get(plan, {})
        answers = [self.sends({"plan": plan, "item": item, **kept}) for item in range(size)]
        self.tasks += size
        for item, told in enumerate(answers):
            if told:
                fields = told[0] if self.kind != "never follows" else {}
                if self.kind == "keeps its first value":
                    self.kept.setdefault(plan, fields)
                elif self.kind not in ("has no memory", "never follows"):
                    self.kept[plan] = fields
                self.sends({"plan": plan, "item": item, **fields})

    def hears_of_a_change(self, plan, number):
        self.provider.registry.reload_table("codes", set={plan: {"code": f"{plan}{number}"}})
        if self.kind == "forgets all":
            self.kept = {}
        elif self.kind == "forgets what has moved":
            self.kept.pop(plan, None)

    def plays(self, size, changes=6, rounds=4):
        for number in range(changes):
            for plan in [*PLANS] * rounds:
                self.works_on(plan, size)
            self.hears_of_a_change(PLANS[number % 2], number + 1)
        [told] = self.workers[0].scores([one.seen() for one in self.workers[1:]])
        return told


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("size", [2, 6, 20])
@pytest.mark.parametrize("kind", ["forgets what has moved", "overwrites"])
def test_a_memory_that_sends_in_parallel_has_forgotten_nothing(kind, size, workers):
    client = Batches(kind, workers)
    told = client.plays(size)
    assert (told.verdict, told.could_save, told.stale_after_told) == ("remembers and follows", 0, 0)
    assert told.tasks == client.tasks


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("size", [1, 6, 20])
@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        ("forgets all", "forgets too much"),
        ("has no memory", "does not remember"),
        ("never follows", "does not remember"),
    ],
)
def test_one_that_forgets_is_found_though_it_sends_in_parallel(kind, verdict, size, workers):
    told = Batches(kind, workers).plays(size)
    assert told.verdict == verdict
    if kind == "never follows":
        assert (told.followed, told.right_at_once) == (0, 0)
        fewest = len(PLANS) + 5  # the first lessons, and one after each change but the last
        assert told.repeated == told.refused - fewest


def test_a_client_that_follows_only_once_has_not_had_all_refusals_under_way():
    client = Batches("never follows")
    for item in range(9):
        client.sends({"plan": "a", "item": item})
    client.sends({"plan": "a", "code": "a0"})
    [told] = client.provider.clients.scores()
    assert (told.repeated, told.in_all) == (8, Requests(passed=1, refused=9))


def test_a_client_whose_name_cannot_be_written_is_told_of_with_all_others(tmp_path):
    names = iter(["fine", "cus_\ud800", "cus_\udfff", "é" * 300])
    scoring = Scoring(client=lambda _: next(names))
    one, other = (
        acme_provider(admin_token="operator", log=tmp_path / "log.db", scoring=scoring) for _ in range(2)
    )
    with TestClient(acme_app(one)) as client, TestClient(acme_app(other)) as elsewhere:
        for _ in range(4):
            assert client.post("/subscriptions", json=EXAMPLE).status_code == 422
        one.clients.meet(one.registry, now=True)
        for app in (client, elsewhere):
            told = app.get("/admin/clients", headers=ADMIN).json()["clients"]
            assert {each["client"] for each in told} == {"fine", r"cus_\ud800", r"cus_\udfff", "é" * 200}


class Worker:
    """One of several that share a log, with a clock that all of them have."""

    def __init__(self, provider, clock):
        self.provider, self.clients = provider, Clients(Scoring(), b"key", clock=clock)

    def serves(self, client, fields):
        found = self.provider.violations(fields, "POST /x")
        state = self.provider.registry.state
        self.clients.note(lambda: {"x-api-key": client}, "POST /x", fields, found, state)


@pytest.fixture
def two_workers():
    provider, clock = Batches("overwrites").provider, itertools.count().__next__
    return Worker(provider, clock), Worker(provider, clock)


def passed_at(worker):
    return max(one.passed for one in worker.clients.seen().requests.values())


def test_a_worker_whose_lessons_are_full_learns_what_others_tell_now(two_workers):
    one, other = two_workers
    for number in range(_MOST_LESSONS + 10):
        one.serves(f"earlier {number}", {"plan": "a"})
    other.serves("honest", {"plan": "a"})
    one.clients.learn([other.clients.seen()])
    for _ in range(7):
        one.serves("honest", {"plan": "a", "code": "a0"})
    assert passed_at(one) == 7
    assert len(one.clients._lessons) == _MOST_LESSONS


def test_what_others_told_earlier_does_not_push_out_what_was_told_since(two_workers):
    one, other = two_workers
    for number in range(_MOST_LESSONS):
        other.serves(f"there {number}", {"plan": "a"})
    for number in range(_MOST_LESSONS):
        one.serves(f"here {number}", {"plan": "a"})
    before = [*one.clients._lessons]
    one.clients.learn([other.clients.seen()])
    assert [*one.clients._lessons] == before
    other.serves("there 0", {"plan": "a"})
    one.clients.learn([other.clients.seen()])
    assert len({*before} - {*one.clients._lessons}) == 1
    assert before[0] not in one.clients._lessons


def test_what_has_gone_here_comes_back_only_when_it_is_told_again(two_workers):
    one, other = two_workers
    one.serves("honest", {"plan": "a"})
    for number in range(_MOST_LESSONS):
        other.serves(f"there {number}", {"plan": "a"})
    for _ in range(3):
        one.serves("honest", {"plan": "a", "code": "a0"})
        one.clients.learn([other.clients.seen()])
        one.serves("another", {"plan": "a"})
    kept = {*one.clients._lessons}
    one.clients.learn([other.clients.seen()])
    assert {*one.clients._lessons} == kept
    assert passed_at(one) == 3


def test_what_was_seen_is_read_while_requests_go_on(two_workers, monkeypatch):
    one, _ = two_workers
    one.serves("honest", {"plan": "a"})

    def while_another_is_served(seen):
        assert not one.clients._lock.locked()  # else the next line would wait for ever
        one.serves("another", {"plan": "a"})
        return seen_in(seen)

    monkeypatch.setattr("shelflife.server.scoring.seen_in", while_another_is_served)
    first = one.clients.seen()
    assert sum(each.refused for each in first.requests.values()) == 1
    assert sum(each.refused for each in one.clients.seen().requests.values()) == 2


@pytest.mark.parametrize("rounds", [1, 2])
def test_while_only_previous_values_came_after_a_change_nobody_is_said_to_follow(rounds):
    client = Batches("keeps its first value")
    told = client.plays(1, changes=2, rounds=rounds)
    assert (told.stale, told.verdict) == (rounds, "not enough seen")


def test_one_new_value_that_is_kept_after_previous_ones_came_shows_that_it_follows():
    told = Batches("overwrites").plays(1, changes=2, rounds=2)
    assert (told.stale, told.verdict) == (1, "remembers and follows")


@pytest.mark.parametrize(("operations", "tasks"), [([None, None], 10), (["POST /one", "POST /two"] * 2, 20)])
def test_a_request_that_is_checked_again_for_the_same_counts_once(operations, tasks):
    provider, app = Batches("overwrites").provider, FastAPI()
    provider.clients._clock = itertools.count().__next__
    install(app, provider)
    to_check = []

    @app.post("/one")
    @app.post("/two")
    def checked(wanted: dict[str, str]) -> None:
        for operation in to_check:
            provider.check({**wanted}, operation)

    with TestClient(app) as client:
        for operation in {*operations}:
            to_check[:] = [operation]
            assert client.post("/one", json={"plan": "a"}).status_code == 422
        to_check[:] = operations
        for _ in range(10):
            assert client.post("/one", json={"plan": "a", "code": "a0"}).status_code == 200
    [told] = provider.clients.scores()
    assert told.tasks == tasks
    assert provider.counts.passed == 10
