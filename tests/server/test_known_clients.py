"""Clients of a known kind in many worlds: what the server says of them is held against what they are."""

import copy
import dataclasses
import itertools
import random
from functools import partial

import pytest

from shelflife.contract.when import holds
from shelflife.server import Provider, Scoring
from shelflife.server.lessons import Requests
from shelflife.server.scoring import Clients
from tests.server.known_worlds import WORLDS

CLIENTS = {
    "forgets what has moved": "remembers and follows",
    "overwrites": "remembers and follows",
    "forgets all": "forgets too much",
    "has no memory": "does not remember",
    "keeps its first value": "remembers and does not forget",
}


class BestMemory:
    """The oracle: a memory that keeps every fix for as long as all that it rests on is as it was."""

    def __init__(self, provider):
        self._provider = provider
        self._known = []

    def _resting_on(self, cells):
        rows = self._provider.registry.state.tables["t"].rows
        return {key: copy.deepcopy(dict(rows[key])) for key in cells["t"] if key in rows}

    def knows_one_for(self, fields):
        return any(holds(when, fields, unless) for when, unless, _, _ in self._known)

    def learn(self, fix):
        known = fix.when, fix.unless or {}, fix.cells, self._resting_on(fix.cells)
        if known not in self._known:  # a client that forgets is told the same a thousand times
            self._known.append(known)

    def forget_what_moved(self):
        self._known = [known for known in self._known if known[3] == self._resting_on(known[2])]


class Played:
    """A client of a known kind at work, with what is true of it."""

    def __init__(self, world, kind):
        self.world, self.kind = world, kind
        self.changed = [0] * (1 + max(map(world.row_of, range(world.subjects))))
        rows = {world.key(number): world.row(number, 0) for number in range(len(self.changed))}
        self.provider = Provider({"t": rows}, admin_token="t")
        self.provider.clients._clock = itertools.count(0, 10).__next__
        self.provider.policy(world.policy)
        self.best, self.kept = BestMemory(self.provider), {}
        self.task = self.right_at_once = self.avoidable = self.refused = self.passed = 0

    def sends(self, fields):
        found = self.provider.violations(fields, "POST /x")
        self.provider.clients.note(dict, "POST /x", fields, found, self.provider.registry.state)
        if not found:
            self.passed += 1
            return None
        [(_, told)] = found
        self.refused += 1
        self.avoidable += self.best.knows_one_for(fields)
        self.best.learn(told)
        return self.world.said(told.parameters)

    def works_on(self, subject):
        wanted = self.world.wanted(subject, self.task)
        self.task += 1
        known = self.kept.get(subject)
        told = self.sends(wanted if known is None else self.world.merge(wanted, known))
        if told is None:
            self.right_at_once += 1
            return
        if self.kind == "keeps its first value":
            self.kept.setdefault(subject, told)
        elif self.kind != "has no memory":
            self.kept[subject] = told
        assert self.sends(self.world.merge(wanted, told)) is None

    def hears_of_a_change(self, row):
        self.changed[row] += 1
        key = self.world.key(row)
        self.provider.registry.reload_table("t", set={key: self.world.row(row, self.changed[row])})
        self.best.forget_what_moved()
        if self.kind == "forgets all":
            self.kept = {}
        elif self.kind == "forgets what has moved":
            self.kept = {one: told for one, told in self.kept.items() if self.world.row_of(one) != row}

    def plays(self, changes, rounds):
        for number in range(changes + 1):
            if number:
                self.hears_of_a_change(number % len(self.changed))
            for subject in [*range(self.world.subjects)] * rounds:
                self.works_on(subject)
        return self.provider.clients.scores()[0]


SHOWN = [
    (world, kind) for world, kind in itertools.product(WORLDS, CLIENTS) if kind not in WORLDS[world].hides
]


@pytest.mark.parametrize(("changes", "rounds"), [(5, 12), (7, 4)])
@pytest.mark.parametrize(("world", "kind"), SHOWN)
def test_what_is_said_of_a_client_is_what_it_is(world, kind, changes, rounds):
    client = Played(WORLDS[world], kind)
    told = client.plays(changes, rounds)
    assert (told.in_all.passed, told.in_all.refused) == (client.passed, client.refused)
    assert (told.tasks, told.right_at_once) == (client.task, client.right_at_once)
    assert (told.refused, told.followed) == (client.refused, client.refused)
    assert told.could_save == told.repeated + told.stale_after_told == client.avoidable
    assert told.verdict == CLIENTS[kind]


@pytest.mark.parametrize(("world", "kind"), SHOWN)
def test_it_stays_so_however_many_changes_there_are(world, kind):
    client = Played(WORLDS[world], kind)
    told = client.plays(30, 2)
    assert 0 <= told.right_at_once <= min(told.tasks, client.right_at_once)
    assert 0 <= told.could_save <= client.avoidable
    assert told.followed <= told.refused <= client.refused
    assert told.verdict == CLIENTS[kind]


@pytest.mark.parametrize("kind", ["has no memory", "forgets all"])
def test_of_fixes_that_no_memory_could_have_known_nothing_is_held_against_a_client(kind):
    client = Played(WORLDS["another wrong value each time, and read"], kind)
    told = client.plays(5, 12)
    assert (told.tasks, told.right_at_once) == (client.task, client.right_at_once)
    assert told.could_save == client.avoidable == 0
    assert told.verdict in ("not enough seen", "remembers and follows")


@pytest.mark.parametrize("kind", ["forgets what has moved", "forgets all", "has no memory"])
def test_of_more_renames_than_there_is_room_for_some_are_looked_at(kind):
    client = Played(dataclasses.replace(WORLDS["renames"], subjects=40), kind)
    told = client.plays(20, 4)
    assert told.sampled
    assert told.in_all == Requests(client.passed, client.refused)
    assert told.right_at_once <= client.right_at_once
    assert told.could_save <= client.avoidable
    assert abs(told.right_at_once / told.tasks - client.right_at_once / client.task) < 0.05
    assert told.verdict == CLIENTS[kind]


@pytest.mark.parametrize(("world", "kind"), SHOWN)
def test_it_is_the_same_whichever_worker_serves_a_request(world, kind):
    client, draw = Played(WORLDS[world], kind), random.Random(f"{world} {kind}")
    first = client.provider.clients
    workers = [first, *(Clients(Scoring(), b"", clock=first._clock) for _ in range(2))]
    for one in workers:
        one._digests = first._digests
    note = first.note

    def noted(*request):
        one = draw.choice(workers)
        (note if one is first else one.note)(*request)
        for other in workers:
            other.learn([one.seen()])

    first.note = noted
    client.plays(7, 4)
    [told] = first.scores([one.seen() for one in workers[1:]])
    assert told.in_all == Requests(client.passed, client.refused)
    assert (told.tasks, told.right_at_once) == (client.task, client.right_at_once)
    assert told.could_save == client.avoidable
    assert told.verdict == CLIENTS[kind]


@pytest.mark.parametrize("between_s", [0.0005, 0.003])
@pytest.mark.parametrize("kind", CLIENTS)
def test_a_client_that_is_too_fast_to_be_looked_at_all_the_time_is_told_from_a_fair_part(kind, between_s):
    client = Played(WORLDS["a field is missing"], kind)
    client.provider.clients._clock = itertools.count(0, between_s).__next__
    told = client.plays(7, 50)
    is_seldom_refused = client.refused < 100
    assert told.sampled is not is_seldom_refused
    assert (told.tasks == client.task) is is_seldom_refused
    at_the_edges = (
        client.provider.clients._rests * client.world.subjects
    )  # a refusal left out, the retry seen
    assert told.right_at_once <= client.right_at_once + at_the_edges
    assert told.could_save <= client.avoidable
    assert told.verdict == CLIENTS[kind]


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_client_beside_one_that_is_refused_all_the_time_is_told_from_a_fair_part(kind):
    client = Played(WORLDS["a field is missing"], kind)
    clients, other = client.provider.clients, partial(dict, [("x-api-key", "another")])
    clients._clock = itertools.count(0, 0.002).__next__
    sends = client.sends

    def sends_beside_another(fields):
        for _ in range(3):
            found = client.provider.violations({"plan": "r3"}, "POST /x")
            clients.note(other, "POST /x", {"plan": "r3"}, found, client.provider.registry.state)
        return sends(fields)

    client.sends = sends_beside_another
    client.plays(7, 50)
    [told] = [one for one in clients.scores() if one.client == "anonymous"]
    assert told.sampled
    assert told.tasks < client.task
    if kind != "keeps its first value":  # of that one more is refused as time goes on
        assert abs(told.right_at_once / told.tasks - client.right_at_once / client.task) < 0.1
    assert told.could_save <= client.avoidable
    assert told.verdict == CLIENTS[kind]
