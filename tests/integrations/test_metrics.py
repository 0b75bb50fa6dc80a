"""What Prometheus scrapes from a running API, read by Prometheus' own parser."""

from contextlib import closing
from functools import partial

import httpx2
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from shelflife.apis.acme import ROTATED_CODES, acme_app, acme_provider
from shelflife.apis.acme.app import EXAMPLE
from shelflife.client import Guard, Memory
from shelflife.contract.preconditions import PRECONDITION_HEADER, Precondition
from shelflife.integrations.fastapi import install
from shelflife.integrations.httpx2 import MemoryTransport
from shelflife.server import Disclosure, LogError, Provider, fix
from shelflife.server.counting import _MOST_TYPES
from shelflife.server.metrics import METRICS
from tests.calling import ADMIN, TOKEN, calling
from tests.integrations.scraping import PATH, order, scraped
from tests.processes import wait_until
from tests.server.shop_workers import ADMIN as SHOP_ADMIN
from tests.server.shop_workers import shop_workers

PROMO = "promo_must_be_the_assigned_one"


@pytest.fixture
def provider():
    return acme_provider(admin_token=TOKEN)


@pytest.fixture
def client(provider):
    with calling(acme_app(provider)) as client:
        yield client


def test_what_becomes_of_requests_is_counted(client):
    assert [order(client), order(client, promo_code="SUMMERSALE25"), order(client)] == [422, 201, 422]
    told = scraped(client)
    assert (told("checks_total", result="passed"), told("checks_total", result="refused")) == (1, 2)
    assert told("fixes_total", policy=PROMO, type="USE_REQUIRED_PROMO", given="refusal") == 2
    assert told("stamped_responses_total") == 3
    assert told("checks_total", result="failed") == told("withheld_answers_total", why="log") == 0


def test_what_is_asked_for_is_told_apart_from_what_is_refused(client):
    asked = {"operation": "POST /subscriptions", "request": EXAMPLE}
    assert client.post("/contract/fixes", json=asked).status_code == 200
    told = scraped(client)
    assert told("fixes_total", policy=PROMO, type="USE_REQUIRED_PROMO", given="question") == 1
    assert told("checks_total", result="refused") == 0
    assert told("endpoint_calls_total", endpoint="/contract/fixes", status="2xx") == 1


def test_changes_are_counted_by_table_and_kind(client, provider):
    before = scraped(client)
    reload = {"table": "active_csm_codes", "set": {**ROTATED_CODES, "plan_new": {"code": "NEW"}}}
    assert client.post("/admin/reload-table", json=reload, headers=ADMIN).status_code == 200
    assert (
        client.post("/admin/reload-table", json={"table": "none", "set": {}}, headers=ADMIN).status_code > 400
    )
    told = scraped(client)
    rows = {
        how: told("changed_rows_total", table="active_csm_codes", change=how)
        for how in ("added", "removed", "changed")
    }
    assert rows == {"added": 1, "removed": 0, "changed": 1}
    assert told("changes_total", what="tables") - before("changes_total", what="tables") == 1
    assert told("log_position") - before("log_position") == 1
    assert told("table_rows", table="active_csm_codes") == before("table_rows", table="active_csm_codes") + 1
    [*_, last] = provider.state.tail
    assert told("table_changed_timestamp_seconds", table="active_csm_codes") == last.at
    assert told("table_changed_timestamp_seconds", table="promo_eligibility") is None
    assert told("endpoint_calls_total", endpoint="/admin/reload-table", status="2xx") == 1
    assert told("endpoint_calls_total", endpoint="/admin/reload-table", status="4xx") == 1


def test_preconditions_are_counted_by_their_verdict(client, provider):
    with httpx2.Client(
        transport=MemoryTransport(Memory(), guard=Guard(), conditional=True), trust_env=False
    ) as agent:
        ask = lambda: agent.post(f"{client.base_url}/subscriptions", json=EXAMPLE).status_code  # noqa: E731
        assert [ask(), ask()] == [422, 201]
        provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES)
        assert ask() == 201
    told = scraped(client)
    verdicts = {one: told("preconditions_total", verdict=one) for one in ("met", "failed", "unjudged")}
    assert verdicts == {"met": 2, "failed": 1, "unjudged": 0}, verdicts
    assert told("checks_total", result="stale") == 1
    assert told("fixes_total", policy=PROMO, type="USE_REQUIRED_PROMO", given="stale") == 1


def test_a_precondition_that_nobody_judges_is_counted():
    app, provider = FastAPI(), Provider({"codes": {}}, admin_token=TOKEN)

    @app.post("/orders")
    def order(wanted: dict[str, str]) -> dict[str, str]:
        return wanted

    install(app, provider)
    with calling(app) as client:
        position = str(provider.face(provider.state, {}).position)
        said = {PRECONDITION_HEADER: Precondition(at=position).header}
        answer = client.post("/orders", json={}, headers=said)
        assert answer.status_code == 200, answer.text
        assert scraped(client)("preconditions_total", verdict="unjudged") == 1


def test_listeners_of_the_feed_and_what_they_are_told_are_counted(client, provider):
    with client.stream("GET", "/contract/changes", headers={"Accept": "text/event-stream"}) as feed:
        heard = feed.iter_lines()
        assert next(heard).startswith("id:") or next(heard)
        assert scraped(client)("feed_listeners") == 1
        provider.registry.reload_table("active_csm_codes", set=ROTATED_CODES)
        while not next(heard).startswith("event: moved"):
            pass
    wait_until(lambda: scraped(client)("feed_listeners") == 0)
    assert scraped(client)("feed_events_total") >= 1


def test_clients_are_counted_by_their_verdict(client):
    for _ in range(22):
        order(client, headers={"X-API-Key": "forgetful"})
    order(client, headers={"X-API-Key": "new"})
    told = scraped(client)
    assert told("clients", verdict="does not remember") == told("clients", verdict="not enough seen") == 1
    assert told("clients", verdict="remembers and follows") == 0
    assert told("client_tasks", outcome="other") > 0


def test_without_scoring_there_is_nothing_of_clients_and_refusals_are_counted_all_the_same():
    with calling(acme_app(acme_provider(admin_token=TOKEN, scoring=None))) as client:
        order(client)
        told = scraped(client)
        assert not {"shelflife_clients", "shelflife_client_tasks"} & told.names
        assert told("checks_total", result="refused") == 1
        policies = client.get("/admin/policies", headers=ADMIN).json()["policies"]
        [promo] = [one for one in policies if one["id"] == PROMO]
        assert (promo["refused"], promo["fixes"]["USE_REQUIRED_PROMO"]["count"]) == (1, 1)


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
def test_metrics_need_the_token(client, headers):
    answer = client.get(PATH, headers=headers)
    assert answer.status_code == 401
    assert "shelflife_" not in answer.text
    assert scraped(client)("endpoint_calls_total", endpoint=PATH, status="4xx") == 1


def test_without_an_admin_token_there_are_no_metrics():
    with calling(acme_app(acme_provider())) as client:
        assert client.get(PATH, headers=ADMIN).status_code == 404


def test_all_that_is_told_is_in_the_catalogue_and_all_of_that_is_told(client):
    order(client)
    client.post(
        "/admin/reload-table", json={"table": "active_csm_codes", "set": ROTATED_CODES}, headers=ADMIN
    )
    client.get("/contract/state")
    assert scraped(client).names == {one.full_name for one in METRICS}


def test_what_a_release_with_other_labels_has_counted_is_left_out(client, provider):
    provider.counts.count("checks", "passed", "by somebody", by=3)
    told = scraped(client)
    assert told("checks_total", result="passed") == 0


ODD = 'odd "table"\\with\nlines'


def test_odd_names_come_through_as_they_are():
    provider = Provider({"codes": {"a": {"code": "A"}}}, admin_token=TOKEN)
    provider.counts.count("changed_rows", ODD, "added", by=3)
    app = FastAPI()
    install(app, provider)
    with calling(app) as client:
        assert scraped(client)("changed_rows_total", table=ODD, change="added") == 3


def test_nothing_of_a_request_is_in_the_labels_and_their_number_is_bounded():
    app, provider = FastAPI(), Provider({"codes": {"a": {"code": "A"}}}, admin_token=TOKEN)

    @provider.policy
    def types_that_are_made_up(request, tables):
        return fix(f"USE_{request['number']}", code=tables.codes["a"]["code"])

    @app.post("/orders")
    def order(wanted: dict[str, int]) -> None:
        provider.check(wanted)

    install(app, provider)
    with calling(app) as client:
        for number in range(_MOST_TYPES + 20):
            client.post("/orders", json={"number": number})
            client.get(f"/admin/none/{number}")
        told = scraped(client)
        counts = {
            dict(one)["type"]: count for (name, one), count in told.items() if name == "shelflife_fixes_total"
        }
        assert (len(counts), counts["other"]) == (_MOST_TYPES + 1, 20)
        assert not [labels for name, labels in told if name == "shelflife_endpoint_calls_total"]


def test_names_are_the_operators_own_where_clients_are_shown_aliases():
    provider = acme_provider(admin_token=TOKEN, disclosure=Disclosure(secret="0123456789abcdef"))
    with calling(acme_app(provider)) as client:
        order(client)
        assert scraped(client)("fixes_total", policy=PROMO, type="USE_REQUIRED_PROMO", given="refusal") == 1


def test_counts_are_left_out_while_the_file_of_the_log_is_gone_and_go_on_when_it_is_back(tmp_path):
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    provider = acme_provider(admin_token=TOKEN, log=home / "log.db")
    with closing(provider), calling(acme_app(provider)) as client:
        assert [order(client) for _ in range(5)] == [422] * 5
        assert scraped(client)("checks_total", result="refused") == 5
        home.rename(away)
        home.mkdir()
        told = scraped(client)
        assert told("log_reachable") == 0
        assert not {name for name in told.names if name.endswith("_total")}
        assert order(client) == 422
        assert scraped(client)("checks_total", result="refused") is None
        assert not [*home.iterdir()]
        home.rmdir()
        away.rename(home)
        wait_until(lambda: scraped(client)("log_reachable") == 1)
        assert scraped(client)("checks_total", result="refused") == 6


def test_while_the_log_is_out_of_reach_no_count_is_told_that_could_go_back(tmp_path, monkeypatch):
    provider = acme_provider(admin_token=TOKEN, log=tmp_path / "log.db")
    with calling(acme_app(provider)) as client:
        order(client)
        assert scraped(client)("log_reachable") == 1

        def lost(*given):
            raise LogError("the disk is gone")

        with monkeypatch.context() as patched:
            patched.setattr(provider.registry._log, "counted", lost)
            told = scraped(client)
            assert told("log_reachable") == 0
            assert not [name for name in told.names if name.endswith("_total")]
            assert {"shelflife_log_position", "shelflife_log_unreached_seconds"} <= told.names
        assert scraped(client)("checks_total", result="refused") == 1


def test_counts_are_of_all_workers_and_survive_a_restart(tmp_path):
    log = tmp_path / "log.db"
    with calling(acme_app(acme_provider(admin_token=TOKEN, log=log))) as first:
        with calling(acme_app(acme_provider(admin_token=TOKEN, log=log))) as second:
            for client in (first, second, second):
                order(client)
            wait_until(lambda: scraped(first)("checks_total", result="refused") == 3)
            assert scraped(second)("checks_total", result="refused") == 3
            assert scraped(second)("workers", state="current") == 2
        order(first)
        assert scraped(first)("checks_total", result="refused") == 4
    with closing(acme_provider(admin_token=TOKEN, log=log)) as again, calling(acme_app(again)) as client:
        assert scraped(client)("checks_total", result="refused") == 4


def test_no_count_goes_back_whichever_of_four_processes_is_asked_and_whichever_is_killed(tmp_path, nursery):
    def refused(worker):
        text = worker.client.get(PATH, headers=SHOP_ADMIN).text
        families = {one.name: one for one in text_string_to_metric_families(text)}
        return sum(
            one.value for one in families["shelflife_checks"].samples if one.labels["result"] == "refused"
        )

    def all_are_counted(worker, sent):
        return refused(worker) == sent

    with shop_workers(nursery, tmp_path / "log.db") as start:
        workers = start(*["old"] * 4)
        seen, sent = [], 0
        for count in (1, 2, 3):
            for worker in workers:
                for _ in range(count):
                    worker.refusal()
                seen += [refused(one) for one in workers]
            sent += count * len(workers)
            wait_until(partial(all_are_counted, workers[0], sent))
            workers[-1].kill()
            [workers[-1]] = start("old")
            seen += [refused(one) for one in workers]
        assert seen == sorted(seen)
        assert seen[-1] == sent
