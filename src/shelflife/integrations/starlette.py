"""The contract inside of a Starlette app: `install(app, provider)`.

What belongs to the contract stands next to the routes, so that every middleware of the app holds for it, whether it was added before or after. Only the operator's endpoints stand before everything.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Host, Mount, Route, Router, WebSocketRoute

from shelflife.integrations.asgi import (
    AdminMiddleware,
    Scope,
    UnderContract,
    answered,
    call_of,
    tell_that_it_is_open,
)
from shelflife.server import Provider, UsageError
from shelflife.server.endpoints import ContractEndpoints
from shelflife.server.operations import FixesTold, Operation, Operations
from shelflife.server.pins import Listening

__all__ = ["install"]

Endpoint = Callable[[Request], Any]


def install(
    app: Starlette,
    provider: Provider,
    *,
    fixes: Collection[str] | None = None,
    guard: Callable[[Endpoint], Endpoint] | None = None,
) -> None:
    """Give the app the contract: its endpoints as routes, its stamps, and its answer to `provider.check`.

    `guard` is a decorator for the contract's endpoints, such as `requires("authenticated")`; then operations before which nothing stands tell no versions. `fixes` are the operations whose fixes are told without the
    request being made; by default, those before whose endpoint stands nothing of their own: no decorator, and no middleware of a route or mount.
    """
    check_that_it_is_open(app)
    remedy = "" if guard else "give install a guard, such as requires('authenticated')"
    routes = AppRoutes(
        app, provider, lambda listed: list_routes(listed, is_contract_guarded=guard is not None), remedy
    )
    endpoints = ContractEndpoints(provider, FixesTold(lambda: routes.operations, fixes))
    for path, endpoint in endpoints.by_path.items():
        answer = endpoint_for(provider, endpoints, path)
        route = Route(
            path, guard(answer) if guard else answer, methods=[*endpoint.methods], include_in_schema=False
        )
        app.router.routes.insert(0, route)
    put_under_contract(app, provider, routes, fixes)


def check_that_it_is_open(app: Starlette) -> None:
    """Raise `UsageError` when nothing can be installed in an app any more."""
    if app.middleware_stack is not None:
        raise UsageError("the contract cannot be installed in an app that serves already")
    if isinstance(app.router.middleware_stack, UnderContract):
        raise UsageError("a contract is installed in this app already; an app has one provider")


class Found(NamedTuple):
    """A route of an app, or of one that is mounted in it."""

    template: str
    methods: Collection[str] | None
    """None when the endpoint takes any."""

    endpoint: Any
    guards: tuple[str, ...]
    """What stands before the endpoint and not before the contract's, by name; one that keeps nobody out has none."""

    is_told: bool
    """Whether its successful responses are stamped: those of what the app shows of itself are."""


class Opaque(NamedTuple):
    """A part of an app whose own routes cannot be seen."""

    path: str


Listing = Callable[[Iterable[BaseRoute]], Iterator[Found | Opaque]]


class AppRoutes:
    """The routes of an app, found by the endpoint that the app itself has chosen for a request."""

    def __init__(self, app: Starlette, provider: Provider, listing: Listing, remedy: str) -> None:
        """`remedy` says what to do about operations that ask for more than the contract; empty when that is meant."""
        self._app = app
        self._provider = provider
        self._listing = listing
        self._remedy = remedy
        self._by_endpoint: dict[int, tuple[Any, list[tuple[Operation, Found]]]] = {}
        self.operations = Operations()
        """As they were listed last."""

    def listed(self) -> Operations:
        """All operations, as the app is now."""
        found = list(self._listing(self._app.routes))
        by_endpoint: dict[int, tuple[Any, list[tuple[Operation, Found]]]] = {}
        for route in found:
            if isinstance(route, Found):
                operations = ((operation, route) for operation in _operations(route))
                by_endpoint.setdefault(id(route.endpoint), (route.endpoint, []))[1].extend(operations)
        self._by_endpoint = by_endpoint
        self.operations = Operations(
            (operation for _, pairs in by_endpoint.values() for operation, _ in pairs),
            (route.path for route in found if isinstance(route, Opaque)),
        )
        if self._remedy:
            self._tell_that_it_is_open(by_endpoint.values())
        return self.operations

    def _tell_that_it_is_open(self, routes: Iterable[tuple[Any, list[tuple[Operation, Found]]]]) -> None:
        guards = {
            operation.name: [name for name in found.guards if name]
            for _, pairs in routes
            for operation, found in pairs
        }
        asking = {operation: names for operation, names in guards.items() if names}
        tell_that_it_is_open(self._provider, asking, self._remedy)

    def name(self, scope: Scope, path: str) -> str:
        line = f"{scope['method']} {path}"
        found = self._find(scope, line)
        return line if found is None else found[0].name

    def is_operation(self, scope: Scope, path: str) -> bool:
        found = self._find(scope, f"{scope['method']} {path}")
        return found is not None and found[1].is_told

    def _find(self, scope: Scope, line: str) -> tuple[Operation, Found] | None:
        endpoint = scope.get("endpoint")
        if endpoint is None:
            return None  # nothing was found for it, or it did not come as far as the routes
        known = self._by_endpoint.get(id(endpoint))
        if known is None:
            self.listed()  # a route may have been added
            known = self._by_endpoint.setdefault(id(endpoint), (endpoint, []))
        return next((one for one in known[1] if one[0].pattern.fullmatch(line)), None)


def endpoint_for(provider: Provider, endpoints: ContractEndpoints, path: str) -> Endpoint:
    """What answers calls to one of the contract's endpoints."""

    async def answer(request: Request) -> Response:
        call, pin = call_of(request.scope, path), provider.pinned.get()
        if pin is not None:
            pin.answered = True
            if endpoints.is_for_the_feed(call) and not provider.feed.is_full:
                pin.listening = Listening(dict(call.headers), call.query)
                return Response()  # never sent: the feed begins when the app is done with the request
        told = await answered(endpoints, call, request.receive)
        media_type = None if told.status == 304 else told.content_type
        return Response(told.body, told.status, dict(told.headers), media_type)

    answer.__name__ = path.rpartition("/")[2]
    return answer


def put_under_contract(
    app: Starlette, provider: Provider, routes: AppRoutes, fixes: Collection[str] | None
) -> None:
    """Put the contract around the app's routes, and the operator's endpoints before everything else."""
    provider.attach(routes.listed)
    provider.tell_fixes_of(fixes or ())
    app.router.middleware_stack = UnderContract(app.router.middleware_stack, provider, routes)
    build_middleware_stack = app.build_middleware_stack
    app.build_middleware_stack = lambda: AdminMiddleware(build_middleware_stack(), provider)  # type: ignore[method-assign]


def list_routes(
    routes: Iterable[BaseRoute],
    prefix: str = "",
    guards: tuple[str, ...] = (),
    *,
    is_contract_guarded: bool = False,
) -> Iterator[Found | Opaque]:
    """The routes, those of mounted apps included."""
    for route in routes:
        if isinstance(route, Route):
            standing_before = (*guards, *guards_of_its_own(route))
            yield Found(
                prefix + route.path,
                route.methods,
                route.endpoint,
                standing_before,
                is_told=route.include_in_schema and bool(standing_before) >= is_contract_guarded,
            )
        elif isinstance(route, Mount | Host):
            below = prefix + getattr(route, "path", "")
            listing = partial(list_routes, is_contract_guarded=is_contract_guarded)
            yield from list_mounted(route.routes, route.app, below, guards, listing)
        elif not isinstance(route, WebSocketRoute):
            yield Opaque(prefix)


def list_mounted(
    routes: Sequence[BaseRoute],
    app: Any,
    path: str,
    guards: tuple[str, ...],
    list_them: Callable[..., Iterator[Found | Opaque]],
) -> Iterator[Found | Opaque]:
    """The routes of an app that is mounted at a path; a middleware on the way to them counts as a guard of theirs."""
    if not routes:
        yield Opaque(path)
        return
    is_plain = isinstance(app, Router | Starlette) and not getattr(app, "user_middleware", ())
    if not is_plain or _has_middleware(app):
        guards = (*guards, f"the middleware of {path or 'a mounted app'}")
    yield from list_them(routes, path, guards)


def guards_of_its_own(route: Route) -> Iterator[str]:
    """The decorator and the middleware that stand before an endpoint."""
    if not (inspect.isfunction(route.app) or route.app is route.endpoint):
        yield "a middleware of its own"
    if hasattr(route.endpoint, "__wrapped__"):
        yield "a decorator"


def _has_middleware(app: Any) -> bool:
    """Whether the router of a mounted app has middleware; a contract of its own is none."""
    stack = getattr(getattr(app, "router", app), "middleware_stack", None)
    return not (inspect.ismethod(stack) or isinstance(stack, UnderContract))


def _operations(route: Found) -> Iterator[Operation]:
    for method in route.methods or _ANY_METHOD:
        yield Operation.from_name(f"{method} {route.template}", is_guarded=bool(route.guards))


_ANY_METHOD = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
