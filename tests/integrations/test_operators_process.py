"""A process that operators look at: it follows the log however it is served, and has no say in what clients are told."""

import json
from contextlib import closing

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.contract.positions import AT_HEADER
from shelflife.integrations.asgi import admin_app, contract_app
from shelflife.integrations.wsgi import ContractMiddleware as WsgiMiddleware
from shelflife.server import Provider, fix
from tests.calling import ADMIN, TOKEN, calling
from tests.integrations.serving_wsgi import calling_wsgi
from tests.processes import wait_until

FEED = {"Accept": "text/event-stream", **ADMIN}
CODES = {"codes": {"growth": {"code": "SUMMER25"}}}


def overview(client, root=""):
    return client.get(f"{root}/admin/overview", headers=ADMIN).json()


def no_app(environ, start_response):
    start_response("404 Not Found", [])
    return []


def test_a_process_for_operators_alone_leaves_the_policies_of_the_api_as_they_are(tmp_path):
    log = tmp_path / "log.db"
    api = Provider(CODES, log=log, admin_token=TOKEN)

    @api.policy
    def code_must_be_given(request, tables):
        return None if request.get("code") else fix("USE_CODE", code=tables.codes["growth"]["code"])

    with calling(Starlette(routes=[Mount("/contract", contract_app(api))])) as client:
        api.be_ready()
        policies = api.state.policies
        assert policies
        operators = Provider(CODES, log=log, admin_token=TOKEN)
        with calling(admin_app(operators), lifespan="on") as page:
            assert operators.registry.is_followed
            api.registry.catch_up()
            assert api.state.policies == policies
            position = str(api.face(api.state, {}).position)
            asked = client.get("/contract/changes", params={"from": position}, headers={AT_HEADER: position})
            assert asked.status_code == 200
            with page.stream("GET", "/admin/changes", headers=FEED) as feed:
                assert feed.status_code == 200
            assert overview(page)["workers"] == {"live": 2, "behind": 0}
        wait_until(lambda: api.registry.workers().live == 1)
    api.close()


def mounted(provider):
    return calling(Starlette(routes=[Mount("/inside", admin_app(provider))])), "/inside"


def without_a_lifespan(provider):
    return calling(acme_app(provider), lifespan="off"), ""


def under_wsgi(provider):
    return calling_wsgi(WsgiMiddleware(no_app, provider)), ""


@pytest.mark.parametrize("served", [mounted, without_a_lifespan, under_wsgi])
def test_whoever_shows_the_page_follows_the_log_from_the_first_look_on(served, tmp_path):
    provider, other = (acme_provider(admin_token=TOKEN, log=tmp_path / "log.db") for _ in range(2))
    client, root = served(provider)
    with closing(provider), closing(other), client as client:
        assert overview(client, root)["workers"] == {"live": 1, "behind": 0}
        other.registry.reload_table("active_csm_codes", set={"new": {"code": "N"}})
        wait_until(lambda: provider.registry.state.number == other.state.number)
        assert overview(client, root)["number"] == other.state.number


def events_of(feed):
    return (json.loads(line.removeprefix("data: ")) for line in feed.iter_lines() if line.startswith("data:"))


def test_an_operator_hears_of_changes_whatever_clients_may_be_told(tmp_path):
    provider = acme_provider(admin_token=TOKEN, log=tmp_path / "log.db")
    with calling(acme_app(provider)) as client:
        provider.registry.declare_policies({"of another deploy": "f"})
        assert not provider.speaks_for(provider.state)
        with client.stream("GET", "/admin/changes", headers=FEED) as feed:
            heard = events_of(feed)
            number = provider.state.number
            assert next(heard) == {"number": number, "is_cut_off": False}
            provider.registry.reload_table("active_csm_codes", set={"new": {"code": "N"}})
            assert next(heard) == {"number": number + 1, "is_cut_off": False}


def test_an_operator_whom_the_feed_has_no_room_for_is_asked_to_come_again(monkeypatch):
    monkeypatch.setattr("shelflife.server.feed._MOST_LISTENERS", 0)
    with calling(acme_app(acme_provider(admin_token=TOKEN))) as client:
        refused = client.get("/admin/changes", headers=FEED)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")


def test_an_operator_hears_of_changes_from_an_app_that_is_mounted_below_the_contract():
    provider = acme_provider(admin_token=TOKEN)
    app = acme_app(provider)
    app.mount("/inside", admin_app(provider))
    with (
        calling(app) as client,
        client.stream("GET", "/inside/admin/changes", headers=FEED) as feed,
    ):
        assert feed.status_code == 200
        assert next(events_of(feed)) == {"number": provider.state.number, "is_cut_off": False}
