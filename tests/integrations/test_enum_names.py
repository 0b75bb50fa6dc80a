"""Policies that name tables, rows, columns and relations by an enum: a fix goes when what it rests on moves."""

import enum

import httpx2
import pytest
from fastapi import FastAPI

from shelflife.client import Guard, Memory
from shelflife.contract import Rule
from shelflife.integrations.fastapi import install
from shelflife.integrations.httpx2 import MemoryTransport
from shelflife.server import Provider, fix
from shelflife.testing import serving

NEEDS = Rule(from_table="codes", to_table="promos", relation="needs", via="code")


class Name(str, enum.Enum):  # noqa: UP042 - the usual way to write it with FastAPI and pydantic
    CODES = "codes"
    PROMOS = "promos"
    GROWTH = "growth"
    CODE = "code"
    NEEDS = "needs"


def by_row(tables):
    return tables.codes[Name.GROWTH]["code"]


def by_table(tables):
    return tables[Name.CODES]["growth"][Name.CODE]


def by_relation(tables):
    return tables.codes["growth"].follow(Name.NEEDS)["name"]


def by_rule(tables):
    is_tied = tables.has_rule(Name.CODES, Name.NEEDS)
    return tables.promos["SUMMER" if is_tied else "WINTER"]["name"]


def rotate(provider):
    provider.registry.reload_table("codes", set={"growth": {"code": "WINTER"}})


def untie(provider):
    provider.registry.reload_rules(remove=[NEEDS])


@pytest.mark.parametrize(
    ("code_of", "move"), [(by_row, rotate), (by_table, rotate), (by_relation, rotate), (by_rule, untie)]
)
@pytest.mark.parametrize("compact", [True, False])
def test_a_fix_that_was_found_by_an_enum_goes_when_its_cell_or_rule_does(code_of, move, compact):
    promos = {"SUMMER": {"name": "SUMMER"}, "WINTER": {"name": "WINTER"}}
    provider = Provider({"codes": {"growth": {"code": "SUMMER"}}, "promos": promos}, [NEEDS])

    @provider.policy
    def promo_is_the_assigned_one(request, tables):
        if not request.equals("plan", "growth"):
            return None
        code = code_of(tables)
        return None if request.equals("promo", code) else fix("USE", promo=code)

    app = FastAPI()
    install(app, provider)

    @app.post("/s")
    def subscribe(wanted: dict) -> dict:
        provider.check(wanted)
        return {"got": wanted}

    with serving(app) as address:
        transport = MemoryTransport(Memory(), httpx2.HTTPTransport(), guard=Guard(), compact=compact)
        with httpx2.Client(base_url=address, transport=transport) as client:
            assert client.post("/s", json={"plan": "growth"}).status_code == 422
            assert client.post("/s", json={"plan": "growth"}).json()["got"]["promo"] == "SUMMER"
            move(provider)
            assert client.post("/s", json={"plan": "other"}).status_code == 200
            answers = [client.post("/s", json={"plan": "growth"}) for _ in range(2)]
    # What rests on a rule that has changed is asked about before it is used; a cell that has changed takes its fix along.
    assert [answer.status_code for answer in answers] == ([200, 200] if move is untie else [422, 200])
    assert answers[1].json()["got"]["promo"] == "WINTER"
