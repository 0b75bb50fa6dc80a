"""Tables that are read again from where they live, and tables that come while the server runs."""

import asyncio
import logging
import os
import signal
import threading
import time
from contextlib import ExitStack, closing

import pytest

from shelflife.server import (
    BadSetting,
    LogError,
    Provider,
    ReloadRefused,
    Rule,
    SourceError,
    SqliteLog,
    UnknownTable,
    every,
    fix,
)
from tests.threads import at_once

NOW_AND_THEN_S = 0.01


def until(condition):
    """Wait for something that another thread does."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Source:
    """A source whose content is changed from outside."""

    def __init__(self, **rows):
        self.rows = rows
        self.count = 0
        self.error = None
        self.meanwhile = None

    def __call__(self):
        self.count += 1
        if self.error:
            raise self.error
        rows, meanwhile = dict(self.rows), self.meanwhile
        if meanwhile:
            meanwhile()
        return rows

    async def later(self):
        await asyncio.sleep(0)
        return self()


@pytest.fixture
def source():
    return Source(basic={"price": 1})


@pytest.fixture
def provided(source):
    """A provider that refreshes now and then, as in an app that runs."""
    provider = Provider({"plans": every(NOW_AND_THEN_S, source)})
    provider.begin_life()
    yield provider
    provider.end_life()


def price(provider):
    return provider.registry.state.tables["plans"].rows["basic"]["price"]


def test_an_async_source_is_read_with_and_without_an_event_loop(source):
    provider = Provider({"plans": source.later})
    source.rows = {"basic": {"price": 2}}
    assert provider.refresh("plans").changed == ("basic",)

    async def inside():
        return Provider({"plans": source.later}), provider.refresh("plans")

    made, report = asyncio.run(inside())
    assert (price(made), report.changed) == (2, ())


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_source_that_fails_is_an_error_in_one_sentence(source, kind):
    given = source if kind == "plain" else source.later
    provider = Provider({"plans": given})
    source.error = OSError("the disk is gone")
    with pytest.raises(SourceError, match="the source of table plans failed: OSError: the disk is gone"):
        provider.refresh("plans")
    with pytest.raises(SourceError, match="the source of table plans failed"):
        Provider({"plans": given})
    assert price(provider) == 1


def test_a_table_is_refreshed_on_schedule_while_an_app_runs(source):
    provider = Provider({"plans": every(NOW_AND_THEN_S, source), "fixed": {}})
    assert source.count == 1
    provider.begin_life()
    source.rows = {"basic": {"price": 2}}
    until(lambda: price(provider) == 2)
    provider.end_life()
    assert not [one for one in threading.enumerate() if one.name.startswith("shelflife-refresh")]
    count = source.count
    provider.begin_life()  # a server may start its app again
    until(lambda: source.count > count)
    provider.end_life()


def test_a_refresh_that_changes_nothing_is_not_in_the_log(provided, source):
    number = provided.registry.state.number
    count = source.count
    until(lambda: source.count > count + 3)
    assert provided.registry.state.number == number


def test_a_refresh_that_fails_is_told_once_and_tried_again(provided, source, caplog):
    caplog.set_level(logging.WARNING, "shelflife")
    source.error = RuntimeError("no connection")
    until(lambda: caplog.messages)
    count = source.count
    until(lambda: source.count > count + 3)
    [told] = caplog.messages
    assert told == (
        "the table plans stays as it is, and is tried again every 0.01 s:"
        " the source of table plans failed: RuntimeError: no connection"
    )
    source.rows, source.error = {"basic": {"price": 2}}, None
    until(lambda: price(provided) == 2)
    until(lambda: caplog.messages[1:] == ["the table plans is refreshed again"])
    source.rows = {"basic": "no row"}
    until(lambda: "row 'basic' of table plans is 'no row'; a row is an object" in caplog.messages[-1])


def test_a_slow_source_holds_up_neither_another_nor_the_end_of_an_app(source, monkeypatch):
    monkeypatch.setattr("shelflife.server.refreshing._LONGEST_END_S", 0.05)
    gate = threading.Event()
    gate.set()

    def slow():
        gate.wait(60)
        return {}

    provider = Provider({"slow": every(NOW_AND_THEN_S, slow), "plans": every(NOW_AND_THEN_S, source)})
    gate.clear()
    provider.begin_life()
    until(lambda: source.count > 3)
    begun_at = time.monotonic()
    provider.end_life()
    assert time.monotonic() - begun_at < 30
    gate.set()


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), 1e10, float("inf")])
def test_a_period_is_a_positive_number_and_a_month_at_most(source, seconds):
    with pytest.raises(BadSetting, match="every so many seconds"):
        every(seconds, source)


def test_workers_that_share_a_log_refresh_a_change_once(source, tmp_path):
    def worker():
        provider = Provider({"plans": every(NOW_AND_THEN_S, source)}, log=tmp_path / "log.db")
        provider.begin_life()
        return provider

    one, other = worker(), worker()
    try:
        number = one.registry.state.number
        source.rows = {"basic": {"price": 2}}
        until(lambda: price(one) == price(other) == 2)
        count = source.count
        until(lambda: source.count > count + 6)
        assert one.registry.state.number == other.registry.state.number == number + 1
    finally:
        one.end_life()
        other.end_life()


def test_what_another_worker_has_read_later_is_not_undone(source, tmp_path):
    with (
        closing(Provider({"plans": source}, log=tmp_path / "log.db")) as slow,
        closing(Provider({"plans": source}, log=tmp_path / "log.db")) as quick,
    ):

        def another_is_quicker():
            source.meanwhile, source.rows = None, {"basic": {"price": 3}}
            quick.refresh("plans")

        source.meanwhile, source.rows = another_is_quicker, {"basic": {"price": 2}}
        assert slow.refresh("plans").changed == ()
        assert price(slow) == 3


def test_a_source_that_went_back_before_a_restart_counts_as_it_is_then(source, tmp_path):
    def provider():
        return closing(Provider({"plans": source}, log=tmp_path / "log.db"))

    with provider() as first:
        source.rows = {"basic": {"price": 2}}
        first.refresh("plans")
    source.rows = {"basic": {"price": 1}}
    with provider() as second:
        assert price(second) == 1


def test_a_table_may_come_while_the_server_runs(source):
    provider = Provider({"plans": {"basic": {"code": "A"}}})

    @provider.policy
    def percent_of_the_promo(request, tables):
        promo = tables.plans["basic"].follow("needs")
        return fix("F", percent=promo["percent"]) if promo else None

    provider.begin_life()
    number = provider.registry.state.number
    promos = Source(A={"percent": 5})
    provider.add_table("promos", every(NOW_AND_THEN_S, promos))
    assert provider.registry.state.number == number + 1
    tie = Rule(from_table="plans", to_table="promos", relation="needs", via="code")
    provider.registry.reload_rules(add=[tie])
    assert provider.violations({})[0].suggestion.parameters == {"percent": 5}
    promos.rows = {"A": {"percent": 6}}
    until(lambda: provider.violations({})[0].suggestion.parameters == {"percent": 6})
    assert provider.refresh("promos").changed == ()
    provider.end_life()


def test_a_table_that_is_there_already_cannot_be_added(source):
    provider = Provider({"plans": {}})
    with pytest.raises(ReloadRefused, match="there is a table called plans already; reload it"):
        provider.add_table("plans", source)
    assert provider.registry.state.tables["plans"].rows == {}


def test_a_table_that_cannot_be_added_leaves_nothing_behind():
    provider = Provider({"plans": {}})
    with pytest.raises(ValueError, match="is 'no row'"):
        provider.add_table("promos", {"A": "no row"})
    with pytest.raises(UnknownTable):
        provider.refresh("promos")
    provider.add_table("promos", {"A": {}})
    assert [*provider.registry.state.tables] == ["plans", "promos"]


def test_a_table_that_one_worker_has_added_is_seen_by_another_that_adds_it_too(tmp_path):
    path = tmp_path / "log.db"
    with (
        closing(Provider({"plans": {}}, log=path)) as one,
        closing(Provider({"plans": {}}, log=path)) as other,
    ):
        one.add_table("promos", {"A": {"percent": 5}})
        one.registry.reload_table("promos", set={"A": {"percent": 6}})
        number = one.registry.state.number
        other.registry.catch_up()
        assert [*other.registry.state.tables] == ["plans"]
        other.add_table("promos", {"A": {"percent": 5}})
        assert other.registry.state.tables["promos"].rows == {"A": {"percent": 6}}
        assert other.registry.state.number == number
        one.registry.reload_table("promos", set={"B": {}})
        other.registry.catch_up()
        assert {*other.registry.state.tables["promos"].rows} == {"A", "B"}
    with closing(Provider({"plans": {}, "promos": {"A": {"percent": 7}}}, log=path)) as later:
        assert later.registry.state.tables["promos"].rows["A"] == {"percent": 7}


def test_what_another_worker_reloads_just_before_is_not_undone(source, tmp_path):
    log = SqliteLog(tmp_path / "log.db")
    append, others = log.append, []

    def late(*entry):
        while others:  # this one has read and decided; now the source moves on, and another is quicker
            source.rows = {"basic": {"price": 3}}
            others.pop().refresh("plans")
        return append(*entry)

    log.append = late
    with (
        closing(Provider({"plans": source}, log=log)) as one,
        closing(Provider({"plans": source}, log=tmp_path / "log.db")) as other,
    ):
        source.rows = {"basic": {"price": 2}}
        others.append(other)
        assert one.refresh("plans").changed == ()
        other.registry.catch_up()
        assert price(one) == price(other) == 3


def test_a_version_that_came_again_while_a_source_was_read_does_not_hide_the_change(source):
    provider = Provider({"plans": source})

    def others_go_on_and_back():
        source.meanwhile, source.rows = None, {"basic": {"price": 1}}
        for price in (2, 1):
            provider.registry.reload_table("plans", {"basic": {"price": price}})

    source.meanwhile, source.rows = others_go_on_and_back, {"basic": {"price": 2}}
    assert provider.refresh("plans").changed == ()
    assert price(provider) == 1


def test_a_table_that_others_change_whenever_it_is_read_stays_as_they_leave_it(source):
    provider = Provider({"plans": source})
    prices = iter(range(100, 200))
    source.meanwhile = lambda: provider.registry.reload_table("plans", {"basic": {"price": next(prices)}})
    with pytest.raises(LogError, match="others have changed the table plans whenever it was read; try again"):
        provider.refresh("plans")
    assert price(provider) == 102
    source.meanwhile = None
    assert provider.refresh("plans").changed == ("basic",)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
def test_a_child_that_was_forked_during_a_refresh_refreshes_by_itself(source):
    reading, gate = threading.Event(), threading.Event()

    def wait():
        reading.set()
        gate.wait(60)

    provider = Provider({"plans": every(NOW_AND_THEN_S, source)})
    source.meanwhile = wait
    refreshing = threading.Thread(target=provider.refresh, args=("plans",))
    refreshing.start()
    assert reading.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        source.meanwhile, source.rows = None, {"basic": {"price": 2}}
        provider.refresh("plans")
        provider.begin_life()
        source.rows = {"basic": {"price": 3}}
        until(lambda: price(provider) == 3)
        provider.end_life()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    gate.set()
    refreshing.join()
    assert status == 0


def test_what_is_read_after_the_end_of_an_app_is_left_alone(source, monkeypatch, tmp_path, caplog):
    monkeypatch.setattr("shelflife.server.refreshing._LONGEST_END_S", 0.05)
    reading, gate = threading.Event(), threading.Event()

    def wait():
        reading.set()
        gate.wait(60)

    provider = Provider({"plans": every(NOW_AND_THEN_S, source)}, log=tmp_path / "log.db")
    source.meanwhile, source.rows = wait, {"basic": {"price": 2}}
    provider.begin_life()
    assert reading.wait(60)
    [thread] = [one for one in threading.enumerate() if one.name == "shelflife-refresh-plans"]
    provider.end_life()
    gate.set()
    thread.join(60)
    assert (source.count, price(provider), caplog.messages) == (2, 1, [])


@pytest.mark.parametrize("error", [SystemExit(), asyncio.CancelledError(), KeyboardInterrupt("stop")])
def test_nothing_that_a_source_raises_ends_the_schedule_unheard(provided, source, caplog, error):
    source.error = error
    until(lambda: caplog.messages)
    assert caplog.messages[0].startswith("the table plans stays as it is, and is tried again every 0.01 s: ")
    source.rows, source.error = {"basic": {"price": 2}}, None
    until(lambda: price(provided) == 2)


def test_what_another_worker_has_read_while_this_one_starts_is_not_undone(source, place):
    with ExitStack() as stack:

        def started():
            return stack.enter_context(closing(Provider({"plans": source}, log=place)))

        def another_starts():
            source.meanwhile, source.rows = None, {"basic": {"price": 2}}
            others.append(started())

        started()
        others, source.meanwhile = [], another_starts
        late = started()
        [quick] = others
        assert price(late) == price(quick) == 2
        assert late.registry.state.number == quick.registry.state.number == 1


def test_what_another_worker_has_read_while_this_one_adds_a_table_is_not_undone(source, place):
    with (
        closing(Provider({}, log=place)) as late,
        closing(Provider({}, log=place)) as quick,
    ):

        def another_adds_it():
            source.meanwhile, source.rows = None, {"basic": {"price": 2}}
            quick.add_table("plans", source)

        source.meanwhile = another_adds_it
        late.add_table("plans", source)
        assert price(late) == price(quick) == 2
        assert late.registry.state.number == quick.registry.state.number == 1


def test_a_worker_starts_though_others_change_a_table_whenever_it_is_read(source, tmp_path):
    path = tmp_path / "log.db"
    with closing(Provider({"plans": source}, log=path)) as other:
        prices = iter(range(100, 200))
        source.meanwhile = lambda: other.registry.reload_table("plans", {"basic": {"price": next(prices)}})
        source.rows = {"basic": {"price": 2}}
        given = {"plans": source, "fixed": {"a": {}}}
        with closing(Provider(given, log=path)) as late:
            assert price(late) == price(other) >= 100
            assert late.registry.state.tables["fixed"].rows == {"a": {}}


def test_a_source_that_has_moved_on_before_a_restart_leaves_what_an_operator_has_set(source, tmp_path):
    source.rows = {"basic": {"price": 1}, "large": {"price": 5}}

    def provider():
        return closing(Provider({"plans": source}, log=tmp_path / "log.db"))

    with provider() as first:
        first.registry.reload_table("plans", set={"large": {"price": 6}})
    source.rows = {"basic": {"price": 2}, "large": {"price": 5}}
    with provider() as second:
        rows = second.registry.state.tables["plans"].rows
        assert rows == {"basic": {"price": 2}, "large": {"price": 6}}


def test_requests_that_come_at_once_begin_the_schedule_once(source):
    provider = Provider({f"plans{number}": every(60, source) for number in range(5)})
    for _ in range(20):
        assert at_once(provider._refresher.start) == []
        names = [one.name for one in threading.enumerate() if one.name.startswith("shelflife-refresh")]
        assert len(names) == 5
        provider.close()
