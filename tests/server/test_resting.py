"""What rests on a row: told to operators, from the fixes that were told."""

import itertools
import random
import time
from contextlib import closing, contextmanager

import msgspec
import pytest

from shelflife.contract.preconditions import Precondition
from shelflife.server import Provider, Rule, fix
from shelflife.server.faces import face_of
from shelflife.server.resting import _MOST_FIXES, _MOST_SHARED

TABLES = {
    "carriers": {"DHL": {"zone": "EU", "price": 5, "note": ""}, "UPS": {"zone": "US", "price": 7}},
    "zones": {"EU": {"is_open": True}, "US": {"is_open": True}},
}
TIE = Rule(from_table="carriers", to_table="zones", relation="serves", via="zone")


@pytest.fixture
def provider():
    return with_policies(Provider(TABLES, [TIE]))


def with_policies(provider):
    @provider.policy
    def price_is_that_of_the_carrier(request, tables):
        carrier = tables.carriers.get(request.get("carrier"))
        if carrier and not request.equals("price", carrier["price"]):
            return fix("USE_PRICE", price=carrier["price"])
        return None

    @provider.policy
    def zone_is_open(request, tables):
        carrier = tables.carriers.get(request.get("carrier"))
        zone = carrier.follow("serves") if carrier else None
        return fix("USE_ZONE", zone=zone.key) if zone and zone["is_open"] and "zone" not in request else None

    @provider.policy
    def carrier_is_there(request, tables):
        if request.get("carrier") not in tables.carriers:
            return fix("USE_CARRIER", carrier=min(tables.carriers))
        return None

    return provider


@contextmanager
def two_workers(place):
    """Two that share a log."""
    workers = [
        with_policies(Provider(TABLES, [TIE], log=place, admin_token="t", scoring=None)) for _ in range(2)
    ]
    with closing(workers[0]), closing(workers[1]):
        for one in workers:
            one.be_ready()
        yield workers


def resting(provider, table, key=None):
    """The number of fixes and what was read, by the short name of the policy."""
    told = provider.told_fixes.resting_on(table, key, provider.registry)
    policies = {id.rpartition(".")[2]: (one.fixes, one.columns) for id, one in told.policies.items()}
    assert told.fixes == sum(fixes for fixes, _ in policies.values())
    return policies


@pytest.mark.spec("8.3")
def test_a_row_tells_which_policies_and_how_many_fixes_rest_on_it(provider):
    assert resting(provider, "carriers", "DHL") == {}
    for price in (1, 1, 2):
        provider.violations({"carrier": "DHL", "price": price})
    provider.violations({"carrier": "UPS"})
    provider.violations({"carrier": "none"})
    assert resting(provider, "carriers", "DHL") == {
        "price_is_that_of_the_carrier": (1, ("price",)),
        "zone_is_open": (1, ("zone",)),
        "carrier_is_there": (1, ()),
    }
    assert resting(provider, "zones", "EU") == {"zone_is_open": (1, ("is_open",))}
    assert resting(provider, "carriers", "none") == {"carrier_is_there": (1, ())}
    assert resting(provider, "carriers")["price_is_that_of_the_carrier"] == (2, ("price",))


@pytest.mark.spec("8.3")
def test_what_affected_downstream_does_not_tell_is_told_here(provider):
    provider.violations({"carrier": "DHL"})
    report = provider.registry.reload_table("zones", set={"US": {"is_open": False}})
    assert report.affected_downstream == ()
    assert resting(provider, "zones", "EU") == {"zone_is_open": (1, ("is_open",))}


@pytest.mark.spec("8.3")
def test_a_fix_whose_grounds_have_moved_does_not_count_any_more(provider):
    provider.violations({"carrier": "DHL"})
    reload = provider.registry.reload_table
    reload("carriers", set={"DHL": {"zone": "EU", "price": 5, "note": "other"}})
    assert {*resting(provider, "carriers", "DHL")} == {"price_is_that_of_the_carrier", "zone_is_open"}
    reload("carriers", set={"DHL": {"zone": "EU", "price": 6, "note": "other"}})
    assert {*resting(provider, "carriers", "DHL")} == {"zone_is_open"}
    provider.registry.reload_rules(rules=[])
    assert resting(provider, "carriers", "DHL") == {}
    provider.violations({"carrier": "DHL"})
    assert {*resting(provider, "carriers", "DHL")} == {"price_is_that_of_the_carrier"}


def test_fixes_that_clients_have_asked_for_count_too(provider):
    provider.fixes_for({"carrier": "UPS"}, "POST /parcels", provider.registry.state)
    assert resting(provider, "carriers", "UPS")["price_is_that_of_the_carrier"] == (1, ("price",))


def test_a_policy_that_reads_a_row_or_a_table_whole_has_read_all_of_it():
    provider = Provider({"plans": {f"{number}": {"n": number} for number in range(100)}})
    provider.policy(lambda request, tables: fix("ROW", n=dict(tables.plans["5"])))

    def total_of_all(request, tables):
        return fix("ALL", total=sum(row["n"] for row in tables.plans.values()))

    provider.policy(total_of_all)
    provider.violations({})
    assert {columns for _, columns in resting(provider, "plans", "5").values()} == {None}
    assert [columns for _, columns in resting(provider, "plans", "6").values()] == [None]


def test_a_fix_that_rests_on_no_table_is_nowhere():
    provider = Provider({"plans": {"a": {}}})
    provider.policy(lambda request, tables: fix("F", a=1))
    provider.violations({})
    assert resting(provider, "plans") == {}


def test_only_the_latest_fixes_are_kept(provider):
    provider.violations({"carrier": "DHL"})
    for number in range(_MOST_FIXES + 1):
        provider.violations({"carrier": f"none {number}"})
    assert resting(provider, "carriers") == {"carrier_is_there": (_MOST_FIXES, ())}


READERS = {
    "one_cell": lambda tables: tables.carriers["DHL"]["price"],
    "whether_it_is_there": lambda tables: "UPS" in tables.carriers,
    "which_are_there": lambda tables: len(tables.carriers),
    "a_row": lambda tables: dict(tables.carriers["DHL"]),
    "a_walk": lambda tables: [row["zone"] for row in tables.carriers.values()],
    "along_a_rule": lambda tables: tables.carriers["DHL"].follow("serves")["is_open"],
    "a_table": lambda tables: sum(len(row) for row in tables.many.values()),
}


def changes(seed, provider):
    """Changes that leave nothing as it was before."""
    draw, registry, new = random.Random(seed), provider.registry, itertools.count(100)

    def set_a_cell():
        rows, key = registry.rows("carriers"), draw.choice(["DHL", "UPS", "FEDEX"])
        column = draw.choice(["price", "note", "weight"])
        if key in rows:
            registry.reload_table("carriers", set={key: {**rows[key], column: next(new)}})

    def set_one_of_many():
        registry.reload_table("many", set={draw.choice(["0", "70", "x"]): {"n": next(new)}})

    kinds = [
        *[set_a_cell] * 6,
        set_one_of_many,
        lambda: registry.reload_table("carriers", set={f"{next(new)}": {"zone": "US"}}),
        lambda: "UPS" in registry.rows("carriers") and registry.reload_table("carriers", remove=["UPS"]),
        lambda: registry.reload_table("zones", set={"EU": {"is_open": next(new)}}),
        lambda: TIE in registry.state.rules and registry.reload_rules(remove=[TIE]),
        lambda: registry.declare_policies(
            {**registry.state.policies, draw.choice(sorted(READERS)): f"{next(new)}"}
        ),
    ]
    return (draw.choice(kinds) for _ in range(12))


@pytest.mark.parametrize("seed", range(20))
def test_a_fix_counts_exactly_as_long_as_a_request_that_rests_on_it_would_be_let_through(seed):
    many = {f"{number}": {"n": number} for number in range(80)}
    provider = Provider({**TABLES, "many": many}, [TIE])
    for name, read in READERS.items():

        def policy(request, tables, read=read, name=name):
            return fix("F", read=[name, read(tables)])

        policy.__qualname__ = name
        provider.policy(policy)
    provider.be_ready()
    state = provider.registry.state
    told, at = provider.violations({}), str(face_of(state, provider.level).position)
    assert len(told) == len(READERS)
    counts = []
    for change in changes(seed, provider):
        change()
        state = provider.registry.state
        face = face_of(state, provider.level)
        stand = {
            policy.id
            for policy, suggestion in told
            if face.meets(
                Precondition(
                    at=at,
                    cells=suggestion.cells,
                    rules=suggestion.rules or (),
                    policies=(face.words.policy(policy.id),),
                )
            )
        }
        resting_on = provider.told_fixes.resting_on
        seen = [resting_on(table, None, provider.registry).policies for table in state.tables]
        assert {id for policies in seen for id in policies} == stand
        counts.append(len(stand))
    assert counts[-1] < len(READERS)


def test_what_any_worker_has_told_counts_at_all_of_them_and_once(place):
    with two_workers(place) as workers:
        first, second = workers
        first.violations({"carrier": "UPS", "price": 1})
        for one in workers:
            one.violations({"carrier": "DHL", "price": 2})
            one.told_fixes.meet(one.registry, now=True)
        for one in workers:
            for key in ("DHL", "UPS"):
                assert resting(one, "carriers", key)["price_is_that_of_the_carrier"] == (1, ("price",))
            assert one.told_fixes.count_on("carriers", {"DHL", "UPS"}, one.registry) > 2
        [shared, _] = first.registry.shared("told").values()
        assert b"DHL" in shared
        assert b"USE_PRICE" not in shared
        second.registry.reload_table("carriers", set={"DHL": {"zone": "EU", "price": 6, "note": ""}})
        first.registry.catch_up()
        for one in workers:
            assert "price_is_that_of_the_carrier" not in resting(one, "carriers", "DHL")


def test_what_a_request_named_and_no_table_has_is_not_written_down(place):
    with two_workers(place) as workers:
        first, second = workers
        first.violations({"carrier": "alice@example.com"})
        first.told_fixes.meet(first.registry, now=True)
        [shared] = first.registry.shared("told").values()
        assert b"alice" not in shared
        for one in workers:
            assert resting(one, "carriers", "alice@example.com")["carrier_is_there"][0] == 1
            assert one.told_fixes.count_on("carriers", {"alice@example.com"}, one.registry) == 1
            assert (
                one.told_fixes.count_on("carriers", {"bob@example.com"}, one.registry) == 1
            )  # it has read all keys
        first.violations({"carrier": "carol@example.com", "price": 1})
        second.registry.reload_table("carriers", set={"alice@example.com": {"zone": "EU"}})
        first.registry.catch_up()
        for one in workers:
            assert resting(one, "carriers", "alice@example.com") == {}


def test_what_a_worker_shares_of_what_it_has_told_is_bounded(tmp_path):
    provider = with_policies(Provider(TABLES, [TIE], log=tmp_path / "log.db", admin_token="t"))
    with closing(provider):
        provider.be_ready()
        for number in range(3 * _MOST_SHARED // 4):
            provider.violations({"carrier": "DHL", "price": 0, "zone": 0, "n": number})
            provider.violations({"carrier": f"{number}"})
        provider.told_fixes.meet(provider.registry, now=True)
        [shared] = provider.registry.shared("told").values()
        assert len(msgspec.json.decode(shared)) <= _MOST_SHARED // 2


def test_fixes_of_a_log_that_was_replaced_do_not_count(provider):
    provider.violations({"carrier": "DHL"})
    other = Provider(TABLES, [TIE])
    assert provider.told_fixes.resting_on("carriers", None, other.registry).fixes == 0


def test_many_fixes_over_a_long_log_are_counted_at_once(provider):
    for number in range(1000):
        provider.violations({"carrier": "DHL", "price": 0, "zone": 0})
        rows = {f"{row}": {"is_open": number} for row in range(30)}
        provider.registry.reload_table("zones", set=rows)
        for each in range(4):
            provider.violations({"carrier": f"{number} {each}"})
    begun_at = time.thread_time()
    assert resting(provider, "carriers")["carrier_is_there"] == (4000, ())
    assert time.thread_time() - begun_at < 5  # of the processor: whoever else uses it does not count
