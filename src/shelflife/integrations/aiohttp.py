"""A memory behind a session of `aiohttp`: a client middleware. Nothing else in the user's code changes.

session = aiohttp.ClientSession(middlewares=[memory_middleware(Memory())])
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from shelflife.client.channels import HTTP
from shelflife.client.guard import Guard
from shelflife.client.memory import Memory
from shelflife.extras import needing
from shelflife.integrations import messages
from shelflife.integrations.watching import AsyncCalls, AsyncWatching, Watched, at_once, method_and_target

with needing("aiohttp"):
    from aiohttp import (
        BytesPayload,
        ClientRequest,
        ClientResponse,
        ClientSession,
        ClientTimeout,
        DummyCookieJar,
        StreamReader,
    )

__all__ = ["memory_middleware"]

Handler = Callable[[ClientRequest], Awaitable[ClientResponse]]

_PART = 65_536


def memory_middleware(
    memory: Memory,
    *,
    guard: Guard | None = HTTP.guard,
    operation: Callable[[messages.Request], str] = method_and_target,
    compact: bool = HTTP.compact,
    conditional: bool = HTTP.conditional,
) -> Callable[[ClientRequest, Handler], Awaitable[ClientResponse]]:
    """A middleware that watches the responses of a session, and amends requests as far as the guard allows.

    The options are those of the transports for httpx2. A response has what was done to its request in `shelflife`.
    """
    watching = _Watching(
        memory, memory, guard=guard, operation=operation, compact=compact, conditional=conditional
    )

    async def remembering(request: ClientRequest, handler: Handler) -> ClientResponse:
        body: Any = request.body
        is_in_memory = isinstance(body, BytesPayload) and not request.headers.get("Content-Encoding")
        outgoing = _Outgoing(request, handler, await body.as_bytes() if is_in_memory else body)
        seen = await watching.sent_by(outgoing)
        response: Any = seen.of
        response.shelflife = outgoing.own.extensions.get("shelflife")
        if isinstance(seen.stream, Watched):
            _watch(response, seen.stream, is_remote=memory.is_remote)
        return seen.of  # type: ignore[no-any-return]

    return remembering


class _Asyncio(AsyncCalls):
    """The calls of a client that knows asyncio alone."""

    @asynccontextmanager
    async def within(self, until: float) -> AsyncIterator[None]:
        with suppress(TimeoutError):
            async with asyncio.timeout(until - time.monotonic()):
                yield


class _Watching(AsyncWatching[messages.Request, messages.Response]):
    _calls = _Asyncio()

    async def sent_by(self, outgoing: "_Outgoing") -> messages.Response:
        return await self._handled(outgoing.own, outgoing)


class _Outgoing:
    """How one request of a session goes out, and the questions about it."""

    def __init__(self, request: ClientRequest, handler: Handler, body: Any) -> None:
        self._request, self._handler = request, handler
        stream = messages.ByteStream(body) if isinstance(body, bytes) else body
        self._stream = stream
        self.own = messages.Request(
            request.method,
            request.url,
            headers=request.headers.items(),
            stream=stream,
            extensions={"of": request},
        )

    async def handle_async_request(self, request: messages.Request) -> messages.Response:
        """Send a request that the memory has written, its own or the session's."""
        response = await (self._sent(request) if "of" in request.extensions else self._asked(request))
        return messages.Response(
            response.status,
            response.headers.items(),
            _Body(response),
            response,
            is_decoded=self._request.session.auto_decompress,
        )

    async def _sent(self, request: messages.Request) -> ClientResponse:
        own = self._request
        own.headers.clear()  # of what was sent before
        own.headers.extend(request.headers.multi_items())
        if request.stream is not self._stream:  # never so for a body that is not in memory
            await own.update_body(request.content)
            self._stream = request.stream
            own.send = _counting(own.send, request.stream)  # type: ignore[method-assign]
        return await self._handler(own)

    async def _asked(self, request: messages.Request) -> ClientResponse:
        """By a session that adds nothing of its own, over the same connections."""
        own, limits = self._request, request.extensions["timeout"]
        session = ClientSession(
            connector=own.session.connector, connector_owner=False, cookie_jar=DummyCookieJar()
        )
        try:
            return await session.request(
                request.method,
                str(request.url),
                headers=request.headers.multi_items(),
                data=request.content or None,
                allow_redirects=False,
                proxy=own.proxy,
                proxy_auth=own.proxy_auth,
                proxy_headers=own.proxy_headers,
                ssl=own.ssl,
                timeout=ClientTimeout(total=limits["read"]),
            )
        finally:
            session.detach()


def _counting(send: Callable[..., Any], stream: Any) -> Callable[..., Any]:
    """The same `send` of a request, which counts how often that is done: another middleware may do it again."""

    async def sent(connection: object) -> ClientResponse:
        stream.sent_count += 1
        return await send(connection)  # type: ignore[no-any-return]

    return sent


class _Body(messages.AsyncByteStream):
    """The body of a response, decoded, as nobody but the memory reads it."""

    def __init__(self, response: ClientResponse) -> None:
        self._content, self._release = response.content, response.release

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._content.iter_chunked(_PART):
            yield chunk

    async def aclose(self) -> None:
        if not self._content.is_eof():  # else it has let go by itself, and the caller may still read that end
            self._release()


def _watch(response: Any, watched: Watched, *, is_remote: bool) -> None:
    """What the caller reads of a response is shown to the memory once there is no more."""
    leaving: set[asyncio.Task[None]] = set()
    response.content = _Content(response.content, watched, leaving)
    plain_wait = response.wait_for_close

    def left(plain: Callable[[], Any]) -> Callable[[], Any]:
        def leave() -> Any:
            ended = plain()
            if watched.is_open and is_remote:
                _in_the_background(watched.leave(), leaving)
            elif watched.is_open:
                at_once(watched.leave())  # whatever is sent next must not rest on what is in doubt now
            return ended

        return leave

    async def wait_for_close() -> None:
        await plain_wait()
        await asyncio.gather(*leaving)

    response.release, response.close = left(response.release), left(response.close)
    response.wait_for_close = wait_for_close


class _Content:
    """What a response reads its body from."""

    def __init__(self, content: StreamReader, watched: Watched, ending: set[asyncio.Task[None]]) -> None:
        self._content, self._watched, self._ending = content, watched, ending

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    __aiter__ = StreamReader.__aiter__
    iter_any = StreamReader.iter_any
    iter_chunked = StreamReader.iter_chunked
    iter_chunks = StreamReader.iter_chunks

    async def read(self, n: int = -1) -> bytes:
        return await self._kept(await self._content.read(n))

    async def readany(self) -> bytes:
        return await self._kept(await self._content.readany())

    async def readline(self, **options: Any) -> bytes:
        return await self._kept(await self._content.readline(**options))

    async def readuntil(self, *separator: bytes, **options: Any) -> bytes:
        return await self._kept(await self._content.readuntil(*separator, **options))

    async def readexactly(self, n: int) -> bytes:
        return await self._kept(await self._content.readexactly(n))

    async def readchunk(self) -> tuple[bytes, bool]:
        chunk, is_end = await self._content.readchunk()
        return await self._kept(chunk), is_end

    def read_nowait(self, n: int = -1) -> bytes:
        chunk = self._content.read_nowait(n)
        self._watched.keep(chunk)
        if self._content.at_eof() and self._watched.is_open and not self._ending:
            _in_the_background(self._watched.end(), self._ending)
        return chunk

    async def _kept(self, chunk: bytes) -> bytes:
        self._watched.keep(chunk)
        if self._content.at_eof():
            await self._watched.end()
        return chunk


def _in_the_background(doing: Coroutine[Any, Any, None], kept: set[asyncio.Task[None]]) -> None:
    """Have something done that whoever calls does not wait for."""
    task = asyncio.ensure_future(doing)
    kept.add(task)  # nobody else keeps it until it is done
    task.add_done_callback(kept.discard)
