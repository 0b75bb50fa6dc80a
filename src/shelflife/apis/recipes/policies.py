"""What the recipe conversion demands of a substitution."""

from shelflife.server import Fix, Request, Tables, fix

__all__ = ["POLICIES"]


def celiac_recipes_need_a_safe_brand(request: Request, tables: Tables) -> Fix | None:
    """This ingredient has to be of a brand that is safe for celiacs."""
    if not request.get("celiac"):
        return None
    listed = tables.celiac_safe_brands.get(request["ingredient"])
    if listed is None or request.equals("brand", listed["brand"]):
        return None
    return fix("USE_CELIAC_SAFE_BRAND", brand=listed["brand"])


def ingredients_must_go_together(request: Request, tables: Tables) -> Fix | None:
    """These two ingredients do not go together."""
    partner = request.get("combined_with")
    if partner is None:
        return None
    clash = tables.incompatible_combinations.get(f"{request['ingredient']}+{partner}")
    return None if clash is None else fix("REPLACE_INCOMPATIBLE", ingredient=clash["replacement"])


def ingredient_must_fit_the_diet(request: Request, tables: Tables) -> Fix | None:
    """This ingredient does not fit the diet."""
    diet = tables.dietary_ladder.get(request.get("diet"))
    known = tables.ingredient_diets.get(request["ingredient"])
    if diet is None or known is None:
        return None
    fits = known.follow("fits")
    if fits is None or fits["rung"] >= diet["rung"] or not known["substitute"]:
        return None
    return fix("USE_DIETARY_SUBSTITUTE", ingredient=known["substitute"])


def unit_must_be_the_usual_one(request: Request, tables: Tables) -> Fix | None:
    """This ingredient is measured in another unit."""
    usual = tables.measuring_units.get(request["ingredient"])
    if usual is None or request.equals("unit", usual["unit"]):
        return None
    return fix("USE_USUAL_UNIT", unit=usual["unit"])


def servings_must_be_even(request: Request, tables: Tables) -> Fix | None:
    """Recipes are written for an even number of servings."""
    servings = request["servings"]
    return fix("ROUND_SERVINGS", servings=servings + 1) if servings % 2 else None


POLICIES = (
    celiac_recipes_need_a_safe_brand,
    ingredients_must_go_together,
    ingredient_must_fit_the_diet,
    unit_must_be_the_usual_one,
    servings_must_be_even,
)
