"""What the operator's page is served with, and what it asks: off without a token, closed before one is given."""

import re
from contextlib import closing

import pytest
from flask import Flask
from litestar import Litestar, get
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.integrations import flask, starlette
from shelflife.integrations.asgi import admin_app
from shelflife.integrations.litestar import ContractPlugin
from shelflife.integrations.wsgi import ContractMiddleware as WsgiMiddleware
from shelflife.server import BadSetting, LogError, Provider, fix
from shelflife.server.operating import views_of
from shelflife.server.page import page_of
from tests.calling import ADMIN, TOKEN, calling
from tests.integrations.serving_wsgi import calling_wsgi

ROTATION = {"table": "active_csm_codes", "set": {"plan_partner_growth": {"code": "SPRING27"}}}


@pytest.fixture(scope="module")
def served():
    provider = acme_provider(admin_token=TOKEN)
    with calling(acme_app(provider)) as client:
        yield provider, client


def test_the_page_comes_whole_from_the_server_with_a_policy_that_lets_nothing_else_in(served):
    _, client = served
    page = client.get("/admin/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for name in re.findall(r'(?:src|href)="([^"#]+)"', page.text):
        assert client.get(f"/admin/{name}").status_code == 200
    sources = [client.get(path).text for path in page_of(served[0])]
    assert not any(re.search(r"https?://(?!www\.w3\.org/2000/svg)", source) for source in sources)
    assert not re.search(r"<script>|<style|\son\w+=|style=", page.text)


def test_nothing_of_the_contract_is_told_without_the_token(served):
    provider, client = served
    for path in page_of(provider):
        assert not any(table in client.get(path).text for table in provider.state.tables)
    for path, endpoint in views_of(provider).items():
        assert client.request(endpoint.methods[0], path).status_code == 401
    feed = {"Accept": "text/event-stream"}
    assert client.get("/admin/changes", headers=feed).status_code == 401
    assert client.get("/admin/changes", headers=ADMIN).status_code == 406


def test_without_a_token_or_with_no_path_there_is_no_page():
    with calling(acme_app(acme_provider())) as client:
        assert client.get("/admin/").status_code == 404
    with calling(acme_app(acme_provider(admin_token=TOKEN, admin_page=None))) as client:
        assert client.get("/admin/").status_code == 404
        assert client.get("/admin/overview", headers=ADMIN).status_code == 200


@pytest.mark.parametrize("path", ["operator/", "/operator", "//", "/a b/"])
def test_a_path_that_is_none_is_refused(path):
    with pytest.raises(BadSetting, match="admin_page is a path that ends with a slash"):
        acme_provider(admin_page=path)


def test_the_page_can_have_another_path_be_mounted_and_be_served_alone():
    provider = acme_provider(admin_token=TOKEN, admin_page="/for/operators/")
    app = Starlette(routes=[Mount("/inside", admin_app(provider))])
    with calling(app) as client:
        page = client.get("/inside/for/operators/")
        [endpoints] = re.findall(r'data-endpoints="([^"]+)"', page.text)
        assert page.url.join(endpoints).path == "/inside/admin/"
        assert client.get("/inside/admin/overview", headers=ADMIN).is_success
    with calling(admin_app(acme_provider(admin_token=TOKEN)), lifespan="on") as client:
        assert client.get("/admin/").is_success
        assert client.get("/subscriptions").status_code == 404


def test_the_page_is_there_under_wsgi_without_a_feed():
    def app(environ, start_response):
        start_response("404 Not Found", [])
        return []

    with calling_wsgi(WsgiMiddleware(app, acme_provider(admin_token=TOKEN))) as client:
        assert client.get("/admin/").is_success
        assert client.get("/admin/overview", headers=ADMIN).json()["number"] == 0
        feed = {"Accept": "text/event-stream", **ADMIN}
        assert client.get("/admin/changes", headers=feed).status_code == 406


def flask_app(provider, own):
    app = Flask(__name__)
    flask.install(app, provider)
    if own:
        app.add_url_rule(own, view_func=lambda: "mine")
    return app


def starlette_app(provider, own):
    app = Starlette(routes=[Route(own, lambda request: PlainTextResponse("mine"))] if own else [])
    starlette.install(app, provider)
    return app


def litestar_app(provider, own):
    handlers = [get(own, media_type="text/plain", sync_to_thread=False)(mine)] if own else []
    return Litestar(handlers, plugins=[ContractPlugin(provider)])


def mine() -> str:
    return "mine"


@pytest.mark.parametrize(
    ("made", "serve"), [(flask_app, calling_wsgi), (starlette_app, calling), (litestar_app, calling)]
)
def test_the_page_is_found_without_its_last_slash_unless_the_app_has_something_there(made, serve):
    provider = acme_provider(admin_token=TOKEN, admin_page="/for/operators/")
    with serve(made(provider, None)) as client:
        told = client.get("/for/operators")
        assert (told.status_code, told.headers["location"], told.content) == (307, "operators/", b"")
        assert told.url.join(told.headers["location"]).path == "/for/operators/"
        assert client.get("/for/operators/").is_success
        assert client.get("/for").status_code == 404
    with serve(made(acme_provider(admin_token=TOKEN, admin_page="/"), None)) as client:
        assert client.get("/").is_success
    for off in (acme_provider(), acme_provider(admin_token=TOKEN, admin_page=None)):
        with serve(made(off, None)) as client:
            assert client.get("/admin").status_code == 404
    if made is not litestar_app:  # which takes the two for one, and refuses to start
        with serve(made(acme_provider(admin_token=TOKEN), "/admin")) as client:
            assert client.get("/admin").text == "mine"


def test_a_preview_says_what_a_reload_will_and_changes_nothing(served):
    provider, client = served
    before = provider.state
    preview = client.post("/admin/preview-table", json=ROTATION, headers=ADMIN).json()
    assert provider.state is before
    assert preview["rows"] == [
        {
            "key": "plan_partner_growth",
            "before": {"code": "SUMMERSALE25"},
            "after": {"code": "SPRING27"},
        }
    ]
    report = client.post("/admin/reload-table", json={**ROTATION, "by": "Ada"}, headers=ADMIN).json()
    assert report == preview["report"]
    assert report["affected_downstream"] == ["promo_eligibility:SUMMERSALE25"]
    [made, *_] = client.get("/admin/log", headers=ADMIN).json()["entries"]
    assert (made["by"], made["tables"]["active_csm_codes"]["rows"]) == ("Ada", preview["rows"])
    overview = client.get("/admin/overview", headers=ADMIN).json()
    [table] = [one for one in overview["tables"] if one["table"] == "active_csm_codes"]
    assert table["changed"] == {"number": made["number"], "at": made["at"], "by": "Ada"}


def test_whoever_gives_no_name_is_an_operator_and_code_has_none():
    provider = acme_provider(admin_token=TOKEN)
    with calling(acme_app(provider)) as client:
        assert client.post("/admin/reload-table", json=ROTATION, headers=ADMIN).is_success
        assert client.post("/admin/reload-rules", json={"rules": []}, headers=ADMIN).is_success
        provider.registry.reload_table("active_csm_codes", set={"new": {"code": "N"}})
        made = client.get("/admin/log", headers=ADMIN).json()["entries"][:3]
        assert [one["by"] for one in made] == ["", "an operator", "an operator"]


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("row?row=none:x", 404, "none"),
        ("row?row=active_csm_codes", 400, "row=table:key"),
        ("rows?table=none", 404, "none"),
        ("rows?table=active_csm_codes&to=x", 400, "there is no parameter"),
        ("log?before=x", 400, "before=number"),
        (f"log?before={'9' * 5000}", 400, "before=number"),
    ],
)
def test_what_cannot_be_shown_is_said_in_a_sentence(served, path, status, says):
    told = served[1].get(f"/admin/{path}", headers=ADMIN)
    assert told.status_code == status
    assert says in told.json()["error"]


def test_rows_come_in_parts_and_can_be_looked_for():
    rows = {f"k{number:03}": {"n": number} for number in range(250)}
    provider = acme_provider(admin_token=TOKEN)
    provider.add_table("many", rows)
    with calling(acme_app(provider)) as client:
        found, after = [], ""
        while after is not None:
            part = client.get("/admin/rows", params={"table": "many", "from": after}, headers=ADMIN).json()
            found += [one["key"] for one in part["rows"]]
            after = part["next"]
        assert found == [*rows]
        params = {"table": "many", "holding": "K24"}
        part = client.get("/admin/rows", params=params, headers=ADMIN).json()
        assert [one["key"] for one in part["rows"]] == [f"k24{digit}" for digit in range(10)]


def test_a_row_shows_what_points_to_it_and_what_it_points_to(served):
    told = served[1].get("/admin/row?row=token_funding_map:acme_pm_amex_credit", headers=ADMIN).json()
    around = {(edge["from"], edge["to"]) for edge in told["edges"]}
    here = "token_funding_map:acme_pm_amex_credit"
    assert (here, "recommended_credit_token:plan_reseller") in around
    assert ("recommended_credit_token:plan_public_sector", here) in around
    assert ("funding_type_policy:credit_only", here) in around
    assert "recommended_credit_token:plan_reseller" in told["downstream"]


def test_what_is_shown_is_of_all_workers(tmp_path):
    providers = [acme_provider(admin_token=TOKEN, log=tmp_path / "log.db") for _ in range(2)]
    with (
        closing(providers[1]),
        calling(acme_app(providers[0])) as first,
        calling(acme_app(providers[1])) as second,
    ):
        wanted = {"customer": "c", "plan": "plan_partner_growth", "amount": 5, "currency": "usd"}
        wanted["payment_method_token"] = "acme_pm_visa_credit"
        for client in (first, second, second):
            assert client.post("/subscriptions", json=wanted).status_code == 422
        for one in providers:
            one.counts.keep(now=True)
        for client in (first, second):
            policies = client.get("/admin/policies", headers=ADMIN).json()["policies"]
            refused = {one["id"]: one["refused"] for one in policies}
            assert refused["promo_must_be_the_assigned_one"] == 3
            overview = client.get("/admin/overview", headers=ADMIN).json()
            assert overview["workers"] == {"live": 2, "behind": 0}


def test_whichever_worker_is_asked_shows_the_newest_change(tmp_path):
    providers = [acme_provider(admin_token=TOKEN, log=tmp_path / "log.db") for _ in range(2)]
    with calling(acme_app(providers[0])) as client, closing(providers[1]):
        for number in range(20):
            providers[1].registry.reload_table("active_csm_codes", set={"new": {"code": f"N{number}"}})
            newest = providers[1].state.number
            log = client.get("/admin/log", headers=ADMIN).json()
            assert (log["number"], log["entries"][0]["number"]) == (newest, newest)
            providers[1].registry.reload_table("active_csm_codes", set={"new": {"code": f"M{number}"}})
            assert client.get("/admin/overview", headers=ADMIN).json()["number"] == newest + 1


def test_a_log_that_is_away_is_said_to_be_and_what_is_known_is_shown(tmp_path, monkeypatch):
    provider = acme_provider(admin_token=TOKEN, log=tmp_path / "log.db")
    with calling(acme_app(provider)) as client:
        number = client.get("/admin/overview", headers=ADMIN).json()["number"]

        def away(*_):
            raise LogError("it is away")

        with monkeypatch.context() as patched:
            patched.setattr(provider.registry._log, "read", away)
            told = client.get("/admin/overview", headers=ADMIN).json()
            assert (told["number"], told["workers"], told["is_cut_off"]) == (number, None, True)
            assert client.get("/admin/log", headers=ADMIN).json()["number"] == number
            assert client.post("/admin/preview-table", json=ROTATION, headers=ADMIN).status_code == 503


def test_what_lies_before_a_change_that_is_too_large_to_be_kept_is_still_shown(tmp_path, monkeypatch):
    for module in ("log", "sql_log"):
        monkeypatch.setattr(f"shelflife.server.{module}.MOST_ROWS", 5)
    many = {f"k{number}": {"code": "N"} for number in range(6)}
    for log in (None, tmp_path / "log.db"):
        provider = acme_provider(admin_token=TOKEN, log=log)
        with calling(acme_app(provider)) as client:
            assert client.post(
                "/admin/reload-table", json={**ROTATION, "by": "Ada"}, headers=ADMIN
            ).is_success
            reload = {"table": "active_csm_codes", "set": many, "by": "Bob"}
            assert client.post("/admin/reload-table", json=reload, headers=ADMIN).is_success
            assert provider.state.tail == ()
            changes = client.get("/admin/log", headers=ADMIN).json()["entries"]
            assert [(one["number"], one["by"]) for one in changes] == [(3, "Bob"), (2, "Ada"), (1, "")]
            assert [one["is_whole"] for one in changes] == [False] * 3
            assert [one["tables"] for one in changes[:2]] == [
                {"active_csm_codes": {"row_count": 6}},
                {"active_csm_codes": {"row_count": 1}},
            ]
            overview = client.get("/admin/overview", headers=ADMIN).json()
            [table] = [one for one in overview["tables"] if one["table"] == "active_csm_codes"]
            assert (overview["kept_from"], table["changed"]["by"]) == (1, "Bob")
            at = f'table_changed_timestamp_seconds{{table="active_csm_codes"}} {changes[0]["at"]:.17g}'
            assert at in client.get("/admin/metrics", headers=ADMIN).text
    with closing(acme_provider(log=tmp_path / "log.db")) as again:
        assert [made.by for made in again.state.made] == [
            "",
            "Ada",
            "Bob",
            *[""] * (len(again.state.made) - 3),
        ]


def test_a_fix_that_rests_on_several_rows_of_a_change_counts_once():
    provider = Provider({"codes": {"a": {"code": "A"}, "b": {"code": "B"}}}, admin_token=TOKEN)

    @provider.policy
    def both_must_be_given(request, tables):
        both = [tables.codes[key]["code"] for key in ("a", "b")]
        return None if request.equals("both", both) else fix("USE_BOTH", both=both)

    with calling(admin_app(provider)) as client:
        provider.violations({})
        change = {"table": "codes", "set": {"a": {"code": "X"}, "b": {"code": "Y"}}}
        preview = client.post("/admin/preview-table", json=change, headers=ADMIN).json()
        assert preview["fixes_resting"] == 1


def test_a_process_without_the_policies_shows_those_of_the_log(tmp_path):
    api = acme_provider(admin_token=TOKEN, log=tmp_path / "log.db")
    with closing(api):
        api.be_ready()
        tables = {name: table.rows.to_dict() for name, table in api.state.tables.items()}
        operators = Provider(tables, api.state.rules, log=tmp_path / "log.db", admin_token=TOKEN)
        with calling(admin_app(operators)) as client:
            shown = client.get("/admin/policies", headers=ADMIN).json()["policies"]
            assert {one["id"] for one in shown} == {*api.state.policies}
