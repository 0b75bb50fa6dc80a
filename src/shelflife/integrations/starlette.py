"""The contract inside a Starlette app: `install(app, provider)`.

The contract stands next to the routes. So every middleware of the app holds for it, whether it was added before or
after. Only the operator's endpoints stand before everything.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from shelflife.extras import needing
from shelflife.integrations.starlette_routes import AppRoutes, Guards, Handler, guards_of_its_own
from shelflife.server import Provider

with needing("server"):
    from starlette.applications import Starlette
    from starlette.routing import Route

__all__ = ["install"]

Decorator = Callable[[Handler], Handler]


def install(
    app: Starlette,
    provider: Provider,
    *,
    fixes: Collection[str] | None = None,
    guard: Decorator | None = None,
) -> None:
    """Give the app the contract: its endpoints as routes, its stamps, and its answer to `provider.check`.

    `guard` is a decorator for the contract's endpoints, such as `requires("authenticated")`. With one, only requests
    that were checked are told versions. `fixes` are the operations whose fixes are told without the request being
    made. By default these are plain functions with nothing before them: no decorator, and no middleware of a route, a
    mount or the app but Starlette's own.
    """
    _StarletteRoutes(app, provider, guard).install(fixes)


class _StarletteRoutes(AppRoutes):
    """The routes of an app. They have no login that could be compared: what has anything before it counts as
    guarded."""

    def __init__(self, app: Starlette, provider: Provider, guard: Decorator | None) -> None:
        super().__init__(
            app, provider, "" if guard else "give install a guard, such as requires('authenticated')"
        )
        self._guard = guard

    def _add(self, path: str, methods: Sequence[str], handler: Handler) -> Route:
        guarded = handler if self._guard is None else self._guard(handler)
        route = Route(path, guarded, methods=[*methods], include_in_schema=False)
        self._app.router.routes.append(route)
        return route

    def _standing(self, route: Any, declared: Route, guards: Guards) -> tuple[Guards, bool, bool]:
        guards = (*guards, *guards_of_its_own(route))
        return guards, route.include_in_schema, not guards and self._guard is None
