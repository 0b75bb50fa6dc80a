"""What is refused as stale after something beneath the memory has sent it before: it may have been carried out, and is not sent again by us."""

import asyncio
from contextlib import contextmanager
from functools import partial

import aiohttp
import httpx
import httpx2
import pytest
import requests
from urllib3.util import Retry

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.client import Memory, contract_headers
from shelflife.integrations import httpx as classic
from shelflife.integrations import httpx2 as modern
from shelflife.integrations.aiohttp import memory_middleware
from shelflife.integrations.requests import MemoryAdapter
from shelflife.testing import serving
from tests.acme_world import GOVERNED, rotate
from tests.lazily import Lazily

retries = Lazily("pydantic_ai.retries")
tenacity = Lazily("tenacity")

PATH = "/subscriptions"


class Losing:
    """Acme, of which the next answer is lost after the request was carried out. Until it is sent again the code changes."""

    def __init__(self):
        self.provider = acme_provider()
        self.app = acme_app(self.provider)
        self.statuses = []
        self.is_losing = False

    async def __call__(self, scope, receive, send):
        async def sent(message):
            if message["type"] == "http.response.start":
                self.statuses.append(message["status"])
                if self.is_losing and message["status"] == 201:
                    self.is_losing = False
                    rotate(self.provider)
                    message = {**message, "status": 503}
            await send(message)

        await self.app(scope, receive, sent if scope.get("path") == PATH else send)


@pytest.fixture
def acme():
    with serving(app := Losing()) as app.address:
        yield app


@contextmanager
def posting_by(client, address=""):
    """What posts a request by a client, which is closed at the end."""
    with client:
        yield lambda **request: client.post(address + PATH, **request)


def by_httpx(library, with_memory, address):
    """Sends the same request again."""

    class Retrying(library.HTTPTransport):
        def handle_request(self, request):
            response = super().handle_request(request)
            if response.status_code == 503:
                response.read()
                return super().handle_request(request)
            return response

    return posting_by(library.Client(base_url=address, transport=with_memory(Retrying()), trust_env=False))


def by_copies(library, with_memory, address):
    """Makes a new request each time, as some do to set a header."""

    class Copying(library.HTTPTransport):
        def handle_request(self, request):
            for _ in range(2):
                content = {"headers": request.headers, "content": request.content}
                response = super().handle_request(library.Request(request.method, request.url, **content))
                if response.status_code != 503:
                    break
                response.read()
            return response

    return posting_by(library.Client(base_url=address, transport=with_memory(Copying()), trust_env=False))


def by_pydantic_ai(library, with_memory, address):
    """With what that framework has for it."""

    def check(response):
        if response.status_code == 503:
            raise ConnectionError("no answer")

    config = {"stop": tenacity.stop_after_attempt(2), "reraise": True}
    beneath = retries.HTTPX2TenacityTransport(config, library.HTTPTransport(), validate_response=check)
    return posting_by(library.Client(base_url=address, transport=with_memory(beneath), trust_env=False))


def by_requests(adapter, with_memory, address):
    session = requests.Session()
    session.trust_env = False
    session.mount("http://", with_memory(adapter()))
    return posting_by(session, address)


def by_urllib3():
    again = Retry(2, status_forcelist=[503], allowed_methods=None, raise_on_status=False)
    return requests.adapters.HTTPAdapter(max_retries=again)


class RetryingAdapter(requests.adapters.HTTPAdapter):
    def send(self, request, **options):
        response = super().send(request, **options)
        return super().send(request, **options) if response.status_code == 503 else response


@contextmanager
def by_aiohttp(middleware, address):
    async def again(request, handler):
        response = await handler(request)
        return await handler(request) if response.status == 503 else response

    async def posted(**request):
        async with (
            aiohttp.ClientSession(middlewares=[middleware, again]) as session,
            session.post(address + PATH, **request) as response,
        ):
            await response.read()
            return httpx2.Response(response.status)

    yield lambda **request: asyncio.run(posted(**request))


def conditional(of, memory):
    return lambda beneath: of(memory, beneath, conditional=True)


def of_httpx2(way):
    return lambda memory, address: way(httpx2, conditional(modern.MemoryTransport, memory), address)


def of_requests(adapter):
    return lambda memory, address: by_requests(adapter, conditional(MemoryAdapter, memory), address)


WAYS = {
    "httpx2": of_httpx2(by_httpx),
    "httpx2, by copies": of_httpx2(by_copies),
    "httpx2, by Pydantic AI": of_httpx2(by_pydantic_ai),
    "httpx": lambda memory, address: by_httpx(httpx, conditional(classic.MemoryTransport, memory), address),
    "requests": of_requests(by_urllib3),
    "requests, by an adapter": of_requests(RetryingAdapter),
    "aiohttp": lambda memory, address: by_aiohttp(memory_middleware(memory, conditional=True), address),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_request_that_a_client_sends_again_is_carried_out_once(acme, way):
    with WAYS[way](Memory(), acme.address) as post:
        assert [post(json=GOVERNED).status_code for _ in range(2)] == [422, 201]
        acme.is_losing = True
        assert post(json=GOVERNED).status_code == 412
        assert acme.statuses == [422, 201, 201, 412]
        # what the refusal has taught is used the next time
        assert post(json=GOVERNED).status_code == 201


REFUSED = httpx2.HTTPStatusError, httpx.HTTPStatusError, requests.HTTPError


def wanted_of(plan, promo_code):
    return {**GOVERNED, "plan": plan} | ({"promo_code": promo_code} if promo_code else {})


@pytest.mark.parametrize(
    "way",
    [partial(by_httpx, httpx2), partial(by_httpx, httpx), partial(by_requests, by_urllib3)],
    ids=["httpx2", "httpx", "requests"],
)
def test_a_tool_whose_client_sends_a_request_again_is_run_once(acme, way):
    with way(lambda beneath: beneath, acme.address) as post:

        @Memory().tool(acme.address, operation=f"POST {PATH}", conditional=True)
        def subscribe(plan, promo_code=None):
            response = post(json=wanted_of(plan, promo_code), headers=contract_headers())
            response.raise_for_status()
            return response.status_code

        with pytest.raises(REFUSED):
            subscribe(GOVERNED["plan"])
        acme.is_losing = True
        with pytest.raises(REFUSED):
            subscribe(GOVERNED["plan"])
        assert acme.statuses == [422, 201, 412]
        assert subscribe(GOVERNED["plan"]) == 201


def client_of(library, headers):
    """With headers for all of its requests."""
    client = requests.Session() if library is requests else library.Client(headers=headers)
    client.headers.update(headers)
    return client


@pytest.mark.parametrize("library", [httpx2, httpx, requests], ids=lambda library: library.__name__)
def test_a_tool_that_gives_its_client_the_headers_is_run_again_after_one_request_alone(acme, library):
    request_count = 1

    @Memory().tool(acme.address, operation=f"POST {PATH}", conditional=True)
    def subscribe(plan, promo_code=None):
        with client_of(library, contract_headers()) as client:
            for number in range(request_count):
                if number:
                    rotate(acme.provider)
                made = client.post(acme.address + PATH, json=wanted_of(plan, promo_code))
                made.raise_for_status()

    with pytest.raises(REFUSED):
        subscribe(GOVERNED["plan"])
    request_count = 2
    with pytest.raises(REFUSED):
        subscribe(GOVERNED["plan"])
    assert acme.statuses == [422, 201, 412]
    request_count = 1
    acme.provider.registry.reload_table("active_csm_codes", set={GOVERNED["plan"]: {"code": "SPRING27"}})
    subscribe(GOVERNED["plan"])
    assert acme.statuses[3:] == [412, 201]
