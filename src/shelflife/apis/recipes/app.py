"""The recipe API: one operation, checked by the policies."""

from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

from shelflife.apis.malformed import Malformed, refuse_malformed_requests
from shelflife.apis.recipes.policies import POLICIES
from shelflife.integrations.fastapi import install
from shelflife.server import Provider, Rule, toml_file

__all__ = ["ROTATED_BRANDS", "RULES", "TABLES", "recipes_app", "recipes_provider"]

_FILE = Path(__file__).with_name("tables.toml")

TABLES = (
    "celiac_safe_brands",
    "incompatible_combinations",
    "dietary_ladder",
    "ingredient_diets",
    "measuring_units",
)

RULES = (
    Rule(from_table="ingredient_diets", to_table="dietary_ladder", relation="fits", via="fits"),
    Rule(
        from_table="ingredient_diets", to_table="ingredient_diets", relation="replaced_by", via="substitute"
    ),
    Rule(from_table="dietary_ladder", to_table="dietary_ladder", relation="stricter", via="stricter"),
    Rule(
        from_table="incompatible_combinations",
        to_table="measuring_units",
        relation="measured_in",
        via="replacement",
    ),
)

ROTATED_BRANDS = {"soy_sauce": {"brand": "tamari_clearspring_gf"}}
"""The rows that a rotation sets in `celiac_safe_brands`."""

EXAMPLE: dict[str, Any] = {
    "recipe": "ramen",
    "ingredient": "soy_sauce",
    "brand": "kikkoman_classic",
    "quantity": 30,
    "unit": "ml",
    "servings": 4,
    "celiac": True,
}
"""A request that names a brand that is not safe."""

Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[a-z0-9_]+$")]


class Conversion(BaseModel):
    """A conversion that somebody wants."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [EXAMPLE]})

    recipe: Name
    ingredient: Name
    brand: Name | None = None
    quantity: Annotated[int, Field(ge=1, le=1_000_000)]
    unit: Name
    servings: Annotated[int, Field(ge=1, le=1000)]
    combined_with: Name | None = None
    diet: Literal["omnivore", "pescatarian", "vegetarian", "vegan"] | None = None
    celiac: bool = False


class Converted(BaseModel):
    """A conversion that was made."""

    success: Literal[True] = True
    conversion: dict[str, Any]


def recipes_provider(**options: Any) -> Provider:
    """The recipe tables, rules and policies; the options are those of `Provider`."""
    sources = {name: toml_file(_FILE, section=name) for name in TABLES}
    provider = Provider(sources, RULES, versions=dict.fromkeys(TABLES, "1.0.0"), **options)
    for policy in POLICIES:
        provider.policy(policy)
    return provider


def recipes_app(provider: Provider | None = None) -> FastAPI:
    """Recipe conversion as a FastAPI app."""
    contract = provider or recipes_provider()
    app = FastAPI(title="Recipe conversion", version="1.0.0")
    refuse_malformed_requests(app)
    install(app, contract)

    @app.post("/conversions", status_code=201, responses={400: {"model": Malformed}})
    def create_conversion(wanted: Conversion) -> Converted:
        """Convert a recipe."""
        contract.check(wanted)
        return Converted(conversion=wanted.model_dump(exclude_none=True))

    return app
