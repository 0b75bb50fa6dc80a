"""The contract inside a Litestar app: `Litestar(..., plugins=[ContractPlugin(provider)])`.

It is a plugin and no `install(app, provider)`, because a Litestar app is settled when it is made.
"""

import inspect
from collections.abc import Collection, Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from shelflife.extras import needing
from shelflife.integrations.under_contract import (
    Scope,
    UnderContract,
    answer_in_app,
    answer_to,
    call_of,
    path_below_root,
    serve_call,
    warn_that_it_is_open,
)
from shelflife.server import MalformedRequest, PolicyFailed, Provider
from shelflife.server.endpoints import AdminEndpoints, ContractEndpoints
from shelflife.server.feedback import Answer
from shelflife.server.operations import Operation, Operations
from shelflife.server.pins import Pin
from shelflife.server.policies import Refusal

with needing("litestar"):
    from litestar import Request, Response
    from litestar.config.app import AppConfig
    from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler
    from litestar.plugins import InitPlugin, ReceiveRoutePlugin
    from litestar.routes import BaseRoute, HTTPRoute, WebSocketRoute
    from litestar.types import Guard, Middleware

__all__ = ["ContractPlugin"]

_FAILURES = (Refusal, MalformedRequest, PolicyFailed)
_REMEDY = "give ContractPlugin the guards that they need, or [] if this is meant"


class ContractPlugin(InitPlugin, ReceiveRoutePlugin):
    """Gives a Litestar app the contract: its endpoints as handlers, its stamps, and its answer to `provider.check`.

    The app's own guards and middleware hold for the contract's endpoints, and so do the `guards` given here. Operations
    that do not have all of them then tell no versions. `fixes` are the operations whose fixes are told without the
    request being made. By default these are the ones that ask for no more than the contract's endpoints do, in an app
    without middleware.
    """

    def __init__(
        self,
        provider: Provider,
        *,
        guards: Sequence[Guard] | None = None,
        fixes: Collection[str] | None = None,
    ) -> None:
        self._provider = provider
        self._guards = list(guards or ())
        self._routes = _LitestarRoutes(provider, "" if guards is not None else _REMEDY)
        disclosed = provider.apps.disclosed_fixes(self._routes.listed, fixes)
        self._endpoints = ContractEndpoints(provider, disclosed)
        provider.apps.attach(self._routes.listed)

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Put everything into the app that is being made."""
        provider, routes = self._provider, self._routes
        routes.own = [self._handler(path) for path in self._endpoints.by_path]
        app_config.route_handlers.extend(routes.own)
        app_config.route_handlers.extend(_admin_handlers(provider))
        # The last of the app's own, so that every login of the app comes before it.
        under_contract: Any = lambda app: UnderContract(app, provider, routes)  # noqa: E731
        routes.under_contract = under_contract
        app_config.middleware.append(under_contract)
        for failure in _FAILURES:
            app_config.exception_handlers.setdefault(failure, self._answer_for_the_app)
        app_config.on_startup.append(provider.begin_life)
        app_config.on_shutdown.append(provider.end_life)
        return app_config

    def receive_route(self, route: BaseRoute) -> None:
        """Note a route of the app."""
        self._routes.add(route)

    def _handler(self, path: str) -> HTTPRouteHandler:
        """What answers calls to one of the contract's endpoints."""
        provider, endpoints = self._provider, self._endpoints

        async def answer(request: Request[Any, Any, Any]) -> Response[bytes | None]:
            scope: Any = request.scope
            return _response(await answer_in_app(provider, endpoints, call_of(scope, path), request.stream()))

        methods: Any = endpoints.by_path[path].methods
        handler = HTTPRouteHandler(
            path, http_method=methods, guards=self._guards, include_in_schema=False, status_code=200
        )
        return handler(answer)

    def _answer_for_the_app(
        self, request: Request[Any, Any, Any], failure: Exception
    ) -> Response[bytes | None]:
        """The answer to a refusal that the app does not handle."""
        pin = self._provider.pin
        if pin is None:
            raise failure
        pin.is_own_answer = True
        scope: Any = request.scope
        return _response(answer_to(failure, self._provider, pin, scope))


class _LitestarRoutes:
    """The routes of an app, found by what the app itself has chosen for a request."""

    def __init__(self, provider: Provider, remedy: str) -> None:
        self.own: list[HTTPRouteHandler] = []
        """The contract's."""
        self.under_contract: Any = None
        """The contract's middleware."""
        self._provider = provider
        self._remedy = remedy
        self._all: list[BaseRoute] = []
        self._listed: Operations | None = None
        self._stamped: dict[int, bool] = {}
        """Whether the successes of a handler carry stamps, by its identity. Handlers live as long as their
        app."""

    def add(self, route: BaseRoute) -> None:
        self._all.append(route)
        self._listed = None

    def listed(self) -> Operations:
        if self._listed is None:
            opaque = [route.path for route in self._all if not isinstance(route, HTTPRoute | WebSocketRoute)]
            passed, has_middleware = self._passed(), self._has_middleware()
            operations: list[Operation] = []
            guards: dict[str, list[str]] = {}
            for method, route, handler in self._handlers():
                more = [name for what, name in _standing_before(handler).items() if what not in passed]
                is_shown = bool(handler.resolve_include_in_schema()) and method != "OPTIONS"
                operation = Operation.of_route(
                    method, route.path, is_guarded=has_middleware or bool(more), is_shown=is_shown
                )
                operations.append(operation)
                guards[operation.name] = more
            self._listed = Operations(operations, opaque)
            if self._remedy:
                warn_that_it_is_open(self._provider, guards, self._remedy)
        return self._listed

    def name(self, scope: Scope, path: str) -> str | None:
        template = scope.get("path_template")
        if template is not None and isinstance(scope.get("route_handler"), HTTPRouteHandler):
            method = "GET" if scope["method"] == "HEAD" else scope["method"]
            return Operation.of_route(method, template or "/").name
        # In a mounted app, to which Litestar shows only the rest of the path.
        whole = {**scope, "path": unquote(scope.get("raw_path", b"").decode("latin-1"))}
        operation = self._provider.policies.operations.find(scope["method"], path_below_root(whole))
        return None if operation is None else operation.name

    def is_stamped(self, scope: Scope, path: str, pin: Pin) -> bool:
        handler = scope.get("route_handler")
        if not isinstance(handler, HTTPRouteHandler):
            return False
        is_stamped = self._stamped.get(id(handler))
        if is_stamped is None:
            is_stamped = self._stamped[id(handler)] = self._may_be_stamped(handler)
        return is_stamped

    def _may_be_stamped(self, handler: HTTPRouteHandler) -> bool:
        """Whether a success can only come from the handler itself, and its client has passed all that the
        contract asks for."""
        has_hook = any(getattr(layer, "before_request", None) for layer in handler.ownership_layers)
        has_own_middleware = any(layer.middleware for layer in handler.ownership_layers[1:])
        app: Any = handler.ownership_layers[0]
        is_last = list(app.middleware)[-1:] == [self.under_contract]
        handled = any(
            of not in _FAILURES and not getattr(handle, "__module__", "").startswith("litestar.")
            for of, handle in handler.resolve_exception_handlers().items()
        )
        return (
            bool(handler.resolve_include_in_schema())
            and not (has_hook or has_own_middleware or handled)
            and is_last
            and self._passed().keys() <= _standing_before(handler).keys()
        )

    def _has_middleware(self) -> bool:
        """Whether the app has middleware, which may ask for another thing at each path. A later plugin may
        have added it."""
        app = self.own[0].ownership_layers[0] if self.own else None
        return any(one is not self.under_contract for one in getattr(app, "middleware", ()))

    def _passed(self) -> dict[Any, str]:
        """What stands before the contract's endpoints."""
        return _standing_before(self.own[0]) if self.own else {}

    def _handlers(self) -> Iterator[tuple[str, HTTPRoute, HTTPRouteHandler]]:
        for route in self._all:
            if isinstance(route, HTTPRoute):
                for handler in route.route_handlers:
                    yield from ((str(method), route, handler) for method in handler.http_methods)


def _standing_before(handler: HTTPRouteHandler) -> dict[Any, str]:
    """What stands before a handler, or might. Guards have a name, and nothing else has one."""
    standing: dict[Any, str] = {}
    for layer in handler.ownership_layers:
        standing |= {("guard", guard): getattr(guard, "__name__", "a guard") for guard in layer.guards or ()}
        standing |= {("middleware", id(middleware)): "" for middleware in layer.middleware or ()}
        if (hook := getattr(layer, "before_request", None)) is not None:
            standing["hook", hook] = ""
        request_class = getattr(layer, "request_class", None)
        if request_class is not None and not request_class.__module__.startswith("litestar."):
            standing["request", request_class] = ""
    standing |= {("opt", name): "" for name in handler.opt}
    needed = handler.parsed_fn_signature.parameters.keys() & handler.resolve_dependencies().keys()
    standing |= {("dependency", name): "" for name in needed}
    function: Any = handler.fn
    if type(function).__module__.startswith("litestar."):  # which runs it in a thread
        function = getattr(function, "func", function)
    if not inspect.isroutine(function) or hasattr(function, "__wrapped__"):
        standing["decorator", id(function)] = ""
    if not type(handler).__module__.startswith("litestar."):
        standing["handler", type(handler)] = ""
    return standing


class _AdminHandler(ASGIRouteHandler):
    """An operator's endpoint. No guard and no middleware of the app stands before it, because it has a token
    of its own."""

    def resolve_guards(self) -> list[Guard]:
        return []

    def resolve_middleware(self) -> list[Middleware]:
        return []


def _admin_handlers(provider: Provider) -> Iterator[ASGIRouteHandler]:
    endpoints = AdminEndpoints(provider)

    def handler_for(path: str) -> ASGIRouteHandler:
        async def admin(scope: Any, receive: Any, send: Any) -> None:
            await serve_call(endpoints, call_of(scope, path), receive, send)

        return _AdminHandler(path, copy_scope=True, exclude_from_csrf=True)(admin)

    return map(handler_for, endpoints.by_path)


def _response(answer: Answer) -> Response[bytes | None]:
    has_body = answer.status != 304
    return Response(
        answer.body if has_body else None,
        status_code=answer.status,
        headers=dict(answer.headers),
        media_type=answer.content_type if has_body else None,
    )
