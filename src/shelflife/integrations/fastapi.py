"""The contract inside a FastAPI app, in one call, and in its OpenAPI document."""

import inspect
from collections.abc import Collection, Iterator, Sequence
from functools import wraps
from typing import Any

from shelflife.extras import needing
from shelflife.integrations.fastapi_schema import endpoints_described, show_contract
from shelflife.integrations.starlette import AppRoutes, Guards, Handler, guards_of_its_own, is_of_framework
from shelflife.integrations.taking import takes
from shelflife.server import Provider, UsageError
from shelflife.server.models import DICTIONARY, Reader

with needing("server"):
    from fastapi import FastAPI, params, routing
    from fastapi.dependencies.models import Dependant
    from starlette.routing import BaseRoute, Route

__all__ = ["install"]


def install(
    app: FastAPI,
    provider: Provider,
    *,
    dependencies: Sequence[params.Depends] | None = None,
    fixes: Collection[str] | None = None,
) -> None:
    """Give the app the contract: its endpoints as routes, its stamps, and its answer to `provider.check`.

    The app's own dependencies hold for the contract's endpoints. `dependencies` are more of them, for an app in which
    routes have a login each. Operations that ask for less then tell no versions. `fixes` are the operations whose
    fixes are told without the request being made. By default these are the ones that ask for no more than the
    contract's endpoints do, in an app without middleware but Starlette's own.
    """
    takes(
        "install of integrations.fastapi takes a FastAPI app and a Provider",
        (app, FastAPI),
        (provider, Provider),
    )
    remedy = (
        "give install the dependencies that they need, as dependencies=[Depends(...)], or [] if this is meant"
    )
    routes = _FastAPIRoutes(app, provider, remedy if dependencies is None else "")
    described = endpoints_described()["paths"]
    given: object = dependencies or []
    if not isinstance(given, Sequence) or not all(isinstance(one, params.Depends) for one in given):
        raise UsageError("the dependencies of the contract are a list of Depends(...)")

    def add(path: str, methods: Sequence[str], handler: Handler) -> None:
        app.router.add_api_route(
            path,
            handler,
            methods=[methods[0]],  # no HEAD: routes of FastAPI do not take it either
            dependencies=dependencies,
            response_model=None,
            openapi_extra=described[path][methods[0].lower()],
        )

    routes.install(add, fixes)
    plain_openapi = app.openapi
    shown: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        nonlocal shown
        document = plain_openapi()  # which makes it anew when it has to
        if document is not shown:
            show_contract(document, provider)
            shown = document
        return document

    app.openapi = openapi  # type: ignore[method-assign]


class _FastAPIRoutes(AppRoutes):
    """The routes of an app, and how they compare with the contract's: whoever has passed as much may be told
    as much."""

    _router = routing.APIRouter
    _notes_runs = True

    def _parts_of(self, route: BaseRoute) -> Iterator[tuple[Any, BaseRoute, Guards]]:
        own = ("a router of its own kind",) if _has_router_of_its_own_kind(route) else ()
        for part in routing.iter_route_contexts([route]):
            yield part, part.original_route, own

    def _body_of(self, route: Any) -> Reader | None:
        parts = list(_body_params(getattr(route, "dependant", None)))
        if not parts:
            return DICTIONARY
        asked_for = parts[0].field_info
        are_parts = [(one.name, one.field_info.annotation, one.field_info.metadata) for one in parts]
        is_one = all(one == are_parts[0] for one in are_parts)
        is_usual = type(getattr(route, "original_route", route)) is routing.APIRoute
        if not is_one or not is_usual or getattr(asked_for, "embed", None):
            return None
        return Reader.of_pydantic(asked_for.annotation, *asked_for.metadata)

    def _standing(self, route: Any, declared: Route, guards: Guards) -> tuple[Guards, bool, bool]:
        contract = next(iter(self.own), None)
        demands, asked_for = _demands_of(route), _demands_of(contract)
        is_api_route = isinstance(declared, routing.APIRoute)
        own = guards_of_its_own(declared, type(contract) if is_api_route else Route)
        is_stamped = is_api_route and demands.keys() >= asked_for.keys()
        # What is no route of an API has none of the app's dependencies either: the documentation, say.
        is_shown = bool(is_api_route and route.include_in_schema)
        if is_shown and is_stamped:
            self._note_runs(route.dependant)
        guards = (*guards, *own, *(demands[one] for one in demands.keys() - asked_for.keys()))
        return guards, is_shown, is_stamped

    def _note_runs(self, dependant: Dependant) -> None:
        """Have it noted when an endpoint is called. From then on a success is its own. Before, it may come from a
        handler of what a login has raised."""
        call: Any = dependant.call
        noted_for = getattr(call, "noted_for", ())
        if self in noted_for:
            return
        pinned, finds = self._provider.pinned.get, self._finds

        @wraps(call)  # FastAPI looks through it, for what kind of function it is
        def noted(**named: Any) -> Any:
            pin = pinned()
            if pin is not None and pin.find is finds:
                pin.has_run = True
            return call(**named)

        # Another app may share the route, and tell nothing of it.
        noted.noted_for = (*noted_for, self)  # type: ignore[attr-defined]
        dependant.call = noted


def _body_params(dependant: Any) -> Iterator[Any]:
    """What a route and its dependencies ask for of a body."""
    yield from getattr(dependant, "body_params", ())
    for needed in getattr(dependant, "dependencies", ()):
        yield from _body_params(needed)


def _has_router_of_its_own_kind(route: Any) -> bool:
    """Whether a router that is included here, at any depth, may do more than find routes."""
    router = getattr(route, "original_router", None)
    return router is not None and (
        not is_of_framework(router) or any(map(_has_router_of_its_own_kind, router.routes))
    )


_Demand = tuple[Any, frozenset[str]]
"""A dependency and the security scopes that it needs."""


def _demands_of(asking: Any) -> dict[_Demand, str]:
    """What a route or a dependency asks for before it runs, by name, at any depth."""
    demands: dict[_Demand, str] = {}
    dependant = getattr(asking, "dependant", asking)
    for needed in getattr(dependant, "dependencies", ()):
        scopes = (*(needed.parent_oauth_scopes or ()), *(needed.own_oauth_scopes or ()))
        is_hashable = getattr(needed.call, "__hash__", None) is not None
        demands[needed.call if is_hashable else id(needed.call), frozenset(scopes)] = _name_of(needed.call)
        demands |= _demands_of(needed)
    return demands


def _name_of(dependency: Any) -> str:
    """The name of a dependency. One that yields has none: it mostly opens something, and keeps nobody out."""
    if inspect.isgeneratorfunction(dependency) or inspect.isasyncgenfunction(dependency):
        return ""
    return getattr(dependency, "__name__", type(dependency).__name__)
