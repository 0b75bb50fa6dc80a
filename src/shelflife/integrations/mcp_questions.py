"""What a memory asks an MCP server, through the session that it has: the contract's endpoints as a resource, which tells when it changes.

Every client can read a resource, of any revision of the protocol. The answer is an envelope, whatever its status.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from shelflife.contract import AskFixes, ContractError
from shelflife.contract.envelopes import CHANGES_URI, META_KEY, Envelope, QuestionUri
from shelflife.contract.positions import AT_HEADER
from shelflife.extras import needing
from shelflife.integrations.mcp_catalogue import Catalogue
from shelflife.server.endpoints import FIXES_PATH, ContractEndpoints, EndpointCall, read_message
from shelflife.server.errors import UsageError
from shelflife.server.feedback import JSON
from shelflife.server.pinning import be_ready
from shelflife.server.provider import Provider

with needing("mcp"):
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server
    from mcp.server.subscriptions import (
        InMemorySubscriptionBus,
        ListenHandler,
        ResourceUpdated,
        SubscriptionBus,
    )
    from mcp.shared.exceptions import MCPError
    from mcp_types import (
        INVALID_PARAMS,
        EmptyResult,
        ReadResourceRequestParams,
        ReadResourceResult,
        SubscribeRequestParams,
        SubscriptionsListenRequestParams,
        TextResourceContents,
        UnsubscribeRequestParams,
    )

__all__ = ["answer_questions", "be_the_first", "headers_of"]

_PATIENCE_S = 10.0
"""How long a client may take to read that something has moved."""

Context = ServerRequestContext[Any, Any]


def be_the_first(server: Server[Any]) -> None:
    """Before a contract is installed: refuse a second one."""
    if META_KEY in server.extensions:
        raise UsageError("a contract is installed in this server already; a server has one provider")


def answer_questions(
    server: Server[Any], provider: Provider, catalogue: Catalogue, bus: SubscriptionBus | None = None
) -> None:
    """Have a server answer the contract's questions. `bus` is where it publishes events, if it has one."""
    _Questions(server, provider, catalogue).install()
    if provider.level:
        _Cues(server, provider, bus).install()
    server.extensions[META_KEY] = {}


def headers_of(context: object) -> dict[str, str]:
    """The headers of the HTTP request that a message came by, by lower-case name; none where it came otherwise."""
    return dict(getattr(getattr(context, "request", None), "headers", {}))


class _Questions:
    """The resource whose URIs are questions. Nothing caches it, neither here nor at the client."""

    def __init__(self, server: Server[Any], provider: Provider, catalogue: Catalogue) -> None:
        self._server, self._provider, self._catalogue = server, provider, catalogue
        self._endpoints = ContractEndpoints(provider, catalogue.disclosed)
        self._plain = server.get_request_handler("resources/read")

    def install(self) -> None:
        self._server.add_request_handler("resources/read", ReadResourceRequestParams, self._read)

    async def _read(self, context: Context, params: ReadResourceRequestParams) -> Any:
        question = QuestionUri.from_text(str(params.uri))
        if question is not None:
            told = await self._answer(question, context)
            text = msgspec.json.encode(told).decode()
            contents = TextResourceContents(uri=params.uri, text=text, mime_type=JSON)
            return ReadResourceResult(contents=[contents], ttl_ms=0, cache_scope="private")
        if self._plain is None:
            raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": str(params.uri)})
        return await self._plain.handler(context, params)

    async def _answer(self, question: QuestionUri, context: Context) -> Envelope:
        await self._catalogue.be_ready()
        await be_ready(self._provider)
        said = {AT_HEADER.lower(): question.at} if question.at else {}
        headers = {**headers_of(context), **said, "accept": JSON}
        method = "GET" if question.body is None else "POST"
        call = EndpointCall(method, question.path, question.query, headers, question.body or b"")
        answer = self._endpoints.begin(call)
        if answer is None:
            if call.path == FIXES_PATH and len(call.body) <= self._endpoints.most_bytes:
                with suppress(ContractError):  # which is what it is answered with
                    await self._catalogue.be_asked(read_message(call.body, AskFixes).operation, context)
            answer = await asyncio.to_thread(self._endpoints.answer, call)
        is_json = answer.content_type == JSON and bool(answer.body)
        return Envelope(answer.status, msgspec.json.decode(answer.body) if is_json else None)


class _Listener:
    """Somebody who is told that something has moved: once at a time, however often it moves meanwhile."""

    def __init__(self, tell: Callable[[], Awaitable[None]], leave: Callable[[], object]) -> None:
        """`leave` is called when telling has failed. Where it takes too long, it is tried anew: whoever does not read now may again."""
        self.loop = asyncio.get_running_loop()
        self._tell, self._leave = tell, leave
        self._is_behind = False
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Called in its own loop."""
        self._is_behind = True
        if self._task is None:
            self._task = asyncio.ensure_future(self._catch_up())

    async def _catch_up(self) -> None:
        try:
            while self._is_behind:
                self._is_behind = False
                try:
                    async with asyncio.timeout(_PATIENCE_S) as patience:
                        await self._tell()
                except TimeoutError:
                    if not patience.expired():
                        raise
                    self._is_behind = True
        except Exception:  # noqa: BLE001 - its client is gone
            self._leave()
        finally:
            # Nothing waits between the last look at `_is_behind` and this: a change is not lost.
            self._task = None


class _Cues:
    """Tells listeners that something has moved. What, they ask.

    Clients of 2026-07-28 listen to the resource, and older ones subscribe to it. Each of these is told by a task of its own: one that
    does not read keeps nobody else from hearing, and is told when it reads again.
    """

    def __init__(self, server: Server[Any], provider: Provider, bus: SubscriptionBus | None) -> None:
        self._server = server
        self._bus = bus or InMemorySubscriptionBus()
        self._has_bus = bus is not None
        self._publishers: dict[asyncio.AbstractEventLoop, _Listener] = {}
        """Those who tell the bus, by their loops."""
        self._subscribers: dict[object, _Listener] = {}
        """By their connections."""
        self._plain = {
            method: server.get_request_handler(method)
            for method in ("subscriptions/listen", "resources/subscribe", "resources/unsubscribe")
        }
        provider.registry.on_change(self._wake)

    def install(self) -> None:
        server, listening = self._server, self._plain["subscriptions/listen"]
        self._handle_listening = ListenHandler(self._bus) if listening is None else listening.handler
        if listening is not None or not self._has_bus:  # else the server's author has turned it off
            server.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, self._listen)
        server.add_request_handler("resources/subscribe", SubscribeRequestParams, self._subscribe)
        server.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, self._unsubscribe)

    async def _listen(self, context: Context, params: SubscriptionsListenRequestParams) -> Any:
        loop, event = asyncio.get_running_loop(), ResourceUpdated(uri=CHANGES_URI)
        if loop not in self._publishers:
            self._publishers = {one: known for one, known in self._publishers.items() if not one.is_closed()}
            self._publishers[loop] = _Listener(lambda: self._bus.publish(event), lambda: None)
        return await self._handle_listening(context, params)

    async def _subscribe(self, context: Context, params: SubscribeRequestParams) -> Any:
        if str(params.uri) != CHANGES_URI:
            return await self._otherwise("resources/subscribe", context, params)
        session, connection = context.session, context.session._connection
        if connection not in self._subscribers:
            leave = partial(self._subscribers.pop, connection, None)
            self._subscribers[connection] = _Listener(
                partial(session.send_resource_updated, CHANGES_URI), leave
            )
            connection.exit_stack.callback(leave)
        return EmptyResult()

    async def _unsubscribe(self, context: Context, params: UnsubscribeRequestParams) -> Any:
        if str(params.uri) != CHANGES_URI:
            return await self._otherwise("resources/unsubscribe", context, params)
        self._subscribers.pop(context.session._connection, None)
        return EmptyResult()

    async def _otherwise(self, method: str, context: Context, params: Any) -> Any:
        entry = self._plain[method]
        if entry is None:
            raise MCPError(INVALID_PARAMS, f"only {CHANGES_URI} can be subscribed to")
        return await entry.handler(context, params)

    def _wake(self) -> None:
        """Called in the thread that has made a change. Nothing is told from there: streams are of their loops."""
        for listener in [*self._publishers.values(), *self._subscribers.values()]:
            with suppress(RuntimeError):  # its loop has ended
                listener.loop.call_soon_threadsafe(listener.wake)
