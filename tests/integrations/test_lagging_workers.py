"""Workers over one log of which some lag behind, lack a table, or cannot reach the log: nothing stale is told or carried out."""

import httpx2
import pytest

from shelflife.client import Guard, Memory
from shelflife.client.events import LogLost
from shelflife.contract.positions import Named
from shelflife.integrations.httpx2 import MemoryTransport
from shelflife.server import LogError, Provider, SqliteLog, fix
from shelflife.server.faces import face_of
from shelflife.server.wire import Level
from shelflife.testing import serving
from tests.integrations.ordering import ordering

SHOP = {"host": "shop"}


class LaggingLog(SqliteLog):
    """A log of which nothing is heard, and which may be out of reach."""

    is_lost = False

    def wait(self, timeout_s):
        super().wait(0)
        raise LogError("nothing is heard")

    def read(self, number, digest):
        if self.is_lost:
            raise LogError("the disk is gone")
        return super().read(number, digest)


def worker(log, *regions):
    """An API that wants the code of a region, on a worker that knows these regions, and its provider."""
    tables = {f"codes_{region}": {"a": {"code": f"{region}1"}} for region in regions}
    provider = Provider(tables, log=log, stale_for_s=600)

    @provider.policy(version="1")
    def code_of_the_region(request, tables):
        code = tables[f"codes_{request['region']}"]["a"]["code"]
        return None if request.equals("code", code) else fix("USE", code=code)

    return ordering(provider), provider


def agent(memory, **options):
    return httpx2.Client(transport=MemoryTransport(memory, guard=Guard(), **options), headers=SHOP)


def rotate(provider, region, code):
    provider.registry.reload_table(f"codes_{region}", set={"a": {"code": code}})


@pytest.mark.spec("11.8")
def test_a_worker_without_a_table_tells_all_the_same_that_it_has_moved(tmp_path):
    path = tmp_path / "state.db"
    (older_app, older), (newer_app, newer) = worker(path, "us", "eu"), worker(path, "us")
    memory = Memory()
    with serving(older_app) as old, serving(newer_app) as new, agent(memory) as client:
        wanted = {"region": "eu"}
        assert [client.post(f"{old}/s", json=wanted).status_code for _ in range(2)] == [422, 200]
        rotate(older, "eu", "eu2")
        newer.registry.catch_up()
        client.post(f"{new}/s", json={"region": "us"})
        assert memory.recall(memory.root_of("http://shop/s"), "POST /s", wanted) == []
        answers = [client.post(f"{old}/s", json=wanted) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [422, 200]
        assert answers[-1].json() == {"code": "eu2"}


@pytest.mark.spec("12.3")
def test_a_precondition_is_judged_at_the_end_of_the_log_also_by_a_worker_that_lags(tmp_path):
    path = tmp_path / "state.db"
    (first_app, first), (lagging_app, _) = worker(path, "us"), worker(LaggingLog(path), "us")
    with (
        serving(first_app) as at_first,
        serving(lagging_app) as at_lagging,
        agent(Memory(), conditional=True) as client,
    ):
        wanted = {"region": "us"}
        assert [client.post(f"{at_lagging}/s", json=wanted).status_code for _ in range(2)] == [422, 200]
        for number in range(2, 12):
            code = f"us{number}"
            rotate(first, "us", code)
            carried_out = client.post(f"{at_lagging}/s", json=wanted)
            assert (carried_out.status_code, carried_out.json()) == (200, {"code": code})
        assert client.post(f"{at_first}/s", json=wanted).json() == {"code": code}


@pytest.mark.spec("12.4")
def test_where_the_log_cannot_be_reached_no_precondition_is_met(tmp_path):
    path = tmp_path / "state.db"
    log = LaggingLog(path)
    (_, first), (cut_off_app, _) = worker(path, "us"), worker(log, "us")
    with serving(cut_off_app) as address, agent(Memory(), conditional=True) as client:
        wanted = {"region": "us"}
        assert [client.post(f"{address}/s", json=wanted).status_code for _ in range(2)] == [422, 200]
        rotate(first, "us", "us2")
        log.is_lost = True
        for _ in range(3):  # it goes out as it came, and is refused by the rules that this worker knows
            assert client.post(f"{address}/s", json=wanted).status_code in (412, 422)
        log.is_lost = False
    first.close()


def test_what_would_be_too_long_to_be_told_is_not_worked_out():
    provider = Provider({"codes": {str(number): {"code": "a"} for number in range(5000)}, "other": {}})
    before = face_of(provider.registry.state, Level.FINGERPRINT).position
    rows = {str(number): {"code": "b"} for number in range(5000)}
    provider.registry.reload_table("codes", rows)
    face = face_of(provider.registry.state, Level.FINGERPRINT)
    stamp = face.stamp_at(Named(before), with_versions=False)
    assert (b'"moved"' in stamp.members, len(stamp.members) < 100) == (False, True)
    assert face._accounts == {}
    assert len(face.account(Named(before)).moved.tables["codes"].changed) == 5000


@pytest.mark.spec("11.30")
def test_large_reloads_of_one_log_are_not_taken_for_several_logs(monkeypatch):
    monkeypatch.setattr("shelflife.server.endpoints._LONGEST_ACCOUNT", 2000)
    provider = Provider({"codes": {"a": {"code": "1"}}, "bulk": {}})

    @provider.policy(version="1")
    def code_of_the_plan(request, tables):
        code = tables.codes["a"]["code"]
        return None if request.equals("code", code) else fix("USE", code=code)

    events = []
    with serving(ordering(provider)) as address, agent(Memory(on_event=events.append)) as client:
        statuses = []
        for number in range(8):
            statuses += [client.post(f"{address}/s", json={"plan": "a"}).status_code for _ in range(2)]
            provider.registry.reload_table("bulk", {f"{number} {row}": {} for row in range(2000)})
        assert statuses == [422] + [200] * 15
        assert [one.several for one in events if isinstance(one, LogLost)] == [False] * 7
