"""The contract in Django: a middleware around the app, as in `wsgi.py` or `asgi.py`, and in the project these two.

- In `MIDDLEWARE`, last: `"shelflife.integrations.django.RefusalsAnswered"`. Else Django makes an error page of a refusal.
- In the URLs: `urlpatterns = [*contract_urls(provider), ...]`, the endpoints for clients.
"""

from collections.abc import Callable, Collection
from typing import Any

from shelflife.extras import needing
from shelflife.integrations.stamping import CONTRACT_KEY
from shelflife.integrations.taking import takes
from shelflife.server.endpoints import ContractEndpoints, EndpointCall
from shelflife.server.feedback import Answer
from shelflife.server.operations import Operations
from shelflife.server.pinning import answer_to
from shelflife.server.provider import Provider

with needing("django"):
    from asgiref.sync import iscoroutinefunction, markcoroutinefunction
    from django.http import HttpRequest, HttpResponse
    from django.urls import path as url
    from django.views.decorators.csrf import csrf_exempt

__all__ = ["RefusalsAnswered", "contract_urls"]

View = Callable[..., Any]


class RefusalsAnswered:
    """A middleware of Django's that answers what `provider.check` raises in a view, under WSGI and ASGI."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self._get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """The answer to a refusal; None leaves anything else to Django."""
        scope = getattr(request, "scope", request.META)
        for contract in [
            scope[key] for key in [*scope] if key.startswith(CONTRACT_KEY)
        ]:  # one may be around another
            pin = contract.provider.pin
            failure = None if pin is None else pin.failure_in(error)
            if pin is not None and failure is not None:
                pin.is_own_answer = True
                return _response(
                    answer_to(failure, contract.provider, pin, request.headers.get("accept", ""))
                )
        return None


def contract_urls(
    provider: Provider, *, fixes: Collection[str] = (), login: Callable[[View], View] | None = None
) -> list[Any]:
    """The endpoints for clients, at `contract/`. They are views like any other, so the project's own middleware holds for them.

    `login` is a decorator for them, such as `login_required`. `fixes` are the operations whose fixes are told to whoever may ask here,
    without making the request.
    """
    takes("contract_urls takes a Provider", (provider, Provider))
    operations = Operations.named(fixes)
    endpoints = ContractEndpoints(provider, provider.apps.disclosed_fixes(lambda: operations, fixes))
    return [
        url(path.removeprefix("/"), csrf_exempt(login(view) if login else view))
        for path in endpoints.by_path
        for view in [_view_of(endpoints, path)]
    ]


def _view_of(endpoints: ContractEndpoints, path: str) -> View:
    """What answers calls to one of the contract's endpoints."""

    def view(request: HttpRequest) -> HttpResponse:
        call = EndpointCall(
            request.method,
            path,
            request.META.get("QUERY_STRING", ""),
            {name.lower(): value for name, value in request.headers.items()},
            root_path=request.META.get("SCRIPT_NAME", ""),
            holds_thread=not hasattr(request, "scope"),
        )
        return _response(endpoints.respond(call, request.read))

    return view


def _response(answer: Answer) -> HttpResponse:
    response = HttpResponse(answer.body, status=answer.status, headers=dict(answer.headers))
    response["Content-Type"] = answer.content_type
    if not answer.content_type:
        del response["Content-Type"]
    return response
