"""The recipe API as a tool of an MCP server."""

from typing import Annotated, Literal

from pydantic import Field

from shelflife.apis.recipes.app import Converted, Name, recipes_provider
from shelflife.extras import needing
from shelflife.integrations.mcp import install
from shelflife.server import Provider

with needing("mcp"):
    from mcp.server import MCPServer

__all__ = ["recipes_tools"]


def recipes_tools(provider: Provider | None = None) -> "MCPServer[object]":
    """Recipe conversion as an MCP server."""
    contract = provider or recipes_provider()
    server: MCPServer[object] = MCPServer("Recipe conversion", version="1.0.0", log_level="WARNING")

    @server.tool()
    def create_conversion(
        recipe: Name,
        ingredient: Name,
        quantity: Annotated[int, Field(strict=True, ge=1, le=1_000_000)],
        unit: Name,
        servings: Annotated[int, Field(strict=True, ge=1, le=1000)],
        brand: Name | None = None,
        combined_with: Name | None = None,
        diet: Literal["omnivore", "pescatarian", "vegetarian", "vegan"] | None = None,
        celiac: bool = False,
    ) -> Converted:
        """Convert a recipe."""
        wanted = {
            "recipe": recipe,
            "ingredient": ingredient,
            "brand": brand,
            "quantity": quantity,
            "unit": unit,
            "servings": servings,
            "combined_with": combined_with,
            "diet": diet,
            "celiac": celiac,
        }
        return Converted(conversion={name: value for name, value in wanted.items() if value is not None})

    operations = {"create_conversion": "POST /conversions"}
    install(server, contract, checked=["create_conversion"], operations=operations)
    return server
