"""Refusals spared: a memory claims no more of them than did not happen."""

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from shelflife.client import Memory
from shelflife.integrations.httpx2 import MemoryTransport
from shelflife.integrations.starlette import install
from shelflife.server import Provider, fix
from shelflife.testing import serving

TABLES = {
    "countries": {"US": {"form": "CN23"}, "CH": {"form": "CN22"}},
    "goods": {"books": {"code": "4901"}, "toys": {"code": "9503"}, "wine": {"code": "2204"}},
}


@pytest.fixture(scope="module")
def address():
    """An API that refuses for two reasons at once, and a request without contents before either of them."""
    provider = Provider(TABLES)

    @provider.policy
    def form_of_the_country(request, tables):
        form = tables["countries"][request["country"]]["form"]
        return None if request.equals("form", form) else fix("USE_FORM", form=form)

    @provider.policy
    def code_of_the_goods(request, tables):
        code = tables["goods"][request["contents"]]["code"]
        return None if request.equals("tariff_code", code) else fix("USE_TARIFF_CODE", tariff_code=code)

    async def ship(request):
        if "contents" not in await request.json():
            return JSONResponse({"error": "what is in it?"}, 400)
        provider.check(await request.json())
        return JSONResponse({"done": True}, 201)

    app = Starlette(routes=[Route("/shipments", ship, methods=["POST"])])
    install(app, provider)
    with serving(app) as address:
        yield address


def refusals(client, task):
    """How often a task is refused before it is done, by an agent that follows what it is told."""
    request, count = dict(task), 0
    while (reply := client.post("/shipments", json=request)).status_code != 201:
        count += 1
        if "recovery_feedback" not in reply.json():
            request["contents"] = "books"
            continue
        for suggestion in reply.json()["recovery_feedback"]["suggestions"]:
            request |= suggestion["parameters"]
    return count


def of_all(address, tasks, memory=None):
    with httpx2.Client(base_url=address, transport=MemoryTransport(memory) if memory else None) as client:
        return [refusals(client, task) for task in tasks]


@pytest.mark.parametrize(
    "tasks",
    [
        [{"country": "US", "contents": "books"}, {"country": "US", "contents": "toys"}, {"country": "US", "contents": "wine"}],
        [{"country": "US", "contents": "books"}] * 3,
        [{"country": "US", "contents": "books"}, {"country": "CH", "contents": "toys"}, {"country": "CH", "contents": "books"}],
        [{"country": "US", "contents": "books"}, {"country": "US"}],
        [{"country": "US", "contents": "books", "form": "CN23", "tariff_code": "4901"}] * 2,
    ],
    ids=["other contents", "the same", "mixed", "an error of the API's own before", "right at once"],
)  # fmt: skip
def test_as_many_refusals_are_spared_as_did_not_happen(address, tasks):
    memory = Memory()
    without, with_it = of_all(address, tasks), of_all(address, tasks, memory)
    assert memory.statistics.saved == sum(without) - sum(with_it)


def test_a_task_that_was_given_up_does_not_count_against_another(address):
    memory = Memory()
    of_all(address, [{"country": "US", "contents": "books"}], memory)
    with httpx2.Client(base_url=address, transport=MemoryTransport(memory)) as client:
        assert client.post("/shipments", json={"country": "US", "contents": "toys"}).status_code != 201
    assert of_all(address, [{"country": "US", "contents": "books"}], memory) == [0]
    assert memory.statistics.saved == 1
