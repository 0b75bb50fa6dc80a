"""The contract inside a Litestar app: `Litestar(..., plugins=[ContractPlugin(provider)])`.

It is a plugin and no `install(app, provider)`, because a Litestar app is settled when it is made.
"""

import inspect
import sys
from collections.abc import Collection, Sequence
from typing import Any
from urllib.parse import unquote

from shelflife.extras import needing
from shelflife.integrations.asgi import lead
from shelflife.integrations.own_pages import way_to_page
from shelflife.integrations.taking import takes
from shelflife.integrations.under_contract import (
    Scope,
    UnderContract,
    accept_of,
    answer_call,
    path_below_root,
    serve_call,
)
from shelflife.server import MalformedRequest, PolicyFailed, Provider
from shelflife.server.admin import AdminEndpoints
from shelflife.server.endpoints import ContractEndpoints
from shelflife.server.feedback import Answer
from shelflife.server.models import DICTIONARY, Reader
from shelflife.server.operations import Operation, Operations
from shelflife.server.pinning import answer_to
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
        takes("a ContractPlugin takes a Provider", (provider, Provider))
        self._provider = provider
        self._guards = list(guards or ())
        self._remedy = _REMEDY if guards is None and provider.level else ""
        self._routes: list[BaseRoute] = []
        self._own: list[HTTPRouteHandler] = []
        """What answers calls to the contract's endpoints."""
        self._listed: Operations | None = None
        disclosed = provider.apps.disclosed_fixes(self._operations, fixes)
        self._endpoints = ContractEndpoints(provider, disclosed)
        provider.apps.attach(self._operations)

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Put everything into the app that is being made."""
        provider, admin = self._provider, AdminEndpoints(self._provider)
        self._own = [self._handler(path) for path in self._endpoints.by_path]
        app_config.route_handlers += [*self._own, *(_admin_handler(admin, path) for path in admin.by_path)]
        # The last of the app's own, so that every login of the app comes before it.
        app_config.middleware.append(self._under_contract)
        for failure in _FAILURES:
            app_config.exception_handlers.setdefault(failure, self._answer_for_the_app)
        app_config.on_startup.append(provider.begin_life)
        app_config.on_shutdown.append(provider.end_life)
        return app_config

    def receive_route(self, route: BaseRoute) -> None:
        """Note a route of the app."""
        self._routes.append(route)
        self._listed = None

    def _under_contract(self, app: Any) -> Any:
        """The contract's middleware."""
        return UnderContract(app, self._provider, self._find)

    def _handler(self, path: str) -> HTTPRouteHandler:
        """What answers calls to one of the contract's endpoints."""

        async def answer(request: Request[Any, Any, Any]) -> Response[bytes]:
            return _response(await answer_call(self._endpoints, path, request.scope, request.stream()))

        methods: Any = self._endpoints.by_path[path].methods
        return HTTPRouteHandler(
            path, http_method=methods, guards=self._guards, include_in_schema=False, status_code=200
        )(answer)

    def _answer_for_the_app(self, request: Request[Any, Any, Any], failure: Exception) -> Response[bytes]:
        """The answer to a refusal that the app does not handle."""
        pin = self._provider.pin
        if pin is None:
            raise failure
        pin.is_own_answer = True
        return _response(answer_to(failure, self._provider, pin, accept_of(request.scope)))

    def _operations(self) -> Operations:
        """All operations, as the app is now."""
        if self._listed is None:
            operations = [
                self._operation(str(method), route.path, handler)
                for route in self._routes
                if isinstance(route, HTTPRoute)
                for handler in route.route_handlers
                for method in handler.http_methods
            ]
            opaque = [one.path for one in self._routes if not isinstance(one, HTTPRoute | WebSocketRoute)]
            self._listed = Operations(operations, opaque)
            self._provider.apps.warn_of_guards(self._listed, self._remedy)
        return self._listed

    def _find(self, scope: Scope, path: str) -> Operation | None:
        """By what the app itself has chosen for a request."""
        template = scope.get("path_template")
        if template is not None and isinstance(scope.get("route_handler"), HTTPRouteHandler):
            return self._operations().find_named(f"{scope['method']} {template or '/'}")
        # In a mounted app, to which Litestar shows only the rest of the path.
        whole = {**scope, "path": unquote(scope.get("raw_path", b"").decode("latin-1"))}
        return self._provider.policies.operations.find(scope["method"], path_below_root(whole))

    def _operation(self, method: str, path: str, handler: HTTPRouteHandler) -> Operation:
        standing = _standing_before(handler)
        passed = _standing_before(self._own[0]) if self._own else {}
        guards = [name for what, name in standing.items() if what not in passed]
        app_middleware = list(handler.ownership_layers[0].middleware or ())
        if app_middleware != [self._under_contract]:
            guards.append("")  # it may ask for another thing at each path; a later plugin may have added it
        is_shown = bool(handler.resolve_include_in_schema())
        is_innermost = app_middleware[-1:] == [self._under_contract] and not _may_be_answered_for(handler)
        return Operation.of_route(
            method,
            path,
            guards=tuple(guards),
            is_shown=is_shown and method != "OPTIONS",
            is_stamped=is_shown and is_innermost and passed.keys() <= standing.keys(),
            endpoint=handler,
            body=_body_of(handler),
        )


def _body_of(handler: HTTPRouteHandler) -> Reader | None:
    """How the body of a request is read before it is checked, as far as that can be seen."""
    asked_for = handler.parsed_data_field
    if asked_for is None:
        return DICTIONARY
    kind = asked_for.annotation
    if handler.resolve_data_dto():
        return None
    if not hasattr(kind, "__pydantic_validator__"):
        return Reader.of_msgspec(kind)
    # Litestar has a model read itself, and takes a dataclass of pydantic's for any other.
    validates: Any = getattr(kind, "model_validate", None)
    is_usual = (
        getattr(validates, "__func__", None) is sys.modules["pydantic"].BaseModel.model_validate.__func__
    )
    return Reader.of_pydantic(kind) if is_usual else None


def _may_be_answered_for(handler: HTTPRouteHandler) -> bool:
    """Whether a success may come from something else than the handler, after the contract's middleware."""
    has_own_middleware = any(layer.middleware for layer in handler.ownership_layers[1:])
    has_hook = any(getattr(layer, "before_request", None) for layer in handler.ownership_layers)
    is_handled = any(
        of not in _FAILURES and not getattr(handle, "__module__", "").startswith("litestar.")
        for of, handle in handler.resolve_exception_handlers().items()
    )
    return has_own_middleware or has_hook or is_handled


def _standing_before(handler: HTTPRouteHandler) -> dict[Any, str]:
    """What stands before a handler, or might. Guards have a name, and nothing else has one."""
    standing: dict[Any, str] = {}
    for layer in handler.ownership_layers:
        standing |= {("guard", guard): getattr(guard, "__name__", "a guard") for guard in layer.guards or ()}
        standing |= {("middleware", id(middleware)): "" for middleware in layer.middleware or ()}
        if (hook := getattr(layer, "before_request", None)) is not None:
            standing["hook", hook] = ""
    standing |= {("opt", name): "" for name in handler.opt}
    needed = handler.parsed_fn_signature.parameters.keys() & handler.resolve_dependencies().keys()
    standing |= {("dependency", name): "" for name in needed}
    function: Any = handler.fn
    if type(function).__module__.startswith("litestar."):  # which runs it in a thread
        function = getattr(function, "func", function)
    if not inspect.isroutine(function) or hasattr(function, "__wrapped__"):
        standing["decorator", id(function)] = ""
    kinds = [type(handler), *(getattr(layer, "request_class", None) for layer in handler.ownership_layers)]
    standing |= {("kind", kind): "" for kind in kinds if kind and not kind.__module__.startswith("litestar.")}
    return standing


class _AdminHandler(ASGIRouteHandler):
    """An operator's endpoint. No guard and no middleware of the app stands before it, because it has a token
    of its own."""

    def resolve_guards(self) -> list[Guard]:
        return []

    def resolve_middleware(self) -> list[Middleware]:
        return []


def _admin_handler(endpoints: AdminEndpoints, path: str) -> ASGIRouteHandler:
    page, way = way_to_page(endpoints)

    async def admin(scope: Any, receive: Any, send: Any) -> None:
        # Litestar takes both for the same path. The links of the page do not.
        if page == path[:-1] and not scope.get("raw_path", b"/").endswith(b"/"):
            await lead(way, send)
        else:
            await serve_call(endpoints, path, scope, receive, send)

    return _AdminHandler(path, copy_scope=True, exclude_from_csrf=True)(admin)


def _response(answer: Answer) -> Response[bytes]:
    status, media_type, body, headers = answer
    return Response(body, status_code=status, headers=dict(headers), media_type=media_type)
