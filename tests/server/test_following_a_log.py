"""Workers that follow one log: how far each has come, and what those vouch for that cannot read it."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import msgspec
import pytest

from shelflife.clocks import unsleeping_s
from shelflife.server import Provider, Registry
from shelflife.server.logs import log_at
from tests.engines import engine
from tests.processes import wait_until
from tests.server.opened_logs import CODES, Opened


@pytest.mark.spec("7.17")
def test_whoever_asks_how_far_all_have_come_waits_for_those_that_follow(place):
    with Opened(place) as one, Opened(place) as other, Opened(place) as no_worker:
        assert no_worker.workers().live == 0
        one.follow()
        other.follow()
        for number in range(5):
            no_worker.reload_table("codes", set={"growth": {"code": f"WINTER{number}"}})
            assert msgspec.structs.astuple(no_worker.workers(20)) == (2, 0)
            assert one.rows("codes") == other.rows("codes") == no_worker.rows("codes")
            assert msgspec.structs.astuple(one.workers(20)) == (2, 0)
        other.close()
        assert msgspec.structs.astuple(one.workers()) == (1, 0)


@pytest.mark.spec("7.17")
def test_that_a_worker_is_there_is_known_after_its_database_has_crashed():
    with (
        engine("postgres", wal_writer_delay="10s", wal_buffers="16MB") as own,
        closing(log_at(own.url)) as log,
    ):
        Registry({"codes": CODES}, log=log)
        log.note("one", 1, 60)
        own.kill()
        own.start()
        assert log.workers() == {"one": 1}


@pytest.mark.spec("7.17")
def test_a_worker_that_hangs_is_behind_though_the_clock_of_the_log_is_put_forward(place, monkeypatch):
    is_hanging, is_over = threading.Event(), threading.Event()
    with Opened(place) as one, Opened(place, stale_for_s=60) as other:
        one.follow()
        other.follow()
        go_on = other._log.wait
        monkeypatch.setattr(other._log, "wait", lambda s: (is_hanging.set(), is_over.wait(), go_on(s)))
        assert is_hanging.wait(60)
        try:
            for step in (1, 2):
                monkeypatch.setattr(type(one._log), "now", f"({one._log.now} + 3600)")
                one.reload_table("codes", set={"growth": {"code": f"step {step}"}})
                wait_until(
                    lambda: one._log.workers()[one.worker] == one.state.number
                )  # which it notes itself
                assert msgspec.structs.astuple(one.workers()) == (2, 1)
        finally:
            is_over.set()
        assert msgspec.structs.astuple(one.workers(20)) == (2, 0)
        other.close()
        assert msgspec.structs.astuple(one.workers()) == (1, 0)


@pytest.mark.spec("7.17")
def test_a_worker_that_hangs_is_behind_until_it_tells_nothing_any_more(place, monkeypatch):
    """It may tell what it knows for as long as its provider says. Others count with it for longer than that."""
    monkeypatch.setattr("shelflife.server.keeping_up._SIGN_OF_LIFE_S", 0.1)
    is_hanging, is_over = threading.Event(), threading.Event()
    with Opened(place) as one, Opened(place, stale_for_s=1) as other:
        other.follow()
        one.follow()
        go_on = other._log.wait
        monkeypatch.setattr(other._log, "wait", lambda s: (is_hanging.set(), is_over.wait(), go_on(s)))
        assert is_hanging.wait(60)
        one.reload_table("codes", set={"growth": {"code": "WINTER"}})
        assert msgspec.structs.astuple(one.workers(0.1)) == (2, 1)
        assert not other.is_out_of_date
        assert msgspec.structs.astuple(one.workers(20)) == (1, 0)
        assert other.is_out_of_date
        is_over.set()
        wait_until(lambda: not other.is_out_of_date)
        assert other.rows("codes") == one.rows("codes")
        assert msgspec.structs.astuple(one.workers(20)) == (2, 0)


def test_a_log_that_hangs_holds_up_one_thread_and_none_of_the_apps(tmp_path, monkeypatch):
    monkeypatch.setattr("shelflife.server.keeping_up._LONGEST_LOOK_S", 60.0)
    looked = []

    async def ask(registry):
        def look():
            looked.append(threading.current_thread().name)
            registry.catch_up()

        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        with registry._changing:  # as while the log is read that does not answer
            asking = [asyncio.create_task(registry.looks.in_time(look)) for _ in range(20)]
            await asyncio.sleep(0)
            asking[3].cancel()
            await asyncio.wait_for(asyncio.to_thread(lambda: None), 60)
            assert [one.name for one in threading.enumerate()].count("shelflife-look") == 1
        return await asyncio.gather(*asking, return_exceptions=True)

    with Opened(tmp_path / "state.db") as one:
        told = asyncio.run(ask(one))
    assert [type(one) for one in told].count(asyncio.CancelledError) == 1
    assert told.count(None) == 19
    assert len(looked) <= 2  # whoever came while the first went on shared the next


def test_a_worker_that_ends_vouches_for_nothing_once_others_count_without_it(place, monkeypatch):
    with closing(Provider({"codes": CODES}, log=place)) as provider, Opened(place, rules=()) as other:
        log, vouched = provider.registry._log, []
        note = log.note

        def noting(worker, number, for_s):
            note(worker, number, for_s)
            if not for_s and not vouched:  # now a reload is told that nobody is behind
                other.reload_table("codes", set={"growth": {"code": "WINTER"}})
                assert other.workers().behind == 0
                vouched.append(provider.usual())

        monkeypatch.setattr(log, "note", noting)
        provider.be_ready()
        assert provider.usual() is not None
        provider.close()
        assert vouched == [None]
        provider.be_ready()
        assert provider.usual().state.tables["codes"].rows["growth"] == {"code": "WINTER"}


def test_a_worker_whose_machine_has_slept_vouches_for_nothing_until_it_has_looked(place, monkeypatch):
    with closing(Provider({"codes": CODES}, log=place)) as provider:
        provider.be_ready()
        is_asleep, may_look = threading.Event(), threading.Event()
        with monkeypatch.context() as asleep:
            asleep.setattr(provider.registry._log, "wait", lambda _: (is_asleep.set(), may_look.wait(30)))
            assert is_asleep.wait(30)
            asleep.setattr("shelflife.server.keeping_up.unsleeping_s", lambda: unsleeping_s() + 3600)
            assert provider.registry.is_out_of_date
            may_look.set()
            wait_until(lambda: not provider.registry.is_out_of_date)
        provider.close()
