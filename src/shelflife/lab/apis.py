"""The APIs that streams are played on: how each is served, and what a planner is told of it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.apis.meetings import meetings_app, meetings_provider
from shelflife.apis.payouts import payouts_app, payouts_provider
from shelflife.apis.recipes import recipes_app, recipes_provider
from shelflife.server import Provider

__all__ = ["APIS", "Api"]


class Api(NamedTuple):
    """One API under test."""

    operation: str
    """The one call that the tasks are about."""

    fields: str
    """Its request, for the system prompt: names and types, and no value that a policy would ask for."""

    family_field: str
    """The field of its request that tells tasks of one family from those of another."""

    provider: Callable[..., Provider]
    app: Callable[[Provider], Any]
    tools: Callable[[Provider], Any] | None = None
    """The same as an MCP server, where there is one."""


def _acme_tools(provider: Provider) -> Any:
    from shelflife.apis.acme.tools import acme_tools  # which needs an extra of its own

    return acme_tools(provider)


def _recipes_tools(provider: Provider) -> Any:
    from shelflife.apis.recipes.tools import recipes_tools

    return recipes_tools(provider)


APIS: dict[str, Api] = {
    "acme": Api(
        "POST /subscriptions",
        "customer (string), plan (string), amount (integer, in minor units), currency (three lower-case letters), "
        "payment_method_token (string), promo_code (string, or null for none)",
        "plan",
        acme_provider,
        acme_app,
        _acme_tools,
    ),
    "recipes": Api(
        "POST /conversions",
        "recipe (string), ingredient (string), brand (string or null), quantity (integer), unit (string), servings (integer), "
        "combined_with (string or null), diet (omnivore, pescatarian, vegetarian, vegan or null), celiac (boolean)",
        "recipe",
        recipes_provider,
        recipes_app,
        _recipes_tools,
    ),
    "meetings": Api(
        "POST /meetings",
        "zone (string), start (string, HH:MM), minutes (integer), utc_offset (string, +HH:MM), dst_rule (string), tentative (boolean)",
        "zone",
        meetings_provider,
        meetings_app,
    ),
    "payouts": Api(
        "POST /payouts",
        "country (two letters), bank_code (string), amount (integer, in minor units), currency (three letters), bic (string), "
        "check_method (string), on_hold (boolean)",
        "bank_code",
        payouts_provider,
        payouts_app,
    ),
}
