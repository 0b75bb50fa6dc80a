"""The contract inside a Starlette app: `install(app, provider)`.

The contract stands next to the routes. So every middleware of the app holds for it, whether it was added before or
after. Only the operator's endpoints stand before everything.
"""

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from shelflife.extras import needing
from shelflife.integrations.asgi import EndpointsFirst
from shelflife.integrations.taking import takes
from shelflife.integrations.under_contract import App, Scope, UnderContract, answer_call
from shelflife.server import Provider, UsageError
from shelflife.server.admin import AdminEndpoints
from shelflife.server.endpoints import ContractEndpoints
from shelflife.server.feed import Receive, Send
from shelflife.server.models import DICTIONARY, Reader
from shelflife.server.operations import Operation, Operations

with needing("server"):
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute, Host, Match, Mount, Route, Router, WebSocketRoute, compile_path
    from starlette.staticfiles import StaticFiles

__all__ = ["install"]

_ANY_METHOD = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_MOST_UNKNOWN = 1000
_LETS_EVERYBODY_IN = {
    f"starlette.middleware.{name}" for name in ("cors", "gzip", "httpsredirect", "sessions", "trustedhost")
}
"""Middleware that is no login. Any other may ask for something, and for another thing at another path."""

Handler = Callable[[Request], Any]
AddRoute = Callable[[str, Sequence[str], Handler], None]

Guards = tuple[str, ...]
"""What stands before an endpoint, by name."""


def install(
    app: Starlette,
    provider: Provider,
    *,
    fixes: Collection[str] | None = None,
    login: Callable[[Handler], Handler] | None = None,
) -> None:
    """Give the app the contract: its endpoints as routes, its stamps, and its answer to `provider.check`.

    `login` is a decorator for the contract's endpoints, such as `requires("authenticated")`. With one, only requests
    that were checked are told versions. `fixes` are the operations whose fixes are told without the request being
    made. By default these are plain functions with nothing before them: no decorator, and no middleware of a route, a
    mount or the app but Starlette's own.
    """
    takes(
        "install of integrations.starlette takes a Starlette app and a Provider",
        (app, Starlette),
        (provider, Provider),
    )

    def add(path: str, methods: Sequence[str], handler: Handler) -> None:
        app.router.add_route(path, login(handler) if login else handler, methods, include_in_schema=False)

    remedy = "" if login else "give install a login, such as requires('authenticated')"
    AppRoutes(app, provider, remedy).install(add, fixes)


class AppRoutes:
    """The routes of an app. That of a request is found by the endpoint that the app itself has chosen.

    Those of a Starlette app have no login that could be compared: what has anything before it counts as guarded.
    """

    _router: type[Router] = Router
    """What finds the contract's own routes."""

    _notes_runs = False
    """Whether pins are told when an endpoint is called."""

    def __init__(self, app: Starlette, provider: Provider, remedy: str) -> None:
        """`remedy` says what to do about operations that ask for more than the contract; empty when the
        contract has got guards, or needs none."""
        if app.middleware_stack is not None:
            raise UsageError("the contract cannot be installed in an app that serves already")
        if isinstance(app.router.middleware_stack, UnderContract):
            raise UsageError("a contract is installed in this app already; an app has one provider")
        self._app = app
        self._provider = provider
        self._remedy = remedy if provider.level else ""
        self.own: list[Any] = []
        """The contract's."""
        self._listed = Operations(), -1
        """The operations as they were listed last, and how many routes there were: with another one they are listed anew."""
        self._finds = self.find
        """One object for all pins, by which they are known to be of this app."""
        self._looked_for: dict[int, Any] = {}
        """Endpoints that were not among the routes as these were listed last, by identity. They are kept, so
        that no other gets it."""

    def install(self, add: AddRoute, fixes: Collection[str] | None) -> None:
        """Add the contract's routes, put it around all routes, and the operator's endpoints before everything
        else."""
        app, provider = self._app, self._provider
        disclosed = provider.apps.disclosed_fixes(lambda: self._listed[0], fixes)
        endpoints = ContractEndpoints(provider, disclosed)
        route_count = len(app.router.routes)
        for path, endpoint in endpoints.by_path.items():
            add(path, endpoint.methods, _handler_of(endpoints, path))
        self.own = app.router.routes[route_count:]
        provider.apps.attach(self.listed)
        # Last among the routes, so that no other request has to pass them.
        own = _own_first(app.router, self._router(routes=self.own))
        app.router.middleware_stack = UnderContract(
            app.router.middleware_stack, provider, self._finds, own=own
        )
        build_plain_stack = app.build_middleware_stack

        def build_middleware_stack() -> App:
            plain, endpoints = build_plain_stack(), AdminEndpoints(provider)
            # Without an admin token there are none, and no request has to pass them.
            return EndpointsFirst(plain, endpoints).begin if endpoints.by_path else plain

        # Unless somebody else has done the same before: then more than is listed stands before the app.
        build_middleware_stack.is_of_the_contract = inspect.ismethod(build_plain_stack)  # type: ignore[attr-defined]
        app.build_middleware_stack = build_middleware_stack  # type: ignore[method-assign]

    def listed(self) -> Operations:
        """All operations, as the app is now."""
        walked = list(self._walk(self._app.routes))
        operations = Operations(
            (one for one in walked if isinstance(one, Operation)),
            (one for one in walked if isinstance(one, str)),
        )
        self._listed = operations, len(self._app.router.routes)
        self._provider.apps.warn_of_guards(operations, self._remedy)
        return operations

    def find(self, scope: Scope, path: str) -> Operation | None:
        """By what the app has chosen. The path decides only between several routes of one endpoint, for the
        app may understand paths otherwise than we do."""
        endpoint, method, (operations, route_count) = scope.get("endpoint"), scope["method"], self._listed
        called = operations.by_call.get((id(endpoint), method))
        if called and len(called) == 1 and route_count == len(self._app.router.routes):
            return called[0]
        # In a part of the app that cannot be seen, or before a mounted app has found its route: what is listed may not be
        # what the app chooses, so that only a policy's own path counts.
        guess = self._provider.policies.operations.guess
        return self._chosen(endpoint, method, path) or guess(method, path)

    def _chosen(self, endpoint: Any, method: str, path: str) -> Operation | None:
        if endpoint is None:
            return None  # nothing was found for it, or it did not come as far as the routes
        operations, route_count = self._listed
        call = id(endpoint), method
        is_new = call not in operations.by_call and id(endpoint) not in self._looked_for
        if is_new and len(self._looked_for) < _MOST_UNKNOWN:
            self._looked_for[id(endpoint)] = endpoint  # its route may have been added
            operations = self.listed()
        elif route_count != len(self._app.router.routes):
            operations = self.listed()
        fitting = operations.by_call.get(call, [])
        if len(fitting) > 1:
            fitting = [one for one in fitting if one.path.match(path)]
        return next(iter(fitting), None)

    def _parts_of(self, route: BaseRoute) -> Iterator[tuple[Any, BaseRoute, Guards]]:
        """The routes that one stands for: as they are here, as they were declared, and what else stands
        before them."""
        yield route, route, ()

    def _standing(self, route: Any, declared: Route, guards: Guards) -> tuple[Guards, bool, bool]:
        """What stands before a route, whether the app shows it as its own, and whether successes that were
        not checked carry stamps. `guards` stand before it because of where it is."""
        guards = (*guards, *guards_of_its_own(route))
        is_contract_guarded = not self._remedy
        return guards, route.include_in_schema, not (guards or is_contract_guarded)

    def _body_of(self, route: Any) -> Reader | None:
        """How the body of a request is read before it is checked, as far as that can be seen."""
        return DICTIONARY

    def _walk(
        self, routes: Iterable[BaseRoute], prefix: str = "", guards: Guards = ()
    ) -> Iterator[Operation | str]:
        """The operations of all routes, also of mounted apps, and the paths of parts that cannot be seen."""
        for one in routes:
            for route, declared, more in self._parts_of(one):
                before = (*guards, *more)
                if isinstance(declared, Route):
                    yield from self._operations_of(route, declared, prefix, before)
                elif isinstance(declared, Mount | Host):
                    yield from self._walk_mounted(route, declared, prefix, before)
                elif not isinstance(declared, WebSocketRoute):
                    yield prefix

    def _operations_of(self, route: Any, declared: Route, prefix: str, guards: Guards) -> Iterator[Operation]:
        """One operation for each method of a route that is not the contract's own."""
        if declared in self.own:
            return
        guards, is_shown, is_stamped = self._standing(route, declared, guards)
        if _has_middleware_of_its_own(self._app):
            guards = (*guards, "")
        template = prefix + (route.path or "")
        path = compile_path(template)[0]
        for method in {*(route.methods or _ANY_METHOD)} - {"HEAD"}:  # a GET by another name
            yield Operation.of_route(
                method,
                template,
                path,
                guards=guards,
                is_shown=is_shown,
                is_stamped=is_shown and is_stamped,
                notes_runs=self._notes_runs,
                endpoint=route.endpoint,
                body=self._body_of(route),
            )

    def _walk_mounted(
        self, mount: Any, declared: Mount | Host, prefix: str, guards: Guards
    ) -> Iterator[Operation | str]:
        """The operations of a mounted app. Whatever may stand on the way to them counts as a guard of
        theirs. One that has a contract of another provider is not of this one."""
        path = prefix + (mount.path or "") if isinstance(declared, Mount) else prefix
        if _is_under_another(mount, self._provider):
            yield path
            return
        if not mount.routes and not isinstance(mount.app, StaticFiles):
            yield path
        if type(declared) not in (Mount, Host) or not _is_plain(mount.app):
            guards = (*guards, f"the middleware of {path or 'a mounted app'}")
        yield from self._walk(mount.routes, path, guards)


def _own_first(router: Router, own: Router) -> App:
    """Calls the routes of the contract before all others, for one of the app's may take every path."""
    plain = router.middleware_stack

    def begin(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if any(route.matches(scope)[0] is Match.FULL for route in own.routes):
            scope.setdefault("router", router)  # in which a login finds where it leads to
            return own.app(scope, receive, send)
        return plain(scope, receive, send)

    return begin


def _handler_of(endpoints: ContractEndpoints, path: str) -> Handler:
    """What answers calls to one of the contract's endpoints."""

    async def answer(request: Request) -> Response:
        # By the request's own stream: a login may have read the body before.
        told = await answer_call(endpoints, path, request.scope, request.stream())
        return Response(told.body, told.status, dict(told.headers), told.content_type or None)

    answer.__name__ = path.rpartition("/")[2]
    return answer


def guards_of_its_own(route: Route, plain: type = Route) -> Iterator[str]:
    """What stands before an endpoint, or might. Only a function that a route of the plain kind calls has
    nothing. A wrapper around it that does not say so cannot be seen."""
    if type(route) is not plain:
        yield f"a {type(route).__name__}"
    if not inspect.isfunction(route.app):
        yield "a middleware, or an endpoint that is no function"
    if not inspect.isroutine(route.endpoint) or hasattr(route.endpoint, "__wrapped__"):
        yield "a decorator"


def _is_under_another(mount: Any, provider: Provider) -> bool:
    """Whether a mounted app has a contract of another provider, whatever stands around it."""
    app = getattr(mount, "_base_app", mount.app)
    stack = getattr(getattr(app, "router", app), "middleware_stack", None)
    return isinstance(stack, UnderContract) and stack.provider is not provider


def _is_plain(app: Any) -> bool:
    """Whether a mounted app has no middleware, and is none. A contract of its own does not count."""
    is_altered = getattr(app, "user_middleware", ()) or getattr(app, "dependency_overrides", {})
    return isinstance(app, Router | Starlette) and not is_altered and _calls_its_routes_at_once(app)


def _has_middleware_of_its_own(app: Starlette) -> bool:
    """Whether something stands before all of the app that may ask for another thing at each path."""
    modules = {getattr(middleware.cls, "__module__", "") for middleware in app.user_middleware}
    is_stack_known = getattr(app.build_middleware_stack, "is_of_the_contract", False)
    return not (is_stack_known and modules <= _LETS_EVERYBODY_IN and _calls_its_routes_at_once(app))


def _calls_its_routes_at_once(app: Starlette | Router) -> bool:
    """Whether an app and its router are the framework's own, and nothing but the contract is between them."""
    router = getattr(app, "router", app)
    stack = router.middleware_stack
    if isinstance(stack, UnderContract):
        stack = stack.app
    return is_of_framework(app) and is_of_framework(router) and inspect.ismethod(stack)


def is_of_framework(part: Any) -> bool:
    """Whether something is just what Starlette or FastAPI has, and not somebody's own kind of it."""
    return type(part).__module__.partition(".")[0] in ("starlette", "fastapi")
