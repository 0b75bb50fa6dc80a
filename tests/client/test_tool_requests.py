"""A tool, its arguments and the fields of a request: one object for all of them, and several fixes of one table."""

import httpx2
import pytest
from fastapi import FastAPI

from shelflife.client import Memory, contract_headers
from shelflife.integrations.fastapi import install
from shelflife.server import Provider, fix
from shelflife.testing import serving

FIELDS = ("form", "room", "ward")
OPERATION = "POST /visits"


@pytest.fixture
def clinic():
    """An API with three policies that look at the same row; `row` sets it."""
    provider = Provider({"treatments": {"dental": dict.fromkeys(FIELDS, "1")}})
    for field in FIELDS:

        def policy(request, tables, field=field):
            row = tables.treatments.get(request.get("treatment"))
            is_so = row is None or request.equals(field, row[field])
            return None if is_so else fix(f"USE_{field.upper()}", **{field: row[field]})

        policy.__name__ = policy.__qualname__ = f"{field}_must_be_the_treatments"
        provider.policy(policy)
    app = FastAPI()
    install(app, provider)

    @app.post("/visits")
    def book(wanted: dict[str, object]):
        provider.check(wanted)
        return "booked"

    with serving(app) as address:
        yield address, provider


def fixes_in(answer):
    told = answer.get("recovery_feedback") if isinstance(answer, dict) else None
    fixes = [one["parameters"] for one in told["suggestions"]] if told else []
    return {name: value for one in fixes for name, value in one.items()}


def attempts(book, request):
    """So often a model calls a tool that takes up what it is told."""
    count, fixes = 0, {}
    while count == 0 or fixes:
        request = request | fixes
        fixes, count = fixes_in(book(**request)), count + 1
    return count


@pytest.mark.parametrize(("is_asked", "after_a_change"), [(True, 2), (False, 3)])
def test_several_fixes_of_a_table_cost_one_more_attempt_after_a_change_where_nobody_can_be_asked(
    clinic, is_asked, after_a_change
):
    address, provider = clinic
    memory = Memory()

    @memory.tool(address if is_asked else "tool://clinic", operation=OPERATION)
    def book(treatment, form=None, room=None, ward=None):
        wanted = {name: value for name, value in locals().items() if value is not None and name != "memory"}
        return httpx2.post(f"{address}/visits", json=wanted).json()

    counts = [attempts(book, {"treatment": "dental"}) for _ in range(2)]
    provider.registry.reload_table("treatments", set={"dental": {"form": "2", "room": "1", "ward": "1"}})
    counts += [attempts(book, {"treatment": "dental"}) for _ in range(2)]
    assert counts == [2, 1, after_a_change, 1]


@pytest.mark.parametrize("conditional", [False, True])
def test_a_tool_that_takes_the_request_as_one_object_is_told_of_once(clinic, conditional, caplog):
    address, _ = clinic

    @Memory().tool(address, conditional=conditional)
    def book(wanted: dict, note: dict | None = None):
        return httpx2.post(f"{address}/visits", json=wanted, headers=contract_headers()).json()

    for _ in range(2):
        assert fixes_in(book({"treatment": "dental"}, note={"by": "Ada"})).keys() == set(FIELDS)
    said = "a fix sets the field 'form', which is none of the tool's arguments"
    assert caplog.text.count(said) == 1
    assert "here these are inside the argument 'wanted'" in caplog.text


def test_a_tool_with_an_object_among_its_arguments_is_not_told_of(clinic, caplog):
    address, _ = clinic

    @Memory().tool(address)
    def book(treatment, form=None, room=None, ward=None, note=None):
        wanted = {"treatment": treatment, "form": form, "room": room, "ward": ward}
        return httpx2.post(f"{address}/visits", json=wanted).json()

    for _ in range(2):
        book("dental", note={"by": "Ada", "ward": "7"})
    assert caplog.text == ""
