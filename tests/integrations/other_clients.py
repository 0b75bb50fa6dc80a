"""requests and aiohttp, as far as tests need them, under the names of httpx2: so that the same tests can be run with them."""

import asyncio
import json
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace

import aiohttp
import requests as requests_library

from shelflife.integrations.aiohttp import memory_middleware
from shelflife.integrations.requests import MemoryAdapter

__all__ = ["OTHERS"]


class RequestsTransport(requests_library.adapters.HTTPAdapter):
    """What is mounted without a memory."""

    @staticmethod
    def with_memory(memory, transport, **options):
        return MemoryAdapter(memory, transport, **options)


class AiohttpTransport:
    @staticmethod
    def with_memory(memory, transport, **options):
        return memory_middleware(memory, **options)


class RequestsClient:
    """A blocking client, and awaited an async one: then each call is in a thread."""

    def __init__(self, base_url, transport, headers=()):
        self._base_url = base_url
        self.session = requests_library.Session()
        self.session.trust_env = False
        self.session.headers.update(headers)
        self.session.mount("http://", transport)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.session.close()

    def request(self, method, path, content=None, **options):
        response = self.session.request(method, self._base_url + path, data=content, **options)
        response.request.extensions = {"shelflife": response.shelflife}
        return response

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, **options):
        return self.request("POST", path, **options)

    @contextmanager
    def stream(self, method, path, **options):
        with self.request(method, path, stream=True, **options) as response:
            response.iter_bytes = lambda: response.iter_content(None)
            yield response


class AsyncRequestsClient(RequestsClient):
    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        self.session.close()

    async def post(self, path, **options):
        return await asyncio.to_thread(super().post, path, **options)


class AsyncAiohttpClient:
    def __init__(self, base_url, transport, headers=()):
        self._base_url, self._transport, self._headers = base_url, transport, dict(headers)

    async def __aenter__(self):
        self.session = aiohttp.ClientSession(headers=self._headers, middlewares=[self._transport])
        return self

    async def __aexit__(self, *exception):
        await self.session.close()

    @asynccontextmanager
    async def stream(self, method, path, content=None, **options):
        async with self.session.request(method, self._base_url + path, data=content, **options) as response:
            yield response

    async def request(self, method, path, **options):
        async with self.stream(method, path, **options) as response:
            body = await response.read()
            return SimpleNamespace(
                status_code=response.status,
                headers=response.headers,
                content=body,
                text=body.decode(),
                json=lambda: json.loads(body),
                request=SimpleNamespace(extensions={"shelflife": response.shelflife}),
            )

    async def get(self, path, **options):
        return await self.request("GET", path, **options)

    async def post(self, path, **options):
        return await self.request("POST", path, **options)


class AiohttpClient:
    """Its calls are waited for, in a loop of its own."""

    def __init__(self, **options):
        self._client = AsyncAiohttpClient(**options)

    def __enter__(self):
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._client.__aenter__())
        return self

    def __exit__(self, *exception):
        self._loop.run_until_complete(self._client.__aexit__())
        self._loop.close()

    def get(self, path, **options):
        return self._loop.run_until_complete(self._client.get(path, **options))

    def post(self, path, **options):
        return self._loop.run_until_complete(self._client.post(path, **options))

    @contextmanager
    def stream(self, method, path, **options):
        response = self._loop.run_until_complete(self._client.request(method, path, **options))
        response.iter_bytes = lambda: iter([response.content])
        yield response


OTHERS = [
    SimpleNamespace(
        __name__="requests",
        HTTPTransport=RequestsTransport,
        AsyncHTTPTransport=RequestsTransport,
        Client=RequestsClient,
        AsyncClient=AsyncRequestsClient,
    ),
    SimpleNamespace(
        __name__="aiohttp",
        HTTPTransport=AiohttpTransport,
        AsyncHTTPTransport=AiohttpTransport,
        Client=AiohttpClient,
        AsyncClient=AsyncAiohttpClient,
    ),
]
