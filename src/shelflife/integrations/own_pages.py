"""Whether an app has a page of its own where the operator's page would stand: then that is the one to be seen."""

from collections.abc import Callable
from typing import Any

from shelflife.server.admin import AdminEndpoints
from shelflife.server.endpoints import Endpoints

__all__ = ["endpoints_before", "way_to_page"]


def way_to_page(endpoints: Endpoints) -> tuple[str | None, str]:
    """The path of the operator's page as people type it, without its last slash, and from there the way to it. None without a page."""
    root = endpoints.provider.admin_page or ""
    if root not in endpoints.by_path or root == "/":
        return None, ""
    return root[:-1], root[
        root.rindex("/", 0, -1) + 1 :
    ]  # relative: only the browser knows where the app is mounted


def endpoints_before(endpoints: AdminEndpoints, app: Any) -> Callable[[str], bool]:
    """Tells by its path whether a request is answered before it comes to an app."""
    if not any(kind.__module__.startswith("django.core.handlers.") for kind in type(app).__mro__):
        return endpoints.by_path.__contains__
    from django.urls import Resolver404, resolve  # which is there: the app is made of it

    def is_projects_own(path: str) -> bool:
        try:
            resolve(path)
        except Resolver404:
            return False
        return True

    def is_answered(path: str) -> bool:
        if path not in endpoints.by_path:
            return False
        if path not in endpoints.page or not is_projects_own(path):
            return True
        endpoints.provider.apps.warn_once(
            f"the project has a page of its own at {endpoints.provider.admin_page}, so the operator's is not there: give it another path with"
            ' Provider(admin_page="/operators/")'
        )
        return False

    return is_answered
