"""The routes of a Starlette app, as FastAPI's are too: which operation a request is for, and what stands before it."""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

from shelflife.extras import needing
from shelflife.integrations.under_contract import Scope, UnderContract, warn_that_it_is_open
from shelflife.server import Provider
from shelflife.server.operations import DisclosedFixes, Operation, Operations
from shelflife.server.pins import Pin

with needing("server"):
    from starlette.applications import Starlette
    from starlette.routing import BaseRoute, Host, Mount, Route, Router, compile_path
    from starlette.staticfiles import StaticFiles

__all__ = [
    "AppRoutes",
    "Found",
    "Opaque",
    "decorators_of",
    "guards_of_its_own",
    "is_of_framework_itself",
    "list_mounted",
]

_ANY_METHOD = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_MOST_UNKNOWN = 1000
_LETS_EVERYBODY_IN = (
    *("starlette.middleware.cors", "starlette.middleware.gzip", "starlette.middleware.httpsredirect"),
    *("starlette.middleware.sessions", "starlette.middleware.trustedhost"),
)
"""Middleware that is no login. Any other may ask for something, and for another thing at another path."""


class Found(NamedTuple):
    """A route of an app, or of one that is mounted in it."""

    template: str
    methods: Collection[str] | None
    """None when the endpoint takes any."""

    endpoint: Any
    guards: tuple[str, ...]
    """What stands before the endpoint and not before the contract's, by name; one that keeps nobody out has none."""

    is_shown: bool
    is_stamped: Callable[[Pin], bool]
    """Whether a success carries stamps though it was not checked."""

    def operations(self, *, is_guarded: bool) -> Iterator[Operation]:
        """Its operations: one for each method."""
        path: re.Pattern[str] = compile_path(self.template)[0]
        for method in self.methods or _ANY_METHOD:
            if method != "HEAD":  # a GET by another name
                yield Operation.of_route(
                    method,
                    self.template,
                    path,
                    is_guarded=is_guarded or bool(self.guards),
                    is_shown=self.is_shown,
                )


class Opaque(NamedTuple):
    """A part of an app whose own routes cannot be seen."""

    path: str


Listing = Callable[[Iterable[BaseRoute]], Iterator[Found | Opaque]]


class _Listed(NamedTuple):
    """The routes of an app as they were listed last. One value, so that whoever looks at it meanwhile sees all of it or nothing."""

    by_endpoint: dict[int, list[tuple[Operation, Found]]]
    by_method: dict[tuple[int, str], list[tuple[Operation, Found]]]
    operations: Operations
    unknown: dict[int, Any]
    """Endpoints that are none of these, by identity; kept, so that no other gets it."""

    route_count: int
    """How many there were: with another one they are listed anew."""


class AppRoutes:
    """The routes of an app, found by the endpoint that the app itself has chosen for a request."""

    def __init__(self, app: Starlette, provider: Provider, listing: Listing, remedy: str) -> None:
        """`remedy` says what to do about operations that ask for more than the contract; empty when that is meant."""
        self._app = app
        self._provider = provider
        self._listing = listing
        self._remedy = remedy
        self._own: list[Route] = []
        self._listed = _Listed({}, {}, Operations(), {}, -1)

    def add_own(self, route: BaseRoute) -> None:
        """Note a route of the contract's; it is put where it belongs when all others are there."""
        if isinstance(route, Route):
            self._own.append(route)

    def disclosed(self, fixes: Collection[str] | None) -> DisclosedFixes:
        """Of which operations fixes are told to whoever may ask the contract."""
        self._provider.disclose_fixes_of(fixes or ())
        return DisclosedFixes(lambda: self._listed.operations, self._provider.is_checked, fixes)

    def listed(self) -> Operations:
        """All operations, as the app is now."""
        self._place_own_routes()
        found = list(self._listing(self._app.routes))
        is_guarded = _has_middleware_of_its_own(self._app)
        by_endpoint: dict[int, list[tuple[Operation, Found]]] = {}
        for route in found:
            if isinstance(route, Found):
                pairs = by_endpoint.setdefault(id(route.endpoint), [])
                pairs += ((operation, route) for operation in route.operations(is_guarded=is_guarded))
        all_pairs = [pair for pairs in by_endpoint.values() for pair in pairs]
        opaque = (route.path for route in found if isinstance(route, Opaque))
        operations = Operations((operation for operation, _ in all_pairs), opaque)
        by_method: dict[tuple[int, str], list[tuple[Operation, Found]]] = {}
        for endpoint, pairs in by_endpoint.items():
            for pair in pairs:
                for method in pair[0].methods:
                    by_method.setdefault((endpoint, method), []).append(pair)
        self._listed = _Listed(by_endpoint, by_method, operations, {}, len(self._app.router.routes))
        if self._remedy:
            guards = {operation.name: route.guards for operation, route in all_pairs}
            warn_that_it_is_open(self._provider, guards, self._remedy)
        return operations

    def name(self, scope: Scope, path: str) -> str | None:
        found = self._find(scope, path)
        if found is not None:
            return found[0].name
        # In a part of the app that cannot be seen, or before a mounted app has found its route: what is listed may not be
        # what the app chooses, so that only a policy's own path counts.
        operation = self._provider.policies.operations.guess(scope["method"], path)
        return None if operation is None else operation.name

    def is_stamped(self, scope: Scope, path: str, pin: Pin) -> bool:
        found = self._find(scope, path)
        return found is not None and found[1].is_shown and found[1].is_stamped(pin)

    def _find(self, scope: Scope, path: str) -> tuple[Operation, Found] | None:
        """By what the app has chosen. The path decides only between several routes of one endpoint: the app may understand paths otherwise than we."""
        endpoint = scope.get("endpoint")
        if endpoint is None:
            return None  # nothing was found for it, or it did not come as far as the routes
        listed = self._listed
        if listed.route_count != len(self._app.router.routes):
            self.listed()
            listed = self._listed
        pairs = listed.by_endpoint.get(id(endpoint))
        if pairs is None and id(endpoint) not in listed.unknown and len(listed.unknown) < _MOST_UNKNOWN:
            self.listed()  # a route may have been added
            listed = self._listed
            pairs = listed.by_endpoint.get(id(endpoint))
            if pairs is None:
                listed.unknown[id(endpoint)] = endpoint
        fitting = listed.by_method.get((id(endpoint), scope["method"]), ())
        if len(fitting) == 1:
            return fitting[0]
        return next((pair for pair in fitting if pair[0].path.match(path)), None)

    def _place_own_routes(self) -> None:
        """Once, before the first request: the contract's routes come last, so that no request for another has to pass them; but before one that takes their paths."""
        own, self._own = self._own, []
        if not own:
            return
        routes = self._app.router.routes
        others = [route for route in routes if not any(route is one for one in own)]
        paths = [one.path for one in own]
        taken = (index for index, route in enumerate(others) if _may_take(route, paths))
        at = next(taken, len(others))
        routes[:] = [*others[:at], *own, *others[at:]]


def _may_take(route: BaseRoute, paths: Iterable[str]) -> bool:
    """Whether a request for one of these paths may be for a route: only of a plain one is it known that it is not."""
    if not is_of_framework_itself(route) or not isinstance(route, Route):
        return True
    return any(route.path_regex.match(path) for path in paths)


def list_mounted(
    kind: Mount | Host,
    mount: Any,
    prefix: str,
    guards: tuple[str, ...],
    list_them: Callable[..., Iterator[Found | Opaque]],
) -> Iterator[Found | Opaque]:
    """The routes of a mounted app; `mount` says where it is, which for an included router is not in the route itself. Whatever may stand on the way to them counts as a guard of theirs."""
    path = prefix + (mount.path or "") if isinstance(kind, Mount) else prefix
    if isinstance(mount.app, StaticFiles):
        return
    if not mount.routes:
        yield Opaque(path)
        return
    if type(kind) not in (Mount, Host) or not _is_plain(mount.app):
        guards = (*guards, f"the middleware of {path or 'a mounted app'}")
    yield from list_them(mount.routes, path, guards)


def guards_of_its_own(route: Route) -> Iterator[str]:
    """What stands before an endpoint, or might: only a plain function that is called by a plain route has nothing."""
    if type(route) is not Route:
        yield f"a {type(route).__name__}"
    if not inspect.isfunction(route.app):
        yield "a middleware, or an endpoint that is no function"
    yield from decorators_of(route.endpoint)


def decorators_of(endpoint: Any) -> Iterator[str]:
    """What is wrapped around the function that answers; one that does not say so cannot be seen."""
    if not inspect.isroutine(endpoint) or hasattr(endpoint, "__wrapped__"):
        yield "a decorator"


def _is_plain(app: Any) -> bool:
    """Whether a mounted app has no middleware, and is none: a contract of its own is none."""
    if not is_of_framework_itself(app) or not isinstance(app, Router | Starlette):
        return False
    router = getattr(app, "router", app)
    is_altered = getattr(app, "user_middleware", ()) or getattr(app, "dependency_overrides", {})
    return not is_altered and is_of_framework_itself(router) and not _has_stack(router.middleware_stack)


def _has_middleware_of_its_own(app: Starlette) -> bool:
    """Whether something stands before all of the app that may ask for another thing at each path."""
    return (
        not (is_of_framework_itself(app) and is_of_framework_itself(app.router))
        or not getattr(app.build_middleware_stack, "is_of_the_contract", False)
        or _has_stack(app.router.middleware_stack)
        or any(
            getattr(middleware.cls, "__module__", "") not in _LETS_EVERYBODY_IN
            for middleware in app.user_middleware
        )
    )


def is_of_framework_itself(part: Any) -> bool:
    """Whether something is just what Starlette or FastAPI has, and not somebody's own kind of it."""
    return type(part).__module__.partition(".")[0] in ("starlette", "fastapi")


def _has_stack(stack: Any) -> bool:
    """Whether a router calls something before its own routes; the contract does not count."""
    if isinstance(stack, UnderContract):
        stack = stack.app
    return not inspect.ismethod(stack)
