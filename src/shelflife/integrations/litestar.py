"""The contract inside of a Litestar app: `Litestar(..., plugins=[ContractPlugin(provider)])`.

It is a plugin and no `install(app, provider)`: what holds for a Litestar app is settled when it is made.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from litestar import Request, Response
from litestar.config.app import AppConfig
from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler
from litestar.plugins import InitPlugin, ReceiveRoutePlugin
from litestar.routes import BaseRoute, HTTPRoute, WebSocketRoute
from litestar.types import Guard, Middleware

from shelflife.integrations.asgi import (
    AdminMiddleware,
    Receive,
    Scope,
    Send,
    UnderContract,
    answer_to,
    answered,
    call_of,
    tell_that_it_is_open,
)
from shelflife.server import MalformedRequest, PolicyFailed, Provider
from shelflife.server.endpoints import AdminEndpoints, ContractEndpoints
from shelflife.server.feedback import Answer
from shelflife.server.operations import FixesTold, Operation, Operations, operation_name
from shelflife.server.pins import Listening
from shelflife.server.policies import Refusal

__all__ = ["ContractPlugin"]


class ContractPlugin(InitPlugin, ReceiveRoutePlugin):
    """Gives a Litestar app the contract: its endpoints as handlers, its stamps, and its answer to `provider.check`.

    The app's own guards and middleware hold for the contract's endpoints, and so do the `guards` given here; then operations that have not all of them tell no versions. `fixes` are the operations whose fixes are told without the request being made; by default, those before which no
    guard, middleware or hook stands that does not stand before the contract's endpoints too.
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
        self._routes = _LitestarRoutes(provider, is_open=guards is None)
        self._endpoints = ContractEndpoints(provider, FixesTold(self._routes.listed, fixes))
        provider.attach(self._routes.listed)
        provider.tell_fixes_of(fixes or ())

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Put everything into the app that is being made."""
        provider, routes = self._provider, self._routes
        handlers = [self._handler(path) for path in self._endpoints.by_path]
        routes.own = handlers
        app_config.route_handlers.extend(handlers)
        if admin_paths := list(AdminEndpoints(provider).by_path):
            app_config.route_handlers.append(_admin_handler(admin_paths, provider))
        # The last of the app's own, so that every login of the app comes before it.
        under_contract: Any = lambda app: UnderContract(app, provider, routes)  # noqa: E731
        app_config.middleware.append(under_contract)
        for failure in (Refusal, MalformedRequest, PolicyFailed):
            app_config.exception_handlers.setdefault(failure, self._answer_for_the_app)
        app_config.on_startup.append(provider.open)
        app_config.on_shutdown.append(provider.close)
        return app_config

    def receive_route(self, route: BaseRoute) -> None:
        """Note a route of the app."""
        self._routes.add(route)

    def _handler(self, path: str) -> HTTPRouteHandler:
        """What answers calls to one of the contract's endpoints."""
        provider, endpoints = self._provider, self._endpoints

        async def answer(request: Request[Any, Any, Any]) -> Response[bytes | None]:
            scope: Any = request.scope
            receive: Any = request.receive
            call, pin = call_of(scope, path), provider.pinned.get()
            if pin is not None:
                pin.answered = True
                if endpoints.is_for_the_feed(call) and not provider.feed.is_full:
                    pin.listening = Listening(dict(call.headers), call.query)
                    return Response(b"")  # never sent: the feed begins when the app is done with the request
            return _response(await answered(endpoints, call, receive))

        methods: Any = endpoints.by_path[path].methods
        handler = HTTPRouteHandler(
            path, http_method=methods, guards=self._guards, include_in_schema=False, status_code=200
        )
        return handler(answer)

    def _answer_for_the_app(
        self, request: Request[Any, Any, Any], failure: Exception
    ) -> Response[bytes | None]:
        """What an unhandled refusal is answered with."""
        pin = self._provider.pinned.get()
        if pin is None:
            raise failure
        pin.answered = True
        scope: Any = request.scope
        return _response(answer_to(failure, self._provider, pin, scope))


class _LitestarRoutes:
    """The routes of an app, found by what the app itself has chosen for a request."""

    def __init__(self, provider: Provider, *, is_open: bool) -> None:
        self.own: list[HTTPRouteHandler] = []
        """The contract's."""
        self._provider = provider
        self._is_open = is_open
        self._all: list[BaseRoute] = []
        self._listed: Operations | None = None
        self._told: dict[int, bool] = {}
        """Whether the responses of a handler tell versions, by its identity; handlers live as long as their app."""

    def add(self, route: BaseRoute) -> None:
        self._all.append(route)
        self._listed = None

    def listed(self) -> Operations:
        if self._listed is None:
            opaque = [route.path for route in self._all if not isinstance(route, HTTPRoute | WebSocketRoute)]
            self._listed = Operations(self._operations(), opaque)
            if self._is_open:
                self._tell_that_it_is_open()
        return self._listed

    def name(self, scope: Scope, path: str) -> str:
        template = scope.get("path_template")
        if template is None:
            return f"{scope['method']} {path}"
        return operation_name(f"{scope['method']} {template or '/'}")

    def is_operation(self, scope: Scope, path: str) -> bool:
        handler = scope.get("route_handler")
        if not isinstance(handler, HTTPRouteHandler):
            return False
        is_told = self._told.get(id(handler))
        if is_told is None:
            is_shown = bool(handler.resolve_include_in_schema())
            is_told = is_shown and self._passed().keys() <= _standing_before(handler).keys()
            self._told[id(handler)] = is_told
        return is_told

    def _passed(self) -> dict[int, str]:
        """What whoever asks the contract has passed."""
        return _standing_before(self.own[0]) if self.own else {}

    def _handlers(self) -> Iterator[tuple[str, HTTPRouteHandler]]:
        for route in self._all:
            if isinstance(route, HTTPRoute):
                for handler in route.route_handlers:
                    for method in handler.http_methods:
                        yield f"{method} {route.path}", handler

    def _operations(self) -> Iterator[Operation]:
        passed = self._passed().keys()
        for name, handler in self._handlers():
            yield Operation.from_name(name, is_guarded=not _standing_before(handler).keys() <= passed)

    def _tell_that_it_is_open(self) -> None:
        passed = self._passed()
        guards = {
            operation_name(name): [
                guard for id, guard in _standing_before(handler).items() if guard and id not in passed
            ]
            for name, handler in self._handlers()
        }
        asking = {name: names for name, names in guards.items() if names}
        tell_that_it_is_open(
            self._provider, asking, "give ContractPlugin the guards that they need, or [] if this is meant"
        )


def _standing_before(handler: HTTPRouteHandler) -> dict[int, str]:
    """What stands before a handler, by identity; guards have a name, and middleware, hooks and decorators have none."""
    standing: dict[int, str] = {}
    for layer in handler.ownership_layers:
        standing |= {id(guard): getattr(guard, "__name__", "a guard") for guard in layer.guards or ()}
        standing |= {id(middleware): "" for middleware in layer.middleware or ()}
        if (hook := getattr(layer, "before_request", None)) is not None:
            standing[id(hook)] = ""
    if (decorated := getattr(handler.fn, "__wrapped__", None)) is not None:
        standing[id(decorated)] = ""
    return standing


class _AdminHandler(ASGIRouteHandler):
    """An operator's endpoints, which no guard and no middleware of the app stands before: they have a token of their own."""

    def resolve_guards(self) -> list[Guard]:
        return []

    def resolve_middleware(self) -> list[Middleware]:
        return []


def _admin_handler(paths: Sequence[str], provider: Provider) -> ASGIRouteHandler:
    answering = AdminMiddleware(_nothing_else, provider)

    async def admin(scope: Scope, receive: Receive, send: Send) -> None:
        await answering(scope, receive, send)

    return _AdminHandler(paths, copy_scope=True, exclude_from_csrf=True)(admin)


async def _nothing_else(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("only the operator's endpoints are routed here")


def _response(answer: Answer) -> Response[bytes | None]:
    has_body = answer.status != 304
    return Response(
        answer.body if has_body else None,
        status_code=answer.status,
        headers=dict(answer.headers),
        media_type=answer.content_type if has_body else None,
    )
