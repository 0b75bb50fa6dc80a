"""Requests that are written in an odd way, before a proxy: they are judged and handed on like any other, or refused in a sentence."""

import asyncio
import json

import httpx2
import pytest

from shelflife.integrations.proxying import proxy_app
from shelflife.testing import serving
from tests.integrations.proxied import Api
from tests.integrations.test_proxying import EXPLAINED, WANTED, contract, fixes_in, in_front_of, raw


@pytest.fixture(scope="module")
def api():
    return Api()


@pytest.fixture(scope="module")
def enforcing(api):
    with in_front_of(api, as_caller="GET /me", enforce=True) as client:
        yield client


@pytest.mark.parametrize("space", [" ", "\t"])
@pytest.mark.parametrize("name", ["X-Name", "Forwarded", "X-Forwarded-For", "Host"])
def test_white_space_around_the_value_of_a_header_is_no_part_of_it(enforcing, api, name, space):
    head = f"GET /open HTTP/1.1\n{name}: x{space}\n" + ("" if name == "Host" else "Host: x\n")
    assert raw(enforcing, f"{head}Connection: close\n\n").startswith("HTTP/1.1 200")
    got = api.seen[-1][2][b"x-forwarded-host" if name == "Host" else name.lower().encode()]
    assert got.partition(b",")[0] == b"x"


def test_a_request_that_cannot_be_written_is_a_400_in_one_sentence(api):
    """Few servers hand on such a header, so none stands before the proxy here."""

    async def play(upstream):
        app = httpx2.ASGITransport(proxy_app(contract(), upstream))
        async with httpx2.AsyncClient(transport=app, base_url="http://x") as client:
            return await client.get("/open", headers={"X-Name": "\x00"})

    before = len(api.seen)
    with serving(api, lifespan="off") as upstream:
        said = asyncio.run(play(upstream))
    assert said.status_code == 400
    assert "the request has a header or a length that cannot be handed on in HTTP" in said.text
    assert len(api.seen) == before


JSON = ("Content-Type", "application/json")


@pytest.mark.parametrize(
    "types",
    [
        [("Content-Type", "application/vnd.api+json")],
        [("Content-Type", "application/x-www-form-urlencoded")],
        [],
        [("Content-Type", "text/plain"), JSON],
        [JSON, ("Content-Type", "application/x-www-form-urlencoded")],
    ],
)
@pytest.mark.parametrize("begin", ["\n ", "\ufeff"])
def test_when_enforced_an_object_is_judged_whatever_its_type_says(enforcing, api, types, begin):
    before = len(api.seen)
    content = begin.encode() + json.dumps(WANTED).encode()
    parts = iter([b"", content[:3], content[3:]])
    refused = enforcing.post("/orders", content=parts, headers=types)
    assert fixes_in(refused) == EXPLAINED
    assert [path for _, path, *_ in api.seen[before:]] == ["/me"]


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b'{"plan":"growth","n":%b}' % (b"1" * 5000), "application/json"),
        (b'{"plan":"growth","n":%b}' % (b"[" * 200_000 + b"]" * 200_000), "application/json"),
        (b'{"plan":"growth",}', "text/plain"),
        (b'{"plan":"growth"', FORM),
        (b"plan=growth&x=1&x[y]=2", FORM),
        (b"plan=growth&x=\xff", FORM),
    ],
    ids=["digits", "deep", "comma", "half", "twice", "bytes"],
)
def test_an_object_or_a_form_that_cannot_be_read_goes_on_when_explained_and_not_when_enforced(
    enforcing, api, content, kind
):
    headers = {"Content-Type": kind, "X-Answer": "400"}
    before = len(api.seen)
    refused = enforcing.post("/orders", content=content, headers=headers)
    assert (refused.status_code, len(api.seen)) == (400, before)
    assert "cannot be judged" in refused.json()["error"]
    with in_front_of(api) as explaining:
        assert explaining.post("/orders", content=content, headers=headers).json() == {"error": "no"}
    assert api.seen[-1][4] == len(content)


@pytest.mark.parametrize("content", [b"plan", b"[1]", b"", b" "])
def test_what_is_no_object_and_no_form_goes_on_when_enforced_too(enforcing, api, content):
    headers = {"Content-Type": "application/json", "X-Answer": "409"}
    assert enforcing.post("/orders", content=content, headers=headers).json() == {"error": "no"}
