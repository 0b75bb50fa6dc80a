"""Recipe conversion: its policies and its ladder."""

import pytest

from shelflife.apis.recipes import ROTATED_BRANDS, recipes_app, recipes_provider
from tests.calling import ADMIN, TOKEN, calling

WANTED = {"recipe": "ramen", "ingredient": "noodles", "quantity": 200, "unit": "g", "servings": 4}


@pytest.fixture
def client():
    with calling(recipes_app(recipes_provider(admin_token=TOKEN))) as client:
        yield client


def suggestions(response):
    assert response.status_code == 422
    return response.json()["recovery_feedback"]["suggestions"]


@pytest.mark.parametrize(
    ("changes", "type", "parameters", "tables"),
    [
        (
            {"ingredient": "soy_sauce", "brand": "kikkoman_classic", "celiac": True},
            "USE_CELIAC_SAFE_BRAND",
            {"brand": "tamari_kikko_gf"},
            ["celiac_safe_brands"],
        ),
        (
            {"ingredient": "gelatin", "combined_with": "pineapple"},
            "REPLACE_INCOMPATIBLE",
            {"ingredient": "agar"},
            ["incompatible_combinations"],
        ),
        (
            {"ingredient": "honey", "diet": "vegan"},
            "USE_DIETARY_SUBSTITUTE",
            {"ingredient": "maple_syrup"},
            ["dietary_ladder", "ingredient_diets"],
        ),
        ({"ingredient": "saffron"}, "USE_USUAL_UNIT", {"unit": "mg"}, ["measuring_units"]),
        ({"servings": 3}, "ROUND_SERVINGS", {"servings": 4}, []),
    ],
)
def test_each_policy_gives_its_fix_and_the_fixed_request_passes(client, changes, type, parameters, tables):
    [suggestion] = suggestions(client.post("/conversions", json=WANTED | changes))
    assert (suggestion["type"], suggestion["parameters"]) == (type, parameters)
    assert suggestion["cache_hint"] == ("cacheable" if tables else "recompute")
    assert [dependency["table"] for dependency in suggestion.get("tables", [])] == tables
    assert client.post("/conversions", json=WANTED | changes | parameters).status_code == 201


@pytest.mark.parametrize(
    ("diet", "passing"),
    [
        ("omnivore", {"beef_mince", "anchovies", "honey", "lentils"}),
        ("pescatarian", {"anchovies", "honey", "lentils"}),
        ("vegetarian", {"honey", "lentils"}),
        ("vegan", {"lentils"}),
    ],
)
def test_the_ladder_has_four_rungs(client, diet, passing):
    passed = {
        ingredient
        for ingredient in ("beef_mince", "anchovies", "honey", "lentils")
        if client.post("/conversions", json=WANTED | {"ingredient": ingredient, "diet": diet}).status_code
        == 201
    }
    assert passed == passing


def test_a_free_request_passes_and_is_stamped(client):
    response = client.post("/conversions", json=WANTED)
    assert response.status_code == 201
    assert response.json()["conversion"].items() >= WANTED.items()
    assert set(response.json()["table_versions"].values()) == {"1.0.0"}


def test_the_brand_rotates(client):
    wanted = WANTED | {"ingredient": "soy_sauce", "brand": "tamari_kikko_gf", "celiac": True}
    assert client.post("/conversions", json=wanted).status_code == 201
    body = {"table": "celiac_safe_brands", "set": ROTATED_BRANDS}
    assert client.post("/admin/reload-table", json=body, headers=ADMIN).json()["changed"] == ["soy_sauce"]
    [suggestion] = suggestions(client.post("/conversions", json=wanted))
    assert suggestion["parameters"] == {"brand": "tamari_clearspring_gf"}
