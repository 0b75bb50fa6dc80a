"""The contract inside a Flask app: `install(app, provider)`.

The endpoints for clients are routes of the app, so its `before_request` functions hold for them. Only the operator's endpoints stand
before everything. What a decorator of a view asks for cannot be seen: so only responses to requests that were checked tell of the
contract, and fixes are told only of operations that are named.
"""

import re
from collections.abc import Callable, Collection
from typing import Any

from shelflife.extras import needing
from shelflife.integrations.taking import takes
from shelflife.integrations.wsgi import EndpointsFirst, UnderContract, answer_call
from shelflife.server import Provider, UsageError
from shelflife.server.admin import AdminEndpoints
from shelflife.server.endpoints import ContractEndpoints
from shelflife.server.feedback import Answer
from shelflife.server.operations import Operation, Operations
from shelflife.server.pinning import answer_to

with needing("flask"):
    from flask import Flask, Response, has_request_context, request

__all__ = ["install"]

_PARAMETER = re.compile(r"<(?:([^<>:(]+)(?:\([^<>]*\))?:)?([^<>]+)>")
_NOT_LISTED = {"HEAD", "OPTIONS"}

View = Callable[[], Any]


def install(
    app: Flask,
    provider: Provider,
    *,
    fixes: Collection[str] = (),
    login: Callable[[View], View] | None = None,
) -> None:
    """Give the app the contract: its endpoints as routes, its stamps, and its answer to `provider.check`.

    `login` is a decorator for the contract's endpoints, such as `login_required`. `fixes` are the operations whose fixes are told to
    whoever may ask there, without the request being made.
    """
    takes(
        "install of integrations.flask takes a Flask app and a Provider", (app, Flask), (provider, Provider)
    )
    if "shelflife" in app.extensions:
        raise UsageError("a contract is installed in this app already; an app has one provider")
    app.extensions["shelflife"] = provider
    routes = _Routes(app)
    endpoints = ContractEndpoints(provider, provider.apps.disclosed_fixes(routes.listed, fixes))
    for path, endpoint in endpoints.by_path.items():
        view = _view_of(endpoints, path)
        app.add_url_rule(
            path,
            path.strip("/").replace("/", "_"),
            login(view) if login else view,
            methods=list(endpoint.methods),
            provide_automatic_options=False,
        )
    provider.apps.attach(routes.listed)
    contract = UnderContract(app.wsgi_app, provider, routes.find)
    app.wsgi_app = EndpointsFirst(contract, AdminEndpoints(provider))  # type: ignore[method-assign]
    handle: Callable[[Exception], Any] = app.handle_user_exception

    def handle_user_exception(error: Exception) -> Any:
        # Before the app's own handlers: one for every exception would make an error page of a refusal.
        pin = provider.pin
        failure = None if pin is None else pin.failure_in(error)
        if pin is None or failure is None or _is_handled(app, failure):
            return handle(error)
        pin.is_own_answer = True
        return _response(answer_to(failure, provider, pin, request.headers.get("Accept", "")))

    vars(app)["handle_user_exception"] = handle_user_exception


class _Routes:
    """The routes of an app. That of a request is the one that Flask has found for it."""

    def __init__(self, app: Flask) -> None:
        self._app = app

    def listed(self) -> Operations:
        """All operations, as the app is now."""
        return Operations(
            Operation.of_route(method, _template_of(rule.rule))
            for rule in self._app.url_map.iter_rules()
            for method in (rule.methods or set()) - _NOT_LISTED
        )

    def find(self, method: str, path: str) -> Operation | None:
        rule = request.url_rule if has_request_context() else None
        return None if rule is None else Operation.of_route(method, _template_of(rule.rule))


def _template_of(rule: str) -> str:
    """The path of a route as operations have it: `/orders/<int:id>` is `/orders/{id}`."""
    return _PARAMETER.sub(
        lambda found: f"{{{found[2]}:path}}" if found[1] == "path" else f"{{{found[2]}}}", rule
    )


def _is_handled(app: Flask, failure: Exception) -> bool:
    """Whether a handler of the app's own is for refusals, and not for whatever there may be."""
    # The last three are Exception, BaseException and object: a handler for these is for whatever there may be.
    kinds = type(failure).__mro__[:-3]
    handlers = (app.error_handler_spec[name][None] for name in (*request.blueprints, None))
    return any(kind in by_kind for by_kind in handlers for kind in kinds)


def _view_of(endpoints: ContractEndpoints, path: str) -> View:
    """What answers calls to one of the contract's endpoints."""

    def view() -> Response:
        return _response(answer_call(endpoints, path, request.environ))

    view.__name__ = path.rpartition("/")[2]
    return view


def _response(answer: Answer) -> Response:
    return Response(
        answer.body, answer.status, list(answer.headers), content_type=answer.content_type or None
    )
