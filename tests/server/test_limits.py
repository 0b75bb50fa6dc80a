"""A bound on reloads."""

import msgspec
import pytest

from shelflife.apis.acme import ROTATED_CODES, acme_app, acme_provider
from shelflife.server import ReloadLimits, UsageError
from shelflife.server.admin import AdminEndpoints
from shelflife.server.endpoints import EndpointCall
from shelflife.server.limits import ReloadBudget
from tests.calling import ADMIN, TOKEN, calling


def test_a_burst_is_allowed_and_then_it_trickles():
    now = [0.0]
    limit = ReloadBudget(3, clock=lambda: now[0])
    assert [limit.wait_s() for _ in range(3)] == [0, 0, 0]
    assert limit.wait_s() == pytest.approx(20)
    now[0] = 19.0
    assert limit.wait_s() == pytest.approx(1)
    now[0] = 20.0
    assert limit.wait_s() == 0
    assert limit.wait_s() == pytest.approx(20)
    now[0] = 1000.0
    assert [limit.wait_s() == 0 for _ in range(4)] == [True, True, True, False]


def test_no_reload_at_all_is_no_limit():
    with pytest.raises(UsageError, match="at least one reload a minute"):
        ReloadLimits(per_minute=0)


@pytest.mark.spec("7.13")
def test_one_reload_too_many_is_refused_and_changes_nothing():
    provider = acme_provider(admin_token=TOKEN, limits=ReloadLimits(per_minute=2))
    with calling(acme_app(provider), headers=ADMIN) as client:

        def reload(**change):
            return client.post("/admin/reload-table", json={"table": "active_csm_codes", **change})

        for _ in range(5):
            assert reload(set={}).status_code == 200, "what changes nothing does not count"
        assert reload(set=ROTATED_CODES).status_code == 200
        assert reload(set={}, version="5").status_code == 200
        before = provider.state.table_versions
        refused = reload(set={}, version="6")
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 30
        assert refused.json()["error"].startswith("there were too many reloads; try again in ")
        rules = {"add": [{"from": "active_csm_codes", "to": "promo_eligibility", "relation": "r"}]}
        assert client.post("/admin/reload-rules", json=rules).status_code == 429
        assert provider.state.table_versions == before
    provider.registry.reload_table("active_csm_codes", set={}, version="6")


@pytest.mark.spec("7.13")
def test_a_reload_that_changes_nothing_does_not_count_though_another_worker_has_changed_something(tmp_path):
    limits = ReloadLimits(per_minute=1)
    one, other = (acme_provider(admin_token=TOKEN, log=tmp_path / "log.db", limits=limits) for _ in range(2))
    other.registry.reload_table("active_csm_codes", set=ROTATED_CODES)
    before = one.registry.state
    endpoints = AdminEndpoints(one)

    def reload(path, **change):
        return endpoints.answer(EndpointCall("POST", path, "", {}, msgspec.json.encode(change)))

    table = "active_csm_codes"
    assert reload("/admin/reload-table", table=table, set=ROTATED_CODES).status == 200
    assert one.registry.state is not before, "it has taken in what the other has changed"
    other.registry.reload_table(table, set={}, version="7")
    assert reload("/admin/reload-rules", rules=[*one.registry.state.rules]).status == 200
    other.registry.reload_table(table, set={}, version="8")
    assert reload("/admin/reload-table", table="no_such_table", set={}).status == 404
    other.registry.reload_table(table, set={}, version="9")
    assert reload("/admin/reload-table", table=table, set={}, version="10").status == 200
    assert reload("/admin/reload-table", table=table, set={}, version="11").status == 429
    one.close()
    other.close()
