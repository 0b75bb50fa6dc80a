"""Recipe conversion: five policies over five tables."""

from shelflife.apis.recipes.app import ROTATED_BRANDS, recipes_app, recipes_provider

__all__ = ["ROTATED_BRANDS", "recipes_app", "recipes_provider"]
