"""The contract inside of a FastAPI app, in one call, with OpenAPI that shows it."""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import wraps
from typing import Any

from shelflife.extras import needing
from shelflife.integrations.starlette import check_that_it_is_open, endpoint_for, put_under_contract
from shelflife.integrations.starlette_routes import (
    AppRoutes,
    Found,
    Opaque,
    decorators_of,
    guards_of_its_own,
    is_of_framework_itself,
    list_mounted,
)
from shelflife.server import Provider, UsageError
from shelflife.server.endpoints import (
    CHANGES_PATH,
    FIXES_PATH,
    GRAPH_PATH,
    RELOAD_RULES_PATH,
    RELOAD_TABLE_PATH,
    SIGNED_PATH,
    STATE_PATH,
    ContractEndpoints,
)
from shelflife.server.schemas import schema_components
from shelflife.server.wire import Level

with needing("server"):
    from fastapi import FastAPI, params, routing
    from fastapi.dependencies.models import Dependant
    from starlette.routing import BaseRoute, Host, Mount, Route, WebSocketRoute

__all__ = ["install"]

_METHODS = {"get", "put", "post", "delete", "options", "patch", "trace"}
_REMEDY = (
    "give install the dependencies that they need, as dependencies=[Depends(...)], or [] if this is meant"
)


def install(
    app: FastAPI,
    provider: Provider,
    *,
    dependencies: Sequence[params.Depends] | None = None,
    fixes: Collection[str] | None = None,
) -> None:
    """Give the app the contract: its endpoints as routes, its stamps, and its answer to `provider.check`.

    The app's own dependencies hold for the contract's endpoints. `dependencies` are more of them, for an app in which routes have a login each; then operations that ask for less tell
    no versions. `fixes` are the operations whose fixes are told without the request being made; by default, those that ask for no more than the contract's endpoints do, in an app without middleware but Starlette's own.
    """
    check_that_it_is_open(app)
    given: object = dependencies or []
    if not isinstance(given, Sequence) or not all(isinstance(one, params.Depends) for one in given):
        raise UsageError("the dependencies of the contract are a list of Depends(...)")
    contract = _Contract(app, provider, dependencies or ())
    routes = AppRoutes(app, provider, contract.list_routes, _REMEDY if dependencies is None else "")
    endpoints = ContractEndpoints(provider, routes.disclosed(fixes))
    for path, endpoint in endpoints.by_path.items():
        method = endpoint.methods[0]  # no HEAD: routes of FastAPI do not take it either
        routes.add_own(contract.add_route(path, method, endpoint_for(provider, endpoints, path)))
    put_under_contract(app, provider, routes)
    plain_openapi = app.openapi

    shown: list[dict[str, Any]] = []

    def openapi() -> dict[str, Any]:
        document = plain_openapi()  # which makes it anew when it has to
        if not any(document is one for one in shown):
            _show_contract(document, provider)
            shown[:] = [document]
        return document

    app.openapi = openapi  # type: ignore[method-assign]


class _Contract:
    """The contract's routes in an app, and how the others compare: whoever has passed as much may be told as much."""

    def __init__(self, app: FastAPI, provider: Provider, dependencies: Sequence[params.Depends]) -> None:
        self._app = app
        self._provider = provider
        self._dependencies = dependencies
        self._own: list[routing.APIRoute] = []

    def add_route(self, path: str, method: str, endpoint: Callable[..., Any]) -> BaseRoute:
        """Make an endpoint a route of the app's own."""
        router = self._app.router
        router.add_api_route(
            path,
            endpoint,
            methods=[method],
            dependencies=self._dependencies,
            response_model=None,
            **_SHOWN[path],
        )
        route = router.routes[-1]
        if isinstance(route, routing.APIRoute):
            self._own.append(route)
        return route

    def list_routes(
        self, routes: Iterable[Any], prefix: str = "", guards: tuple[str, ...] = ()
    ) -> Iterator[Found | Opaque]:
        """The routes of the app, of routers that it includes and of apps that are mounted in it."""
        for included in routes:
            own = ("a router of its own kind",) if _has_router_of_its_own_kind(included) else ()
            for route in routing.iter_route_contexts([included]):
                kind = route.original_route
                if isinstance(kind, Route):
                    if not any(kind is one for one in self._own):
                        yield self._found(route, kind, prefix, (*guards, *own))
                elif isinstance(kind, Mount | Host):
                    yield from list_mounted(kind, route, prefix, (*guards, *own), self.list_routes)
                elif not isinstance(kind, WebSocketRoute):
                    yield Opaque(prefix)

    def _found(self, route: routing.RouteContext, kind: Route, prefix: str, guards: tuple[str, ...]) -> Found:
        demands, asked_for = _demands_of(route), self._asked_for()
        is_api_route = isinstance(kind, routing.APIRoute)
        own = self._guards_of_api_route(kind) if is_api_route else guards_of_its_own(kind)
        is_stamped = is_api_route and demands.keys() >= asked_for.keys()
        if is_stamped:
            _note_runs(route.dependant, self._provider)
        return Found(
            prefix + (route.path or ""),
            route.methods,
            route.endpoint,
            (*guards, *own, *(demands[one] for one in demands.keys() - asked_for.keys())),
            # What is no route of an API has none of the app's dependencies either: the documentation, say.
            bool(is_api_route and route.include_in_schema),
            lambda pin: is_stamped and pin.has_run,
        )

    def _guards_of_api_route(self, route: Route) -> Iterator[str]:
        if not any(type(route) is type(own) for own in self._own):
            yield f"a {type(route).__name__}"
        yield from decorators_of(route.endpoint)

    def _asked_for(self) -> "dict[_Demand, str]":
        """What the contract's endpoints ask for: all of them the same."""
        return _demands_of(self._own[0]) if self._own else {}


def _has_router_of_its_own_kind(route: Any) -> bool:
    """Whether a router that is included here, or in one that is, may do more than find routes."""
    router = getattr(route, "original_router", None)
    return router is not None and (
        not is_of_framework_itself(router) or any(map(_has_router_of_its_own_kind, router.routes))
    )


def _note_runs(dependant: Dependant, provider: Provider) -> None:
    """Have it noted when an endpoint is called: from then on a success is its own. Before, it may be that of whoever handles what a login has raised."""
    call = dependant.call
    if call is None:
        return
    noted_for: list[Provider] = getattr(call, "noted_for", [])
    if noted_for:  # also by an app that shares the route
        if not any(one is provider for one in noted_for):
            noted_for.append(provider)
        return
    noted_for.append(provider)

    @wraps(call)  # FastAPI looks through it, for what kind of function it is
    def noted(*arguments: Any, **named: Any) -> Any:
        for one in noted_for:
            pin = one.pin
            if pin is not None:
                pin.has_run = True
        return call(*arguments, **named)

    noted.noted_for = noted_for  # type: ignore[attr-defined]
    dependant.call = noted


_Demand = tuple[Any, frozenset[str]]
"""A dependency and the security scopes that it needs."""


def _demands_of(route: Any) -> dict[_Demand, str]:
    """What a route asks for before its endpoint runs, by name, at any depth."""
    dependant: Dependant | None = getattr(route, "dependant", None)
    return {} if dependant is None else dict(_demands_in(dependant))


def _demands_in(dependant: Dependant) -> Iterator[tuple[_Demand, str]]:
    for needed in dependant.dependencies:
        scopes = (*(needed.parent_oauth_scopes or ()), *(needed.own_oauth_scopes or ()))
        is_hashable = getattr(needed.call, "__hash__", None) is not None
        yield (needed.call if is_hashable else id(needed.call), frozenset(scopes)), _name_of(needed.call)
        yield from _demands_in(needed)


def _name_of(dependency: Any) -> str:
    """What a dependency is called; nothing for one that yields, which mostly opens something and keeps nobody out."""
    if inspect.isgeneratorfunction(dependency) or inspect.isasyncgenfunction(dependency):
        return ""
    return getattr(dependency, "__name__", type(dependency).__name__)


def _show_contract(document: dict[str, Any], provider: Provider) -> None:
    """Write the contract into the app's OpenAPI document, which anybody may read: nothing in it is of the tables."""
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for path, operations in document.get("paths", {}).items():
        for method, operation in operations.items():
            if method in _METHODS and path not in _SHOWN:
                _show_answers(operation, provider, schemas)
    if provider.level == Level.PLAIN_TEXT:
        return
    for name, schema in schema_components().items():
        schemas.setdefault(name, schema)
    if provider.admin_token is not None:
        components.setdefault("securitySchemes", {})["AdminToken"] = {"type": "http", "scheme": "bearer"}
        document["paths"].update(_admin_paths(provider))


def _show_answers(operation: dict[str, Any], provider: Provider, schemas: dict[str, Any]) -> None:
    responses = operation.setdefault("responses", {})
    if provider.level == Level.PLAIN_TEXT:
        if "requestBody" in operation:
            _content(responses, "422", "The request violates a policy")["text/plain"] = {
                "schema": {"type": "string"}
            }
        return
    for status, response in responses.items():
        media = response.get("content", {}).get("application/json")
        if media and status.startswith("2") and _is_object(media.get("schema", {}), schemas):
            media["schema"] = {"allOf": [media["schema"], _ref("ContractState")]}
    if "requestBody" in operation:
        content = _content(responses, "422", "The request is malformed, or violates a policy")
        malformed = content.get("application/json", {}).get("schema")
        either = {"anyOf": [_ref("Rejection"), malformed]} if malformed else _ref("Rejection")
        content["application/json"] = {"schema": either}
        content["application/problem+json"] = {"schema": _ref("Problem")}


def _is_object(schema: dict[str, Any], schemas: dict[str, Any]) -> bool:
    if "$ref" in schema:
        schema = schemas.get(schema["$ref"].rpartition("/")[2], {})
    return schema.get("type") == "object"


def _content(responses: dict[str, Any], status: str, description: str) -> dict[str, Any]:
    response = responses.setdefault(status, {})
    response["description"] = description
    content: dict[str, Any] = response.setdefault("content", {})
    return content


def _admin_paths(provider: Provider) -> dict[str, Any]:
    def admin(summary: str, answer: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        operation: dict[str, Any] = {
            "operationId": summary.lower().replace(" ", "_"),
            "tags": ["admin"],
            "summary": summary,
            "security": [{"AdminToken": []}],
            "responses": {"200": _answer("Done", answer), "401": _error("A wrong token")},
        }
        if body:
            operation["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": body}},
            }
            operation["responses"] |= {
                "400": _error("Malformed JSON"),
                "404": _error("No such table"),
                "409": _error("The version stands for other content"),
                "413": _error("Too large"),
                "422": _error("Not what a table or rule may be"),
                "429": _error("Too many reloads"),
                "503": _error("The state file cannot be written"),
            }
        return operation

    reload_table = {"allOf": [_ref("ReloadTable"), _either("rows", "set", "remove")]}
    reload_rules = {"allOf": [_ref("ReloadRules"), _either("rules", "add", "remove")]}
    paths = {
        RELOAD_TABLE_PATH: {"post": admin("Reload a table", "ReloadReport", reload_table)},
        RELOAD_RULES_PATH: {"post": admin("Reload the rules", "RulesReport", reload_rules)},
    }
    if provider.level >= Level.GRAPH:
        paths[GRAPH_PATH] = {"get": admin("Show the graph", "Graph")}
    return paths


def _either(whole: str, *change: str) -> dict[str, Any]:
    """Either the member with the whole, or at least one of those with a change."""
    return {
        "oneOf": [{"required": [whole]}, {"anyOf": [{"required": [member]} for member in change]}],
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _answer(description: str, message: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": _ref(message)}}}


def _error(description: str) -> dict[str, Any]:
    return {
        "description": description,
        "content": {
            "application/json": {"schema": _ref("ErrorMessage")},
            "application/problem+json": {"schema": _ref("Problem")},
        },
    }


def _parameter(name: str, place: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": place, "description": description, "schema": {"type": "string"}}


def _shown(
    operation_id: str, summary: str, responses: dict[int, dict[str, Any]], **extra: Any
) -> dict[str, Any]:
    return {
        "operation_id": operation_id,
        "summary": summary,
        "tags": ["contract"],
        "responses": responses,
        "openapi_extra": extra,
    }


_SHOWN: dict[str, dict[str, Any]] = {
    STATE_PATH: _shown(
        "contract_state",
        "The current versions",
        {200: _answer("The versions", "ContractState"), 304: {"description": "Nothing has moved"}},
        parameters=[
            _parameter("If-None-Match", "header", "The ETag of the state that is known"),
            _parameter("known", "query", "Its epoch"),
        ],
    ),
    CHANGES_PATH: _shown(
        "contract_changes",
        "What changed since versions that a client holds",
        {200: _answer("The changes", "Changes"), 400: _error("A malformed query")},
        parameters=[
            {
                "name": "since",
                "in": "query",
                "description": "table:version, once for each table",
                "schema": {"type": "array", "items": {"type": "string", "pattern": "^[^:]+:.+$"}},
            },
            _parameter("rules", "query", "The rules_version that is known"),
        ],
    ),
    FIXES_PATH: _shown(
        "contract_fixes",
        "What would be suggested for a request",
        {
            200: _answer("The suggestions", "Rejection"),
            400: _error("Malformed JSON"),
            404: _error("Fixes of this operation are not told here"),
            413: _error("Too large"),
            422: _error("Not a question"),
        },
        requestBody={"required": True, "content": {"application/json": {"schema": _ref("AskFixes")}}},
    ),
    SIGNED_PATH: _shown(
        "contract_signed",
        "The signed state",
        {
            200: _answer("The statements", "SignedStates"),
            400: _error("A malformed query"),
            503: _error("The state file cannot be written"),
        },
        parameters=[
            {
                "name": "since",
                "in": "query",
                "description": "The number of the last statement that is known",
                "schema": {"type": "integer", "minimum": 0, "maximum": 10**18 - 1},
            },
        ],
    ),
}
"""How the contract's endpoints are shown in the app's OpenAPI document."""
