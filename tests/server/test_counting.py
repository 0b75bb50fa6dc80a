"""Counts: each worker counts for itself, and a log of either kind keeps them for all."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from shelflife.server import Provider, fix
from shelflife.server.counting import _MOST_TYPES, Counts
from shelflife.server.log import InProcessLog


def providers(place, count=2):
    return [Provider({"codes": {"a": {"code": "A"}}}, log=place, admin_token="t") for _ in range(count)]


def test_what_workers_count_is_added_up_in_either_kind_of_log(place):
    first, second = providers(place)
    with closing(first), closing(second):
        first.counts.count("checks", "refused", by=2)
        second.counts.count("checks", "refused", by=3)
        second.counts.passed += 1
        assert first.counts.totals()["checks", "refused"] == 2
        assert second.counts.totals()["checks", "refused"] == 5
        assert first.counts.totals() == second.counts.totals()
        assert first.counts.totals()["checks", "passed"] == 1


def test_a_count_is_kept_once_however_often_it_is_told(place):
    [provider] = providers(place, 1)
    with closing(provider):
        provider.counts.fed += 1
        for _ in range(3):
            provider.counts.keep(now=True)
            assert provider.counts.totals()["feed_events",] == 1


def test_names_of_any_kind_are_kept_apart(place):
    [provider] = providers(place, 1)
    keys = [("a", "b,c"), ("a", "b", "c"), ("a", 'b","c'), ("a", "ü\n\\")]
    with closing(provider):
        for number, key in enumerate(keys, 1):
            provider.counts.count(*key, by=number)
        assert [provider.counts.totals()[key] for key in keys] == [1, 2, 3, 4]


def test_nothing_is_lost_where_many_threads_count_and_keep():
    counts = Counts(InProcessLog())

    def count(number):
        for _ in range(2000):
            counts.passed += 1
            counts.count("checks", "refused")
        counts.keep(now=True)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(count, range(8)))
    totals = counts.totals()
    assert (totals["checks", "passed"], totals["checks", "refused"]) == (16_000, 16_000)


def test_a_child_begins_with_nothing_so_that_nothing_counts_twice():
    log = InProcessLog()
    counts = Counts(log)
    counts.count("changes", "tables")
    counts.keep(now=True)
    counts.after_fork_in_child()
    counts.count("changes", "tables")
    assert (counts.own()["changes", "tables"], counts.totals()["changes", "tables"]) == (1, 2)


def test_a_change_is_counted_by_whoever_makes_it(place):
    first, second = providers(place)
    with closing(first), closing(second):
        before = first.counts.totals().get(("changed_rows", "codes", "changed"), 0)
        second.registry.reload_table("codes", set={"a": {"code": "B"}})
        first.registry.catch_up()
        second.counts.keep(now=True)
        assert first.counts.totals()["changed_rows", "codes", "changed"] - before == 1


def counting_types(place, names):
    """A process that counts fixes of these types, and ends."""
    provider = Provider({"codes": {"a": {"code": "A"}}}, log=place, admin_token="t")

    @provider.policy
    def makes_types_up(request, tables):
        return fix(request["type"], code=tables.codes["a"]["code"])

    with closing(provider):
        for name in names:
            provider.counts.count_fixes(provider.violations({"type": name}), "refusal")
        return {key[2]: count for key, count in provider.counts.totals().items() if key[0] == "fixes"}


def test_types_that_policies_make_up_are_bounded_over_all_processes_there_ever_were(place):
    first = counting_types(place, [f"A{number}" for number in range(_MOST_TYPES)])
    assert len(first) == _MOST_TYPES
    second = counting_types(place, [*(f"B{number}" for number in range(80)), "A0"])
    assert second == {**first, "other": 81}
    third = counting_types(place, ["A1", "C"])
    assert third == {**first, "A1": 2, "other": 82}
