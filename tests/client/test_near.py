"""Near caches over engines that are real: what is near is heard of, and what is not heard of is not near."""

import threading
import time
from contextlib import closing
from types import SimpleNamespace

import pytest
import redis

from shelflife.client.near import LONGEST_LAG_S, News
from shelflife.client.remote import RemoteStore
from shelflife.client.seen import Told
from shelflife.clocks import unsleeping_s
from tests.client.entries import ORIGIN, entry, put
from tests.client.remote import OPERATION, eventually, is_recalled_no_longer_than_the_lag, trips_of
from tests.client.responses import rejection, said
from tests.poolers import Pooler
from tests.proxies import Proxy
from tests.threads import at_once


def test_near_a_recall_asks_nobody_until_somebody_writes(where, opened):
    near, other = opened(where, near=True), opened(where)
    other.observe(said(rejection(when={"a": 1})))
    eventually(lambda: not trips_of(near, lambda: near.recall("http://h", OPERATION, {"a": 1})))
    assert len(near.recall("http://h", OPERATION, {"a": 1})) == 1
    eventually(lambda: near.store.lag_s < LONGEST_LAG_S)
    other.observe(said(rejection(when={"a": 2})))
    eventually(lambda: len(near.recall("http://h", OPERATION, {"a": 2})) == 1)
    eventually(lambda: not trips_of(near, lambda: near.recall("http://h", OPERATION, {"a": 1})))
    other.forget("http://h")
    is_recalled_no_longer_than_the_lag(near, {"a": 1})


def test_near_a_request_is_answered_like_another_that_says_the_same_where_it_matters(where, opened):
    near, other = opened(where, near=True), opened(where)
    other.observe(said(rejection(when={"a": 1})))
    other.observe(said(rejection(when={"b": 1}, type="G", unless={"c": [7]})))
    asked = {"a": 1, "b": 1, "amount": 3}
    eventually(lambda: not trips_of(near, lambda: near.recall("http://h", OPERATION, asked)))
    like_it = {"b": 1, "amount": 4, "a": 1}
    assert trips_of(near, lambda: near.recall("http://h", OPERATION, like_it)) == []
    for request in (asked, like_it):
        assert [one.type for one in near.recall("http://h", OPERATION, request)] == ["F", "G"]
    assert [one.type for one in near.recall("http://h", OPERATION, like_it | {"c": 7})] == ["F"]


def test_near_what_was_not_there_is_found_once_another_has_learned_it(where, opened):
    near, other = opened(where, near=True), opened(where)
    other.observe(said(rejection(when={"a": 1})))
    eventually(lambda: not trips_of(near, lambda: near.recall("http://h", OPERATION, {"a": 2})))
    assert near.recall("http://h", OPERATION, {"a": 2}) == []
    other.observe(said(rejection(when={"a": 2})))
    eventually(lambda: len(near.recall("http://h", OPERATION, {"a": 2})) == 1)


def test_near_what_is_far_too_much_to_tell_is_looked_at_anew(where, opened):
    near, other = opened(where, near=True), opened(where)
    put(other.store, *(entry(str(number)) for number in range(200)))
    eventually(lambda: len(near.store.at(ORIGIN, [entry("7").place])) == 1)
    eventually(lambda: not trips_of(near, lambda: near.store.at(ORIGIN, [entry("7").place])))
    put(other.store, *(entry(str(number), "P2") for number in range(200)))
    eventually(lambda: near.store.at(ORIGIN, [entry("7").place]) == [entry("7", "P2")])
    anew = [entry(str(number), "P2") for number in range(200)]
    assert {one.id: one for one in near.store.at(ORIGIN, [one.place for one in anew])} == {
        one.id: one for one in anew
    }


def test_near_one_s_own_writes_are_seen_at_once(where, opened):
    memory = opened(where, near=True)
    for number in range(30):
        memory.observe(said(rejection(when={"a": number})))
        assert len(memory.recall("http://h", OPERATION, {"a": number})) == 1
    memory.forget("http://h")
    assert memory.recall("http://h", OPERATION, {"a": 3}) == []


def test_near_a_broken_channel_sends_recalls_to_the_store(where, opened, caplog):
    with Proxy(where) as proxy:
        near, other = opened(proxy.url_of(where), near=True), opened(where)
        other.observe(said(rejection()))
        eventually(lambda: not trips_of(near, lambda: near.recall("http://h", OPERATION, {})))
        near.store._channel._connect = lambda: (_ for _ in ()).throw(
            OSError("no way")
        )  # only this does not come back
        proxy.cut()
        eventually(lambda: near.store._channel.life is None)
        other.forget("http://h")
        eventually(lambda: trips_of(near, lambda: near.recall("http://h", OPERATION, {})) != [])
        assert near.recall("http://h", OPERATION, {}) == []
    assert "what others write to the memory is not heard of" in caplog.text


def test_near_a_silent_channel_counts_as_broken_after_the_longest_lag(where, opened):
    with Proxy(where) as proxy:
        near, other = opened(proxy.url_of(where), near=True), opened(where)
        other.observe(said(rejection()))
        eventually(lambda: not trips_of(near, lambda: near.recall("http://h", OPERATION, {})))
        proxy.is_silent = True
        other.forget("http://h")
        is_recalled_no_longer_than_the_lag(near, {})
        assert near.recall("http://h", OPERATION, {}) == []


def test_near_behind_a_pooler_that_hands_out_connections_by_transaction_each_recall_asks(
    postgres_url, opened, caplog
):
    with Pooler(postgres_url) as pooler:
        url = f"postgresql://postgres@127.0.0.1:{pooler.port}/postgres?sslmode=disable&{postgres_url.rpartition('&')[2]}"
        near, other = opened(url, near=True), opened(url)
        other.observe(said(rejection()))
        near.recall("http://h", OPERATION, {})
        eventually(lambda: "what others write to the memory is not heard of" in caplog.text)
        assert len(near.recall("http://h", OPERATION, {})) == 1
        other.forget("http://h")
        assert near.recall("http://h", OPERATION, {}) == []
        assert near.store.lag_s == float("inf")


def test_near_a_valkey_that_has_become_a_replica_is_not_believed(valkey_url, opened, caplog):
    with closing(redis.Redis.from_url(valkey_url)) as client:
        near = opened(valkey_url, near=True)
        near.observe(said(rejection()))
        eventually(lambda: not trips_of(near, lambda: near.recall("http://h", OPERATION, {})))
        client.replicaof("127.0.0.1", 1)  # its primary cannot be reached, and it answers as before
        try:
            eventually(lambda: "what others write to the memory is not heard of" in caplog.text)
            assert near.recall("http://h", OPERATION, {}) == []
        finally:
            client.replicaof("NO", "ONE")


def test_near_what_is_written_in_another_database_of_a_valkey_is_not_heard(valkey_url, opened):
    near, other = opened(valkey_url, near=True), opened(valkey_url.removesuffix("0") + "1")
    eventually(lambda: not trips_of(near, lambda: near.recall("http://h", OPERATION, {"a": 1})))
    life = near.store._channel.life
    other.observe(said(rejection(when={"a": 1})))
    written_at = unsleeping_s()
    eventually(lambda: near.store._channel.caught_up_at > written_at)
    assert near.store._channel.newest == {}
    assert near.store._channel.life is life


def test_near_a_namespace_that_is_removed_is_not_recalled_from(where, opened):
    near, other = opened(where, near=True), opened(where)
    other.observe(said(rejection()))
    eventually(lambda: not trips_of(near, lambda: near.recall("http://h", OPERATION, {})))
    other.store.clear()
    is_recalled_no_longer_than_the_lag(near, {})
    other.observe(said(rejection(when={"b": None})))
    assert len(other.recall("http://h", OPERATION, {})) == 1


def test_near_an_engine_that_is_down_is_told_once_and_heard_again(where, opened, caplog, capfd):
    with Proxy(where) as proxy:
        near = opened(proxy.url_of(where), near=True)
        near.observe(said(rejection()))
        eventually(lambda: not trips_of(near, lambda: near.recall("http://h", OPERATION, {})))
        proxy.is_silent = True
        proxy.cut()
        eventually(lambda: near.store._channel.life is None)
        for _ in range(50):
            near.recall("http://h", OPERATION, {})
        assert [thread.name for thread in threading.enumerate()].count("shelflife-near") == 1
        assert caplog.text.count("is not heard of") == 1
        proxy.cut()
        proxy.is_silent = False
        eventually(lambda: near.recall("http://h", OPERATION, {}) and near.store.lag_s < LONGEST_LAG_S)
        assert "Traceback" not in capfd.readouterr().err


def test_a_lag_is_without_bound_until_the_channel_was_heard(where, opened):
    assert opened(where, near=True).store.lag_s == float("inf")
    assert opened(where).store.lag_s is None


class Slow(RemoteStore):
    """An engine in a variable, whose channel begins when a test says so."""

    failures = ()
    revision = 1 << 31

    def __init__(self):
        self.may_listen = threading.Event()
        self._told = []
        super().__init__("a variable", namespace="n", near=True)

    def _look(self, look):
        is_other = look.revision != self.revision
        shapes = () if look.operation else None
        return Told(self.revision, b"{}" if is_other else None, shapes, {}, [0] * len(look.tags))

    def _listening(self):
        self.may_listen.wait()
        return self

    def ask(self, sign):
        self._told.append(sign)

    def wait(self, timeout_s):
        time.sleep(0.01)
        told, self._told = self._told, []
        return told

    def _nothing(self, *given):
        return []

    _written = _tagged = _entries = _known_roots = _note = _nothing
    _clear = _disconnect = _add_to_diary = _diary = _nothing


def test_near_what_was_looked_at_before_the_channel_was_there_is_not_taken_for_fresh():
    with closing(Slow()) as store:
        store.known(ORIGIN)
        with store.moment():
            store.known(ORIGIN)
            store.revision = 2 << 31  # somebody writes, and nobody here listens yet
            store.may_listen.set()
            eventually(lambda: store.lag_s < LONGEST_LAG_S)
            store.known(ORIGIN)
        assert store.known(ORIGIN).revision == 2 << 31


def test_near_an_engine_that_loses_a_write_which_was_only_heard_of_is_noticed():
    with closing(Slow()) as store:
        store.may_listen.set()
        eventually(lambda: store.known(ORIGIN) and store.lag_s < LONGEST_LAG_S)
        store.known(ORIGIN)
        store._told.append(News(ORIGIN, 1 << 31, 2 << 31, b"{}"))
        eventually(lambda: store.guessed(ORIGIN).revision == 2 << 31)
        store.close()  # and it is asked again: there the write is not
        assert store.known(ORIGIN).revision == 1 << 31
        assert store.set_backs[ORIGIN] == 1


class Slowly(Slow):
    """One that is slow to connect to the first time, and to which that may fail then."""

    def __init__(self, fails):
        super().__init__()
        self._fails = fails
        self._is_slow = iter([True])

    def _listening(self):
        if next(self._is_slow, False):
            super()._listening()
            if self._fails:
                raise OSError("no way")
        return SimpleNamespace(ask=self.ask, wait=self.wait, close=lambda: None)


@pytest.mark.parametrize("fails", [False, True])
def test_near_whoever_closes_waits_for_no_connecting_and_what_comes_of_that_changes_nothing(
    monkeypatch, caplog, fails
):
    monkeypatch.setattr("shelflife.client.near._LONGEST_END_S", 0.01)
    with closing(Slowly(fails)) as store:
        store.known(ORIGIN)
        connecting = store._channel._thread
        store.close()
        assert connecting.is_alive()
        eventually(lambda: store.known(ORIGIN) and store.lag_s < LONGEST_LAG_S)
        life = store._channel.life
        store.may_listen.set()
        connecting.join()
        assert store._channel.life is life
        assert store._channel._thread.is_alive()
        assert caplog.text == ""


def test_near_recalls_that_come_at_once_begin_to_listen_once(where, opened):
    near = opened(where, near=True)
    near.recall("http://h", OPERATION, {})
    for _ in range(20):
        near.store.close()
        assert at_once(near.store._channel.listen) == []
        assert [one.name for one in threading.enumerate()].count("shelflife-near") == 1


def test_near_what_was_heard_before_a_machine_slept_is_asked_for(where, opened, monkeypatch):
    near = opened(where, near=True)
    eventually(lambda: not trips_of(near, lambda: near.recall("http://h", OPERATION, {})))
    monkeypatch.setattr("shelflife.client.near.unsleeping_s", lambda: unsleeping_s() + 3600)
    assert trips_of(near, lambda: near.recall("http://h", OPERATION, {})) == ["_look"]
