"""Clients are scored from what the server sees: bounded, of all workers, and without keeping what they sent."""

import itertools
import logging
import random
import sqlite3
import threading
from contextlib import ExitStack, closing
from functools import partial

import msgspec
import pytest
from fastapi.testclient import TestClient

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.apis.acme.app import EXAMPLE
from shelflife.server import BadSetting, Provider, Request, Rule, Scoring, fix
from shelflife.server.lessons import _MOST_EARLIER, Cell, Lesson, Requests, Seen, added_up
from shelflife.server.resting import _moved_by, grounds_of, has_moved
from shelflife.server.scoring import _MOST_AT_ONCE, _MOST_LESSONS, Clients
from shelflife.server.verdicts import score_of

ADMIN = {"Authorization": "Bearer operator"}
CODES = ["SUMMERSALE25", "WINTERLAUNCH26"]


def served(**options):
    provider = acme_provider(admin_token="operator", **options)
    return provider, TestClient(acme_app(provider))


def asks(client, code=None, key="k1", plan="plan_partner_growth"):
    body = {**EXAMPLE, "plan": plan} | ({"promo_code": code} if code else {})
    return client.post("/subscriptions", json=body, headers={"X-API-Key": key}).status_code


def rotates(provider, code):
    provider.registry.reload_table("active_csm_codes", set={"plan_partner_growth": {"code": code}})


def scores(client):
    told = client.get("/admin/clients", headers=ADMIN).json()["clients"]
    return {one["client"]: one for one in told}


def test_whoever_sends_no_credentials_is_told_to_be_perhaps_many():
    _, client = served()
    asks(client)
    assert client.get("/admin/clients", headers=ADMIN).json().keys() == {"clients"}
    client.post("/subscriptions", json=EXAMPLE)
    told = client.get("/admin/clients", headers=ADMIN).json()["note"]
    assert told.startswith("anonymous is whoever sends no credentials, which may be many clients")


def test_each_client_is_scored_for_itself_and_by_policy():
    _, client = served()
    assert [asks(client), asks(client, CODES[0])] == [422, 201]
    assert [asks(client, CODES[0]) for _ in range(3)] == [201] * 3
    assert [asks(client, key="k2"), asks(client, CODES[0], key="k2")] * 2 == [422, 201] * 2
    asks(client, key="k2")
    asks(client, CODES[0], key="k2")
    first, second = scores(client).values()
    assert (first["tasks"], first["right_at_once"], first["could_save"]) == (4, 3, 0)
    assert (second["tasks"], second["repeated"], second["could_save"]) == (2, 1, 1)
    assert first["policies"] == {"promo_must_be_the_assigned_one": {"tasks": 4, "right_at_once": 3}}
    assert first["followed"] == first["refused"] == 1


def test_the_requests_of_a_client_are_counted_in_all_however_often_what_they_need_changes():
    provider, client = served()
    provider.clients._clock = itertools.count().__next__
    before = (0, 0)
    for number in range(1, 21):
        code = CODES[number % 2]
        rotates(provider, code)
        assert [asks(client), *(asks(client, code) for _ in range(4))] == [422] + [201] * 4
        [told] = scores(client).values()
        now = told["in_all"]["passed"], told["in_all"]["refused"]
        assert now == (4 * number, number) > before
        before = now
    assert (told["tasks"], told["right_at_once"]) == (32, 24)  # of the latest eight changes
    assert told["verdict"] == "remembers and follows"


class PlayedClient:
    """A client of a known kind: what it keeps of the fixes it is given, and what it still sends after a change."""

    def __init__(self, provider, kind):
        self.provider, self.kind = provider, kind
        self.kept = {}

    def sends(self, fields):
        found = self.provider.violations(fields, "POST /x")
        self.provider.clients.note(dict, "POST /x", fields, found, self.provider.registry.state)
        return {name: value for _, one in found for name, value in one.parameters.items()}

    def works_on(self, plan):
        wanted = {"plan": plan, "tier": "any"} | self.kept.get(plan, {})
        if not (told := self.sends(wanted)):
            return
        if self.kind == "never complies":
            told = {name: value for name, value in told.items() if name in wanted}
        before = self.kept.get(plan, {})
        if self.kind == "keeps its first value for ever":
            self.kept[plan] = told | before
        elif self.kind != "has no memory":
            self.kept[plan] = before | told
        self.sends(wanted | told)

    def hears_of_a_change(self, plan):
        if self.kind == "forgets all":
            self.kept = {}
        elif self.kind == "remembers and follows":
            self.kept.get(plan, {}).pop("code", None)


KINDS = {
    "keeps its first value for ever": "remembers and does not forget",
    "overwrites": "remembers and follows",
    "remembers and follows": "remembers and follows",
    "forgets all": "forgets too much",
    "never complies": "does not comply with added fields",
    "has no memory": "does not remember",
}


@pytest.mark.parametrize("moving", ["a", "ab"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_works_on_as_before_keeps_its_verdict_however_many_changes_there_are(kind, moving):
    rows = {plan: {"code": f"{plan}0", "tier": plan} for plan in "abc"} | {
        "free": {"code": None, "tier": "f"}
    }
    provider = Provider({"plans": rows}, admin_token="t")
    provider.clients._clock = itertools.count(0, 10).__next__

    @provider.policy
    def tier_is_right(request, tables):
        tier = tables.plans[request["plan"]]["tier"]
        return None if request.equals("tier", tier) else fix("TIER", tier=tier)

    @provider.policy
    def code_is_right(request, tables):
        code = tables.plans[request["plan"]]["code"]
        return None if code is None or request.equals("code", code) else fix("CODE", code=code)

    client, verdicts = PlayedClient(provider, kind), []
    for number, plan in zip(range(41), itertools.cycle(moving), strict=False):
        if number:
            provider.registry.reload_table("plans", set={plan: {**rows[plan], "code": f"{plan}{number}"}})
            client.hears_of_a_change(plan)
        for one in [*rows] * 6:
            client.works_on(one)
        verdicts.append(provider.clients.scores()[0].verdict)
    assert verdicts[1:] == [KINDS[kind]] * 40
    [lessons] = provider.clients.seen().clients.values()
    assert max(len(one.earlier) for one in lessons.values()) <= _MOST_EARLIER


def test_a_client_that_has_to_be_told_every_fifth_time_does_not_follow():
    cells = {
        0: Cell(grounds_at=0, told="a", passed={"a": 16}, refused={"-": 5}),
        7: Cell(grounds_at=7, told="b", passed={"b": 16}, refused={"a": 4}),
    }
    lesson = Lesson("POST /x", "p", "F", (), ("code",), ("t",), cells=cells)
    told = score_of("c", {"l": lesson}, Requests())
    assert (told.repeated, told.stale_after_told, told.right_at_once) == (4, 3, 23)
    assert told.verdict == "forgets too much"


def test_a_request_that_needs_several_fixes_counts_once_in_all_and_for_each_fix_of_late():
    provider = Provider({"codes": {"a": {"code": "A"}, "b": {"code": "B"}}}, admin_token="t")

    @provider.policy
    def a_is_right(request, tables):
        return None if request.equals("a", code := tables.codes["a"]["code"]) else fix("USE_A", a=code)

    @provider.policy
    def b_is_right(request, tables):
        return None if request.equals("b", code := tables.codes["b"]["code"]) else fix("USE_B", b=code)

    for fields in ({}, *[{"a": "A", "b": "B"}] * 3):
        found = provider.violations(fields, "POST /x")
        provider.clients.note(dict, "POST /x", fields, found, provider.registry.state)
    [told] = provider.clients.scores()
    assert told.in_all == Requests(passed=3, refused=1)
    assert told.tasks == 6
    assert [one.tasks for one in told.policies.values()] == [3, 3]


def test_how_long_the_previous_value_still_comes_after_a_change_is_told():
    provider, client = served()
    asks(client), asks(client, CODES[0])
    rotates(provider, CODES[1])
    for _ in range(4):
        asks(client, CODES[0]), asks(client, CODES[1])
    [told] = scores(client).values()
    assert (told["stale"], told["stale_after_told"]) == (4, 3)
    assert told["verdict"] == "remembers and does not forget"
    assert 0 <= told["longest_stale_s"] < 60


def test_a_value_that_comes_back_is_a_change_of_its_own():
    provider, client = served()
    asks(client), asks(client, CODES[0])
    for code in (CODES[1], CODES[0], CODES[1]):
        rotates(provider, code)
        asks(client), asks(client, code), asks(client, code)
    [told] = scores(client).values()
    assert (told["repeated"], told["stale"], told["right_at_once"]) == (0, 0, 3)
    assert told["verdict"] == "remembers and follows"


def test_a_client_that_says_no_to_a_fix_has_not_followed_it():
    _, client = served()
    assert [asks(client) for _ in range(5)] == [422] * 5
    [told] = scores(client).values()
    assert (told["refused"], told["followed"], told["repeated"]) == (5, 0, 4)


def test_clients_are_named_by_the_provider_or_by_a_digest_of_their_credentials():
    _, client = served()
    asks(client)
    [name] = scores(client)
    assert len(name) == 12
    _, client = served(scoring=Scoring(client=lambda headers: headers["x-api-key"].upper()))
    asks(client)
    assert [*scores(client)] == ["K1"]
    client.post("/subscriptions", json=EXAMPLE)  # without a key, so that the name cannot be told
    assert [*scores(client)] == ["K1"]


def test_a_request_is_answered_when_its_client_cannot_be_named(caplog):
    _, client = served(scoring=Scoring(client=lambda headers: headers["none"]))
    with caplog.at_level(logging.WARNING, "shelflife"):
        assert [asks(client), asks(client, CODES[0])] == [422, 201]
    assert [one.message for one in caplog.records] == ["requests are not counted for their clients: 'none'"]


@pytest.mark.parametrize("options", [{"admin_token": None}, {"scoring": None}])
def test_nothing_is_watched_where_it_is_off_or_nobody_could_look(options):
    provider = acme_provider(**{"admin_token": "operator", **options})
    client = TestClient(acme_app(provider))
    asks(client)
    assert provider.clients is None
    assert client.get("/admin/clients", headers=ADMIN).status_code == 404


def test_scores_need_the_token():
    _, client = served()
    assert client.get("/admin/clients").status_code == 401
    with pytest.raises(BadSetting, match="scoring takes a Scoring, not int"):
        acme_provider(scoring=3)


@pytest.fixture
def workers(place):
    """Four workers that share a log."""
    providers = [acme_provider(admin_token="operator", log=place) for _ in range(4)]
    with ExitStack() as stack:
        yield providers, [stack.enter_context(TestClient(acme_app(one))) for one in providers]


@pytest.mark.parametrize("seed", range(2))
def test_the_scores_are_of_all_workers_whoever_is_asked_and_whoever_has_served(workers, seed):
    providers, apps = workers
    draw = random.Random(seed)

    def ask(*codes):
        for code in codes:
            asks(draw.choice(apps), code)
            for one in providers:
                one.clients.meet(one.registry, now=True)

    ask(None, *[CODES[0]] * 3)
    rotates(providers[0], CODES[1])
    for other in providers[1:]:
        other.registry.catch_up()
    ask(*[CODES[0], CODES[1]] * 4)
    told = [scores(app) for app in apps]
    assert told == [told[0]] * 4
    [score] = told[0].values()
    assert score["verdict"] == "remembers and does not forget"
    assert (score["refused"], score["followed"], score["stale_after_told"]) == (5, 5, 3)


def test_what_a_worker_has_seen_outlives_it(place):
    for _ in range(2):
        _, client = served(log=place)
        with client:
            assert asks(client) == 422
    _, client = served(log=place)
    with client:
        [told] = scores(client).values()
        assert told["refused"] == 2


def test_a_worker_that_has_nothing_new_goes_on_telling_what_it_has_seen(tmp_path, monkeypatch):
    monkeypatch.setattr("shelflife.server.sharing._TOLD_AGAIN_S", 0.0)
    (one, first), (_, second) = (served(log=tmp_path / "log.db") for _ in range(2))
    with first, second:
        asks(first)
        one.clients.meet(one.registry, now=True)
        with closing(sqlite3.connect(tmp_path / "log.db")) as file, file:
            file.execute("delete from shared")  # as when its time is over
        one.clients.meet(one.registry, now=True)
        [told] = scores(second).values()
        assert told["in_all"] == {"passed": 0, "refused": 1}


def test_what_a_worker_of_another_release_has_shared_is_passed_over(place):
    provider, client = served(log=place)
    with client:
        for worker, written in (("old", b"[1]"), ("older", b"\xff")):
            provider.registry.share("clients", worker, written, 60)
        assert asks(client) == 422
        provider.clients.meet(provider.registry, now=True)
        [told] = scores(client).values()
        assert told["refused"] == 1
        assert client.get("/admin/overview", headers=ADMIN).json()["is_cut_off"] is False


def test_what_has_not_changed_is_not_read_again(tmp_path):
    (one, first), (other, _) = (served(log=tmp_path / "log.db") for _ in range(2))
    with first, closing(other):
        asks(first)
        one.clients.meet(one.registry, now=True)
        [seen] = other.clients.others(other.registry)
        [again] = other.clients.others(other.registry)
        assert again is seen
        asks(first)
        one.clients.meet(one.registry, now=True)
        [now] = other.clients.others(other.registry)
        assert sum(sum(cell.refused.values()) for cell in _cells_of(now)) == 2


def _cells_of(seen):
    return [
        cell
        for lessons in seen.clients.values()
        for lesson in lessons.values()
        for cell in lesson.cells.values()
    ]


def test_a_lesson_that_is_used_stays_also_when_its_client_is_only_ever_refused():
    provider, _ = served()
    provider.clients._clock = itertools.count().__next__
    found = provider.violations(EXAMPLE, "POST /subscriptions")

    def refused(key):
        headers = partial(dict, [("x-api-key", key)])
        provider.clients.note(headers, "POST /subscriptions", EXAMPLE, found, provider.registry.state)

    for number in range(_MOST_LESSONS + 1):
        refused("always there")
        refused(f"{number}")
    assert max(one.refused for one in provider.clients.scores()) == _MOST_LESSONS + 1


def test_what_is_shared_holds_no_value_of_a_request(tmp_path):
    provider, client = served(log=tmp_path / "log.db")
    with client:
        asks(client, "MYSECRETCODE", key="mysecretkey")
        asks(client, CODES[0], key="mysecretkey")
        provider.clients.meet(provider.registry, now=True)
        [shared] = provider.registry.shared("clients").values()
    assert b"promo_must_be_the_assigned_one" in shared
    for value in ("MYSECRETCODE", "mysecretkey", CODES[0], EXAMPLE["customer"], EXAMPLE["plan"]):
        assert value.encode() not in shared


def test_what_is_kept_is_bounded():
    provider = Provider({"codes": {"a": {"code": "A"}}}, admin_token="t")

    @provider.policy
    def code_is_right(request, tables):
        if not request.equals("code", tables.codes["a"]["code"]):
            return fix("USE", code=tables.codes["a"]["code"])
        return None

    clock = itertools.count()
    provider.clients._clock = clock.__next__  # a second for each request, so that none is too many
    for number in range(_MOST_LESSONS + 100):
        found = provider.violations({"code": "x"}, "POST /x")
        headers = partial(dict, [("x-api-key", f"{number}")])
        provider.clients.note(headers, "POST /x", {"code": "x"}, found, provider.registry.state)
    told, fixes = provider.clients.scores(), provider.clients.fixes()
    assert len(told) == _MOST_LESSONS
    assert [*next(iter(fixes.values()))] == ["USE"]
    assert len(provider.clients._shapes) == len(provider.clients._grounds) == _MOST_LESSONS


def test_too_many_requests_at_once_are_not_looked_at():
    provider, _ = served()
    provider.clients._clock = lambda: 1.0
    found = provider.violations(EXAMPLE, "POST /subscriptions")
    for _ in range(_MOST_AT_ONCE + 500):
        provider.clients.note(dict, "POST /subscriptions", EXAMPLE, found, provider.registry.state)
    [told] = provider.clients.scores()
    assert told.refused == _MOST_AT_ONCE


def test_requests_that_come_again_are_all_counted_however_many_they_are():
    provider, _ = served()
    provider.clients._clock = lambda: 1.0
    state, right = provider.registry.state, {**EXAMPLE, "promo_code": CODES[0]}
    found = provider.violations(EXAMPLE, "POST /subscriptions")
    provider.clients.note(dict, "POST /subscriptions", EXAMPLE, found, state)
    for _ in range(_MOST_AT_ONCE + 500):
        provider.clients.note(dict, "POST /subscriptions", right, (), state)
    [told] = provider.clients.scores()
    assert told.in_all == Requests(passed=_MOST_AT_ONCE + 500, refused=1)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_counted_later_is_what_is_counted_at_once(seed):
    draw = random.Random(seed)
    provider = Provider({"codes": {"a": {"code": 1}, "b": {"code": "B"}}}, admin_token="t")

    @provider.policy
    def code_is_right(request, tables):
        code = tables.codes[request["kind"]]["code"]
        is_object = isinstance(request.get("code"), Request)  # as good as any code
        return None if is_object or request.equals("code", code) else fix("USE", code=code)

    later, at_once = (Clients(Scoring(), b"key", clock=lambda: second) for _ in range(2))
    for second in range(400):  # noqa: B007 - it is what the clocks tell
        if draw.random() < 0.03:
            provider.registry.reload_table("codes", set={"a": {"code": draw.choice([1, 2])}})
        fields = {
            "kind": draw.choice("aab"),
            "code": draw.choice([1, True, 1.0, "B", 2, None, [1], {"of": 1}, {"of": 1.0}]),
            "note": draw.random(),
        }
        headers = partial(dict, [(draw.choice(["x-api-key", "authorization"]), draw.choice("12"))])
        found = provider.violations(fields, "POST /x")
        later.note(headers, "POST /x", fields if found else Request(fields), found, provider.registry.state)
        at_once.note(headers, "POST /x", fields, found, provider.registry.state)
        at_once.seen()
    assert later.scores() == at_once.scores()
    assert msgspec.to_builtins(later.seen()) == msgspec.to_builtins(at_once.seen())


def test_workers_that_know_only_a_part_of_it_are_added_up_in_any_order():
    cells = {
        0: Cell(grounds_at=0, told="a", passed={"a": 4}, refused={"-": 1}),
        7: Cell(grounds_at=7, told="b", passed={"b": 3}, refused={"a": 3}),
    }
    bare = {7: Cell(passed={"b": 2})}
    lessons = [Lesson("POST /x", "p", "F", (), ("code",), ("t",), cells=one) for one in (cells, bare)]
    orders = [
        score_of("c", added_up([Seen({}, {"c": {"l": one}}) for one in some]).clients["c"], Requests())
        for some in (lessons, lessons[::-1])
    ]
    assert orders[0] == orders[1]
    assert (orders[0].stale, orders[0].tasks, orders[0].verdict) == (3, 9, "remembers and does not forget")


@pytest.mark.parametrize("seed", range(30))
def test_whether_a_change_has_moved_what_a_fix_rests_on_is_as_looking_through_all_of_it(seed):
    draw = random.Random(seed)
    tie = Rule(from_table="a", to_table="b", relation="r", via="x")
    rows = {key: {"x": draw.choice("klm"), "y": draw.random()} for key in "klm"}
    provider = Provider({"a": rows, "b": {key: {"z": 1} for key in "klm"}}, [tie])
    readers = [
        lambda tables: tables.a["k"]["x"],
        lambda tables: len(tables.a),
        lambda tables: "n" in tables.a,
        lambda tables: [row["y"] for row in tables.a.values()],
        lambda tables: tables.a["k"].follow("r") and 1,
        lambda tables: dict(tables.a["l"]),
    ]
    for read in readers:
        provider.policy(lambda request, tables, read=read: fix("F", read=[read(tables)]))
    told = provider.violations({}, "POST /x")
    for _ in range(6):
        key = draw.choice("klmn")
        match draw.randrange(4):
            case 0 if key in provider.registry.state.tables["a"].rows:
                provider.registry.reload_table("a", remove=[key])
            case 1:
                rules = draw.choice([[], [tie]])
                provider.registry.reload_rules(rules)
            case 2:
                provider.registry.reload_table("b", set={key: {"z": draw.random()}})
            case _:
                provider.registry.reload_table("a", set={key: {"x": draw.choice("klm"), "y": 1}})
    for entry in provider.registry.state.tail:
        moved = {*_moved_by(entry.change)}
        for policy, suggestion in told:
            for ground in grounds_of(policy.id, suggestion.cells, suggestion.rules or ()):
                assert has_moved(ground, entry.change) == (ground in moved), (ground, entry.change)


def test_what_was_told_by_one_thread_is_not_undone_by_another_that_began_before(tmp_path):
    (one, first), (other, _) = (served(log=tmp_path / "log.db") for _ in range(2))
    with first:
        is_looking, may_tell, seen = threading.Event(), threading.Event(), one.clients.seen

        def slowly():
            found = seen()
            is_looking.set()
            may_tell.wait(0.2)
            return found

        one.clients.seen = slowly  # before there is anything to tell: whoever is first tells it so
        asks(first)
        beat = threading.Thread(target=one.clients.meet, args=[one.registry], kwargs={"now": True})
        beat.start()
        assert is_looking.wait(60)
        one.clients.seen = seen
        asks(first)
        one.clients.meet(one.registry, now=True)
        may_tell.set()
        beat.join()
        [told] = other.clients.scores(other.clients.others(other.registry))
        assert told.in_all.refused == 2
