"""The contract in apps of Flask and Django, whatever these do with exceptions."""

import json
import logging
from types import ModuleType

import pytest
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path as url
from flask import Blueprint, Flask, jsonify, request

from shelflife.integrations.asgi import ContractMiddleware as AsgiContractMiddleware
from shelflife.integrations.django import contract_urls
from shelflife.integrations.flask import install
from shelflife.integrations.wsgi import ContractMiddleware
from shelflife.server import Provider, Rejected, UsageError
from tests.calling import ADMIN, TOKEN, calling
from tests.integrations.checked import WANTED, provider_for
from tests.integrations.event_streams import LISTENING
from tests.integrations.serving_wsgi import calling_wsgi
from tests.integrations.wsgi_apps import django_handler, flask_with

GOOD = WANTED | {"promo": "A"}
VERSIONS = {"codes": "1"}


def contract(**options):
    return provider_for(versions=VERSIONS, **options)


def flask_app(provider, **handlers):
    app = Flask(__name__)

    @app.route("/x", methods=["GET", "POST"])
    def operation():
        provider.check(request.get_json(silent=True) or WANTED)
        return jsonify(a=1)

    return app


def everything_is_an_error(error):
    return "a page of the app's own", 500


def everything_is_fine(error):
    return {"nothing": "wrong"}, 200


@pytest.mark.parametrize("handler", [None, everything_is_an_error, everything_is_fine])
@pytest.mark.parametrize("is_testing", [False, True])
@pytest.mark.parametrize("of", ["app", "blueprint"])
def test_no_handler_of_flask_gets_a_refusal_that_is_not_for_refusals(handler, is_testing, of, caplog):
    provider = contract()
    app = Flask(__name__)
    app.testing = is_testing
    blueprint = Blueprint("orders", __name__)

    @blueprint.post("/x")
    def operation():
        provider.check(request.get_json())

    if handler is not None:
        (app if of == "app" else blueprint).register_error_handler(Exception, handler)
    app.register_blueprint(blueprint)
    install(app, provider)
    with caplog.at_level(logging.DEBUG), calling_wsgi(app) as client:
        refused = client.post("/x", json=WANTED, headers={"Accept": "application/problem+json"})
    assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json")
    assert refused.json()["table_versions"] == VERSIONS
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_handler_of_flask_that_is_for_refusals_answers_them():
    provider = contract()
    app = flask_app(provider)
    install(app, provider)
    app.register_error_handler(Rejected, lambda error: ({"mine": len(error.suggestions)}, 409))
    with calling_wsgi(app) as client:
        response = client.post("/x", json=WANTED)
    assert (response.status_code, response.json()) == (
        409,
        {"mine": 1, "table_versions": VERSIONS, "rules_version": "4f53cda18c2b"},
    )


def test_what_else_a_view_of_flask_raises_is_flasks():
    provider = contract()
    app = flask_app(provider)
    app.add_url_rule("/y", "y", lambda: 1 / 0)
    app.register_error_handler(ZeroDivisionError, lambda error: ("divided", 418))
    install(app, provider)
    with calling_wsgi(app) as client:
        assert client.get("/y").text == "divided"


def test_a_login_of_flask_holds_for_the_contract():
    provider = contract(admin_token=TOKEN)
    app = flask_app(provider)
    app.before_request(lambda: None if request.headers.get("X-Key") == "k" else ("no", 401))
    install(app, provider, fixes=["POST /x"])
    with calling_wsgi(app) as client:
        for path in ("/contract/state", "/contract/changes?from=*", "/x"):
            assert client.get(path).status_code == 401
        client.headers["X-Key"] = "k"
        assert client.get("/contract/state").json()["table_versions"] == VERSIONS
        asked = client.post("/contract/fixes", json={"operation": "POST /x", "request": WANTED})
        assert asked.json()["recovery_feedback"]["suggestions"][0]["parameters"] == {"promo": "A"}
        assert client.get("/admin/graph", headers=ADMIN).status_code == 200


def test_a_guard_of_flask_stands_before_the_contract():
    provider = contract()
    app = flask_app(provider)
    install(app, provider, login=lambda view: lambda: ("no", 403))
    with calling_wsgi(app) as client:
        assert client.get("/contract/state").status_code == 403


def test_a_policy_for_an_operation_that_flask_has_not_is_told():
    provider = provider_for("POST /ordres/{id}")
    app = flask_with(provider, "/orders/{id}")
    with pytest.raises(UsageError, match=r"no such route; is it POST /orders/\{id\}\?"):
        provider.begin_life()
    assert app


def test_an_app_of_flask_has_one_contract():
    provider = contract()
    app = flask_with(provider, "/x")
    with pytest.raises(UsageError, match="an app has one provider"):
        install(app, provider)


def test_a_path_in_a_route_of_flask_is_one_parameter():
    provider = provider_for("POST /files/{name}")
    app = Flask(__name__)

    @app.post("/files/<path:name>")
    def file(name):
        provider.check(request.get_json())
        return {}

    install(app, provider)
    with calling_wsgi(app) as client:
        assert client.post("/files/a/b", json=WANTED).status_code == 422


def django_app(kind, provider, *patterns):
    middleware = ContractMiddleware if kind is WSGIHandler else AsgiContractMiddleware
    return middleware(django_handler(kind, *contract_urls(provider), *patterns), provider)


def calling_django(kind, provider, *patterns):
    app = django_app(kind, provider, *patterns)
    return calling_wsgi(app) if kind is WSGIHandler else calling(app, lifespan="off")


@pytest.mark.parametrize("kind", [WSGIHandler, ASGIHandler])
def test_django_has_the_contract_under_wsgi_and_asgi(kind, caplog):
    provider = contract(admin_token=TOKEN)

    def order(request):
        provider.check(json.loads(request.body))
        return JsonResponse({"a": 1})

    async def patient(request):
        provider.check(json.loads(request.body))
        return JsonResponse({"a": 1})

    def streamed(request):
        provider.check(GOOD)
        return StreamingHttpResponse(iter([b'{"a":1}']), content_type="application/json")

    def broken(request):
        return HttpResponse(1 / 0)

    views = {"order": order, "patient": patient, "broken": broken} | (
        {"streamed": streamed} if kind is WSGIHandler else {}
    )
    caplog.set_level(logging.WARNING)
    with calling_django(kind, provider, *(url(name, view) for name, view in views.items())) as client:
        for path in ("/order", "/patient"):
            refused = client.post(path, json=WANTED)
            assert (refused.status_code, refused.json()["table_versions"]) == (422, VERSIONS)
            assert client.post(path, json=GOOD).json()["table_versions"] == VERSIONS
        told = [(record.levelname, record.message) for record in caplog.records]
        assert told == [("WARNING", f"Unprocessable Entity: {path}") for path in ("/order", "/patient")]
        assert client.get("/contract/state").json()["table_versions"] == VERSIONS
        assert client.post("/contract/fixes", json={"operation": "POST /order"}).status_code == 422
        assert client.get("/admin/graph", headers=ADMIN).status_code == 200
        assert client.get("/broken").status_code == 500
        if kind is WSGIHandler:
            assert "contract-tables" in client.get("/streamed").headers


@pytest.mark.parametrize("kind", [WSGIHandler, ASGIHandler])
def test_each_contract_around_django_answers_its_own_refusals(kind):
    providers = {name: provider_for(versions={"codes": name}) for name in ("outer", "inner")}

    def order(request):
        providers[request.GET["by"]].check(WANTED)

    app = django_handler(kind, url("order", order))
    middleware = ContractMiddleware if kind is WSGIHandler else AsgiContractMiddleware
    for name in ("inner", "outer"):
        app = middleware(app, providers[name])
    with calling_wsgi(app) if kind is WSGIHandler else calling(app, lifespan="off") as client:
        for name in providers:
            refused = client.get("/order", params={"by": name})
            assert (refused.status_code, refused.json()["table_versions"]) == (422, {"codes": name})


@pytest.mark.parametrize("kind", [WSGIHandler, ASGIHandler])
def test_djangos_own_site_is_where_it_was_and_the_operators_page_where_it_is_not(kind, caplog, monkeypatch):
    def site(request, **rest):
        return HttpResponse("the site of Django")

    own = (url("admin/", site), url("admin/<path:rest>", site))
    project = ModuleType("project_urls")
    project.urlpatterns = own
    monkeypatch.setattr(settings, "ROOT_URLCONF", project, raising=False)
    with calling_django(kind, Provider({"t": {}}, admin_token="secret"), *own) as client:
        assert client.get("/admin/").text == "the site of Django"
        assert client.get("/admin/page.css").text == "the site of Django"
        assert client.get("/admin/clients").status_code == 401  # the operator's endpoints stay
    assert 'Provider(admin_page="/operators/")' in caplog.text
    elsewhere = Provider({"t": {}}, admin_token="secret", admin_page="/operators/")
    with calling_django(kind, elsewhere, *own) as client:
        assert client.get("/admin/").text == "the site of Django"
        assert "<title>" in client.get("/operators/").text
    without = ModuleType("other_urls")
    without.urlpatterns = [url("shop/", site)]
    plain = Provider({"t": {}}, admin_token="secret")
    monkeypatch.setattr(settings, "ROOT_URLCONF", without)
    with calling_django(kind, plain) as client:
        assert "<title>" in client.get("/admin/").text  # a project without that site


def test_under_asgi_django_has_the_feed():
    provider = contract()
    with (
        calling_django(ASGIHandler, provider) as client,
        client.stream("GET", "/contract/changes", headers=LISTENING) as feed,
    ):
        assert feed.headers["content-type"].startswith("text/event-stream")
        assert next(feed.iter_lines()).startswith(("event", "id"))


def test_a_view_of_django_that_is_not_under_the_contract_is_djangos_own():
    def broken(request):
        raise Rejected([], Provider({}).state)

    with calling_wsgi(django_handler(WSGIHandler, url("broken", broken))) as client:
        assert client.get("/broken").status_code == 500


def test_a_policy_that_fails_is_a_500_that_leaks_nothing(caplog):
    provider = Provider({"t": {}})
    provider.policy(lambda request, tables: 1 / 0)
    app = flask_app(provider)
    install(app, provider)
    with calling_wsgi(app) as client:
        assert client.get("/x").json() == {"success": False, "error": "internal server error"}
    assert "division by zero" in caplog.text
