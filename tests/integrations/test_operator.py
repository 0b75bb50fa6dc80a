"""What an operator asks a running API, over real HTTP: by the admin endpoints, and by `shelflife table`."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi import Depends, FastAPI, HTTPException
from starlette.responses import JSONResponse, PlainTextResponse

from shelflife.cli import main
from shelflife.contract.messages import Workers
from shelflife.integrations.fastapi import install
from shelflife.server import LogError, Provider, ReloadLimits, fix
from shelflife.testing import serving
from tests.calling import ADMIN, TOKEN, calling


class Shop:
    """An API that nobody may use, whose table can be read again."""

    def __init__(self):
        self.rows = {"growth": {"code": "A"}}
        self.provider = Provider(
            {"codes": self.read, "fixed": {}}, admin_token=TOKEN, limits=ReloadLimits(per_minute=3)
        )

        @self.provider.policy
        def code_of_the_plan(request, tables):
            row = tables.codes.get(request.get("plan"))
            return fix("USE", promo=row["code"]) if row and not request.equals("promo", row["code"]) else None

        def nobody():
            raise HTTPException(401)

        self.app = FastAPI(dependencies=[Depends(nobody)])
        install(self.app, self.provider)

    def read(self):
        return self.read_now()

    def read_now(self):
        if self.rows is None:
            raise OSError("no route to the database")
        return self.rows


@pytest.fixture
def shop():
    return Shop()


@pytest.fixture
def client(shop):
    with calling(shop.app, headers=ADMIN) as client:
        yield client


def refresh(client, **body):
    return client.post("/admin/refresh-table", json=body)


@pytest.mark.spec("7.15")
def test_a_table_is_read_again(shop, client):
    shop.rows = {"growth": {"code": "B"}, "team": {"code": "C"}}
    report = refresh(client, table="codes", version="2").json()
    assert (report["new_version"], report["added"], report["changed"]) == ("2", ["team"], ["growth"])
    assert shop.provider.registry.rows("codes") == shop.rows
    assert refresh(client, table="codes").json()["changed"] == []


@pytest.mark.spec("7.15")
@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({"table": "none"}, 404, "there is no table called 'none'"),
        ({"table": "fixed"}, 422, "the table fixed was not given as a source that can be read again"),
        ({}, 422, "the body does not fit: Object missing required field `table`"),
        ({"table": "codes", "rows": {}}, 422, "the body does not fit: Object contains unknown field `rows`"),
        (
            {"table": "codes", "version": "~aaaaaaaaaaaa"},
            422,
            "'~aaaaaaaaaaaa' cannot be chosen as a version",
        ),
    ],
)
def test_a_refresh_that_is_wrong_is_refused_in_one_sentence(shop, client, body, status, sentence):
    before = shop.provider.state
    refused = refresh(client, **body)
    assert refused.status_code == status
    assert sentence in refused.json()["error"]
    assert shop.provider.state is before


def test_calls_that_wait_for_a_slow_source_do_not_pile_up(shop, client):
    """They would take all threads that the contract's endpoints have."""
    begun, goes_on = threading.Event(), threading.Event()

    def slow():
        begun.set()
        goes_on.wait(60)
        return {"growth": {"code": "B"}}

    shop.read_now = slow
    with ThreadPoolExecutor(1) as elsewhere:
        first = elsewhere.submit(refresh, client, table="codes")
        assert begun.wait(60)
        others = [refresh(client, table="codes") for _ in range(40)]
        state = client.get("/admin/graph")
        goes_on.set()
        assert first.result().json()["changed"] == ["growth"]
    assert {(one.status_code, one.json()["error"]) for one in others} == {
        (503, "the table 'codes' is being read already; try again later")
    }
    assert state.status_code == 200
    assert refresh(client, table="codes").status_code == 200


@pytest.mark.spec("7.15")
def test_a_source_that_fails_is_told_to_the_operator(shop, client):
    shop.rows = None
    refused = refresh(client, table="codes")
    assert (refused.status_code, refused.json()["error"]) == (
        502,
        "the source of table codes failed: OSError: no route to the database",
    )
    shop.rows = {"growth": "no row"}
    assert refresh(client, table="codes").status_code == 422


@pytest.mark.spec("7.13", "7.15")
def test_refreshes_count_as_reloads_when_they_change_something(shop, client):
    for number in range(3):
        assert refresh(client, table="codes").status_code == 200
        shop.rows = {"growth": {"code": f"{number}"}}
        assert refresh(client, table="codes").json()["changed"] == ["growth"]
    assert refresh(client, table="codes").status_code == 429


@pytest.mark.spec("8.3")
def test_what_rests_on_a_row_is_told(shop, client):
    shop.provider.violations({"plan": "growth"})
    told = client.get("/admin/resting", params={"row": "codes:growth"}).json()
    [policy] = told.pop("policies").values()
    assert (told, policy) == ({"row": "codes:growth", "fixes": 1}, {"fixes": 1, "columns": ["code"]})
    assert client.get("/admin/resting", params={"row": "codes"}).json()["fixes"] == 1
    assert client.get("/admin/resting", params={"row": "codes:none:such"}).json()["policies"] == {}
    for query, status in (("", 400), ("row=", 400), ("row=codes:", 400), ("row=none:x", 404), ("x=1", 400)):
        assert client.get(f"/admin/resting?{query}").status_code == status


@pytest.mark.spec("10.1")
@pytest.mark.parametrize("token", [None, "", "Bearer wrong", f"Basic {TOKEN}"])
def test_without_the_token_nothing_is_refreshed_or_told(shop, token):
    shop.rows = {}
    headers = {} if token is None else {"Authorization": token}
    with calling(shop.app, headers=headers) as client:
        assert refresh(client, table="codes").status_code == 401
        assert client.get("/admin/resting?row=codes:growth").status_code == 401
    assert shop.provider.registry.rows("codes") != {}


@pytest.mark.spec("10.2")
def test_without_a_configured_token_the_app_answers():
    provider = Provider({"codes": dict}, admin_token=None)
    app = FastAPI()
    install(app, provider)
    with calling(app, headers=ADMIN) as client:
        assert refresh(client, table="codes").status_code == 404
        assert client.get("/admin/resting?row=codes").status_code == 404


@pytest.fixture
def command(shop, capsys, monkeypatch):
    """Runs `shelflife table`, and gives its status and what it has printed."""
    monkeypatch.setenv("SHELFLIFE_ADMIN_TOKEN", TOKEN)
    with serving(shop.app) as address:

        def command(verb, *arguments, at=address):
            status = main(["table", verb, at, *arguments])
            out, err = capsys.readouterr()
            return status, out + err

        yield command


def test_the_command_says_when_there_is_no_such_row(shop, command):
    assert command("resting", "codes:nowhere") == (
        1,
        "shelflife: there is no row codes:nowhere, and no fix that was given of late rests on that\n",
    )
    assert command("resting", "codes") == (0, "No fix that was given of late rests on codes.\n")
    status, told = command("resting", "growth")
    assert status == 1
    assert told.endswith("there is no table called 'growth'; for a row, write TABLE:KEY\n")


def test_the_command_tells_what_rests_on_a_row(shop, command):
    assert command("resting", "codes:growth") == (
        0,
        "No fix that was given of late rests on codes:growth.\n",
    )
    shop.provider.violations({"plan": "growth"})
    status, told = command("resting", "codes:growth")
    assert status == 0
    assert "code_of_the_plan" in told
    assert told.splitlines()[1].endswith("  1      code")
    assert told.endswith("Fixes in all: 1.\n")
    assert json.loads(command("resting", "codes:growth", "--json")[1])["fixes"] == 1


def test_the_command_has_a_table_read_again(shop, command):
    assert command("refresh", "codes") == (0, "codes has not changed.\n")
    shop.rows = {"team": {"code": "C"}}
    status, told = command("refresh", "codes")
    assert (status, told.endswith(": 1 added, 1 removed, 0 changed.\n")) == (0, True)
    assert json.loads(command("refresh", "codes", "--json")[1])["added"] == []


@pytest.mark.parametrize(
    ("workers", "status", "told"),
    [
        (lambda wait_s: Workers(live=4, behind=0), 0, "All workers have it (4)."),
        (lambda wait_s: Workers(live=4, behind=1), 1, "shelflife: 1 of 4 workers do not have it yet"),
        (lambda wait_s: lost(), 1, "shelflife: whether all workers have it could not be found out"),
    ],
)
def test_the_command_waits_for_all_workers_where_it_is_told_to(
    shop, command, monkeypatch, workers, status, told
):
    monkeypatch.setattr(shop.provider.registry, "workers", workers)
    assert command("refresh", "codes", "--wait", "5") == (status, f"codes has not changed.\n{told}\n")


def lost():
    raise LogError("the log is gone")


def test_the_command_fails_in_one_sentence(shop, command, monkeypatch):
    assert command("refresh", "none") == (
        1,
        "shelflife: the API refuses: there is no table called 'none'\n",
    )
    wrong = command("refresh", "codes", "--admin-token", "wrong")
    assert wrong == (1, "shelflife: the API refuses: this is not the admin token\n")
    away = command("refresh", "codes", at="http://127.0.0.1:1")
    assert away == (1, "shelflife: http://127.0.0.1:1 cannot be reached: Connection refused\n")
    assert "is no address" in command("refresh", "codes", at="ftp://x")[1]
    monkeypatch.delenv("SHELFLIFE_ADMIN_TOKEN")
    assert "give the admin token" in command("refresh", "codes")[1]


@pytest.mark.parametrize("answer", [PlainTextResponse("?", 404), JSONResponse({"detail": "Not Found"}, 404)])
def test_the_command_says_so_where_no_contract_lives(command, answer):
    with serving(answer) as address:
        assert command("refresh", "codes", at=f"{address}/api") == (
            1,
            f"shelflife: {address}/api has no admin endpoints: its contract lives elsewhere, or has no admin token\n",
        )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, "this endpoint needs the admin token as bearer token"),
        ("Bearer", "this endpoint needs the admin token as bearer token"),
        (f"Basic {TOKEN}", "this endpoint needs the admin token as bearer token"),
        ("Bearer wrong", "this is not the admin token"),
    ],
)
def test_no_token_and_a_wrong_one_are_told_apart(shop, given, told):
    with calling(shop.app, headers={} if given is None else {"Authorization": given}) as client:
        assert client.get("/admin/graph").json()["error"] == told


def test_the_command_takes_its_token_nowhere_else(command):
    app = FastAPI()
    heard = []

    @app.get("/admin/resting", status_code=302)
    def moved() -> None:
        raise HTTPException(302, headers={"location": "/elsewhere"})

    @app.get("/elsewhere")
    def elsewhere() -> None:
        heard.append("called")

    with serving(app) as address:
        status, _ = command("resting", "codes:growth", at=address)
    assert (status, heard) == (1, [])
