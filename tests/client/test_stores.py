"""One suite over all stores: shared tests, a machine that demands agreement with a plain model, laws."""

import gc
import tempfile
import threading
from contextlib import closing
from itertools import permutations
from pathlib import Path
from types import FunctionType, ModuleType

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shelflife.client.entries import Condition, Grounds, Knowledge, place_of
from shelflife.client.in_process import InProcessStore
from shelflife.client.postgres import PostgresStore
from shelflife.client.sqlite import SqliteStore
from shelflife.client.stores import Known, Write
from shelflife.client.strategies import (
    EXACT,
    any_row_tag,
    cell_tag,
    policy_tag,
    presence_tag,
    row_tag,
    table_tag,
    whole_row_tag,
)
from shelflife.client.valkey import ValkeyStore
from shelflife.contract.versions import Versions
from tests.client.entries import ORIGIN, OTHER, entry, filed, put
from tests.client.kinds import store_of
from tests.client.own_store import ListStore


@pytest.fixture(params=["in process", "SQLite", "of one's own", "PostgreSQL", "Valkey"])
def store(request, tmp_path):
    """Every store passes the same tests, also one that somebody has written with what is public."""
    if request.param == "of one's own":
        yield ListStore()
        return
    with closing(store_of(request.param, request.getfixturevalue, tmp_path)) as store:
        yield store


def found(store, plan="basic"):
    return store.at(ORIGIN, [place_of(ORIGIN, "POST /x", {"plan": plan})])


def test_what_was_put_is_found_at_its_place(store):
    put(store, entry())
    assert found(store) == [entry()]
    assert found(store, "other") == []
    assert list(store.entries()) == [entry()]
    assert list(store.shapes(ORIGIN, "POST /x")) == [("plan",)]
    assert list(store.shapes(OTHER, "POST /x")) == []


def test_every_root_is_listed_of_which_something_is_on_record_with_or_without_an_entry(store):
    assert store.roots() == []
    store.write(OTHER, 0, Write(Knowledge(versions=Versions({"codes": "1"}))))
    put(store, entry(), tags=["t"])
    assert store.roots() == sorted([ORIGIN, OTHER])
    store.write(ORIGIN, store.known(ORIGIN).revision, Write(Knowledge(), drop=["t"]))
    assert store.roots() == sorted([ORIGIN, OTHER])


def test_a_second_value_takes_the_slot_of_the_first(store):
    put(store, entry(value="P1"))
    written = put(store, entry(value="P2"))
    assert written.dropped == [(entry(value="P1"), "")]
    assert found(store) == [entry(value="P2")]


def test_a_second_value_may_stand_beside_the_first_oldest_first(store):
    put(store, entry(value="P1", at=1.0), beside=True)
    put(store, entry(value="P2", at=2.0), beside=True)
    put(store, entry(value="P1", at=3.0), beside=True)
    assert [one.parameters["promo"] for one in found(store)] == ["P1", "P2"]
    assert found(store)[0].learned_at == 1.0


def test_fixes_of_two_types_share_a_place(store):
    put(store, entry(type="A"), entry(type="B"))
    assert {one.type for one in found(store)} == {"A", "B"}


def test_what_bears_a_tag_is_dropped_and_nothing_else(store):
    put(store, entry("a"), tags=["x", "all"])
    put(store, entry("b"), tags=["y", "all"])
    put(store, entry("c"), tags=["x", "y", "all"])
    assert store.count(ORIGIN, "x") == 2
    known = store.known(ORIGIN)
    written = store.write(ORIGIN, known.revision, Write(known.knowledge, drop=["x", "nothing"]))
    assert {one.condition.when["plan"] for one, tag in written.dropped} == {"a", "c"}
    assert {tag for _, tag in written.dropped} == {"x"}
    assert [one.condition.when["plan"] for one in store.entries()] == ["b"]
    assert (store.count(ORIGIN, "x"), store.count(ORIGIN, "y"), store.count(ORIGIN, "all")) == (0, 1, 1)
    assert [one.condition.when["plan"] for one in store.tagged(ORIGIN, "y")] == ["b"]


@pytest.mark.parametrize(
    ("tag", "count"),
    [
        ("all", 4),
        (table_tag("codes"), 4),
        (table_tag("plans"), 1),
        (row_tag("codes", "a"), 2),
        (row_tag("codes", "a:"), 1),
        (cell_tag("codes", "a", "code"), 1),
        (cell_tag("codes", "a", "ends"), 2),
        (whole_row_tag("codes", "a:"), 1),
        (presence_tag("codes", "a"), 1),
        (any_row_tag("plans"), 1),
        (any_row_tag("codes"), 0),
        (policy_tag("p"), 4),
    ],
)
def test_what_rests_on_two_cells_of_a_row_counts_once_for_the_row_and_its_table(store, tag, count):
    rests_on = [
        {"codes": {"a": ("code", "ends")}, "plans": None},
        {"codes": {"a": ("ends",)}},
        {"codes": {"a:": None}},
        {"codes": {"a": (), "b": ("code",), "c": ("code",)}},
    ]
    for number, cells in enumerate(rests_on):
        one = entry(f"plan {number}", grounds=Grounds(tuple(cells), cells, (), "p"))
        put(store, one, tags=["all", *EXACT.files(one).tags])
    assert store.count(ORIGIN, tag) == count
    assert len(store.tagged(ORIGIN, tag)) == count
    known = store.known(ORIGIN)
    written = store.write(ORIGIN, known.revision, Write(known.knowledge, drop=[tag]))
    assert len(written.dropped) == count
    assert (store.count(ORIGIN, tag), store.count(ORIGIN, "all")) == (0, 4 - count)


def test_what_was_learned_again_on_other_grounds_is_found_by_these_whatever_has_gone_before(store):
    put(store, entry("a"), tags=["former", "all"])
    put(store, *[entry(f"other {number}") for number in range(30)], tags=["others", "all"])
    store.write(ORIGIN, store.known(ORIGIN).revision, Write(Knowledge(), drop=["others"]))
    put(store, entry("a"), tags=["present", "all"])
    for tags in permutations(["present", "former", "others", "all"]):
        assert store.tagged(ORIGIN, *tags) == [entry("a")]
        assert store.count(ORIGIN, *tags) == 2
    assert store.tagged(ORIGIN, "former", "others") == []
    written = store.write(
        ORIGIN, store.known(ORIGIN).revision, Write(Knowledge(), drop=["former", "present"])
    )
    assert written.dropped == [(entry("a"), "present")]


def test_entries_can_be_dropped_by_id(store):
    put(store, entry("a"), entry("b"))
    known = store.known(ORIGIN)
    written = store.write(ORIGIN, known.revision, Write(known.knowledge, drop_ids=[entry("a").id, "00" * 16]))
    assert written.dropped == [(entry("a"), entry("a").id)]


def test_an_id_of_another_origin_drops_nothing(store):
    others = entry(root=OTHER)
    put(store, others, root=OTHER)
    put(store, entry())
    known = store.known(ORIGIN)
    written = store.write(ORIGIN, known.revision, Write(known.knowledge, drop_ids=[others.id, entry().id]))
    assert written.dropped == [(entry(), entry().id)]
    assert list(store.entries()) == store.tagged(OTHER, "t") == [others]


def test_the_tags_of_one_origin_are_not_those_of_another(store):
    put(store, entry())
    put(store, entry(root=OTHER), root=OTHER)
    known = store.known(OTHER)
    store.write(OTHER, known.revision, Write(known.knowledge, drop=["t"]))
    assert [one.root for one in store.entries()] == [ORIGIN]


def test_a_write_on_what_has_changed_meanwhile_does_nothing(store):
    stale = store.known(ORIGIN)
    put(store, entry())
    assert (
        store.write(ORIGIN, stale.revision, Write(Knowledge(versions=Versions({"codes": "9"})), drop=["t"]))
        is None
    )
    assert found(store) == [entry()]
    assert store.known(ORIGIN).knowledge == Knowledge()


def test_knowledge_is_kept_by_origin(store):
    knowledge = Knowledge(versions=Versions({"codes": "1"}, "abc"), state_tag="tag")
    store.write(ORIGIN, 0, Write(knowledge))
    assert store.known(ORIGIN).knowledge == knowledge
    assert store.known(ORIGIN).revision
    assert store.known(OTHER) == Known(Knowledge(), 0)


def test_the_longest_unused_leave_first(store):
    for plan in "abcd":
        put(store, entry(plan))
    store.used(ORIGIN, [entry("a").id])
    store.used(ORIGIN, [entry("b").id])
    written = put(store, entry("e"), capacity=3)
    assert [one.condition.when["plan"] for one in written.trimmed] == ["c", "d"]
    assert {one.condition.when["plan"] for one in store.entries()} == {"a", "b", "e"}


def test_what_comes_is_used_later_than_all_that_was_used_before(store):
    for plan in "ab":
        put(store, entry(plan))
    store.used(ORIGIN, [entry("a").id, entry("b").id])
    written = put(store, entry("c"), capacity=2)
    assert [one.condition.when["plan"] for one in written.trimmed] == ["a"]


def test_room_is_made_whatever_is_written(store):
    for plan in "abc":
        put(store, entry(plan))
    assert len(put(store, capacity=1).trimmed) == 2


def test_what_was_there_already_is_not_stored_again(store):
    assert put(store, entry()).stored == [entry()]
    assert put(store, entry(at=1.0)).stored == []
    assert put(store, entry(value="P2")).stored == [entry(value="P2")]


def test_a_suspect_is_the_same_entry_with_the_tags_it_is_put_with(store):
    put(store, entry())
    written = put(store, entry(is_suspect=True), tags=["s"])
    assert (written.dropped, written.stored) == ([], [])
    assert [one.is_suspect for one in found(store)] == [True]
    assert (store.count(ORIGIN, "t"), store.count(ORIGIN, "s")) == (0, 1)
    written = put(store, entry(at=1.0))
    assert (written.dropped, written.stored) == ([], [entry()])
    assert found(store) == [entry()]
    assert (store.count(ORIGIN, "t"), store.count(ORIGIN, "s")) == (1, 0)


def test_what_is_of_another_generation_is_stored_when_it_is_given_again(store):
    put(store, entry())
    assert put(store, entry(generation=1)).stored == [entry(generation=1)]
    assert put(store, entry(generation=1)).stored == []
    assert put(store, entry(generation=2, is_suspect=True)).stored == []
    assert put(store, entry(generation=2)).stored == [entry(generation=2)]
    assert found(store) == [entry(generation=2)]


def test_to_become_suspect_is_no_use(store):
    for plan in "ab":
        put(store, entry(plan))
    put(store, entry("a", is_suspect=True))
    assert [one.condition.when["plan"] for one in put(store, entry("c"), capacity=2).trimmed] == ["a"]


def test_a_shape_goes_with_the_last_entry_that_has_it(store):
    put(store, entry("a"), entry("b"), entry(condition=Condition({"other": 1})))
    known = store.known(ORIGIN)
    store.write(ORIGIN, known.revision, Write(known.knowledge, drop_ids=[entry("a").id]))
    assert set(store.shapes(ORIGIN, "POST /x")) == {("plan",), ("other",)}
    known = store.known(ORIGIN)
    store.write(ORIGIN, known.revision, Write(known.knowledge, drop_ids=[entry("b").id]))
    assert list(store.shapes(ORIGIN, "POST /x")) == [("other",)]


def test_no_root_takes_the_room_of_another(store):
    put(store, entry("quiet"))
    for number in range(5):
        written = put(store, entry(str(number), root=OTHER), root=OTHER, capacity=2)
        assert [one.condition.when["plan"] for one in written.trimmed] == (
            [str(number - 2)] if number > 1 else []
        )
    store.used(ORIGIN, [entry("quiet").id])
    store.used(OTHER, [entry("3", root=OTHER).id])
    assert put(store, entry("5", root=OTHER), root=OTHER, capacity=2).trimmed == [entry("4", root=OTHER)]
    assert found(store, "quiet") == [entry("quiet")]
    assert put(store, capacity=1).trimmed == []


def test_a_capacity_of_nothing_holds_nothing(store):
    assert put(store, entry(), capacity=0).trimmed == [entry()]
    assert list(store.entries()) == []


def held_count(store):
    """How many objects a store holds on to."""
    seen, found = {}, [store]
    while found:
        one = found.pop()
        if id(one) not in seen and not isinstance(one, type | FunctionType | ModuleType):
            seen[id(one)] = one
            found += gc.get_referents(one)
    return len(seen)


def test_operations_of_which_nothing_is_left_take_no_room():
    store = InProcessStore()
    counts = []
    for number in range(1_005):
        put(store, entry(operation=f"POST /x/{number}", at=1.5), capacity=5)
        counts.append(held_count(store) if number in (9, 1_004) else 0)
    assert counts[9] == counts[1_004]
    assert list(store.shapes(ORIGIN, "POST /x/0")) == []
    assert list(store.shapes(ORIGIN, "POST /x/1004")) == [("plan",)]


def test_threads_lose_nothing(store):
    def learn(worker):
        for number in range(25):
            while put(store, entry(f"{worker}-{number}")) is None:
                pass

    threads = [threading.Thread(target=learn, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(store.entries())) == 100
    assert store.count(ORIGIN, "t") == 100


@pytest.fixture(scope="module", autouse=True)
def engines(postgres, valkey):
    """The machine takes its engines from here: it cannot ask for fixtures. What is left behind is soon too much, and so is what is tallied."""
    StoreMachine.engines = postgres.url, valkey.url
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shelflife.client.valkey._MOST_LEFT", 2)
        patch.setattr("shelflife.client.sqlite_writing._ALWAYS_GONE", 1)
        patch.setattr("shelflife.client.sqlite_seen._MOST_TALLIES", 2)
        yield
    for store in StoreMachine.remote.values():
        store.close()


class StoreMachine(RuleBasedStateMachine):
    """All stores agree with each other and with lists that are searched from end to end."""

    engines = ()
    remote = {}  # noqa: RUF012 - of all examples: to connect takes longer than all that is done then
    started_count = 0

    @initialize()
    def start(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "memory.db"
        StoreMachine.started_count += 1
        self.pairs = [
            [SqliteStore(self.path), SqliteStore(self.path)],
            *([self.on(kind, url, number) for number in range(2)] for kind, url in enumerate(self.engines)),
        ]
        self.stores = [InProcessStore(), ListStore(), *(pair[0] for pair in self.pairs)]
        self.model = []
        self.write_count = 0

    def on(self, kind, url, number):
        """One of two that share an engine, in a namespace that is new for each example."""
        key = kind, number
        if key not in self.remote:
            self.remote[key] = (PostgresStore, ValkeyStore)[kind](url)
        store = self.remote[key]
        store.namespace = f"example-{self.started_count}"
        store.after_fork_in_child()  # all that it has seen was of another namespace
        store._highest.clear()
        return store

    def teardown(self):
        if hasattr(self, "stores"):
            for store in self.pairs[0]:
                store.close()
            self.folder.cleanup()

    @rule(
        origin=st.sampled_from([ORIGIN, OTHER]),
        plan=st.sampled_from("ab"),
        value=st.sampled_from(["P1", "P2"]),
        type=st.sampled_from(["A", "B"]),
        tags=st.sets(st.sampled_from("xyz"), min_size=1),
        is_suspect=st.booleans(),
        capacity=st.sampled_from([None, None, 2, 3]),
    )
    def put(self, origin, plan, value, type, tags, is_suspect, capacity):
        at = float(self.write_count)
        one = entry(plan, value, root=origin, type=type, at=at, is_suspect=is_suspect)
        beside = type == "B"  # an entry has one slot for as long as it is there
        put = [filed(one, sorted(tags), beside=beside)]
        write = Write(Knowledge(versions=Versions({"codes": value})), put=put, capacity=capacity)
        outcomes = [store.write(origin, store.known(origin).revision, write) for store in self.stores]
        assert all(outcome == outcomes[0] for outcome in outcomes)
        self.write_count += 1
        for held, _ in self.model:
            if held.id == one.id:
                one = msgspec.structs.replace(one, learned_at=held.learned_at)
        gone = "id" if beside else "slot"
        self.model = [(held, t) for held, t in self.model if getattr(held, gone) != getattr(one, gone)]
        self.model.append((one, tags))
        trimmed = [left.id for left in outcomes[0].trimmed]
        self.model = [(held, t) for held, t in self.model if held.id not in trimmed]

    @rule(origin=st.sampled_from([ORIGIN, OTHER]), tags=st.lists(st.sampled_from("xyz"), max_size=2))
    def drop(self, origin, tags):
        write = Write(Knowledge(), drop=tags)
        outcomes = [store.write(origin, store.known(origin).revision, write) for store in self.stores]
        dropped = [sorted(one.id for one, _ in outcome.dropped) for outcome in outcomes]
        doomed = [held for held, t in self.model if held.root == origin and t & set(tags)]
        assert dropped == [sorted(held.id for held in doomed)] * len(self.stores)
        self.write_count += 1
        self.model = [(held, t) for held, t in self.model if held not in doomed]

    @rule(origin=st.sampled_from([ORIGIN, OTHER]))
    def learn_and_lose_many(self, origin):
        """From then on there is much that has gone, and is taken out as others come."""
        many = [filed(entry(f"other {number}", root=origin), "w") for number in range(12)]
        for write in (Write(Knowledge(), put=many), Write(Knowledge(), drop="w")):
            outcomes = [store.write(origin, store.known(origin).revision, write) for store in self.stores]
            assert all(outcome == outcomes[0] for outcome in outcomes)
        self.write_count += 2

    @rule(origin=st.sampled_from([ORIGIN, OTHER]))
    def write_too_late(self, origin):
        for store in self.stores:
            another = store.known(origin).revision + 1
            assert store.write(origin, another, Write(Knowledge(), drop=["x"])) is None

    @rule()
    def open_again(self):
        for _, store in self.pairs:
            store.close()

    @rule()
    def go_on_with_others_that_share_what_there_is(self):
        self.pairs = [pair[::-1] for pair in self.pairs]
        self.stores = [*self.stores[:2], *(pair[0] for pair in self.pairs)]

    @invariant()
    def they_agree(self):
        if not hasattr(self, "stores"):
            return
        for store in self.stores:
            held_now = sorted((one.id, one.is_suspect, one.learned_at) for one in store.entries())
            assert held_now == sorted((held.id, held.is_suspect, held.learned_at) for held, _ in self.model)
            for origin in (ORIGIN, OTHER):
                assert store.known(origin).knowledge == self.stores[0].known(origin).knowledge
                for plan in "ab":
                    place = place_of(origin, "POST /x", {"plan": plan})
                    expected = sorted(held.id for held, _ in self.model if held.place == place)
                    assert sorted(one.id for one in store.at(origin, [place])) == expected
                shapes = [("plan",)] if any(held.root == origin for held, _ in self.model) else []
                assert list(store.shapes(origin, "POST /x")) == shapes
                for tag in "xyz":
                    count = sum(held.root == origin and tag in t for held, t in self.model)
                    assert store.count(origin, tag) == count == len(store.tagged(origin, tag))
                for tags in permutations("xyz"):
                    expected = sorted(held.id for held, _ in self.model if held.root == origin)
                    assert sorted(one.id for one in store.tagged(origin, *tags)) == expected


StoreMachine.TestCase.settings = settings(
    max_examples=16 if settings().max_examples < 1000 else 400, stateful_step_count=20
)
TestStoreMachine = StoreMachine.TestCase


def test_what_has_gone_keeps_no_place_in_the_order_of_use():
    """A memory that was full once, and is kept from being so again by what goes."""
    store = InProcessStore()
    for number in range(12):
        put(store, entry(f"p{number}"), capacity=10)
    for number in range(12, 200):
        known = store.known(ORIGIN)
        store.write(ORIGIN, known.revision, Write(known.knowledge, drop_ids=[entry(f"p{number - 1}").id]))
        put(store, entry(f"p{number}"), capacity=10)
    held = store._roots[ORIGIN]
    assert len(held.living()) == 10
    assert held._by_use is None or len(held._by_use) < 50
    for number in range(200, 202):
        put(store, entry(f"p{number}"), capacity=10)
    assert {one.condition.when["plan"] for one in store.entries()} == {
        *(f"p{number}" for number in (*range(4, 11), 199, 200, 201))
    }
