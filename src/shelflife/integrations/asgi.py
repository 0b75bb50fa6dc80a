"""The contract around any ASGI app: `ContractMiddleware(app, provider)`.

A middleware knows little of the app, and stands before its login. If there is a module for your framework, use that.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from shelflife.integrations.own_pages import endpoints_before, way_to_page
from shelflife.integrations.under_contract import (
    App,
    Scope,
    UnderContract,
    live,
    path_below_root,
    serve_call,
)
from shelflife.server.admin import AdminEndpoints
from shelflife.server.endpoints import ContractEndpoints, Endpoints
from shelflife.server.feed import Receive, Send
from shelflife.server.operations import Operations
from shelflife.server.provider import Provider

__all__ = ["ContractMiddleware", "admin_app", "contract_app"]


class EndpointsFirst:
    """Answers calls of some endpoints, and hands everything else on."""

    def __init__(
        self, app: App, endpoints: Endpoints, is_answered: Callable[[str], bool] | None = None
    ) -> None:
        self.app = app
        self._endpoints = endpoints
        self._is_answered = is_answered or endpoints.by_path.__contains__
        self._page, self._way = way_to_page(endpoints)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Async, because servers know an ASGI app by that."""
        await self.begin(scope, receive, send)

    def begin(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """The same for whoever just awaits it: it has nothing between it and the app."""
        if scope["type"] == "http":
            path = path_below_root(scope) if scope.get("root_path") else scope["path"]
            if self._is_answered(path):
                return serve_call(self._endpoints, path, scope, receive, send)
            if path == self._page:
                return self.app(scope, receive, _leading(self._way, send))
        return self.app(scope, receive, send)


def _leading(way: str, send: Send) -> Send:
    """Sends what an app answers, unless it has nothing there: then the way to the operator's page."""
    is_led = False

    async def led(message: Any) -> None:
        nonlocal is_led
        if message["type"] == "http.response.start" and message["status"] == 404:
            is_led = True
            await lead(way, send)
        elif not is_led:
            await send(message)

    return led


async def lead(way: str, send: Send) -> None:
    """Answer with the way to the operator's page."""
    headers = [(b"location", way.encode()), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 307, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


class ContractMiddleware(EndpointsFirst):
    """Gives the contract to any ASGI app: the operator's endpoints, the answers to `provider.check`, the stamps.

    The endpoints for clients are not among them, for a middleware stands before the app's own login: mount
    `contract_app` where that holds. `operations` are those of the app, as `POST /orders/{id}`: policies are held to
    them, and their successful responses are stamped. Without them, only responses to requests that were checked are.
    """

    def __init__(self, app: App, provider: Provider, *, operations: Collection[str] | None = None) -> None:
        find = provider.apps.attach_unseen(operations)
        contract = UnderContract(app, provider, lambda scope, path: find(scope["method"], path))
        endpoints = AdminEndpoints(provider)
        super().__init__(contract, endpoints, endpoints_before(endpoints, app))


def admin_app(provider: Provider) -> App:
    """The operator's page and endpoints alone, as an ASGI app: to be mounted elsewhere, or served by itself on a port of its own.

    A process that serves nothing else sees what others do when it has the same log. It checks no requests, and says nothing of policies.
    """

    async def life(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await live(_nothing, provider.begin_watch, provider.end_life, scope, receive, send)
        else:
            await _nothing(scope, receive, send)

    return EndpointsFirst(life, AdminEndpoints(provider))


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that has nothing but a life."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
    elif scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
    else:
        await send({"type": "websocket.close"})


def contract_app(provider: Provider, *, fixes: Collection[str] = ()) -> App:
    """The endpoints for clients as an ASGI app, to be mounted at `/contract` where the app's own login holds.

    `fixes` are the operations whose fixes may be told to whoever may ask here, without making the request.
    """
    operations = Operations.named(fixes)
    endpoints = ContractEndpoints(provider, provider.apps.disclosed_fixes(lambda: operations, fixes))

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = path_below_root(scope).rstrip("/")  # some frameworks end the path of a mounted app so
            if not path.startswith("/contract/"):  # it is mounted there, below the root of the contract
                root_path = scope.get("root_path", "").removesuffix("/contract")
                scope, path = {**scope, "root_path": root_path}, f"/contract{path}"
            await serve_call(endpoints, path, scope, receive, send)

    return answer
