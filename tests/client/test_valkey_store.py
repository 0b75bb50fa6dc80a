"""What only a store in Valkey does: an eviction takes what must go at once, and puts the rest in order later."""

import threading
from contextlib import closing, suppress
from itertools import combinations

import pytest
import redis

from shelflife.client import Knowledge, StoreError, Write
from shelflife.client.near import LONGEST_LAG_S
from shelflife.client.valkey import ValkeyStore, _tag
from shelflife.contract.versions import Versions
from tests.client.entries import ORIGIN, entry, put
from tests.client.remote import eventually
from tests.engines import engine
from tests.proxies import Proxy

PREFIX = f"shelflife:{{default {ORIGIN}}}:"


@pytest.fixture
def store(valkey_url):
    with closing(ValkeyStore(valkey_url)) as store:
        yield store


@pytest.fixture
def client(valkey_url):
    with closing(redis.Redis.from_url(valkey_url, decode_responses=True, encoding="latin-1")) as client:
        yield client


def drop(store, *tags):
    return store.write(ORIGIN, store.known(ORIGIN).revision, Write(Knowledge(), drop=tags))


def traces(client, id):
    """Where in Valkey an entry still is."""
    found = set()
    for key in client.scan_iter(f"{PREFIX}*"):
        kind = client.type(key)
        held = {
            "hash": lambda key=key: " ".join((*client.hkeys(key), *client.hvals(key))),
            "set": lambda key=key: client.smembers(key),
            "zset": lambda key=key: client.zrange(key, 0, -1),
        }[kind]()
        if id in held:
            found.add(key.removeprefix(PREFIX).partition(":")[0])
    return found


def test_what_is_dropped_is_gone_at_once_and_its_traces_with_the_next_writes(store, client):
    put(store, entry("a"), tags=("row a", "table"))
    put(store, entry("b"), tags=("row b", "table"))
    gone = entry("a")
    assert traces(client, gone.id) == {"entries", "filing", "places", "tag", "used"}
    assert [one.id for one, _ in drop(store, "row a").dropped] == [gone.id]
    assert traces(client, gone.id) == {"filing", "left", "places", "tag", "used"}
    assert store.count(ORIGIN, "table") == len(store.tagged(ORIGIN, "table")) == 1
    put(store, entry("c"))
    assert traces(client, gone.id) == set()


def test_no_more_traces_are_left_behind_than_a_bound(store, client, monkeypatch):
    monkeypatch.setattr("shelflife.client.valkey._MOST_LEFT", 8)
    put(store, *(entry(str(number)) for number in range(50)), tags=("all",))
    put(store, *(entry(f"more {number}") for number in range(5)), tags=("more",))
    assert len(drop(store, "all").dropped) == 50
    assert client.scard(f"{PREFIX}left") == 8
    assert client.hlen(f"{PREFIX}filing") == 5 + 8
    drop(store, "more")
    assert client.scard(f"{PREFIX}left") == client.hlen(f"{PREFIX}filing") == 8
    put(store, entry("z"), entry("y"))
    assert client.exists(f"{PREFIX}left") == 0
    assert client.hlen(f"{PREFIX}places") == client.zcard(f"{PREFIX}used") == 2


def test_an_entry_that_comes_back_before_it_was_put_in_order_is_new(store):
    put(store, entry("a", at=1.0), entry("b", at=1.0), tags=("old",))
    drop(store, "old")
    assert [one.learned_at for one in put(store, entry("a", at=2.0), tags=("new",)).stored] == [2.0]
    assert drop(store, "old").dropped == []
    assert store.count(ORIGIN, "old") == 0
    assert store.count(ORIGIN, "new") == 1
    assert [one.learned_at for one in store.at(ORIGIN, [entry("a").place])] == [2.0]


def test_what_has_left_takes_no_room(store):
    put(store, *(entry(str(number), at=float(number)) for number in range(4)), tags=("t",))
    put(store, entry("a"), tags=("u",))
    store.used(ORIGIN, [entry("0").id])
    drop(store, "u")
    assert put(store, entry("b"), capacity=5).trimmed == []
    assert [one.condition.when for one in put(store, entry("c"), capacity=5).trimmed] == [{"plan": "1"}]


def test_a_full_valkey_records_what_goes_and_takes_nothing_in(store, client):
    put(store, entry("a"))
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreError, match="cannot be written"):
            put(store, entry("b"))
        store._circuit.close()
        assert len(drop(store, "t").dropped) == 1
        assert store.at(ORIGIN, [entry("a").place]) == []
    finally:
        client.config_set("maxmemory", 0)


def test_an_operation_may_have_no_name(store):
    put(store, entry("a", operation=""))
    assert list(store.shapes(ORIGIN, "")) == [("plan",)]


def test_a_number_of_any_size_is_kept(store):
    large = entry("a", 7**99)
    put(store, large)
    assert store.at(ORIGIN, [large.place]) == [large]
    assert [one for one, _ in drop(store, "t").dropped] == [large]


def test_an_entry_that_bears_two_tags_goes_once(store):
    put(store, entry("a"), entry("b"), tags=("x", "y"))
    put(store, entry("c"), tags=("y",))
    left = [(one.condition.when["plan"], tag) for one, tag in drop(store, "x", "y").dropped]
    assert sorted(left) == [("a", "x"), ("b", "x"), ("c", "y")]


# --- where it cannot be relied on


def test_a_valkey_that_drops_keys_by_itself_is_refused(store, client):
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(StoreError, match="maxmemory-policy is allkeys-lru, and should be noeviction"):
            put(store, entry())
    finally:
        client.config_set("maxmemory-policy", "noeviction")


def test_a_full_valkey_is_a_store_error_and_what_is_there_can_be_read(store, client):
    put(store, entry())
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreError, match=r"cannot be written: .*memory"):
            put(store, entry("b"))
        store._circuit.close()
        assert store.at(ORIGIN, [entry().place]) == [entry()]
    finally:
        client.config_set("maxmemory", 0)


def test_a_write_that_fails_in_the_middle_leaves_what_is_known_as_it_was(store, client):
    put(store, entry())
    known = store.known(ORIGIN)
    client.hdel(f"{PREFIX}entries", entry().id)
    moved = Knowledge(versions=Versions({"codes": "9"}))
    with pytest.raises(StoreError, match="is not there"):
        store.write(ORIGIN, known.revision, Write(moved, drop=["t"]))
    assert store.known(ORIGIN) == known


def test_one_that_is_no_primary_any_more_is_not_believed(store, client):
    put(store, entry())
    client.replicaof("127.0.0.1", 1)
    try:
        with pytest.raises(StoreError, match="read only replica"):
            store.at(ORIGIN, [entry().place])
    finally:
        client.replicaof("NO", "ONE")


def test_one_that_has_become_a_replica_is_left_for_the_primary_at_the_same_address(valkey_url, client):
    with (
        engine("valkey") as other,
        Proxy(valkey_url) as address,
        closing(ValkeyStore(address.url_of(valkey_url))) as store,
        closing(ValkeyStore(other.url)) as agent,
    ):
        put(store, entry())
        put(agent, entry("b"))
        address.turn_to(other.url)
        client.replicaof("127.0.0.1", 1)  # which ends none of its connections
        try:
            assert store.at(ORIGIN, [entry("b").place]) == [entry("b")]
            put(store, entry("c"))
            assert agent.at(ORIGIN, [entry("c").place]) == [entry("c")]
        finally:
            client.replicaof("NO", "ONE")


def test_one_that_drops_keys_by_itself_under_an_agent_is_refused_over_the_next_connection(store, client):
    put(store, entry())
    client.config_set("maxmemory-policy", "allkeys-lru")
    client.client_kill_filter(_type="normal", skipme=True)
    try:
        with pytest.raises(StoreError, match="maxmemory-policy is allkeys-lru, and should be noeviction"):
            store.known(ORIGIN)
        assert store.diary is not None
        client.config_set("maxmemory-policy", "noeviction")
        store.known(ORIGIN)
        client.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(StoreError, match="allkeys-lru"):
            store.diary.read()
        with pytest.raises(StoreError, match="allkeys-lru"):
            store.known(ORIGIN)
    finally:
        client.config_set("maxmemory-policy", "noeviction")


def test_whatever_keys_are_lost_nothing_is_found_that_had_to_go(valkey_url, client):
    leading = ("root", "entries", "filing", f"tag:{_tag('row')}", "tags")
    others = ("kinds", "places", "shapes:POST /x", "used")
    for lost in (*combinations(leading, 2), *((name,) for name in (*leading, *others))):
        client.flushall()
        with closing(ValkeyStore(valkey_url)) as store:
            put(store, entry("a"), entry("b"), tags=("row", "table"))
            put(store, entry("c"), tags=("other",))
            client.delete(*(f"{PREFIX}{name}" for name in lost))
            with suppress(StoreError):
                put(store, entry("d"), tags=("row",))  # what is lost may be made anew
            with suppress(StoreError):
                drop(store, "row")
                with closing(ValkeyStore(valkey_url)) as other:
                    places = [entry(plan).place for plan in "abd"]
                    assert other.at(ORIGIN, places) == [], lost
            client.sadd(f"{PREFIX}tag:left behind", "x")
            store.clear()
            assert [*client.scan_iter("*")] == []
            put(store, entry())


def test_a_user_who_may_not_publish_is_refused_before_anything_is_written(valkey_url, client):
    commands = ["+@all", "-@dangerous", "+info"]  # as the guide says
    rights = {"enabled": True, "passwords": ["+word"], "keys": ["shelflife:*"], "commands": commands}
    client.acl_setuser("agent", channels=["shelflife:*"], **rights)
    try:
        with closing(ValkeyStore(valkey_url.replace("//", "//agent:word@"), near=True)) as store:
            put(store, entry())
            eventually(lambda: store.known(ORIGIN) and store.lag_s < LONGEST_LAG_S)
            store.clear()
            put(store, entry())
            assert [*store.entries()] == [entry()]
            assert store.diary.read() == []
            before = store.known(ORIGIN)
            client.acl_setuser("agent", reset_channels=True, **rights)
            for _ in range(2):  # over a connection that there is, and over a new one
                with pytest.raises(
                    StoreError, match="its user may not publish what is written; allow that with"
                ):
                    drop(store, "t")
        with closing(ValkeyStore(valkey_url)) as other:
            assert other.known(ORIGIN) == before
            assert other.at(ORIGIN, [entry().place]) == [entry()]
    finally:
        client.acl_deluser("agent")


def test_what_is_in_use_when_a_store_is_closed_is_carried_out_and_then_let_go_of(valkey_url, client):
    with Proxy(valkey_url) as proxy, closing(ValkeyStore(proxy.url_of(valkey_url))) as store:
        put(store, entry())
        proxy.delay_s = 0.2
        found, carried_count = [], proxy.carried_count
        looking = threading.Thread(target=lambda: found.append(store.known(ORIGIN).revision))
        looking.start()
        eventually(lambda: proxy.carried_count > carried_count)  # it was asked, and has not answered
        store.close()
        looking.join()
        assert found > [0]
        eventually(lambda: not proxy._open)
