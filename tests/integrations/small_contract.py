"""A contract of two tables and one rule, in an app that has nothing else."""

from starlette.applications import Starlette

from shelflife.contract import Rule
from shelflife.integrations.starlette import install
from shelflife.server import Provider, ReloadLimits
from tests.calling import TOKEN

TIE = Rule(from_table="codes", to_table="promos", relation="needs", via="code")
TABLES = {"codes": {"growth": {"code": "SUMMER"}}, "promos": {"SUMMER": {}, "WINTER": {}}}


def contract(**options):
    settings = {
        "admin_token": TOKEN,
        "versions": dict.fromkeys(TABLES, "1.0.0"),
        "limits": ReloadLimits(most_bytes=100_000),
    }
    return Provider(TABLES, [TIE], **(settings | options))


def app_of(provider):
    app = Starlette()
    install(app, provider)
    return app


def reload(client, **body):
    """What comes of a reload over HTTP."""
    return client.post("/admin/reload-table", json=body)
