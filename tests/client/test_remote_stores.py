"""One memory for many agents, on engines that are real: what is shared, what it costs, and what happens when an engine does not answer."""

import asyncio
import json
import math
import struct
import threading
import time
from contextlib import ExitStack, closing

import anyio
import httpx2
import psycopg
import pytest
import redis

from shelflife.client import Guard, Memory, Reply, StoreError, Write
from shelflife.client.asking import advanced_in_thread
from shelflife.client.circuit import Circuit
from shelflife.client.events import Evicted, Stored, StoreFailed
from shelflife.client.pauses import Pauses
from shelflife.client.postgres import PostgresStore
from shelflife.client.remote import LONGEST_VERB_S
from shelflife.client.valkey import ValkeyStore
from shelflife.integrations.httpx2 import AsyncMemoryTransport, MemoryTransport
from tests.acme_world import GOVERNED, rotate
from tests.client.agents import Agent, knows
from tests.client.by_hand import HERE, LATER, ROOT, adopt, replied
from tests.client.entries import ORIGIN, entry, put
from tests.client.remote import OPERATION, SLACK_S, eventually, trips_of
from tests.client.responses import STAMPS, rejection, said
from tests.proxies import Proxy


def test_what_one_agent_learns_the_next_has_at_its_first_request(where, address, provider, opened):
    with Agent(address, store=opened(where).store) as one, Agent(address, store=opened(where).store) as other:
        one.call(GOVERNED)
        assert knows(other, GOVERNED) == [{"promo_code": "SUMMERSALE25"}]
        rotate(provider)
        one.call(GOVERNED)
        assert knows(other, GOVERNED) == knows(one, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]


def test_what_was_learned_at_one_moment_is_listed_in_one_order_whatever_is_written_meanwhile(where, opened):
    store = opened(where).store
    learned = [entry(plan=f"plan {number}", at=7.0) for number in range(40)]
    put(store, *learned)
    before = [one.id for one in store.entries()]
    put(store, *(entry(plan=f"other {number}", at=8.0) for number in range(300)))
    assert [one.id for one in store.entries()][:40] == before == sorted(one.id for one in learned)


def test_a_recall_costs_one_round_trip_once_the_shapes_are_known(where, opened):
    memory = opened(where)
    memory.observe(said(rejection(when={"a": 1})))
    other = opened(where)
    assert trips_of(other, lambda: other.recall("http://h", OPERATION, {"a": 1})) == ["_look", "_look"]
    for fields, hit_count in (({"a": 1}, 1), ({"a": 2}, 0), ({"a": 1}, 1)):
        found = []
        assert trips_of(
            other,
            lambda fields=fields, found=found: found.extend(other.recall("http://h", OPERATION, fields)),
        ) == ["_look"]
        assert len(found) == hit_count


def test_a_lesson_costs_a_look_and_a_write_once_its_shape_is_known(where, opened):
    memory = opened(where)
    memory.observe(said(rejection(when={"a": 1})))
    memory.recall("http://h", OPERATION, {"a": 1})

    def trips_to_learn(fields):
        lesson = said(rejection(when=fields))._replace(request=fields)
        return trips_of(memory, lambda: memory.observe(lesson))

    assert trips_to_learn({"a": 2}) == ["_look", "_written"]
    assert trips_to_learn({"b": 3}) == ["_look", "_look", "_written"]
    assert trips_to_learn({"b": 4}) == ["_look", "_written"]
    for fields in ({"a": 2}, {"b": 3}, {"b": 4}):
        assert memory.recall("http://h", OPERATION, fields)


def changed(row, since, version):
    """What a server answers when it is asked which rows of its table have changed."""
    told = {"since": since, "version": version, "known": True, "added": [], "removed": [], "changed": [row]}
    return Reply(200, json.dumps({"tables": {"t": told}, "table_versions": {"t": version}}).encode())


def test_an_eviction_costs_a_look_before_the_server_is_asked_and_a_write(where, opened):
    memory, events, asked = opened(where), [], []
    memory.observe(said(rejection()))

    def answer(question):
        asked.append(question)
        return changed("k", "1", "2")

    moved = said(STAMPS | {"table_versions": {"t": "2"}})
    trips = trips_of(memory, lambda: events.extend(memory.observe(moved, answer)))
    assert [type(event) for event in events] == [Evicted]
    assert len(asked) == 1
    assert trips == [
        "_look",
        "_look",
        "_written",
    ]  # the second counts, for a server may make so many go, and no more
    assert memory.recall("http://h", OPERATION, {}) == []


def test_an_eviction_that_the_reply_itself_tells_of_costs_one_round_trip(where, opened):
    memory, events = opened(where, most_evictions=None), []
    adopt(memory, HERE)
    named = memory.contract_at(ROOT)
    moved = {"to": LATER, "from": named, "moved": {"tables": {"t": {"changed": ["k"]}}}}
    trips = trips_of(memory, lambda: events.extend(replied(memory, named, at=moved)))
    assert [type(event) for event in events] == [Evicted]
    assert trips == ["_written"]
    assert memory.recall(ROOT, OPERATION, {}) == []


def test_who_has_not_heard_that_another_has_dealt_with_a_movement_asks_no_server_about_it(where, opened):
    one, other, asked = opened(where), opened(where), []
    one.observe(said(rejection()))
    assert len(other.recall("http://h", OPERATION, {})) == 1
    moved = said(STAMPS | {"table_versions": {"t": "2"}})
    one.observe(moved, lambda question: changed("another", "1", "2"))
    other.observe(moved, asked.append)
    assert asked == []
    assert len(other.recall("http://h", OPERATION, {})) == 1


def test_a_reply_of_the_state_that_was_last_seen_does_not_hide_that_another_has_seen_a_later_one(
    where, opened
):
    one, other, asked = opened(where), opened(where), []
    one.observe(said(rejection()))
    assert len(other.recall("http://h", OPERATION, {})) == 1
    fix = {"parameters": {"x": 2}, "tables": [{"table": "t", "version": "2"}]}
    one.observe(
        said(rejection(**fix) | {"table_versions": {"t": "2"}}), lambda question: changed("k", "1", "2")
    )
    assert [entry.parameters for entry in one.recall("http://h", OPERATION, {})] == [{"x": 2}]

    def answer(question):
        asked.append(question)
        return Reply(200, json.dumps({"table_versions": {"t": "1"}, "rules_version": "abc"}).encode())

    other.observe(said(STAMPS), answer)  # the server was rolled back
    assert asked
    assert one.recall("http://h", OPERATION, {}) == []


def test_a_lesson_that_is_decided_on_what_has_passed_is_decided_anew(where, opened):
    one, other = opened(where), opened(where)
    one.observe(said(rejection(when={"a": 1})))
    assert len(other.recall("http://h", OPERATION, {"a": 1})) == 1
    one.observe(said(rejection(when={"b": 1}, type="G")))
    other.observe(said(rejection(when={"c": 1}, type="H")))
    assert {entry.type for entry in one.recall("http://h", OPERATION, {"a": 1, "b": 1, "c": 1})} == {
        "F",
        "G",
        "H",
    }


def test_statements_that_were_planned_over_empty_tables_find_entries_by_their_places(postgres_url):
    with closing(PostgresStore(postgres_url)) as store:
        for number in range(100):
            put(store, entry(str(number)))
    schema = postgres_url.rpartition("=")[2]
    with psycopg.connect(postgres_url.rpartition("&")[0]) as connection:
        read = dict(
            connection.execute(
                "select indexrelname, idx_scan from pg_stat_user_indexes where schemaname = %s", [schema]
            ).fetchall()
        )
    assert read["entries_by_place"] == 100
    assert read["entries_by_use"] == read["entries_pkey"] == 0


def test_what_has_left_is_counted_no_longer_whenever_that_is_put_in_order(where, opened):
    store = opened(where).store
    plans = [str(number) for number in range(30)]
    for plan in plans:
        put(store, entry(plan), tags=("all", f"row {plan}"))
    for left_count, plan in enumerate(plans[:20], start=1):
        known = store.known(ORIGIN)
        assert (
            len(store.write(ORIGIN, known.revision, Write(known.knowledge, drop=[f"row {plan}"])).dropped)
            == 1
        )
        assert opened(where).store.count(ORIGIN, "all") == store.count(ORIGIN, "all") == 30 - left_count
    put(store, entry("0"), tags=("all", "row 0"))
    assert opened(where).store.count(ORIGIN, "all", "row 0", "row 1") == 12


def test_a_request_costs_one_round_trip_where_its_reply_has_no_news(where, address, opened):
    memory = opened(where)
    with httpx2.Client(base_url=address, transport=MemoryTransport(memory, guard=Guard())) as client:
        assert client.post("/subscriptions", json=GOVERNED).status_code == 422
        assert client.post("/subscriptions", json=GOVERNED).status_code == 201
        sent = []
        trips = trips_of(memory, lambda: sent.append(client.post("/subscriptions", json=GOVERNED)))
    assert sent[0].status_code == 201
    assert trips == ["_look"]


def test_namespaces_are_kept_apart(where, opened):
    ours, theirs = opened(where, namespace="ours"), opened(where, namespace="theirs")
    ours.observe(said(rejection()))
    assert theirs.recall("http://h", OPERATION, {}) == []
    assert list(theirs.store.entries()) == []
    assert theirs.store.known("http://h:80").revision == 0
    theirs.observe(said(rejection()))
    assert theirs.forget("http://h") == 1
    assert len(ours.recall("http://h", OPERATION, {})) == 1


@pytest.mark.parametrize("namespace", ["", "a b", "ä", "x" * 65, "a:b", "{}"])
def test_a_namespace_is_a_word(where, namespace):
    with pytest.raises(ValueError, match="a namespace is a word"):
        Memory.at(where, namespace=namespace)


def test_room_is_for_each_root(where, opened):
    store = opened(where).store
    for number in range(5):
        put(store, entry(str(number)), capacity=3)
        put(store, entry(str(number), root="https://b.example"), root="https://b.example", capacity=3)
    held = [(one.root, one.condition.when["plan"]) for one in store.entries()]
    assert sorted(held) == [(root, plan) for root in (ORIGIN, "https://b.example") for plan in "234"]


# --- when an engine does not answer


@pytest.mark.parametrize("fault", ["silent", "cut off", "dripping", "dripping when connected to"])
def test_an_engine_that_is_away_holds_up_no_step_for_long_and_is_told_once(where, opened, fault):
    with Proxy(where) as proxy:
        memory, events = opened(proxy.url_of(where)), []
        memory.telling.listeners.append(events.append)
        memory.observe(said(rejection()))
        assert len(memory.recall("http://h", OPERATION, {})) == 1
        if fault == "silent":
            proxy.is_silent = True
        elif fault == "cut off":
            proxy.close_port()
        else:
            proxy.drip_s = LONGEST_VERB_S / 4
        if fault == "dripping when connected to":
            memory.store._disconnect()
        took = []
        for _ in range(20):
            begun_at = time.monotonic()
            assert memory.recall("http://h", OPERATION, {}) == []
            memory.observe(said(STAMPS))
            took.append(time.monotonic() - begun_at)
        assert max(took) < 2 * LONGEST_VERB_S + SLACK_S
        assert sum(took) < 4 * LONGEST_VERB_S + SLACK_S
        assert [type(event) for event in events] == [Stored, StoreFailed]
        assert "hidden" not in events[1].why
        assert "\n" not in events[1].why


def test_an_engine_that_comes_back_is_used_again_and_first_the_server_is_asked(
    where, opened, address, provider
):
    with Proxy(where) as proxy, Agent(address, store=opened(proxy.url_of(where)).store) as agent:
        agent.call(GOVERNED)
        proxy.is_silent = True
        rotate(provider)
        agent.call(GOVERNED)  # which shows that the fix is stale, and cannot be written
        proxy.is_silent = False
        proxy.cut()
        known = []
        eventually(lambda: (agent.call(GOVERNED), known.append(knows(agent, GOVERNED)), known[-1])[2])
        assert [one for one in known if one] == [[{"promo_code": "WINTERLAUNCH26"}]]


def test_an_event_loop_does_not_wait_for_a_store(where, opened, address):
    async def played(proxy):
        async with httpx2.AsyncClient(
            base_url=address, transport=AsyncMemoryTransport(memory, guard=Guard())
        ) as client:
            assert (await client.post("/subscriptions", json=GOVERNED)).status_code == 422
            assert (await client.post("/subscriptions", json=GOVERNED)).status_code == 201
            proxy.is_silent = True
            assert (await client.post("/subscriptions", json=GOVERNED)).status_code == 422

    with Proxy(where) as proxy:
        memory = opened(proxy.url_of(where))
        threads = set()
        asked = trips_of(
            memory, lambda: asyncio.run(played(proxy)), lambda: threads.add(threading.get_ident())
        )
    assert {"_look", "_written"} <= {*asked}
    assert threading.get_ident() not in threads  # which is the loop's


def test_a_cancelled_step_leaves_the_store_usable(where, opened, address):
    async def played(memory):
        async with httpx2.AsyncClient(
            base_url=address, transport=AsyncMemoryTransport(memory, guard=Guard())
        ) as client:
            for _ in range(20):
                step = asyncio.create_task(client.post("/subscriptions", json=GOVERNED))
                await asyncio.sleep(0.001)
                step.cancel()
                await asyncio.gather(step, return_exceptions=True)
            await client.post("/subscriptions", json=GOVERNED)
            return (await client.post("/subscriptions", json=GOVERNED)).status_code

    assert asyncio.run(played(opened(where))) == 201


def test_a_store_that_was_set_back_is_asked_about_before_anything_is_used(where, address, provider, opened):
    with Agent(address, store=opened(where).store, names_positions=True) as agent:
        agent.call(GOVERNED)
        copy = copied(where)
        rotate(provider)
        agent.call(GOVERNED)
        assert knows(agent, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]
        put_back(where, copy)
        assert knows(agent, GOVERNED) == []
        assert "has lost what was written" in agent.of(StoreFailed)[0].why
        agent.call(GOVERNED)
        assert knows(agent, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]
        assert [one.entry.parameters for one in agent.of(Evicted)][-1] == {"promo_code": "SUMMERSALE25"}


def copied(where):
    """All that an engine holds."""
    if where.startswith("redis"):
        with closing(redis.Redis.from_url(where)) as client:
            return {key: client.dump(key) for key in client.scan_iter()}
    with closing(PostgresStore(where)) as store, store._database.snapshot() as connection:
        return {
            name: connection.execute(f"select * from {name}").fetchall()
            for name in ("roots", "shapes", "tags", "left_behind", "entries")
        }


def put_back(where, copy):
    """An engine as it was when it was copied, as after a failover that has lost the last writes."""
    if where.startswith("redis"):
        with closing(redis.Redis.from_url(where)) as client:
            client.flushall()
            for key, value in copy.items():
                client.restore(key, 0, value)
        return
    with closing(PostgresStore(where)) as store, store._database.writing() as connection:
        for name, rows in copy.items():
            connection.execute(f"delete from {name}")
            for row in rows:
                places = ", ".join("?" * len(row))
                connection.execute(f"insert into {name} overriding system value values ({places})", row)


def test_another_format_is_refused(valkey_url, postgres_url):
    with closing(redis.Redis.from_url(valkey_url)) as client, closing(ValkeyStore(valkey_url)) as store:
        client.set("shelflife:default:format", 9)
        with pytest.raises(StoreError, match="has format 9; this version of shelflife reads 5"):
            store.known(ORIGIN)
    with closing(PostgresStore(postgres_url)) as first, closing(PostgresStore(postgres_url)) as second:
        put(first, entry())
        with first._database.writing() as connection:
            connection.execute("update signs set format = 9")
        with pytest.raises(StoreError, match="has format 9; this version of shelflife reads 4"):
            second.known(ORIGIN)


def test_a_thousand_threads_of_writes_lose_nothing_between_machines(where, opened):
    stores = [opened(where).store for _ in range(4)]

    def learn(number):
        for count in range(10):
            while put(stores[number], entry(f"{number}-{count}")) is None:
                pass

    threads = [threading.Thread(target=learn, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one.id for one in stores[0].entries()}) == stores[1].count(ORIGIN, "t") == 40


def test_every_memory_over_a_store_that_was_set_back_is_in_doubt_whatever_it_does_first(
    where, address, provider, opened
):
    store = opened(where).store
    with (
        Agent(address, store=store, names_positions=True) as one,
        Agent(address, store=store, names_positions=True) as other,
    ):
        one.call(GOVERNED)
        copy = copied(where)
        rotate(provider)
        one.call(GOVERNED)
        assert knows(one, GOVERNED) == knows(other, GOVERNED) == [{"promo_code": "WINTERLAUNCH26"}]
        put_back(where, copy)
        one.memory.forget("http://nobody")
        one.memory.forget(address, type="NOTHING")
        assert knows(one, GOVERNED) == knows(other, GOVERNED) == []


# --- the circuit, and steps in threads


def test_several_who_wait_when_a_store_fails_are_one_failure():
    circuit = Circuit()
    let_in_at = [circuit.check() for _ in range(8)]
    for one in let_in_at:
        circuit.open(one, StoreError("away"))
    assert circuit._pause_s == 1.0
    with pytest.raises(StoreError, match="away"):
        circuit.check()


def test_what_is_no_failure_of_the_engine_leaves_the_circuit_as_it_is(where, opened):
    store = opened(where).store
    for error in (ZeroDivisionError(), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            store._called("read", lambda error=error: (_ for _ in ()).throw(error))
    with pytest.raises(StoreError, match="cannot be read: garbage"):
        store._called("read", lambda: (_ for _ in ()).throw(ValueError("garbage")))
    assert store.known(ORIGIN).revision == 0
    store._circuit.open(store._circuit.check(), StoreError("away"))
    with pytest.raises(StoreError, match="away"):
        store.known(ORIGIN)


def test_an_engine_that_answers_of_one_root_with_an_error_is_there_for_all_others(where, opened):
    memory = opened(where)
    memory.observe(said(rejection()))
    spoil(where, b"7")
    store = opened(where).store
    store._circuit.open(store._circuit.check(), StoreError("away"))
    eventually(lambda: "cannot be read" in refused(store, "http://h:80"))
    assert store.known(ORIGIN).revision == 0


def test_that_all_connections_are_in_use_does_not_show_that_an_engine_is_there(postgres_url, opened):
    store = opened(postgres_url).store
    store.known(ORIGIN)
    store._circuit = Circuit(Pauses(4.0, 30.0))
    store._circuit.open(store._circuit.check(), StoreError("away"))
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(store._database._free)  # as whoever has a connection
        eventually(lambda: "all 4 connections" in refused(store, ORIGIN))
        assert refused(store, ORIGIN) == "away"


def refused(store, root):
    with pytest.raises(StoreError) as refusal:
        store.known(root)
    return str(refusal.value)


def test_whoever_cancels_again_and_again_waits_for_the_thread_and_no_longer():
    async def played():
        loop = asyncio.get_running_loop()
        with anyio.CancelScope() as scope:
            steps = slowly(lambda: loop.call_soon_threadsafe(lambda: (scope.cancel(), is_cancelled.set())))
            next(steps)
            await advanced_in_thread(steps.send, None)
        steps.close()
        return scope.cancelled_caught

    def slowly(cancel):
        yield 1
        cancel()
        assert is_cancelled.wait(60)
        yield 2

    is_cancelled = threading.Event()

    assert asyncio.run(played())


def test_what_steps_raise_in_a_thread_is_raised():
    def failing():
        raise RuntimeError("no such luck")
        yield

    with pytest.raises(RuntimeError, match="no such luck"):
        asyncio.run(advanced_in_thread(failing().send, None))


# --- what somebody has put into an engine


def spoil(where, garbage):
    """Put garbage where what is known of a root is."""
    if where.startswith("redis"):
        with closing(redis.Redis.from_url(where)) as client:
            client.hset("shelflife:{default http://h:80}:root", mapping={"knowledge": garbage, "revision": 7})
        return
    with closing(PostgresStore(where)) as store, store._database.writing() as connection:
        connection.execute("update roots set knowledge = ?, revision = 7", (garbage,))


@pytest.mark.parametrize(
    "garbage", [b"\xff", b"7", b'{"place": 7}', b"[" * 5_000], ids=["no text", "7", "a place", "deep"]
)
def test_garbage_in_an_engine_is_a_miss_and_a_warning_in_every_verb(where, opened, garbage):
    memory = opened(where)
    memory.observe(said(rejection()))
    spoil(where, garbage)
    assert memory.recall("http://h", OPERATION, {}) == []
    assert memory.amend("http://h", OPERATION, {"a": 1}).applied == []
    assert memory.contract_at("http://h").startswith("*")
    assert memory.root_of("http://h/x") == "http://h:80"
    assert memory.forget("http://h") == 0
    memory.observe(said(STAMPS))
    assert memory.position("http://h") is None


def set_age(where, id, age):
    """Write an age where an engine has that of an entry."""
    if where.startswith("redis"):
        with closing(redis.Redis.from_url(where)) as client:
            entries = f"shelflife:{{default {ORIGIN}}}:entries"
            told = client.hget(entries, id)
            client.hset(entries, id, told[:2] + struct.pack(">d", age) + told[10:])
        return
    with psycopg.connect(where.rpartition("&")[0], autocommit=True) as connection:
        schema = where.rpartition("=")[2]
        connection.execute(
            f"update {schema}.entries set learned_at = %s where id = decode(%s, 'hex')", [age, id]
        )


@pytest.mark.parametrize("age", [math.nan, math.inf, -math.inf])
def test_an_age_that_is_no_number_is_older_than_all_others(where, opened, age):
    kept = [entry(plan, at=at) for plan, at in (("a", 7.0), ("b", 5.0), ("c", 6.0))]
    put(opened(where).store, *kept)
    spoiled = kept[0]
    set_age(where, spoiled.id, age)
    store = opened(where).store
    (found,) = store.find(ORIGIN, spoiled.operation, {"plan": "a"})[1]
    assert found.entry == entry("a", at=0.0)
    there = store.at(ORIGIN, [one.place for one in reversed(kept)])
    assert [one.learned_at for one in there] == [one.learned_at for one in store.entries()] == [0.0, 5.0, 6.0]
    put(store, *kept)
    known = store.known(ORIGIN)
    assert store.write(ORIGIN, known.revision, Write(known.knowledge, drop_ids=[spoiled.id])).dropped == [
        (entry("a", at=0.0), spoiled.id)
    ]


def test_names_of_any_length_are_kept(where, opened):
    memory = opened(where)
    for number in range(3):
        memory.observe(said(rejection(when={f"field_{number}_{one}" + "x" * 300: None for one in range(20)})))
    assert len(memory.recall("http://h", OPERATION, {})) == 3
    store = memory.store
    long = entry(operation="POST /" + "y" * 9_000, root="https://a.example/" + "z" * 9_000)
    put(store, long, root=long.root)
    assert store.at(long.root, [long.place]) == [long]
    assert list(store.shapes(long.root, long.operation)) == [("plan",)]


def test_what_one_server_cannot_have_written_keeps_no_other_from_being_written(where, opened):
    store = opened(where).store
    put(store, entry())
    if where.startswith("redis"):
        with closing(redis.Redis.from_url(where)) as client:
            client.set("shelflife:{default https://b.example}:kinds", "none")
        bad = entry(root="https://b.example")
    else:
        bad = entry(root="https://b.example", operation="POST /\0")
    with pytest.raises(StoreError, match="cannot be written"):
        put(store, bad, root=bad.root)
    assert put(store, entry("b")) is not None


def test_a_schema_that_is_dropped_under_an_agent_is_made_again_and_counts_as_a_loss(postgres, postgres_url):
    with closing(PostgresStore(postgres_url)) as store:
        put(store, entry())
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(f"drop schema {postgres_url.rpartition('=')[2]} cascade")
        assert store.at(ORIGIN, [entry().place]) == []
        assert store.set_backs[ORIGIN] == 1
        put(store, entry())
        assert store.at(ORIGIN, [entry().place]) == [entry()]
