"""The contract inside a Starlette app: `install(app, provider)`.

What belongs to the contract stands next to the routes, so that every middleware of the app holds for it, whether it was added before or after. Only the operator's endpoints stand before everything.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any

from shelflife.extras import needing
from shelflife.integrations.asgi import AdminMiddleware
from shelflife.integrations.starlette_routes import AppRoutes, Found, Opaque, guards_of_its_own, list_mounted
from shelflife.integrations.under_contract import UnderContract, answer_in_app
from shelflife.server import Provider, UsageError
from shelflife.server.endpoints import ContractEndpoints
from shelflife.server.pins import Pin

with needing("server"):
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute, Host, Mount, Route, WebSocketRoute

__all__ = ["check_that_it_is_open", "endpoint_for", "install", "put_under_contract"]

Handler = Callable[[Request], Any]


def install(
    app: Starlette,
    provider: Provider,
    *,
    fixes: Collection[str] | None = None,
    guard: Callable[[Handler], Handler] | None = None,
) -> None:
    """Give the app the contract: its endpoints as routes, its stamps, and its answer to `provider.check`.

    `guard` is a decorator for the contract's endpoints, such as `requires("authenticated")`; then only requests that were checked are told versions. `fixes` are the operations whose fixes are told without the
    request being made; by default, those that are plain functions with nothing before them: no decorator, no middleware of a route, a mount or the app but Starlette's own.
    """
    check_that_it_is_open(app)
    remedy = "" if guard else "give install a guard, such as requires('authenticated')"
    listing = partial(_list_routes, is_contract_guarded=guard is not None)
    routes = AppRoutes(app, provider, listing, remedy)
    endpoints = ContractEndpoints(provider, routes.disclosed(fixes))
    for path, endpoint in endpoints.by_path.items():
        handler = endpoint_for(provider, endpoints, path)
        if guard is not None:
            handler = guard(handler)
        route = Route(path, handler, methods=[*endpoint.methods], include_in_schema=False)
        app.router.routes.append(route)
        routes.add_own(route)
    put_under_contract(app, provider, routes)


def check_that_it_is_open(app: Starlette) -> None:
    """Raise `UsageError` when nothing can be installed in an app any more."""
    if app.middleware_stack is not None:
        raise UsageError("the contract cannot be installed in an app that serves already")
    if isinstance(app.router.middleware_stack, UnderContract):
        raise UsageError("a contract is installed in this app already; an app has one provider")


def put_under_contract(app: Starlette, provider: Provider, routes: "AppRoutes") -> None:
    """Put the contract around the app's routes, and the operator's endpoints before everything else."""
    provider.attach(routes.listed)
    app.router.middleware_stack = UnderContract(app.router.middleware_stack, provider, routes)
    build_plain_stack = app.build_middleware_stack

    def build_middleware_stack() -> AdminMiddleware:
        return AdminMiddleware(build_plain_stack(), provider)

    # Unless somebody else has done the same before: then more than is listed stands before the app.
    build_middleware_stack.is_of_the_contract = inspect.ismethod(build_plain_stack)  # type: ignore[attr-defined]
    app.build_middleware_stack = build_middleware_stack  # type: ignore[method-assign]


def endpoint_for(provider: Provider, endpoints: ContractEndpoints, path: str) -> Handler:
    """What answers calls to one of the contract's endpoints."""

    async def answer(request: Request) -> Response:
        # By the request's own stream: a login may have read the body before.
        told = await answer_in_app(provider, endpoints, request.scope, path, request.stream())
        if told is None:
            return Response()  # never sent: the feed begins when the app is done with the request
        media_type = None if told.status == 304 else told.content_type
        return Response(told.body, told.status, dict(told.headers), media_type)

    answer.__name__ = path.rpartition("/")[2]
    return answer


def _list_routes(
    routes: Iterable[BaseRoute],
    prefix: str = "",
    guards: tuple[str, ...] = (),
    *,
    is_contract_guarded: bool,
) -> Iterator[Found | Opaque]:
    for route in routes:
        if isinstance(route, Route):
            standing_before = (*guards, *guards_of_its_own(route))
            is_stamped = not standing_before and not is_contract_guarded
            yield Found(
                prefix + route.path,
                route.methods,
                route.endpoint,
                standing_before,
                route.include_in_schema,
                _fixed(is_stamped),
            )
        elif isinstance(route, Mount | Host):
            listing = partial(_list_routes, is_contract_guarded=is_contract_guarded)
            yield from list_mounted(route, route, prefix, guards, listing)
        elif not isinstance(route, WebSocketRoute):
            yield Opaque(prefix)


def _fixed(is_stamped: bool) -> Callable[[Pin], bool]:
    return lambda pin: is_stamped
