"""The contract inside a Starlette app: `install(app, provider)`.

The contract stands next to the routes. So every middleware of the app holds for it, whether it was added before or
after. Only the operator's endpoints stand before everything.
"""

from collections.abc import Collection

from shelflife.extras import needing
from shelflife.integrations.starlette_routes import AppRoutes, Decorator
from shelflife.server import Provider

with needing("server"):
    from starlette.applications import Starlette

__all__ = ["install"]


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
    remedy = "" if guard else "give install a guard, such as requires('authenticated')"
    AppRoutes(app, provider, remedy, guard).install(fixes)
