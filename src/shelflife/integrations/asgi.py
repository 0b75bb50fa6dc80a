"""The contract around any ASGI app: `ContractMiddleware(app, provider)`.

A middleware knows little of the app, and stands before its login. Where there is a module for your framework, take that.
"""

from collections.abc import Collection

from shelflife.integrations.under_contract import (
    App,
    Receive,
    Scope,
    Send,
    UnderContract,
    answer_in_app,
    answered,
    body_from,
    call_of,
    form_of,
    path_below_root,
    send_answer,
)
from shelflife.server.endpoints import AdminEndpoints, ContractEndpoints
from shelflife.server.feedback import JSON, Answer, error_answer
from shelflife.server.operations import DisclosedFixes, Operations, is_operation
from shelflife.server.pins import Pin
from shelflife.server.provider import Provider

__all__ = ["AdminMiddleware", "ContractMiddleware", "contract_app"]

_NOT_SENT = Answer(200, JSON, b"")
"""What a handler answers for the feed; it does not leave the app."""


class AdminMiddleware:
    """Answers an operator's calls, and hands everything else on."""

    def __init__(self, app: App, provider: Provider) -> None:
        self.app = app
        self._endpoints = AdminEndpoints(provider)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or "/admin/" not in scope["path"]:
            await self.app(scope, receive, send)
        elif (path := path_below_root(scope)) in self._endpoints.by_path:
            answer = await answered(self._endpoints, call_of(scope, path), body_from(receive))
            await send_answer(send, answer, scope["method"])
        else:
            await self.app(scope, receive, send)


class ContractMiddleware:
    """Gives the contract to any ASGI app: the operator's endpoints, the answers to `provider.check`, the stamps.

    The endpoints for clients are not among them, for a middleware stands before the app's own login: mount `contract_app` where that holds, or say that they are `public`. `operations` are
    those of the app, as `POST /orders/{id}`: policies are held to them, and successful responses of theirs are stamped. Without them only responses to requests that were checked are.
    """

    def __init__(
        self, app: App, provider: Provider, *, operations: Collection[str] | None = None, public: bool = False
    ) -> None:
        routes = _GivenRoutes(provider, operations)
        provider.attach(routes.listed)
        under_contract: App = UnderContract(app, provider, routes)
        if public:
            under_contract = _Public(under_contract, provider)
        self._app = AdminMiddleware(under_contract, provider)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def contract_app(provider: Provider, *, fixes: Collection[str] = ()) -> App:
    """The endpoints for clients as an ASGI app, to be mounted at `/contract` where the app's own login holds.

    `fixes` are the operations whose fixes may be told to whoever may ask here, without making the request.
    """
    operations = Operations.named(fixes)
    provider.disclose_fixes_of(fixes)
    disclosed = DisclosedFixes(lambda: operations, provider.is_checked, fixes)
    return _EndpointsApp(provider, ContractEndpoints(provider, disclosed))


class _EndpointsApp:
    """Answers calls to the endpoints for clients, wherever it is mounted."""

    def __init__(self, provider: Provider, endpoints: ContractEndpoints) -> None:
        self._provider = provider
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = "/contract" + path_below_root(scope).removeprefix("/contract")
        if path not in self._endpoints.by_path:
            answer: Answer | None = error_answer(
                self._provider.wire, 404, "there is no such endpoint", form_of(scope, self._provider)
            )
        else:
            answer = await answer_in_app(self._provider, self._endpoints, scope, path, body_from(receive))
        if answer is not None:
            await send_answer(send, answer, scope["method"])
        elif self._provider.pin is None:
            call = call_of(scope, path)
            await self._provider.feed.stream(call.headers, call.query, receive, send)
        else:
            await send_answer(send, _NOT_SENT, scope["method"])


class _Public:
    """Answers the endpoints for clients before the app, and tells all fixes."""

    def __init__(self, app: App, provider: Provider) -> None:
        def disclosed(asked: str) -> str | None:
            operation = provider.policies.operations.find_named(asked)
            if operation is not None:
                return operation.name
            return asked if is_operation(asked) else None

        endpoints = ContractEndpoints(provider, disclosed)
        self._app = app
        self._paths = endpoints.by_path
        self._answering = _EndpointsApp(provider, endpoints)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and path_below_root(scope) in self._paths:
            await self._answering(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class _GivenRoutes:
    """The operations that a provider has listed by hand, or those that its policies are for."""

    def __init__(self, provider: Provider, operations: Collection[str] | None) -> None:
        self._provider = provider
        self._listed = None if operations is None else Operations.named(operations)

    def listed(self) -> Operations | None:
        return self._listed

    def name(self, scope: Scope, path: str) -> str | None:
        operations = self._provider.policies.operations if self._listed is None else self._listed
        operation = operations.guess(scope["method"], path)
        if operation is None and self._listed is None and not operations.has_like(path):
            return f"{scope['method']} {path}"  # some other one, for all that can be known
        return None if operation is None else operation.name

    def is_stamped(self, scope: Scope, path: str, pin: Pin) -> bool:
        return self._listed is not None and self._listed.find(scope["method"], path) is not None
